"""A figure on the screen, brought up to date with one message a time."""

from __future__ import annotations

from typing import Any

from .figure_widget import HandFigureWidget

# What a person changes by hand on the screen, and an update leaves alone.
_TIME_AXES = ("xaxis", "xaxis4")  # of the panels, and of the brush
_EVENT_ONLY = ("uirevision",)


class LiveFigure:
    """Holds a ``FigureWidget`` and shows one figure after another in it.

    Parameters
    ----------
    figure : dict
        data and layout, as `figures.figure_dict` gives them.
    """

    def __init__(self, figure: dict[str, Any]) -> None:
        self.widget = HandFigureWidget(figure)
        # The tool bar would cover titles: dragging zooms, and a double click follows time again.
        self.widget._config = {**self.widget._config, "displayModeBar": False, "doubleClick": "autosize"}
        self.messages = 0
        self._shown = figure

    @property
    def zoomed(self) -> bool:
        """Return whether a person has chosen a stretch of time."""
        return bool(self.widget.zoomed)

    def show(self, figure: dict[str, Any]) -> None:
        """Bring the widget to the figure. What is equal is not sent; a stretch of time chosen by hand stays."""
        with self.widget.lock:
            self._show(figure)

    def _show(self, figure: dict[str, Any]) -> None:
        self._add_axes(figure["layout"])
        if [t["meta"] for t in figure["data"]] != [t["meta"] for t in self._shown["data"]]:
            self._replace_traces(figure["data"])
        changes = self._trace_changes(figure["data"])
        layout = self._layout_changes(figure["layout"])
        if changes or layout:
            with self.widget.batch_update():
                for trace, changed in changes:
                    for name, value in changed.items():
                        trace[name] = value
                for name, value in layout.items():
                    self.widget.layout[name] = value
            self.messages += 1
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

    def _trace_changes(self, data: list[dict[str, Any]]) -> list[tuple[Any, dict[str, Any]]]:
        pairs = zip(self.widget.data, data, self._shown["data"], strict=True)
        changes = [(trace, _changed(new, old)) for trace, new, old in pairs]
        return [(trace, changed) for trace, changed in changes if changed]

    def _layout_changes(self, new: dict[str, Any]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for name, value in _changed(new, self._shown["layout"]).items():
            if name in _EVENT_ONLY:
                continue
            if isinstance(value, dict):
                old = self._shown["layout"].get(name, {})
                changes |= {f"{name}_{key}": part for key, part in _changed(value, old).items()}
            else:
                changes[name] = value
        for name in _TIME_AXES:
            changes.pop(f"{name}_range", None)
            if name not in new or self.zoomed:
                continue
            axis, followed = self.widget.layout[name], list(new[name]["range"])
            if axis.autorange or list(axis.range or ()) != followed:
                # The double click that ended a stretch left autorange behind.
                changes |= {f"{name}_autorange": False, f"{name}_range": followed}
        return changes

    def close(self) -> None:
        """Take the figure off the page and free it."""
        self.widget.close()
        self._shown = {"data": [], "layout": {}}


def _changed(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return what is other than before; what is gone is None."""
    return {name: new.get(name) for name in {**old, **new} if name not in old or old[name] != new.get(name)}
