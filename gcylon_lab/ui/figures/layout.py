"""Where panels stand in a figure, and one figure made of them. Pure, without plotly."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .panels.panel import Panel, empty_note
from .theme import Theme
from .view import View

MARGIN = {"l": 58, "r": 14, "t": 4, "b": 6}
# Right of panels that stand in a figure with the time axis alone: for a second scale.
BESIDE_TIME = 50
LEFT, RIGHT = (0.0, 0.55), (0.665, 1.0)


@dataclass(frozen=True, slots=True)
class Place:
    """What a panel needs: its axes' names, pixels above, of and below its plot, and its part of room to spare."""

    x: str
    y: str
    legend: str
    head: int
    body: int
    foot: int
    grows: float = 1.0
    right: str = ""


# Names stay the same wherever a panel stands. What shares "x" shares the time axis: hovering one shows the same
# instant in all.
PLACES = {
    "memory": Place("x", "y", "legend", 70, 160, 14, right="y6", grows=2.0),
    "memory_ranks": Place("x", "y8", "legend8", 22, 110, 12),
    "brush": Place("x4", "y9", "legend9", 20, 30, 12, grows=0.0),
    "phases": Place("x", "y2", "legend2", 82, 128, 20, grows=2.0),
    "staging": Place("x", "y3", "legend3", 40, 74, 12),
    "gpus": Place("x", "y7", "legend6", 40, 70, 12),
    "staged_ranks": Place("x5", "y10", "legend10", 84, 70, 38, grows=0.5),
    "peak_ranks": Place("x2", "y4", "legend4", 40, 120, 38),
    "plan": Place("x3", "y5", "legend5", 40, 110, 52),
    "uses": Place("x7", "y12", "legend12", 54, 100, 38),
    "pools": Place("x8", "y13", "legend13", 68, 84, 38),
    "traffic": Place("x6", "y11", "legend11", 68, 190, 38, grows=2.0),
}
# A slider is drawn so far below the plot it belongs to, which itself is a pixel high (with less plotly clips nothing).
_SLIDER_GAP = 15
_FOLDED = Place("", "", "", 22, 1, 2, grows=0.0)  # of a panel without anything to show: its title in a line
_HIDDEN = Place("", "", "", 0, 1, 0, grows=0.0)
_OUTDENT = 46  # titles begin left of the plot, above the numbers of its axis: narrow figures have no other room
_TICKS = 30  # below the lowest panel of a time axis, for its numbers and unit


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a panel stands: its axes, its domain across, its extent from the figure's top in pixels."""

    x: str
    y: str
    legend: str
    across: tuple[float, float]
    top: int
    bottom: int
    right: str = ""
    folded: bool = False


Column = tuple[tuple[float, float], Sequence[str]]


def slots_of(
    columns: Sequence[Column],
    *,
    tall: Mapping[str, int],
    height: int = 0,
    numbered: bool = True,
    folded: Collection[str] = (),
    hidden: Collection[str] = (),
) -> tuple[dict[str, Slot], int]:
    """Return where the panels of columns stand, and the figure's height.

    Parameters
    ----------
    columns : sequence of ((left, right), keys)
        Each column's extent across, and its panels from the top.
    tall : mapping of str to int
        Pixels of plots that need more than usual.
    height : int, optional
        At least so high; by default as high as the highest column needs.
    numbered : bool, optional
        Whether the time axis has numbers; without, there is a figure below this one that has them.
    folded : collection of str, optional
        Panels of which only the title stands there.
    hidden : collection of str, optional
        Panels of which nothing stands there. They keep their axes, as folded ones do.
    """
    flat = {**dict.fromkeys(folded, _FOLDED), **dict.fromkeys(hidden, _HIDDEN)}
    places = {key: flat.get(key, PLACES[key]) for _, keys in columns for key in keys}
    bodies = {key: place.body if key in flat else max(place.body, tall.get(key, 0)) for key, place in places.items()}
    ticks = _TICKS if numbered else 0
    feet = {
        key: places[key].foot + ticks * _carries_time(key, [k for k in keys if k not in flat])
        for _, keys in columns
        for key in keys
    }
    needs = [
        sum(places[k].head + bodies[k] + feet[k] for k in keys) + sum(MARGIN[s] for s in "tb") for _, keys in columns
    ]
    height = max(height, *needs)
    slots: dict[str, Slot] = {}
    for (across, keys), need in zip(columns, needs, strict=True):
        growing = sum(places[key].grows for key in keys) or 1.0
        top = MARGIN["t"]
        for key in keys:
            place = places[key]
            top += place.head
            bottom = top + bodies[key] + int((height - need) * place.grows / growing)
            own = PLACES[key]
            slots[key] = Slot(own.x, own.y, own.legend, across, top, bottom, own.right, key in flat)
            top = bottom + feet[key]
    return slots, height


def _carries_time(key: str, keys: Sequence[str]) -> bool:
    """Of panels that share the time axis the lowest carries its numbers."""
    return PLACES[key].x == "x" and key in keys and key == [k for k in keys if PLACES[k].x == "x"][-1]


def compose(
    view: View,
    panels: dict[str, Panel],
    slots: dict[str, Slot],
    height: int,
    theme: Theme,
    *,
    numbered: bool = True,
    right: int = MARGIN["r"],
) -> dict[str, Any]:
    """Return data and layout of one figure with these panels, and so many pixels right of them."""
    layout: dict[str, Any] = {
        **theme.layout(),
        "template": "none",
        "autosize": True,
        "height": height,
        "margin": MARGIN | {"r": right},
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
        data += [_place_trace(trace, slot, height) for trace in panel.traces]
        layout["shapes"] += [_place(item, slot) for item in panel.shapes]
        layout["annotations"] += [
            *_heading(panel, slot, height, theme),
            *_note(panel, slot, height, theme, alone=len(panels) == 1),
            *(_place(item, slot) for item in panel.annotations),
            *([_place(empty_note(panel.empty, theme), slot)] if panel.empty and not slot.folded else []),
        ]
    if not numbered:
        layout["xaxis"] |= {**_NO_TICKS, "title": {"text": ""}}
    return {"data": data, "layout": layout}


def down(pixels: float, height: int) -> float:
    """Return the paper coordinate of a distance from the figure's top."""
    return 1 - (pixels - MARGIN["t"]) / (height - MARGIN["t"] - MARGIN["b"])


def _axis_key(axis: str) -> str:
    return f"{axis[0]}axis{axis[1:]}"


def _place_axes(
    layout: dict[str, Any], panel: Panel, slot: Slot, slots: dict[str, Slot], height: int, theme: Theme, view: View
) -> None:
    domain = [down(slot.bottom, height), down(slot.top, height)]
    if "rangeslider" in panel.xaxis:
        domain = [down(slot.top - _SLIDER_GAP, height), down(slot.top - _SLIDER_GAP - 1, height)]
    plain = panel.key not in ("phases", "memory_ranks", "traffic")
    layout[_axis_key(slot.y)] = {
        **theme.axis(),
        "showgrid": plain,
        "zeroline": plain,
        "nticks": 5,
        **panel.yaxis,
        "title": {"text": panel.yaxis["title"], "standoff": 4, "font": {"size": 11}},
        "domain": domain,
        "anchor": slot.x,
        "fixedrange": True,
        "visible": not slot.folded,
        **_blank(panel),
    }
    lowest = max((s for s in slots.values() if s.x == slot.x), key=lambda s: (not s.folded, s.bottom))
    if slot.y == lowest.y:
        layout[_axis_key(slot.x)] = _across_axis(panel, slot, height, theme, view)
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
        # plotly.js leaves a legend whose last entry has gone where it last was.
        "visible": not slot.folded and any(trace.get("showlegend", True) for trace in panel.traces),
    }


def _across_axis(panel: Panel, slot: Slot, height: int, theme: Theme, view: View) -> dict[str, Any]:
    named = panel.xaxis.get("type") == "category"
    axis = {
        **theme.axis(),
        **(_NAMED_AXIS if named else time_axis(view)),
        **panel.xaxis,
        "title": {"text": panel.xaxis["title"], "standoff": 2, "font": {"size": 11}},
        "domain": list(slot.across),
        "anchor": slot.y,
        "visible": not slot.folded,
        # A panel without data has the time axis all the same, which others share.
        **(_blank(panel) if slot.x != "x" or view.empty else {"showticklabels": True, "ticks": "outside"}),
    }
    if "rangeslider" in panel.xaxis:
        thickness = (slot.bottom - slot.top) / (height - MARGIN["t"] - MARGIN["b"])
        slider = panel.xaxis["rangeslider"]
        axis |= {"rangeslider": {**slider, "thickness": thickness}, "showline": False, **_NO_TICKS}
    return axis


def _blank(panel: Panel) -> dict[str, Any]:
    """Return what hides the scale of an axis that has nothing to measure."""
    if panel.empty:
        return {**_NO_TICKS, "showgrid": False, "title": {"text": ""}}
    if any(len(trace["x"]) for trace in panel.traces if trace["meta"] != "percent"):
        return {"showticklabels": True, "ticks": "outside"}
    return {**_NO_TICKS, "showgrid": False, "title": {"text": ""}}


_NO_TICKS = {"showticklabels": False, "ticks": ""}
_NAMED_AXIS = {"fixedrange": True, "showgrid": False, "zeroline": False, "tickangle": 0}


def time_axis(view: View) -> dict[str, Any]:
    """Return the settings of an axis that shows the view's stretch of time."""
    span = max(view.right_s - view.start_s, 1e-3)
    return {
        "range": [round(view.start_s, 3), round(view.start_s + span, 3)],
        "zeroline": False,
        "showspikes": True,
        "spikemode": "across",
        "spikethickness": 0.6,
        "spikedash": "dot",
        "spikecolor": "#888888",
    }


def _place_trace(trace: dict[str, Any], slot: Slot, height: int) -> dict[str, Any]:
    y = slot.right if trace.get("yaxis") == "right" else slot.y
    placed = {**trace, "xaxis": slot.x, "yaxis": y, "legend": slot.legend}
    if "colorbar" in trace:
        middle = (slot.top + slot.bottom) / 2
        bar = {"x": slot.across[1], "xanchor": "left", "xpad": 6, "ypad": 0, "y": down(middle, height)}
        bar |= {"yanchor": "middle", "len": slot.bottom - slot.top, "lenmode": "pixels", "thickness": 8}
        placed["colorbar"] = {**trace["colorbar"], **bar}
    return placed


def _place(item: dict[str, Any], slot: Slot) -> dict[str, Any]:
    xref = str(item["xref"]).replace("x", slot.x, 1)
    yref = str(item["yref"]).replace("y", slot.y, 1)
    return {**item, "xref": xref, "yref": yref}


def _note(panel: Panel, slot: Slot, height: int, theme: Theme, *, alone: bool) -> list[dict[str, Any]]:
    """Place a panel's note: under it, where none of the ticks are, or if it stands alone beside its title."""
    if not panel.note or slot.folded:
        return []
    place = {"y": down(slot.top - 20, height), "yanchor": "bottom"}
    if not alone:
        place = {"y": down(slot.bottom + 2, height), "yanchor": "top"}
    return [_text(panel.note, slot.across[1], "right", 11, theme.faint) | place]


def _heading(panel: Panel, slot: Slot, height: int, theme: Theme) -> list[dict[str, Any]]:
    """Place the title, and what the panel comes to in words below it, where a legend would be."""
    parts = []
    if slot.folded:
        if not panel.title:
            return []
        text = f'<b>{panel.title}</b> <span style="font-size:11px;color:{theme.faint}">{panel.nothing}</span>'
        place = {"y": down(slot.top, height), "yanchor": "bottom", "hovertext": panel.empty}
        return [_text(text, slot.across[0], "left", 13, theme.text) | place | {"xshift": -_OUTDENT}]
    if panel.title:
        lines = panel.lead.count("<br>") + 1
        place = {"y": down(slot.top - 6 - 14 * lines, height), "yanchor": "bottom"}
        parts.append(_text(f"<b>{panel.title}</b>", slot.across[0], "left", 13, theme.text) | place)
    if panel.lead:
        place = {"y": down(slot.top - 2, height), "yanchor": "bottom"}
        parts.append(_text(panel.lead, slot.across[0], "left", 11, theme.text) | place | {"align": "left"})
    return [part | {"xshift": -_OUTDENT} for part in parts]


def _text(text: str, x: float, xanchor: str, size: int, colour: str) -> dict[str, Any]:
    return {
        "text": text,
        "xref": "paper",
        "yref": "paper",
        "x": x,
        "xanchor": xanchor,
        "showarrow": False,
        "font": {"size": size, "color": colour},
    }
