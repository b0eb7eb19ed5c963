"""Join: rows of two tables with equal keys beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ...backends.protocol.join_columns import JoinColumns, JoinSpec, join_columns
from ...backends.protocol.schema import Label, Schema, shown_labels
from ...engine.exchange.buckets import writes_runs
from ...engine.exchange.exchange import Step, exchange_table
from ...engine.exchange.routes import HashRoute, RangeRoute
from ...engine.exec.agreement import AgreementKind, agreed
from ...engine.exec.invocation import AUTO, Request, RunOptions
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Int64s, Operation
from ...engine.exec.running import run_operation
from ...engine.plan.minimum_limit import likely_most
from ...engine.plan.plan import Plan
from ...engine.plan.table_stats import MOST_BUCKETS, MOST_RUN_BUCKETS
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part, Partitioning
from ...engine.store.views import view_of
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError, BudgetExceeded, GcylonError, raised_as
from ...memory.budget import exceeded
from .distribution import (
    IN_PASSES,
    JoinDistribution,
    Side,
    build_side,
    choose_strategy,
    kept_sides,
    plan_distribution,
    result_partitioning,
)
from .local_join import LocalJoin, ProbeBatch
from .partitioned import PartitionedJoin, PartitionExchange, make_room_for_passes
from .passes import MOST_BYTES, crossed_bytes, join_memory, least_bytes, refuse_too_large

AnyNumbers = npt.NDArray[Any]

_FILLED = 0.9  # of the limit, by buckets that are joined one after the other
_FAR_LARGER = 4  # than the limit: of such a result of buckets nothing is held
_UNEVEN = 8  # a result with texts may be larger than expected by such a part of it


def join(
    workspace: Workspace,
    left: Part,
    right: Part,
    arguments: dict[str, Any],
    specify: Callable[[], JoinSpec],
    *,
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Join two tables.

    Parameters
    ----------
    workspace
        This rank's means.
    left, right : Part
        Its rows.
    arguments : dict
        As they were given, the same on all ranks.
    specify : callable
        Checks the arguments on this rank; what it raises is told to all.
    options : RunOptions

    Returns
    -------
    Part, Plan
    """
    specs: list[JoinSpec] = []
    request = Request("join", arguments, left, options, lambda: specs.append(specify()), (right,))

    def body(operation: Operation) -> Part:
        return _Join(operation, left, right, specs[0]).run()

    return run_operation(workspace, request, body)


class _Join:
    """One join, on this rank."""

    def __init__(self, operation: Operation, left: Part, right: Part, spec: JoinSpec) -> None:
        self.operation, self.spec = operation, spec
        self.workspace, self.size = operation.workspace, operation.size
        self.parts = {"left": left, "right": right}
        self.work = LocalExecutor(operation, "Joining")
        self.exchanged: list[str] = []  # strategies
        self.exchange: PartitionExchange | None = None  # of passes, of which some were left
        self.settled = False  # whether all ranks know that the result is held, and of which dtypes it is

    def run(self) -> Part:
        columns = self._agree()
        self._begin()
        distribution = self._decide()
        local = LocalJoin(self.work, columns, self.build, self.schemas)
        self._predict(local, distribution)
        if self.spec.how == "cross":
            refuse_too_large(
                self.operation, self.limits, crossed_bytes(distribution.moved, self.sizes, local.result.schema)
            )
        first = self._passes(local, distribution) if self.memory.passes > 1 else 0
        if first is not None:
            self._at_once(local, distribution, first)
        return self._finish(local, distribution)

    def _at_once(self, local: LocalJoin, distribution: JoinDistribution, first: int) -> None:
        """Join all that passes have left, from a bucket on: staged where it does not fit."""
        self._move(distribution, first)
        buckets = self._buckets(local)
        self._validate(local, distribution, self.parts)
        self._produce(local, buckets)

    def _begin(self) -> None:
        """Tables of before may be above a lowered limit: what is no input is evicted first."""
        operation, workspace = self.operation, self.workspace
        if operation.may_stage:
            limit = workspace.budget.limit_bytes
            workspace.make_room(0, limit, operation.not_in_use())
            inputs = [operation.request.part, *operation.request.others]
            workspace.make_room(0, limit, inputs, with_views=True)
            workspace.budget.start_window()

    # ---- what is joined, and where it meets

    def _agree(self) -> JoinColumns:
        """Both sides' schemas, the same on all ranks; keys that cannot be compared are an error on all alike."""
        operation, right = self.operation, self.parts["right"]
        assert operation.other is not None  # the right side
        agreed_right = operation.other[0]
        self.schemas = {"left": operation.schema, "right": agreed_right}
        try:
            columns = join_columns(operation.schema, agreed_right, self.spec)
        except GcylonError as error:
            raise agreed(error) from None
        if self.spec.filters:  # of the right side only the keys are needed
            keys = tuple(dict.fromkeys(self.spec.right_on))
            self.parts["right"] = view_of(self.workspace, right, keys)
            self.schemas["right"] = agreed_right.select(keys)
        return columns

    def _decide(self) -> JoinDistribution:
        """Decide where rows meet, and which side is indexed there."""
        answers = self._sizes()
        self.sizes, self.limits = answers, answers[:, 4]
        sides = [
            Side(
                name, keys, tuple(answers[:, 2 * place].tolist()), tuple(answers[:, 2 * place + 1].tolist()),
                self.parts[name].partitioning,
            )
            for place, (name, keys) in enumerate((("left", self.spec.left_on), ("right", self.spec.right_on)))
        ]  # fmt: skip
        index_row_bytes = self.workspace.backend.index_row_bytes(self.schemas["right"].select(self.spec.right_on))
        distribution = plan_distribution(self.spec, sides[0], sides[1], self.limits.tolist(), index_row_bytes)
        self.stays = {name: self.parts[name].partitioning for name in self.parts}
        self.operation.notes.append(f"{distribution.kind} join: {distribution.reason}")
        self.build = build_side(self.spec, distribution, int(answers[:, 0].sum()), int(answers[:, 2].sum()))
        return distribution

    def _sizes(self) -> Int64s:
        """Collective: all ranks call it. Sizes of both sides, and the memory of each rank."""
        left, right = self.parts["left"], self.parts["right"]
        limit, used = self.workspace.limit_for(self.operation.config), self.workspace.budget.used_bytes
        others = self.operation.not_in_use() if self.operation.may_stage else []
        beside = min(used, sum(part.nbytes - part.staged_bytes for part in others))
        staged = left.staged_bytes + right.staged_bytes
        numbers = (left.nbytes, left.rows, right.nbytes, right.rows, limit, used, beside, staged)
        apart = (part.nbytes * (len(part.chunks) > 1) for part in (left, right))
        return self.operation.agree(AgreementKind.COUNT, (*numbers, *apart))

    def _predict(self, local: LocalJoin, distribution: JoinDistribution) -> None:
        """Whether all can be joined at once in memory, or in how many passes: the same on all ranks."""
        nbytes, rows, other_bytes, other_rows = (int(n) for n in self.sizes[:, :4].sum(axis=0))
        self.costs = local.costs(nbytes, rows, other_bytes, other_rows, int(self.limits.min()))
        operation = self.operation
        may_stage = operation.may_stage and not self.workspace.backend.on_gpu  # where what it costs was measured
        strategy = operation.options.strategy
        self.memory = join_memory(
            self.spec,
            distribution,
            self.build,
            self.sizes,
            self.costs,
            strategy,
            instead=may_stage and strategy == "auto",
        )
        operation.notes += self.memory.notes
        if not operation.stages:  # then all of it has to be there at once
            answers = operation.agree(AgreementKind.COUNT, (self._held_bytes(local, distribution),))
            operation.need(int(answers[:, 0].max()))

    def _held_bytes(self, local: LocalJoin, distribution: JoinDistribution) -> int:
        """A limit under which both sides are exchanged at once, and the result is held, as it is expected."""
        here, size = self.sizes[self.operation.rank], self.size
        used = int(here[5] - here[6] + here[7])  # what is staged now would be held
        # Before the rows meet nobody knows how many partners they have: twice as many as is likely.
        total, row_bytes = 2 * int(self.memory.result_bytes), self.costs.out_row_bytes
        result, received, sending = likely_most(total // size, row_bytes, total), 0, 0
        for name in distribution.moved:
            part, place = self.parts[name], 0 if name == "left" else 2
            every, count = int(self.sizes[:, place].sum()), int(self.sizes[:, place + 1].sum())
            everywhere = distribution.kind == "broadcast"
            received += every if everywhere else likely_most(every // size, every / max(count, 1), every)
            variable = max(0, part.nbytes - part.rows * part.schema.row_bytes)
            scratch = self.workspace.backend.partition_scratch_bytes(part.rows, size)
            sending = max(sending, part.nbytes + variable + scratch)
        beside, rows = used + received, int(result / max(row_bytes, 1.0))
        enough = local.enough(self.parts["left"], self.parts["right"], result, rows, beside)
        return max(enough, beside + sending) * (_UNEVEN + 1) // _UNEVEN

    def _passes(self, local: LocalJoin, distribution: JoinDistribution) -> int | None:
        """Join in passes; the bucket from which on that does not fit, None where all did."""
        operation, work = self.operation, self.work
        make_room_for_passes(operation, self.memory, self.sizes)
        keys = {name: distribution.keys(name) for name in self.parts}
        exchange = PartitionExchange(operation, self.parts, keys, self.limits, scatters=self.costs.scatters)
        if not exchange.learn(self.costs.chunk_bytes):
            return 0
        sizes = exchange.sizes(self.spec, self.build, self.memory.result_bytes)
        passes = PartitionedJoin(local, exchange, sizes, self.costs, self.limits)
        first, work.kept_free_bytes = 0, 0
        while first < exchange.buckets:
            if not passes.predict(first):
                break
            if passes.done < 2:
                # The first pass tells more, and its peak is in these.
                self._record("chunked", IN_PASSES, passes.results, passes.peaks, passes.passes, before=0)
            before, first = first, passes.step(first, lambda parts: self._validate(local, distribution, parts))
            if first == before:
                break
        if first == exchange.buckets:  # and nothing else follows: what is brought to other dtypes stays in memory too
            exchange.drop()
            assert operation.plan is not None
            operation.plan = replace(operation.plan, rounds=operation.record.rounds_done, passes=passes.done)
            return None
        work.kept_free_bytes = None
        if passes.done:
            operation.notes.append(f"{passes.done} passes fitted into memory, and what was left did not")
        self.exchange, local.apart = exchange, self.size * exchange.buckets
        return first

    def _move(self, distribution: JoinDistribution, first: int) -> None:
        """Bring rows to where they meet: all that is left of both sides."""
        if self.exchange is None:
            for name in distribution.moved:
                self.parts[name] = self._moved(self.parts[name], distribution.kind, distribution.keys(name))
            return
        for name in self.parts:
            part, strategy = self.exchange.rest(name, first)
            self.parts[name] = self.work.adopt(part)
            self.exchanged.append(strategy)
        self.exchange.drop()

    def _moved(self, part: Part, kind: str, keys: tuple[Label, ...]) -> Part:
        """Exchange one side; what it comes to is evicted for the work that follows."""
        if kind == "shuffle":
            step, names = Step(self.operation, part, compare=False), cast("list[str]", list(keys))
            stats = step.stats()
            route = HashRoute(names, self.size, keep_order=False)
            result = exchange_table(step, part, route, stats, Partitioning(tuple(names), self.size))
        else:
            step = Step(self.operation, part, "allgather", compare=False)
            stats = step.stats()
            to_all = RangeRoute.whole(step.rows, step.rank, stats.variable_row_bytes)
            result = exchange_table(step, part, to_all, stats)
        step.done()
        if step.plan is not None:
            self.exchanged.append(step.plan.strategy)
        return self.work.adopt(result)

    # ---- local work

    def _buckets(self, local: LocalJoin) -> int:
        """Into how many buckets all ranks split what they have: one where the indexed side fits everywhere."""
        operation, left, right = self.operation, self.parts["left"], self.parts["right"]
        needed = local.build_bytes(self.parts[local.build])
        self._make_room(needed, needed + int(max(left.rows, right.rows) * local.out_row_bytes(left, right)))
        if operation.may_stage and 2 * needed > self.work.room():
            self.work.evict(self.workspace.budget.limit_bytes)  # what was exchanged is read back piece by piece
            needed = local.build_bytes(self.parts[local.build])
        if not operation.may_stage or self.spec.how == "cross":
            return 1
        answers = operation.agree(AgreementKind.COUNT, (needed, self.work.room()))
        wanted = int(np.ceil(2 * answers[:, 0] / answers[:, 1]).max())
        buckets = 1 if wanted <= 1 else min(MOST_BUCKETS, 2 * wanted)
        if buckets > 1 and writes_runs(self.work):  # smaller indexes leave room for larger pieces that are looked up
            variable = any(schema.variable for schema in self.schemas.values())
            buckets = max(buckets, min(MOST_RUN_BUCKETS // 2 if variable else MOST_RUN_BUCKETS, 4 * wanted))
        if buckets > 1:
            operation.notes.append(
                f"the indexed side ({local.build}) does not fit: both sides are split into {buckets} buckets"
            )
        return buckets

    def _make_room(self, needed: int, wanted: int) -> None:
        """Let tables that are not in use be evicted for what is wanted, and the inputs for what is needed."""
        operation, workspace = self.operation, self.workspace
        if operation.may_stage:
            limit = workspace.budget.limit_bytes
            joined = (*self.work.made, *self.parts.values())
            read_back = sum(part.largest_staged_bytes for part in self.parts.values())  # beside the index
            spare = 0 if self.memory.passes == 1 else max(limit // 4, read_back + limit // 8)
            others = [part for part in operation.not_in_use() if not any(part is one for one in joined)]
            workspace.make_room(min(limit, wanted + spare), limit, others)
            inputs = [operation.request.part, *operation.request.others]
            workspace.make_room(min(limit, needed + spare), limit, inputs, with_views=True)
        workspace.spill.flush()

    def _validate(self, local: LocalJoin, distribution: JoinDistribution, parts: Mapping[str, Part]) -> None:
        """Keys that should be distinct and are not are an error on all ranks."""
        sides = self.spec.unique_sides
        if not sides:
            return
        found = [0, 0]
        for place, side in enumerate(("left", "right")):
            if side in sides:
                found[place] = local.duplicates(parts[side], side)
        answers = self.operation.agree(AgreementKind.COUNT, found)
        for place, side in enumerate(("left", "right")):
            everywhere = distribution.kind == "broadcast" and side in distribution.moved
            total = int(answers[:, place].max() if everywhere else answers[:, place].sum())
            if total:
                keys = local.keys[side]
                raise agreed(
                    ArgumentError(
                        f"validate={self.spec.validate!r}: {total} rows of the {side} side repeat a key "
                        f"({shown_labels(keys)}) of another row.",
                        advice="Drop them before, for example with drop_duplicates, or validate something else.",
                        side=side,
                        repeated_rows=total,
                    )
                )

    def _produce(self, local: LocalJoin, buckets: int) -> None:
        """Make the result; where it is to be held, its size is known to all ranks first."""
        left, right = self.parts["left"], self.parts["right"]
        used = self.workspace.budget.used_bytes
        # Splitting uses them up: what is asked of them is asked before.
        rows = {name: part.rows for name, part in self.parts.items()}
        row_bytes = local.out_row_bytes(left, right)
        work = local.run(left, right, buckets)
        with self._counted_where_too_large(local, used):
            first = next(work, ProbeBatch(0, 0))
        pairs = first.pairs * (rows[local.probe] / first.rows) if first.rows else 0
        if self.spec.filters:
            pairs = min(pairs, rows["left"])
        elif buckets == 1 and first.indexed:
            pairs *= rows[local.build] / first.indexed
        least = 0 if self.spec.filters else least_bytes(first.pairs, local.result.schema)  # the first pairs' alone
        exact = first.rows == rows[local.probe] and first.indexed in (0, rows[local.build])
        result = min(MOST_BYTES, int(pairs * row_bytes))
        if not self._plan(local, int(pairs), result, exact=exact, buckets=buckets, least=least):
            del work  # with its index
            self._refuse(local, local.count(left, right), used)
            work = local.run(left, right, buckets)
        with self._counted_where_too_large(local, used):
            for _ in work:
                pass

    def _counted_where_too_large(self, local: LocalJoin, used: int) -> raised_as:
        """Around work on a result that is to be held: where it does not fit, the error says what all of it takes."""

        def other(error: Exception) -> Exception | None:
            if self.operation.may_stage or not isinstance(error, self.workspace.out_of_memory):
                return None
            self.work.forget(local.result)
            return self._too_large(local, local.count(self.parts["left"], self.parts["right"]), used)

        return raised_as(other)

    def _refuse(self, local: LocalJoin, rows: int, used: int) -> None:
        """Collective: all ranks call it. Refuse a result that has to be held, and does not fit."""
        error = self._too_large(local, rows, used)
        enough, limits = error.numbers["would_do"], self.limits
        answers = self.operation.agree(AgreementKind.COUNT, (enough, error.numbers["needed_bytes"], used))
        beside = 0 if self.operation.may_stage else answers[:, 2]
        if (answers[:, 1] + beside > limits).any():
            worst = int(np.argmax(answers[:, 0] - limits))
            asked = self.operation.options.strategy
            what = "The result of a join" + (f" with strategy={asked!r}" if asked != "auto" else "")
            would_do, needed, in_use, limit = (int(n[worst]) for n in (*answers[:, :3].T, limits))
            raise agreed(exceeded(what, needed, in_use, limit, rank=worst, would_do=would_do))

    def _too_large(self, local: LocalJoin, rows: int, used: int) -> BudgetExceeded:
        """The error of a result of so many rows that has to be held, with so much in use before it."""
        result, enough = self._needs(local, rows, used)
        return exceeded("The result of a join", result, used, self.workspace.budget.limit_bytes, would_do=enough)

    def _needs(self, local: LocalJoin, rows: int, used: int) -> tuple[int, int]:
        """Bytes of a result of so many rows, and the limit that is enough to hold it."""
        left, right = self.parts["left"], self.parts["right"]
        result = min(MOST_BYTES, int(rows * local.out_row_bytes(left, right)))
        enough = local.enough(left, right, result, rows, used)
        if local.result.schema.variable:
            enough += result // _UNEVEN  # rows with many partners may be long ones
        return result, enough

    def _plan(self, local: LocalJoin, pairs: int, result: int, *, exact: bool, buckets: int, least: int) -> bool:
        """Collective: all ranks call it. Agree on what the result will be, of so many pairs and bytes on this rank, and
        plan with it; whether it fits where it has to be held, as far as it is known."""
        operation, budget = self.operation, self.workspace.budget
        # The little of it that could be held would leave the work on buckets little, and so in many small pieces.
        far_larger = buckets > 1 and result > _FAR_LARGER * budget.limit_bytes
        if far_larger:
            self.work.kept_free_bytes = budget.limit_bytes
        # The index and what was looked up in it are in use already.
        so_far = max(operation.record.measured_peak_bytes, budget.window_peak_bytes)
        at_once = -(-pairs // buckets)
        peak = max(so_far, budget.used_bytes + result + local.block_bytes(at_once))
        kept = self.work.kept_bytes(result)
        # Once a filter makes rows, less is in use than now.
        block = local.block_bytes(at_once, held=bool(kept or self.spec.filters))
        staging = max(so_far, budget.used_bytes + kept + block)
        # Buckets differ, and what is made of one is held in what the work on it leaves free, until the next one's.
        if buckets > 1 and not far_larger and kept < result and operation.options.strategy != "staged":
            staging = max(staging, min(peak, int(_FILLED * budget.limit_bytes)))
        result += local.result.nbytes  # of passes before
        _, enough = self._needs(local, pairs, budget.used_bytes)
        answers = operation.agree(AgreementKind.COUNT, (result, peak, exact, budget.used_bytes, staging, least, enough))
        refuse_too_large(operation, self.limits, answers[:, 5].tolist())
        results, peaks = answers[:, 0], answers[:, 1]
        limits = self.limits
        # Rows that no piece was looked up for are made, and perhaps staged, before this is asked.
        fits = bool((np.maximum(peaks, results) <= limits).all())
        held = fits and buckets == 1 and operation.options.strategy != "staged"
        self.settled = held and bool(answers[:, 2].all()) and not local.result.schema.variable
        self.settled &= not kept_sides(self.spec)  # where rows may be missing, dtypes depend on it
        if held:  # and nothing else follows
            self.work.kept_free_bytes = 2 * local.block_bytes(pairs)
        strategy, reason = choose_strategy(operation.options.strategy, self.exchanged, fits=held)
        if not operation.may_stage and strategy == "staged":
            strategy, reason = "direct", "because nothing may be staged"
        holds = held or not operation.may_stage
        self._record(strategy, reason, results, np.minimum(peaks if holds else answers[:, 4], limits))
        if not answers[:, 2].all():
            operation.notes.append("the result was estimated from the pairs that its first rows make")
        if not operation.may_stage:
            return fits
        if strategy == "staged" or (results <= limits).all():
            return True
        if buckets > 1:  # some are done already: no more is known
            worst = int(np.argmax(results - limits))
            needed, used, would_do, limit = (int(n[worst]) for n in (results, answers[:, 3], answers[:, 6], limits))
            what = f"The result of a join with strategy={strategy!r}"
            raise agreed(exceeded(what, needed, used, limit, rank=worst, would_do=would_do))
        return False

    def _record(
        self,
        strategy: str,
        reason: str,
        results: AnyNumbers,
        peaks: AnyNumbers,
        passes: int = 1,
        *,
        before: int | None = None,
    ) -> None:
        """Note the plan: here, where the operation's record is, and for whoever asks the result."""
        operation, record, base = self.operation, self.operation.record, self.operation.plan
        record.strategy, record.reason = strategy, reason
        record.predict(int(peaks[operation.rank]), before=before)
        record.budget_bytes = int(self.limits[operation.rank])
        operation.plan = Plan(
            verb="join",
            strategy=strategy,
            rounds=record.rounds_done,
            chunk_rows=0 if base is None else base.chunk_rows,
            round_bytes=self.costs.chunk_bytes if base is None else base.round_bytes,
            result_bytes=int(results.max()),
            budget_bytes=int(self.limits.min()),
            reason=reason,
            assumption="",
            predicted_peaks=tuple(int(n) for n in peaks),
            passes=passes,
            route=operation.workspace.route,
        )

    # ---- the end

    def _finish(self, local: LocalJoin, distribution: JoinDistribution) -> Part:
        """Agree on dtypes, which depend on whether a row is missing anywhere."""
        operation, made = self.operation, local.result
        missing_left = missing_right = staged = False
        if not self.settled:
            numbers = (local.missing["left"], local.missing["right"], made.staged_bytes > 0)
            answers = operation.agree(AgreementKind.COUNT, [int(n) for n in numbers])
            missing_left, missing_right, staged = (bool(column.any()) for column in answers[:, :3].T)
        if staged and operation.plan is not None and operation.plan.strategy != "staged":
            operation.record.strategy = "staged"
            operation.record.reason = "because the result did not fit on the device beside what is in use"
            operation.plan = replace(operation.plan, strategy="staged")
        schema = local.columns.schema(missing_left, missing_right)
        stays = None
        if distribution.kind == "broadcast":
            stays = self.stays["left" if distribution.moved[0] == "right" else "right"]
        spread = result_partitioning(local.columns, distribution, stays, self.size)
        return Part(self.workspace, schema, _of_one_schema(self.work, made, schema), spread)


def _of_one_schema(work: LocalExecutor, made: Part, schema: Schema) -> list[Chunk]:
    """The chunks of a result, which is used up: those made before a row was missing have narrower dtypes."""
    if all(chunk.schema == schema for chunk in made.chunks):
        return made.chunks
    result = work.new_part(schema)
    while made.chunks:
        chunk = made.chunks.pop(0)
        if chunk.schema == schema:
            result.chunks.append(chunk)
        else:
            _widen(work, chunk, result)
    return result.chunks


def _widen(work: LocalExecutor, chunk: Chunk, result: Part) -> None:
    """Bring rows to the dtypes of a result; an int that float64 does not hold is an error."""
    schema = result.schema
    alone = Part(work.workspace, chunk.schema, [chunk])
    rows = work.piece_rows(chunk.nbytes / chunk.rows, 2 * schema.row_bytes)
    for piece in work.pieces(alone, alone.schema, rows, using_up=True):
        for data, claim in work.apply(
            piece,
            lambda data: 2 * data.nbytes + data.rows * schema.row_bytes,
            lambda data: work.backend.concat([work.backend.cast(data, schema)]),
        ):
            work.keep(result, data, claim)
            del data
        del piece  # before the next one is read back
