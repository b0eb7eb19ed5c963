"""Pure: the strip on top that says of every rank what it does now, and whom it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ...config import GcylonConfig
from ...profiling.gpus import gpus_of
from ...units import format_seconds
from ..figures.series import readable
from ..figures.theme import BUDGET_COLOUR, WARNING_COLOUR, rank_style
from ..figures.view import Snapshot

PATIENCE_S = 2.0
# From worst to best.
KINDS = ("dead", "stuck", "waiting", "unknown", "working", "idle")
_SIGNS = {"idle": "○", "working": "●", "waiting": "▲", "stuck": "■", "dead": "✖", "unknown": "?"}
_TROUBLE = {"waiting": WARNING_COLOUR, "stuck": BUDGET_COLOUR, "dead": BUDGET_COLOUR}
# What helps where an operation failed for want of room.
_HELP = {
    "SpillError": "choose another spill folder under more settings, or raise the memory limit",
    "BudgetExceeded": "raise the memory limit, or choose another strategy",
}
_MOST_CHIPS = 16
_MOST_TOLD = 8


@dataclass(frozen=True, slots=True)
class RankState:
    """What one rank does: ``kind`` is idle, working, waiting (too long), stuck, dead or unknown.

    A rank is stuck that waits for one which will never come, or that does not answer.
    ``busy`` is the percent of the last moment in which its GPU worked, None where that is not known.
    """

    rank: int
    host: str
    device: str
    kind: str
    text: str
    busy: int | None = None


def rank_states(
    ranks: Sequence[Mapping[str, Any]],
    snapshots: Sequence[Snapshot],
    dead: Sequence[Mapping[str, Any]] = (),
    told: Sequence[Mapping[str, Any]] = (),
    age_s: float = 0.0,
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
    told : sequence of mapping
        rank, state, since_s and running, as `Source.status` gives them.
    age_s : float
        How old the snapshots are.
    """
    by_rank = {int(s["rank"]): s for s in snapshots}
    exits = {int(d["rank"]): d for d in dead}
    rows = {int(row["rank"]): row for row in told}
    places = {int(r["rank"]): r for r in ranks} | {n: s for n, s in by_rank.items() if n not in {*_numbers(ranks)}}
    busy = {rank: gpu.latest_utilisation for gpu in gpus_of(snapshots) for rank in gpu.ranks}
    states = []
    for rank, place in sorted(places.items()):
        if rank in exits:
            kind, text = "dead", _exit(exits[rank])
        else:
            kind, text = _activity(by_rank.get(rank), by_rank, rows.get(rank, {}), exits, age_s)
        where = str(place.get("host", "?")), str(place.get("device", "cpu"))
        states.append(RankState(rank, *where, kind, text, None if kind == "dead" else busy.get(rank)))
    return states


def _numbers(ranks: Sequence[Mapping[str, Any]]) -> list[int]:
    return [int(r["rank"]) for r in ranks]


def _exit(dead: Mapping[str, Any]) -> str:
    how = dead.get("exit")
    if how is None or how == "":
        return "dead"
    return f"dead, exit {how}" if isinstance(how, int) else f"dead, {how}"


def _activity(
    snapshot: Snapshot | None,
    everyone: Mapping[int, Snapshot],
    told: Mapping[str, Any],
    dead: Mapping[int, Mapping[str, Any]],
    age_s: float,
) -> tuple[str, str]:
    if told.get("state") == "silent" and told.get("since_s", 0) >= PATIENCE_S:
        return "stuck", f"no answer for {_seconds(told['since_s'])}"
    if snapshot is None:
        return "unknown", "no news yet"
    progress = snapshot.get("progress")
    if not progress:
        running = told.get("running") if told.get("state") == "busy" else ""
        return ("working", _RUNNING.get(str(running), str(running))) if running else ("idle", "idle")
    since_s = max(0.0, (int(snapshot["now_ns"]) - int(progress["since_ns"])) / 1e9) + age_s
    if progress.get("phase") == "waiting" and since_s > PATIENCE_S:
        missing = _awaited(snapshot, everyone, dead)
        gone = " (dead)" if missing and all(rank in dead for rank in missing) else ""
        if told.get("state") == "waiting":
            whom = f": {_ranks_text(missing)} {'are' if len(missing) > 1 else 'is'} idle" if missing else ""
            return "stuck", f"stuck {_seconds(since_s)} in {progress['verb']}{whom}"
        whom = f" for {_ranks_text(missing)}{gone}" if missing else ""
        return "waiting", f"waiting {_seconds(since_s)}{whom}"
    where = f"round {progress['round']}/{progress['rounds']}" if progress.get("rounds") else str(progress["verb"])
    return "working", where


_RUNNING = {"cell": "in a cell", "call": "in a call"}


def _seconds(s: float) -> str:
    """A time that goes on, with no more figures than can be read."""
    return f"{s:.1f} s" if s < 120 else format_seconds(s)


def _awaited(waiting: Snapshot, everyone: Mapping[int, Snapshot], dead: Mapping[int, Any]) -> list[int]:
    """Return the ranks that are not waiting in the same round of the same operation."""
    here = waiting["progress"]
    found = []
    for rank, other in sorted(everyone.items()):
        there = other.get("progress") or {}
        arrived = there.get("phase") == "waiting" and there.get("number") == here["number"] and rank not in dead
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
    route: str = "",
    limit_bytes: int = 0,
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
    route : str
        How rows travel, and why.
    limit_bytes : int, optional
        The limit of the next operation, from `limit_of`; between two of them ranks have their ceiling.
    """
    hosts, budget = len({s.host for s in states}), max((int(s["limit_bytes"]) for s in snapshots), default=0)
    budget = min(budget, limit_bytes or budget)
    parts = [f"<b>{len(states)} rank{'s' * (len(states) != 1)}</b>", f"{hosts} host{'s' * (hosts != 1)}"]
    running = latest_progress(snapshots, states)
    parts += [f"running <b>#{int(running['number'])} {escape(str(running['verb']))}</b>"] if running else []
    parts += [f"budget {readable(budget)} a rank"] if budget else []
    parts += _outside_texts(snapshots)
    way = f' title="rows travel by {escape(route)}"' if route else ""
    parts += [f"<span{way}>{escape(str(status['transport']))}</span>"] if status.get("transport") else []
    if status.get("state") not in (None, "ready"):
        parts.append(f'<span class="gcylon-error">{escape(str(status["state"]))}</span>')
    parts += [_near_text(near)] if near else []
    parts += [] if running else _failed_texts(snapshots)
    return f'<div class="gcylon-strip">{" · ".join(parts)}</div>'


def limit_of(ranks: Sequence[Mapping[str, Any]], config: GcylonConfig) -> int:
    """Return the limit of the next operation on the rank that has the least, as its plan says it; 0 if not known."""
    limits = []
    for rank in ranks:
        ceiling, free = (int(rank.get(name) or 0) for name in ("ceiling_bytes", "free_at_start_bytes"))
        if 0 < ceiling <= config.gpu_memory_limit:
            limits.append(ceiling)  # set before a restart, which gave the ranks less
        elif config.gpu_memory_limit or (ceiling and free):
            limits.append(config.limit_bytes(ceiling or config.gpu_memory_limit, free))
    return min(limits, default=0)


def latest_progress(snapshots: Sequence[Snapshot], states: Sequence[RankState]) -> dict[str, Any] | None:
    """Return what the first rank at work told of its operation; what a dead one told last has ended with it."""
    gone = {state.rank for state in states if state.kind == "dead"}
    return next((s["progress"] for s in snapshots if s.get("progress") and s["rank"] not in gone), None)


def chips_html(states: Sequence[RankState]) -> str:
    """Return a chip for each rank; of many ranks a small tile each, host by host, and chips of those in trouble."""
    many_hosts = len({s.host for s in states}) > 1
    if len(states) <= _MOST_CHIPS:
        return f'<div class="gcylon-strip">{"".join(_chip(s, many_hosts=many_hosts) for s in states)}</div>'
    worst = sorted((s for s in states if s.kind in _TROUBLE), key=lambda s: (KINDS.index(s.kind), s.rank))
    chips = "".join(_chip(s, many_hosts=many_hosts) for s in worst[:_MOST_TOLD])
    rest = len(worst) - _MOST_TOLD
    chips += f'<span class="gcylon-chip">and {rest} more in trouble</span>' if rest > 0 else ""
    chips = f'<div class="gcylon-strip">{chips}</div>' if chips else ""
    return f'<div class="gcylon-strip">{escape(counts_text(states))}</div>{chips}{_tiles(states)}'


def counts_text(states: Sequence[RankState]) -> str:
    """Return how many ranks do what: ``61 idle · 2 waiting · 1 dead``, the worst first."""
    counts = [(kind, sum(s.kind == kind for s in states)) for kind in KINDS]
    return " · ".join(f"{_SIGNS[kind]} {count} {kind}" for kind, count in counts if count)


def _tiles(states: Sequence[RankState]) -> str:
    hosts: dict[str, list[str]] = {}
    for state in states:
        trouble = _TROUBLE.get(state.kind, "")
        ink = "#111" if trouble == WARNING_COLOUR else "#fff"  # white on amber is faint
        style = f"border-color:{trouble};background:{trouble};color:{ink};font-weight:600" if trouble else ""
        title = escape(f"rank {state.rank} on {state.host}, {state.device}: {state.text}")
        hosts.setdefault(state.host, []).append(
            f'<span class="gcylon-tile gcylon-{state.kind}" style="{style}" title="{title}">{state.rank} '
            f"{_SIGNS[state.kind]}</span>"
        )
    rows = (f"<div><small>{escape(host)}</small>{''.join(tiles)}</div>" for host, tiles in hosts.items())
    return f'<div class="gcylon-tiles">{"".join(rows)}</div>'


def _outside_texts(snapshots: Sequence[Snapshot]) -> list[str]:
    """Return what GPUs have in use beside the budgets, as the driver tells; nothing where it tells nothing."""
    gpus = gpus_of(snapshots)
    told = [nbytes for gpu in gpus if (nbytes := gpu.latest_outside_bytes) is not None]
    if not told:
        return []
    most = f"at most {readable(max(told))} a GPU" if len(gpus) > 1 else readable(told[0])
    return [f"outside the budget: {most} (driver, NCCL, other programs)"]


def _failed_texts(snapshots: Sequence[Snapshot]) -> list[str]:
    """Return what failed for want of room and what helps, as long as it is the latest operation."""
    records = [s["operations"][-1] for s in snapshots if s["operations"]]
    latest = max((int(r["number"]) for r in records), default=0)
    for record in records:
        kind = str(record["error"]).partition(":")[0]
        if int(record["number"]) == latest and kind in _HELP:
            text = f"✗ #{latest} {record['verb']} failed ({kind}): {_HELP[kind]}"
            return [f'<span class="gcylon-error">{escape(text)}</span>']
    return []


def _near_text(near: Sequence[tuple[int, float]]) -> str:
    rank, share = max(near, key=lambda pair: pair[1])
    more = f" and {len(near) - 1} more" if len(near) > 1 else ""
    text = f"▲ rank {rank}{more} at {share:.0%} of the budget: raise the memory limit, or lower the chunk size"
    return f'<span class="gcylon-error">{text}</span>'


def _chip(state: RankState, *, many_hosts: bool) -> str:
    colour = rank_style(state.rank)[0]
    trouble = _TROUBLE.get(state.kind, "")
    style = f"border-color:{trouble};box-shadow:inset 0 0 0 1px {trouble}" if trouble else ""
    place = " ".join(filter(None, [state.host if many_hosts else "", state.device]))
    sign = f'<span style="color:{trouble or "inherit"}">{_SIGNS[state.kind]}</span>'
    busy = "" if state.busy is None else f" <small>· GPU {state.busy}% busy</small>"
    return (
        f'<span class="gcylon-chip" style="{style}" title="rank {state.rank} on {escape(state.host)}">'
        f'<i style="background:{colour}"></i>rank {state.rank} <small>{escape(place)}</small> {sign} '
        f"{escape(state.text)}{busy}</span>"
    )
