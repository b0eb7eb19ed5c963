"""What all widgets that stand in a notebook share: they listen once shown, rest while unseen, and are freed."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Self

import ipywidgets as w
from ipywidgets.widgets import widget as ipywidgets_module

from ..figures.view import Snapshot
from .page_visibility import PageWatcher
from .scripts import CONTROLS_CSS, CSS
from .source import as_source
from .worker import Worker

UPDATE_EVERY_S = 0.1
_STATUS_EVERY_S = 2.0
_TROUBLE_EVERY_S = 1.0


class Root(w.VBox):  # type: ignore[misc]
    """What holds all of a widget together. To show it, ipywidgets asks for its repr first."""

    def __repr__(self) -> str:
        # That of ipywidgets goes through all figures, which another thread may be drawing on.
        return f"<{type(self).__name__} of {len(self.children)} widgets>"


class LiveWidget:
    """A widget of a cluster. It begins to listen when it is first shown, and `close` frees it.

    Parameters
    ----------
    source : Cluster or Source
        Whose ranks to show.
    """

    def __init__(self, source: Any) -> None:
        self._source = as_source(source)
        # One draws, one does what a hand asked for, and one asks the ranks, which takes long where one is stuck.
        self._worker, self._hands, self._eyes = (Worker(self._failed) for _ in range(3))
        self._snapshots: list[Snapshot] = []
        self._heard = time.monotonic()
        self._status: dict[str, Any] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._closed = False
        self.draws = 0
        self.page = PageWatcher()
        self.errors = w.HTML()
        self._root = Root(layout=w.Layout(width="100%"))
        self._root.add_class("gcylon-dashboard")
        self.page.observe(self._page_changed, ["theme", "visible", "busy", "tock", "width"])

    def _compose(self, *parts: Any) -> None:
        css = w.HTML(CSS + CONTROLS_CSS, layout=w.Layout(display="none"))
        self._root.children = [css, self.page, *parts, self.errors]
        hear_at_once(self._root)
        hold(self._root, weakly=True)

    @property
    def widget(self) -> Any:
        """The composed widget; asking for it begins the live view."""
        self.start()
        return self._root

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        name = type(self).__name__
        if self._closed:
            return {"text/plain": f"<{name}, closed>"}
        self.start()
        _in_cells.shown(self)
        bundle = dict(self._root._repr_mimebundle_(**kwargs))
        # What a saved notebook shows where there is no kernel behind it.
        ranks = len(self._source.ranks)
        return bundle | {"text/plain": f"<{name} of {ranks} ranks, live while its kernel runs; see html_report>"}

    # --- life ---

    def start(self) -> None:
        """Begin to listen; done by showing it. Idempotent."""
        if not self._closed and self._unsubscribe is None:
            hold(self._root, weakly=False)
            self._listen()

    def _listen(self) -> None:
        # The cluster must not keep a widget alive that nobody has any more.
        mine = weakref.WeakMethod(self._news)

        def tell(snapshots: Sequence[Snapshot]) -> None:
            news = mine()
            if news is not None:
                news(snapshots)

        self._unsubscribe = self._source.subscribe(tell)
        self._worker.request("first", self._fetch_first)

    def close(self) -> None:
        """End the live view, take it off the page, free everything. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._rest()
        for worker in (self._worker, self._hands, self._eyes):
            worker.close()
        self._free()
        close_tree(self._root)
        self._snapshots = []

    def _rest(self) -> None:
        """Hear nothing more; what nobody hears the ranks are not asked for."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _free(self) -> None:
        """What a kind of widget has to free beside what stands in it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # --- callbacks: short, from any thread; the work is done on the workers ---

    def _news(self, snapshots: Sequence[Snapshot]) -> None:
        self._snapshots, self._heard = list(snapshots), time.monotonic()
        if self.page.visible:
            self._ask_for_drawing()

    def _ask_for_drawing(self) -> None:
        self._worker.request("draw", self.draw, every_s=UPDATE_EVERY_S)

    def _page_changed(self, change: Any) -> None:
        if change["name"] == "visible":
            # Off the screen the ranks are left alone; back on it, what they did meanwhile is fetched at once.
            self._rest()
            if change["new"] and not self._closed:
                self._listen()
        if self.page.visible and self._matters(change):
            self._ask_for_drawing()

    def _matters(self, change: Any) -> bool:
        """Whether what the page said asks for a drawing."""
        return change["name"] in ("theme", "visible", "width")

    def _failed(self, error: Exception) -> None:
        self.errors.value = f'<div class="gcylon-error">{escape(type(error).__name__)}: {escape(str(error))}</div>'

    @property
    def _age_s(self) -> float:
        """How old the snapshots are: of ranks that do not answer there are no others."""
        return time.monotonic() - self._heard

    # --- on the workers ---

    def _fetch_first(self) -> None:
        known = list(self._source.snapshots())
        if _newest(known) >= _newest(self._snapshots):  # news may have come meanwhile
            self._snapshots = known
        self.draw()

    def draw(self) -> None:
        """Bring everything shown up to date with the latest snapshots; runs on the worker."""
        # What was asked for before it went off the screen is not drawn after.
        if not self._closed and self.page.visible:
            self._draw()
            self.draws += 1

    def _draw(self) -> None:
        raise NotImplementedError

    def _ask_for_status(self) -> None:
        """Have the ranks asked how they are, on a thread that may wait for one that is stuck."""
        well = all(row["state"] in ("idle", "busy") for row in self._status.get("ranks", ()))
        every_s = _STATUS_EVERY_S if well else _TROUBLE_EVERY_S
        self._eyes.request("status", self._look, every_s=every_s)

    def _may_look(self) -> bool:
        """Whether the ranks can be asked at all now."""
        return True

    def _look(self) -> None:
        if not self._may_look():
            return
        before, self._status = self._status, dict(self._source.status())
        if self._status != before:
            self._ask_for_drawing()
        # A cluster that has ended, or a rank that hangs, sends no news of it.
        if self.page.visible and self._status.get("state") != "closed":
            self._ask_for_status()


def _newest(snapshots: Sequence[Snapshot]) -> int:
    return max((int(s["now_ns"]) for s in snapshots), default=0)


def set_html(widget: Any, html: str) -> None:
    """Show a text, if it is another one: what is equal is not sent."""
    if widget.value != html:
        widget.value = html


def close_tree(widget: Any) -> None:
    """Close a widget and all that stand in it, with their callbacks, layouts and styles."""
    for child in getattr(widget, "children", ()):
        close_tree(child)
    widget.unobserve_all()
    for part in (getattr(widget, "layout", None), getattr(widget, "style", None)):
        if part is not None and hasattr(part, "close"):
            part.close()
    widget.close()


def tree_of(widget: Any) -> Iterator[Any]:
    """A widget and all that it is made of: what a page needs to show it."""
    waiting, seen = [widget], set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, w.Widget) or one.comm is None or one.model_id in seen:
            continue
        seen.add(one.model_id)
        yield one
        for name in one.keys:
            value = getattr(one, name)
            waiting += value if isinstance(value, (list, tuple)) else [value]


def hold(widget: Any, *, weakly: bool) -> None:
    """Let ipywidgets hold a widget and all that stand in it, as it holds all widgets, or not.

    What no page has shown ends with the last name for it, like anything else. What a page shows lives until it is
    closed, whatever becomes of its names.
    """
    known: Any = getattr(ipywidgets_module, "_instances", None)
    if known is None:
        return  # another version, which holds its widgets elsewhere
    for one in list(tree_of(widget)):
        if not weakly:
            known[one.model_id] = one
            one.comm.on_msg(one._handle_msg)
            continue
        known[one.model_id] = weakref.proxy(one)
        one.comm.on_msg(_weakly(one))


def _weakly(widget: Any) -> Callable[[Any], None]:
    handle = weakref.WeakMethod(widget._handle_msg)

    def heard(message: Any) -> None:
        method = handle()
        if method is not None:
            method(message)

    return heard


class _InCells:
    """What stands in the output of which cell: a cell that runs again replaces it, which ends it."""

    def __init__(self) -> None:
        self._cells: dict[str, tuple[str, weakref.WeakSet[LiveWidget]]] = {}

    def shown(self, widget: LiveWidget) -> None:
        """Note that a cell shows a widget; what its earlier run showed, and no other cell does, is closed."""
        cell, run = running_cell()
        if not cell:
            return
        before, there = self._cells.get(cell, ("", weakref.WeakSet()))
        if before == run:
            there.add(widget)
            return
        self._cells[cell] = run, weakref.WeakSet([widget])
        elsewhere = {one for _, some in self._cells.values() for one in some}
        for one in list(there):
            if one not in elsewhere:
                one.close()


_in_cells = _InCells()


def running_cell() -> tuple[str, str]:
    """The cell that runs, as the page names it, and this run of it; two empty texts outside of a notebook."""
    try:
        from IPython import get_ipython

        parent = get_ipython().kernel.get_parent("shell")
        return str(parent["metadata"].get("cellId", "")), str(parent["header"]["msg_id"])
    except (AttributeError, ImportError, KeyError, TypeError):
        return "", ""


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
