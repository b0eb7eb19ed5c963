"""Concat: tables one after the other, rank by rank without an exchange, or in the order of the whole tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ...backends.protocol.scalars import check_choice
from ...backends.protocol.schema import Column, Schema
from ...engine.exchange.exchange import Step, exchange_table, local_plan
from ...engine.exchange.routes import RangeRoute
from ...engine.exec.align_schemas import agree_sides, common_schema, spread_of
from ...engine.exec.invocation import AUTO, Request, RunOptions
from ...engine.exec.local_executor import PIECES_IN_LIMIT, LocalExecutor
from ...engine.exec.operation import Int64s, Operation
from ...engine.exec.running import run_operation
from ...engine.plan.estimate import target_rows
from ...engine.plan.plan import Plan
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part
from ...engine.store.views import ChunkView, MarkedChunk, ShownPart
from ...engine.store.workspace import Workspace
from ...errors import BudgetExceeded
from ...memory.budget import exceeded
from ..exchange.unstage import needed_for, on_device
from ..io.ingest import check_values

APPENDED = "because each rank appends its own rows"
ONE_RANK = "because one rank has all rows"
NO_ROWS = "because there are no rows"


def concat(
    workspace: Workspace,
    parts: Sequence[Part],
    *,
    join: str = "outer",
    order: str = "global",
    options: RunOptions = AUTO,
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
    options, check
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
        require_choices(join=join, order=order)

    def body(operation: Operation) -> Part:
        sides = agree_sides(operation, parts)
        schema = common_schema(sides, table_names(len(parts)), join=join)
        if order == "local" or operation.size == 1:
            return appended(operation, parts, schema)
        return _in_global_order(operation, parts, schema, sides.rows)

    arguments = {"tables": len(parts), "join": join, "order": order}
    request = Request("concat", arguments, parts[0], options, checked, tuple(parts[1:]))
    return run_operation(workspace, request, body)


def table_names(count: int) -> list[str]:
    """What errors call so many tables."""
    return [f"table {place}" for place in range(count)]


def require_choices(*, join: str, order: str) -> None:
    """Refuse what is no choice of concat.

    Raises
    ------
    ArgumentError
        Naming those that there are.
    """
    for name, value, known in (("join", join, ("outer", "inner")), ("order", order, ("global", "local"))):
        check_choice(name, value, known)


def appended(operation: Operation, parts: Sequence[Part], schema: Schema) -> Part:
    """Collective: all ranks call it. On each rank its rows of some tables, one after the other: without a copy, but for
    what is staged of them where the strategy says that the result is held."""
    workspace, work = operation.workspace, LocalExecutor(operation, "Appending tables")
    shown = [_shown(work, part, schema) for part in parts]
    below = sum(part.staged_bytes for part in parts) if work.holds_result else 0
    work.make_room(float(below), 1)
    chunks = [chunk for part in shown for chunk in part.chunks]
    if work.holds_result:
        chunks = _held(work, chunks, _back_bytes(parts, shown, schema))
    else:
        work.expect_now(0)
    check_values(workspace, chunks, schema)
    result = Part(workspace, schema, chunks, spread_of(parts, operation.size))
    if operation.options.strategy == "staged" and operation.may_stage:
        slice_bytes = workspace.slice_bytes(workspace.budget.limit_bytes)
        result.stage(workspace, result.nbytes, slice_bytes)  # a copy: the tables stay as they are
    operation.plan = local_plan(operation, result, result, APPENDED)
    if operation.size == 1:
        operation.plan = replace(operation.plan, reason=ONE_RANK)
    return result


def _held(work: LocalExecutor, chunks: Sequence[Chunk], back_bytes: int) -> list[Chunk]:
    """Chunks on the device tier: of those that are staged the result has a copy, and the tables stay as they are."""
    workspace, budget = work.workspace, work.workspace.budget
    used, needed = budget.used_bytes, needed_for(chunks, 1)
    work.expect_now(needed_for(chunks, 0))
    try:
        return [chunk if chunk.is_held else on_device(workspace, chunk) for chunk in chunks]
    except workspace.out_of_memory:
        if used + needed <= budget.limit_bytes:
            raise
        verb, strategy = work.operation.verb, work.operation.options.strategy
        raise does_not_hold(verb, strategy, needed, used, budget.limit_bytes, back_bytes) from None


def _back_bytes(parts: Sequence[Part], shown: Sequence[Part], schema: Schema) -> int:
    """What is held more under a larger limit, which brings back all columns of what one operation's own had staged."""
    back: dict[int, int] = {}
    beside = 0
    for part, one in zip(parts, shown, strict=True):
        evicted = {id(chunk): chunk.nbytes for slices in part.evictions.values() for chunk in slices}
        back |= evicted
        beside += part.rows * sum(name not in part.schema for name in schema.names)  # a byte for each that is lacking
        if len(evicted) < sum(not chunk.is_held for chunk in part.chunks):
            beside += one.staged_bytes
    return sum(back.values()) + beside


def does_not_hold(
    verb: str, strategy: str, needed: int, used: int, limit: int, back_bytes: int, rank: int | None = None
) -> BudgetExceeded:
    """The error of a strategy that holds the result, where what is staged of the tables does not fit.

    Parameters
    ----------
    verb, strategy : str
    needed, used, limit : int
        Bytes that come back, that are in use, and that may be.
    back_bytes : int
        What comes back of the tables themselves under a larger limit, with what still has to then.
    rank : int, optional
        Where.
    """
    # `make_room` keeps so much free that the tables stay where they are.
    would_do = -(-(used + max(needed, back_bytes)) * PIECES_IN_LIMIT // (PIECES_IN_LIMIT - 2))
    what = f"The result of {verb} with strategy={strategy!r}"
    return exceeded(what, needed, used, limit, rank=rank, would_do=would_do)


def _shown(work: LocalExecutor, part: Part, schema: Schema) -> ShownPart:
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
    work = LocalExecutor(operation, "Appending tables")
    work.make_room(0.0, 0)
    made: list[Part] = []
    plans: list[Plan] = []
    for part, there, cuts in zip(parts, rows, cuts_of(rows.sum(axis=1).tolist(), operation.size), strict=True):
        if not there.any():
            continue
        step = Step(operation, _shown(work, part, schema), "repartition")
        stats = step.stats(target_rows=tuple(int(b - a) for a, b in pairwise(cuts.tolist())))
        route = RangeRoute.between(cuts, there.tolist(), operation.rank, stats.variable_row_bytes)
        made.append(work.adopt(exchange_table(step, step.request.part, route, stats)))
        step.done()
        assert operation.plan is not None
        plans.append(operation.plan)
    result = Part(operation.workspace, schema, [chunk for part in made for chunk in part.chunks])
    if plans:
        operation.plan = _together(operation, plans)
    else:
        operation.plan = local_plan(operation, result, result, NO_ROWS)
    return result


def cuts_of(totals: Sequence[int], size: int) -> list[Int64s]:
    """Where each table is cut for the ranks, if they lie evenly there one after the other: size + 1 of its rows."""
    edges = np.concatenate(([0], np.cumsum(target_rows([sum(totals), *[0] * (size - 1)], None))))
    starts = np.cumsum([0, *totals])
    return [np.clip(edges - start, 0, total) for start, total in zip(starts[:-1], totals, strict=True)]


def tables_note(count: int) -> str:
    """What a plan says of exchanges that follow each other."""
    return f"{count} tables are cut evenly over the ranks, one after the other"


def one_after_the_other(plans: Sequence[Plan]) -> Plan:
    """The plan of exchanges that follow each other."""
    used = {plan.strategy for plan in plans}
    strategy = next(one for one in ("staged", "chunked", "direct") if one in used)
    return replace(
        plans[-1],
        strategy=strategy,
        reason=next(plan.reason for plan in plans if plan.strategy == strategy),
        rounds=sum(plan.rounds for plan in plans),
        result_bytes=sum(plan.result_bytes for plan in plans),
        predicted_peaks=tuple(max(peaks) for peaks in zip(*(plan.predicted_peaks for plan in plans), strict=True)),
        alternatives=(),
    )


def _together(operation: Operation, plans: Sequence[Plan]) -> Plan:
    plan = one_after_the_other(plans)
    operation.record.strategy, operation.record.reason = plan.strategy, plan.reason
    operation.notes.append(tables_note(len(plans)))
    return plan
