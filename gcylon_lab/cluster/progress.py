"""Says how far an operation is while the notebook waits for it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..units import format_seconds
from .lookout import find_stranded

ProgressCallback = Callable[[list[dict[str, Any]]], None]

_FIRST_S = 1.0


def describe(states: Sequence[dict[str, Any]], elapsed_s: float) -> str:
    """One line on where the ranks are, for people; "" while nothing is known.

    Parameters
    ----------
    states : sequence of dict
        What `Engine.state` gives, of the ranks that answered.
    elapsed_s : float
    """
    stranded = find_stranded(states)
    if stranded is not None:
        return f"{stranded.describe()}, {format_seconds(elapsed_s)}"
    working = [(state["progress"], state["rank"]) for state in states if state["progress"]]
    if not working:
        running = next((state["running"] for state in states if state["running"]), "")
        return f"{running}: {format_seconds(elapsed_s)}" if running else ""
    slowest, rank = min(working, key=lambda pair: (pair[0]["round"], pair[1]))
    rounds = f" round {slowest['round']}/{slowest['rounds']}" if slowest["rounds"] else ""
    phase = f", rank {rank}: {slowest['phase']}" if slowest["phase"] else ""
    return f"{slowest['verb']}{rounds}{phase}, {format_seconds(elapsed_s)}"


class ProgressLine:
    """One line that is written over, in a notebook or a terminal; silent elsewhere."""

    def __init__(self) -> None:
        self._display: Any = None
        self._shown = ""

    def show(self, text: str) -> None:
        """Show a text in place of the one before."""
        if not text or text == self._shown:
            return
        self._shown = text
        if in_kernel():
            self._show_in_notebook(text)
        elif sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._display is not None:
            self._display.update(_Plain(""))
            self._display = None
        elif self._shown and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._shown = ""

    def _show_in_notebook(self, text: str) -> None:
        from IPython.display import display

        if self._display is None:
            self._display = display(_Plain(text), display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._display.update(_Plain(text))


class Waiting:
    """What happens while the notebook waits for a request: progress is asked for, shown, and given to callbacks.

    Parameters
    ----------
    ask : callable
        Gives the ranks' states; None for those that do not answer.
    show : bool
        Whether to show a line.
    """

    def __init__(self, ask: Callable[[], list[dict[str, Any] | None]], *, show: bool) -> None:
        self._ask = ask
        self._line = ProgressLine() if show else None
        self._last = 0.0
        self.callbacks: list[ProgressCallback] = []

    def tick(self, elapsed_s: float) -> None:
        """Called a few times a second while a request runs."""
        if elapsed_s < _FIRST_S or time.monotonic() - self._last < 0.25 or not (self._line or self.callbacks):
            return
        self._last = time.monotonic()
        states = [state for state in self._ask() if state is not None]
        if self._line is not None:
            self._line.show(describe(states, elapsed_s))
        for callback in list(self.callbacks):
            with contextlib.suppress(Exception):  # a broken callback must not end the wait for the ranks
                callback(states)

    def done(self) -> None:
        """The request is over."""
        if self._line is not None:
            self._line.clear()


class _Plain:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def in_kernel() -> bool:
    """Whether this process is a notebook's kernel."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return getattr(shell, "kernel", None) is not None
