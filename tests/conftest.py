"""Fixtures for tests that run on ranks."""

from __future__ import annotations

import gc
import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from engines import on_gpus, pytest_generate_tests  # noqa: F401
from worlds import World

from gcylon_lab.memory.nvml import visible_gpus
from gcylon_lab.profiling import set_recorder
from gcylon_lab.runtime.context import opened

# On a machine that has much else to do any example may take long.
hypothesis.settings.register_profile("without deadlines", deadline=None)
hypothesis.settings.load_profile("without deadlines")
# What ranks of tests compile is shared by them, and leaves nothing in the folder of the person who runs them.
KERNELS = tempfile.TemporaryDirectory(prefix="kernels-")
os.environ["GCYLON_KERNEL_CACHE"] = KERNELS.name
# Dask's workers are forks of one process that has loaded all: each would take seconds to do that.
os.environ["DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD"] = "forkserver"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a script; tests interrupt themselves all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two ranks, and a number that is no power of two; four are MPI's.
EVERY_WORLD = [
    World("single", 1),
    World("threads", 2),
    World("threads", 3),
    pytest.param(World("mpi", 2), marks=pytest.mark.mpi),
    pytest.param(World("mpi", 4), marks=pytest.mark.mpi),
]


@pytest.fixture(scope="module", autouse=True)
def _few_to_collect() -> None:
    """Leave what earlier files have made out of collections: a worker holds millions of objects in the end, and tests
    that look whether something is freed collect often."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """Fail a test that leaves a context, or its recorder, open in this process: tests of another file would meet it."""
    yield
    left = opened()
    while (context := opened()) is not None:
        context.close()
    recorder = set_recorder(None)
    assert left is None, f"the test left a context open: {left}"
    assert recorder is None, f"the test left a recorder on: {recorder}"


@pytest.fixture(params=EVERY_WORLD, ids=str)
def world(request: pytest.FixtureRequest) -> World:
    """Every kind of world, from one rank to four."""
    return request.param


@pytest.fixture(params=EVERY_WORLD[1:], ids=str)
def several(request: pytest.FixtureRequest) -> World:
    """The worlds of more than one rank."""
    return request.param


# Where tests start engines, a browser or Python processes: these run one after the other, and before others that
# want the same core, so that they meet their times.
ENGINES = ("cluster", "faults", "gpu")
ENGINE_FILES = ("test_cli.py", "test_devices.py", "test_doctor.py", "test_lost_rank.py", "test_with_cluster.py")
# Together as long as those, and patient: these take their turns on other workers.
PATIENT = {"bench": ("bench/",), "notebooks": ("notebooks/", "widgets/test_in_browser")}
# Tried again before it counts as failed: by marker, or a part of a test's name; how often, and why.
# A test that fails now and then for a reason of ours has a race, which is to be found: it does not belong here.
RETRIED = {
    "browser": (2, "Chromium, which a busy machine starves, paints later than its page waits"),
    "ops/test_lost_rank.py": (1, "the design gives seconds, which a machine that has much else to do may miss once"),
    "test_a_revoke_in_the_middle_of_long_messages": (1, "Open MPI 5.0.11 crashes once in some hundreds of revokes"),
    "test_signals_in_a_row": (1, "signals come at random moments, and each has seconds, which a busy machine may miss"),
}
# The long units come first: what is short fills up all workers to the end. Ranks of MPI, which the tests of one worker
# start once, keep cores busy where they wait for each other: they come last of these.
LONG = ("engines", *PATIENT, "mpi")
PATIENCE = 5  # the niceness of workers that run other tests than those with engines


def unit_of(nodeid: str) -> str:
    """What is run on one worker, one test after the other: a file, or one of the long units."""
    file, _, test = nodeid.partition("::")
    parts = file.split("/")
    for unit, places in PATIENT.items():
        if any(place in file for place in places):
            return unit
    if set(ENGINES) & set(parts) or parts[-1] in ENGINE_FILES:
        return "engines"
    return "mpi" if re.search(r"(?<![a-z])mpi(?![a-z])", test) else file  # not "compiled"


def without_gpus(config: pytest.Config) -> bool:
    """Whether tests of GPUs are left out: this machine has none, and they were not asked for by their mark."""
    return "gpu" not in (config.getoption("markexpr") or "") and not visible_gpus()


def pytest_report_header(config: pytest.Config) -> str:
    """Say whether tests of GPUs are among those that run."""
    return (
        "GPUs: none here, so tests marked gpu are left out" if without_gpus(config) else f"GPUs: {len(visible_gpus())}"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot run here, bring units into their order, and try again what `RETRIED` names."""
    if without_gpus(config):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("gpu")])
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    units = {item: unit_of(item.nodeid) for item in items}
    sizes = Counter(units.values())
    order = [*LONG, *(unit for unit, _ in sizes.most_common() if unit not in LONG)]
    items.sort(key=lambda item: order.index(units[item]))
    for item in items:
        retried = retried_as(item.nodeid, {mark.name for mark in item.iter_markers()})
        if retried:
            item.add_marker(pytest.mark.flaky(reruns=RETRIED[retried][0]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let tests with engines go first: a worker of several makes room for them once it runs others."""
    several = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1
    if several and unit_of(item.nodeid) != "engines" and os.nice(0) < PATIENCE:
        os.nice(PATIENCE)


def retried_as(nodeid: str, markers: set[str]) -> str:
    """The entry of `RETRIED` that names a test; "" where none does."""
    return next((name for name in RETRIED if name in markers or name in nodeid), "")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how often each test was tried again, and why that is allowed: also that none was."""
    reports = terminalreporter.stats.get("rerun", ())
    struck = Counter(report.nodeid for report in reports)
    terminalreporter.section("tried again")
    for nodeid, count in sorted(struck.items()):
        reasons = [why for name, (_, why) in RETRIED.items() if name in nodeid]
        terminalreporter.line(f"{nodeid}: {count} time{'s' * (count > 1)}" + (f" ({reasons[0]})" if reasons else ""))
        for report in reports:
            if report.nodeid == nodeid:  # of a test that passed in the end CI prints nothing else
                crash = getattr(report.longrepr, "reprcrash", None)
                terminalreporter.line(f"    {getattr(crash, 'message', report.longrepr)!s:.600}")
    terminalreporter.line(f"{len(struck)} of the tests, {sum(struck.values())} times in all")


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
