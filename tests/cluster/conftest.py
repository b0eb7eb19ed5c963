"""Clusters that live for the session: one that is used, and one that is hurt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gcylon_lab as gl

# Functions of test modules run on engines, which therefore import these modules.
HERE = {"PYTHONPATH": str(Path(__file__).parent)}


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run also what takes long of the tests on two hosts, and Slurm; give the test files on the command line"
    parser.addoption("--all-hosts", action="store_true", help=text)


@pytest.fixture(scope="session")
def all_hosts(request: pytest.FixtureRequest) -> None:
    """Skip what runs only where it is asked for."""
    if not request.config.getoption("--all-hosts", default=False):
        pytest.skip("python -m pytest tests/cluster --all-hosts runs it")


@pytest.fixture(scope="session", autouse=True)
def runtime_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Clusters of tests keep their files apart from those of the person who runs the tests."""
    before = os.environ.get("JUPYTER_RUNTIME_DIR")
    os.environ["JUPYTER_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))
    yield os.environ["JUPYTER_RUNTIME_DIR"]
    if before is None:
        del os.environ["JUPYTER_RUNTIME_DIR"]
    else:
        os.environ["JUPYTER_RUNTIME_DIR"] = before


@pytest.fixture(scope="session")
def left_alone(runtime_dir: str) -> Iterator[list[Path]]:
    """Folders of clusters that nobody owns any more; other tests go on meanwhile, and in the end all are gone."""
    from test_lifecycle import of_home, wait_until

    homes: list[Path] = []
    yield homes
    for home in homes:
        assert wait_until(lambda home=home: not home.exists() and not of_home(str(home)), 100), of_home(str(home))


@pytest.fixture(scope="session")
def lab(runtime_dir: str) -> Iterator[gl.Cluster]:
    """Two ranks, for tests that leave them as they are."""
    with gl.Cluster(2, name="used", grace_s=20, progress=False, env=HERE) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def hurt(runtime_dir: str) -> Iterator[gl.Cluster]:
    """Two ranks, for tests that interrupt, kill and restart them."""
    with gl.Cluster(2, name="hurt", grace_s=20, progress=False, env=HERE) as cluster:
        yield cluster


@pytest.fixture
def frame() -> pd.DataFrame:
    """A thousand rows of mixed columns."""
    rng = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "k": rng.integers(0, 40, 1000),
            "v": rng.random(1000),
            "s": [f"row {i}" if i % 9 else None for i in range(1000)],
        }
    )
