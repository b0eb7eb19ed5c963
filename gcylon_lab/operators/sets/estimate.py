"""Plans of verbs on several tables as rows, from what is known of the tables already: no data is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...config import GcylonConfig
from ...engine.exec.align_schemas import require_same_names
from ...engine.plan.estimate import as_used, estimate_exchange
from ...engine.plan.plan import Plan
from ...engine.plan.planned_verb import Infos, PlannedVerb
from ..distinct.estimate import PARTIAL
from .concat import (
    APPENDED,
    NO_ROWS,
    ONE_RANK,
    cuts_of,
    does_not_hold,
    one_after_the_other,
    require_choices,
    tables_note,
)
from .set_operations import NAMES, staying, staying_note

_LOCAL = "because equal rows are on one rank already"


def _set_operation(verb: str) -> Callable[..., Plan]:
    def estimate(tables: Sequence[Infos], config: GcylonConfig, strategy: str, *, all: bool = False) -> Plan:
        told, tables = tables, as_used(tables, config)
        require_same_names([infos[0]["columns"] for infos in tables], NAMES)
        if verb == "union" and all:
            return _appended(verb, tables, config, strategy, told)
        return _met(verb, tables[0], tables[1], config, strategy)

    return estimate


def _concat(
    tables: Sequence[Infos], config: GcylonConfig, strategy: str, *, join: str = "outer", order: str = "global"
) -> Plan:
    told, tables = tables, as_used(tables, config)
    require_choices(join=join, order=order)
    if order == "local" or len(tables[0]) == 1:
        return _appended("concat", tables, config, strategy, told)
    return _in_global_order(tables, config, strategy)


def _met(verb: str, left: Infos, right: Infos, config: GcylonConfig, strategy: str) -> Plan:
    """Equal rows of both tables are brought together, unless they are already, and grouped."""
    keys, size = list(left[0]["columns"]), len(left)
    both = [_beside(pair) for pair in zip(left, right, strict=True)]
    spread = [_spread(infos) for infos in (left, right)]
    if size == 1 or (spread[0] is not None and spread[0] == spread[1]):
        return _grouped(verb, both, _local(verb, both, config, strategy, _LOCAL), config)
    if spread == [None, None]:
        plan = estimate_exchange("shuffle", both, config, strategy=strategy, on=keys)
        return _grouped(verb, both, replace(plan, notes=(PARTIAL, *plan.notes)), config)
    stays = staying(spread, [sum(i["nbytes"] for i in infos) for infos in (left, right)])
    by = spread[stays]
    assert by is not None
    plan = estimate_exchange("shuffle", (left, right)[1 - stays], config, strategy=strategy, on=by)
    return _grouped(verb, both, replace(plan, notes=(staying_note(stays, by), *plan.notes)), config)


def _spread(infos: Infos) -> list[Any] | None:
    spread = infos[0]["partitioning"]
    return spread["keys"] if spread is not None and spread["size"] == len(infos) else None


def _beside(pair: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is known of a rank's rows of two tables, as if they were one's."""
    a, b = pair
    tiers = {tier: a["tiers"].get(tier, 0) + b["tiers"].get(tier, 0) for tier in {**a["tiers"], **b["tiers"]}}
    added = {name: a[name] + b[name] for name in ("rows", "nbytes", "chunks")}
    most = {name: max(a[name], b[name]) for name in ("largest_staged_bytes", "row_bytes", "used_bytes")}
    held = [n for one in pair for n in one.get("device_chunk_bytes", [one["tiers"]["device"]])]
    return {**a, **added, **most, "tiers": tiers, "device_chunk_bytes": held}


def _grouped(verb: str, both: Infos, plan: Plan, config: GcylonConfig) -> Plan:
    """A plan with the work that follows its exchange: rows, their copy, and what finds equal ones."""
    size, limits = len(both), _limits(both, config)
    rows, nbytes = (sum(i[name] for i in both) for name in ("rows", "nbytes"))
    peaks = []
    for info, limit, before in zip(both, limits, plan.predicted_peaks, strict=True):
        here = info if not plan.rounds else {"rows": rows // size, "nbytes": nbytes // size}
        copies = 2 if plan.rounds else 1
        work = copies * here["nbytes"] + here["rows"] * info.get("grouping_row_bytes", 0)
        peaks.append(max(before, min(limit, info["used_bytes"] + work)))
    return replace(plan, verb=verb, predicted_peaks=tuple(peaks))


def _limits(infos: Infos, config: GcylonConfig) -> list[int]:
    return [config.limit_bytes(i["ceiling_bytes"], i["free_at_start_bytes"]) for i in infos]


def _local(verb: str, infos: Infos, config: GcylonConfig, strategy: str, reason: str) -> Plan:
    """The plan of what exchanges nothing."""
    limits = _limits(infos, config)
    peaks = tuple(min(i["used_bytes"], limit) for i, limit in zip(infos, limits, strict=True))
    return Plan(
        verb=verb, strategy="staged" if strategy == "staged" else "direct", rounds=0, chunk_rows=0, round_bytes=0,
        result_bytes=max(i["nbytes"] for i in infos), budget_bytes=min(limits),
        reason=reason, assumption="assuming a result no larger than the tables" if reason == _LOCAL else "",
        predicted_peaks=peaks,
    )  # fmt: skip


def _appended(verb: str, tables: Sequence[Infos], config: GcylonConfig, strategy: str, told: Sequence[Infos]) -> Plan:
    """Each rank has its own rows of all tables, where they are; what is staged comes back where the result is held."""
    joined = [_all_beside(rank) for rank in zip(*tables, strict=True)]
    plan = _local(verb, joined, config, "direct", ONE_RANK if len(joined) == 1 else APPENDED)
    below = [sum(n for tier, n in info["tiers"].items() if tier != "device") for info in joined]
    if strategy in ("direct", "chunked") and any(below):
        stages = config.may_stage(pinned_tier=bool(joined[0].get("pinned_tier", False)))
        back = [sum(n for info in rank for _, n, _ in info.get("evicted", ())) for rank in zip(*told, strict=True)]
        plan = _held(plan, joined, below, back, _limits(joined, config), strategy, stages=stages)
    return replace(plan, strategy=strategy if strategy != "auto" else "staged" if any(below) else "direct")


def _held(
    plan: Plan,
    joined: Infos,
    below: Sequence[int],
    back: Sequence[int],
    limits: Sequence[int],
    strategy: str,
    *,
    stages: bool,
) -> Plan:
    """The plan where what is staged is brought back: other tables are evicted for it."""
    held = [min(info["tiers"]["device"], info["used_bytes"]) if stages else info["used_bytes"] for info in joined]
    over = [used + more - limit if more else 0 for used, more, limit in zip(held, below, limits, strict=True)]
    worst = max(range(len(over)), key=over.__getitem__)
    if over[worst] > 0:
        later = below[worst] + back[worst]
        raise does_not_hold(plan.verb, strategy, below[worst], held[worst], limits[worst], later, worst)
    peaks = tuple(
        max(peak, min(limit, info["used_bytes"] + more))
        for peak, info, more, limit in zip(plan.predicted_peaks, joined, below, limits, strict=True)
    )
    return replace(plan, predicted_peaks=peaks)


def _all_beside(infos: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    joined = infos[0]
    for info in infos[1:]:
        joined = _beside((joined, info))
    return joined


def _in_global_order(tables: Sequence[Infos], config: GcylonConfig, strategy: str) -> Plan:
    """Each table is cut over the ranks so that all of them together lie evenly."""
    totals = [sum(i["rows"] for i in infos) for infos in tables]
    cuts = cuts_of(totals, len(tables[0]))
    plans: list[Plan] = []
    made = [0] * len(tables[0])
    for infos, cut in zip(tables, cuts, strict=True):
        there = [{**info, "used_bytes": info["used_bytes"] + more} for info, more in zip(infos, made, strict=True)]
        widths = [int(n) for n in np.diff(cut)]
        total = sum(widths)
        if not total:
            continue
        plans.append(estimate_exchange("repartition", there, config, strategy=strategy, rows_per_rank=widths))
        if plans[-1].strategy != "staged":
            nbytes = sum(i["nbytes"] for i in infos)
            made = [more + nbytes * width // total for more, width in zip(made, widths, strict=True)]
    if not plans:
        return _local("concat", tables[0], config, strategy, NO_ROWS)
    return replace(one_after_the_other(plans), verb="concat", notes=(tables_note(len(plans)),))


PLANNED = (
    *(PlannedVerb(verb, _set_operation(verb), tables="other") for verb in ("union", "intersect", "difference")),
    PlannedVerb("concat", _concat, tables="others"),
)
