"""Work on this rank's own rows, piece by piece inside the budget: no rank waits for another here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ...backends.protocol.backend import Backend
from ...backends.protocol.data import Data
from ...backends.protocol.schema import Label, Schema
from ...errors import raised_as
from ...memory.budget import Reservation, exceeded
from ...memory.tiers.staging_tier import StagingFile
from ...profiling import span
from ..plan.table_stats import FAST_CHUNK_BYTES, KEPT_FREE_IN_LIMIT
from ..store.async_stager import AsyncStager
from ..store.chunk import Chunk, fill_together, filled, hold
from ..store.part import Part
from .operation import Operation

# Of the budget a piece with all that is made of it takes so much.
PIECES_IN_LIMIT = 8


class LocalExecutor:
    """The memory of an operation's local work.

    What is made is held on the device tier while a part of the budget stays free for the work that is left, and
    staged otherwise. When work does not fit, what was made before is evicted.

    Parameters
    ----------
    operation : Operation
        Opened.
    what : str
        The work, in words that stand in errors.
    """

    def __init__(self, operation: Operation, what: str) -> None:
        self.operation = operation
        self.workspace = operation.workspace
        self.what = what
        self._made: list[Part] = []
        self._file: StagingFile | None = None
        self._leaving: dict[Schema, AsyncStager] = {}
        # What stays free beside results that are held: None for a part of the budget, as it is not known what follows.
        self.kept_free_bytes: int | None = None
        self._always_staged = operation.options.strategy == "staged"
        # Who names a strategy that holds the result is given it, or an error.
        self.holds_result = operation.options.strategy in ("direct", "chunked")

    @property
    def backend(self) -> Backend:
        """The rank's dataframe library."""
        return self.workspace.backend

    @property
    def made(self) -> tuple[Part, ...]:
        """Parts that are evicted."""
        return tuple(self._made)

    def room(self) -> int:
        """Bytes that are free for work, once what is on its way down has left."""
        self.workspace.spill.flush()
        return max(1, self.workspace.budget.remaining_bytes)

    def room_beside(self, part: Part) -> int:
        """Bytes that a claim for work on a part may take: what was made before is evicted for it, the part is not."""
        if not self.operation.may_stage:
            return self.room()
        return self.room() + sum(one.device_bytes for one in self._made if one is not part)

    def make_room(self, row_bytes: float, rows: int) -> None:
        """Before the work: stage tables that are not in use, so that its result and a piece of work fit, and the
        input only where a piece of work would not."""
        operation, budget = self.operation, self.workspace.budget
        if operation.may_stage:
            limit = budget.limit_bytes
            share = limit // PIECES_IN_LIMIT
            wanted = min(limit, int(row_bytes * rows) + 2 * share)
            self.workspace.make_room(wanted, limit, operation.not_in_use())
            inputs = [operation.request.part, *operation.request.others]
            self.workspace.make_room(2 * share, limit, inputs, with_views=True)
            for part in inputs:
                part.cut(self.workspace)
            budget.start_window()
        self.workspace.spill.flush()
        budget.renew_limit()
        operation.record.used_before_bytes = budget.used_bytes

    def expect(self, nbytes: float) -> None:
        """Predict that work will take so many bytes beside what was in use before, or what the budget leaves."""
        record, limit = self.operation.record, self.workspace.budget.limit_bytes
        record.predict(min(limit, record.used_before_bytes + int(nbytes)))

    def expect_now(self, nbytes: float) -> None:
        """Predict that the next step will take so many bytes beside what is in use now, or what the budget leaves."""
        budget = self.workspace.budget
        self.operation.record.predict(min(budget.limit_bytes, budget.used_bytes + int(nbytes)))

    def expect_pieces(self, part: Part, schema: Schema, rows: int, work_row_bytes: float, beside: float = 0) -> None:
        """Predict what `pieces` of so many rows will take, with work on each that takes so many bytes a row."""
        self.expect_now(max(self.pieces_bytes(part, schema, rows, work_row_bytes)) + beside)

    def pieces_bytes(self, part: Part, schema: Schema, rows: int, work_row_bytes: float) -> tuple[float, float]:
        """What `pieces` of so many rows take beside what is in use: while chunks are read, and while pieces are worked
        on."""
        reading, working = 0.0, 0.0
        for group in pieces_ahead(part, schema, rows):
            reading = max(reading, group.joining)
            working = max(working, group.kept + group.rows * (work_row_bytes + group.cast_row_bytes))
        return reading, working

    def kept_bytes(self, result_bytes: float) -> int:
        """How much of a result that is made from now on `keep` will hold."""
        budget = self.workspace.budget
        if self._always_staged:
            return 0
        if self.operation.options.strategy == "auto" and self.operation.may_stage:
            free = budget.remaining_bytes - self._kept_free()
            return int(min(result_bytes, max(0, free)))
        return int(result_bytes)

    def _kept_free(self) -> int:
        known = self.kept_free_bytes
        return self.workspace.budget.limit_bytes // KEPT_FREE_IN_LIMIT if known is None else known

    def new_part(self, schema: Schema) -> Part:
        """An empty part that is filled by `keep`, and is evicted when work does not fit."""
        part = Part(self.workspace, schema, ())
        self._made.append(part)
        return part

    def new_result(self, schema: Schema) -> Part:
        """As `new_part`, for what a verb gives: where its strategy says that it is held, it is not evicted."""
        return Part(self.workspace, schema, ()) if self.holds_result else self.new_part(schema)

    def holding(self, part: Part, result_bytes: float) -> raised_as:
        """Around work on an input whose result is made by `new_result`: that it does not fit is told with a limit that
        holds so many bytes of a result beside the input, and pieces of work."""

        def other(error: Exception) -> Exception | None:
            if not self.holds_result or not isinstance(error, self.workspace.out_of_memory):
                return None
            operation, limit = self.operation, self.workspace.budget.limit_bytes
            used, needed = operation.record.used_before_bytes, int(result_bytes)
            beside = used + operation.evicted_bytes + part.largest_staged_bytes
            would_do = -(-(beside + needed) * PIECES_IN_LIMIT // (PIECES_IN_LIMIT - 3))
            what = f"The result of {operation.verb} with strategy={operation.options.strategy!r}"
            return exceeded(what, needed, used, limit, would_do=would_do)

        return raised_as(other)

    def adopt(self, part: Part) -> Part:
        """Let a part that the operation has made be evicted too."""
        self._made.append(part)
        return part

    def forget(self, part: Part) -> None:
        """Drop a part that is used up."""
        self._made = [one for one in self._made if one is not part]
        part.release()

    def claim(self, nbytes: int) -> Reservation:
        """Reserve memory for a piece of work; what was made before is evicted for it.

        Raises
        ------
        BudgetExceeded
            If that is not enough.
        """
        budget = self.workspace.budget
        if nbytes > budget.remaining_bytes:
            self.workspace.spill.flush()
        if nbytes > budget.remaining_bytes:
            self.evict(nbytes)
        return budget.reserve(nbytes, self.what)

    def evict(self, nbytes: int) -> None:
        """Stage what was made until so many bytes are free, or all of it is staged."""
        budget = self.workspace.budget
        if self.operation.may_stage:
            for part in self._made:
                missing = nbytes - budget.remaining_bytes
                if missing > 0:
                    part.stage(self.workspace, missing, self.workspace.slice_bytes(budget.limit_bytes))

    def evict_all(self) -> bool:
        """Stage all that was made, where memory ended that no claim counted; whether any of it was in memory."""
        held = sum(part.nbytes - part.staged_bytes for part in self._made)
        if not held or not self.operation.may_stage:
            return False
        budget = self.workspace.budget
        for part in self._made:
            part.stage(self.workspace, part.nbytes, self.workspace.slice_bytes(budget.limit_bytes))
        budget.renew_limit()
        return sum(part.nbytes - part.staged_bytes for part in self._made) < held

    def keep(
        self, part: Part, data: Data, claim: Reservation, *, own_bytes: int | None = None, shared: object = None
    ) -> None:
        """Take rows that were made under a claim into a part, which the claim then pays for or is released.

        Parameters
        ----------
        part : Part
        data : Data
        claim : Reservation
        own_bytes : int, optional
            What is new of the rows, where the others are views of what ``shared`` pays for.
        shared : object, optional

        Raises
        ------
        BudgetExceeded
            If they do not fit and may not be staged.
        """
        if not data.rows:
            claim.release()
            return
        budget, may_stage = self.workspace.budget, self.operation.may_stage
        own_bytes = data.nbytes if own_bytes is None else own_bytes
        free = budget.remaining_bytes + claim.nbytes - own_bytes
        auto = self.operation.options.strategy == "auto"
        if self._always_staged or (auto and may_stage and free < self._kept_free()):
            self._stage(part, data, claim.split(own_bytes), shared)
            claim.release()
            return
        claim.resize(own_bytes)
        held = claim if shared is None else (claim, shared)
        part.chunks.append(Chunk(data.schema, data.rows, data.nbytes, data=data, reservation=held))

    def put_down(self, part: Part, data: Data, claim: Reservation) -> None:
        """Take rows into a part below the device tier, whose memory nobody needs afterwards; held where nothing may be
        staged.

        Parameters
        ----------
        part : Part
        data : Data
        claim : Reservation
            On their memory, perhaps with that of others: it is to be dropped after this, and kept until they have left.

        Raises
        ------
        BudgetExceeded
            If they are held and do not fit.
        """
        if self.operation.may_stage:
            self._stage(part, data, claim)
        else:
            part.chunks.append(hold(self.workspace, self.backend.concat([data]), self.what))

    def _stage(self, part: Part, data: Data, claim: Reservation, shared: object = None) -> None:
        self._file = self._file or self.workspace.spill.new_file()
        leaving = self._leaving.get(data.schema)
        if leaving is None:
            leaving = self._leaving[data.schema] = AsyncStager(self.workspace, data.schema)
        part.chunks += leaving.stage(self._file, data, claim, shared)

    def everything(self, part: Part, schema: Schema, held: ExitStack) -> Data:
        """All rows of a part at once, of the schema's columns and dtypes, under claims that ``held`` ends.

        Raises
        ------
        BudgetExceeded
            If they do not fit.
        """
        chunks = part.chunks
        if len(chunks) == 1:
            return self._cast(self._loaded(chunks[0], schema.names, held), schema, held)
        held.enter_context(self.claim(sum(columns_bytes(chunk, schema.names) for chunk in chunks)))
        if chunks and chunks[0].schema.select(schema.names) == schema and fill_together(chunks, schema.names):
            return filled(self.workspace, chunks, schema.names)
        with ExitStack() as loaded:
            return self.backend.concat(
                [self._cast(self._loaded(chunk, schema.names, loaded), schema, loaded) for chunk in list(chunks)]
            )

    def _cast(self, data: Data, schema: Schema, held: ExitStack) -> Data:
        if data.schema == schema:
            return data
        held.enter_context(self.claim(data.nbytes + data.rows * schema.row_bytes))
        return self.backend.cast(data, schema)

    @property
    def fast_chunk_bytes(self) -> int:
        """A chunk where memory does not matter."""
        return int(self.workspace.exchange_shapes().get("fast_chunk_bytes", FAST_CHUNK_BYTES))

    def piece_rows(
        self, row_bytes: float, work_row_bytes: float, *, least: float = 0, share: int = PIECES_IN_LIMIT,
        alone: int = 0, beside: float = 0,
    ) -> int:  # fmt: skip
        """Rows of a piece, whose work takes so many bytes a row beside the rows themselves; where memory and the
        config let it, at least so many. All of it takes one part in ``share`` of the budget, or where nothing but
        ``beside`` is held meanwhile one part in ``alone`` of what is free (not on GPUs: what their libraries take is
        known less)."""
        config, limit = self.operation.config, self.workspace.budget.limit_bytes
        wished = config.chunk_size_bytes or max(self.fast_chunk_bytes, least * row_bytes)
        rows = max(int(wished / max(row_bytes, 1)), config.min_chunk_rows)
        room = max(limit / share, (self.room() - beside) / alone if alone and not self.backend.on_gpu else 0)
        return max(1, min(rows, int(room / max(row_bytes + work_row_bytes, 1))))

    def pieces(
        self, part: Part, schema: Schema, rows: int, *, using_up: bool = False, joined_bytes: float = math.inf
    ) -> Iterator[Data]:
        """Give a part's rows in order, in pieces of at most so many, as a schema has them.

        Parameters
        ----------
        part : Part
        schema : Schema
            Some of the part's columns, perhaps of wider dtypes.
        rows : int
            Of a piece. Small chunks of one schema are joined to it.
        using_up : bool
            Whether a chunk is dropped from the part once it has been given, so that its memory is free again.
        joined_bytes : float
            Of small chunks together, at the most.

        Notes
        -----
        The memory of a piece is released when the next one is asked for.
        """
        waiting = part.chunks if using_up else list(part.chunks)
        while waiting:
            yield from self._cut(next_group(waiting, rows, joined_bytes), schema, rows)

    def _cut(self, group: list[Chunk], schema: Schema, rows: int) -> Iterator[Data]:
        with ExitStack() as held:
            whole = self._whole(group, schema, held)
            if whole is not None:
                del group[:]
                count = -(-whole.rows // rows)
                for i in range(count):
                    piece = self.backend.slice(whole, whole.rows * i // count, whole.rows * (i + 1) // count)
                    if piece.schema == schema:
                        yield piece
                        continue
                    with self.claim(piece.nbytes + piece.rows * schema.row_bytes):
                        yield self.backend.cast(piece, schema)
                return
        while group:
            yield from self._cut([group.pop(0)], schema, rows)

    def _whole(self, group: Sequence[Chunk], schema: Schema, held: ExitStack) -> Data | None:
        """All rows of some chunks, of the schema's columns; None where they and their copy do not fit."""
        names = schema.names
        if len(group) == 1:
            return self._loaded(group[0], names, held)
        with ExitStack() as copied:
            try:
                copied.enter_context(self.claim(sum(columns_bytes(chunk, names) for chunk in group)))
                if fill_together(group, names):
                    held.enter_context(copied.pop_all())
                    return filled(self.workspace, group, names)
                with ExitStack() as loaded:  # only the copy is needed afterwards
                    whole = self.backend.concat([self._loaded(chunk, names, loaded) for chunk in group])
            except self.workspace.out_of_memory:
                return None
            held.enter_context(copied.pop_all())
        return whole

    def _loaded(self, chunk: Chunk, names: Sequence[Label], held: ExitStack) -> Data:
        if chunk.tier == "device":
            held.callback(lambda kept: None, chunk)  # the claim on a chunk that was used up ends with it
        else:
            held.enter_context(self.claim(chunk.loaded_bytes(names)))
        return chunk.read(self.workspace, names)

    def apply(
        self, data: Data, needed: Callable[[Data], int], work: Callable[[Data], Data]
    ) -> Iterator[tuple[Data, Reservation]]:
        """Work on rows under a claim; where that does not fit, on their halves one after the other.

        Parameters
        ----------
        data : Data
        needed : callable
            Bytes that the work takes at the most, its result among them.
        work : callable
            Gives the result, which is new memory.

        Raises
        ------
        BudgetExceeded
            If a single row does not fit.
        """
        claim: Reservation | None = None
        try:
            claim = self.claim(needed(data))
            with span(self.operation.verb, "algorithm", bytes=data.nbytes):
                result = work(data)
        except self.workspace.out_of_memory:
            if claim is not None:
                claim.release()
            if data.rows <= 1 and not self.evict_all():
                raise
        else:
            yield result, claim
            return
        if data.rows <= 1:
            yield from self.apply(data, needed, work)
            return
        half = data.rows // 2
        yield from self.apply(self.backend.slice(data, 0, half), needed, work)
        yield from self.apply(self.backend.slice(data, half, data.rows), needed, work)


def next_group(waiting: list[Chunk], rows: int, most_bytes: float = math.inf) -> list[Chunk]:
    """Take chunks from a list that are read together: small ones of one schema, up to so many rows and bytes."""
    group = [waiting.pop(0)]
    count, nbytes = group[0].rows, group[0].nbytes
    while waiting and count + waiting[0].rows <= rows and waiting[0].schema == group[0].schema:
        if nbytes + waiting[0].nbytes > most_bytes:
            break
        group.append(waiting.pop(0))
        count, nbytes = count + group[-1].rows, nbytes + group[-1].nbytes
    return group


@dataclass(frozen=True, slots=True)
class Ahead:
    """Chunks that `LocalExecutor.pieces` will read together.

    Attributes
    ----------
    joining, kept : int
        Bytes while they are read, and while pieces of them are worked on.
    rows, pieces : int
        Of a piece at the most, and how many there are.
    cast_row_bytes : float
        Where pieces are brought to other dtypes.
    """

    joining: int
    kept: int
    rows: int
    pieces: int
    cast_row_bytes: float


def pieces_ahead(part: Part, schema: Schema, rows: int) -> Iterator[Ahead]:
    """How a part's rows will be read, in order."""
    waiting = list(part.chunks)
    while waiting:
        group = next_group(waiting, rows)
        count = sum(chunk.rows for chunk in group)
        if count:
            kept, joining = reading_bytes(group, schema.names)
            pieces = -(-count // rows)
            cast = 0.0
            if group[0].schema.select(schema.names) != schema:
                cast = sum(columns_bytes(chunk, schema.names) for chunk in group) / count + schema.row_bytes
            yield Ahead(joining, kept, -(-count // pieces), pieces, cast)


def reading_bytes(chunks: Sequence[Chunk], names: Sequence[Label] | None = None) -> tuple[int, int]:
    """What it takes to have chunks, or some columns of them, as one: afterwards, and while they are joined."""
    below = sum(chunk.loaded_bytes(names) for chunk in chunks)
    if len(chunks) == 1:
        return below, below
    whole = sum(columns_bytes(chunk, names) for chunk in chunks)
    if fill_together(chunks, chunks[0].schema.names if names is None else names):
        return whole, whole
    return whole, whole + below


def columns_bytes(chunk: Chunk, names: Sequence[Label] | None) -> int:
    """Bytes of some columns of a chunk, or all: of a staged one as many as are read back."""
    if names is None or tuple(names) == chunk.schema.names:
        return chunk.nbytes
    if chunk.tier != "device":
        return chunk.loaded_bytes(names)
    fixed = sum(chunk.rows * c.dtype.itemsize for c in chunk.schema.select(names) if c.dtype is not None)
    variable = any(not chunk.schema[name].fixed for name in names)
    return fixed + (chunk.nbytes - chunk.rows * chunk.schema.row_bytes if variable else 0)
