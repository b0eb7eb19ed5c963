"""The view that everything goes through, ``%px`` included."""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from ipyparallel import AsyncResult, DirectView
from ipyparallel.client.magics import ParallelMagics
from traitlets import Any as AnyTrait

from .interrupts import not_sent, tell, undisturbed
from .px_errors import Cut, fold_cell, refuse_magics
from .request_queue import RequestQueue

_HISTORY = 1000

_active: OrderedView | None = None
_numbers = itertools.count(1)
_turns: weakref.WeakKeyDictionary[OrderedView, int] = weakref.WeakKeyDictionary()


class Queue(Cut, Protocol):
    """The way to the engines, as the view sees it that sends through it."""

    lock: Any
    turns: RequestQueue

    def refuse_cut(self, what: str) -> None:
        """Raise where an interrupt has struck before it was sent."""
        ...

    def prepare(self) -> None:
        """See to it that the engines can be asked."""
        ...

    def sending(self) -> AbstractContextManager[None]:
        """Let a rank that has gone meanwhile be told as that."""
        ...

    def track(self, sent: Any) -> None:
        """Keep an eye on what was sent."""
        ...

    def cut_short(self, sent: Any, what: str, started: float, error: KeyboardInterrupt) -> None:
        """Free the ranks from what was sent, and say so."""
        ...


class OrderedView(DirectView):  # type: ignore[misc]
    """A DirectView whose requests reach all engines in one order, whatever thread they come from.

    Its engines stand in the order of their MPI ranks, and so do its results.

    Parameters
    ----------
    client : ipyparallel.Client
    channel : Queue
        Whose lock to take, and which to tell of every request.
    """

    _channel = AnyTrait()

    def __init__(self, client: Any, channel: Queue) -> None:
        super().__init__(client=client, socket=client._mux_stream, targets=list(channel.engine_ids))
        self._channel = channel
        self.block = True

    def send(
        self, function: Callable[..., Any], *args: Any, each: Sequence[Any] | None = None, label: str | None = None
    ) -> Any:
        """Send a call to all engines, without looking at whether they are ready; under the lock.

        Parameters
        ----------
        function : callable
        *args
            The same for all.
        each : sequence, optional
            One more argument for every rank, its own.
        label : str, optional
            Of the messages.
        """
        engines = list(self._channel.engine_ids)
        if each is None:
            return super()._really_apply(function, args, block=False, targets=engines, label=label)
        parts = [
            super(OrderedView, self)._really_apply(function, (*args, own), block=False, targets=[engine], label=label)
            for engine, own in zip(engines, each, strict=True)
        ]
        return AsyncResult.join(*parts)

    def forget_ids(self) -> None:
        """Keep the ids of the latest messages only; ipyparallel would keep those of all.

        Under the lock, and not inside a method of the view: these count on the history to find what they have sent.
        """
        for ids in (self.history, self.client.history):
            del ids[:-_HISTORY]

    def _really_apply(self, f: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        block = options.pop("block", None)
        with self._interrupted_as("call") as request:
            self._channel.turns.wait()
            with self._channel.lock:
                self._channel.refuse_cut("the call")
                self._channel.prepare()
                with undisturbed(), self._channel.sending():
                    sent = super()._really_apply(f, args, kwargs, block=False, **options)
                    request.sent = sent
                    self._channel.track(sent)
            return sent.get() if (self.block if block is None else block) else sent

    def execute(
        self, code: str, silent: bool = True, targets: Any = None, block: bool | None = None, label: Any = None
    ) -> Any:
        """Run code in the engines' namespaces; as `ipyparallel.DirectView.execute`."""
        refuse_magics(code)
        with self._interrupted_as("cell") as request:
            self._channel.turns.wait()
            with self._channel.lock:
                self._channel.refuse_cut("the cell")
                self._channel.prepare()
                with undisturbed(), self._channel.sending():
                    sent = super().execute(code, silent=silent, targets=targets, block=False, label=label)
                    request.sent = sent
                    fold_cell(sent, self._channel)
                    self._channel.track(sent)
            if self.block if block is None else block:
                sent.get()
                sent.wait_for_output(2)
            return sent

    @contextmanager
    def _interrupted_as(self, what: str) -> Iterator[_Sent]:
        """An interrupt inside the block frees the ranks from what was sent there, and says so."""
        request, started = _Sent(), time.monotonic()
        try:
            yield request
        except KeyboardInterrupt as error:
            if request.sent is not None:
                self._channel.cut_short(request.sent, what, started, error)
            tell(error, not_sent(what))
            raise


class _Sent:
    """What was sent, once it was."""

    sent: Any = None


def activate(view: OrderedView) -> None:
    """Let ``%px``, ``%%px`` and ``%autopx`` go through a view; nothing where there is no IPython."""
    from IPython import get_ipython

    global _active
    shell = get_ipython()
    if shell is not None:
        shell.magics_manager.register(RankMagics(shell, view))
        _active = view
        _turns[view] = next(_numbers)


def latest(views: Sequence[OrderedView]) -> OrderedView:
    """Of at least one view, the one that ``%px`` went through last."""
    return max(views, key=lambda view: _turns.get(view, 0))


def is_active(view: OrderedView) -> bool:
    """Whether ``%px`` goes through this view now."""
    return _active is view


class RankMagics(ParallelMagics):  # type: ignore[misc]
    """``%px``, ``%%px`` and so on, for a view of ours.

    ipyparallel's own tell the engines of an interrupt, and end as if the cell had worked: a notebook that is run as a
    whole would go on with the next cell.
    """

    signal_on_interrupt = None

    def parallel_execute(self, cell: str, *args: Any, **options: Any) -> Any:
        """Run a cell on the ranks; where it is interrupted, free them and say so."""
        started, before = time.monotonic(), self.last_result
        try:
            return super().parallel_execute(cell, *args, **options)
        except KeyboardInterrupt as error:
            if self.last_result is not before:
                self.view._channel.cut_short(self.last_result, "cell", started, error)
            raise
