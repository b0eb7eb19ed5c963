"""Whether two tables are equal, and where they differ first: row by row in global order, or as multisets of rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np

from ...backends.host.comparing import first_difference, unlike_columns
from ...backends.protocol.data import Data
from ...backends.protocol.expressions import col
from ...backends.protocol.schema import Label, Schema
from ...engine.exchange.exchange import Step, exchange_table
from ...engine.exchange.routes import RangeRoute
from ...engine.exec.agreement import AgreementKind
from ...engine.exec.align_schemas import Sides, agree_sides, common_schema, first_rows
from ...engine.exec.invocation import AUTO, Request, RunOptions
from ...engine.exec.local_executor import LocalExecutor, pieces_ahead
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import SchemaMismatch
from ...units import format_count
from ..group.groupby import shared_checks
from ..rowwise.rowwise import chosen_rows
from .set_operations import NAMES, counted_rows, require_equality

_SCRATCH_ROW_BYTES = 16  # what compares two values of a row, and says so


def why_not_equal(
    workspace: Workspace,
    left: Part,
    right: Part,
    verb: str,
    *,
    ordered: bool,
    check_dtype: bool,
    options: RunOptions = AUTO,
    check: Callable[[], None] | None = None,
) -> str:
    """Collective: all ranks call it. Compare two tables: their first difference in words, empty where there is none.

    Parameters
    ----------
    workspace
        This rank's means.
    left, right : Part
        Its rows.
    verb : str
        What it is called for.
    ordered : bool
        Whether rows must stand in the same global order.
    check_dtype : bool
        Whether dtypes must be the same.
    options, check
        See `Request`.

    Raises
    ------
    UnsupportedDtype
        If rows are compared in no order and values of a column have no equality here (lists, structs).
    """
    said: list[str] = []
    arguments = {"ordered": ordered, "check_dtype": check_dtype}

    def body(operation: Operation) -> Part:
        sides = agree_sides(operation, (left, right))
        said.append(_known(sides, check_dtype=check_dtype) or _compared(operation, left, right, sides, ordered))
        # Where no row is looked at, what is in use stays as it is.
        record = operation.record
        if not record.predicted_peak_bytes:
            record.predict(workspace.budget.used_bytes)
        return left

    request = Request(verb, arguments, left, options, check, (right,))
    try:
        run_verb(workspace, request, body)
    except SchemaMismatch as error:  # told to all ranks: a value that the common dtype has not, and so no other row
        return error.message
    return said[0]


def _known(sides: Sides, *, check_dtype: bool) -> str:
    """What differs without a look at rows."""
    here, there = sides.totals
    words = unlike_columns(*sides.schemas, dtypes=check_dtype)
    if not words and here != there:
        words = f"There are {format_count(here)} rows here, {format_count(there)} in the other table."
    return words


def _compared(operation: Operation, left: Part, right: Part, sides: Sides, ordered: bool) -> str:
    if not sides.totals[0]:
        return ""
    try:
        schema = common_schema(sides, NAMES)
    except SchemaMismatch as error:
        return error.message  # values of dtypes that have nothing in common are not equal
    if not len(schema):
        return ""
    if ordered:
        return _in_order(operation, left, _cut_alike(operation, right, sides), schema, sides)
    with shared_checks():
        require_equality(schema)
    # Most tables that are equal stand in one order, too, and others differ in it soon.
    if (sides.rows[0] == sides.rows[1]).all() and not _in_order(operation, left, right, schema, sides):
        return ""
    return _as_multisets(operation, left, right, sides, schema)


def _cut_alike(operation: Operation, right: Part, sides: Sides) -> Part:
    """Collective: all ranks call it. The other table's rows on the ranks that hold the rows of their place here."""
    target, there = sides.rows
    if (target == there).all():
        return right
    edges = np.concatenate(([0], np.cumsum(target)))
    step = Step(operation, right, "repartition")
    stats = step.stats(target_rows=tuple(int(n) for n in target))
    route = RangeRoute.between(edges, there.tolist(), operation.rank, stats.variable_row_bytes)
    return exchange_table(step, right, route, stats)


def _in_order(operation: Operation, left: Part, right: Part, schema: Schema, sides: Sides) -> str:
    """Collective: all ranks call it. The first row in global order in which two tables differ that are cut alike."""
    work = LocalExecutor(operation, "Comparing rows")
    if right is not operation.request.others[0]:
        work.adopt(right)
    work.make_room(0.0, 0)
    found = _first_here(work, left, right, schema)
    here = int(sides.rows[0][: operation.rank].sum())
    answers = operation.agree(AgreementKind.COUNT, (-1,) if found is None else (here + found[0],))
    places = answers[:, 0]
    if (places < 0).all():
        return ""
    rank = int(np.argmin(np.where(places < 0, np.iinfo(np.int64).max, places)))
    mine = json.dumps(found[1]).encode() if found is not None and rank == operation.rank else b""
    words: str = json.loads(operation.workspace.transport.share(mine)[rank])
    return f"Row {format_count(int(places[rank]))} differs: {words}."


def _first_here(work: LocalExecutor, left: Part, right: Part, schema: Schema) -> tuple[int, str] | None:
    """The first row of this rank in which two parts differ, and in words how."""
    backend, first = work.backend, 0
    row_bytes = sum(part.nbytes / max(part.rows, 1) for part in (left, right))
    rows = max(1, work.piece_rows(row_bytes, row_bytes + _SCRATCH_ROW_BYTES) // 2)
    here = work.pieces_bytes(left, schema, rows, _SCRATCH_ROW_BYTES)
    there = work.pieces_bytes(right, schema, rows, 0)
    later = max((here[1] + ahead.joining for ahead in list(pieces_ahead(right, schema, rows))[1:]), default=0)
    work.expect_now(max(there[0], there[1] + max(here), later))
    for a, b in _side_by_side(work, left, right, schema, rows):
        with work.claim(a.rows * _SCRATCH_ROW_BYTES):
            found = first_difference(backend.to_host(a), backend.to_host(b))
        if found is not None:
            return first + found[0], _in_words(work.operation, a, b, *found)
        first += a.rows
        del a, b  # before the next rows are read back
    return None


def _side_by_side(
    work: LocalExecutor, left: Part, right: Part, schema: Schema, rows: int
) -> Iterator[tuple[Data, Data]]:
    """The rows of two parts in pieces of the same rows."""
    backend = work.backend
    others = work.pieces(right, schema, rows)
    other, done = next(others, None), 0
    for piece in work.pieces(left, schema, rows):
        at = 0
        while at < piece.rows and other is not None:
            count = min(piece.rows - at, other.rows - done)
            yield backend.slice(piece, at, at + count), backend.slice(other, done, done + count)
            at, done = at + count, done + count
            if done == other.rows:
                other, done = None, 0
                other = next(others, None)
        del piece


def _in_words(operation: Operation, a: Data, b: Data, row: int, column: Label) -> str:
    backend = operation.workspace.backend
    values = [first_rows(operation, backend.slice(data, row, row + 1), 1)[0][column] for data in (a, b)]
    return f"column {column!r} is {values[0]!r} here, {values[1]!r} in the other table"


def _as_multisets(operation: Operation, left: Part, right: Part, sides: Sides, schema: Schema) -> str:
    """Collective: all ranks call it. A row that does not stand as often in one table as in the other."""
    counted = counted_rows(operation, left, right, sides, schema, every=True)
    work = LocalExecutor(operation, "Comparing rows")
    work.adopt(counted.part)
    unlike = col(counted.first) != col(counted.second) + col(counted.second)
    different, words = 0, ""
    for made, claim in chosen_rows(work, counted.part, unlike, counted.part.schema):
        with claim:
            if made.rows and not words:
                words = _counts_in_words(operation, made, counted.first, counted.second)
            different += made.rows
    answers = operation.agree(AgreementKind.COUNT, (different,))
    total = int(answers[:, 0].sum())
    if not total:
        return ""
    rank = int(np.argmax(answers[:, 0] > 0))
    told = operation.workspace.transport.share(words.encode() if rank == operation.rank else b"")[rank].decode()
    others = f"; so do {format_count(total - 1)} other rows" if total > 1 else ""
    return f"{told}{others}."


def _counts_in_words(operation: Operation, data: Data, every: Label, there: Label) -> str:
    row = first_rows(operation, data, 1)[0]
    total, other = int(row.pop(every)), int(row.pop(there))
    return f"The row {row!r} stands {total - other} times here, {other} times in the other table"
