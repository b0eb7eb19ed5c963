"""Tests of one engine as tests of the other: with ``-m gpu``, bodies that run in a `World` run on GPU ranks.

    python -m pytest -m gpu -n 6 tests/ops

A world of N ranks is N processes there, whichever kind it says, since threads cannot share a GPU's memory. A worker of
pytest starts four (`worlds.GPU_POOL`). A test that puts something in place of a part does so in its own process, where
no GPU rank is, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import worlds
from worlds import World

FOLDERS = ("ops",)
CPU_ALONE = "cpu_alone"  # the mark of tests, or of some of their cases, of which GPU ranks have no counterpart; and why


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let every test that may run in a world run on GPU ranks, where tests for GPUs are asked for."""
    asked = metafunc.config.getoption("markexpr") or ""
    if "gpu" in asked and "not gpu" not in asked and _has_bodies(metafunc):
        gpus = pytest.param(True, marks=[pytest.mark.gpu, pytest.mark.timeout(240)], id="gpu")
        metafunc.parametrize("on_gpus", [gpus], indirect=True)


def _has_bodies(metafunc: pytest.Metafunc) -> bool:
    definition = metafunc.definition
    if definition.path.parent.name not in FOLDERS or definition.get_closest_marker(CPU_ALONE) is not None:
        return False
    if "monkeypatch" in metafunc.fixturenames:
        return False
    return any(value is World or isinstance(value, World) for value in vars(metafunc.module).values())


@pytest.fixture(autouse=True)
def on_gpus(request: pytest.FixtureRequest) -> Iterator[None]:
    """Worlds are those of GPU ranks while a test runs, where it has this parameter."""
    if not getattr(request, "param", False):
        yield
        return
    alone = request.node.get_closest_marker(CPU_ALONE)
    if alone is not None:
        pytest.skip(f"for CPU ranks alone: {alone.args[0] if alone.args else 'GPU ranks have no counterpart'}")
    from gcylon_lab.memory.device import why_unavailable
    from gcylon_lab.memory.nvml import visible_gpus

    if not visible_gpus() or why_unavailable():
        pytest.skip("there is no GPU that can be used")
    worlds.ENGINE = "gpu"
    try:
        yield
    finally:
        worlds.ENGINE = "cpu"
