"""Fixtures for tests that run on ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds import World

EVERY_WORLD = [
    World("single", 1),
    World("threads", 1),
    World("threads", 2),
    World("threads", 3),
    World("threads", 4),
    pytest.param(World("mpi", 2), marks=pytest.mark.mpi),
    pytest.param(World("mpi", 4), marks=pytest.mark.mpi),
]


@pytest.fixture(params=EVERY_WORLD, ids=str)
def world(request: pytest.FixtureRequest) -> World:
    """Every kind of world, from one rank to four."""
    return request.param


@pytest.fixture(params=EVERY_WORLD[2:], ids=str)
def several(request: pytest.FixtureRequest) -> World:
    """The worlds of more than one rank."""
    return request.param


# Where tests start engines, browsers or Python processes: these run one after the other, so that they meet their times.
ENGINES = ("bench", "cluster", "faults", "gpu", "notebooks", "test_cli.py", "test_doctor.py", "test_equipment.py")


@pytest.hookimpl(tryfirst=True)  # before the workers look at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what starts engines run one by one, and try what needs a real browser again before it counts as failed.

    Starved of a core, a page misses its times.
    """
    here = Path(__file__).parent
    for item in items:
        browser = item.get_closest_marker("browser") is not None
        if browser:
            item.add_marker(pytest.mark.flaky(reruns=2))
        starts = browser or item.get_closest_marker("mpi") is not None
        if starts or item.path.relative_to(here).parts[0] in ENGINES or item.path.name == "test_with_cluster.py":
            item.add_marker(pytest.mark.xdist_group("engines"))
