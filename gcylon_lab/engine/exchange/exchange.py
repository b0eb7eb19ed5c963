"""From a route to a result: plan, count where the result is placed, and run the rounds into the right sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...errors import BudgetExceeded
from ..exec.operation import Operation
from ..exec.remote_write import RemoteWrite
from ..plan.plan import Plan
from ..plan.table_stats import TableStats
from ..store.part import Part, Partitioning
from .remote_write_batches import WrittenTurns, turns_for
from .rounds import Route, count_rows, exchange_rounds, go_on, meet
from .routes import HashRoute
from .sinks import ChunkSink, Int64s, PreallocatedSink, RemoteWriteSink, Sink, StagingSink

_COUNTED_IN_LIMIT = 32


def exchange_table(
    operation: Operation, part: Part, route: Route, stats: TableStats, partitioning: Partitioning | None = None
) -> Part:
    """Collective: all ranks call it. Move a table along a route, by the strategy that the plan chooses.

    Parameters
    ----------
    operation : Operation
        Opened.
    part : Part
        The rows of this rank that travel.
    route : Route
        Where they go.
    stats : TableStats
        What the plan sees.
    partitioning : Partitioning, optional
        Of the result.

    Returns
    -------
    Part
        This rank's part of the result.
    """
    try:
        operation.exchanged = False
        plan = _plan_uncounted(operation, part, route, stats)
        counted: tuple[int, ...] | None = None
        written: RemoteWrite | None = None
        if plan.strategy == "staged":
            plan = operation.make_plan(stats)
        else:
            rows, variable = count_rows(operation, part, route, plan.chunk_rows)
            counted = _result_bytes(operation, rows, variable)
            if operation.writes_variable:
                assert isinstance(route, HashRoute)
                written = route.agree_on_writing(operation, part)
                if written is None:
                    route.pack()
                    stats = replace(stats, writable=False)
            plan = operation.make_plan(stats, counted)
        if plan.strategy != "staged":
            try:
                with operation.workspace.memory_named(operation.verb):
                    route.prepare(operation, part, plan.chunk_rows)
                    sink = _placed(operation, rows, written)
                    return _run(operation, part, route, sink, plan.chunk_rows, partitioning)
            except BudgetExceeded as error:
                # Strings longer than their mean, for example.
                if operation.options.strategy != "auto" or not operation.may_stage:
                    raise
                go_on(operation, error)
            plan = operation.make_plan(stats, counted, "staged")
            operation.record.reason = "because the result turned out larger than counted"
            stats = replace(stats, writable=False)
        route.forget()
        turns = turns_for(operation, route, stats, plan.rounds)
        if turns:
            assert isinstance(route, HashRoute)
            chunks = WrittenTurns(operation, part, route, stats, plan.chunk_rows).run(turns)
            return Part(operation.workspace, operation.schema, chunks, partitioning)
        dealt = route.deal(operation)
        sink = StagingSink(operation.workspace, operation.schema, keep_order=route.keep_order, dealt=dealt)
        return _run(operation, part, route, sink, plan.chunk_rows, partitioning)
    finally:
        route.forget()  # now, and not once nobody looks at this frame any more


def _plan_uncounted(operation: Operation, part: Part, route: Route, stats: TableStats) -> Plan:
    """Collective: all ranks call it. Plan before rows are counted; what is refused then is told with a limit that is
    enough for the keys as they are."""
    try:
        return operation.make_plan(stats, compare=False)
    except BudgetExceeded as error:
        if stats.verb != "shuffle" or operation.stages:
            raise
        try:
            with operation.workspace.memory_named(operation.verb):
                counts = count_rows(operation, part, route, _rows_that_fit(stats))
        except BudgetExceeded as uncounted:
            go_on(operation, uncounted)
            operation.need_results(stats, (sum(stats.nbytes),) * stats.size)  # wherever they belong
            operation.advise(error)
        else:
            operation.make_plan(stats, _result_bytes(operation, *counts), compare=False)
        raise error from None


def _rows_that_fit(stats: TableStats) -> int:
    """Rows that are counted at a time where memory is short."""
    return max(1, int(min(stats.limits) / _COUNTED_IN_LIMIT / max(stats.bytes_per_row, 1)))


def _result_bytes(operation: Operation, rows: Int64s, variable: Int64s) -> tuple[int, ...]:
    """What each rank receives, where it is counted."""
    return tuple(int(n) for n in rows.sum(axis=0) * operation.schema.row_bytes + variable.sum(axis=0))


@dataclass(frozen=True, slots=True)
class Counted:
    """A table that moves, where all ranks know how many of its rows go where.

    Attributes
    ----------
    operation, part, route
        As for `exchange_table`.
    rows : ndarray of int64, shape (size, size)
        From each rank (first axis) to each.
    chunk_rows : int
        Most rows of this rank that are split along the route at a time.
    """

    operation: Operation
    part: Part
    route: Route
    rows: Int64s
    chunk_rows: int


def exchange_counted(tables: Sequence[Counted]) -> list[Part]:
    """Collective: all ranks call it. Move tables into results that are held, with one wait for all of them.

    Raises
    ------
    BudgetExceeded
        If they do not fit; `go_on` lets all ranks know, given the operation of the last one.
    """
    sinks: list[Sink] = []
    for one in tables:
        one.operation.exchanged = False
    for one in tables:
        one.route.prepare(one.operation, one.part, one.chunk_rows)
        sinks.append(_placed(one.operation, one.rows))
    meet(tables[0].operation, sinks)
    for place, (one, sink) in enumerate(zip(tables, sinks, strict=True), 1):
        exchange_rounds(one.operation, one.part, one.route, sink, one.chunk_rows, last=place == len(tables))
    made = zip(tables, sinks, strict=True)
    return [Part(one.operation.workspace, one.operation.schema, sink.finish(), None) for one, sink in made]


def _placed(operation: Operation, rows: Int64s, written: RemoteWrite | None = None) -> Sink:
    workspace, schema = operation.workspace, operation.schema
    if written is not None:
        return RemoteWriteSink(workspace, schema, rows, operation.rank, written)
    if schema.variable and workspace.backend.on_gpu:
        return ChunkSink(workspace, schema)
    return PreallocatedSink(workspace, schema, rows, operation.rank)


def _run(
    operation: Operation, part: Part, route: Route, sink: Sink, chunk_rows: int, partitioning: Partitioning | None
) -> Part:
    meet(operation, [sink])
    operation.see_pieces()
    exchange_rounds(operation, part, route, sink, chunk_rows)
    return Part(operation.workspace, operation.schema, sink.finish(), partitioning)
