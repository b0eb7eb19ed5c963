"""The one way to the engines: one DirectView under one lock, and the control channel beside it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ...errors import ClusterDegraded, ClusterError, GcylonError, RankLost, RankStopped, Revoked
from ..control import CONTROL_S, Control
from ..failures import attach_traceback, fold, name_ranks
from ..messages import WITHOUT_STATUS, Reply, Request
from ..rpc import deliver
from ..stop_detector import Stop, StopDetector
from .interrupts import as_revoked, called, stopped, tell, undisturbed
from .replies import Replies
from .request_queue import RequestQueue
from .stall_detector import StallDetector
from .views import OrderedView
from .waiting import AGAIN_S, FREED_S, Waiter, parts_of

_CUT_OFF = "The process of the controller, through which all requests go, is gone."
_RESTART = "Call restart(): it starts new engines."
_IDLE_S = 10.0
_IDLE_AGAIN_S = 2.0
_LOOK_S = 0.25
_NEWS_S = 1.0
_RECOVER_S = 30.0
# An interrupt that comes so soon after a request, and so soon before the next, is meant for the loop around them.
_BETWEEN_S = 1.0


class Channel:
    """Carries requests to all ranks in one order, and brings the ranks back together after a failure.

    Parameters
    ----------
    client : ipyparallel.Client
    engine_ids : sequence of int
        In the order of their MPI ranks.
    describe_losses : callable
        Says for ranks whose processes are gone which they were and how they ended.
    is_cut_off : callable
        Whether the engines cannot be reached any more, because the controller is gone.
    stops : StopDetector
    revocable : bool
        Whether the MPI library can free ranks from a collective.
    turns : RequestQueue, optional
        Those to go on using after a restart.
    """

    def __init__(
        self,
        client: Any,
        engine_ids: Sequence[int],
        *,
        describe_losses: Callable[[Sequence[int]], str],
        is_cut_off: Callable[[], bool],
        stops: StopDetector,
        revocable: bool,
        turns: RequestQueue | None = None,
    ) -> None:
        self.turns = RequestQueue() if turns is None else turns
        self.lock = self.turns.lock
        self.client = client
        self.engine_ids = list(engine_ids)
        self.stops = stops
        self.control = Control(client, self.engine_ids, stops)
        self.lost: dict[int, float] = {}
        self.needs_recovery = False
        self.unsettled: dict[str, Any] | None = None
        # One after the other: ranks that were told two things at once may keep either.
        self.settling = threading.RLock()
        self.on_wait: Callable[[float], None] | None = None
        self.on_replies: Callable[[list[Reply]], None] | None = None
        self.is_unwanted: Callable[[], bool] = lambda: False
        self._cells_ran = False
        self._ended_at = self._cut_at = self._last_cut_at = -_BETWEEN_S
        self._describe_losses = describe_losses
        self._is_cut_off = is_cut_off
        self._revocable = revocable
        self._broken = ""
        self._stuck: tuple[Any, str] | None = None
        self._stopped = False
        self._idle_s = _IDLE_S
        self._closed_as: tuple[str, str] | None = None
        self._drops: deque[str] = deque()
        self._dropping: list[str] = []  # told with a request, which not every rank may have begun
        # Results that no handle has: those of requests that are over are dropped with the next one.
        self._unclaimed: dict[str, None] = {}
        self._outstanding: list[Any] = []
        self._signals: Any = None
        client._registration_callbacks.append(self._on_registration)
        client.send_signal = self._send_signal
        self._replies = Replies(client, self.engine_ids)
        self.view = OrderedView(client, self)
        self._stalls = StallDetector(
            lambda: self.control.states(1.0),
            self.is_busy,
            self._free_stranded,
            self._give_up_cells,
        )

    @property
    def size(self) -> int:
        """Ranks, dead ones included."""
        return len(self.engine_ids)

    def call(
        self,
        request: Request,
        function: Callable[..., Any] | None = None,
        *,
        each: Sequence[Any] | None = None,
        timeout_s: float | None = None,
        pump: Callable[[float], bool] | None = None,
    ) -> list[Reply]:
        """Run a request on all ranks; return their replies in rank order.

        Parameters
        ----------
        request : Request
        function : callable, optional
            For the action "run".
        each : sequence, optional
            A value of its own for every rank.
        timeout_s : float, optional
            After this, and some seconds for the ranks' own deadline, they are interrupted.
        pump : callable, optional
            Called while it runs: see `Waiter.replies`.

        Raises
        ------
        GcylonError
            What the ranks raised, folded into one.
        RankStopped
            If a rank's process is stopped. The others are freed; once it goes on the next request works.
        ClusterDegraded
            If a rank is gone since an earlier call.
        """
        with self.lock:
            if request.action != "nothing":  # which looks for news, and tells nobody how it ended
                self.refuse_cut(request.action)
            self.prepare()
            sent, started = None, time.monotonic()
            try:
                with undisturbed():
                    sent = self._send(request, function, each)
                self._stalls.watch()
                return self._checked(request, self._wait(sent, request.action, timeout_s, pump), started)
            except KeyboardInterrupt as error:
                if sent is not None:
                    self.cut_short(sent, request.action, started, error)
                    self._recover_if_possible()
                raise

    def _send(self, request: Request, function: Callable[..., Any] | None, each: Sequence[Any] | None) -> Any:
        """Send a request, and with it what is to be dropped; a result belongs to nobody until `claim`."""
        self._dropping += [*self._take_drops(), *self._unclaimed]
        self._unclaimed.clear()
        if request.result:
            self._unclaimed[request.result] = None
        request = replace(request, drop=(*request.drop, *self._dropping))
        try:
            with self.sending():
                # What a function prints comes before the status that says that it is over.
                label = WITHOUT_STATUS if function is None else None
                sent = self.view.send(deliver, request, function, each=each, label=label)
        except BaseException:  # what cannot be pickled
            if each is not None:
                self.interrupt()  # ranks before it were sent their part
            raise
        self.view.forget_ids()
        return sent

    def claim(self, table: str) -> None:
        """A result has a handle now, which says when to drop it.

        Under the lock since its request was sent: what has no handle when the next one is sent never gets one.
        """
        self._unclaimed.pop(table, None)

    def drop_later(self, table: str) -> None:
        """Forget a stored table with the next request; safe in finalizers, which may run anywhere."""
        self._drops.append(table)

    @property
    def has_news(self) -> bool:
        """Whether the ranks may hold something else than they last told: a table is to be dropped, or cells ran."""
        return bool(self._drops or self._dropping or self._unclaimed or self._cells_ran)

    def prepare(self) -> None:
        """Make sure that a request can be sent; under the lock."""
        self.check_usable()
        if self._stopped:  # as was said before: nobody waits again
            stop = self.stops.now()
            if stop is not None:
                raise stop.error()
            self._stopped = False
        if self.needs_recovery:
            self.recover()
        if self.unsettled is not None:
            with self.settling:
                if self.unsettled is not None:
                    self.settle(self.unsettled)

    def check_usable(self) -> None:
        """Raise `ClusterDegraded` if a rank is gone or cannot be freed, `ClusterError` where it was closed."""
        if self._closed_as is not None:
            what, advice = self._closed_as
            kind = ClusterError if "gl.Cluster" in advice else ClusterDegraded
            raise kind(what, advice=advice)
        if self.lost:
            raise ClusterDegraded(
                self._describe_losses(sorted(self.lost)), advice=_RESTART, lost_ranks=sorted(self.lost)
            )
        if self._is_cut_off():
            self._broken = _CUT_OFF
        if self._stuck is not None and self._stuck[0].ready():
            self._stuck = None  # it came back after all
        broken = self._broken or (self._stuck[1] if self._stuck is not None else "")
        if broken:
            raise ClusterDegraded(broken, advice=_RESTART)

    def lose(self, ranks: Sequence[int]) -> None:
        """Ranks cannot be reached any more, though the controller may not know it yet; from any thread."""
        now = time.monotonic()
        for rank in ranks:
            self.lost.setdefault(rank, now)
        if not ranks or self.is_closed:
            return
        waiting = list(self.client.outstanding)
        error = RankLost(f"{name_ranks(ranks).capitalize()} cannot be reached.", rank=min(ranks))
        self._replies.give_up(waiting, [self.engine_ids[rank] for rank in ranks], error)
        self.client._io_loop.add_callback(self._free_the_others)

    def raise_if_lost(self) -> None:
        """Raise `RankLost` if a rank is gone; what others raised then follows from that."""
        if self.lost:
            raise self._loss([])

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Let a rank that has gone since the last look be told as that: ipyparallel no longer knows its engine."""
        try:
            yield
        except KeyError:
            deadline = time.monotonic() + _NEWS_S
            while not self.lost and time.monotonic() < deadline:  # its client's thread tells it a moment later
                time.sleep(0.01)
            self.raise_if_lost()
            raise

    def track(self, sent: Any) -> None:
        """Watch a request that others sent through the view: a failure in it calls for recovery."""
        self._outstanding = [old for old in self._outstanding if not old.ready()]
        self._outstanding.append(sent)
        self._cells_ran = True
        self._stalls.watch()
        sent.add_done_callback(self._on_done)
        for part in parts_of(sent):
            part.add_done_callback(partial(self._on_part, sent))

    def cut(self) -> None:
        """As `interrupt`, for a person: where it comes between two requests, the second is not sent."""
        self._last_cut_at = time.monotonic()
        if self.is_busy() or time.monotonic() - self._ended_at < _BETWEEN_S:
            self._cut_at = time.monotonic()
        self.interrupt()

    def was_cut(self, since: float) -> bool:
        """Whether a person has called `cut` since then."""
        return self._last_cut_at >= since

    def cut_after(self, since: float) -> float:
        """How long after a time `cut` was last called, in seconds."""
        return self._last_cut_at - since

    def cut_short(self, sent: Any, what: str, started: float, error: KeyboardInterrupt) -> None:
        """A person interrupted the wait for what was sent: free the ranks from it, and say so in the error."""
        tell(error, stopped(what, time.monotonic() - started))
        try:
            self._free_all(sent)
        except KeyboardInterrupt:
            pass  # whoever cannot wait goes on: the next request brings the ranks together

    def refuse_cut(self, what: str) -> None:
        """Raise `Revoked` where a person has just interrupted, and no request was there to end."""
        cut_at, self._cut_at = self._cut_at, -_BETWEEN_S
        if time.monotonic() - cut_at < _BETWEEN_S:
            raise Revoked(
                f"Interrupted between two requests: {called(what)} was not sent.", advice="Run it again to go on."
            )

    def interrupt(self) -> None:
        """Free all ranks from what they are doing, with a signal that does not queue."""
        if self.is_closed:
            return  # engines started since have the same ids
        self.needs_recovery = True
        alive = [engine for engine in self.engine_ids if engine in self.client.ids]
        if alive:
            self.client.send_signal("SIGINT", targets=alive, block=False)

    def revoke(self) -> None:
        """Free all ranks from their collectives, by a message that does not queue. Local work goes on."""
        if self.is_closed:
            return
        self.needs_recovery = True
        for engine in self.engine_ids:
            self.control.send(engine, {"ask": "revoke"})

    def recover(self) -> None:
        """Bring the ranks back together: once nothing runs any more, as a request of its own.

        Raises
        ------
        ClusterDegraded
            If a rank is gone, or does not come back.
        """
        with self.lock:
            self.check_usable()
            self._wait_idle()
            self._settle_signals()
            with undisturbed():
                sent = self.view.send(deliver, Request("recover"))
            error = fold(self._wait(sent, "recover", _RECOVER_S))
            self.check_usable()
            if error is not None:
                self._broken = f"The ranks could not be brought back together: {error.message}"
                self.check_usable()
            self.needs_recovery = False

    def settle(self, content: dict[str, Any], tries: int = 1, each_s: float = CONTROL_S) -> None:
        """Tell all ranks what has to hold on them alike, the config for example; again to those that are silent.

        Raises
        ------
        ClusterError
            If a rank does not answer. No request is sent then before all ranks have answered the latest of these.
        """
        self.unsettled = content
        silent = set(range(self.size))
        for _ in range(tries):
            silent -= {rank for rank, answer in enumerate(self.control.ask(content, each_s)) if answer is not None}
            self.check_usable()
            if silent:
                self._refuse_stopped(self.stops.look())
            if not silent:
                self.unsettled = None
                return
        raise ClusterError(
            f"{name_ranks(sorted(silent)).capitalize()} did not answer within {tries * each_s:g} s.",
            advice="See status() for what the ranks do; restart() starts new engines.",
        )

    def is_busy(self) -> bool:
        """Whether a request that this client sent is not answered yet."""
        return bool(self.client.outstanding)

    @property
    def is_closed(self) -> bool:
        """Whether its engines are no longer its own to free: timers and threads of it may still be there."""
        return self._closed_as is not None

    def close(self, why: str, advice: str) -> None:
        """Stop listening to engines that leave, and looking at them; requests are then told why, and what helps."""
        self._closed_as = (why, advice)
        self._stalls.close()
        callbacks = self.client._registration_callbacks
        if self._on_registration in callbacks:
            callbacks.remove(self._on_registration)

    def _wait(
        self, sent: Any, what: str, timeout_s: float | None, pump: Callable[[float], bool] | None = None
    ) -> list[Reply]:
        waiter = Waiter(
            sent, what, timeout_s, is_lost=lambda: bool(self.lost),
            is_cut_off=lambda: self.is_closed or self._is_cut_off(),
            is_unwanted=lambda: what != "recover" and self.is_unwanted(), free=self.interrupt, stops=self.stops,
        )  # fmt: skip
        try:
            replies = waiter.replies(None if what == "recover" else self.on_wait, pump)
        except KeyboardInterrupt:
            raise
        except BaseException:  # of what moves rows here, for which the ranks would wait
            self._free_all(sent)
            self._recover_if_possible()
            raise
        if self.is_closed or (waiter.stuck and self._is_cut_off()):
            self.check_usable()
        if waiter.stuck and not self.lost:
            if waiter.stop is not None:
                self._stopped = True
                self.interrupt()  # the others now, and the one that is stopped when it goes on
                raise waiter.given_up(waiter.stop)
            cannot = "" if self._revocable else " This MPI library has no revoke."
            self._stuck = sent, f"{name_ranks(waiter.stuck).capitalize()} cannot be freed from {what}.{cannot}"
        return replies

    def _checked(self, request: Request, replies: list[Reply], started: float) -> list[Reply]:
        error = fold(replies)
        self._ended(request.action, error)
        self._cells_ran = False  # requests keep their order: the ranks told of what came after all cells
        if self.on_replies is not None:
            self.on_replies(replies)  # also of an operation that failed: it may have staged tables
        if any(reply.revoked for reply in replies):
            self.needs_recovery = True
        if error is None:
            self._dropping.clear()
            return replies
        if isinstance(error, RankLost):
            self._await_loss()
        if self.lost:
            raise self._loss(replies)
        self._recover_if_possible()
        if isinstance(error, Revoked) and self.was_cut(started):
            raise as_revoked(stopped(request.action, self.cut_after(started)))
        raise error

    def _ended(self, what: str, error: BaseException | None) -> None:
        self._ended_at = time.monotonic()
        if error is not None and what != "nothing":
            self._cut_at = -_BETWEEN_S  # whoever interrupted sees that it did

    def _loss(self, replies: Sequence[Reply]) -> GcylonError:
        what = self._describe_losses(sorted(self.lost))
        error = RankLost(what, advice=_RESTART, lost_ranks=sorted(self.lost))
        error.rank = min(self.lost)
        traces = [reply.traceback for reply in replies if reply.rank not in self.lost and reply.traceback]
        return attach_traceback(error, sorted(self.lost), traces[0] if traces else "")

    # --- after a failure ---

    def _await_loss(self) -> None:
        """The ranks know of a dead one a moment before the controller tells which engine it was."""
        deadline = time.monotonic() + 2.0
        while not self.lost and time.monotonic() < deadline:
            time.sleep(0.02)

    def _recover_if_possible(self) -> None:
        if not self.needs_recovery or self.lost or self._broken or self._stuck is not None:
            return
        try:
            self.recover()
        except (ClusterError, RankStopped):
            pass  # the next request says so; what is raised now is the cause

    def _refuse_stopped(self, stop: Stop | None) -> None:
        if stop is not None:
            self._stopped = True
            raise stop.error()

    def _free_all(self, sent: Any) -> None:
        """Interrupt all ranks, and wait until what was sent is over; again where it had not begun at the first."""
        deadline = time.monotonic() + FREED_S
        self.interrupt()
        while not sent.wait(AGAIN_S) and time.monotonic() < deadline:
            self.interrupt()

    def _wait_idle(self) -> None:
        """Wait until no engine has anything left to do, freeing those that are stuck."""
        deadline = time.monotonic() + self._idle_s
        reminded = time.monotonic() + 1.0
        while not self._all_idle():
            now = time.monotonic()
            self.check_usable()
            self._refuse_stopped(self.stops.look())
            if now > deadline:
                self._idle_s = _IDLE_AGAIN_S  # whoever asks again learns soon whether it still is so
                text = "An engine does not become idle, although it was interrupted."
                raise ClusterDegraded(text, advice=_RESTART)
            if now > reminded:
                self.interrupt()
                reminded = now + 2.0
            time.sleep(0.02)
        self._idle_s = _IDLE_S

    def _settle_signals(self) -> None:
        """A signal that is still under way would strike in the middle of the recovery, or after it."""
        with contextlib.suppress(Exception):
            if self._signals is not None:
                self._signals.result(CONTROL_S)
        self._signals = None
        self.control.ask({"ask": "settle"})

    def _all_idle(self) -> bool:
        self._outstanding = [sent for sent in self._outstanding if not sent.ready()]
        if self._outstanding:
            return False
        message = self.client._send(
            self.client._query_stream, "queue_request", content={"targets": None, "verbose": False}
        )
        deadline = time.monotonic() + CONTROL_S
        while True:
            try:
                queues = message.result(_LOOK_S)["content"]
                break
            except FutureTimeout:
                self.check_usable()
                self._refuse_stopped(self.stops.look())
                if time.monotonic() > deadline:
                    return False
        return all(not queue["queue"] and not queue["tasks"] for queue in queues.values() if isinstance(queue, dict))

    def _take_drops(self) -> list[str]:
        return [self._drops.popleft() for _ in range(len(self._drops))]

    # --- called from the client's own thread ---

    def _on_done(self, sent: Any) -> None:
        self._ended("cell", sent.exception())
        if sent.exception() is not None:
            self.needs_recovery = True

    def _on_part(self, sent: Any, part: Any) -> None:
        if part.exception() is not None and not sent.done():
            self.client._io_loop.call_later(_NEWS_S, self._revoke_others, sent)

    def _revoke_others(self, sent: Any) -> None:
        """A rank failed and told so by MPI's means; now the others are told by ours. Local work goes on."""
        if not sent.done() and not self.client._closed:
            self.revoke()

    def _give_up_cells(self) -> None:
        """Let cells that nobody will answer end in an error that says why: a rank that has them is stopped, and the
        others are freed; or the controller is gone."""
        waiting = [sent for sent in self._outstanding if not sent.ready()]
        if not waiting or self.is_closed:
            return
        if self._is_cut_off():
            gone = ClusterDegraded(_CUT_OFF, advice=_RESTART)
            for sent in waiting:
                self._replies.give_up(sent.msg_ids, self.engine_ids, gone)
            return
        stop = self.stops.look()
        if stop is None:
            return
        self._stopped = True
        self.interrupt()
        stopped_ranks = stop.ranks or range(self.size)
        for sent in waiting:
            engines = [self.engine_ids[rank] for rank in stopped_ranks]
            self._replies.give_up(sent.msg_ids, engines, stop.error("The cell"))

    def _free_stranded(self, ranks: Sequence[int], why: str, advice: str) -> None:
        if self.is_closed:
            return
        self.needs_recovery = True
        for rank in ranks:
            self.control.send(self.engine_ids[rank], {"ask": "free", "why": why, "advice": advice})

    def _on_registration(self, event: dict[str, Any]) -> None:
        if self.is_closed or event["event"] != "unregister" or event["id"] not in self.engine_ids:
            return
        self.lost[self.engine_ids.index(event["id"])] = time.monotonic()
        # Whoever does not learn it from a collective is freed by a signal.
        self.client._io_loop.call_later(2.0, self._free_the_others)

    def _send_signal(self, *args: Any, **kwargs: Any) -> Any:
        """Stands in for the client's own: ``%px`` uses it when it is interrupted, and that too calls for recovery."""
        self.needs_recovery = True
        self._signals = type(self.client).send_signal(self.client, *args, **kwargs)
        return self._signals

    def _free_the_others(self) -> None:
        if not self.is_closed and self.client.outstanding and not self.client._closed:
            self.interrupt()
