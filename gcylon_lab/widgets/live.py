"""A figure on the screen, brought up to date with one message a time."""

from __future__ import annotations

from typing import Any

from plotly.graph_objects import FigureWidget

# What a person changes by hand on the screen, and an update leaves alone.
_TIME_AXIS = "xaxis"
_EVENT_ONLY = ("uirevision",)


class _Widget(FigureWidget):  # type: ignore[misc]
    """A ``FigureWidget`` that can be freed: anywidget keeps every widget alive whose script is a file, not text."""

    _esm = str(FigureWidget._esm)


class LiveFigure:
    """Holds a ``FigureWidget`` and shows one figure after another in it.

    Parameters
    ----------
    figure : dict
        data and layout, as `figures.figure_dict` gives them.
    """

    def __init__(self, figure: dict[str, Any]) -> None:
        self.widget = _Widget(figure)
        # The tool bar would cover titles: dragging zooms, and a double click follows time again.
        self.widget._config = {**self.widget._config, "displayModeBar": False, "doubleClick": "autosize"}
        self.messages = 0
        self._shown = figure
        self._followed: list[float] | None = list(figure["layout"][_TIME_AXIS]["range"])

    @property
    def zoomed(self) -> bool:
        """Return whether a person has chosen a stretch of time."""
        axis = self.widget.layout[_TIME_AXIS]
        if axis.range is None or axis.autorange is True or self._followed is None:
            return False
        return any(abs(float(a) - b) > 1e-3 for a, b in zip(axis.range, self._followed, strict=True))

    def show(self, figure: dict[str, Any]) -> None:
        """Bring the widget to the figure. What is equal is not sent; a stretch of time chosen by hand stays."""
        if [t["meta"] for t in figure["data"]] != [t["meta"] for t in self._shown["data"]]:
            self._replace_traces(figure["data"])
        zoomed = self.zoomed
        self._followed = self._followed if zoomed else list(figure["layout"][_TIME_AXIS]["range"])
        changes = self._trace_changes(figure["data"])
        layout = self._layout_changes(figure["layout"], zoomed)
        if changes or layout:
            with self.widget.batch_update():
                for trace, changed in changes:
                    for name, value in changed.items():
                        trace[name] = value
                for name, value in layout.items():
                    self.widget.layout[name] = value
            self.messages += 1
        self._shown = figure

    def _replace_traces(self, data: list[dict[str, Any]]) -> None:
        self.widget.data = []
        self.widget.add_traces(data)
        self._shown = {"data": data, "layout": self._shown["layout"]}
        self.messages += 2

    def _trace_changes(self, data: list[dict[str, Any]]) -> list[tuple[Any, dict[str, Any]]]:
        pairs = zip(self.widget.data, data, self._shown["data"], strict=True)
        changes = [(trace, _changed(new, old)) for trace, new, old in pairs]
        return [(trace, changed) for trace, changed in changes if changed]

    def _layout_changes(self, new: dict[str, Any], zoomed: bool) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for name, value in _changed(new, self._shown["layout"]).items():
            if name in _EVENT_ONLY:
                continue
            if isinstance(value, dict):
                old = self._shown["layout"].get(name, {})
                changes |= {f"{name}_{key}": part for key, part in _changed(value, old).items()}
            else:
                changes[name] = value
        axis = self.widget.layout[_TIME_AXIS]
        changes.pop(f"{_TIME_AXIS}_range", None)
        if not zoomed and self._followed is not None and list(axis.range or ()) != self._followed:
            changes[f"{_TIME_AXIS}_range"] = self._followed
        return changes

    def close(self) -> None:
        """Take the figure off the page and free it."""
        self.widget.close()
        self._shown = {"data": [], "layout": {}}


def _changed(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return what is other than before; what is gone is None."""
    return {name: new.get(name) for name in {**old, **new} if name not in old or old[name] != new.get(name)}
