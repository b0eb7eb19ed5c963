"""The brush: all that is known of the run at a glance, to look back at a stretch of it."""

from __future__ import annotations

from typing import Any

from ..series import memory_unit, readable
from ..theme import Theme
from ..view import View
from .panel import Panel, line

_LEAD = "whole run, most {most}; drag: look back, double-click: go on"
_ROOM = 1.1
_LATER = "while an operation runs: drag above to look back"


def brush_panel(view: View, theme: Theme) -> Panel:
    """Return the panel: the most that any rank had in use of its budget, with a slider over the time shown."""
    t, most = view.overview
    largest = float(max(most, default=0.0))
    unit, _ = memory_unit(largest)
    top = round(_ROOM * largest / unit, 6) or 1.0
    trace = line(
        "brush", "most on any rank", (t, most), unit=unit, legend=False, hoverinfo="skip", fill="tozeroy",
        line={"color": theme.faint, "width": 1, "shape": "hv"},
    )  # fmt: skip
    slider: dict[str, Any] = {
        "visible": len(t) > 1,
        "range": _whole(view),
        "bgcolor": "rgba(0,0,0,0)",
        "bordercolor": theme.faint,
        "borderwidth": 1,
    }
    waits = _LATER if any(op.running for op in view.operations) else ""
    return Panel(
        "brush",
        "",
        [trace],
        {"title": "", "matches": "x", "showspikes": False, "showgrid": False, "rangeslider": slider},
        {"title": "", "range": [0.0, top], "showgrid": False, "zeroline": False, "showline": False, "tickvals": []},
        lead=_LEAD.format(most=readable(largest)) if len(t) else waits,
    )


def _whole(view: View) -> list[float]:
    """Return the slider's ends: they hold the stretch that is shown too, else plotly shades all of it."""
    t, _ = view.overview
    first = float(2 * t[0] - t[1]) if len(t) > 1 else 0.0
    return [round(min(first, view.start_s), 3), round(max(view.right_s, view.start_s + 1e-3), 3)]
