"""Interrupts by a person: where they may strike, and what the person then reads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ...errors import Revoked
from ...units import format_seconds
from ..tracebacks import shown_folded

_BEGINS = "Interrupted: "
_CALLED = {"from_local": "from_pandas", "adopt": "table"}
_OWN_CODE = ("run", "map_parts", "cell", "call")  # what a person's own function did by then is not taken back


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let a SIGINT that comes inside the block take effect at its end.

    For work that must not be cut in the middle, such as sending one request to all ranks. The handler is put back at
    the end. Where none was set from Python, or in another thread, nothing is changed: no KeyboardInterrupt comes there.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])


def called(action: str) -> str:
    """What a person calls a request's action."""
    return _CALLED.get(action, action)


def stopped(action: str, seconds: float) -> str:
    """What a person reads who interrupted a request.

    Parameters
    ----------
    action : str
        The request's.
    seconds : float
        How long it had run.
    """
    name = called(action)
    name = f"the {name}" if action in ("cell", "call") else name
    kept = "what it had done by then stays" if action in _OWN_CODE else "tables are unchanged"
    took = f"{seconds:.1f} s" if seconds < 60 else format_seconds(seconds)
    return f"{_BEGINS}{name} stopped after {took}; {kept}."


def not_sent(action: str) -> str:
    """What a person reads who interrupted before a request was sent."""
    return f"{_BEGINS}{called(action)} was not sent; tables are unchanged."


def tell(error: KeyboardInterrupt, text: str) -> None:
    """Let an interrupt say what came of it, unless it does so already."""
    if not said(error):
        error.args = (text,)
        shown_folded(error)


def as_revoked(text: str) -> Revoked:
    """The error of a request that was interrupted from another thread: a button, or `Cluster.interrupt`."""
    error = Revoked(text)
    shown_folded(error)
    return error


def said(error: BaseException | None) -> str:
    """What an error says of an interrupt by a person; "" where it says nothing of one."""
    text = str(error) if isinstance(error, (KeyboardInterrupt, Revoked)) else ""
    return text if text.startswith(_BEGINS) else ""
