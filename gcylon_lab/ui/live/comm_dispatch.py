"""Widgets whose buttons work while a cell runs."""

from __future__ import annotations

from typing import Any


def hear_at_once(widget: Any) -> None:
    """Let what a page says of a widget, and of all that stand in it, be heard while a cell runs.

    JupyterLab sends it to a thread of the kernel that is meant for widgets. ipykernel from 7.4 on gives it to the
    thread instead that spoke of the widget last, and that is mostly the one in which the cell runs: an interrupt would
    be heard once it is not needed any more.

    Parameters
    ----------
    widget : ipywidgets.Widget
    """
    for child in getattr(widget, "children", ()):
        hear_at_once(child)
    if hasattr(widget.comm, "_reply_subshell_for"):
        widget.comm._reply_subshell_for = _as_the_page_asked


def _as_the_page_asked(data: object, subshell_id: str | None) -> str | None:
    return subshell_id
