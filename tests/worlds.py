"""Worlds of ranks to run one test body on: alone, as threads, and as real MPI processes that live for the session."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import pickle
import re
import reprlib
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import pytest

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.backends.refusals import is_refused_on_gpus
from gcylon_lab.comm.threads import ThreadsWorld
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import BudgetExceeded, GcylonError, RankLost, Revoked
from gcylon_lab.runtime.context import Context, initialize, run_threads, set_current

MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_btl": "^ofi",  # as for engines: it would sleep for a second
}


LEAST_GPU_LIMIT = 4 * 2**20  # below it, tests of small budgets are those of CPU engines alone
GPU_POOL = 4  # so many GPU ranks are started at once, and serve smaller worlds too: each takes half a GiB of a GPU
# Several pools share a GPU and a host, so a rank is given what tests need, and not what it finds free.
GPU_LIMIT = 2 * 2**30
GPU_ENVIRONMENT = {
    "GCYLON_GPU_MEMORY_LIMIT": str(GPU_LIMIT), "GCYLON_HOST_MEMORY_LIMIT": "1GiB", "GCYLON_PINNED_AHEAD": "32MiB",
}  # fmt: skip
ENGINE = "cpu"  # what worlds work with; see `engines`
# So many times the rows and limits have GPU ranks where a figure is judged: what libcudf takes however few rows there
# are, 64 KiB to partition some and whole 256 bytes for each buffer, is little of these.
GPU_SCALE = 8
# There peaks are what the allocator measured, and predictions are of claims, which have the most that libcudf may take.
GPU_MOST_PREDICTED = 2.4
RANKS: Any = None  # in a process of MPI: the communicator of the ranks that run a body


def scaled(number: int) -> int:
    """A number of rows or bytes for the ranks of now: see `GPU_SCALE`."""
    return number * (GPU_SCALE if ENGINE == "gpu" else 1)


def most_predicted(most: float) -> float:
    """How many times a measured peak may be predicted, and on GPU ranks: see `GPU_MOST_PREDICTED`."""
    return max(most, GPU_MOST_PREDICTED) if ENGINE == "gpu" else most


def sorting_floor() -> int:
    """Bytes that sorting is predicted to take on a GPU rank however few rows there are; 0 on others."""
    return 2 * 2**20 if ENGINE == "gpu" else 0


def claimed_bytes(context: Context) -> int:
    """What is in use; on GPU ranks without what nobody has claimed, which every operation counts anew."""
    return sum(context.budget.by_use().values()) if ENGINE == "gpu" else context.budget.used_bytes


class Outcome:
    """What a body did on one rank: returned a value, or raised."""

    def __init__(self, value: Any, error: BaseException | None) -> None:
        self.value = value
        self.error = error


def attempt(function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    try:
        return Outcome(function(*args), None)
    except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:  # the latter two are no Exception
        if isinstance(error, AssertionError) and not error.args:
            error.args = (_asserted(error),)
        error.__traceback__ = None if isinstance(error, GcylonError) else error.__traceback__
        return Outcome(None, error)


def _asserted(error: AssertionError) -> str:
    """Where a bare assertion stands, and the names in it: in the process of a rank pytest does not tell them."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    place = traceback.extract_tb(error.__traceback__)[-1]
    line = place.line or ""
    values = {name: value for name, value in frame.f_locals.items() if re.search(rf"\b{name}\b", line)}
    return f"{Path(place.filename).name}:{place.lineno}: {line} with {reprlib.repr(values)}"


class World:
    """N ranks of one kind."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind = kind
        self.size = size

    def __repr__(self) -> str:
        return f"{self.kind}-{self.size}"

    def outcomes(self, function: Callable[..., Any], *args: Any, config: GcylonConfig | None = None) -> list[Outcome]:
        """Run a module-level function on every rank, each with a fresh context; errors are returned, not raised."""
        if ENGINE == "gpu":
            return on_gpu_ranks(self.size, function, args, config)
        if self.kind == "mpi":
            return mpi_pool(self.size).run(self.size, function, args, config)
        if self.kind == "single":
            context = initialize(config, sample_hz=0, engine="cpu")
            try:
                return [attempt(function, args)]
            finally:
                context.close()
        return run_threads(self.size, attempt, function, args, config=config)

    def run(self, function: Callable[..., Any], *args: Any, config: GcylonConfig | None = None) -> list[Any]:
        """As `outcomes`, but the values, and the first error is raised."""
        outcomes = self.outcomes(function, *args, config=config)
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        for error in sorted(errors, key=lambda one: isinstance(one, RankLost | Revoked)):  # of a rank that failed
            raise error
        return [outcome.value for outcome in outcomes]


def in_turn(ones: Sequence[Any], *axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Every combination of some axes once, each with one of `ones` before it, in turn.

    Every pair of one of them and a value of an axis comes too, where another axis is as long as they are.
    """
    places = itertools.product(*(range(len(axis)) for axis in axes))
    return [(ones[sum(place) % len(ones)], *(axis[i] for axis, i in zip(axes, place, strict=True))) for place in places]


def called(value: Any) -> str:
    """What a value is called in the name of a case: functions by their names, as addresses differ between workers."""
    return str(getattr(value, "__name__", value))


def marked(cases: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Cases as parameters, with the mark of MPI where a world among them is of it."""
    return [
        pytest.param(
            *case, marks=[pytest.mark.mpi] if any(getattr(one, "kind", "") == "mpi" for one in case) else [],
            id="-".join(map(called, case)),
        )
        for case in cases
    ]  # fmt: skip


def run_over(
    size: int, transport: Callable[[Any], Any], body: Callable[..., Any], *args: Any, backend: Any = None
) -> list[Any]:
    """Run a function on ranks that are threads, over transports made of theirs, perhaps with another backend."""
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def work(base: Any) -> None:
        try:
            context = Context(transport(base), sample_hz=0, engine="cpu")
            if backend is not None:
                context.workspace.backend = backend()
            set_current(context)
            results[base.rank] = body(*args)
            context.close()
        except BaseException as error:
            errors.append(error)
            base.revoke()

    threads = [threading.Thread(target=work, args=(base,)) for base in ThreadsWorld(size).transports()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    return results


class MpiPool:
    """Real MPI ranks that run one function after the other."""

    def __init__(self, size: int, engine: str = "cpu") -> None:
        self.size, self.engine = size, engine
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-")
        address = str(Path(self._folder.name) / "socket")
        listener = Listener(address, family="AF_UNIX", backlog=size)
        mpiexec = Path(sys.executable).with_name("mpiexec")
        self._process = subprocess.Popen(
            [str(mpiexec), "--with-ft", "ulfm", "-n", str(size), sys.executable, __file__, address],
            env=os.environ
            | MPI_ENVIRONMENT
            | (GPU_ENVIRONMENT if engine == "gpu" else {})
            | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "GCYLON_ENGINE": engine},
            stdin=subprocess.DEVNULL,
        )
        links = [listener.accept() for _ in range(size)]
        listener.close()
        self._links: list[Connection] = [link for _, link in sorted((link.recv(), link) for link in links)]

    def run(
        self, size: int, function: Callable[..., Any], args: tuple[Any, ...], config: GcylonConfig | None
    ) -> list[Outcome]:
        """Run a function on the first ranks."""
        order, until = pickle.dumps((size, function, args, config)), time.monotonic() + 300
        try:
            for link in self._links:
                link.send_bytes(order)
            if not all(link.poll(max(until - time.monotonic(), 0.0)) for link in self._links[:size]):
                raise TimeoutError(f"{function.__name__} on {size} MPI ranks did not end in 300 s")
            return [link.recv() for link in self._links[:size]]
        except BaseException:  # pytest's own time limit too: the next test must not be given what this one asked for
            self.stop()
            raise

    def stop(self) -> None:
        for link in self._links:
            link.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        _pools.pop((self.size, self.engine), None)
        self._folder.cleanup()


_pools: dict[tuple[int, str], MpiPool] = {}


def mpi_pool(size: int, engine: str = "cpu") -> MpiPool:
    key = size, engine
    if key not in _pools:
        _pools[key] = MpiPool(size, engine)
        atexit.register(lambda pool=_pools[key]: pool.stop())
    return _pools[key]


def on_gpu_ranks(
    size: int, function: Callable[..., Any], args: tuple[Any, ...], config: GcylonConfig | None
) -> list[Outcome]:
    """Run a function on processes that share the GPUs there are; a body that cannot be sent to them is skipped."""
    try:
        pickle.dumps((function, args, config))
    except Exception as error:
        pytest.skip(f"the body cannot be sent to another process: {error}")
    outcomes = mpi_pool(max(size, GPU_POOL), "gpu").run(size, function, args, config)
    for outcome in outcomes:
        if outcome.error is not None and is_refused_on_gpus(outcome.error):
            pytest.skip(str(outcome.error))
        if isinstance(outcome.error, BudgetExceeded) and outcome.error.numbers["limit_bytes"] < LEAST_GPU_LIMIT:
            pytest.skip(f"a budget that libcudf's own temporaries fill: {outcome.error}")
    return outcomes


def serve(address: str) -> None:
    """Be one rank of a pool: take functions from a link, run each with other ranks, send outcomes back.

    Each rank has a link of its own, since whoever waits for a message of MPI keeps a core busy.
    """
    from mpi4py import MPI

    global RANKS, ENGINE
    world, ENGINE = MPI.COMM_WORLD, os.environ["GCYLON_ENGINE"]
    if ENGINE == "gpu":
        gl.Table.local = _local_by_host
    link = Client(address, family="AF_UNIX")
    link.send(world.rank)
    parts = {world.size: world}
    while True:
        try:
            size, function, args, config = link.recv()
        except EOFError:
            world.Barrier()
            return
        if size not in parts:
            parts[size] = world.Split(0 if world.rank < size else MPI.UNDEFINED)
        if world.rank >= size:
            continue
        RANKS = parts[size]
        outcome = picklable(_served(RANKS, function, args, config))
        RANKS.Barrier()  # until all have ended, each goes on answering the others' messages
        link.send(outcome)


def _served(ranks: Any, function: Callable[..., Any], args: tuple[Any, ...], config: GcylonConfig | None) -> Outcome:
    """What a function did on this rank, with a fresh context of the ranks that run it."""
    on_gpu = ENGINE == "gpu"
    try:
        if on_gpu and config is not None and not config.gpu_memory_limit:
            context = initialize(config.with_values(gpu_memory_limit=GPU_LIMIT), comm=ranks, sample_hz=0)
            try:
                context.set_config(config)
            except GcylonError:
                context.close()
                raise
        else:
            context = initialize(config, comm=ranks, sample_hz=0)
    except GcylonError as error:  # the same on all ranks
        return Outcome(None, error)
    try:
        outcome = attempt(function, args)
        return outcome if not on_gpu or outcome.error is None else picklable(outcome)
    finally:
        if on_gpu:
            gc.collect()
        context.close()
        set_current(None)


def _local_by_host(table: gl.Table) -> Any:
    """A GPU rank's rows as a CPU rank has them: the dtypes that tests compare, some of which cuDF has not."""
    workspace = table._context.workspace
    with workspace.memory_named("A frame of a table's rows", staged=True):
        return to_frame(workspace.backend.to_host(table._whole()))


def picklable(outcome: Outcome) -> Outcome:
    try:
        pickle.dumps(outcome)
        return outcome
    except Exception:
        text = "".join(traceback.format_exception(outcome.error or ValueError("a result that cannot be pickled")))
        return Outcome(None, RuntimeError(text))


if __name__ == "__main__":
    import worlds  # so that outcomes are of the importable module's class, not of __main__'s

    worlds.serve(sys.argv[1])
