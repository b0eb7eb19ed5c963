"""Traffic: who sent how much to whom?"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....profiling.traffic import Traffic
from ..series import memory_unit, rank_ticks, readable
from ..theme import Theme
from ..view import Operation, View
from .memory import bar
from .panel import Panel, Trace, host_lines

TITLE = "Traffic: who sent to whom?"
MOST_NUMBERS = 8
_EMPTY = 'Bytes from each rank to<br>each other, of one operation.<br>Run t.shuffle("key").'
_ALONE = "There is one rank:<br>nothing travels."
# The colour of exchanges; pale enough for numbers on it.
_SCALE = [[0.0, "rgba(106,127,219,0.06)"], [1.0, "rgba(106,127,219,0.8)"]]
_FULL = [[0.0, "rgba(106,127,219,0.04)"], [1.0, "rgba(106,127,219,1)"]]


def traffic_panel(view: View, theme: Theme) -> Panel:
    """Return the matrix of one operation, a row a sender: with numbers up to 8 ranks, above them a heat map."""
    op = _chosen(view)
    traffic = op.traffic if op else None
    several = traffic if traffic is not None and len(traffic.sent) > 1 else None
    count = len(several.sent) if several else 0
    numbers, end = 0 < count <= MOST_NUMBERS, max(count, 1) - 0.5
    largest = float(several.sent.max()) if several else 0.0
    unit, name = memory_unit(largest)
    starts = view.host_starts() if count == len(view.ranks) else []
    traces = [_heat(several, unit, name, theme, numbers=numbers), _numbers(several if numbers else None, unit, theme)]
    kept = " · (stayed)" if numbers else ""
    axis: dict[str, Any] = {"type": "linear", "tickmode": "auto", "nticks": 9, "showgrid": False, "zeroline": False}
    if numbers or starts:
        ticks = list(range(count)) if numbers else rank_ticks(count, starts)
        axis |= {"tickmode": "array", "tickvals": ticks, "ticktext": [str(rank) for rank in ticks]}
    return Panel(
        "traffic",
        TITLE,
        traces,
        {**axis, "title": f"to rank · {name}{kept}", "range": [-0.5, end], "fixedrange": True, **_STILL},
        {**axis, "title": "from rank", "range": [end, -0.5]},
        shapes=[*host_lines(starts, theme), *host_lines(starts, theme, upright=True)],
        empty="" if several else _ALONE if len(view.ranks) == 1 else _EMPTY,
        nothing="there is one rank" if len(view.ranks) == 1 else "nothing yet",
        lead=_said(op, several, view.host_names()) if op and several else "",
    )  # fmt: skip


_STILL = {"showspikes": False}


def _chosen(view: View) -> Operation | None:
    return view.followed([op for op in view.told if op.traffic is not None])


def _said(op: Operation, traffic: Traffic, hosts: list[str]) -> str:
    """Three lines, each short enough for the dashboard's narrow column."""
    sender, receiver, nbytes = traffic.heaviest()
    first = f"{op.name}: {readable(traffic.between_bytes)} sent"
    if len(set(hosts)) > 1:
        within = traffic.within_hosts_bytes(hosts)
        first += f", {readable(traffic.between_bytes - within)} between hosts"
    if not nbytes:
        return f"{first},<br>{readable(traffic.kept_bytes)} stayed on their own"
    most, skew = int(traffic.received.argmax()), traffic.receive_skew or 0.0
    second = f"{readable(traffic.kept_bytes)} stayed; {sender} → {receiver}: {readable(nbytes)}"
    return f"{first}<br>{second}<br>rank {most} got most, {skew:.{1 if skew < 10 else 0}f} × the mean"


def _heat(traffic: Traffic | None, unit: float, name: str, theme: Theme, *, numbers: bool) -> Trace:
    """What stayed on its rank has no colour: it is no traffic, and would hide what is."""
    cells: list[list[float | None]] = []
    if traffic is not None:
        for sender, row in enumerate((traffic.sent / unit).tolist()):
            told = bool(traffic.known[sender])
            cells.append([round(n, 3) if told and to != sender else None for to, n in enumerate(row)])
    ranks = list(range(len(cells)))
    return {
        "type": "heatmap",
        "meta": "traffic-heat",
        "name": "sent",
        "x": ranks,
        "y": ranks,
        "z": cells,
        "zmin": 0,
        "zmax": max((n for row in cells for n in row if n), default=1.0),
        "colorscale": _SCALE if numbers else _FULL,
        "showscale": bool(cells) and not numbers,
        "colorbar": bar(name, theme),
        "xgap": 2 if numbers else 0,
        "ygap": 2 if numbers else 0,
        "hovertemplate": f"rank %{{y}} to rank %{{x}}: %{{z:.3~g}} {name}<extra></extra>",
        "hoverongaps": False,
    }


def _numbers(traffic: Traffic | None, unit: float, theme: Theme) -> Trace:
    x: list[int] = []
    y: list[int] = []
    said: list[str] = []
    if traffic is not None:
        for sender in np.flatnonzero(traffic.known).tolist():
            for to, nbytes in enumerate(traffic.sent[sender].tolist()):
                text = _short(nbytes / unit)
                x.append(to)
                y.append(sender)
                said.append(f"({text})" if to == sender else text)
    return {
        "type": "scatter",
        "mode": "text",
        "meta": "traffic-numbers",
        "name": "numbers",
        "x": x,
        "y": y,
        "text": said,
        "textfont": {"size": 10, "color": theme.text},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.0f}" if value >= 99.5 else f"{value:.2g}" if value >= 0.1 else "<0.1"
