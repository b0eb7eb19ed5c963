"""Plans of verbs that put rows with equal keys together, from what is known of the table already: no data is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...backends.host.partition import partition_scratch_bytes
from ...backends.protocol.scattering import device_partition_bytes
from ...backends.protocol.schema import Label
from ...config import GcylonConfig
from ...engine.exchange.buckets import LEAST_CHUNK_BYTES, RUN_ROW_BYTES, run_rows
from ...engine.exec.local_executor import PIECES_IN_LIMIT
from ...engine.plan.estimate import (
    estimate_exchange,
    limits_of,
    stats_ahead,
    target_rows,
    what_is_evicted,
)
from ...engine.plan.part_stats import Parts, PartStats, some_columns
from ...engine.plan.plan import Plan
from ...engine.plan.table_stats import (
    FAST_CHUNK_BYTES,
    KEPT_FREE_IN_LIMIT,
    MOST_BUCKETS,
    stage_slice_bytes,
)

LOCAL = "because rows with equal keys are on one rank already"


@dataclass(frozen=True, slots=True)
class Making:
    """What is made of a row, were each a group. All in bytes a row.

    Attributes
    ----------
    kernels, last : float
        What grouping counts with for the columns that it makes, and for those of the last step.
    partial, result : float
        How wide the groups are then, keys among them: before the last step, and after it.
    scratch : float
    """

    kernels: float
    last: float
    partial: float
    result: float
    scratch: float


@dataclass(frozen=True, slots=True)
class Made:
    """What a rank would have of a result, were each row a group: bytes that it holds, the others being staged, and in
    how many pieces they come."""

    held: int
    pieces: int


def as_wide(infos: Parts, on: Sequence[Label]) -> Making:
    """What is made where each column is made of one, as wide as that."""
    wide = sum(i.nbytes for i in infos) / max(sum(i.rows for i in infos), 1)
    made = wide
    if infos[0].column_row_bytes:
        made -= sum(some_columns(infos, on)[0].column_row_bytes)
    return Making(made, made, wide, wide, infos[0].grouping_row_bytes)


def estimate_together(
    verb: str, before: Parts, infos: Parts, config: GcylonConfig, strategy: str, on: Sequence[Label], making: Making
) -> tuple[Plan, list[Made]]:
    """Plan what shuffles rows by keys, unless those with equal keys are on one rank already, and groups them.

    Parameters
    ----------
    verb : str
    before : sequence of mapping
        What every rank tells of the table.
    infos : sequence of mapping
        Of its columns that travel, once tables have given way: see `opened`.
    config, strategy, on
        As for `estimate_exchange`.
    making : Making

    Returns
    -------
    Plan, list of Made
        And each rank's result.
    """
    limits = limits_of(infos, config)
    if are_together(infos, on):
        return _where_they_are(verb, infos, config, strategy, making)
    plan = estimate_exchange("shuffle", infos, config, strategy=strategy, on=on)
    after = stats_ahead("shuffle", infos, config, strategy)[1]
    rows, sizes = spread_evenly(infos)
    may_stage, kind, fast = infos[0].may_stage(config), _kind(infos, config), infos[0].fast_chunk_bytes

    def grouped(asked: str, exchanged: str) -> tuple[list[int], list[Made]]:
        """Peaks and results of the grouping, where the rows were exchanged by a strategy."""
        peaks, made = [], []
        for used, count, size, limit in zip(after.used, rows, sizes, limits, strict=True):
            there = (0, size, size if kind == "fixed" else 2 * size) if exchanged == "staged" else (size, 0, 0)
            grouping = _Grouping(used, count, size, size, *there, limit, making, kind, fast)
            peaks.append(min(limit, grouping.needed(config, asked, may_stage=may_stage)))
            made.append(grouping.made(config, asked, may_stage=may_stage))
        return peaks, made

    work, made = grouped(strategy, plan.strategy)
    peaks = tuple(map(max, plan.predicted_peaks, work))
    others = [
        replace(one, predicted_peak_bytes=max(one.predicted_peak_bytes, *grouped(one.strategy, one.strategy)[0]))
        if one.fits
        else one
        for one in plan.alternatives
    ]
    plan = replace(
        plan, verb=verb, notes=what_is_evicted(stats_ahead("shuffle", before, config, strategy)[0], after),
        predicted_peaks=peaks, alternatives=tuple(others),
    )  # fmt: skip
    return plan, made


def _where_they_are(
    verb: str, infos: Parts, config: GcylonConfig, strategy: str, making: Making
) -> tuple[Plan, list[Made]]:
    limits, sizes = limits_of(infos, config), [int(i.rows * making.result) for i in infos]
    needs, made, may_stage, kind = [], [], infos[0].may_stage(config), _kind(infos, config)
    fast = infos[0].fast_chunk_bytes
    for info, limit in zip(infos, limits, strict=True):
        below = info.nbytes - info.device_bytes
        copied = info.nbytes if info.chunks > 1 else below
        joining = copied + below * (info.chunks > 1 and kind != "fixed")
        sizes_here = own_bytes(info), info.nbytes
        rows = info.used_bytes, info.rows, *sizes_here
        grouping = _Grouping(*rows, 0, copied, joining, limit, making, kind, fast)
        needs.append(grouping.needed(config, strategy, may_stage=may_stage))
        made.append(grouping.made(config, strategy, may_stage=may_stage))
    peaks = tuple(map(min, needs, limits))
    if strategy == "auto":
        strategy = "direct" if [one.held for one in made] == sizes else "staged"
    plan = Plan(
        verb=verb, strategy=strategy, rounds=0, chunk_rows=0, round_bytes=0,
        result_bytes=max(sizes), budget_bytes=min(limits), reason=LOCAL,
        assumption="assuming a result no larger than the table", predicted_peaks=peaks,
    )  # fmt: skip
    return plan, made


def _kind(infos: Parts, config: GcylonConfig) -> str:
    """How rows are split in buckets: see `_Grouping`."""
    if infos[0].pinned_tier or not infos[0].may_stage(config):
        return ""
    return "fixed" if infos[0].fixed else "variable"


@dataclass(frozen=True, slots=True)
class _Grouping:
    """A rank's rows that are grouped.

    Attributes
    ----------
    used, rows, own, counted : int
        Bytes in use beside the rows; how many rows; their bytes; and those that the group-by counts with: with all
        texts of the table where some are staged.
    held, copied, joining : int
        Bytes of the rows in memory that do not count as used; of a copy of all, which is needed where they are not in
        one chunk there; and while that is made.
    limit : int
    making : Making
    kind : str
        ``fixed`` or ``variable`` where pieces of such columns are written in order of their buckets.
    fast_chunk_bytes : int
        A chunk where memory does not matter.
    """

    used: int
    rows: int
    own: int
    counted: int
    held: int
    copied: int
    joining: int
    limit: int
    making: Making
    kind: str
    fast_chunk_bytes: int

    def needed(self, config: GcylonConfig, strategy: str, *, may_stage: bool) -> int:
        """What would be in use at the most, were there room: all rows are grouped at once, or where that does not fit,
        in buckets of them."""
        kept = self._held(strategy, may_stage=may_stage)
        if not (buckets := self._buckets):
            finishing = self.copied + self._finishing(config, kept)
            return int(self.used + self.held + max(self._at_once, finishing))
        tried = min(self.joining, self.limit - self.used - self.held) if self._counted <= self.limit else 0
        bucket = (self.own + self._work) / buckets
        if strategy != "staged":  # what is made of the others is held as long as there is room
            bucket += self.rows * self.making.result * (buckets - 1) / buckets
        return int(self.used + max(bucket, self.held + tried, self.held + self._splitting(buckets)))

    def made(self, config: GcylonConfig, strategy: str, *, may_stage: bool) -> Made:
        """The result: of a part of it that is staged all bytes of a piece are."""
        size, pieces = int(self.rows * self.making.result), self._pieces(config)
        held = self._held(strategy, may_stage=may_stage)
        return Made(held if held == size else held * pieces // max(size, 1) * size // pieces, pieces)

    def _held(self, strategy: str, *, may_stage: bool) -> int:
        """Bytes of the result that are held: what is made is evicted for the work on the rest."""
        size = int(self.rows * self.making.result)
        if strategy == "staged":
            return 0
        if strategy != "auto" or not may_stage:
            return size
        made = self.rows * self.making.partial
        most: float = self.limit - self.limit // KEPT_FREE_IN_LIMIT - self.used
        if buckets := self._buckets:
            # What the last bucket gives stands beside no other one's work.
            beside = self.limit - self.used - (self.own + self._work - size) / buckets
            most = min(most - made / buckets, beside)
        else:
            most -= self.held + self.copied + made
        return int(max(0, min(size, most)))

    @property
    def _work(self) -> float:
        return self.own + self.rows * (self.making.scratch + self.making.kernels)

    @property
    def _counted(self) -> float:
        return 2 * self.counted + self._work - self.own

    @property
    def _at_once(self) -> float:
        return max(self.joining, self.copied + self._work)

    @property
    def _buckets(self) -> int:
        """Into how many rows are split; 0 where they are grouped at once."""
        if self._counted <= self.limit and self.used + self.held + self._at_once <= self.limit:
            return 0
        most = max(1.0, min(self.limit / 2, 0.75 * (self.limit - self.used)))  # as `HashAggregate.whole` has it
        wanted = max(2, int(-(-self._counted // most)))
        return wanted if self.kind else min(wanted, MOST_BUCKETS)  # then some are split again

    def _finishing(self, config: GcylonConfig, kept: int) -> float:
        """The last step goes through what was made piece by piece."""
        made, count = self.making.partial, self._pieces(config)
        others = min(kept, self.rows * made * (count - 1) / count)
        return self.rows * (made + 2 * (made + self.making.last) / count) + others

    def _pieces(self, config: GcylonConfig) -> int:
        """How many there are in the last step."""
        made, buckets = max(self.making.partial, 1), self._buckets or 1
        wished = max((config.chunk_size_bytes or self.fast_chunk_bytes) / made, config.min_chunk_rows)
        piece = max(1, int(min(wished, self.limit / PIECES_IN_LIMIT / (made + self.making.result))))
        return buckets * max(1, -(-(self.rows // buckets) // piece))

    def _splitting(self, buckets: int) -> float:
        """Rows are split in pieces that take a part of what is free; some wait to be put down together."""
        ordering = device_partition_bytes if self.fast_chunk_bytes > FAST_CHUNK_BYTES else partition_scratch_bytes
        row, scratch = self.own / max(self.rows, 1), ordering(1024, buckets) / 1024 + 24
        room = max(0, self.limit - self.used - self.held)
        if self.kind:
            work_row = row * (1 if self.kind == "fixed" else 2) + RUN_ROW_BYTES
            return run_rows(room, max(self.rows, 1), buckets, row, work_row) * (row + work_row)
        piece = min(self.rows, room / 3 / (4 * row + scratch)) * (2 * row + scratch)
        waiting = min(self.own, buckets * LEAST_CHUNK_BYTES, (room - piece) / 2)
        return piece + max(0.0, waiting)


def opened(infos: Parts, config: GcylonConfig) -> Parts:
    """What every rank would tell once tables have given way to local work: other ones first, then the table itself."""
    if not infos[0].may_stage(config):
        return list(infos)
    told = []
    for info, limit in zip(infos, limits_of(infos, config), strict=True):
        chunks = list(info.device_chunk_bytes)
        most = limit - 2 * (limit // PIECES_IN_LIMIT)
        used = max(min(info.used_bytes, sum(chunks)), min(info.used_bytes, most))
        gone, slices, largest = 0, 0, info.largest_staged_bytes
        while used > most and chunks:
            nbytes = chunks.pop(0)
            used, gone = used - nbytes, gone + nbytes
            count = max(1, -(-nbytes // stage_slice_bytes(limit, on_gpu=info.on_gpu)))
            slices, largest = slices + count - 1, max(largest, -(-nbytes // count))
        told.append(
            replace(
                info, used_bytes=used, device_bytes=info.device_bytes - gone, staged_bytes=info.staged_bytes + gone,
                device_chunk_bytes=tuple(chunks), chunks=info.chunks + slices, largest_staged_bytes=largest,
            )
        )  # fmt: skip
    return told


def are_together(infos: Parts, on: Sequence[Label]) -> bool:
    """Whether rows with equal keys are on one rank already."""
    spread = infos[0].spread
    return len(infos) == 1 or (spread is not None and spread.size == len(infos) and set(spread.keys) <= set(on))


def own_bytes(info: PartStats) -> int:
    """Bytes of a rank's rows once they stand for themselves: of texts that are staged more are read back."""
    widths = info.column_row_bytes
    return int(info.nbytes) if not widths else min(int(info.nbytes), int(info.rows * sum(widths)))


def spread_evenly(infos: Parts) -> tuple[list[int], list[int]]:
    """Rows and bytes of each rank after a shuffle."""
    rows = target_rows([i.rows for i in infos], None)
    total, nbytes = sum(rows), sum(own_bytes(i) for i in infos)
    return rows, [nbytes * count // max(total, 1) for count in rows]


def made_here(
    infos: Parts, rows: Sequence[int], sizes: Sequence[int], made: Sequence[Made], config: GcylonConfig
) -> list[PartStats]:
    """What every rank would tell of rows that it has made by itself."""
    told = []
    for info, count, own, result, limit in zip(infos, rows, sizes, made, limits_of(infos, config), strict=True):
        here = min(own, result.held)
        piece = -(-own // result.pieces)
        held, below = -(-here // max(piece, 1)), -(-(own - here) // max(piece, 1))
        slices = below * -(-piece // stage_slice_bytes(limit, on_gpu=info.on_gpu))
        told.append(
            replace(
                info, rows=count, nbytes=own, device_bytes=here, staged_bytes=own - here, chunks=held + slices,
                device_chunk_bytes=(here // held,) * held if held else (),
                largest_staged_bytes=-(-(own - here) // max(slices, 1)), used_bytes=info.used_bytes + here,
            )
        )  # fmt: skip
    return told
