"""Fixtures for tests that run on ranks."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest
from engines import on_gpus, pytest_generate_tests  # noqa: F401
from worlds import World

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a script; tests interrupt themselves all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
ENGINES = ("cluster", "faults", "gpu", "notebooks")
ENGINE_FILES = ("test_cli.py", "test_doctor.py", "test_equipment.py", "test_in_browser.py", "test_with_cluster.py")
# As long as half of those, and patient: these take their turn on the other worker.
PATIENT = ("bench/", "notebooks/test_notebooks.py", "widgets/test_in_browser_trouble.py")
# Where processes, threads or clocks meet: what a busy machine can starve.
TIMED = (*ENGINES, "bench", "comm", "memory", "profiling", "widgets")
ONE_TRY = tuple(f"gpu/test_{what}_on_gpu.py" for what in ("exchanges", "joins", "relations", "sets", "sorts"))
# The long units come first: what is short fills up both workers to the end.
LONG = ("engines", "patient")


def unit_of(nodeid: str) -> str:
    """What is run on one worker, one test after the other: a file, or one of the long units."""
    file, _, test = nodeid.partition("::")
    parts = file.split("/")
    if any(place in file for place in PATIENT):
        return "patient"
    starts = "mpi" in test or bool(set(ENGINES) & set(parts)) or parts[-1] in ENGINE_FILES
    return "engines" if starts else file


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring units into their order, and try what a busy machine can starve again before it counts as failed.

    (The summary names what was tried again. Tables and operations have one try, on GPUs too: what they give depends on
    no clock.)
    """
    units = {item: unit_of(item.nodeid) for item in items}
    sizes = Counter(units.values())
    order = [*LONG, *(unit for unit, _ in sizes.most_common() if unit not in LONG)]
    items.sort(key=lambda item: order.index(units[item]))
    for item in items:
        if item.get_closest_marker("browser") is not None:
            item.add_marker(pytest.mark.flaky(reruns=2))
        elif any(place in item.nodeid for place in ONE_TRY):
            continue
        elif set(TIMED) & set(item.nodeid.partition("::")[0].split("/")) or units[item] in LONG:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give workers whole units, in the order above.

    (Groups by mark do not work with pytest 9.2 and xdist 3.8.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class UnitByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False  # by the number of their tests
    return UnitByUnit(config, log)
