"""Set operations of whole rows: how often a row stands in each table decides how often it stands in the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pyarrow as pa

from ...backends.protocol.aggregation import Aggregations, Kernel, whole_rows
from ...backends.protocol.data import Data
from ...backends.protocol.expressions import Expression, col
from ...backends.protocol.promotion import fixed_column
from ...backends.protocol.schema import Column, Label, Schema, require_hashable, shown_labels
from ...engine.exchange.exchange import shuffled
from ...engine.exec.align_schemas import Sides, agree_sides, common_schema, new_label, spread_of
from ...engine.exec.invocation import AUTO, Request, RunOptions, require_columns
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.plan import Plan
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part, Partitioning
from ...engine.store.views import MarkedChunk, ShownPart
from ...engine.store.workspace import Workspace
from ...errors import UnsupportedDtype
from ...memory.budget import Reservation
from ..group.groupby import group_rows, shared_checks
from ..rowwise.rowwise import chosen_rows
from .concat import appended

NAMES = ("this table", "the other table")


def set_operation(
    workspace: Workspace,
    left: Part,
    right: Part,
    verb: str,
    *,
    every: bool,
    options: RunOptions = AUTO,
    check: Callable[[], None] | None = None,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Put rows of two tables together as sets, or as multisets.

    Parameters
    ----------
    workspace
        This rank's means.
    left, right : Part
        Its rows.
    verb : {"union", "intersect", "difference"}
    every : bool
        Whether equal rows count, as SQL's ALL says; otherwise a row stands once in the result.
    options, check
        See `Request`.

    Returns
    -------
    Part, Plan

    Raises
    ------
    ColumnMissing, SchemaMismatch
        If the tables have not the same columns, or no dtype holds both sides' values.
    UnsupportedDtype
        If values of a column have no equality here (lists, structs).
    """
    request = Request(verb, {"all": every}, left, options, check, (right,))

    def body(operation: Operation) -> Part:
        sides = agree_sides(operation, (left, right))
        schema = common_schema(sides, NAMES)
        if verb == "union" and every:
            return appended(operation, (left, right), schema)
        return _SetOperation(operation, schema, every=every).run(verb, left, right, sides)

    return run_operation(workspace, request, body)


class _SetOperation:
    """One of them, on this rank."""

    def __init__(self, operation: Operation, schema: Schema, *, every: bool) -> None:
        self.operation, self.schema, self.every = operation, schema, every

    def run(self, verb: str, left: Part, right: Part, sides: Sides) -> Part:
        if verb == "union":
            return self._distinct(left, right, sides)
        counted = counted_rows(self.operation, left, right, sides, self.schema, every=self.every)
        work = LocalExecutor(self.operation, "Choosing rows")
        work.adopt(counted.part)
        result = work.new_part(self.schema)
        if self.every:
            for made, claim in _repeated(work, counted, self.schema, counted.wanted(verb)):
                work.keep(result, made, claim)
        else:
            for made, claim in chosen_rows(work, counted.part, counted.holds(verb), self.schema):
                work.keep(result, made, claim)
        result.partitioning = counted.part.partitioning
        return result

    def _distinct(self, left: Part, right: Part, sides: Sides) -> Part:
        with shared_checks():
            require_equality(self.schema)
            steps = whole_rows(self.schema, self.schema.names, "first")
        parts, moved, spread = meet(self.operation, left, right, sides)
        both = ShownPart(self.operation.workspace, self.schema, parts, lambda place, chunk: chunk, spread)
        return group_rows(self.operation, both, steps, dropna=False, schema=self.schema, giving=moved)


class Counted:
    """The distinct rows of two tables, and how often each stands there: columns ``first`` and ``second``.

    With ``every`` these are the number of all and that of the other table's, otherwise the least and the greatest
    number of a table that has the row: 0 is this one, 1 the other.
    """

    def __init__(self, part: Part, first: Label, second: Label) -> None:
        self.part, self.first, self.second = part, first, second

    def holds(self, verb: str) -> Expression:
        """Which rows an operation on sets gives."""
        return (col(self.first) == 0) & (col(self.second) == (1 if verb == "intersect" else 0))

    def wanted(self, verb: str) -> Expression:
        """How often a row stands in the result of an operation on multisets."""
        here, there = col(self.first) - col(self.second), col(self.second)
        return here.where(here < there, there) if verb == "intersect" else (here - there).clip(lower=0)


def require_equality(schema: Schema) -> None:
    """Refuse tables whose rows cannot be compared.

    Raises
    ------
    ArgumentError
        If they have no columns.
    UnsupportedDtype
        If values of a column have no equality here, by its name.
    """
    require_columns(schema)
    for column in schema:
        try:
            require_hashable(column)
        except UnsupportedDtype:
            raise UnsupportedDtype(
                f"Column {column.name!r} ({column.describe()}) holds values that rows cannot be compared by.",
                advice="Drop it or convert it before, for example to text.",
                column=str(column.name),
            ) from None


def counted_rows(
    operation: Operation, left: Part, right: Part, sides: Sides, schema: Schema, *, every: bool
) -> Counted:
    """Collective: all ranks call it. Bring equal rows of two tables together, and count them."""
    mark = fixed_column(new_label(schema.names, "table"), pa.int8())
    with shared_checks():
        require_equality(schema)
        steps = _counting(schema, mark, every=every)
    parts, moved, spread = meet(operation, left, right, sides)
    work = LocalExecutor(operation, "Telling two tables apart")
    for part in moved:
        work.adopt(part)

    def show(place: int, chunk: Chunk) -> Chunk:
        return MarkedChunk(chunk, [(mark, place)], operation.workspace, work.claim)

    work.make_room(0.0, 0)
    marked = Schema([*schema, mark])
    both = ShownPart(operation.workspace, marked, parts, show, spread)
    part = group_rows(operation, both, steps, dropna=False, schema=marked, giving=moved)
    return Counted(part, *(kernel.outputs[0].name for kernel in steps.finish))


def _counting(schema: Schema, mark: Column, *, every: bool) -> Aggregations:
    """The steps that count the rows of each table, or say which tables have a row."""
    taken = [*schema.names, mark.name]
    names = [new_label(taken, name) for name in ("first", "second")]
    functions = ("size", "sum") if every else ("min", "max")
    outputs = [fixed_column(name, pa.int64() if every else pa.int8()) for name in names]
    partial = tuple(
        Kernel(function, () if function == "size" else (mark.name,), (column,))
        for function, column in zip(functions, outputs, strict=True)
    )
    merging = ("sum", "sum") if every else functions
    merge = tuple(Kernel(f, (column.name,), (column,)) for f, column in zip(merging, outputs, strict=True))
    finish = tuple(Kernel("same", (column.name,), (column,)) for column in outputs)
    return Aggregations(schema.names, partial, merge, finish)


def meet(
    operation: Operation, left: Part, right: Part, sides: Sides
) -> tuple[tuple[Part, Part], list[Part], Partitioning | None]:
    """Collective: all ranks call it. Where one of two tables is spread by some of its columns, bring the other one's
    rows to it: both are together then. Otherwise they stay as they are.

    Returns
    -------
    tuple of Part, list of Part, Partitioning or None
        The tables, those of them that the operation has made, and how both are spread.
    """
    size = operation.size
    spread = spread_of((left, right), size)
    known = [part.partitioning is not None and part.partitioning.size == size for part in (left, right)]
    if spread is not None or size == 1 or not any(known):
        return (left, right), [], spread
    stays = staying(
        [part.partitioning if there else None for part, there in zip((left, right), known, strict=True)],
        sides.nbytes.sum(axis=1).tolist(),
    )
    parts = [left, right]
    spread = parts[stays].partitioning
    assert spread is not None
    operation.notes.append(staying_note(stays, spread.keys))
    parts[1 - stays] = shuffled(operation, parts[1 - stays], cast("list[str]", list(spread.keys)))
    return (parts[0], parts[1]), [parts[1 - stays]], spread


def staying(spread: Sequence[object], nbytes: Sequence[int]) -> int:
    """Which of two tables stays where it is: the one that is known to be spread by keys, the larger one of two."""
    return 0 if spread[0] is not None and (spread[1] is None or nbytes[0] >= nbytes[1]) else 1


def staying_note(stays: int, keys: Sequence[Label]) -> str:
    """What a plan says of a table that is not shuffled."""
    by = shown_labels(keys)
    return f"{NAMES[stays]} is partitioned by {by} already: only {NAMES[1 - stays]} is shuffled"


def _repeated(
    work: LocalExecutor, counted: Counted, schema: Schema, wanted: Expression
) -> Iterator[tuple[Data, Reservation]]:
    """Each row as often as an expression says; the part is used up."""
    backend, part = work.backend, counted.part
    times = new_label(part.schema.names, "times")
    scratch = backend.evaluating_row_bytes(part.schema, [wanted]) + 32
    rows = work.piece_rows(part.nbytes / max(part.rows, 1), scratch)
    total, counts = part.rows, part.schema.row_bytes - schema.row_bytes
    work.expect_pieces(part, part.schema, rows, scratch)
    done = 0
    for piece in work.pieces(part, part.schema, rows, using_up=True):
        with work.claim(piece.rows * scratch):
            ends = backend.repetitions(backend.evaluate(piece, [(times, wanted)]), times)
            count = int(ends[-1]) if piece.rows else 0
            row_bytes = piece.nbytes / max(piece.rows, 1)
            if not done and count:  # the first piece says about how many there will be
                _expect_blocks(work, count, total / piece.rows, row_bytes, row_bytes - counts)
            done += piece.rows
            yield from _blocks(work, backend.select(piece, schema.names), ends, count, row_bytes)
        del piece, ends  # before the next one is read back


def _expect_blocks(work: LocalExecutor, count: int, pieces: float, row_bytes: float, made_row_bytes: float) -> None:
    """Predict repeating the rows of some pieces, each to so many: beside a block stands what was made before it."""
    step = _block_rows(work, row_bytes)
    before = count * (pieces - 1)
    for start, rows in ((max(0, count // step - 1) * step, min(count, step)), (count // step * step, count % step)):
        work.expect_now(work.kept_bytes((before + start) * made_row_bytes) + rows * (2 * row_bytes + 16))


def _block_rows(work: LocalExecutor, row_bytes: float) -> int:
    return work.piece_rows(row_bytes, row_bytes + 16)


def _blocks(
    work: LocalExecutor, data: Data, ends: Any, count: int, row_bytes: float
) -> Iterator[tuple[Data, Reservation]]:
    """The repeated rows of a piece, block by block; where one does not fit, its halves."""
    step = _block_rows(work, row_bytes)
    waiting = [(start, min(start + step, count)) for start in range(0, count, step)][::-1]
    while waiting:
        start, stop = waiting.pop()
        claim: Reservation | None = None
        try:
            claim = work.claim(int((stop - start) * (2 * row_bytes + 16)))
            made = work.backend.repeated(data, ends, start, stop)
            claim.resize(made.nbytes)
        except work.workspace.out_of_memory:
            if claim is not None:
                claim.release()
            if stop - start <= 1:
                raise
            waiting += [((start + stop) // 2, stop), (start, (start + stop) // 2)]
            continue
        yield made, claim
