"""What a magic shows: HTML in a notebook, text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from html import escape
from typing import Any, ParamSpec, TypeVar

from IPython.core.error import UsageError

from ...errors import GcylonError
from ...profiling.report import format_table
from ..figures.numbers import html_table
from ..live.scripts import CSS

P = ParamSpec("P")
R = TypeVar("R")


class Shown:
    """Text, and the same as HTML.

    Parameters
    ----------
    text : str
    html : str
        Stands in the dashboard's style.
    """

    def __init__(self, text: str, html: str) -> None:
        self.text = text
        self._html = html

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'{CSS}<div class="gcylon-dashboard">{self._html}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, above: str = "", below: str = "") -> Shown:
    """A table with a line above and below it."""
    lines = [above] * bool(above) + format_table(head, rows) + [below] * bool(below)
    top, bottom = (f"<div>{escape(text)}</div>" if text else "" for text in (above, below))
    rows_as_lists = [list(row) for row in rows]
    return Shown("\n".join(lines), f"{top}{html_table((list(head), rows_as_lists))}{bottom}")


def show(value: Any) -> None:
    """Show a value in the cell that runs."""
    from IPython.display import display

    display(value)  # type: ignore[no-untyped-call]


def told_shortly(magic: Any) -> Any:
    """Let what a magic refuses be shown as one line: a traceback of its insides would say nothing more."""

    @wraps(magic)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return magic(*args, **kwargs)
        except GcylonError as error:
            if not hasattr(error, "_render_traceback_"):
                lines = [f"{type(error).__name__}: {error}"]
                error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
            raise

    return call


def refuse(message: str) -> UsageError:
    """An error of how a magic was written, which IPython shows as one line."""
    return UsageError(message)
