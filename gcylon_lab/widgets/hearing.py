"""Widgets that hear the page while a cell runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def hear_while_cells_run(root: Any) -> None:
    """See to it that what a person does to a widget, or to one that stands in it, never waits for a running cell.

    JupyterLab sends what widgets say to a thread of the kernel's own beside its main one. ipykernel from 7.4 on
    leads it elsewhere: to where the kernel last spoke to that widget from. That is the main thread for whatever
    was made in a cell, or told by a thread while a cell ran, so that the button that interrupts a cell
    would be heard once the cell has ended.
    """
    for widget in _tree(root):
        comm = getattr(widget, "comm", None)
        if hasattr(comm, "_reply_subshell_for"):
            comm._reply_subshell_for = _as_the_page_says


def _as_the_page_says(_data: Any, asked_for: str | None) -> str | None:
    return asked_for


def _tree(widget: Any) -> Iterator[Any]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _tree(child)
