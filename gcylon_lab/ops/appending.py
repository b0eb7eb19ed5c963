"""Concat: tables one after the other, rank by rank without an exchange, or in the order of the whole tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ..config import GcylonConfig
from ..errors import ArgumentError
from ..tables.column import Column
from ..tables.schema import Schema
from .exchange import exchange_table
from .foresight import target_rows
from .intake import check_values
from .local import LocalWork
from .operation import Int64s, Operation, Request
from .part import Chunk, Part
from .partition import RangeRoute
from .plan import Plan
from .running import run_operation
from .sides import agree_sides, common_schema, spread_of
from .steps import Step, local_plan
from .views import ChunkView, MarkedChunk, ShownPart
from .workspace import Workspace


def concat(
    workspace: Workspace,
    parts: Sequence[Part],
    *,
    join: str = "outer",
    order: str = "global",
    strategy: str = "auto",
    config: GcylonConfig | None = None,
    timeout_s: float | None = None,
    check: Callable[[], None] | None = None,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Put tables one after the other.

    Parameters
    ----------
    workspace
        This rank's means.
    parts : sequence of Part
        Its rows of each table.
    join : {"outer", "inner"}
        Whether columns that not all tables have stay, with missing values.
    order : {"global", "local"}
        Whether all rows of a table come before those of the next one in global order, which costs an exchange of each
        table, or only on each rank.
    strategy, config, timeout_s, check
        See `Request`.

    Returns
    -------
    Part, Plan

    Raises
    ------
    SchemaMismatch
        If no dtype holds the values of all tables, by the column's name.
    """

    def checked() -> None:
        if check is not None:
            check()
        for name, value, known in (("join", join, ("outer", "inner")), ("order", order, ("global", "local"))):
            if value not in known:
                raise ArgumentError(f"{name}={value!r} is none.", advice=f"It is one of {', '.join(map(repr, known))}.")

    def body(operation: Operation) -> Part:
        sides = agree_sides(operation, parts)
        names = [f"table {place}" for place in range(len(parts))]
        schema = common_schema(sides, names, join=join)
        if order == "local" or operation.size == 1:
            return appended(operation, parts, schema)
        return _in_global_order(operation, parts, schema, sides.rows)

    arguments = {"tables": len(parts), "join": join, "order": order}
    request = Request(
        "concat", arguments, parts[0], strategy, config, timeout_s, check=checked, others=tuple(parts[1:])
    )  # fmt: skip
    return run_operation(workspace, request, body)


def appended(operation: Operation, parts: Sequence[Part], schema: Schema) -> Part:
    """Collective: all ranks call it. On each rank its rows of some tables, one after the other, without a copy."""
    workspace, work = operation.workspace, LocalWork(operation, "Appending tables")
    work.make_room(0.0, 0)
    chunks = [chunk for part in parts for chunk in _shown(work, part, schema).chunks]
    work.expect(0)
    check_values(workspace, chunks, schema)
    result = Part(workspace, schema, chunks, spread_of(parts, operation.size))
    operation.plan = local_plan(operation, result, result, "because each rank appends its own rows")
    if operation.size == 1:
        operation.plan = replace(operation.plan, reason="because one rank has all rows")
    return result


def _shown(work: LocalWork, part: Part, schema: Schema) -> ShownPart:
    """A part with the columns of a schema: those that it lacks are missing in all of its rows."""
    workspace = work.workspace
    same = {name: name for name in part.schema.names if name in schema}
    lacking: list[tuple[Column, int | None]] = [
        (Column(column.name, "null", "object", arrow=pa.null()), None)
        for column in schema
        if column.name not in part.schema
    ]

    def show(place: int, chunk: Chunk) -> Chunk:
        some = ChunkView(chunk, same, workspace)
        return MarkedChunk(some, lacking, workspace, work.claim) if lacking else some

    return ShownPart(workspace, schema, (part,), show, part.partitioning)


def _in_global_order(operation: Operation, parts: Sequence[Part], schema: Schema, rows: Int64s) -> Part:
    """Collective: all ranks call it. Cut the tables, one after the other, evenly over the ranks."""
    work, rank = LocalWork(operation, "Appending tables"), operation.rank
    work.make_room(0.0, 0)
    edges = np.concatenate(([0], np.cumsum(target_rows([int(n) for n in rows.sum(axis=0)], None))))
    made: list[Part] = []
    plans: list[Plan] = []
    before = 0
    for part, there in zip(parts, rows, strict=True):
        total = int(there.sum())
        cuts = np.clip(edges - before, 0, total)
        before += total
        if not total:
            continue
        first = int(there[:rank].sum())
        starts, stops = (np.clip(cut - first, 0, part.rows) for cut in (cuts[:-1], cuts[1:]))
        step = Step(operation, _shown(work, part, schema), "repartition")
        shapes = step.shapes(target_rows=tuple(int(b - a) for a, b in pairwise(cuts.tolist())))
        route = RangeRoute(starts, stops, shapes.variable_row_bytes)
        made.append(work.adopt(exchange_table(step, step.request.part, route, shapes)))
        step.done()
        assert operation.plan is not None
        plans.append(operation.plan)
    result = Part(operation.workspace, schema, [chunk for part in made for chunk in part.chunks])
    if plans:
        operation.plan = _together(operation, plans)
    else:
        operation.plan = local_plan(operation, result, result, "because there are no rows")
    return result


def _together(operation: Operation, plans: Sequence[Plan]) -> Plan:
    """The plan of exchanges that follow each other."""
    last = plans[-1]
    used = {plan.strategy for plan in plans}
    strategy = next(one for one in ("staged", "chunked", "direct") if one in used)
    operation.record.strategy = strategy
    operation.record.reason = next(plan.reason for plan in plans if plan.strategy == strategy)
    operation.notes.append(f"{len(plans)} tables are cut evenly over the ranks, one after the other")
    return replace(
        last,
        strategy=strategy,
        rounds=sum(plan.rounds for plan in plans),
        result_bytes=sum(plan.result_bytes for plan in plans),
        predicted_peak_bytes=max(plan.predicted_peak_bytes for plan in plans),
        predicted_peaks=tuple(max(peaks) for peaks in zip(*(plan.predicted_peaks for plan in plans), strict=True)),
    )
