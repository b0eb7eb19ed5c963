"""Groups of a rank's rows, put together inside the budget: partial results as rows come, or whole groups at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ...backends.protocol.aggregation import Aggregations, Kernel, partial_schema, result_schema
from ...backends.protocol.data import Data
from ...backends.protocol.schema import Schema
from ...engine.exchange.buckets import split_in_buckets, writes_runs
from ...engine.exec.local_executor import LocalExecutor, pieces_ahead, reading_bytes
from ...engine.plan.table_stats import MOST_BUCKETS, fan_out
from ...engine.store.part import Part
from ...errors import BudgetExceeded
from ...memory.budget import Reservation
from ...profiling import span
from .group_counts import KeysSeen, found_in, is_growing, rows_until, sample_keys
from .large_groups import fold_large_groups, may_be_large, reduce_large_group, rows_do_not_fit
from .one_table import fold_in_one_table

_DEEPEST = 4  # buckets of buckets: rows that are still too many then have one key, or nearly all of them
_APART = 16
_MOST_IDS = 1 << 32  # of a hash: keys that have the same one are not told apart by it
_TELLING = 4  # so many pieces tell how many keys are still to come
_TOLD_UNTIL = 2  # while they are such a part of the rows at the most
_STATE_IN_LIMIT = 2  # of partial results while a piece is added to them
_ROWS_A_GROUP = 16  # of a piece, where there are so many groups that this decides


class HashAggregate:
    """The groups of one operation on this rank.

    Parameters
    ----------
    work : LocalExecutor
    steps : Aggregations
    schema : Schema
        Of the rows, agreed.
    dropna : bool
        Whether rows with a missing key are left out.
    as_sets : bool, default False
        Whether rows with equal keys are taken to be far apart, those of one table and those of another: a prediction.
    """

    def __init__(
        self, work: LocalExecutor, steps: Aggregations, schema: Schema, *, dropna: bool, as_sets: bool = False
    ) -> None:
        self._as_sets = as_sets
        self._seen: KeysSeen | None = None
        self.work = work
        self.steps = steps
        self.dropna = dropna
        self.rows_schema = schema.select(steps.needed)
        self.partial_schema = partial_schema(schema, steps)
        self.result_schema = result_schema(schema, steps)
        self._scratch = work.backend.grouping_row_bytes(steps.partial)
        self._size = work.operation.size
        self._made: dict[int, int] = {}  # by identity: there may be thousands of kernels, and it is asked for often
        self._seen_kernels: list[Sequence[Kernel]] = []

    def beside(self, steps: Aggregations, *, dropna: bool | None = None, schema: Schema | None = None) -> HashAggregate:
        """Other groups of the same rows, or of rows that have a schema, in the same work."""
        dropna = self.dropna if dropna is None else dropna
        return HashAggregate(self.work, steps, self.rows_schema if schema is None else schema, dropna=dropna)

    # ---- how many groups there are

    def sample(self, part: Part) -> KeysSeen:
        """Look at some rows of a part in many places; what they tell is kept."""
        keys = Schema([self.rows_schema[key] for key in self.steps.keys])
        self._seen = sample_keys(self.work, part, keys, self._scratch)
        return self._seen

    # ---- partial results

    def fold(self, part: Part, groups: float, *, using_up: bool, in_order: bool = True) -> tuple[Part, bool]:
        """Partial results of rows, in the order in which keys begin: one row a key.

        Where the backend has a table for them all, they are added to it, and come in the order of the keys, or in any.
        Where the state does not fit, or grows with nearly every row, it is put aside and begun anew: a key then has
        several rows, which follow each other in the order of the rows they are of.

        Parameters
        ----------
        part : Part
        groups : float
            How many keys are expected here.
        using_up : bool
            Whether the rows are dropped as they are added.
        in_order : bool, default True
            Whether the order matters: not where they will be shuffled, and grouped once more.

        Returns
        -------
        Part, bool
            And whether every key has one row.
        """
        work_row_bytes = self._work_row_bytes(self.steps.partial)
        # The whole state is gone through with every piece; without keys it is one row.
        least, alone = _ROWS_A_GROUP * min(groups, part.rows), 0 if self.steps.keys else 2
        beside = self._state_row_bytes(self._row_bytes(part, self.rows_schema)) if alone else 0
        rows = self.work.piece_rows(_row_bytes(part), work_row_bytes, least=least, alone=alone, beside=beside)
        if (made := fold_in_one_table(self, part, min(groups, part.rows), rows, in_order=in_order)) is not None:
            if using_up:
                part.release()
            return made, True
        folding = _PartialAggregator(self, self.work.new_part(self.partial_schema))
        record, budget = self.work.operation.record, self.work.workspace.budget
        before, total, done, beside = record.predicted_peak_bytes, part.rows, 0, budget.used_bytes
        room = self.work.room_beside(part)
        most = self._fold_bytes(part, min(groups, total), rows, work_row_bytes, room)
        self.work.expect_now(most)
        found: list[int] = []
        for piece in self.work.pieces(part, self.rows_schema, rows, using_up=using_up):
            done += piece.rows
            folding.add(piece)
            del piece  # before the next one is read back
            found.append(folding.state_rows)
            count = len(found)
            if folding.aside or using_up or count < _TELLING or count & (count - 1) or done > total // _TOLD_UNTIL:
                continue
            # These tell more of the others than a sample did: it is predicted anew.
            self._seen = KeysSeen(done, found[-1], found[count // 2 - 1], found[count // 4 - 1])
            width = folding.state_bytes / max(folding.state_rows, 1)
            most = self._fold_bytes(part, self._seen.expected(total), rows, work_row_bytes, room, width)
            peak = min(budget.limit_bytes, beside + int(most))
            record.predict(max(budget.window_peak_bytes, peak), before=before)
        return folding.close(), not folding.aside

    def _fold_bytes(
        self, part: Part, groups: float, rows: int, work_row_bytes: float, room: int, width: float | None = None
    ) -> float:
        """What folding takes in so much room: beside a piece stands what the rows before it gave, and that once more,
        if it fits; where it is known how wide that is."""
        if not part.rows or not groups:
            return 0.0
        row_bytes, work = self._row_bytes(part, self.rows_schema), self.work
        state_row_bytes = self._state_row_bytes(row_bytes) if width is None else 4 * width + self._scratch
        most, seen = 0.0, 0
        table = work.backend.grouping_table_bytes(self.rows_schema, self.steps.keys, self.steps.partial)
        for ahead in pieces_ahead(part, self.rows_schema, rows):
            piece = ahead.rows * (row_bytes + work_row_bytes)
            working = ahead.kept + (min(piece, table) if table else piece) + ahead.rows * ahead.cast_row_bytes
            most = max(most, ahead.joining + self._found(groups, seen) * state_row_bytes / 4)
            for _ in range(ahead.pieces):
                before = self._found(groups, seen)
                if working + before * state_row_bytes > room:
                    before = seen = 0  # put aside, and begun anew
                most = max(most, working + before * state_row_bytes)
                seen += ahead.rows
                if is_growing(self._found(groups, seen), before, ahead.rows):
                    seen = 0
        return min(most, room)

    def _state_row_bytes(self, row_bytes: float) -> float:
        """Of partial results, while a piece is added to them; their variable columns are about as wide as the rows'."""
        variable = max(0.0, row_bytes - self.rows_schema.row_bytes) if self.partial_schema.variable else 0.0
        return 4 * (self.partial_schema.row_bytes + variable) + self._scratch

    def fits_folded(self, part: Part, groups: float) -> bool:
        """Whether the partial results of so many keys fit, and a piece of rows beside them."""
        limit = self.work.workspace.budget.limit_bytes
        return groups * self._state_row_bytes(self._row_bytes(part, self.rows_schema)) <= limit / _STATE_IN_LIMIT

    def folded_rows(self, part: Part, groups: float) -> float:
        """How many partial results there will be of so many keys: of a key several, where those of all do not fit, are
        put aside and begun anew."""
        limit = self.work.workspace.budget.limit_bytes
        held = limit / _STATE_IN_LIMIT / self._state_row_bytes(self._row_bytes(part, self.rows_schema))
        if groups <= held:
            return groups
        if held < 1:  # each row is put aside alone
            return float(part.rows)
        until = rows_until(groups, held) if self._seen is None else self._seen.rows_until(held, part.rows)
        return groups if until >= part.rows else max(groups, part.rows * held / until)

    @staticmethod
    def _row_bytes(part: Part, schema: Schema) -> float:
        """Of a part's rows once they have a schema's dtypes."""
        return _row_bytes(part) if schema.variable else schema.row_bytes

    def _found(self, groups: float, rows: int) -> float:
        if self._as_sets:
            return min(groups, rows)
        return found_in(groups, rows) if self._seen is None else min(groups, self._seen.found_in(rows))

    def _needed(self, data: Data, kernels: Sequence[Kernel]) -> int:
        """Bytes for grouping rows: temporaries, the keys and what is made, if every row had a key of its own."""
        return data.nbytes + int(data.rows * self._work_row_bytes(kernels))

    def _work_row_bytes(self, kernels: Sequence[Kernel]) -> int:
        """Temporaries and what is made; without keys that is one row."""
        return self._scratch + (self._made_row_bytes(kernels) if self.steps.keys else 0)

    def _made_row_bytes(self, kernels: Sequence[Kernel]) -> int:
        known = self._made.get(id(kernels))
        if known is None:
            made = [8 if c.dtype is None else c.dtype.itemsize for kernel in kernels for c in kernel.outputs]
            known = self._made[id(kernels)] = sum(made)
            self._seen_kernels.append(kernels)  # of which nobody else then has the identity
        return known

    # ---- whole groups

    def whole(self, part: Part, kernels: Sequence[Kernel], result: Part, *, using_up: bool) -> None:
        """Compute groups of which all rows are here, and their last step, into a result.

        Where the rows do not fit at once, they are split by the hash of their keys, and each bucket is computed; where
        those of one key do not, see `reduce_large_group`.

        Raises
        ------
        BudgetExceeded
            If the rows of one key do not fit, and are needed at once.
        """
        self._whole(part, kernels, result, using_up, self._size, 0)

    def _whole(
        self, part: Part, kernels: Sequence[Kernel], result: Part, using_up: bool, ids: int, depth: int,
        *, apart: bool = False,
    ) -> None:  # fmt: skip
        if not part.rows:
            return
        schema = self.rows_schema if kernels is self.steps.partial else self.partial_schema
        rows = part.rows
        # What may be in memory at once of many rows: themselves, and once more while they are brought together.
        needed = 2 * part.nbytes + rows * (self._scratch + self._made_row_bytes(kernels))
        limit = self.work.workspace.budget.limit_bytes
        # Where the rows of a key need not fit, those of others are split off until it stands alone.
        last = ids * _APART > _MOST_IDS if may_be_large(self.steps) else depth >= _DEEPEST
        if needed <= limit:
            self._expect_whole(part, schema, kernels)
        too_much: tuple[type[Exception], ...] = (*self.work.workspace.out_of_memory, _TooMuch)
        try:
            if needed > limit and not last and self.steps.keys:
                raise _TooMuch
            self._at_once(part, schema, kernels, result)
            done, keys = True, 0
        except too_much:
            if rows <= 1 or not self.steps.keys:
                raise self._too_many(part, schema, kernels) from None
            done, keys = self._large(part, schema, kernels, result)
            if not done and last:
                raise self._too_many(part, schema, kernels) from None
        if done:
            if using_up:
                self.work.forget(part)
            return
        # Where a key's rows may not fit, few keys are told apart at once; after a split it is one of many rows.
        least = _APART if apart or 2 * needed > limit * keys > 0 else 2
        # Half of the limit, as they are not even, or most of what is free once all are staged: an input may stay there.
        free = self.work.room_beside(part) + using_up * part.device_bytes
        most = max(1, min(limit // 2, free * 3 // 4))
        wanted = -(-needed // most)
        variable = bool(schema.variable)
        split = fan_out(wanted, variable=variable) if writes_runs(self.work) else min(MOST_BUCKETS, wanted)
        buckets = min(max(least, split), _MOST_IDS // ids)
        for bucket in split_in_buckets(
            self.work, part, list(self.steps.keys), buckets, apart=ids, using_up=using_up, schema=schema
        ):
            self._whole(bucket, kernels, result, True, ids * buckets, depth + 1, apart=wanted <= buckets)
            self.work.forget(bucket)

    def _large(self, part: Part, schema: Schema, kernels: Sequence[Kernel], result: Part) -> tuple[bool, int]:
        """Compute a group that does not fit at once, if rows are one: whether they were, and how many keys are seen."""
        try:
            seen = self.sample(part)
            keys = seen.found
            if self.steps.merge is not None:
                return fold_large_groups(self, part, kernels, result, seen.looked_at, keys), 0
            return keys == 1 and may_be_large(self.steps) and reduce_large_group(self, part, result), keys
        except self.work.workspace.out_of_memory:
            raise self._too_many(part, schema, kernels) from None

    def _expect_whole(self, part: Part, schema: Schema, kernels: Sequence[Kernel]) -> None:
        """Predict grouping all rows at once; where that does not fit once they are read, they are split."""
        reading, needed = self._steps_bytes(part, schema, kernels)
        self.work.expect_now(max(reading, needed if needed <= self.work.room_beside(part) else 0))

    def _steps_bytes(self, part: Part, schema: Schema, kernels: Sequence[Kernel]) -> tuple[float, float]:
        """What grouping all rows at once takes while they are read, and while they are grouped."""
        kept, joining = reading_bytes(part.chunks)
        row_bytes = self._row_bytes(part, schema)
        cast = sum(
            chunk.nbytes + chunk.rows * row_bytes
            for chunk in part.chunks
            if chunk.schema.select(schema.names) != schema
        )
        work = part.rows * (row_bytes + self._scratch + self._made_row_bytes(kernels))
        once = cast if len(part.chunks) == 1 else 0  # a copy of several is made with their dtypes
        return joining + cast, kept + once + work

    def _too_many(self, part: Part, schema: Schema, kernels: Sequence[Kernel]) -> BudgetExceeded:
        """Rows of one key that do not fit, with what all steps take: what did not fit was one of them."""
        made = part.nbytes + part.rows * self._made_row_bytes(self.steps.finish)  # which the last step copies
        return rows_do_not_fit(self, int(max(*self._steps_bytes(part, schema, kernels), 3 * made)))

    def _at_once(self, part: Part, schema: Schema, kernels: Sequence[Kernel], result: Part) -> None:
        keys, work = list(self.steps.keys), self.work
        with ExitStack() as held:
            data = work.everything(part, schema, held)
            claim = work.claim(self._needed(data, kernels))
            with span("group", "algorithm", bytes=data.nbytes):
                made = work.backend.aggregate(data, keys, kernels, dropna=self.dropna)
        claim.resize(made.nbytes)
        some = work.new_part(self.result_schema)  # of its own: where not all of them fit, none is in the result
        try:
            self.finish(made, claim, some)
            result.chunks.extend(some.chunks)
        finally:
            work.forget(some)

    def finish_all(self, partial: Part, result: Part) -> None:
        """The last step on partial results that have one row a key, which are used up."""
        rows = self.work.piece_rows(_row_bytes(partial), self.result_schema.row_bytes)
        for piece in self.work.pieces(partial, self.partial_schema, rows, using_up=True):
            self._finish(piece, result)
            del piece  # before the next one is read back

    def finish(self, made: Data, claim: Reservation, result: Part) -> None:
        """The last step on whole groups that were made under a claim."""
        rows = self.work.piece_rows(made.nbytes / max(made.rows, 1), self.result_schema.row_bytes)
        count = -(-made.rows // rows)
        if count:
            made_bytes = made.nbytes + made.rows * self._made_row_bytes(self.steps.finish)
            self.work.expect_now(2 * made_bytes / count + self.work.kept_bytes(made.nbytes * (count - 1) / count))
        with claim:
            for i in range(count):
                piece = self.work.backend.slice(made, made.rows * i // count, made.rows * (i + 1) // count)
                self._finish(piece, result)

    def _finish(self, piece: Data, result: Part) -> None:
        backend, keys, kernels = self.work.backend, list(self.steps.keys), self.steps.finish
        made_row_bytes = self._made_row_bytes(kernels)
        for done, kept in self.work.apply(
            piece,
            lambda data: 2 * data.nbytes + 2 * data.rows * made_row_bytes,
            lambda data: backend.concat([backend.finish(data, keys, kernels)]),
        ):
            self.work.keep(result, done, kept)


class _TooMuch(Exception):
    """Rows are so many that trying is not worth it."""


class _PartialAggregator:
    """Rows added to a state piece by piece."""

    def __init__(self, grouping: HashAggregate, partial: Part) -> None:
        self._grouping = grouping
        self._work = grouping.work
        self._partial = partial
        self._state: Data | None = None
        self._held: Reservation | None = None
        self.aside = False

    def add(self, piece: Data) -> None:
        """Add rows; where that does not fit, the state is put aside, and then they are halved."""
        grouping, steps = self._grouping, self._grouping.steps
        try:
            state_bytes = 0
            if self._state is not None:
                state_bytes = 3 * self._state.nbytes + self._state.rows * grouping._scratch
            claim = self._work.claim(grouping._needed(piece, steps.partial) + state_bytes)
            made = self._aggregated(piece)
        except self._work.workspace.out_of_memory:
            if self._state is None and piece.rows <= 1:
                raise
        else:
            self._replace(made, claim, piece.rows)
            return
        if self._state is not None:
            self._put_aside()
            self.add(piece)
            return
        half = piece.rows // 2
        self.add(self._work.backend.slice(piece, 0, half))
        self.add(self._work.backend.slice(piece, half, piece.rows))

    def _aggregated(self, piece: Data) -> Data:
        steps = self._grouping.steps
        with span("group", "algorithm", bytes=piece.nbytes):
            return self._work.backend.aggregate(
                piece, list(steps.keys), steps.partial, dropna=self._grouping.dropna, state=self._state,
                merge=steps.merge or (),
            )  # fmt: skip

    def _replace(self, made: Data, claim: Reservation, rows: int) -> None:
        if not made.rows:
            claim.release()  # all keys are missing as yet: nothing is begun
            return
        before = 0 if self._state is None else self._state.rows
        self._state = made
        if self._held is not None:
            self._held.release()
        claim.resize(made.nbytes)
        self._held = claim
        if is_growing(made.rows, before, rows):
            self._put_aside()

    def _put_aside(self) -> None:
        assert self._state is not None and self._held is not None
        state, held, self._state, self._held = self._state, self._held, None, None
        self._work.put_down(self._partial, state, held)
        self.aside = True

    @property
    def state_bytes(self) -> int:
        """Bytes of the partial results since the state was begun."""
        return 0 if self._state is None else self._state.nbytes

    @property
    def state_rows(self) -> int:
        """Keys of the rows since the state was begun."""
        return 0 if self._state is None else self._state.rows

    def close(self) -> Part:
        """All partial results."""
        if self._state is not None and self._held is not None:
            self._work.keep(self._partial, self._state, self._held)
        self._state = self._held = None
        return self._partial


def _row_bytes(part: Part) -> float:
    return part.nbytes / max(part.rows, 1)
