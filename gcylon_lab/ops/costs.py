"""What an operation costs in memory: pure arithmetic over sizes that all ranks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..config import GcylonConfig

# A chunk of this size and its partitioned copy stay in the second-level cache, which measures faster than
# fewer and larger rounds.
FAST_CHUNK_BYTES = 2 * 1024**2
_STAGE_BYTES = 4 * 1024**2
VERBS = ("shuffle", "allgather", "gather", "broadcast", "repartition")


@dataclass(frozen=True, slots=True)
class Shapes:
    """Sizes of a distributed table and memory of its ranks, as all ranks know them.

    Attributes
    ----------
    verb : str
        What is to be done.
    rows, nbytes, staged_bytes, largest_staged_bytes : tuple of int
        Of each rank's part: rows, bytes in all tiers, bytes below the device tier, and
        its largest chunk there, which is read back whole.
    used, limits : tuple of int
        Of each rank: bytes of the budget in use, and the limit.
    fixed_row_bytes : int
        Bytes a row of the fixed columns.
    root : int
        For gather and broadcast.
    target_rows : tuple of int
        For repartition: rows that each rank will hold.
    """

    verb: str
    rows: tuple[int, ...]
    nbytes: tuple[int, ...]
    staged_bytes: tuple[int, ...]
    largest_staged_bytes: tuple[int, ...]
    used: tuple[int, ...]
    limits: tuple[int, ...]
    fixed_row_bytes: int
    root: int = 0
    target_rows: tuple[int, ...] = ()
    fast_chunk_bytes: int = FAST_CHUNK_BYTES

    @property
    def size(self) -> int:
        """World size."""
        return len(self.rows)

    @property
    def sent_rows(self) -> tuple[int, ...]:
        """Rows that each rank sends from."""
        if self.verb == "broadcast":
            return tuple(n if rank == self.root else 0 for rank, n in enumerate(self.rows))
        return self.rows

    @property
    def bytes_per_row(self) -> float:
        """Mean bytes of a row, variable columns included."""
        total = sum(self.rows)
        return max(float(self.fixed_row_bytes), sum(self.nbytes) / total) if total else float(self.fixed_row_bytes)

    @property
    def variable_row_bytes(self) -> float:
        """Mean bytes of a row in the variable columns."""
        return self.bytes_per_row - self.fixed_row_bytes

    @classmethod
    def from_infos(cls, verb: str, infos: Sequence[Mapping[str, Any]], **more: Any) -> Shapes:
        """Build shapes from every rank's ``Table.info()``, in rank order, with ``limits`` among ``more``."""
        return cls(
            verb=verb,
            rows=tuple(i["rows"] for i in infos),
            nbytes=tuple(i["nbytes"] for i in infos),
            staged_bytes=tuple(i["tiers"]["disk"] for i in infos),
            largest_staged_bytes=tuple(i["largest_staged_bytes"] for i in infos),
            used=tuple(i["used_bytes"] for i in infos),
            fixed_row_bytes=infos[0]["row_bytes"],
            **more,
        )


@dataclass(frozen=True, slots=True)
class Costs:
    """Device bytes that a strategy uses beside inputs and result.

    Attributes
    ----------
    per_row : float
        For every row of a chunk.
    per_round : int
        In every round whatever the chunk, such as a staged chunk that is read back whole.
    kept : tuple of int
        On each rank during all rounds: the partition ids.
    """

    per_row: float
    per_round: int
    kept: tuple[int, ...]

    def work(self, chunk_rows: int) -> int:
        """Bytes in use at the most within a round."""
        return self.per_round + int(self.per_row * chunk_rows)

    def rows_in(self, room_bytes: int) -> int:
        """Rows of the largest chunk that works within so many bytes; at most 0 where none does."""
        # A tenth is left alone: strings vary in length and messages have headers.
        return int((room_bytes - self.per_round) * 0.9 / self.per_row)

    def room_for(self, chunk_rows: int) -> int:
        """Bytes in which chunks of so many rows work."""
        return self.per_round + int(self.per_row * (chunk_rows + 1) / 0.9) + 1


def expected_results(shapes: Shapes) -> tuple[int, ...]:
    """Bytes of each rank's result, with keys spread evenly where they decide.

    Returns
    -------
    tuple of int
        One a rank.
    """
    total, size = sum(shapes.nbytes), shapes.size
    if shapes.verb == "allgather":
        return (total,) * size
    if shapes.verb == "gather":
        return tuple(total if rank == shapes.root else 0 for rank in range(size))
    if shapes.verb == "broadcast":
        return (shapes.nbytes[shapes.root],) * size
    if shapes.verb == "repartition":
        return tuple(int(n * shapes.bytes_per_row) for n in shapes.target_rows)
    return (-(-total // size),) * size


def count_work(shapes: Shapes, strategy: str) -> Costs:
    """Count what a round of a strategy needs.

    A round holds the piece (when it must be read back), its partitioned copy
    and the scratch of partitioning (shuffle), the packed message of its
    variable columns, and for ``staged`` what comes in, once as received and
    once more, variable columns only, as written to disk.
    """
    row, variable = shapes.bytes_per_row, shapes.variable_row_bytes
    shuffle = shapes.verb == "shuffle"
    per_row = variable + (row + scratch_row_bytes(shapes.size) if shuffle else 0.0)
    if strategy == "staged":
        fan_in = {"shuffle": 1, "broadcast": 1, "repartition": min(2, shapes.size)}.get(shapes.verb, shapes.size)
        per_row += fan_in * (row + variable)
    largest = max(shapes.largest_staged_bytes)
    if largest:
        per_row += row
    keeps_ids = shuffle and strategy != "staged"
    kept = tuple(n * id_bytes(shapes.size) if keeps_ids else 0 for n in shapes.rows)
    # What is read back counts once a row above; a chunk staged larger than the pieces comes whole.
    return Costs(max(per_row, 1.0), largest, kept)


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that a rank should have free: ``all`` lets the best strategy run, ``least`` lets any run."""

    all: int
    least: int


def wished_rows(shapes: Shapes, config: GcylonConfig) -> int:
    """Rows of a chunk where memory does not matter, at least 1."""
    most = max(1, max(shapes.sent_rows))
    if not shapes.bytes_per_row:
        return most
    wished = config.chunk_size_bytes or shapes.fast_chunk_bytes
    return min(most, max(1, int(wished / shapes.bytes_per_row), config.min_chunk_rows))


def room_wanted(shapes: Shapes, config: GcylonConfig, strategy: str) -> tuple[Room, ...]:
    """How much to free on each rank before planning, by staging what can be.

    Parameters
    ----------
    shapes : Shapes
        What is in use does not matter.
    config : GcylonConfig
        The settings of the operation.
    strategy : str
        As asked for.

    Returns
    -------
    tuple of Room
        One a rank. Other tables give way for ``all``; the inputs only for ``least``.
    """
    rows = wished_rows(shapes, config)
    placed, staged = count_work(shapes, "direct"), count_work(shapes, "staged")
    least = staged.work(rows)
    rooms = []
    for result, kept, limit in zip(expected_results(shapes), placed.kept, shapes.limits, strict=True):
        everything = result + kept + placed.work(rows)
        if strategy == "staged":
            rooms.append(Room(min(least, limit), min(least, limit // 2)))
        elif strategy == "auto":
            # Where the result cannot fit even alone, freeing memory for it would be in vain.
            rooms.append(Room(everything if everything <= limit else min(least, limit), min(least, limit // 2)))
        else:
            rooms.append(Room(min(everything, limit), min(everything, limit) if strategy == "chunked" else 0))
    return tuple(rooms)


def stage_slice_bytes(limit_bytes: int) -> int:
    """Bytes of the slices in which rows are staged, so that reading one back takes little of the budget."""
    return min(_STAGE_BYTES, max(1, limit_bytes // 16))


def id_bytes(size: int) -> int:
    """Bytes of one partition id for so many ranks."""
    return 1 if size <= 256 else 2 if size <= 65536 else 4


def scratch_row_bytes(size: int) -> int:
    """Bytes a row that partitioning uses beside its result: its id, and its place in the new order."""
    return id_bytes(size) + 8
