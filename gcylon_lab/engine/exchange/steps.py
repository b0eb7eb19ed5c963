"""An exchange inside a larger operation: of rows that the operation has made, or of some columns of its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, cast

from ...backends.protocol.schema import Label
from ...errors import BudgetExceeded
from ..exec.agreement import AgreementKind
from ..exec.operation import Operation
from ..plan.costs import costs_of
from ..plan.plan import Plan
from ..plan.table_stats import TableStats
from ..store.part import Part, Partitioning
from ..store.views import ShownPart
from .exchange import exchange_table
from .routes import HashRoute


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
