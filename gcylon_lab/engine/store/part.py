"""A rank's part of a distributed table: an ordered list of chunks, each in one tier."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from ...backends.protocol.data import Data
from ...backends.protocol.scattering import TILE_ROWS
from ...backends.protocol.schema import Label, Schema
from ...errors import SpillError
from ...memory.budget import release_evicted
from ...memory.tiers.staging_tier import StagingFile
from ..plan.table_stats import slices_of
from .chunk import Chunk, Eviction, count_restaged, stage_slices
from .workspace import Workspace

if TYPE_CHECKING:
    from .workspace import Workspace

_FEW_CHUNKS = 64  # however small they are
_RETURNING = "Bringing back what one operation had staged"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a table is spread: by the hash form of ``keys``, over ``size`` ranks."""

    keys: tuple[Label, ...]
    size: int


class Part:
    """What one rank holds of a distributed table.

    Parameters
    ----------
    workspace : Workspace
        Where it lives; it is listed there until it is collected.
    schema : Schema
        The same on all ranks.
    chunks : iterable of Chunk
        In row order; those without rows are left out.
    partitioning : Partitioning, optional
        How the table is spread, if known.
    """

    def __init__(
        self, workspace: Workspace, schema: Schema, chunks: Iterable[Chunk], partitioning: Partitioning | None = None
    ) -> None:
        self.schema = schema
        self.chunks: list[Chunk] = [chunk for chunk in chunks if chunk.rows]
        self.partitioning = partitioning
        self.last_used = next(workspace.uses)
        self.evicted_bytes = 0  # that have ever left the device tier
        workspace.parts.add(self)

    @property
    def rows(self) -> int:
        """Rows on this rank."""
        return sum([chunk.rows for chunk in self.chunks])

    @property
    def nbytes(self) -> int:
        """Bytes on this rank, in all tiers."""
        return sum([chunk.nbytes for chunk in self.chunks])

    @property
    def tiers(self) -> dict[str, int]:
        """Bytes by tier."""
        sizes = {"device": 0, "disk": 0}
        for chunk in self.chunks:
            sizes[chunk.tier] = sizes.get(chunk.tier, 0) + chunk.nbytes
        return sizes

    @property
    def kept(self) -> dict[str, int]:
        """Bytes by tier of copies that chunks on the device tier still have below it."""
        sizes: dict[str, int] = {}
        for chunk in self.chunks:
            for tier, nbytes in chunk.kept.items():
                sizes[tier] = sizes.get(tier, 0) + nbytes
        return sizes

    @property
    def device_bytes(self) -> int:
        """Bytes on this rank on the device tier: asked for before each piece of work."""
        return sum([chunk.nbytes for chunk in self.chunks if chunk.is_held])

    @property
    def staged_bytes(self) -> int:
        """Bytes on this rank below the device tier."""
        return sum(chunk.nbytes for chunk in self.chunks if chunk.tier != "device")

    @property
    def regions(self) -> set[int]:
        """Where its staged chunks lie on this rank, by identity: views of a part share them."""
        return {id(chunk.region) for chunk in self.chunks if chunk.tier != "device"}

    @property
    def largest_staged_bytes(self) -> int:
        """Size of the largest chunk that would have to be read back whole."""
        return max((chunk.nbytes for chunk in self.chunks if chunk.tier != "device"), default=0)

    def widest_row_bytes(self, workspace: Workspace) -> int:
        """About how many bytes the variable columns of that row take in which they take most; 0 where all are fixed."""
        if not self.schema.variable:
            return 0
        return max((chunk.widest_row_bytes(workspace) for chunk in self.chunks), default=0)

    def places(self, rows: Collection[int]) -> list[tuple[Chunk, list[int]]]:
        """Some rows by the chunk that they are in, as rows of that."""
        places: list[tuple[Chunk, list[int]]] = []
        first = 0
        for chunk in self.chunks:
            inside = sorted(row - first for row in rows if first <= row < first + chunk.rows)
            first += chunk.rows
            if inside:
                places.append((chunk, inside))
        return places

    def release(self) -> None:
        """Drop all chunks; their memory and disk go with the last one that refers to them."""
        self.chunks = []

    def stage(self, workspace: Workspace, wanted_bytes: int, slice_bytes: int, *, one_limit: int | None = None) -> int:
        """Move chunks from the device tier down, in slices, until so many bytes are free; returns how many were.

        Nothing is written of those that still have their copy there.
        Where ``one_limit`` gives a limit, of one operation alone, they come back by `return_evicted`.
        """
        freed = 0
        file: StagingFile | None = None
        for chunk in list(self.chunks):
            if freed >= wanted_bytes:
                break
            if chunk.tier == "device":
                slices = chunk.kept_slices(slice_bytes)
                if slices:
                    count_restaged(workspace, slices)
                else:
                    file = file or workspace.spill.new_file()
                    slices = list(stage_slices(workspace, file, chunk.data, -(-chunk.nbytes // slice_bytes)))
                eviction = None if one_limit is None else Eviction(one_limit)
                for one in slices:
                    one.eviction = eviction
                at = self.chunks.index(chunk)
                self.chunks[at : at + 1] = slices
                freed += chunk.nbytes
            del chunk
        self.evicted_bytes += freed
        if freed:
            workspace.spill.flush()  # the memory is free only once all of it has left
            release_evicted(freed, workspace.budget.limit_bytes)
        return freed

    def cut(self, workspace: Workspace) -> None:
        """Stage chunks anew, in slices, that were staged under a far larger limit: each of them, read back whole, would
        leave too little of this one for work. What cannot be read or written stays as it is."""
        budget = workspace.budget
        file: StagingFile | None = None
        for chunk in list(self.chunks):
            count = slices_of(chunk.nbytes, budget.limit_bytes, on_gpu=workspace.has_pinned_tier)
            if chunk.tier == "device" or count == 1 or chunk.nbytes > budget.remaining_bytes:
                continue
            try:
                file = file or workspace.spill.new_file()
                waits = workspace.backend.on_gpu and bool(chunk.schema.variable)
                with chunk.load(workspace) as data:
                    slices = []
                    for one in stage_slices(workspace, file, data, count):
                        slices.append(one)
                        if waits:  # for what the slice was packed into, as the next is packed beside it
                            workspace.spill.flush()
                    workspace.spill.flush()
                del data  # before the next one is read
            except (SpillError, MemoryError):
                return
            for one in slices:
                one.eviction = chunk.eviction
            at = self.chunks.index(chunk)
            self.chunks[at : at + 1] = slices

    @property
    def evictions(self) -> dict[Eviction, list[Chunk]]:
        """Slices that were staged for one operation alone, together those of one chunk."""
        found: dict[Eviction, list[Chunk]] = {}
        for chunk in self.chunks:
            if chunk.eviction is not None:
                found.setdefault(chunk.eviction, []).append(chunk)
        return found

    def return_evicted(self, workspace: Workspace, limit_bytes: int) -> None:
        """Bring back what was staged for one operation alone, as far as a limit has room that is larger than that
        operation's: a setting of one operation ends with it. What cannot be read, or has no room, stays staged."""
        evicted = {one: slices for one, slices in self.evictions.items() if one.limit_bytes < limit_bytes}
        if not evicted:
            return
        budget = workspace.budget
        workspace.spill.flush()
        with budget.limited(min(limit_bytes, budget.limit_bytes)):
            budget.renew_limit()
            for slices in evicted.values():
                if sum(chunk.nbytes for chunk in slices) > budget.remaining_bytes:
                    continue
                try:
                    back = _back(workspace, slices)
                except (SpillError, MemoryError):  # a budget that is exceeded is one too
                    continue
                if len(back) == 1:  # they are together again
                    back[0].keep(workspace, slices)
                else:
                    for made, one in zip(back, slices, strict=True):
                        made.keep(workspace, [one])
                at = self.chunks.index(slices[0])
                self.chunks[at : at + len(slices)] = back

    def return_staged(self, workspace: Workspace) -> None:
        """Bring back what is staged, as far as there is room. What cannot be read, or has no room, stays staged."""
        workspace.spill.flush()
        for at, chunk in enumerate(self.chunks):
            if chunk.tier != "device" and workspace.budget.has_room(chunk.nbytes):
                try:
                    self.chunks[at] = _unstaged(workspace, chunk).keep(workspace, [chunk])
                except (SpillError, MemoryError):
                    continue

    def pieces(self, workspace: Workspace, chunk_rows: int) -> Iterator[Data]:
        """Give all rows in order, in pieces of at most ``chunk_rows``.

        The memory of a piece is released when the next one is asked for, so
        nobody may keep one. Pieces of chunks on the device tier are views.
        """
        for group in self._groups(chunk_rows):
            if len(group) == 1:
                yield from self._slices(workspace, self.chunks[group[0]], chunk_rows)
            else:
                yield from _joined(workspace, [self.chunks[i] for i in group])

    def edges(self, chunk_rows: int) -> list[int]:
        """The rows between which the pieces lie that `pieces` will give."""
        edges, first = [0], 0
        for group in self._groups(chunk_rows):
            rows = sum(self.chunks[i].rows for i in group)
            count = 1 if len(group) > 1 else -(-rows // chunk_rows)
            edges += [first + rows * (i + 1) // count for i in range(count)]
            first += rows
        return edges

    def piece_sizes(self, workspace: Workspace, chunk_rows: int) -> Iterator[tuple[int, int, int, int]]:
        """Of each piece that `pieces` will give: its rows and bytes, and what it takes to have it and to make it."""
        for group in self._groups(chunk_rows):
            chunks = [self.chunks[i] for i in group]
            if len(chunks) == 1:
                yield from self._slice_sizes(workspace, chunks[0], chunk_rows)
            else:
                copy = sum(chunk.copy_bytes for chunk in chunks)
                yield sum(chunk.rows for chunk in chunks), copy, copy, copy + sum(c.loaded_bytes() for c in chunks)

    def _slice_sizes(self, workspace: Workspace, chunk: Chunk, chunk_rows: int) -> Iterator[tuple[int, int, int, int]]:
        count, read = -(-chunk.rows // chunk_rows), chunk.loaded_bytes()
        looks = chunk.tier == "device" and bool(self.schema.variable) and not workspace.backend.on_gpu
        longer = 0.0 if looks else chunk.widest_row_bytes(workspace) * (1 - 1 / count)
        for i in range(count):
            start, stop = chunk.rows * i // count, chunk.rows * (i + 1) // count
            if looks:
                nbytes = workspace.backend.slice(chunk.data, start, stop).nbytes
            else:
                nbytes = int(min(chunk.nbytes, chunk.nbytes * (stop - start) / chunk.rows + longer))
            yield stop - start, nbytes, read, 0

    def gives_views(self, chunk_rows: int) -> bool:
        """Whether all pieces are views of what this part holds on the device tier."""
        return all(chunk.tier == "device" for chunk in self.chunks) and all(
            len(group) == 1 for group in self._groups(chunk_rows)
        )

    def is_ready(self, schema: Schema) -> bool:
        """Whether all rows have a schema's dtypes, in chunks that are not too small to be sent one by one: if they are
        on the device tier too, `views` gives them."""
        few = len(self.chunks) <= max(_FEW_CHUNKS, self.rows // TILE_ROWS)
        return few and all(chunk.schema == schema for chunk in self.chunks)

    def views(self, workspace: Workspace, chunk_rows: int) -> Iterator[list[Data]]:
        """Give the rows of each piece as views of chunks, which are not joined; all are on the device tier."""
        for group in self._groups(chunk_rows):
            if len(group) > 1:
                yield [self.chunks[i].data for i in group]
            else:
                yield from ([data] for data in self._slices(workspace, self.chunks[group[0]], chunk_rows))

    def view_edges(self, chunk_rows: int) -> list[int]:
        """The rows between which the views lie that `views` will give."""
        return sorted({*accumulate((chunk.rows for chunk in self.chunks), initial=0), *self.edges(chunk_rows)})

    def _groups(self, chunk_rows: int) -> list[list[int]]:
        rows = [chunk.rows for chunk in self.chunks]
        # The plan counts with chunks of one size, of which a whole number is joined. Small ones among larger ones,
        # and chunks of unusually long rows, are not joined to more than that.
        staged = max((chunk.rows for chunk in self.chunks if chunk.tier != "device"), default=0)
        usual = max(sum(rows) // max(1, len(rows)), staged, 1)
        together = chunk_rows // usual
        if together < 2 or len(rows) < 2:
            return [[i] for i in range(len(rows))]
        same = [i > 0 and c.schema == self.chunks[i - 1].schema for i, c in enumerate(self.chunks)]
        most_rows = together * usual
        if sum(rows) <= chunk_rows:
            if all(same[1:]):
                return [list(range(len(rows)))]
            most_rows = sum(rows)
        sizes = [chunk.nbytes for chunk in self.chunks]
        most_bytes = int(1.1 * most_rows * sum(sizes) / max(1, sum(rows)))
        return group_chunks(rows, sizes, same, most_rows, most_bytes)

    def _slices(self, workspace: Workspace, chunk: Chunk, chunk_rows: int) -> Iterator[Data]:
        count = -(-chunk.rows // chunk_rows)
        with chunk.load(workspace) as data:
            for i in range(count):
                yield workspace.backend.slice(data, chunk.rows * i // count, chunk.rows * (i + 1) // count)


def _back(workspace: Workspace, slices: list[Chunk]) -> list[Chunk]:
    """Staged slices of one chunk on the device tier: joined again, if both they and the whole fit for a moment."""
    back = [_unstaged(workspace, chunk) for chunk in slices]
    if len(back) == 1 or sum(chunk.nbytes for chunk in back) > workspace.budget.remaining_bytes:
        return back
    try:
        claim = workspace.budget.reserve(sum(chunk.copy_bytes for chunk in back), _RETURNING)
        data = workspace.backend.concat([chunk.data for chunk in back])
    except MemoryError:
        return back
    claim.resize(min(claim.nbytes, data.nbytes))
    return [Chunk(data.schema, data.rows, data.nbytes, data=data, reservation=claim)]


def _unstaged(workspace: Workspace, chunk: Chunk) -> Chunk:
    claim = workspace.budget.reserve(chunk.nbytes, _RETURNING)
    data = chunk.read(workspace)
    return Chunk(chunk.schema, chunk.rows, data.nbytes, data=data, reservation=claim)


def group_chunks(
    rows: Sequence[int], sizes: Sequence[int], joinable: Sequence[bool], chunk_rows: int, chunk_bytes: int
) -> list[list[int]]:
    """Put neighbours together that fit into one piece, so that many small chunks do not make many rounds.

    Parameters
    ----------
    rows, sizes : sequence of int
        Rows and bytes of each chunk.
    joinable : sequence of bool
        Whether each chunk has the schema of the one before it.
    chunk_rows, chunk_bytes : int
        Most rows and bytes of a piece.

    Returns
    -------
    list of list of int
        Indices of chunks; a group of one may be longer than a piece, and is sliced then.
    """
    groups: list[list[int]] = []
    held = held_bytes = 0
    for i, (n, size) in enumerate(zip(rows, sizes, strict=True)):
        if groups and joinable[i] and held + n <= chunk_rows and held_bytes + size <= chunk_bytes:
            groups[-1].append(i)
            held += n
            held_bytes += size
        else:
            groups.append([i])
            held, held_bytes = n, size
    return groups


def _joined(workspace: Workspace, chunks: list[Chunk]) -> Iterator[Data]:
    """Give several chunks as one piece, or one by one where both they and their copy do not fit."""
    with ExitStack() as held:
        try:
            whole = _join(workspace, chunks, held)
        except workspace.out_of_memory:
            pass
        else:
            yield whole
            return
    for chunk in chunks:
        with chunk.load(workspace) as data:
            yield data


def _join(workspace: Workspace, chunks: list[Chunk], held: ExitStack) -> Data:
    size = sum(chunk.copy_bytes for chunk in chunks)
    held.enter_context(workspace.budget.reserve(size, "Joining small chunks"))
    with ExitStack() as loaded:  # only the copy is needed afterwards
        return workspace.backend.concat(
            [chunk.data if chunk.tier == "device" else loaded.enter_context(chunk.load(workspace)) for chunk in chunks]
        )


def column_row_bytes(workspace: Workspace, part: Part) -> list[float]:
    """Mean bytes of a row in each column: of variable ones as in the largest chunk in memory, or else all alike."""
    schema, backend = part.schema, workspace.backend
    held = max((chunk for chunk in part.chunks if chunk.tier == "device"), key=lambda chunk: chunk.rows, default=None)
    alike = max(0.0, part.nbytes / max(part.rows, 1) - schema.row_bytes) / max(len(schema.variable), 1)
    widths = []
    for column in schema:
        if column.dtype is not None:
            widths.append(float(column.dtype.itemsize))
        elif held is not None:
            widths.append(backend.select(held.data, [column.name]).nbytes / held.rows)
        else:
            widths.append(alike)
    return widths


def keys_row_bytes(workspace: Workspace, part: Part, keys: Sequence[Label]) -> float:
    """About how many bytes the keys of a row take."""
    widths = column_row_bytes(workspace, part)
    return sum(widths[part.schema.place(key)] for key in keys)
