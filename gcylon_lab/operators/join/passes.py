"""Whether a join is done all at once in memory, in how many passes, each of some buckets of keys, or staged: pure, from
sizes that all ranks share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...backends.host.column_buffers import OFFSET_BYTES
from ...backends.host.partition import partition_scratch_bytes
from ...backends.protocol.join_columns import JoinSpec
from ...backends.protocol.scattering import MOST_SCATTERED, device_partition_bytes, scatter_bytes
from ...backends.protocol.schema import Schema
from ...config import GcylonConfig
from ...engine.exchange.buckets import MASK_ROW_BYTES
from ...engine.exec.agreement import AgreementKind, agreed
from ...engine.exec.invocation import digest
from ...engine.exec.local_executor import PIECES_IN_LIMIT
from ...engine.exec.operation import Operation
from ...engine.plan.table_stats import (
    CHUNKS_IN_LIMIT,
    FAST_CHUNK_BYTES,
    LEAST_FAST_CHUNK_BYTES,
    MOST_BUCKETS,
    id_bytes,
)
from ...errors import SpillError
from ...memory.tiers.free_space import UNKNOWN
from ...units import format_bytes, format_count, format_seconds
from .distribution import JoinDistribution, expected_rows, may_split

Numbers = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

# Of what is free, the indexed side takes so much at the most; a piece of the other side, and a block of the result.
BUILD_SHARE, PIECE_SHARE = 2, 5
# Of the limit so much is to be free for the work of a pass: pieces that are smaller still take long.
_LEAST_FREE = 32
# Claims are rounded, and what was measured before a pass may change by what its agreements took.
_MARGIN = 1.02
# Rows are written by kernels where they take so many times the bytes of the counts for it.
_LEAST_ROWS_TO_COUNTS = 8
# Of sending a row, beside two copies of it: its number, its id, and the order by rank.
_ID_ROW_BYTES = 8 + 1
_COPY_ROW_BYTES = _ID_ROW_BYTES + 17
# Seconds that a pass takes for each row of both tables, and staging for each byte that is written. On 2 cores, with
# rows of 16 to 48 bytes, it was 1.0 to 3.2 ns a row, and 0.4 ns a byte while the disk kept up (1.3 where it did not).
_PASS_ROW_S, _STAGED_BYTE_S = 2.2e-9, 0.5e-9


@dataclass(frozen=True, slots=True)
class JoinCosts:
    """Bytes a row of what a join does with its rows, beside them.

    Attributes
    ----------
    index_row_bytes, match_row_bytes, pair_bytes, out_row_bytes : float
        Of an index, of looking up, of a pair of rows, and of a row of the result.
    block_rows : int
        Most rows of the result that are made at a time.
    chunk_bytes : int
        That are sent at a time, where memory does not matter.
    scatters : bool
        Whether the rows of a pass are written by their senders' kernels, without copies of them.
    hashes_anew : bool
        Whether keys are hashed anew for each piece that is looked up, as on GPUs.
    """

    index_row_bytes: float
    match_row_bytes: float
    pair_bytes: float
    out_row_bytes: float
    block_rows: int
    chunk_bytes: int
    scatters: bool = False
    hashes_anew: bool = False


@dataclass(frozen=True, slots=True)
class JoinSizes:
    """What each rank gets of each bucket of keys; of shape (buckets, size) where nothing else is said.

    Attributes
    ----------
    received : ndarray
        Bytes of the rows of both sides that have to be in memory beside the tables they come from.
    build_rows, probe_rows : ndarray
        Of the side that is indexed, and of the one that is looked up.
    results : ndarray
        Bytes of the result.
    sent_rows : ndarray, shape (buckets, 2, size)
        Of each side, from each rank.
    row_bytes : ndarray, shape (2, 1)
        Of each side.
    """

    received: Numbers
    build_rows: Numbers
    probe_rows: Numbers
    results: Numbers
    sent_rows: Numbers
    row_bytes: Numbers

    @property
    def buckets(self) -> int:
        """How many."""
        return len(self.received)

    def split(self, buckets: int) -> JoinSizes:
        """One bucket as several of equal size."""
        received, build, probe, results, sent = (
            np.repeat(one / buckets, buckets, axis=0)
            for one in (self.received, self.build_rows, self.probe_rows, self.results, self.sent_rows)
        )
        return JoinSizes(received, build, probe, results, sent, self.row_bytes)


@dataclass(frozen=True, slots=True)
class Pass:
    """Buckets [first, last) of a join; of each rank, what is in use before, and bytes of what comes of all of them.

    ``index`` is what indexing takes. What a pass takes at the most is reckoned by `peaks_of` alone, for many passes are
    looked at of which few are done.
    """

    first: int
    last: int
    used: Numbers
    received: Numbers
    index: Numbers
    results: Numbers


def join_costs(
    index_row_bytes: float,
    match_row_bytes: float,
    pair_bytes: float,
    out_row_bytes: float,
    config: GcylonConfig,
    fast_chunk_bytes: int,
    limit: int,
    *,
    scatters: bool = False,
) -> JoinCosts:
    """The costs of a join whose ranks have a budget of ``limit`` at least."""
    wished = config.chunk_size_bytes or fast_chunk_bytes
    rows = max(int(wished / max(out_row_bytes, 1)), config.min_chunk_rows)
    rows = max(1, min(rows, int(limit / PIECES_IN_LIMIT / max(out_row_bytes, 1))))
    share = fast_chunk_bytes if scatters else max(LEAST_FAST_CHUNK_BYTES, limit // CHUNKS_IN_LIMIT)
    chunk = config.chunk_size_bytes or min(fast_chunk_bytes, share)
    match, out = max(match_row_bytes, 1.0), max(out_row_bytes, 1.0)
    anew = fast_chunk_bytes > FAST_CHUNK_BYTES
    return JoinCosts(index_row_bytes, match, pair_bytes, out, 2 * rows, chunk, scatters, anew)


def worth_scattering(size: int, sides: Iterable[tuple[int, int]]) -> bool:
    """Whether what kernels need to know, to write the rows of a pass to where they belong, is little beside the rows.

    Parameters
    ----------
    size : int
        World size.
    sides : iterable of pair of int
        Bytes and rows of each side on all ranks; both of fixed width.
    """
    ids = size * buckets_for(size)
    if ids > MOST_SCATTERED:
        return False
    return all(_LEAST_ROWS_TO_COUNTS * scatter_bytes(rows // size, ids) <= nbytes // size for nbytes, rows in sides)


def buckets_for(size: int) -> int:
    """How many buckets keys are split into: as many as leave an id of a rank and a bucket one byte, and at least 16."""
    return max(16, min(MOST_BUCKETS, 256 // size))


def kept_ids_bytes(sides: Iterable[Int64s], *, scatters: bool) -> Numbers:
    """What ids of a rank and a bucket take, for the rows of each side on each rank, and counts of them."""
    kept: list[Numbers] = []
    for rows in sides:
        ids = len(rows) * buckets_for(len(rows))
        counts = [scatter_bytes(int(n), ids) if scatters else 0 for n in rows]
        kept.append(rows.astype(np.float64) * id_bytes(ids) + counts)
    total: Numbers = np.sum(kept, axis=0)
    return total


def next_pass(
    sizes: JoinSizes, costs: JoinCosts, used: Numbers, limits: Numbers, first: int, most: int = MOST_BUCKETS
) -> Pass | None:
    """The longest pass from a bucket on that every rank has the memory for, or None.

    Parameters
    ----------
    sizes : JoinSizes
    costs : JoinCosts
    used, limits : ndarray, shape (size,)
        In use on each rank before the pass, and its budget.
    first, most : int
        The bucket, and how many a pass has at the most.
    """
    received, index, results = (
        np.add.accumulate(one[first : first + most], axis=0)
        for one in (sizes.received, sizes.build_rows, sizes.results)
    )
    index *= costs.index_row_bytes
    enough: npt.NDArray[np.bool_] = limits - used - received - results >= free_for(index, limits)
    fits = enough.all(axis=1)
    count = len(enough) if fits.all() else int(fits.argmin())
    if not count:
        return None
    return Pass(first, first + count, used, received[count - 1], index[count - 1], results[count - 1])


def free_for(index: Numbers, limits: Numbers) -> Numbers:
    """What a pass leaves free for an index, and the work with it."""
    free: Numbers = np.maximum(_MARGIN * BUILD_SHARE * index, limits / _LEAST_FREE)
    return free


def looking_up_bytes(room: Any, index: Any, *, hashes_anew: bool) -> Any:
    """Of so much room, an index included, what looking up a piece may take.

    Where the index is made anew for each piece, half of what it leaves, so that there are few.
    """
    share = room / PIECE_SHARE
    return np.maximum(share, (room - index) / 2) if hashes_anew else share


def scratch_bytes(costs: JoinCosts, room: Numbers, index: Numbers, probe_rows: Numbers, results: Numbers) -> Numbers:
    """What is looked up at a time, and a block of the result while it is made, in so much room, an index included."""
    piece_bytes = looking_up_bytes(room, index, hashes_anew=costs.hashes_anew)
    piece = np.minimum(probe_rows, piece_bytes / costs.match_row_bytes)
    pairs = results / max(costs.out_row_bytes, 1.0)
    most = room / PIECE_SHARE / (costs.pair_bytes + 2 * costs.out_row_bytes)
    block = np.minimum(np.minimum(pairs, costs.block_rows), most)
    scratch: Numbers = piece * costs.match_row_bytes + block * (costs.pair_bytes + costs.out_row_bytes)
    return scratch


def copy_row_bytes(row_bytes: Any) -> Any:
    """About what a row takes that is copied to be sent."""
    return 2 * row_bytes + _COPY_ROW_BYTES


def _sending_bytes(sizes: JoinSizes, costs: JoinCosts, free: Numbers, passes: Sequence[Pass]) -> Numbers:
    """What choosing the rows of each pass, and copying them, takes on each rank, so much being free."""
    if costs.scatters:
        return 0.0 * free
    every = sizes.sent_rows.sum(axis=0)
    rows = np.array([sizes.sent_rows[one.first : one.last].sum(axis=0) for one in passes])
    about = MASK_ROW_BYTES * every + rows * copy_row_bytes(sizes.row_bytes)
    pieces = np.maximum(np.ceil(about / np.maximum(sending_room(costs, free), 1.0)[:, None]), 1.0)
    # Of few rows ordering takes more each; a rank that sends much may get little, and the other way round.
    size, pieced = free.shape[1], rows / pieces
    scratch = device_partition_bytes if costs.hashes_anew else partition_scratch_bytes
    ordering = np.array([scratch(int(n), size) for n in pieced.ravel().tolist()]).reshape(rows.shape)
    taken = (MASK_ROW_BYTES * every + rows * (2 * sizes.row_bytes + _ID_ROW_BYTES)) / pieces + ordering
    most: Numbers = np.minimum(taken.max(axis=1), free)
    return most


def sending_room(costs: JoinCosts, free: Numbers) -> Numbers:
    """How much sending takes at the most of what is free once both sides have come."""
    return np.minimum(np.maximum(free, 0.0) / 2, 4.0 * costs.chunk_bytes)


def plan_passes(
    sizes: JoinSizes, costs: JoinCosts, used: Numbers, limits: Numbers, start: int = 0
) -> list[Pass] | None:
    """All passes of a join from a bucket on, one after the other, or None where one does not fit: see `next_pass`.

    They are as few as fit, and then as even as they may be: in what a shorter one leaves free larger pieces are looked
    up, each of which may go through the whole index.
    """
    passes = _passes(sizes, costs, used, limits, start, sizes.buckets)
    if passes is None or len(passes) == 1:
        return passes
    even = _passes(sizes, costs, used, limits, start, -(-(sizes.buckets - start) // len(passes)))
    return even if even is not None and len(even) == len(passes) else passes


def _passes(
    sizes: JoinSizes, costs: JoinCosts, used: Numbers, limits: Numbers, start: int, most: int
) -> list[Pass] | None:
    passes: list[Pass] = []
    while not passes or passes[-1].last < sizes.buckets:
        first = passes[-1].last if passes else start
        one = next_pass(sizes, costs, used + sizes.results[start:first].sum(axis=0), limits, first, most)
        if one is None:
            return None
        passes.append(one)
    return passes


def peaks_of(sizes: JoinSizes, costs: JoinCosts, limits: Numbers, passes: Sequence[Pass]) -> Numbers:
    """The peak of each rank in passes that were planned with these sizes, costs and limits."""
    probe = np.array([np.add.accumulate(sizes.probe_rows[one.first : one.last], axis=0)[-1] for one in passes])
    used, received, index, results = (
        np.array(every)
        for every in zip(*((one.used, one.received, one.index, one.results) for one in passes), strict=True)
    )
    free = limits - used - received
    working = index + results + scratch_bytes(costs, free - results, index, probe, results)
    peaks: Numbers = (used + received + np.maximum(working, _sending_bytes(sizes, costs, free, passes))).max(axis=0)
    return peaks


@dataclass(frozen=True, slots=True)
class JoinMemory:
    """How a join fits into memory.

    Attributes
    ----------
    passes : int
        1 where all is joined at once, 0 where it does not stay in memory.
    peaks : ndarray
        Of each rank.
    evicts : bool
        Whether tables that are not in use have to be evicted for that.
    result_bytes : float
        Of the result on all ranks, as it is expected.
    notes : list of str
        Why passes that would fit are not taken.
    needed : ndarray
        On each rank, what joining all at once takes, beside the tables that have to stay.
    """

    passes: int
    peaks: Numbers
    evicts: bool
    result_bytes: float
    notes: tuple[str, ...]
    needed: Numbers


def join_memory(
    spec: JoinSpec,
    distribution: JoinDistribution,
    build: str,
    sizes: Int64s,
    costs: JoinCosts,
    strategy: str,
    *,
    instead: bool = False,
) -> JoinMemory:
    """Choose between joining all at once, in passes, and not in memory.

    Parameters
    ----------
    spec : JoinSpec
    meeting : JoinDistribution
    build : str
        The side that is indexed.
    sizes : ndarray of int64, shape (size, 10)
        Of each rank: bytes and rows of the left side, and of the right one; the budget, what is in use of it, and of
        that what tables take that are no input and may be evicted; bytes of both sides below the device tier; and the
        bytes of each side that has more chunks than one.
    costs : JoinCosts
    strategy : str
        As asked for.
    instead : bool
        Whether it may stage instead, where many passes take longer.
    """
    nbytes, rows = ({"left": sizes[:, i], "right": sizes[:, i + 2]} for i in (0, 1))
    totals = {name: int(n.sum()) for name, n in rows.items()}
    result = expected_rows(spec, totals["left"], totals["right"]) * costs.out_row_bytes
    limits, used, beside = sizes[:, 4:7].astype(np.float64).T
    ids = kept_ids_bytes(rows.values(), scatters=costs.scatters)
    everywhere = distribution.kind == "broadcast"
    at_once = even_sizes(rows, nbytes, build, distribution.moved, result, everywhere=everywhere)
    both = even_sizes(rows, nbytes, build, ("left", "right"), result, everywhere=False)
    joined = sizes[:, 8 if build == "left" else 9] * (costs.hashes_anew and build not in distribution.moved)
    indexing = replace(costs, index_row_bytes=costs.index_row_bytes + joined.sum() / max(totals[build], 1))
    index = at_once.build_rows[0] * indexing.index_row_bytes
    needed = used - beside + at_once.received[0] + at_once.results[0] + free_for(index, limits)
    splits = may_split(spec, distribution, strategy, staged=bool(sizes[:, 7].any()))
    notes: tuple[str, ...] = ()
    for less in (0.0 * beside, beside):
        once = next_pass(at_once, indexing, used - less, limits, 0)
        if once is not None:
            return JoinMemory(1, peaks_of(at_once, indexing, limits, [once]), bool(less.any()), result, (), needed)
        if splits:
            split = both.split(buckets_for(len(limits)))
            several = plan_passes(split, costs, used - less + ids, limits)
            if several is not None:
                notes = too_dear(len(several), rows["left"] + rows["right"], both) if instead else ()
                if not notes:
                    peaks = peaks_of(split, costs, limits, several)
                    return JoinMemory(len(several), peaks, bool(less.any()), result, (), needed)
    return JoinMemory(0, used, False, result, notes, needed)


def too_dear(passes: int, rows: Int64s, sizes: JoinSizes) -> tuple[str, ...]:
    """Why so many passes are not taken, in words: nothing where staging is thought to take no less time.

    Parameters
    ----------
    passes : int
    rows : ndarray of int64, shape (size,)
        Of both sides, on each rank: every pass looks at all of them.
    sizes : JoinSizes
        Of what each rank gets: staged, both sides are written twice (as they come, and by buckets) and the result once.
    """
    passing = passes * int(rows.max()) * _PASS_ROW_S
    staged = float((2 * sizes.received + sizes.results).sum(axis=0).max())
    staging = staged * _STAGED_BYTE_S
    if passing <= staging:
        return ()
    return (
        f"{passes} passes would fit into memory, but each looks at {format_count(int(rows.max()))} rows: about "
        f"{format_seconds(passing)} in all, and staging {format_bytes(int(staged))} about {format_seconds(staging)}",
    )


def even_sizes(
    rows: Mapping[str, Int64s],
    nbytes: Mapping[str, Int64s],
    build: str,
    moved: Sequence[str],
    result_bytes: float,
    *,
    everywhere: bool,
) -> JoinSizes:
    """Sizes of one bucket, with keys spread evenly where they decide.

    Parameters
    ----------
    rows, nbytes : mapping of str to ndarray of int64, shape (size,)
        Of each side, on each rank.
    build : str
        The side that is indexed.
    moved : sequence of str
        Sides that are sent.
    result_bytes : float
        Of the result, on all ranks.
    everywhere : bool
        Whether what is sent goes to all ranks.
    """
    size = len(rows[build])
    there: dict[str, Numbers] = {}
    received, sent, row_bytes = np.zeros(size), np.zeros((2, size)), np.zeros((2, 1))
    for place, name in enumerate(("left", "right")):
        here = rows[name].astype(np.float64)
        row_bytes[place] = nbytes[name].sum() / max(here.sum(), 1.0)
        if name in moved:
            sent[place] = here
            here = np.full(size, here.sum() / (1 if everywhere else size))
            received = received + here * row_bytes[place]
        there[name] = here
    probe = "left" if build == "right" else "right"
    results = np.full(size, result_bytes / size)
    return JoinSizes(received[None], there[build][None], there[probe][None], results[None], sent[None], row_bytes)


# Of a result so many bytes are told at the most, which no disk has: more do not fit the numbers of an agreement.
MOST_BYTES = 1 << 60


def least_bytes(rows: int, schema: Schema) -> int:
    """Bytes that rows of a schema take at the least: of texts no more is counted than where each begins."""
    return min(MOST_BYTES, rows * (schema.row_bytes + OFFSET_BYTES * len(schema.texts)))


def crossed_bytes(moved: Sequence[str], sizes: Int64s, schema: Schema) -> list[int]:
    """Bytes of a cross join's result on each rank, at the least; what moves goes to all. Sizes as for `join_memory`."""
    left, right = ([int(n) for n in sizes[:, place]] for place in (1, 3))
    if "left" in moved:
        left = [sum(left)] * len(left)
    if "right" in moved:
        right = [sum(right)] * len(right)
    return [least_bytes(one * other, schema) for one, other in zip(left, right, strict=True)]


def refuse_too_large(operation: Operation, limits: Int64s, needed: Sequence[int]) -> None:
    """Collective: all ranks call it. Refuse a result that neither memory nor what is below it can hold, on any host.

    Ranks ask their disks only where the budgets alone cannot hold it. What is in use now is counted as if it were free.

    Parameters
    ----------
    operation : Operation
        Opened.
    limits : ndarray of int64, shape (size,)
        The budget of each rank.
    needed : sequence of int
        Bytes of the result on each rank at the least; the same numbers on all ranks.

    Raises
    ------
    SpillError
        On all ranks alike.
    """
    if not operation.may_stage or operation.options.strategy not in ("auto", "staged"):
        return  # nothing is written then
    if all(one <= limit for one, limit in zip(needed, limits.tolist(), strict=True)):
        return
    workspace = operation.workspace
    room = workspace.spill.room()
    below = room.pinned_bytes + workspace.spill.used_bytes  # each rank's own
    place = digest(f"{workspace.transport.host} {room.disk}")
    numbers = (workspace.budget.used_bytes, room.pinned_bytes, below, room.disk_bytes, room.most_bytes, place)
    answers = operation.agree(AgreementKind.COUNT, numbers)
    for shared in dict.fromkeys(answers[:, 5].tolist()):  # a disk, by the ranks of a host
        ranks = np.flatnonzero(answers[:, 5] == shared)
        results = [needed[rank] for rank in ranks.tolist()]
        here = answers[ranks]
        total, memory = sum(results), int(limits[ranks].sum())
        most = int(here[:, 4].max())
        if most < UNKNOWN and total > memory + int(here[:, 2].sum()) + most:
            free = int(np.maximum(limits[ranks] - here[:, 0], 0).sum())
            pinned, disk = int(here[:, 1].sum()), int(here[:, 3].min())
            raise agreed(_too_large(operation, ranks, total, max(results), memory, free, pinned, disk))


def _too_large(
    operation: Operation, ranks: Int64s, needed: int, largest: int, memory: int, free: int, pinned: int, disk: int
) -> SpillError:
    config, size = operation.config, operation.size
    where = f" on {len(ranks)} of {size} ranks" if len(ranks) < size else f" on {size} ranks" if size > 1 else ""
    locked = f", {format_bytes(pinned)} of page-locked memory" if operation.workspace.has_pinned_tier else ""
    folder = f"spill_dir={config.spill_dir!r}" if config.spill_dir else "spill_dir (the system's temporary folder)"
    message = (
        f"The result of this {operation.verb} takes {format_bytes(needed)} at the least{where}, where "
        f"{format_bytes(free)} of the {format_bytes(memory)} budget{locked} and {format_bytes(disk)} of the disk of "
        f"{folder} are free. Nothing of it was made."
    )
    room = "set spill_dir to a disk" if config.allow_disk_spill else "set allow_disk_spill, with spill_dir on a disk"
    advice = (
        f"Filter the tables before, so that fewer rows meet, or {room} with at least "
        f"{format_bytes(needed - memory)} free. "
        f"In memory alone it takes a gpu_memory_limit of more than {format_bytes(largest)}."
    )
    return SpillError(
        message, advice=advice, needed_bytes=needed, used_bytes=memory - free, limit_bytes=memory,
        free_disk_bytes=disk, knob="spill_dir", would_do=needed - memory,
    )  # fmt: skip
