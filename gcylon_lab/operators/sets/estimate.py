"""Plans of verbs on several tables as rows, from what is known of the tables already: no data is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from ...backends.protocol.schema import Schema
from ...config import GcylonConfig
from ...engine.exec.align_schemas import require_same_names, schema_of_all
from ...engine.plan.estimate import PlannedVerb, as_used, estimate_exchange, limits_of
from ...engine.plan.part_stats import Parts, PartStats
from ...engine.plan.plan import Plan
from ..distinct.estimate import PARTIAL
from .concat import (
    APPENDED,
    NO_ROWS,
    ONE_RANK,
    cuts_of,
    does_not_hold,
    one_after_the_other,
    require_choices,
    table_names,
    tables_note,
)
from .set_operations import NAMES, require_equality, staying, staying_note

_LOCAL = "because equal rows are on one rank already"


def _set_operation(verb: str) -> Callable[..., Plan]:
    def estimate(tables: Sequence[Parts], config: GcylonConfig, strategy: str, *, all: bool = False) -> Plan:
        told, tables = tables, as_used(tables, config)
        require_same_names([infos[0].columns for infos in tables], NAMES)
        if verb == "union" and all:
            return _appended(verb, tables, config, strategy, told)
        return _met(verb, tables[0], tables[1], config, strategy)

    return estimate


def _concat(
    tables: Sequence[Parts], config: GcylonConfig, strategy: str, *, join: str = "outer", order: str = "global"
) -> Plan:
    told, tables = tables, as_used(tables, config)
    require_choices(join=join, order=order)
    if order == "local" or len(tables[0]) == 1:
        return _appended("concat", tables, config, strategy, told)
    return _in_global_order(tables, config, strategy)


def _met(verb: str, left: Parts, right: Parts, config: GcylonConfig, strategy: str) -> Plan:
    """Equal rows of both tables are brought together, unless they are already, and grouped."""
    keys, size = list(left[0].columns), len(left)
    both = [_beside(*pair) for pair in zip(left, right, strict=True)]
    spread = [_spread(infos) for infos in (left, right)]
    if size == 1 or (spread[0] is not None and spread[0] == spread[1]):
        return _grouped(verb, both, _local(verb, both, config, strategy, _LOCAL), config)
    if spread == [None, None]:
        plan = estimate_exchange("shuffle", both, config, strategy=strategy, on=keys)
        return _grouped(verb, both, replace(plan, notes=(PARTIAL, *plan.notes)), config)
    stays = staying(spread, [sum(i.nbytes for i in infos) for infos in (left, right)])
    by = spread[stays]
    assert by is not None
    plan = estimate_exchange("shuffle", (left, right)[1 - stays], config, strategy=strategy, on=by)
    return _grouped(verb, both, replace(plan, notes=(staying_note(stays, by), *plan.notes)), config)


def _spread(infos: Parts) -> list[Any] | None:
    spread = infos[0].spread
    return list(spread.keys) if spread is not None and spread.size == len(infos) else None


def _beside(a: PartStats, b: PartStats) -> PartStats:
    """What is known of a rank's rows of two tables, as if they were one's."""
    return replace(
        a,
        rows=a.rows + b.rows,
        nbytes=a.nbytes + b.nbytes,
        device_bytes=a.device_bytes + b.device_bytes,
        staged_bytes=a.staged_bytes + b.staged_bytes,
        chunks=a.chunks + b.chunks,
        device_chunk_bytes=a.device_chunk_bytes + b.device_chunk_bytes,
        largest_staged_bytes=max(a.largest_staged_bytes, b.largest_staged_bytes),
        row_bytes=max(a.row_bytes, b.row_bytes),
        used_bytes=max(a.used_bytes, b.used_bytes),
    )


def _grouped(verb: str, both: Parts, plan: Plan, config: GcylonConfig) -> Plan:
    """A plan with the work that follows its exchange: rows, their copy, and what finds equal ones."""
    size, limits = len(both), limits_of(both, config)
    rows, nbytes = sum(i.rows for i in both), sum(i.nbytes for i in both)
    peaks = []
    for info, limit, before in zip(both, limits, plan.predicted_peaks, strict=True):
        here = (2 * (nbytes // size), rows // size) if plan.rounds else (info.nbytes, info.rows)
        work = int(here[0] + here[1] * info.grouping_row_bytes)
        peaks.append(max(before, min(limit, info.used_bytes + work)))
    return replace(plan, verb=verb, predicted_peaks=tuple(peaks))


def _local(verb: str, infos: Parts, config: GcylonConfig, strategy: str, reason: str) -> Plan:
    """The plan of what exchanges nothing."""
    limits = limits_of(infos, config)
    peaks = tuple(min(i.used_bytes, limit) for i, limit in zip(infos, limits, strict=True))
    return Plan(
        verb=verb, strategy="staged" if strategy == "staged" else "direct", rounds=0, chunk_rows=0, round_bytes=0,
        result_bytes=max(i.nbytes for i in infos), budget_bytes=min(limits),
        reason=reason, assumption="assuming a result no larger than the tables" if reason == _LOCAL else "",
        predicted_peaks=peaks,
    )  # fmt: skip


def _appended(verb: str, tables: Sequence[Parts], config: GcylonConfig, strategy: str, told: Sequence[Parts]) -> Plan:
    """Each rank has its own rows of all tables, where they are; what is staged comes back where the result is held."""
    joined = [reduce(_beside, rank) for rank in zip(*tables, strict=True)]
    plan = _local(verb, joined, config, "direct", ONE_RANK if len(joined) == 1 else APPENDED)
    below = [info.staged_bytes for info in joined]
    if strategy in ("direct", "chunked") and any(below):
        stages = joined[0].may_stage(config)
        back = [sum(n for info in rank for _, n, _ in info.evicted) for rank in zip(*told, strict=True)]
        plan = _held(plan, joined, below, back, limits_of(joined, config), strategy, stages=stages)
    return replace(plan, strategy=strategy if strategy != "auto" else "staged" if any(below) else "direct")


def _held(
    plan: Plan,
    joined: Parts,
    below: Sequence[int],
    back: Sequence[int],
    limits: Sequence[int],
    strategy: str,
    *,
    stages: bool,
) -> Plan:
    """The plan where what is staged is brought back: other tables are evicted for it."""
    held = [min(info.device_bytes, info.used_bytes) if stages else info.used_bytes for info in joined]
    over = [used + more - limit if more else 0 for used, more, limit in zip(held, below, limits, strict=True)]
    worst = max(range(len(over)), key=over.__getitem__)
    if over[worst] > 0:
        later = below[worst] + back[worst]
        raise does_not_hold(plan.verb, strategy, below[worst], held[worst], limits[worst], later, worst)
    peaks = tuple(
        max(peak, min(limit, info.used_bytes + more))
        for peak, info, more, limit in zip(plan.predicted_peaks, joined, below, limits, strict=True)
    )
    return replace(plan, predicted_peaks=peaks)


def _in_global_order(tables: Sequence[Parts], config: GcylonConfig, strategy: str) -> Plan:
    """Each table is cut over the ranks so that all of them together lie evenly."""
    totals = [sum(i.rows for i in infos) for infos in tables]
    cuts = cuts_of(totals, len(tables[0]))
    plans: list[Plan] = []
    made = [0] * len(tables[0])
    for infos, cut in zip(tables, cuts, strict=True):
        there = [replace(info, used_bytes=info.used_bytes + more) for info, more in zip(infos, made, strict=True)]
        widths = [int(n) for n in np.diff(cut)]
        total = sum(widths)
        if not total:
            continue
        plans.append(estimate_exchange("repartition", there, config, strategy=strategy, rows_per_rank=widths))
        if plans[-1].strategy != "staged":
            nbytes = sum(i.nbytes for i in infos)
            made = [more + nbytes * width // total for more, width in zip(made, widths, strict=True)]
    if not plans:
        return _local("concat", tables[0], config, strategy, NO_ROWS)
    return replace(one_after_the_other(plans), verb="concat", notes=(tables_note(len(plans)),))


def _refuse_sets(verb: str) -> Callable[..., None]:
    def refuse(schemas: Sequence[Schema], rows: Sequence[int], *, all: bool = False) -> None:
        schema = schema_of_all(schemas, rows, NAMES)
        if verb != "union" or not all:
            require_equality(schema)

    return refuse


def _refuse_concat(schemas: Sequence[Schema], rows: Sequence[int], *, join: str = "outer", **how: Any) -> None:
    schema_of_all(schemas, rows, table_names(len(schemas)), join)


PLANNED = (
    *(
        PlannedVerb(verb, _set_operation(verb), tables="other", refuse=_refuse_sets(verb))
        for verb in ("union", "intersect", "difference")
    ),
    PlannedVerb("concat", _concat, tables="others", refuse=_refuse_concat),
)
