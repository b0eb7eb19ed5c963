"""Budget and pools now: who holds how much of each rank's budget, and what ranks keep of memory to use it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ..series import memory_unit, percent, readable
from ..theme import POOL_COLOURS, USE_STYLES, Theme
from ..view import Snapshot, View, kept_budget
from .panel import CATEGORIES, Panel, Trace, corner_note, rank_names, rounded

USES_TITLE = "Budget: who holds it?"
POOLS_TITLE = "Pools: what is kept for reuse?"
_USES_EMPTY = "What tables and running operations<br>hold of each rank's budget, now."
_POOLS_EMPTY = "Memory that ranks keep to use it again:<br>it appears with their first work."
_NAMED = ("tables", "external", "not claimed")  # those of others are called by their purpose, the largest first
_MOST_OTHERS = 2
_SLOTS = (*_NAMED, *(f"use {place}" for place in range(_MOST_OTHERS)), "more")
_LONGEST_NAME = 22
_IN_A_LINE, _MOST_LINES = 32, 2  # of the key: beside the settings and a file browser there is no more room
_WIDTH = 0.72


def uses_panel(view: View, theme: Theme) -> Panel:
    """Return the panel: a bar a rank, in parts by what they are for, and in words which is which."""
    ranks = [str(s["rank"]) for s in view.snapshots]
    slots = _slots([s.get("uses") or {} for s in view.snapshots])
    totals = [sum(parts) for parts in zip(*(values for _, values in slots.values()), strict=True)]
    largest = max(totals, default=0)
    limits = [kept_budget(s) for s in view.snapshots]
    unit, name = memory_unit(largest)
    traces, base = [], [0] * len(ranks)
    for slot in _SLOTS:
        what, values = slots.get(slot, ("", []))
        traces.append(_bars(slot, what, ranks if any(values) else [], values, base, unit))
        base = [below + value for below, value in zip(base, values, strict=True)] if values else base
    shown = [(slot, what) for slot, (what, values) in slots.items() if any(values)]
    notes = [_most(totals, limits, view.snapshots, theme)] if largest else []
    return Panel(
        "uses", USES_TITLE, traces,
        {"title": "rank, now" if largest else "", **CATEGORIES, **rank_names(ranks)},
        {"title": name, "range": [0.0, round(1.4 * largest / unit, 6) or 1.0]},
        annotations=notes, empty="" if largest else _USES_EMPTY,
        lead=_in_lines([f"{_sign(slot)} {escape(what)}" for slot, what in shown], shown),
    )  # fmt: skip


def pools_panel(view: View, theme: Theme) -> Panel:
    """Return the panel: for each rank and pool what is held, and of it what is in use; in words how well it serves."""
    by_pool = {name: [_pool(s, name) for s in view.snapshots] for name in POOL_COLOURS}
    there = [name for name, rows in by_pool.items() if any(row.get("held_bytes") for row in rows)]
    largest = max((row.get("held_bytes", 0) for name in there for row in by_pool[name]), default=0)
    unit, axis = memory_unit(largest)
    ranks = [str(s["rank"]) for s in view.snapshots]
    width = _WIDTH / max(len(there), 1)
    traces = []
    for name, rows in by_pool.items():
        place = there.index(name) if name in there else 0
        for part in ("held", "used"):
            values = [row.get(f"{part}_bytes", 0) / unit for row in rows]
            traces.append(
                {
                    "type": "bar", "meta": f"pool-{name}-{part}", "name": f"{name}, {part}",
                    "x": ranks if name in there else [], "y": rounded(values) if name in there else [],
                    "width": width, "offset": place * width - _WIDTH / 2, "showlegend": False,
                    "marker": {"color": POOL_COLOURS[name], "opacity": 0.4 if part == "held" else 1.0},
                    "hovertemplate": f"{name}: %{{y:.3~g}} {part}<extra></extra>",
                }
            )  # fmt: skip
    return Panel(
        "pools", POOLS_TITLE, traces,
        {"title": "rank, now · pale: held, full: in use" if there else "", **CATEGORIES, **rank_names(ranks)},
        {"title": axis, "range": [0.0, round(1.15 * largest / unit, 6) or 1.0]},
        empty="" if there else _POOLS_EMPTY,
        lead="<br>".join(_in_words(name, by_pool[name]) for name in there),
    )  # fmt: skip


def _slots(uses: Sequence[Mapping[str, int]]) -> dict[str, tuple[str, list[int]]]:
    """Return what each colour stands for, and its bytes on each rank."""
    totals: dict[str, int] = {}
    for by in uses:
        for what, nbytes in by.items():
            if what not in _NAMED:
                totals[what] = totals.get(what, 0) + nbytes
    ordered = sorted(totals, key=lambda what: -totals[what])
    found = {name: (name, [by.get(name, 0) for by in uses]) for name in _NAMED}
    for place, what in enumerate(ordered[:_MOST_OTHERS]):
        short = what if len(what) <= _LONGEST_NAME else f"{what[: _LONGEST_NAME - 1]}…"
        found[f"use {place}"] = short, [by.get(what, 0) for by in uses]
    rest = ordered[_MOST_OTHERS:]
    if rest:
        found["more"] = f"{len(rest)} more", [sum(by.get(what, 0) for what in rest) for by in uses]
    return found


def _bars(slot: str, what: str, x: list[str], y: list[int], base: list[int], unit: float) -> Trace:
    colour, pattern = USE_STYLES[slot]
    marker: dict[str, Any] = {"color": colour}
    strokes = "rgba(0,0,0,0.5)"
    marker["pattern"] = {"shape": pattern, "size": 5, "solidity": 0.3, "fillmode": "overlay", "fgcolor": strokes}
    return {
        "type": "bar", "meta": f"use-{slot}", "name": what, "x": x,
        "y": rounded([value / unit for value in y]) if x else [],
        "base": rounded([value / unit for value in base]) if x else [],
        "customdata": [readable(value) for value in y] if x else [], "width": _WIDTH, "marker": marker,
        "hovertemplate": f"{escape(what)}: %{{customdata}}<extra></extra>", "showlegend": False,
    }  # fmt: skip


def _most(totals: Sequence[int], limits: Sequence[int], snapshots: Sequence[Snapshot], theme: Theme) -> dict[str, Any]:
    """What the fullest rank holds, of how much."""
    place = max(range(len(totals)), key=totals.__getitem__)
    of = f" of {readable(limits[place])}" if limits[place] else ""
    return corner_note(f"rank {snapshots[place]['rank']}: {readable(totals[place])}{of}", theme)


def _sign(slot: str) -> str:
    return f'<span style="color:{USE_STYLES[slot][0]}">■</span>'


def _in_lines(parts: Sequence[str], shown: Sequence[tuple[str, str]]) -> str:
    """Parts of the key in as few lines as they need."""
    lines: list[str] = []
    length = _IN_A_LINE
    for part, (_, what) in zip(parts, shown, strict=True):
        if length + len(what) + 4 > _IN_A_LINE:
            lines.append(part)
            length = 0
        else:
            lines[-1] += f"  {part}"
        length += len(what) + 4
    return "<br>".join(lines[:_MOST_LINES])


def _pool(snapshot: Snapshot, name: str) -> dict[str, Any]:
    return next((pool for pool in snapshot.get("pools") or () if pool["pool"] == name), {})


def _in_words(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    held, used, hits, misses, growths, drops = (
        sum(row.get(field) or 0 for row in rows)
        for field in ("held_bytes", "used_bytes", "hits", "misses", "growths", "drops")
    )
    sign = f'<span style="color:{POOL_COLOURS[name]}">■</span>'
    asked = f" · {percent(hits / (hits + misses))} of {hits + misses:,} asks served" if misses else ""
    grown = f" · grown {growths:,}, dropped {drops:,} times" if growths or drops else ""
    return f"{sign} {name}: {readable(used)} of {readable(held)} in use{asked}{grown}"
