"""Whether a join is done all at once in memory, in passes, or staged: pure, from sizes that all ranks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...backends.protocol.join_columns import JoinSpec
from ...units import format_bytes, format_count, format_seconds
from .distribution import JoinDistribution, expected_rows, may_split
from .passes import (
    Int64s,
    JoinCosts,
    JoinSizes,
    Numbers,
    buckets_for,
    free_for,
    kept_ids_bytes,
    next_pass,
    peaks_of,
    plan_passes,
)

# Seconds that a pass takes for each row of both tables, and staging for each byte that is written. On 2 cores, with
# rows of 16 to 48 bytes, it was 1.0 to 3.2 ns a row, and 0.4 ns a byte while the disk kept up (1.3 where it did not).
_PASS_ROW_S, _STAGED_BYTE_S = 2.2e-9, 0.5e-9


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
