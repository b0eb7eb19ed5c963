"""Pure: the strip on top that says of every rank what it does now, and whom it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ..profiling.gpus import gpus_of
from ..units import format_seconds
from .series import readable
from .theme import BUDGET_COLOUR, WARNING_COLOUR, rank_style
from .view import Snapshot

PATIENCE_S = 2.0
_MOST_CHIPS = 16
_SIGNS = {"idle": "○", "working": "●", "waiting": "▲", "dead": "✖", "unknown": "?"}


@dataclass(frozen=True, slots=True)
class RankState:
    """What one rank does: ``kind`` is idle, working, waiting (too long), dead or unknown.

    ``busy`` is the percent of the last moment in which its GPU worked, None where that is not known.
    """

    rank: int
    host: str
    device: str
    kind: str
    text: str
    busy: int | None = None


def rank_states(
    ranks: Sequence[Mapping[str, Any]], snapshots: Sequence[Snapshot], dead: Sequence[Mapping[str, Any]] = ()
) -> list[RankState]:
    """Return the state of every rank, in rank order.

    Parameters
    ----------
    ranks : sequence of mapping
        rank, host, device.
    snapshots : sequence of dict
        The latest of each rank.
    dead : sequence of mapping
        rank and exit of those that are gone.
    """
    by_rank = {int(s["rank"]): s for s in snapshots}
    exits = {int(d["rank"]): d for d in dead}
    places = {int(r["rank"]): r for r in ranks} | {n: s for n, s in by_rank.items() if n not in {*_numbers(ranks)}}
    busy = {rank: gpu.latest_utilisation for gpu in gpus_of(snapshots) for rank in gpu.ranks}
    states = []
    for rank, place in sorted(places.items()):
        kind, text = ("dead", _exit(exits[rank])) if rank in exits else _activity(by_rank.get(rank), by_rank)
        where = str(place.get("host", "?")), str(place.get("device", "cpu"))
        states.append(RankState(rank, *where, kind, text, None if kind == "dead" else busy.get(rank)))
    return states


def _numbers(ranks: Sequence[Mapping[str, Any]]) -> list[int]:
    return [int(r["rank"]) for r in ranks]


def _exit(dead: Mapping[str, Any]) -> str:
    code = dead.get("exit")
    return "dead" if code is None else f"dead, exit {code}"


def _activity(snapshot: Snapshot | None, everyone: Mapping[int, Snapshot]) -> tuple[str, str]:
    if snapshot is None:
        return "unknown", "no news yet"
    progress = snapshot.get("progress")
    if not progress:
        return "idle", "idle"
    since_s = max(0.0, (int(snapshot["now_ns"]) - int(progress["since_ns"])) / 1e9)
    if progress.get("phase") == "waiting" and since_s > PATIENCE_S:
        missing = _awaited(snapshot, everyone)
        whom = f" for {_ranks_text(missing)}" if missing else ""
        return "waiting", f"waiting {format_seconds(since_s)}{whom}"
    where = f"round {progress['round']}/{progress['rounds']}" if progress.get("rounds") else str(progress["verb"])
    return "working", where


def _awaited(waiting: Snapshot, everyone: Mapping[int, Snapshot]) -> list[int]:
    """Return the ranks that are not waiting in the same round of the same operation."""
    here = waiting["progress"]
    found = []
    for rank, other in sorted(everyone.items()):
        there = other.get("progress") or {}
        arrived = there.get("phase") == "waiting" and there.get("number") == here["number"]
        if rank != waiting["rank"] and not arrived:
            found.append(rank)
    return found


def _ranks_text(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(r) for r in ranks[:4])
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}" + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


def headline_html(
    states: Sequence[RankState],
    snapshots: Sequence[Snapshot],
    status: Mapping[str, Any],
    near: Sequence[tuple[int, float]] = (),
) -> str:
    """Return one line about the cluster: ranks, hosts, transport, budget, what is beside it, what runs, what is wrong.

    Parameters
    ----------
    states : sequence of RankState
    snapshots : sequence of dict
        The latest of each rank.
    status : mapping
        state and transport.
    near : sequence of (rank, share)
        Those above 90% of their budget now, from `memory_panel.near_budget`.
    """
    hosts, budget = len({s.host for s in states}), max((int(s["limit_bytes"]) for s in snapshots), default=0)
    parts = [f"<b>{len(states)} rank{'s' * (len(states) != 1)}</b>", f"{hosts} host{'s' * (hosts != 1)}"]
    parts += [escape(str(status["transport"]))] if status.get("transport") else []
    parts += [f"budget {readable(budget)} a rank"] if budget else []
    parts += _outside_texts(snapshots)
    running = next((s["progress"] for s in snapshots if s.get("progress")), None)
    parts += [f"running <b>#{int(running['number'])} {escape(str(running['verb']))}</b>"] if running else []
    if status.get("state") not in (None, "ready"):
        parts.append(f'<span class="gcylon-error">{escape(str(status["state"]))}</span>')
    parts += [_near_text(near)] if near else []
    return f'<div class="gcylon-strip">{" · ".join(parts)}</div>'


def chips_html(states: Sequence[RankState]) -> str:
    """Return a chip for each rank; of many ranks those in trouble first."""
    many_hosts = len({s.host for s in states}) > 1
    chips = "".join(_chip(s, many_hosts=many_hosts) for s in _worth_showing(states))
    rest = len(states) - min(len(states), _MOST_CHIPS)
    more = f'<span class="gcylon-chip">and {rest} more, no worse</span>' if rest else ""
    return f'<div class="gcylon-strip">{chips}{more}</div>'


def _outside_texts(snapshots: Sequence[Snapshot]) -> list[str]:
    """Return what GPUs have in use beside the budgets, as the driver tells; nothing where it tells nothing."""
    gpus = gpus_of(snapshots)
    told = [nbytes for gpu in gpus if (nbytes := gpu.latest_outside_bytes) is not None]
    if not told:
        return []
    most = f"at most {readable(max(told))} a GPU" if len(gpus) > 1 else readable(told[0])
    return [f"outside the budget: {most} (driver, NCCL, other programs)"]


def _near_text(near: Sequence[tuple[int, float]]) -> str:
    rank, share = max(near, key=lambda pair: pair[1])
    more = f" and {len(near) - 1} more" if len(near) > 1 else ""
    text = f"▲ rank {rank}{more} at {share:.0%} of the budget: raise the memory limit, or lower the chunk size"
    return f'<span class="gcylon-error">{text}</span>'


def _worth_showing(states: Sequence[RankState]) -> list[RankState]:
    if len(states) <= _MOST_CHIPS:
        return list(states)
    order = ["dead", "waiting", "unknown", "working", "idle"]
    return sorted(sorted(states, key=lambda s: (order.index(s.kind), s.rank))[:_MOST_CHIPS], key=lambda s: s.rank)


def _chip(state: RankState, *, many_hosts: bool) -> str:
    colour = rank_style(state.rank)[0]
    trouble = {"waiting": WARNING_COLOUR, "dead": BUDGET_COLOUR}.get(state.kind, "")
    style = f"border-color:{trouble};box-shadow:inset 0 0 0 1px {trouble}" if trouble else ""
    place = " ".join(filter(None, [state.host if many_hosts else "", state.device]))
    sign = f'<span style="color:{trouble or "inherit"}">{_SIGNS[state.kind]}</span>'
    busy = "" if state.busy is None else f" <small>· GPU {state.busy}% busy</small>"
    return (
        f'<span class="gcylon-chip" style="{style}" title="rank {state.rank} on {escape(state.host)}">'
        f'<i style="background:{colour}"></i>rank {state.rank} <small>{escape(place)}</small> {sign} '
        f"{escape(state.text)}{busy}</span>"
    )
