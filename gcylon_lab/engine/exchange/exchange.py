"""From a route to a result: plan, count, run the rounds into the right sink; and exchanges as steps of an operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

from ...backends.protocol.schema import Label
from ...errors import BudgetExceeded
from ..exec.agreement import AgreementKind
from ..exec.operation import Operation
from ..exec.remote_write import RemoteWrite
from ..plan.costs import costs_of
from ..plan.plan import Plan
from ..plan.table_stats import TableStats
from ..store.part import Part, Partitioning
from ..store.views import ShownPart
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


class Step(Operation):
    """One exchange of an operation, on its agreements, its config and its record. Collective: all ranks make it.

    Parameters
    ----------
    outer : Operation
        Opened.
    part : Part
        The rows of this rank that travel: their schema is the same on all ranks. Where it is a `ShownPart`, the
        parts behind it are what is evicted.
    verb : str
        What the exchange costs: one of `gcylon_lab.engine.plan.table_stats.VERBS`.
    compare : bool, default True
        Whether its plan says what other strategies would have meant: not where the operation's own plan does not.
    """

    def __init__(self, outer: Operation, part: Part, verb: str = "shuffle", *, compare: bool = True) -> None:
        behind = part.behind if isinstance(part, ShownPart) else ()
        request = replace(outer.request, part=part, others=(*outer.request.others, *behind))
        super().__init__(outer.workspace, request, outer.record)
        self.verb = verb
        self._compare = compare
        self.config = outer.config
        self._agreements = outer._agreements
        self._outer = outer
        self._rounds_before = outer.record.rounds_done
        self._predicted_before = outer.record.predicted_peak_bytes
        self.exchanges, self._exchange = outer.exchanges, len(outer.exchanges) + 1
        self.open()

    def open(self) -> None:
        """Collective: all ranks call it. Learn the sizes of all ranks' rows."""
        digest = self.request.part.schema.digest()
        self._learn(self.agree(AgreementKind.COUNT, (digest, *self._told(self.config))))

    def make_room(self, **more: Any) -> None:
        """Collective: all ranks call it. As `Operation.make_room`; the peak of what came before is kept."""
        peak = self.workspace.budget.window_peak_bytes
        self.record.measured_peak_bytes = max(self.record.measured_peak_bytes, peak)
        super().make_room(**more)

    def make_plan(
        self, stats: TableStats, counted: tuple[int, ...] | None = None, strategy: str | None = None, **how: Any
    ) -> Plan:
        """Plan this exchange; the record adds up the operation's."""
        how.setdefault("compare", self._compare)
        plan = super().make_plan(stats, counted, strategy, caller=self._outer.verb, **how)
        self.record.rounds = self._rounds_before + plan.rounds
        self.predict(self.record.predicted_peak_bytes + self._more_bytes(plan, stats))
        return plan

    def predict(self, peak: int) -> None:
        """The operation's prediction is that of its step that needs most."""
        self.record.predict(min(peak, self.limits[self.rank]), before=self._predicted_before)

    def _more_bytes(self, plan: Plan, stats: TableStats) -> int:
        """What pieces of other dtypes take beside the plan: each once more; and only those of one schema are joined."""
        chunks = self.request.part.chunks
        if all(chunk.schema == self.schema for chunk in chunks):
            return 0
        alike = [list(some) for _, some in groupby(chunks, key=lambda chunk: chunk.schema)]
        rows = max(min(plan.chunk_rows, sum(chunk.rows for chunk in some)) for some in alike)
        costs = costs_of(stats, plan.strategy)
        less = costs.most(plan.chunk_rows)[self.rank] - costs.most(max(1, rows))[self.rank]
        cast = max(chunk.rows for chunk in chunks if chunk.schema != self.schema)
        return int(min(plan.chunk_rows, cast) * self.schema.row_bytes - less)

    def need(self, limit: int) -> None:
        """As the whole operation does."""
        self._outer.need(limit)

    def advise(self, error: BudgetExceeded) -> None:
        """As the whole operation does."""
        self._outer.advise(error)

    def done(self) -> None:
        """Give the plan to the operation, under its name."""
        if self.plan is not None:
            self._outer.plan = replace(self.plan, verb=self._outer.verb)


def shuffled(operation: Operation, part: Part, keys: Sequence[Label]) -> Part:
    """Collective: all ranks call it. Bring rows with equal keys to one rank, in (source rank, row) order there.

    Parameters
    ----------
    operation : Operation
        Opened.
    part : Part
        Rows of one schema on all ranks.
    keys : sequence of labels
        Key columns.
    """
    step = Step(operation, part)
    names = cast("list[str]", list(keys))
    route = HashRoute(names, step.size, keep_order=True)
    result = exchange_table(step, part, route, step.stats(), Partitioning(tuple(names), step.size))
    step.done()
    return result


def local_plan(operation: Operation, part: Part, result: Part, reason: str) -> Plan:
    """The plan of an operation that exchanged nothing, as this rank has it: where its result went to is known."""
    peak = operation.record.predicted_peak_bytes
    limit = operation.workspace.limit_for(operation.config)
    asked = operation.options.strategy
    strategy = asked if asked != "auto" else "staged" if result.staged_bytes else "direct"
    operation.record.strategy, operation.record.reason = strategy, reason
    return Plan(
        verb=operation.verb,
        strategy=strategy,
        rounds=0,
        chunk_rows=part.rows,
        round_bytes=0,
        result_bytes=result.nbytes,
        budget_bytes=limit,
        reason=reason,
        assumption="",
        predicted_peaks=(peak,) * operation.size,
    )


def partitioned_by(part: Part, keys: Sequence[Label], size: int) -> Partitioning:
    """How a result is spread whose rows are where those of a part were, or where their keys were shuffled to."""
    if part.partitioning is not None and size > 1 and is_together(part, keys, size):
        return part.partitioning
    return Partitioning(tuple(cast("list[str]", list(keys))), size)


def is_together(part: Part, keys: Sequence[Label], size: int) -> bool:
    """Whether rows with equal keys are on one rank already, as all ranks know."""
    spread = part.partitioning
    if size == 1:
        return True
    return spread is not None and spread.size == size and set(spread.keys) <= set(keys)
