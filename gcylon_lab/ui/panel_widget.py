"""One panel of the dashboard, live, in a cell of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ipywidgets as w

from .figures.figures import check_panel, only_worst, panel_dict
from .figures.theme import Theme
from .figures.view import View
from .live.following import FollowingWidget
from .live.live_widget import close_tree

_LATEST = "runs, or took longest"
_RANKS = {"all ranks": "all", "the worst rank": "worst"}
_OF_ONE_OPERATION = ("peaks", "peak_ranks", "traffic")
_WITHOUT_TIME = (*_OF_ONE_OPERATION, "plan", "uses", "pools")
_MOST_OPERATIONS = 20


class Panel(FollowingWidget):
    """One panel of the dashboard, live.

    It begins to listen when it is first shown, sends at most ten updates a
    second, none while it is off the screen, and is freed by `close`.

    Parameters
    ----------
    source : Cluster or Source
        Whose ranks to show.
    name : {"memory", "peaks", "staging", "phases", "traffic", "gpus", "peak_ranks", "plan", "uses", "pools"}
    operation : int, optional
        The operation whose peaks or traffic to show; by default the one that runs, else the one that took longest.
    ranks : {"all", "worst"}, optional
        Whose memory to show: "worst" is the rank that came closest to its budget.

    Raises
    ------
    ArgumentError
        If there is no such panel, or no such choice of ranks.
    GcylonError
        If the source is neither a cluster nor a source.

    Examples
    --------
    >>> gl.Panel(lab, "traffic")                                     # doctest: +SKIP
    """

    def __init__(self, source: Any, name: str, *, operation: int | None = None, ranks: str = "all") -> None:
        self.name = check_panel(name)
        self._operation, self._worst = operation, only_worst(ranks)
        super().__init__(source)
        layout = w.Layout(width="190px")
        chosen = list(_RANKS)[self._worst]
        self.ranks = w.Dropdown(options=list(_RANKS), value=chosen, layout=layout, tooltip="Whose memory to show")
        self.operation = w.Dropdown(
            options=self._operations([]), value=operation, layout=layout, tooltip="Which operation to show"
        )
        for control in (self.ranks, self.operation):
            control.observe(self._choice_changed, "value")
        self._compose(w.HBox(self._controls()), self.live.widget)

    def _controls(self) -> list[Any]:
        controls = [] if self.name in _WITHOUT_TIME else [self.window]
        controls += [self.ranks] if self.name == "memory" else []
        controls += [self.operation] if self.name in _OF_ONE_OPERATION else []
        return [*controls, self.freeze]

    def _free(self) -> None:
        super()._free()
        # Those that this panel has no use for stand nowhere.
        for control in (self.window, self.ranks, self.operation):
            close_tree(control)

    def figures(self, view: View, theme: Theme) -> Iterator[dict[str, Any]]:
        """Return what the one figure shows."""
        yield panel_dict(self.name, view, theme)

    def _may_look(self) -> bool:
        # Who is gone matters only while somebody seems to be at work.
        return any(s.get("progress") for s in self._snapshots)

    def _draw(self) -> None:
        if self._may_look():
            self._ask_for_status()
        view = self.draw_figure(operation=self._operation, worst_only=self._worst)
        options = self._operations([(op.name, op.number) for op in view.operations[::-1]])
        # A list is not changed under the pointer.
        if not self.page.busy and list(self.operation.options) != options:
            self._offer(options)

    def _window_s(self) -> float | None:
        return None if self.name in _WITHOUT_TIME else super()._window_s()

    def _offer(self, options: list[tuple[str, int | None]]) -> None:
        # New options take the choice back to the first one, and say so as if a hand had.
        self.operation.unobserve(self._choice_changed, "value")
        self.operation.options = options
        self.operation.value = self._operation
        self.operation.observe(self._choice_changed, "value")

    def _operations(self, known: list[tuple[str, int]]) -> list[tuple[str, int | None]]:
        """The choices, the newest first; the chosen one is always among them."""
        options: list[tuple[str, int | None]] = [(_LATEST, None), *dict.fromkeys(known[:_MOST_OPERATIONS])]
        if self._operation not in [number for _, number in options]:
            options.append((f"#{self._operation}", self._operation))
        return options

    def _choice_changed(self, _change: Any) -> None:
        self._operation, self._worst = self.operation.value, _RANKS[self.ranks.value] == "worst"
        self._ask_for_drawing()
