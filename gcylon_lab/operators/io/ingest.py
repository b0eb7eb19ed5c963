"""Taking new rows in: onto the device tier while that leaves room to work, below it otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from ...backends.protocol.data import Data
from ...backends.protocol.promotion import agree_schemas, may_not_fit
from ...backends.protocol.schema import Schema
from ...engine.exec.invocation import Request
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.plan.table_stats import KEPT_FREE_IN_LIMIT
from ...engine.store.chunk import Chunk, hold, stage_slices
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import BudgetExceeded
from ...memory.budget import MemoryBudget
from ...memory.out_of_memory import as_budget_exceeded
from ...memory.tiers.staging_tier import StagingFile
from ...profiling import span
from ...units import format_bytes, format_count


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=_Sized)

# A piece is in memory beside the table while it is taken in.
PIECES_IN_LIMIT = 8
_MAX_PIECE_BYTES = 32 * 1024**2


def ingest(
    workspace: Workspace, request: Request, make: Callable[[], Iterable[Data]], *, only: int | None = None
) -> Part:
    """Collective: all ranks call it. Make a table of rows that each rank produces for itself.

    Parameters
    ----------
    workspace : Workspace
        This rank's means.
    request : Request
        The call; its part is an empty one.
    make : callable
        Gives this rank's rows, piece by piece; a piece is no longer used once the next is asked for.
    only : int, optional
        The rank whose schema holds, where the others make no rows.

    Returns
    -------
    Part

    Raises
    ------
    GcylonError
        What a rank raised while making its rows, on all ranks.
    BudgetExceeded
        If the rows do not fit and staging is not allowed.
    SchemaMismatch
        If a rank holds values that the dtype common to all ranks does not.
    """

    return run_verb(workspace, request, lambda operation: taken(operation, make, only=only))[0]


def taken(operation: Operation, make: Callable[[], Iterable[Data]], *, only: int | None = None) -> Part:
    """Collective: all ranks call it. The body of a verb that takes rows in; see `ingest`."""
    return agreed(operation, taken_in(operation, make), only=only)


def taken_in(operation: Operation, make: Callable[[], Iterable[Data]]) -> Ingest:
    """This rank's rows, in chunks."""
    workspace, request = operation.workspace, operation.request
    if operation.may_stage:
        make_room(workspace, request.part)
    ingest = Ingest(workspace, may_stage=operation.may_stage)
    try:
        for data in make():
            ingest.add(data)
            del data  # before the next rows are made
    except workspace.out_of_memory as error:
        if operation.may_stage or not ingest.rows:
            raise
        known = as_budget_exceeded(error, workspace.budget, operation.verb)
        raise _with_what_fits(known, ingest.rows) from (None if known is error else error)
    return ingest


def _with_what_fits(error: BudgetExceeded, rows: int) -> BudgetExceeded:
    """Let an error say how many rows were taken in, unless it says more than that already."""
    if "fitting_rows" not in error.numbers:
        error.message += f" About {format_count(rows)} of its rows would fit on this rank."
        error.numbers["fitting_rows"] = rows
        error.advice = _for_rows_so_far(error)
    return error


def agreed(operation: Operation, ingest: Ingest, *, only: int | None = None) -> Part:
    """Collective: all ranks call it. The part of what was taken in, with a schema that all ranks have."""
    workspace = operation.workspace
    schema = operation.agree_result_schema(ingest.schema, ingest.rows, only=only)
    check_values(workspace, ingest.chunks, schema)
    return Part(workspace, schema, ingest.chunks)


def check_values(workspace: Workspace, chunks: Sequence[Chunk], schema: Schema) -> None:
    """Look once for values that the agreed dtypes do not hold: chunks are brought to them only when they are used,
    where an error would come late, and on this rank alone."""
    for chunk in chunks:
        if chunk.schema == schema:
            continue
        doubtful = [column.name for column in schema if may_not_fit(chunk.schema[column.name], column)]
        if not doubtful:
            continue
        wanted, budget = schema.select(doubtful), workspace.budget
        count = min(chunk.rows, -(-chunk.nbytes // piece_bytes(budget.limit_bytes)))
        with chunk.load(workspace, doubtful) as data:
            for i in range(count):
                piece = workspace.backend.slice(data, chunk.rows * i // count, chunk.rows * (i + 1) // count)
                with budget.reserve(min(piece.nbytes, budget.remaining_bytes), "Checking values"):
                    workspace.backend.cast(piece, wanted)


def piece_bytes(limit_bytes: int) -> int:
    """Bytes of the pieces in which rows are read under a limit."""
    return max(1, min(_MAX_PIECE_BYTES, limit_bytes // PIECES_IN_LIMIT))


def make_room(workspace: Workspace, part: Part) -> None:
    """Stage tables used longest ago, so that the ones of before and a piece are within the operation's limit."""
    limit = workspace.budget.limit_bytes
    workspace.make_room(piece_bytes(limit), limit, [other for other in workspace.parts if other is not part])
    workspace.spill.flush()  # what has left, or is on its way below, is free for what is read
    workspace.budget.renew_limit()
    workspace.budget.start_window()  # what was in the way until now is no part of this operation's peak


def reserved(workspace: Workspace, pieces: Iterator[Data], max_bytes: int) -> Iterator[Data]:
    """Give pieces one by one, each made under a reservation, which ends when the piece is handed over.

    Parameters
    ----------
    workspace : Workspace
        Whose budget pays.
    pieces : iterator of Data
        Makes a piece of at most ``max_bytes`` when asked.
    max_bytes : int
        Reserved, or what is left of the budget where that is less.
    """
    while True:
        with workspace.budget.reserve(min(max_bytes, workspace.budget.remaining_bytes), "Reading a piece"):
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece
        del piece


def recorded(pieces: Iterator[T]) -> Iterator[T]:
    """Give what is read piece by piece, each under a span with its bytes."""
    while True:
        with span("read", "io") as reading:
            piece = next(pieces, None)
            reading.bytes = 0 if piece is None else piece.nbytes
        if piece is None:
            return
        yield piece
        del piece


def has_room(budget: MemoryBudget, nbytes: int, *, may_stage: bool) -> bool:
    """Whether so many bytes are taken onto the device tier: where what does not fit may be staged, a part of the limit
    stays free for work."""
    kept_free = budget.limit_bytes // KEPT_FREE_IN_LIMIT if may_stage else 0
    return nbytes <= budget.remaining_bytes - kept_free and budget.has_room(kept_free)


class Ingest:
    """Puts pieces into chunks, one after the other.

    Parameters
    ----------
    workspace : Workspace
        Whose budget and disk tier take them.
    may_stage : bool
        Whether what does not fit may go to disk.
    """

    def __init__(self, workspace: Workspace, *, may_stage: bool) -> None:
        self._workspace = workspace
        self._may_stage = may_stage
        self._file: StagingFile | None = None
        self._schemas: dict[Schema, int] = {}
        self.chunks: list[Chunk] = []

    @property
    def schema(self) -> Schema:
        """One schema for all pieces so far; without any, that of no columns.

        Raises
        ------
        SchemaMismatch
            If pieces cannot be brought together.
        """
        if not self._schemas:
            return Schema(())
        return agree_schemas(list(self._schemas), list(self._schemas.values()))

    @property
    def rows(self) -> int:
        """Rows so far."""
        return sum(chunk.rows for chunk in self.chunks)

    def add(self, data: Data) -> None:
        """Take one piece in.

        Raises
        ------
        BudgetExceeded
            If it does not fit and may not be staged.
        SpillError
            If staging fails.
        """
        self._schemas[data.schema] = self._schemas.get(data.schema, 0) + data.rows
        if data.rows == 0:
            return
        workspace, budget = self._workspace, self._workspace.budget
        if has_room(budget, data.nbytes, may_stage=self._may_stage):
            self.chunks.append(hold(workspace, data, "A table"))
            return
        if not self._may_stage:
            try:
                self.chunks.append(hold(workspace, data, "A table"))  # or an error with the numbers
                return
            except BudgetExceeded as error:
                _with_what_fits(error, self.rows + data.rows * budget.remaining_bytes // max(1, data.nbytes))
                raise
        self._file = self._file or workspace.spill.new_file()
        count = -(-data.nbytes // workspace.slice_bytes(budget.limit_bytes))
        self.chunks += stage_slices(workspace, self._file, data, count)
        if not budget.has_room(budget.limit_bytes // KEPT_FREE_IN_LIMIT):
            workspace.spill.flush()  # copies on their way keep what they read, and the next piece needs the room


def _for_rows_so_far(error: BudgetExceeded) -> str:
    """What to change where nobody knows how many rows are to come: a limit that is enough for all cannot be told."""
    limit, enough = error.numbers["limit_bytes"], error.numbers["would_do"]
    return (
        "Let what does not fit be staged, which takes any number of rows (allow_cpu_staging=True and "
        f"allow_disk_spill=True). gpu_memory_limit is {format_bytes(limit)} now; {format_bytes(enough)} ({enough}) "
        "is enough for the rows so far, and not for any that follow."
    )


def empty_part(workspace: Workspace) -> Part:
    """Make the input of a verb that has none."""
    return Part(workspace, Schema(()), ())
