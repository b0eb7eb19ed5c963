"""Fixtures for tests that run on ranks."""

from __future__ import annotations

from typing import Any

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
ENGINES = ("bench", "cluster", "faults", "gpu", "notebooks")
# As long as a third of those, and patient: these take their turn on the other worker. They are one unit, since units of
# many tests come first: a long one that came last would leave the other worker with nothing to do.
PATIENT = ("notebooks/test_notebooks.py", "widgets/test_in_browser_trouble.py", "bench/test_tpch.py")
ENGINE_FILES = ("test_cli.py", "test_doctor.py", "test_equipment.py", "test_in_browser.py", "test_with_cluster.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try what needs a real browser again before it counts as failed: starved of a core, a page misses its times."""
    for item in items:
        if item.get_closest_marker("browser") is not None:
            item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give workers whole files, and all that starts engines to one of them.

    (Groups by mark do not work with pytest 9.2 and xdist 3.8.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneByOne(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            parts = file.split("/")
            if file.endswith(PATIENT):
                return "patient"
            starts = "mpi" in test or bool(set(ENGINES) & set(parts)) or parts[-1] in ENGINE_FILES
            return "engines" if starts else file

    return OneByOne(config, log)
