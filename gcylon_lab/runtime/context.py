"""The composition root of a rank: it puts transport, budget, tiers, profiler and config together."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from ..comm.single import SingleTransport
from ..comm.threads import ThreadsWorld
from ..comm.transport import Transport
from ..config import GcylonConfig, read_settings, warn_of_unread
from ..engine.store.aliasing import by_use
from ..engine.store.workspace import Workspace
from ..errors import ArgumentError, CommError, ConfigError, GcylonError
from ..memory.tiers.bandwidth import CopyRates, pinned_rates
from ..memory.user_stream import UserStream
from ..profiling import Recorder, Sampler, current_recorder, set_recorder
from ..profiling.clock import estimate_offset_ns
from ..profiling.sampler import DEFAULT_HZ, Sample, checked_hz, read_rss_bytes
from ..profiling.snapshot import RankSnapshot, take_snapshot
from .devices import bind_gpu, equip, gpu_probe
from .memory_info import memory_info, pools_of, trim
from .posts import Messages, PostRing, read_messages

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")

_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS")
_CLOCK_ROUNDS = 8
_local = threading.local()
_process: list[Context] = []
_hooks: list[Callable[..., None]] = []  # each ends all processes, whose context it is or not


class Releasable(Protocol):
    """What ends with a context: its tables."""

    def release(self) -> None:
        """Give back this rank's memory and disk."""
        ...


class Context:
    """One rank: where it stands in its world, what it may use, what it records.

    Made by `initialize` or `run_threads`. Collective: all ranks call it.

    Parameters
    ----------
    transport : Transport
        How this rank reaches the others.
    config : GcylonConfig, optional
        The live config; its limit becomes this rank's ceiling. Defaults and the environment otherwise.
    sample_hz : float, default 20
        Rate of the memory sampler; 0 for none.
    engine : {"", "auto", "cpu", "gpu"}
        What all ranks work with; see `equip`.
    """

    def __init__(
        self,
        transport: Transport,
        config: GcylonConfig | None = None,
        *,
        sample_hz: float = 20.0,
        engine: str = "",
    ) -> None:
        if transport.rank == 0:  # who says it for all
            warn_of_unread(os.environ)
        config = GcylonConfig(**read_settings(os.environ)) if config is None else config
        self.rank, self.size, self.host = transport.rank, transport.size, transport.host
        self._thread = threading.get_ident()
        self.recorder = Recorder()
        self.recorder.rank = self.rank
        self.posts = PostRing(self.rank)
        self.equipment = made = equip(transport, config, engine, recorder=self.recorder)
        hosts = made.around.hosts
        self.local_size = hosts.count(self.host)
        self.local_rank = hosts[: self.rank].count(self.host)
        self.transport, self.budget, self.spill = made.transport, made.budget, made.tiers
        self.workspace = Workspace(
            made.transport, made.backend, made.budget, made.tiers, self.recorder, config,
            free_at_start_bytes=made.free_at_start_bytes,
        )  # fmt: skip
        pinned = pinned_rates(made.pool) if made.pool is not None and config.use_pinned_memory else {}
        self._copy_rates = CopyRates({"pinned": pinned})
        self.tables: weakref.WeakSet[Releasable] = weakref.WeakSet()
        self.sampler = Sampler(self.recorder, self._probe, hz=sample_hz or DEFAULT_HZ, gpu=gpu_probe(made))
        offset = self._measure_clock()
        # Ranks of one host read one clock: what is measured between them is only the meeting's delay.
        self.recorder.clock_offset_ns = 0 if hosts[self.rank] == hosts[0] else offset
        if sample_hz:
            self.sampler.start()

    @property
    def device(self) -> str:
        """What this rank works on: ``cpu``, or a GPU's name and number."""
        return self.equipment.where

    @property
    def config(self) -> GcylonConfig:
        """The live config; rank 0's holds for operations that are given none."""
        return self.workspace.config

    def set_config(self, config: GcylonConfig) -> None:
        """Use another config from the next operation on.

        Raises
        ------
        ConfigError
            If its limit is above the ceiling fixed at start.
        """
        if not isinstance(config, GcylonConfig):
            raise ConfigError(
                f"Expected a GcylonConfig for config, got {config!r}.",
                advice="Give one, for example gl.GcylonConfig().",
            )
        self.workspace.limit_for(config)
        self.workspace.config = config

    @property
    def profile_hz(self) -> float:
        """Samples a second of the profiler; 0 where it is off, or was begun without a sampler."""
        return self.sampler.hz if self.sampler.running else 0.0

    def set_profile(self, profile: bool | float) -> None:
        """Record spans, marks and memory from now on, or not; operations are recorded in any case.

        Parameters
        ----------
        profile : bool or float
            A number is the rate of the memory sampler, in samples a second.

        Raises
        ------
        ArgumentError
            If the rate is out of range.
        """
        hz = checked_hz(profile)
        self.recorder.spans = hz > 0
        if hz != self.profile_hz:
            self.sampler.stop()
            self.sampler.hz = hz or self.sampler.hz
            if hz:
                self.sampler.start()

    def post(self, topic: str, value: Any) -> None:
        """Post a message from this rank, for `Cluster.messages` in the notebook and `messages` here; from any thread.

        Nothing is sent before somebody looks, and nobody is waited for. The latest 1,024 of a rank are kept.

        Parameters
        ----------
        topic : str
            At most 100 characters.
        value : JSON value
            Dicts, lists, text, numbers, True, False, None; at most 8 KiB as JSON.

        Raises
        ------
        ArgumentError
            If the value is none of these, or too large.

        Examples
        --------
        >>> import gcylon_lab as gl
        >>> context = gl.current()
        >>> for step in range(3):
        ...     context.post("loss", {"step": step, "loss": 1 / (step + 1)})
        >>> [message.value["step"] for message in context.messages("loss")]
        [0, 1, 2]
        """
        self.posts.post(topic, value)

    def messages(self, topic: str | None = None) -> Messages:
        """Return what this rank has posted under a topic, or under all; see `post`."""
        return read_messages([self.posts.as_dict(topic)])

    def snapshot(self, since_ns: int = 0, *, max_bytes: int | None = None, oldest: bool = False) -> RankSnapshot:
        """Return what was recorded on this rank since a time, as plain values; see `take_snapshot`."""
        idle = self.recorder.active is None
        if idle:
            self._copy_rates.look(self.spill)
        uses = pools = None
        with suppress(RuntimeError):  # tables come and go meanwhile
            uses = by_use(self.budget, self.workspace.parts)
        if idle or self.equipment.pool is None:  # whoever page-locks memory holds its pool for long
            pools = self.pools()
        return take_snapshot(
            self.recorder, self.sampler, self.rank, self.host, since_ns, copy_rates=self._copy_rates.known, uses=uses,
            pools=pools, max_bytes=max_bytes, oldest=oldest,
        )  # fmt: skip

    def memory_info(self) -> dict[str, Any]:
        """Return the memory of this rank's GPU or host, beside its budget; asks no other rank.

        Returns
        -------
        dict
            rank, host, pid, device; of the GPU, or of the host on CPU engines, free_bytes, total_bytes and used_bytes
            (by all processes; None where a driver does not tell); budget_limit_bytes, budget_used_bytes and
            budget_peak_bytes (since `reset_peak`); and outside_bytes: on a GPU what is used beside this rank's part of
            it (CUDA contexts, NCCL, other ranks and programs), on CPU engines what the process holds beside the budget
            (Python, libraries, frames of the user's own).

        Examples
        --------
        >>> import gcylon_lab as gl
        >>> info = gl.current().memory_info()
        >>> info["free_bytes"] + info["used_bytes"] == info["total_bytes"]
        True
        """
        return memory_info(self.equipment, self.workspace.live_limit_bytes)

    def pools(self) -> list[dict[str, Any]]:
        """Return what this rank keeps of memory to use it again, a dict for each pool; asks no other rank.

        Returns
        -------
        list of dict
            rank, pool ("scratch": arrays of the work of the thread that made this context; on GPU engines "pinned", the
            page-locked tier, and "device", the slab of the GPU), held_bytes, used_bytes, largest_free_bytes,
            fragmentation (the part of what is free that is not in the largest free piece), hits and misses (requests
            that were there already, and not), hit_rate, growths, drops (what was given back). None where a pool does
            not tell.

        Examples
        --------
        >>> import gcylon_lab as gl
        >>> [pool["pool"] for pool in gl.current().pools()][0]
        'scratch'
        """
        return pools_of(self.equipment, self._thread)

    def trim(self) -> dict[str, int]:
        """Give what this rank keeps of memory and nobody uses back to the system; asks no other rank.

        Copies below the device tier of rows that are on it go too. Work that follows may be slower at first.

        Returns
        -------
        dict
            rank, kept_bytes (of such copies), pinned_bytes, scratch_bytes, and by how much the process's resident
            memory fell, resident_bytes.

        Examples
        --------
        >>> import gcylon_lab as gl
        >>> freed = gl.current().trim()
        >>> gl.current().pools()[0]["held_bytes"] == gl.current().pools()[0]["used_bytes"]
        True
        """
        return trim(self.equipment)

    def stream(self, name: str = "stream") -> UserStream:
        """A stream for your own work on the GPU, to be used with ``with``, in order with the engine's work.

        Parameters
        ----------
        name : str, optional
            Of its span in profiles, which ends when the work is done: what ran beside it, it overlapped.

        Returns
        -------
        UserStream
            Inside the block CuPy's and numba-cuda's work is queued on it, after all that the engine has queued, and
            what the engine queues later waits for it; cuDF's own work stays on the engine's stream. On CPU engines the
            block does nothing, and its ``why`` says so.

        Examples
        --------
        >>> import gcylon_lab as gl
        >>> context = gl.initialize(engine="cpu", sample_hz=0)
        >>> with context.stream("weights") as stream:
        ...     begun = stream.event()
        >>> stream.why
        'nothing: this is a CPU engine, on which code runs in order by itself'
        >>> begun.done
        True
        >>> context.close()
        """
        return UserStream(name, on_gpu=self.equipment.kind == "gpu")

    def recover(self) -> None:
        """Collective: all ranks call it. Make operations work again after a revoke, with nothing else in flight.

        Raises
        ------
        RankLost
            If a rank is gone: only a restart helps.
        """
        self.transport.recover()
        self.budget.recount()
        # An interrupted rank may have begun an operation that others had not.
        numbers = self.transport.agree(np.array([self.workspace.operation_number], dtype=np.int64))
        self.workspace.operation_number = int(numbers.max())

    def close(self) -> None:
        """Stop the sampler, release all tables and the transport; ranks that go on with it get an error. Idempotent."""
        self.sampler.stop()
        for table in list(self.tables):
            table.release()
        self.transport.close()
        self.equipment.close()
        if self in _process:
            _process.remove(self)
        if getattr(_local, "context", None) is self:
            _local.context = None
        if current_recorder() is self.recorder:
            set_recorder(_process[-1].recorder if _process else None)  # of the one that `current` now returns

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _probe(self) -> Sample:
        budget, tiers = self.budget, self.spill
        used = budget.allocated_bytes
        return Sample(used, budget.limit_bytes, tiers.disk_bytes, tiers.pinned_bytes, read_rss_bytes())

    def _measure_clock(self) -> int:
        enter = np.empty((_CLOCK_ROUNDS, self.size), np.int64)
        leave = np.empty_like(enter)
        entered, left = [], []
        for _ in range(_CLOCK_ROUNDS):
            entered.append(time.perf_counter_ns())
            self.transport.agree(np.zeros(1, dtype=np.int64))
            left.append(time.perf_counter_ns())
        times = self.transport.agree(np.array(entered + left, dtype=np.int64))
        enter[:], leave[:] = times[:, :_CLOCK_ROUNDS].T, times[:, _CLOCK_ROUNDS:].T
        return estimate_offset_ns(enter, leave, self.rank)


def current() -> Context:
    """Return this thread's context; the first call makes one, as `initialize` does.

    Under MPI the first call is collective: all ranks call it.
    """
    return opened() or initialize()


def opened() -> Context | None:
    """Return this thread's context, if there is one already."""
    found: Context | None = getattr(_local, "context", None)
    return found if found is not None or not _process else _process[-1]


def set_current(context: Context | None, *, process: bool = False) -> None:
    """Make a context this thread's, and where ``process`` is set the one of all threads that have none."""
    _local.context = context
    set_recorder(None if context is None else context.recorder)
    if process and context is not None and context not in _process:
        _process.append(context)


def initialize(
    config: GcylonConfig | None = None,
    *,
    comm: MPI.Comm | None = None,
    transport: Transport | None = None,
    sample_hz: float = 20.0,
    engine: str = "",
) -> Context:
    """Collective: all ranks call it. Make this process a rank: of MPI where it was started under one, else alone.

    Parameters
    ----------
    config : GcylonConfig, optional
        The live config, which also fixes the ceiling; the environment and defaults otherwise.
    comm : mpi4py.MPI.Comm, optional
        The ranks that belong together, of which all call this; COMM_WORLD by default. It is duplicated and stays the
        caller's, but its errors are returned from now on (``MPI.ERRORS_RETURN``). A process may have several contexts
        of different communicators; a table belongs to the one that was `current` when it was made.
    transport : Transport, optional
        Another way to reach the other ranks.
    sample_hz : float, default 20
        Rate of the memory sampler; 0 for none.
    engine : {"", "auto", "cpu", "gpu"}
        What all ranks work with; "" reads ``GCYLON_ENGINE``, and auto takes GPUs where every rank has one.

    Returns
    -------
    Context
        Also what `current` returns from now on.

    Notes
    -----
    Under a plain ``mpiexec`` an exception that nobody catches ends all ranks,
    since the others would wait for ever.

    Raises
    ------
    ArgumentError
        If ``comm`` is no communicator, COMM_NULL or an intercommunicator, or a transport is given too.
    CommError
        If MPI is not initialized, or finalized already.
    """
    if comm is not None:
        if transport is not None or not hasattr(comm, "Dup"):
            raise ArgumentError(
                f"Expected a communicator for comm and no transport, got comm={comm!r} and transport={transport!r}.",
                advice="Give one of mpi4py, for example MPI.COMM_WORLD, and no transport.",
            )
        transport = _mpi_transport(comm)
    if transport is None:
        transport = _mpi_transport() if any(name in os.environ for name in _MPI_VARIABLES) else SingleTransport()
    context = Context(transport, config, sample_hz=sample_hz, engine=engine)
    set_current(context, process=True)
    return context


def run_threads(
    size: int,
    function: Callable[..., T],
    *args: Any,
    config: GcylonConfig | None = None,
    max_message_bytes: int = 2**30,
    sample_hz: float = 0.0,
    engine: str = "cpu",
) -> list[T]:
    """Run a function on N ranks that are threads of this process, each with a current context of its own.

    Parameters
    ----------
    size : int
        Number of ranks.
    function : callable
        Called with ``args`` on every rank.
    config : GcylonConfig, optional
        For all ranks.
    max_message_bytes : int, optional
        Longest single copy between ranks.
    sample_hz : float, default 0
        Rate of the memory samplers; 0 for none.
    engine : {"cpu"}
        Threads are CPU engines: a process has one budget of GPU memory, which ranks cannot share.

    Returns
    -------
    list
        What each rank returned, in rank order.

    Raises
    ------
    Exception
        What a rank raised: the first error that is no consequence of another rank's.
    """
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size
    world = ThreadsWorld(size, max_message_bytes)

    def work(transport: Transport) -> None:
        try:
            context = Context(transport, config, sample_hz=sample_hz, engine=engine)
            set_current(context)
            try:
                results[transport.rank] = function(*args)
            finally:
                context.close()
        except BaseException as error:
            errors[transport.rank] = error
            if not (isinstance(error, GcylonError) and error.agreed):
                transport.revoke()

    threads = [threading.Thread(target=work, args=(t,), name=f"rank {t.rank}") for t in world.transports()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [error for error in errors if error is not None]
    if failed:
        raise next((error for error in failed if not isinstance(error, CommError)), failed[0])
    return results


def local_rank(transport: Transport) -> int:
    """Collective: all ranks call it. How many ranks of lower number are on this rank's host."""
    hosts = transport.share(transport.host.encode())
    return hosts[: transport.rank].count(transport.host.encode())


def _mpi_transport(comm: MPI.Comm | None = None) -> Transport:
    from ..comm.mpi import MpiTransport

    transport = MpiTransport(comm)
    bind_gpu(local_rank(transport))
    if transport.size == 1 or hasattr(sys, "ps1") or sys.excepthook in _hooks:
        return transport
    before = sys.excepthook

    def abort(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        before(kind, error, traceback)
        sys.stderr.flush()
        transport.abort()

    sys.excepthook = abort
    _hooks.append(abort)
    return transport
