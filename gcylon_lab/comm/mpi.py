"""MPI through mpi4py: a communicator of our own that can be revoked and replaced."""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from ..errors import ArgumentError, CommError, DeadlineExceeded, GcylonError, RankLost, Revoked
from .transport import (
    DEFAULT_MESSAGE_BYTES,
    INTERRUPTED,
    Int64s,
    PlainTransport,
    Receive,
    Send,
    Window,
    copy_to_self,
    goes_together,
    share_by_exchange,
    split_view,
)
from .two_levels import MOST_DIRECT, Groups, gather_numbers, group

_NEWS_S = 0.2  # news of a lost rank were seen to take 0.01 s
_ROWS_TAG = 7
_VOTE_TAG = 8
_EAGER_LOOKS = 500  # some 1.5 ms: who looks on takes the core of a rank that still works, if they share one
_PAUSE_S = 20e-6
_NOT_ON = "MPI is {}."
_RECOVER = "Let all ranks call gl.current().recover() before they go on; a cluster does so by itself between requests."
_LOOKS_PER_NEWS = 1000
_NAME_BYTES = 64  # of a host's name, which tells hosts apart


class MpiTransport(PlainTransport):
    """One MPI rank, on a duplicate of a communicator.

    Rows and agreements are messages on one communicator, which is never revoked. A
    second one carries no messages; where the MPI library has ULFM (Open MPI) it is
    revoked to tell all ranks that they must leave. Waiting polls both, and gives way
    to other threads and ranks. Nothing waits inside MPI: with Open MPI 5.0.11 a
    collective can stay there although its communicator was revoked, and a long
    message on a revoked one ends the process when it arrives after all.

    Without ULFM (MPICH) a rank leaves at its deadline, or when it itself is revoked.

    Parameters
    ----------
    world : mpi4py.MPI.Comm, optional
        The communicator to duplicate; COMM_WORLD by default.
    max_message_bytes : int, optional
        Longest single message; longer transfers are split.
    """

    name = "mpi"

    def __init__(self, world: MPI.Comm | None = None, max_message_bytes: int = DEFAULT_MESSAGE_BYTES) -> None:
        self._world = _usable(MPI.COMM_WORLD if world is None else world)
        self._world.Set_errhandler(MPI.ERRORS_RETURN)
        self._world = self._world if self._world == MPI.COMM_WORLD else self._duplicate()  # a caller may free others
        self._limit = max_message_bytes
        self.rank = self._world.Get_rank()
        self.size = self._world.Get_size()
        self.host = socket.gethostname()
        self._revoked = threading.Event()
        # Held while a communicator is revoked or taken away: a revoke must never meet one that is being freed.
        self._swap = threading.RLock()
        self._deadline: float | None = None
        self._timer: threading.Timer | None = None
        # Transfers that an error cut short: MPI may still touch their memory until the next recovery.
        self._abandoned: list[_Transfer] = []
        self._retired: list[MPI.Comm] = []
        self.revocable = _has_revoke()
        self._messages: MPI.Comm = self._duplicate()
        self._leaving = ShutdownNotice(self._messages)
        self._signal: MPI.Comm | None = self._duplicate()
        self._groups: Groups = ()

    def agree(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. Every rank's numbers, shape (size, n)."""
        if self.size <= MOST_DIRECT or not self.revocable:
            return self._agree_directly(values)  # without a revoke, who waits for one that gave up would not hear of it
        if not self._groups:
            name = self.host.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")
            self._groups = group([row.tobytes() for row in self._agree_directly(np.frombuffer(name, np.int64))])
        return gather_numbers(
            self.rank, self._groups, values, self._limit, lambda sent, came: self._transfer(sent, came, _VOTE_TAG)
        )

    def _agree_directly(self, values: Int64s) -> Int64s:
        result = np.empty((self.size, len(values)), dtype=np.int64)
        result[self.rank] = values
        views = [row.view(np.uint8).data for row in result]
        others = [rank for rank in range(self.size) if rank != self.rank]
        sends = [Send(rank, views[self.rank]) for rank in others]
        self._transfer(sends, [Receive(rank, views[rank]) for rank in others], _VOTE_TAG)
        return result

    def share(self, payload: bytes) -> list[bytes]:
        """Collective: all ranks call it. Every rank's bytes."""
        return share_by_exchange(self, payload)

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. Post all receives, then all sends, then wait for both."""
        # Copied while the messages of others are under way.
        self._transfer(
            sends,
            receives,
            _ROWS_TAG,
            meanwhile=lambda: copy_to_self(
                [s.view for s in sends if s.rank == self.rank], [r.view for r in receives if r.rank == self.rank]
            ),
        )

    def _transfer(
        self,
        sends: Sequence[Send],
        receives: Sequence[Receive],
        tag: int,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        self._check_live()
        transfer = _Transfer(sends, receives)
        try:
            transfer.post(self._messages, self.rank, tag, self._limit)
            if meanwhile is not None:
                meanwhile()
            self._wait(transfer)
            transfer.done = True
        except MPI.Exception as error:
            raise self._explain(error) from None
        finally:
            if not transfer.done:
                self._abandoned.append(transfer)

    def _wait(self, transfer: _Transfer) -> None:
        looks = 0
        while not MPI.Request.Testall(transfer.requests):
            looks += 1
            self._look()
            if looks % _LOOKS_PER_NEWS == 0:
                if self._lost_ranks() or self._leaving.gone(transfer.awaited()):
                    raise self._explain(None)
            _give_way(looks)

    def check(self) -> None:
        """Raise if this rank was revoked, by itself or another."""
        if self.revocable and not self._revoked.is_set():
            try:
                self._messages.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)  # a revoke arrives only while MPI has a turn
            except MPI.Exception as error:
                raise self._explain(error) from None
        self._look()

    def _look(self) -> None:
        if self._timer is None and self._deadline is not None and time.monotonic() > self._deadline:
            self.revoke()
        if self._revoked.is_set() or (self.revocable and _is_revoked(self._signal)):
            raise self._explain(None)

    def set_deadline(self, timeout_s: float | None) -> None:
        """Let collectives raise `DeadlineExceeded` once this much time has passed; None lifts it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._swap:
            self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        # Where MPI may not be called from other threads this one looks at the clock while it waits.
        if timeout_s is not None and MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            self._timer = threading.Timer(max(timeout_s, 0.0), self._expire, [self._deadline])
            self._timer.daemon = True
            self._timer.start()

    def revoke(self) -> None:
        """Make every rank leave its collective. May be called from any thread, more than once."""
        with self._swap:
            self._revoked.set()
            if self._signal is not None and self.revocable and not MPI.Is_finalized():
                try:
                    self._signal.Revoke()
                except MPI.Exception:
                    pass  # revoked already: nobody waits on it

    def recover(self) -> None:
        """Collective: all ranks call it. Replace the communicator; nothing may be in flight.

        Raises
        ------
        RankLost
            If a rank is gone, which a new communicator cannot mend.
        CommError
            If the MPI library cannot revoke (MPICH): its ranks must be restarted.
        """
        self.set_deadline(None)
        with self._swap:
            old, self._signal = self._signal, None
        try:
            lost = self._lost_ranks()
            if lost:
                raise _rank_lost(lost, self.rank)
            if left := self._leaving.heard():
                raise _rank_left(left, self.rank)
            if not self.revocable and self._revoked.is_set():
                message = "This MPI library has no revoke, so an interrupted exchange cannot be undone."
                raise CommError(message, advice="Restart the ranks.", rank=self.rank)
            for transfer in self._abandoned:
                transfer.cancel()
            # Freed only at the recovery after this one: where their numbers are given to new communicators at once,
            # a revoke that is still under way strikes those.
            while self._retired:
                self._retired.pop().Free()
            self._retired += [comm for comm in (old, self._messages) if comm is not None]
            self._messages = self._duplicate()
            self._leaving = ShutdownNotice(self._messages)
            self._signal = self._duplicate()
            # Every rank has come here by now, so all of them have cancelled, and nobody reads this memory any more.
            self._abandoned.clear()
        except MPI.Exception as error:
            raise self._explain(error) from None
        self._revoked.clear()
        # Open MPI crashes where a revoke reaches a rank that is still making that communicator: nobody goes first.
        self.agree(np.zeros(1, dtype=np.int64))

    def abort(self) -> None:
        """End all ranks' processes at once."""
        MPI.COMM_WORLD.Abort(1)

    def close(self) -> None:
        """Tell the others that this rank takes part no more. Idempotent."""
        self.set_deadline(None)
        self._leaving.leave()
        self._signal = None  # Comm.Free is collective, and others may be gone; MPI frees it at its end

    def progress(self) -> None:
        """Let MPI work for a moment; from any thread. A rank that left may still owe others the news of it."""
        if not MPI.Is_finalized():
            try:
                self._world.Iprobe()
            except MPI.Exception:
                pass  # of a rank that is gone

    def _expire(self, deadline: float) -> None:
        """The timer of a deadline went off, perhaps when the operation was over already."""
        with self._swap:
            if self._deadline == deadline:
                self.revoke()

    def _duplicate(self) -> MPI.Comm:
        comm = self._world.Dup()
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        return comm

    def _check_live(self) -> None:
        if MPI.Is_finalized():
            raise CommError(_NOT_ON.format("finalized"), advice="Call MPI.Finalize() after the last verb.")
        if self._signal is None:
            raise CommError("The transport is closed, or its recovery failed.", advice="Restart the ranks.")
        if self._revoked.is_set():
            error = self._explain(None)
            if isinstance(error, Revoked):
                error.advice = _RECOVER
            raise error

    def _lost_ranks(self) -> list[int]:
        if not self.revocable:
            return []
        try:
            failed = self._world.Get_failed()
            everyone = self._world.Get_group()
            return sorted(MPI.Group.Translate_ranks(failed, list(range(failed.Get_size())), everyone))
        except (MPI.Exception, NotImplementedError):
            return []

    def _await_news(self) -> list[int]:
        """Look a moment for a lost rank: another rank that saw it go may have revoked before this one hears of it."""
        until = time.monotonic() + _NEWS_S
        while not (lost := self._lost_ranks()) and time.monotonic() < until:
            self.progress()  # news come in only while MPI is at work
            time.sleep(0.001)
        return lost

    def _explain(self, error: MPI.Exception | None) -> GcylonError:
        """Turn an MPI error into ours. Revokes, so that ranks that do not see the error leave too."""
        lost = self._lost_ranks()
        mine = self._revoked.is_set()
        revoked = mine or error is None or _is_revoked(self._signal)
        self.revoke()
        if not lost and revoked and not mine:
            lost = self._await_news()
        if lost:
            return _rank_lost(lost, self.rank)
        if left := self._leaving.heard():
            return _rank_left(left, self.rank)
        # All ranks have the same deadline, but one timer goes off first: a revoke that near to it is that one's.
        if self._deadline is not None and time.monotonic() > self._deadline - 0.1:
            message = f"Rank {self.rank} waited for the other ranks past the operation's deadline."
            return DeadlineExceeded(message, advice="Give a larger timeout_s.", rank=self.rank)
        # A wait for several messages says only that one of them failed, so the communicator is asked as well.
        if revoked or error is None or error.Get_error_class() == getattr(MPI, "ERR_REVOKED", -1):
            return Revoked(INTERRUPTED, rank=self.rank)
        failures = [getattr(MPI, name, -1) for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING")]
        if error.Get_error_class() in failures:
            return RankLost("A rank's process is gone.", advice="Restart the ranks.", rank=self.rank, lost_ranks=[])
        return CommError(f"MPI failed: {error.Get_error_string()}.", advice="Restart the ranks.", rank=self.rank)


def _usable(world: MPI.Comm) -> MPI.Comm:
    """Refuse what MPI would end the process for, or on which ranks would not mean the same."""
    if not MPI.Is_initialized() or MPI.Is_finalized():
        what = "finalized" if MPI.Is_initialized() else "not initialized"
        raise CommError(_NOT_ON.format(what), advice="Call gl.initialize() after MPI.Init() and before MPI.Finalize().")
    if world == MPI.COMM_NULL:
        message = "comm is COMM_NULL: this process is not a rank of the communicator."
        raise ArgumentError(message, advice="Let only the ranks that are in it call this, for example after Split.")
    if world.Is_inter():
        raise ArgumentError("comm is an intercommunicator, of two groups.", advice="Give what its Merge() returns.")
    return world


class _Transfer:
    """The messages of one exchange, and the memory that they touch."""

    def __init__(self, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        self._sends = sends
        self._receives = receives
        self._arriving: list[MPI.Request] = []
        self.requests: list[MPI.Request] = []
        self._peers: list[int] = []
        self.done = False

    def post(self, comm: MPI.Comm, rank: int, tag: int, limit: int) -> None:
        """Post all receives, then all sends, but for those to oneself."""
        for peer, message in _messages(self._receives, rank, limit):
            self._arriving.append(comm.Irecv(message, peer, tag))
            self._peers.append(peer)
        self.requests += self._arriving
        for peer, message in _messages(self._sends, rank, limit):
            self.requests.append(comm.Isend(message, peer, tag))
            self._peers.append(peer)

    def awaited(self) -> Iterator[int]:
        """Ranks of the messages that are not complete."""
        return (peer for peer, request in zip(self._peers, self.requests, strict=True) if not request.Get_status())

    def cancel(self) -> None:
        """Take back the receives; returns when MPI writes into their memory no more."""
        for request in self._arriving:
            _cancel(request)


def _messages(transfers: Sequence[Send] | Sequence[Receive], rank: int, limit: int) -> Iterator[tuple[int, list[Any]]]:
    """What goes to or comes from each other rank."""
    views: dict[int, list[Any]] = {}
    for one in transfers:
        if one.rank != rank:
            views.setdefault(one.rank, []).append(one.view)
    for peer, held in views.items():
        lengths = [view.nbytes for view in held]
        if goes_together(lengths, limit):
            addresses = [MPI.Get_address(view) if view.nbytes else 0 for view in held]
            together = MPI.BYTE.Create_hindexed(lengths, addresses).Commit()
            yield peer, [MPI.BOTTOM, 1, together]
            together.Free()  # once the message has been sent
            continue
        for view in held:
            for part in split_view(view, limit):
                yield peer, [part, MPI.BYTE]


def _give_way(looks: int) -> None:
    """Ranks may share a core: let the one that is waited for run. Who waits long looks less often."""
    if looks < _EAGER_LOOKS and hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0.0 if looks < _EAGER_LOOKS else _PAUSE_S)


def _cancel(request: MPI.Request) -> None:
    if request != MPI.REQUEST_NULL:
        try:
            request.Cancel()
            request.Wait()
        except MPI.Exception:
            pass  # it has failed already, so it is over


def _has_revoke() -> bool:
    """Whether the library and the way it was started know ULFM; tried, since some have only a part of it."""
    trial = MPI.COMM_SELF.Dup()
    trial.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        trial.Revoke()
        return bool(trial.Is_revoked())
    except (AttributeError, NotImplementedError, MPI.Exception):
        return False
    finally:
        trial.Free()


def _is_revoked(comm: Any) -> bool:
    try:
        return comm is not None and bool(comm.Is_revoked())
    except (NotImplementedError, MPI.Exception):
        return False


def _rank_left(left: list[int], rank: int) -> RankLost:
    names = ", ".join(map(str, left))
    message = f"Rank {rank} waits in an operation of a context that rank {names} left, by close() or at its end."
    return RankLost(message, advice="Let every rank make the same calls up to its end.", rank=rank, lost_ranks=left)


def _rank_lost(lost: list[int], rank: int) -> RankLost:
    names = ", ".join(map(str, lost))
    return RankLost(f"The process of rank {names} is gone.", advice="Restart the ranks.", rank=rank, lost_ranks=lost)


_TAG = 9
# Its last messages may still be under way when a rank says that it leaves.
_GRACE_S = 2.0

_open: weakref.WeakSet[ShutdownNotice] = weakref.WeakSet()


class ShutdownNotice:
    """What the ranks of one communicator know of each other's end.

    A rank that has left answers no more, and under ``mpiexec`` nothing else tells those that wait for it.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        Carries the messages of all transfers, so that what a rank sent before it left comes before.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._heard: dict[int, float] = {}
        self._told: list[MPI.Request] = []
        self._process = os.getpid()
        _open.add(self)

    def leave(self) -> None:
        """Tell all others that this rank takes part no more; waits for nobody. Idempotent."""
        if self not in _open:
            return
        _open.discard(self)
        if MPI.Is_finalized() or os.getpid() != self._process:
            return  # a fork of this process is no rank
        try:
            for rank in set(range(self._comm.Get_size())) - {self._comm.Get_rank()}:
                self._told.append(self._comm.Isend([b"", MPI.BYTE], rank, _TAG))
        except MPI.Exception:
            pass  # of a rank that is gone

    def heard(self) -> list[int]:
        """Which ranks have said that they leave."""
        status = MPI.Status()
        try:
            while self._comm.Iprobe(MPI.ANY_SOURCE, _TAG, status):
                self._comm.Recv([bytearray(), MPI.BYTE], status.Get_source(), _TAG)
                self._heard[status.Get_source()] = time.monotonic()
        except MPI.Exception:
            pass  # of a rank that is gone
        return sorted(self._heard)

    def gone(self, awaited: Iterable[int]) -> bool:
        """Whether one of the ranks that are waited for said some time ago that it leaves."""
        if not self.heard():
            return False
        until = time.monotonic() - _GRACE_S
        return any(self._heard.get(rank, until) < until for rank in awaited)


@atexit.register
def _leave_all() -> None:
    for leaving in list(_open):
        leaving.leave()
