"""How IPython shows an error of the ranks: the cause and the advice on top, then the person's own lines."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ..errors import GcylonError, describe_context

_ENDS = 15
_OURS = __name__.partition(".")[0]


def shown_folded(error: GcylonError | KeyboardInterrupt, who: str = "") -> None:
    """Let IPython show an error in its own way; Python alone shows it as any other.

    Parameters
    ----------
    error : GcylonError or KeyboardInterrupt
        Changed in place.
    who : str, optional
        Which ranks raised it.
    """
    error._render_traceback_ = lambda: _lines(error, who)  # type: ignore[union-attr]


def headline(name: str, message: str, advice: str, who: str = "", where: str = "") -> str:
    """What stands on top: the error and who raised it, what to change, and where in an operation it was."""
    first = f"{name}{f' on {who}' if who else ''}: {message}"
    helps = f"\n  What helps: {advice}" if advice else ""
    return f"{first}{helps}{f'{chr(10)}  Where: {where}' if where else ''}\n"


def shorten(error: BaseException | None) -> None:
    """Leave the first and the last frames of a very long traceback, changed in place.

    IPython takes seconds for the thousand frames of a RecursionError, to show five of them.
    """
    frames, traceback = [], None if error is None else error.__traceback__
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    if len(frames) > 4 * _ENDS:
        frames[_ENDS - 1].tb_next = frames[-_ENDS]


def persons_frames(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without this package's own frames at its end: where a person's code called it."""
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    while frames and str(frames[-1].tb_frame.f_globals.get("__name__", "")).partition(".")[0] == _OURS:
        frames.pop()
    kept: TracebackType | None = None
    for each in reversed(frames):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept


def _lines(error: GcylonError | KeyboardInterrupt, who: str) -> list[str]:
    from IPython import get_ipython

    shell: Any = get_ipython()
    if isinstance(error, KeyboardInterrupt):
        return [headline(type(error).__name__, str(error), "")]  # whoever interrupted knows where
    top = headline(type(error).__name__, error.message, error.advice, who, describe_context(error))
    traceback = persons_frames(error.__traceback__)
    if shell is None:
        return [top]
    return [top, *shell.InteractiveTB.structured_traceback(type(error), error, traceback)]
