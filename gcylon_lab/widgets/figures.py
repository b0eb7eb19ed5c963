"""Figures from the ranks' snapshots: every panel in one figure, or one panel alone.

Pure: `figure_dict` and `panel_dict` return plain values and load no plotly;
`dashboard_figure` and `panel_figure` return `plotly.graph_objects.Figure`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from .gpus_panel import gpus_panel
from .memory_panel import memory_panel
from .panel import Panel
from .peaks_panels import peak_ranks_panel, plan_panel
from .phases_panel import phases_panel
from .staging_panel import staging_panel
from .theme import NEUTRAL, Theme
from .view import Snapshot, View, make_view

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PANELS: dict[str, Callable[[View, Theme], Panel]] = {
    "memory": memory_panel,
    "phases": phases_panel,
    "staging": staging_panel,
    "gpus": gpus_panel,
    "peak_ranks": peak_ranks_panel,
    "plan": plan_panel,
}

HEIGHT = 590
# With the panel of GPUs, where there are some.
_GPU_HEIGHT = 720
_MARGIN = {"l": 58, "r": 14, "t": 4, "b": 38}


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a panel stands: its axes, its domain across, its extent from the top in pixels."""

    x: str
    y: str
    legend: str
    across: tuple[float, float]
    top: int
    bottom: int
    right: str = ""


_LEFT, _RIGHT = (0.0, 0.585), (0.725, 1.0)
# The left column shares one x axis, so that hovering one panel shows the same instant in all.
SLOTS = {
    "memory": Slot("x", "y", "legend", _LEFT, 40, 220, right="y6"),
    "phases": Slot("x", "y2", "legend2", _LEFT, 270, 408),
    "staging": Slot("x", "y3", "legend3", _LEFT, 460, 548),
    "peak_ranks": Slot("x2", "y4", "legend4", _RIGHT, 40, 240),
    "plan": Slot("x3", "y5", "legend5", _RIGHT, 330, 526),
    "gpus": Slot("x", "y7", "legend6", _LEFT, 600, 678),
}


def dashboard_figure(snapshots: Sequence[Snapshot], *, theme: Theme = NEUTRAL, window_s: float | None = None) -> Figure:
    """Return the figure with all panels.

    Parameters
    ----------
    snapshots : sequence of dict
        One a rank, as `profiling.snapshot.take_snapshot` makes them.
    theme : Theme, optional
        Colours of text and grid; by default a grey that is read on light and dark.
    window_s : float, optional
        Only the last so many seconds.
    """
    from plotly.graph_objects import Figure

    return Figure(figure_dict(make_view(snapshots, window_s=window_s), theme))


def panel_figure(
    key: str, snapshots: Sequence[Snapshot], *, theme: Theme = NEUTRAL, window_s: float | None = None
) -> Figure:
    """Return a figure with one panel: memory, phases, staging, gpus, peak_ranks or plan.

    Raises
    ------
    ArgumentError
        If there is no such panel.
    """
    from plotly.graph_objects import Figure

    return Figure(panel_dict(key, make_view(snapshots, window_s=window_s), theme))


def figure_dict(view: View, theme: Theme) -> dict[str, Any]:
    """Return data and layout of all panels in one figure; that of GPUs is there where a rank works on one."""
    keys = [key for key in PANELS if view.gpus or key != "gpus"]
    panels = {key: PANELS[key](view, theme) for key in keys}
    height = _GPU_HEIGHT if view.gpus else HEIGHT
    return _compose(view, panels, {key: SLOTS[key] for key in keys}, height, theme)


def panel_dict(key: str, view: View, theme: Theme, *, height: int = 300) -> dict[str, Any]:
    """Return data and layout of a figure with one panel."""
    if key not in PANELS:
        raise ArgumentError(f"{key!r} is no panel.", advice=f"The panels are {', '.join(PANELS)}.")
    slot = SLOTS[key]
    alone = Slot(
        "x", "y", "legend", (0.0, 0.94 if slot.right else 1.0), 42, height - 48, right="y2" if slot.right else ""
    )
    return _compose(view, {key: PANELS[key](view, theme)}, {key: alone}, height, theme)


def _compose(view: View, panels: dict[str, Panel], slots: dict[str, Slot], height: int, theme: Theme) -> dict[str, Any]:
    layout: dict[str, Any] = {
        **theme.layout(),
        "template": "none",
        "autosize": True,
        "height": height,
        "margin": _MARGIN,
        "barmode": "overlay",
        "bargap": 0.3,
        "hovermode": "x",
        "hoversubplots": "axis",
        "uirevision": "kept",
        "shapes": [],
        "annotations": [],
    }
    data: list[dict[str, Any]] = []
    for key, panel in panels.items():
        slot = slots[key]
        _place_axes(layout, panel, slot, slots, height, theme, view)
        data += [_place_trace(trace, slot) for trace in panel.traces]
        layout["shapes"] += [_place(item, slot) for item in panel.shapes]
        layout["annotations"] += [
            _title(panel, slot, height, theme),
            *_note(panel, slot, height, theme, alone=len(panels) == 1),
            *(_place(item, slot) for item in panel.annotations),
        ]
    return {"data": data, "layout": layout}


def _down(pixels: int, height: int) -> float:
    """Return the paper coordinate of a distance from the figure's top."""
    return 1 - (pixels - _MARGIN["t"]) / (height - _MARGIN["t"] - _MARGIN["b"])


def _axis_key(axis: str) -> str:
    return f"{axis[0]}axis{axis[1:]}"


def _place_axes(
    layout: dict[str, Any], panel: Panel, slot: Slot, slots: dict[str, Slot], height: int, theme: Theme, view: View
) -> None:
    domain = [_down(slot.bottom, height), _down(slot.top, height)]
    layout[_axis_key(slot.y)] = {
        **theme.axis(),
        **panel.yaxis,
        "title": {"text": panel.yaxis["title"], "standoff": 4, "font": {"size": 11}},
        "domain": domain,
        "anchor": slot.x,
        "fixedrange": True,
        "showgrid": panel.key != "phases",
        "zeroline": panel.key != "phases",
        "nticks": 5,
        **_blank(panel),
    }
    # Of panels that share an x axis the lowest carries its ticks.
    lowest = max((s for s in slots.values() if s.x == slot.x), key=lambda s: s.bottom)
    layout[_axis_key(slot.x)] = {
        **theme.axis(),
        **panel.xaxis,
        "title": {"text": panel.xaxis["title"], "standoff": 2, "font": {"size": 11}},
        "domain": list(slot.across),
        "anchor": lowest.y,
        **_time_axis(panel, view),
        **(_blank(panel) if panel.xaxis.get("type") == "category" or view.empty else {}),
    }
    if slot.right and panel.right_axis:
        layout[_axis_key(slot.right)] = {
            **theme.axis(),
            **panel.right_axis,
            "title": {"text": panel.right_axis["title"], "standoff": 4, "font": {"size": 11}},
            "overlaying": slot.y,
            "side": "right",
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
            "nticks": 5,
        }
    layout[slot.legend] = {
        "orientation": "h",
        "x": slot.across[0],
        "y": domain[1],
        "xanchor": "left",
        "yanchor": "bottom",
        "bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 11},
        "itemwidth": 30,
        "title": {"text": panel.legend_title, "font": {"size": 11}, "side": "left"},
    }


def _blank(panel: Panel) -> dict[str, Any]:
    """Return what hides the scale of an axis that has nothing to measure."""
    if any(len(trace["x"]) for trace in panel.traces if trace["meta"] != "percent"):
        return {"showticklabels": True, "ticks": "outside"}
    return {"showticklabels": False, "ticks": "", "showgrid": False, "title": {"text": ""}}


def _time_axis(panel: Panel, view: View) -> dict[str, Any]:
    if panel.xaxis.get("type") == "category":
        return {"fixedrange": True, "showgrid": False, "zeroline": False, "tickangle": 0}
    span = max(view.end_s - view.start_s, 1e-3)
    return {
        "range": [round(view.start_s, 3), round(view.start_s + span, 3)],
        "zeroline": False,
        "showspikes": True,
        "spikemode": "across",
        "spikethickness": 0.6,
        "spikedash": "dot",
        "spikecolor": "#888888",
    }


def _place_trace(trace: dict[str, Any], slot: Slot) -> dict[str, Any]:
    y = slot.right if trace.get("yaxis") == "right" else slot.y
    return {**trace, "xaxis": slot.x, "yaxis": y, "legend": slot.legend}


def _place(item: dict[str, Any], slot: Slot) -> dict[str, Any]:
    xref = str(item["xref"]).replace("x", slot.x, 1)
    yref = str(item["yref"]).replace("y", slot.y, 1)
    return {**item, "xref": xref, "yref": yref}


def _note(panel: Panel, slot: Slot, height: int, theme: Theme, *, alone: bool) -> list[dict[str, Any]]:
    """Place a panel's note: under it, where none of the ticks are, or if it stands alone beside its title."""
    if not panel.note:
        return []
    place = {"y": _down(slot.top - 20, height), "yanchor": "bottom"}
    if not alone:
        place = {"y": _down(slot.bottom + 2, height), "yanchor": "top"}
    return [
        {
            "text": panel.note,
            "xref": "paper",
            "yref": "paper",
            "x": slot.across[1],
            "xanchor": "right",
            "showarrow": False,
            "font": {"size": 11, "color": theme.faint},
            **place,
        }
    ]


def _title(panel: Panel, slot: Slot, height: int, theme: Theme) -> dict[str, Any]:
    return {
        "text": f"<b>{panel.title}</b>",
        "xref": "paper",
        "yref": "paper",
        "x": slot.across[0],
        "y": _down(slot.top - 20, height),
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 13, "color": theme.text},
    }
