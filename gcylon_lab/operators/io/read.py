"""Reading files: planned by each rank for itself, taken in only where all have planned alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...backends.protocol.data import Data
from ...backends.protocol.expressions import Expression
from ...engine.exchange.exchange import local_plan
from ...engine.exec.agreement import AgreementKind, agreed
from ...engine.exec.invocation import Request, digest
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import ReadError
from ...formats.parquet.plans import ParquetPlan
from ...formats.parquet.row_choice import RowChoice
from ...formats.read_plans import RowPiece
from ...formats.row_filters import filtered
from ...formats.text.csv_reader import CsvPlan
from ...memory.available import available_bytes
from ...memory.budget import exceeded
from ...units import format_bytes, format_count
from .device_read import DeviceReading, kept
from .ingest import PIECES_IN_LIMIT, piece_bytes, recorded, reserved, taken

# Batches of smaller pieces are so small that to compute a condition of several at once takes less.
_CHOSEN_BYTES = 4 << 20
_REASON = "because each rank reads its share of the files"


@dataclass(frozen=True, slots=True)
class ReadPlan(Plan):
    """How a table was read. Nothing of it is a prediction."""

    def describe(self) -> str:
        """Return in words where the rows went, and what was read and left out."""
        where = "held" if self.strategy == "direct" else "held, and what did not fit staged"
        first = f"{self.verb}: {where}, nothing is exchanged · {self.reason}"
        return "\n".join([first, *(f"  {note}" for note in self.notes)])


def read_files(
    workspace: Workspace,
    request: Request,
    plan: Callable[[int], Sequence[Any]],
    read: Callable[..., Iterator[Any]],
    names: Sequence[str] | None = None,
    condition: Expression | None = None,
    columns: Sequence[str] | None = None,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Read each rank's share of some files.

    Parameters
    ----------
    workspace : Workspace
        This rank's means.
    request : Request
        The call; its part is an empty one.
    plan : callable
        Gives every rank's share of the work, for so many ranks; each says in ``pieces`` what it reads, and in
        ``notes`` what all read together.
    read : callable
        Gives this rank's rows of its share in host memory, of these ``columns`` and in pieces of ``max_bytes`` at most.
    names : sequence of str, optional
        The columns that are read; all by default.
    condition : Expression, optional
        Only rows of which it holds are kept.
    columns : sequence of str, optional
        With a condition: the columns that are kept of those that are read.

    Returns
    -------
    Part, Plan

    Raises
    ------
    ReadError
        On all ranks, if one could not read, or if the ranks do not see the same files.
    """

    def body(operation: Operation) -> Part:
        shares = plan(operation.size)
        _require_one_plan(operation, shares)
        mine = shares[operation.rank]
        backend = workspace.backend
        notes: list[str] = []

        def make() -> Iterator[Data]:
            # Asked for inside the operation: its limit, which may be the live config's, holds by then.
            max_bytes = piece_bytes(workspace.budget.limit_bytes)
            if condition is not None:
                max_bytes = max(1, max_bytes // 2)  # the other half is for what the condition makes of a piece
            computed = getattr(mine, "condition", condition)  # a plan may know how a format's columns are compared
            if backend.on_gpu and isinstance(mine, ParquetPlan | CsvPlan):
                reading = DeviceReading(workspace, workspace.budget.limit_bytes, notes)
                if isinstance(mine, CsvPlan):
                    found = reading.lines(mine, names)
                else:
                    found = reading.pieces(mine, names, max_bytes)
                pieces = _watched(operation, mine, found)
                return reserved(workspace, kept(backend, pieces, computed, columns), reading.pass_bytes)
            if computed is not None and isinstance(mine, ParquetPlan) and max_bytes >= _CHOSEN_BYTES:
                choice = RowChoice(computed, columns)
                pieces = read(mine, columns=names, max_bytes=max_bytes, choice=choice)
                some = _watched(operation, mine, pieces, lambda: choice.looked_at)
            else:
                pieces = _watched(operation, mine, read(mine, columns=names, max_bytes=max_bytes))
                some = filtered(pieces, computed, columns)
            return reserved(workspace, map(backend.from_host, some), max_bytes)  # holds no piece while the next is read

        with _beside(operation, mine):
            result = taken(operation, make)
        operation.notes += [*_conditions(condition), *mine.notes, *notes, *_shares(shares)]
        described = local_plan(operation, request.part, result, _REASON)
        operation.plan = ReadPlan(**{name: getattr(described, name) for name in Plan.__slots__})
        return result

    return run_operation(workspace, request, body)


@contextmanager
def _beside(operation: Operation, share: Any) -> Iterator[None]:
    """Claim what a format unpacks whole beside the pieces; on GPU engines that is host memory, which has to be there.

    Raises
    ------
    BudgetExceeded, ReadError
        If it is not there, with the numbers.
    """
    nbytes = getattr(share, "beside_bytes", 0) if share.pieces else 0
    workspace = operation.workspace
    advice = "Read fewer columns (columns=[...]), or write the file again with smaller record batches."
    if workspace.backend.on_gpu:
        if nbytes > (free := available_bytes()):
            raise ReadError(
                f"a record batch of these files takes {format_bytes(nbytes)} of host memory, and {format_bytes(free)} "
                f"are free: {share.first}",
                advice=advice,
                path=share.first,
            )
        nbytes = 0
    limit = workspace.budget.limit_bytes
    wanted = nbytes + piece_bytes(limit)
    if nbytes and operation.may_stage:
        workspace.make_room(wanted, limit, [part for part in workspace.parts if part is not operation.request.part])
    used = workspace.budget.used_bytes
    if nbytes and used + wanted > limit:
        would_do = (used + nbytes) * PIECES_IN_LIMIT // (PIECES_IN_LIMIT - 1) + 1
        what = f"A record batch of {share.first}, unpacked (of fewer columns or rows it is smaller),"
        raise exceeded(what, wanted, used, limit, would_do=would_do, staged=operation.may_stage)
    with workspace.budget.reserve(nbytes, "Unpacking a record batch"):
        yield


def _require_one_plan(operation: Operation, shares: Sequence[Any]) -> None:
    answers = operation.agree(AgreementKind.COUNT, (digest(repr(shares)),))
    found = len(set(answers[:, 0].tolist()))
    if found > 1:
        raise agreed(
            ReadError(
                f"The ranks do not see the same files: {operation.request.text()} gives "
                f"{found} different lists of files, sizes or types on {operation.size} ranks.",
                advice="Read from a place that all ranks share, and while nobody writes there. memory:// is each "
                "process's own.",
            )
        )


def _watched(
    operation: Operation, share: Any, pieces: Iterator[Any], looked_at: Callable[[], int] | None = None
) -> Iterator[Any]:
    """Let those who watch a long read see how far it is, in percent."""
    record = operation.record
    total = sum(piece.stop - piece.start for piece in share.pieces)  # rows, or bytes of text
    done = 0
    by_rows = any(isinstance(one, RowPiece) for one in share.pieces)
    record.rounds = 100
    try:
        for piece in recorded(pieces):
            done = done + (piece.rows if by_rows else piece.nbytes) if looked_at is None else looked_at()
            record.rounds_done = min(99, 100 * done // max(1, total))
            yield piece
            del piece
    finally:
        record.rounds = record.rounds_done = 0  # nothing was exchanged


def _conditions(condition: Expression | None) -> list[str]:
    return [] if condition is None else [f"only rows of which {condition!r} holds"]


def _shares(shares: Sequence[Any]) -> list[str]:
    idle = sum(not share.pieces for share in shares)
    return [f"{format_count(idle)} of {format_count(len(shares))} ranks read nothing"] if idle else []
