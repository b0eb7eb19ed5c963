"""The numbers behind the figures as text: a screenshot of them, or a copy, says it all."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ...profiling.gpus import gpus_of
from ...profiling.report import summary
from ...units import format_count, format_rate, format_seconds
from .series import percent, readable
from .tier_traffic import DIRECTIONS, TIERS, Moved, machine_rate, moves_of, rate
from .view import Snapshot, with_latest_operations

Row = dict[str, Any]
Table = tuple[list[str], list[list[str]]]

_UNKNOWN = "–"

_HEAD = [
    "operation", "strategy", "rounds", "time", "rate a rank", "peak (worst rank)", "predicted", "of predicted",
    "budget, used", "staged", "transfers hidden", "slowest", "skew",
]  # fmt: skip


def operation_table(snapshots: Sequence[Snapshot], *, last: int | None = None) -> Table:
    """Return head and rows, one an operation, the latest ``last`` of them (all by default)."""
    rows = summary(snapshots if last is None else with_latest_operations(snapshots, 2 * last))["operations"]
    cells = [_operation_cells(row) for row in (rows if last is None else rows[-last:])]
    # A column that says nothing of any of them takes the room of others.
    told = [i for i, name in enumerate(_HEAD) if name != "transfers hidden" or any(c[i] != _UNKNOWN for c in cells)]
    return [_HEAD[i] for i in told], [[row[i] for i in told] for row in cells]


def rank_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one an operation and rank: what each rank held, sent and waited."""
    head = [
        "operation", "rank", "host", "time", "busy", "waiting", "rows in", "rows out", "peak", "staged", "transfers",
        "waited for", "hidden", "error",
    ]  # fmt: skip
    rows = [
        [
            f"#{r['number']} {r['verb']}", str(r["rank"]), str(r["host"]), format_seconds(r["seconds"]),
            format_seconds(r["busy_s"]), format_seconds(r["waiting_s"]), format_count(r["rows_in"]),
            format_count(r["rows_out"]), readable(r["measured_peak_bytes"]), readable(r["staged_bytes"]),
            *_transfer_cells(r), r["error"],
        ]
        for r in summary(snapshots)["ranks"]
    ]  # fmt: skip
    return head, rows


def phase_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one an operation, rank and phase."""
    head = ["operation", "rank", "phase", "time", "bytes", "rate"]
    rows = [
        [
            f"#{r['number']} {r['verb']}", str(r["rank"]), r["phase"], format_seconds(r["seconds"]),
            readable(r["bytes"]) if r["bytes"] else "", _rate(r["gb_per_s"]),
        ]
        for r in summary(snapshots)["phases"]
    ]  # fmt: skip
    return head, rows


def traffic_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one an operation whose exchanges are known: how much went where.

    Of ranks on several hosts it says how much went within them.
    """
    several = len({s["host"] for s in snapshots}) > 1
    head = ["operation", "between ranks", *["within hosts", "between hosts"] * several, "stayed"]
    head += ["most from one to another", "most to one rank", "of the mean"]
    rows = [
        [
            f"#{r['number']} {r['verb']}", readable(r["between_bytes"]), *_by_hosts(r) * several,
            readable(r["kept_bytes"]),
            _heaviest(r),
            f"rank {r['most_to']}, {readable(r['most_to_bytes'])}", f"{r['receive_skew'] or 0:.2f} ×",
        ]
        for r in summary(snapshots)["traffic"]
    ]  # fmt: skip
    return head, rows


def _by_hosts(row: dict[str, Any]) -> list[str]:
    within = int(row["within_hosts_bytes"])
    return [readable(within), readable(int(row["between_bytes"]) - within)]


def sent_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows of the latest operation whose exchanges are known: a row a sender, a column a receiver."""
    known = summary(snapshots)["traffic"]
    if not known:
        return [], []
    latest = known[-1]
    head = [f"#{latest['number']} {latest['verb']}: from", *(f"to {rank}" for rank in range(len(latest["sent"])))]
    rows = [
        [f"rank {rank}", *([_UNKNOWN] * len(latest["sent"]) if sent is None else map(readable, sent))]
        for rank, sent in enumerate(latest["sent"])
    ]
    return head, rows


def staging_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one a rank and tier that it moved to or from: bytes, rates, and the machine's own."""
    head = ["rank", "tier", "down", "at", "machine copies down", "up", "at", "machine copies up"]
    rows = []
    for snapshot in sorted(snapshots, key=lambda s: int(s["rank"])):
        moves = moves_of(snapshot)
        for tier in TIERS:
            if not any(key[1] == tier for key in moves):
                continue
            cells = [f"rank {snapshot['rank']}", tier]
            for direction in DIRECTIONS:
                moved = moves.get((direction, tier), Moved())
                rates = (rate([moves], direction, tier), machine_rate([snapshot], direction, tier))
                cells += [readable(moved.nbytes), *(format_rate(r) if r else _UNKNOWN for r in rates)]
            rows.append(cells)
    return head, rows


def tier_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one a rank: its bytes in each tier, the last and the most that was sampled.

    Only GPU engines have a pinned tier, and so a column for it.
    """
    ordered = sorted(snapshots, key=lambda s: int(s["rank"]))
    pinned = any(s.get("gpu") or any(s["samples"]["pinned_bytes"]) for s in ordered)
    tiers = {"device": "used_bytes"} | ({"pinned": "pinned_bytes"} if pinned else {}) | {"disk": "disk_bytes"}
    head = ["rank", "host", *(f"{tier}: {when}" for tier in tiers for when in ("now", "most"))]
    rows = [[f"rank {s['rank']}", str(s["host"])] for s in ordered if s["samples"]["t_ns"]]
    for row, snapshot in zip(rows, (s for s in ordered if s["samples"]["t_ns"]), strict=True):
        for column in tiers.values():
            values = snapshot["samples"][column]
            row += [readable(values[-1]), readable(max(values))]
    return head, rows


def uses_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one a rank: what holds its budget now."""
    uses = {int(s["rank"]): s.get("uses") or {} for s in snapshots}
    names = dict.fromkeys(what for by in uses.values() for what in by)
    rows = [[f"rank {rank}", *(readable(by.get(what, 0)) for what in names)] for rank, by in sorted(uses.items())]
    return ["rank", *names], rows if names else []


def pool_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one a rank and pool of memory that is kept to be used again."""
    head = ["rank", "pool", "held", "in use", "largest free", "fragmentation", "hit rate", "growths", "drops"]
    rows = [
        [
            f"rank {s['rank']}", pool["pool"], readable(pool["held_bytes"]), readable(pool["used_bytes"]),
            _known_bytes(pool["largest_free_bytes"]), _share(pool["fragmentation"]), _share(pool["hit_rate"]),
            format_count(pool["growths"]), format_count(pool["drops"]),
        ]
        for s in sorted(snapshots, key=lambda s: int(s["rank"]))
        for pool in s.get("pools") or ()
    ]  # fmt: skip
    return head, rows


def gpu_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one a GPU, however many ranks share it: what NVML tells of it."""
    head = [
        "GPU", "host", "ranks", "memory", "in use, all programs", "held for budgets", "outside the budgets",
        "most outside", "busy now", "on average",
    ]  # fmt: skip
    rows = []
    for gpu in gpus_of(snapshots):
        outside = [nbytes for nbytes in gpu.outside_bytes if nbytes is not None]
        rows.append(
            [
                f"{gpu.name} {gpu.short_uuid}", gpu.host, ", ".join(map(str, gpu.ranks)),
                _known_bytes(gpu.total_bytes or None), _known_bytes(gpu.latest_used_bytes), readable(gpu.held_bytes),
                _known_bytes(gpu.latest_outside_bytes), _known_bytes(max(outside, default=None)),
                _known_percent(gpu.latest_utilisation), _known_percent(gpu.mean_utilisation),
            ]
        )  # fmt: skip
    return head, rows


def html_table(table: Table, *, caption: str = "") -> str:
    """Return an HTML table; the first column is a heading, everything else stands to the right."""
    head, rows = table
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr><th>{escape(row[0])}</th>" + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<table class="gcylon-numbers">{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def _operation_cells(row: Row) -> list[str]:
    peak, predicted, budget = row["measured_peak_bytes"], row["predicted_peak_bytes"], row["budget_bytes"]
    done = format_seconds(row["seconds"]) + ("" if row["done"] else " so far")
    return [
        f"#{row['number']} {row['verb']}" + (f" ✖ {row['error'].partition(':')[0]}" if row["error"] else ""),
        row["strategy"],
        format_count(row["rounds"]) if row["rounds"] else "",
        done,
        _rate(row["gb_per_s"]),
        f"{readable(peak)} (rank {row['peak_rank']})" if peak else "",
        readable(predicted) if predicted else "",
        percent(peak / predicted) if predicted and peak else "",
        readable(budget) + (f", {percent(peak / budget)}" if peak else "") if budget else "",
        readable(row["staged_bytes"]) if row["staged_bytes"] else "nothing",
        _share(row["hidden"]),
        f"rank {row['slowest_rank']}",
        f"{row['skew']:.2f} ×" if row["skew"] is not None else "",
    ]


def _heaviest(row: Row) -> str:
    if not row["heaviest_bytes"]:
        return ""
    return f"{row['heaviest_from']} → {row['heaviest_to']}, {readable(row['heaviest_bytes'])}"


def _transfer_cells(row: Row) -> list[str]:
    if row["hidden"] is None:
        return [_UNKNOWN] * 3
    return [format_seconds(row["transfer_s"]), format_seconds(row["transfer_wait_s"]), _share(row["hidden"])]


def _share(share: float | None) -> str:
    return _UNKNOWN if share is None else percent(share)


def _known_bytes(nbytes: int | None) -> str:
    return _UNKNOWN if nbytes is None else readable(nbytes)


def _known_percent(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.0f}%"


def _rate(gb_per_s: float | None) -> str:
    return "" if gb_per_s is None else format_rate(gb_per_s * 1e9)
