"""A figure on the screen, brought up to date with one message a time."""

from __future__ import annotations

from typing import Any

from plotly.graph_objects import layout as parts

from .figure_widget import BorrowingFigureWidget, HandFigureWidget

# What a person changes by hand on the screen, and an update leaves alone.
_TIME_AXES = ("xaxis", "xaxis4")  # of the panels, and of the brush
_EVENT_ONLY = ("uirevision",)
_LISTS = {"annotations": parts.Annotation, "shapes": parts.Shape}
# What plotly's script takes for "as it was".
_SAME = "_undefined_"

Changes = dict[str, Any]


class LiveFigure:
    """Holds a ``FigureWidget`` and shows one figure after another in it.

    Plotly's own way to change a figure checks all values anew, which took three quarters of the time of a drawing.
    What is shown here was made here: changes go into the figure's state and to the page as they are.

    Parameters
    ----------
    figure : dict
        data and layout, as `figures.figure_dict` gives them.
    beside : LiveFigure, optional
        A figure on the same page, whose copy of plotly's script this one uses too.
    """

    def __init__(self, figure: dict[str, Any], beside: LiveFigure | None = None) -> None:
        self.widget: HandFigureWidget
        self.widget = BorrowingFigureWidget(figure, beside.widget) if beside else HandFigureWidget(figure)
        # The tool bar would cover titles: dragging zooms, and a double click follows time again.
        self.widget._config = {**self.widget._config, "displayModeBar": False, "doubleClick": "autosize"}
        self.messages = 0
        self._shown = figure

    @property
    def zoomed(self) -> bool:
        """Return whether a person has chosen a stretch of time."""
        return bool(self.widget.zoomed)

    @property
    def until_s(self) -> float:
        """Return where the time axis ends that was last shown."""
        return float(self._shown["layout"]["xaxis"]["range"][1])

    def show(self, figure: dict[str, Any]) -> None:
        """Bring the widget to the figure. What is equal is not sent; a stretch of time chosen by hand stays."""
        with self.widget.lock:
            self._show(figure)

    def follow(self, stretch: list[float] | None) -> None:
        """Take over a stretch of time that a person chose in another figure; None is that of the clock."""
        with self.widget.lock:
            self.widget.zoomed = stretch is not None
            if stretch is None or "xaxis" not in self._shown["layout"]:
                return
            changes = {"xaxis.autorange": False, "xaxis.range": list(stretch)}
            self._apply(self.widget._layout, changes)
            self._send([], changes)

    def _show(self, figure: dict[str, Any]) -> None:
        self._add_axes(figure["layout"])
        if [t["meta"] for t in figure["data"]] != [t["meta"] for t in self._shown["data"]]:
            self._replace_traces(figure["data"])
        traces = [_changes(new, old) for new, old in zip(figure["data"], self._shown["data"], strict=True)]
        layout = self._layout_changes(figure["layout"])
        if layout or any(traces):
            for state, changes in zip(self.widget._data, traces, strict=True):
                self._apply(state, changes)
            self._apply(self.widget._layout, layout)
            self._adopt(layout)
            self._send(traces, layout)
        self._shown = figure

    def _add_axes(self, layout: dict[str, Any]) -> None:
        """Make axes and legends that are new: they must be there before traces use them, or a part of them changes."""
        known = self._shown["layout"]
        added = {name: value for name, value in layout.items() if isinstance(value, dict) and name not in known}
        for name, value in added.items():
            self.widget.layout[name] = value
            self.messages += 1
        self._shown = {"data": self._shown["data"], "layout": known | added}

    def _replace_traces(self, data: list[dict[str, Any]]) -> None:
        self.widget.data = []
        self.widget.add_traces(data)
        self._shown = {"data": data, "layout": self._shown["layout"]}
        self.messages += 2

    def _layout_changes(self, new: dict[str, Any]) -> Changes:
        changes = _changes(new, self._shown["layout"])
        for name in _EVENT_ONLY:
            changes.pop(name, None)
        for name in _TIME_AXES:
            changes.pop(f"{name}.range", None)
            if name not in new or self.zoomed:
                continue
            axis, followed = self.widget._layout.get(name, {}), list(new[name]["range"])
            if axis.get("autorange") or list(axis.get("range") or ()) != followed:
                # The double click that ended a stretch left autorange behind.
                changes |= {f"{name}.autorange": False, f"{name}.range": followed}
        return changes

    def _apply(self, state: dict[str, Any], changes: Changes) -> None:
        for path, value in changes.items():
            *parents, name = path.split(".")
            inner = state
            for parent in parents:
                inner = inner.setdefault(parent, {})
            if value is None:
                inner.pop(name, None)
            else:
                inner[name] = value

    def _adopt(self, changes: Changes) -> None:
        """Make plotly's objects of lists that became longer or shorter: they look up their values by their places."""
        layout = self.widget.layout
        for name in _LISTS.keys() & changes.keys():
            known, count = list(layout._compound_array_props.get(name) or ()), len(changes[name])
            for _ in range(count - len(known)):
                made = _LISTS[name]()
                made._parent = layout
                known.append(made)
            layout._compound_array_props[name] = known[:count]

    def _send(self, traces: list[Changes], layout: Changes) -> None:
        places = [place for place, changes in enumerate(traces) if changes]
        names = dict.fromkeys(name for place in places for name in traces[place])
        style = {name: [traces[place].get(name, _SAME) for place in places] for name in names}
        self.messages += 1
        self.widget.tell(
            {
                "style_data": style, "layout_data": layout, "style_traces": places, "source_view_id": None,
                "trace_edit_id": self.messages, "layout_edit_id": self.messages,
            }
        )  # fmt: skip

    def close(self) -> None:
        """Take the figure off the page and free it."""
        self.widget.close()
        self._shown = {"data": [], "layout": {}}


def _changes(new: dict[str, Any], old: dict[str, Any], within: str = "") -> Changes:
    """Return what is other than before, by the path to it; what is gone is None."""
    changes: Changes = {}
    for name in {**old, **new}:
        now, before = new.get(name), old.get(name)
        if now is before or (name in old and now == before):
            continue
        if isinstance(now or before, dict):
            # A page takes parts, also where all of them come or go.
            changes |= _changes(now or {}, before or {}, f"{within}{name}.")
        else:
            changes[f"{within}{name}"] = now
    return changes
