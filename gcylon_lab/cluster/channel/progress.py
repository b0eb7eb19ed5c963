"""Says how far an operation is while the notebook waits for it."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ...errors import Revoked
from ...units import format_bytes, format_count, format_seconds
from .interrupts import said, stopped, undisturbed
from .stall_detector import find_stalled

ProgressCallback = Callable[[list[dict[str, Any]]], None]

_FIRST_S = 1.0
_FIRST_IN_NOTEBOOK_S = 0.5
_EVERY_S = 0.25
_BAR_CELLS = 20
_LEFT = ", about "


@dataclass(frozen=True, slots=True)
class Where:
    """How far the ranks are: in words, and as a part of the rounds where these are known."""

    text: str = ""
    verb: str = ""
    share: float | None = None

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        if self.share is None:
            return self.text
        full = round(self.share * _BAR_CELLS)
        return f"{'█' * full}{'░' * (_BAR_CELLS - full)} {self.text}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        bar = ""
        if self.share is not None:
            bar = (
                '<span style="display:inline-block;width:160px;height:9px;margin-right:8px;'
                'background:rgba(128,128,128,0.25)"><span style="display:block;height:9px;'
                f'width:{100 * self.share:.0f}%;background:#4477AA"></span></span>'
            )
        return f'<div style="font-size:13px">{bar}{escape(self.text)}</div>'


def describe(states: Sequence[dict[str, Any]], elapsed_s: float) -> Where:
    """Where the ranks are, by the one that is least far; without text while nothing is known.

    Parameters
    ----------
    states : sequence of dict
        What `Engine.state` gives, of the ranks that answered.
    elapsed_s : float
    """
    stranded = find_stalled(states)
    if stranded is not None:
        return Where(f"{stranded.describe()}, {format_seconds(elapsed_s)}", stranded.verb)
    working = [(state["progress"], state["rank"]) for state in states if state["progress"]]
    if not working:
        running = next((state["running"] for state in states if state["running"]), "")
        return Where(f"{running}: {format_seconds(elapsed_s)}" if running else "", running)
    slowest, rank = min(working, key=lambda pair: (pair[0]["round"], pair[1]))
    done, rounds = slowest["round"], slowest["rounds"]
    moved = sum(progress.get("sent_bytes", 0) for progress, _ in working)
    parts = [slowest["verb"] + (f" round {done}/{rounds}" if rounds else "")]
    parts += [f"{format_bytes(moved)} sent"] if moved else []
    parts += [f"rank {rank}: {slowest['phase']}"] if slowest["phase"] else []
    parts.append(format_seconds(elapsed_s) + _time_left(slowest))
    return Where(", ".join(parts), slowest["verb"], min(done / rounds, 1.0) if rounds else None)


def moved(verb: str, nbytes: int, rows: int, of_rows: int | None, elapsed_s: float) -> Where:
    """How far rows are that go to the ranks, or come from them, of so many if that is known."""
    count = format_count(rows) + ("" if of_rows is None else f" of {format_count(of_rows)}")
    progress = {"round": rows, "rounds": of_rows or 0, "spent_s": elapsed_s}
    text = f"{verb}: {count} rows, {format_bytes(nbytes)}, {format_seconds(elapsed_s)}{_time_left(progress)}"
    return Where(text, verb, min(1.0, rows / of_rows) if of_rows else None)


def _time_left(progress: dict[str, Any]) -> str:
    done, rounds, spent_s = progress["round"], progress["rounds"], progress.get("spent_s", 0.0)
    if not 0 < done < rounds or not spent_s:
        return ""
    return f"{_LEFT}{format_seconds(float(f'{spent_s / done * (rounds - done):.1g}'))} left"


def ending(where: Where, elapsed_s: float, error: BaseException | None) -> Where:
    """What stands in the place of the last `describe` when it is over."""
    took = format_seconds(elapsed_s)
    if error is None:
        return Where(f"{where.verb} done in {took}", where.verb)
    if isinstance(error, (KeyboardInterrupt, Revoked)):
        return Where(said(error) or stopped(where.verb, elapsed_s), where.verb)
    return Where(f"{where.verb} failed after {took}; it was at: {where.text.partition(_LEFT)[0]}", where.verb)


class ProgressLine:
    """One line that is written over, in a notebook or a terminal; silent elsewhere.

    Parameters
    ----------
    first_s : float, optional
        What is over sooner shows none: by default half a second in a notebook, and a second in a terminal.
    """

    def __init__(self, first_s: float | None = None) -> None:
        self._display: Any = None
        self._shown = Where()
        self._start = time.monotonic()
        self._first_s = first_s

    def show(self, where: Where) -> None:
        """Show how far it is in place of what was shown before."""
        first_s = self._first_s
        if first_s is None:
            first_s = _FIRST_IN_NOTEBOOK_S if in_kernel() else _FIRST_S
        if not where or where == self._shown or time.monotonic() - self._start < first_s:
            return
        self._write(where)

    def end(self, error: BaseException | None = None, *, done: str = "") -> None:
        """Say in the line's place that it is over, and how; nothing where nothing was shown."""
        if self._shown:
            elapsed_s = time.monotonic() - self._start
            well = Where(f"{done} after {format_seconds(elapsed_s)}") if done and error is None else None
            self._write(well or ending(self._shown, elapsed_s, error))
            if self._display is None:
                sys.stderr.write("\n")
                sys.stderr.flush()
        self._display, self._shown = None, Where()

    def _write(self, where: Where) -> None:
        with undisturbed():  # a line that was shown and is not known of would stay as it is
            if in_kernel():
                self._show_in_notebook(where)
            elif sys.stderr.isatty():
                sys.stderr.write(f"\r\x1b[K{where}")
                sys.stderr.flush()
            else:
                return
            self._shown = where

    def _show_in_notebook(self, where: Where) -> None:
        from IPython.display import display

        if self._display is None:
            self._display = display(where, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._display.update(where)


class Waiting:
    """What happens while a request is waited for: progress is asked for, shown, and given to callbacks.

    Parameters
    ----------
    ask : callable
        Gives the ranks' states; None for those that do not answer.
    show : bool
        Whether to show a line.

    Attributes
    ----------
    where : Where
        How far the request that runs was when this was last asked.
    """

    def __init__(self, ask: Callable[[], list[dict[str, Any] | None]], *, show: bool) -> None:
        self._ask = ask
        self.shows = show
        self._lines = threading.local()
        self._last = 0.0
        self.where = Where()
        self.callbacks: list[ProgressCallback] = []
        self.told: Callable[[float], Where] | None = None  # where the notebook knows it better than the ranks

    def hide_here(self) -> None:
        """Show no line for what this thread waits for: it belongs to no cell."""
        self._lines.hidden = True

    def begin(self) -> None:
        """This thread is about to wait for a request."""
        self._lines.line = ProgressLine() if self.shows and not getattr(self._lines, "hidden", False) else None

    def tick(self, elapsed_s: float) -> None:
        """Called a few times a second while a request runs."""
        now = time.monotonic()
        if elapsed_s < _FIRST_IN_NOTEBOOK_S or now - self._last < _EVERY_S or not (self.shows or self.callbacks):
            return
        self._last = now
        states = [state for state in self._ask() if state is not None]
        self.where = describe(states, elapsed_s) if self.told is None else self.told(elapsed_s)
        line = getattr(self._lines, "line", None)
        if line is not None:
            line.show(self.where)
        for callback in list(self.callbacks) if elapsed_s >= _FIRST_S else []:
            with contextlib.suppress(Exception):  # a broken callback must not end the wait for the ranks
                callback(states)

    def done(self, error: BaseException | None = None) -> None:
        """The request is over, and how."""
        line, self._lines.line, self.where = getattr(self._lines, "line", None), None, Where()
        if line is not None:
            line.end(error)


def in_kernel() -> bool:
    """Whether this process is a notebook's kernel."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return getattr(shell, "kernel", None) is not None
