"""The engine's side: one per MPI rank. Keeps tables, serves requests, and frees its peers when it fails."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import platform
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from ..._version import __version__
from ...config import GcylonConfig
from ...errors import ClusterError, ConfigError, Revoked, to_message
from .. import rpc
from ..launch.lease import Lease, LeaseMonitor
from ..launch.runtime_dirs import lease_path
from ..messages import Reply, Request
from . import actions
from .kernel_patches import install_hooks
from .signal_thread import InterruptGuard, SignalThread

_engine: Engine | None = None
_start_error = "gcylon_lab.cluster.engine.engine.start was never called here"

# An error that every rank raises needs no revoke, unless a rank catches it and goes on alone.
_LATE_REVOKE_S = 1.0

_FINALIZE_S = 3


class Engine:
    """This rank's store of tables and its request loop.

    Parameters
    ----------
    context : Context
        The rank's, from `gcylon_lab.runtime.context`.
    kernel : ipykernel kernel, optional
        Whose requests are watched; None where requests are served directly.
    """

    def __init__(self, context: Any, kernel: Any = None) -> None:
        self.context = context
        self.kernel = kernel
        self.guard = InterruptGuard(lambda: context.recorder.active is not None)
        self.tables: dict[str, Any] = {}
        self.appenders: dict[str, Any] = {}
        self._told: dict[str, dict[str, Any]] = {}
        self._staged_by: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.running = ""
        self.requests = 0
        self.freed_because: tuple[str, str] | None = None
        self.revoked = self._signalled = False
        self.last_id = 0
        self._late: threading.Timer | None = None
        # Held while ranks are revoked or recovered: what is decided before a recovery must not strike after it.
        self._turn = threading.RLock()
        self._recoveries = 0
        self._recovering = False

    @property
    def rank(self) -> int:
        """This engine's MPI rank."""
        return int(self.context.rank)

    @property
    def namespace(self) -> dict[str, Any]:
        """Where ``%px`` runs."""
        space: dict[str, Any] = self.kernel.shell.user_ns
        return space

    def serve(self, request: Request, function: Callable[..., Any] | None = None, own: Any = None) -> Reply:
        """Do what a request asks, and answer with a value or an error; never raises."""
        self.running = request.action
        try:
            for name in request.drop:
                self.drop(name)
            for one in (*request.before, request):
                self._note_id(one.result)
            reply = actions.perform(actions.Call(self, request, function, own))
            self.guard.disarm()
            return replace(reply, memory=self.memory(), moved=self.moved())
        except BaseException as error:
            self.guard.disarm()
            return self._failed(error, request)

    def drop(self, name: str) -> None:
        """Forget a stored table, and release what it holds unless something else refers to it."""
        self.tables.pop(name, None)
        appender = self.appenders.pop(name, None)
        if appender is not None:
            appender.release()
        self._told.pop(name, None)

    def begin(self, what: str) -> None:
        """A request of the shell channel begins."""
        with self._turn:  # a signal comes before it or in it: its revoke and what is said of it go together
            self.running = what
            self._signalled = False
            self.requests += 1

    def free(self, why: str, advice: str) -> None:
        """Leave the operation that this rank is in, with an error that says why; from another thread."""
        self.freed_because = (why, advice)
        self.interrupted()

    def failed(self, error: BaseException | None) -> None:
        """A cell or a request ended in an error: see to it that no peer waits for this rank."""
        self._explain(error)
        if getattr(error, "agreed", False):
            if self._late is not None:
                return
            self._late = threading.Timer(_LATE_REVOKE_S, self.revoke, [self._recoveries])
            self._late.daemon = True
            self._late.start()
        else:
            self.revoke()

    def revoke(self, recoveries: int | None = None) -> None:
        """Free all ranks from their collectives; from any thread.

        Parameters
        ----------
        recoveries : int, optional
            Do nothing if there was another recovery since this many.
        """
        with self._turn:
            if not self._recovering and recoveries in (None, self._recoveries):
                self.revoked = True
                # Called where an error is being told already: another one would take its place.
                with contextlib.suppress(Exception):
                    self.context.transport.revoke()

    def signalled(self) -> None:
        """A SIGINT came, here and perhaps nowhere else."""
        with self._turn:
            self._signalled = True
            self.interrupted()

    def interrupted(self) -> None:
        """Free all ranks, if this one is at work: an idle one keeps nobody waiting."""
        with self._turn:
            if self.running not in ("", "recover"):
                self.revoke()

    def spread(self) -> bool:
        """Let MPI work while this rank is revoked: others may not have heard of it yet. Says whether it is."""
        with self._turn:
            if not self.revoked or self._recovering:
                return False
            self.context.transport.progress()
            return True

    def recover(self) -> None:
        """Collective: all ranks call it. Make the transport usable again; nothing else may be in flight."""
        self.guard.disarm()  # a rank that left in the middle would leave the others in a call that nothing ends
        self._cancel_late()
        with self._turn:
            self._recovering = True
            self._recoveries += 1
        try:
            self.freed_because = None
            self.context.recover()
            self.revoked = False
            self._told.clear()  # a reply that was cut off may have been the one that told
        finally:
            self._recovering = False

    def memory(self) -> dict[str, int]:
        """What plans need to know of this rank."""
        context = self.context
        return {
            "used_bytes": context.budget.used_bytes,
            "limit_bytes": context.workspace.limit_for(context.config),
            "ceiling_bytes": context.budget.ceiling_bytes,
            "free_at_start_bytes": context.workspace.free_at_start_bytes,
        }

    def moved(self) -> dict[str, dict[str, Any]]:
        """Where the rows of stored tables are, of those for which that changed since it was last told."""
        changed = {}
        for name, table in self.tables.items():
            told = self._told.get(name)
            if table.released or table._is_pending:
                continue
            # Where nothing was on the device tier and nothing is, no chunk can have moved.
            if told is not None and not told["tiers"]["device"] and not table.tiers["device"]:
                continue
            now = table._placement() | {"staged_by": self.staged_by(table)}
            if now != told:
                self._told[name] = changed[name] = now
        return changed

    def staged_by(self, table: Any, *, known: bool = True) -> str:
        """Which operation first staged rows of a table, as "shuffle #12"; "" where none did, or it is not known.

        Parameters
        ----------
        table : Table
        known : bool, default True
            Whether it was looked at since it was made: then it was the latest operation that staged anything, unless
            its rows are those of a table that had been staged before.
        """
        if not table._mine().staged_bytes:
            self._staged_by.pop(table, None)  # it may have come back, and be staged again
        elif table not in self._staged_by:
            rows = table._mine().regions
            before = ((one._mine().regions, by) for one, by in self._staged_by.items() if not one.released)
            sharing = (by for regions, by in before if regions & rows)
            records = reversed(tuple(self.context.recorder.operations)) if known else ()
            record = next((record for record in records if record.staged_bytes or record.restaged_bytes), None)
            latest = "" if record is None else f"{record.verb} #{record.number}"
            self._staged_by[table] = next(sharing, latest)
        return self._staged_by.get(table, "")

    def state(self) -> dict[str, Any]:
        """What this rank is doing; from any thread."""
        recorder = self.context.recorder
        progress, record = recorder.progress, recorder.active
        moved = {}
        if record is not None:
            moved = {"sent_bytes": record.sent_bytes, "spent_s": (perf_counter_ns() - record.start_ns) / 1e9}
        return {
            "rank": self.rank,
            "pid": os.getpid(),
            "running": self.running,
            "revoked": self.revoked,
            "requests": self.requests,
            "operation": self.context.workspace.operation_number,
            "progress": None if progress is None else progress._asdict() | moved,
        }

    def forget_frames(self, error: BaseException | None) -> None:
        """Let go of what the frames of an error's traceback hold, chunks and reservations among it."""
        if error is not None:
            traceback.clear_frames(error.__traceback__)
        # Frames and errors refer to each other in circles.
        gc.collect()

    def _note_id(self, result: str) -> None:
        """A notebook that attaches later must not use a name again."""
        if result[1:].isdigit():
            self.last_id = max(self.last_id, int(result[1:]))

    def _explain(self, error: BaseException | None) -> None:
        """The transport knows only that it was revoked; whoever had that done knows why."""
        if self.freed_because is not None and isinstance(error, Revoked):
            error.message, error.advice = self.freed_because

    def _cancel_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _failed(self, error: BaseException, request: Request) -> Reply:
        self._explain(error)
        # First of all: to write a long traceback down takes a while.
        if not getattr(error, "agreed", False):
            self.revoke()
        elif request.action == "run":
            self.failed(error)
        text = "".join(traceback.format_exception(error))
        self.forget_frames(error)
        here = self._signalled and isinstance(error, Revoked) and self.freed_because is None
        if here or isinstance(error, (KeyboardInterrupt, SystemExit)):
            error = Revoked(f"Rank {self.rank} was interrupted in {request.action!r}.", rank=self.rank)
        message = to_message(error, self.rank)
        revoked = self.revoked or self._late is not None
        reply = Reply(self.rank, error=message, traceback=text, revoked=revoked)
        return replace(reply, memory=self.memory(), moved=self.moved())


def start(home: str, grace_s: float, config: dict[str, Any] | None = None) -> None:
    """Make this process an engine. Run by ipyparallel before the engine says that it is there.

    Parameters
    ----------
    home : str
        The cluster's folder.
    grace_s : float
        How long to outlive the owner.
    config : dict, optional
        Fields of the `GcylonConfig` to start with.
    """
    global _engine, _start_error
    # Modules of the person's own folder are found, as a notebook's kernel finds them, but after all that is installed.
    sys.path.append(os.getcwd())
    rpc.answer_with(lambda *asked: current().serve(*asked), probe)
    os.environ.pop("IPP_CONNECTION_INFO", None)  # it has the keys, and what a person starts or prints here has none
    try:
        _engine = _open(Path(home), grace_s, config)
    except BaseException as error:
        # The engine registers all the same, so that the verify step can fetch what went wrong.
        settings = isinstance(error, ConfigError)  # which its own words say best
        _start_error = f"{type(error).__name__}: {error}" if settings else traceback.format_exc()
        print(_start_error, file=sys.stderr)
    finally:
        gc.freeze()  # what is loaded by now stays, and no collection looks through it
        gc.enable()


def current() -> Engine:
    """This process's engine.

    Raises
    ------
    ClusterError
        If it did not start; the message has the traceback.
    """
    if _engine is None:
        raise ClusterError(f"This process is not an engine of gcylon_lab: {_start_error}")
    return _engine


def probe(what: str) -> Any:
    """Answer before anything is known to work: "start_error", or "identity" of this rank."""
    if what == "start_error":
        return "" if _engine is not None else _start_error
    engine = current()
    context = engine.context
    return {
        "rank": context.rank,
        "size": context.size,
        "host": context.host,
        "pid": os.getpid(),
        "device": context.device,
        "engines": context.equipment.engines,
        "route": context.equipment.route,
        "versions": versions(),
        "mpi": _mpi_library(),
        "config": context.config.as_dict(),
        "profile_hz": context.profile_hz,
        "revoked": engine.revoked,
        "last_id": engine.last_id,
        "memory": engine.memory(),
    }


def versions() -> dict[str, str]:
    """What must be equal on all ranks."""
    import mpi4py
    import numpy
    import pandas

    return {
        "gcylon_lab": __version__,
        "python": platform.python_version(),
        "pandas": pandas.__version__,
        "numpy": numpy.__version__,
        "mpi4py": mpi4py.__version__,
    }


def _open(home: Path, grace_s: float, config: dict[str, Any] | None) -> Engine:
    from IPython import get_ipython

    from ...comm.mpi import MpiTransport
    from ...runtime import context as contexts
    from ...runtime.devices import bind_gpu

    # With a transport of its own choice the context does not end all ranks on an exception that nobody catches:
    # here the hooks below free the peers instead.
    transport = MpiTransport()
    bind_gpu(contexts.local_rank(transport))
    context = contexts.initialize(None if config is None else GcylonConfig(**config), transport=transport)
    # To the launcher's output, where other things that went wrong at start stand too.
    print(f"rank {context.rank}, {context.device}: {context.equipment.describe()}", file=sys.stderr, flush=True)
    kernel = get_ipython().kernel
    engine = Engine(context, kernel)
    vigil = LeaseMonitor(Lease(lease_path(home)), grace_s)
    engine.guard.install()
    # Ended by its default: ipyparallel's handler would have this process finalize MPI, which waits for all other ranks,
    # and none of them would know why.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    atexit.register(_end_in_time)
    watcher = SignalThread(engine.signalled, engine.revoke, engine.spread, vigil)
    watcher.start()
    install_hooks(engine, kernel, watcher)
    return engine


def _end_in_time() -> None:
    """Where this process ends in any other way, MPI's finalization may wait for ranks that never come to theirs."""
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_FINALIZE_S)


def _mpi_library() -> str:
    with contextlib.suppress(Exception):
        from mpi4py import MPI

        return MPI.Get_library_version().split("\0")[0].splitlines()[0]
    return "unknown"
