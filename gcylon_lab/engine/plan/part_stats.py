"""What a rank tells of its part of a table and of its memory, as plans see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ...backends.protocol.schema import Label
from ...config import GcylonConfig
from .table_stats import FAST_CHUNK_BYTES, TableStats


class Spread(NamedTuple):
    """By which columns rows are spread, over how many ranks."""

    keys: tuple[Label, ...]
    size: int


@dataclass(frozen=True, slots=True)
class PartStats:
    """What a rank tells of its part of a table and of its memory; see `Table.info`, of which it is made.

    Attributes
    ----------
    columns, dtypes : tuple
        Of the table; dtypes in words.
    rows, nbytes, device_bytes, staged_bytes, chunks : int
        Of the part: rows, bytes in all tiers, on the device tier and below it, and the number of its chunks.
    device_chunk_bytes : tuple of int
        Of each chunk on the device tier.
    largest_staged_bytes : int
        Of the largest chunk below it.
    evicted : tuple of (limit, bytes, slices)
        Of chunks that come back when the table is next used.
    spread : Spread, optional
        How the table is spread over the ranks, where that is known.
    row_bytes : int
        Bytes a row of the fixed columns.
    column_row_bytes : tuple of float
        Mean bytes a row of each column; empty where that is not known.
    fixed_column_bytes : tuple of int
        Of each column, 0 for a variable one.
    widest_row_bytes, null_columns, texts : int
    fixed, ready : bool
        See `TableStats`.
    used_bytes, ceiling_bytes, free_at_start_bytes : int
        Of the rank's memory.
    pinned_tier : bool
        Whether host memory is a tier there, as on GPU engines.
    exchange : mapping
        How its world exchanges: fields of `TableStats`.
    index_row_bytes, match_row_bytes, pair_bytes : number
        Of a join's index, of looking up in it, and of pairs.
    grouping_row_bytes, ordering_row_bytes : number
        Of what finds equal rows, and of what orders them too.
    """

    columns: tuple[Label, ...]
    rows: int
    nbytes: int
    device_bytes: int
    staged_bytes: int
    chunks: int
    device_chunk_bytes: tuple[int, ...]
    largest_staged_bytes: int
    row_bytes: int
    used_bytes: int
    ceiling_bytes: int
    free_at_start_bytes: int
    dtypes: tuple[str, ...] = ()
    evicted: tuple[tuple[int, int, int], ...] = ()
    spread: Spread | None = None
    column_row_bytes: tuple[float, ...] = ()
    fixed_column_bytes: tuple[int, ...] = ()
    widest_row_bytes: int = 0
    null_columns: int = -1
    texts: int = 0
    fixed: bool = False
    ready: bool = False
    pinned_tier: bool = False
    exchange: Mapping[str, Any] = field(default_factory=dict)
    index_row_bytes: int = 0
    match_row_bytes: float = 0
    pair_bytes: float = 0
    grouping_row_bytes: float = 0
    ordering_row_bytes: float = 0

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> PartStats:
        """Make them of a rank's ``Table.info()``, also of one that has come as JSON."""
        spread, tiers = info.get("partitioning"), info["tiers"]
        known = {name: info[name] for name in _AS_TOLD if name in info}
        known |= {name: tuple(info[name]) for name in _LISTED if name in info}
        return cls(
            device_bytes=tiers["device"],
            staged_bytes=sum(tiers.values()) - tiers["device"],
            evicted=tuple(tuple(one) for one in info.get("evicted", ())),
            spread=None if spread is None else Spread(tuple(spread["keys"]), spread["size"]),
            **({"device_chunk_bytes": (tiers["device"],)} | known),
        )

    @property
    def fast_chunk_bytes(self) -> int:
        """A chunk where memory does not matter."""
        return int(self.exchange.get("fast_chunk_bytes", FAST_CHUNK_BYTES))

    @property
    def on_gpu(self) -> bool:
        """Whether the rank works on a GPU."""
        return "fast_chunk_bytes" in self.exchange

    def may_stage(self, config: GcylonConfig) -> bool:
        """Whether a config lets chunks leave the device tier there."""
        return config.may_stage(pinned_tier=self.pinned_tier)

    def limit_bytes(self, config: GcylonConfig) -> int:
        """The limit that a config sets there."""
        return config.limit_bytes(self.ceiling_bytes, self.free_at_start_bytes)


_LISTED = ("columns", "dtypes", "device_chunk_bytes", "fixed_column_bytes", "column_row_bytes")
_AS_TOLD = tuple(
    name
    for name in PartStats.__dataclass_fields__
    if name not in (*_LISTED, "device_bytes", "staged_bytes", "evicted", "spread")
)

Infos = Sequence[Mapping[str, Any]]
"""Every rank's ``Table.info()``, in rank order."""

Parts = Sequence[PartStats]
"""What is known of a table on every rank, in rank order."""


def parts_of(infos: Infos) -> list[PartStats]:
    """What ranks tell in their ``Table.info()``."""
    return [PartStats.of(info) for info in infos]


def table_stats(verb: str, parts: Parts, limits: Sequence[int], **more: Any) -> TableStats:
    """What all ranks know of a table, put together; ``more`` is what the verb needs beside."""
    first = parts[0]
    return TableStats(
        verb=verb,
        rows=tuple(part.rows for part in parts),
        nbytes=tuple(part.nbytes for part in parts),
        staged_bytes=tuple(part.staged_bytes for part in parts),
        largest_staged_bytes=tuple(part.largest_staged_bytes for part in parts),
        chunks=tuple(part.chunks for part in parts),
        used=tuple(part.used_bytes for part in parts),
        limits=tuple(limits),
        fixed_row_bytes=first.row_bytes,
        columns=len(first.columns),
        writable=all(part.null_columns >= 0 and part.dtypes == first.dtypes for part in parts),
        ready=all(part.ready and part.dtypes == first.dtypes for part in parts),
        texts=first.texts,
        fixed=first.fixed,
        null_columns=max(0, *(part.null_columns for part in parts)),
        widest_bytes=tuple(part.widest_row_bytes for part in parts),
        **first.exchange,
        **more,
    )


def some_columns(parts: Parts, names: Collection[Label]) -> list[PartStats]:
    """What every rank would tell of some of a table's columns, as far as their widths are known.

    They are a view: the whole table stays in use. Of what is staged they alone are read back, variable ones together.
    """
    places = [place for place, name in enumerate(parts[0].columns) if name in set(names)]
    if len(places) == len(parts[0].columns) or not all(part.column_row_bytes for part in parts):
        return list(parts)
    return [_narrowed(part, places) for part in parts]


def _narrowed(part: PartStats, places: Sequence[int]) -> PartStats:
    means = tuple(part.column_row_bytes[place] for place in places)
    fixed = tuple(part.fixed_column_bytes[place] for place in places)
    whole = max(sum(part.column_row_bytes), 1)
    device = int(part.device_bytes * sum(means) / whole)
    of_columns = zip(part.column_row_bytes, part.fixed_column_bytes, strict=True)
    packed = 0.0 if all(fixed) else sum(mean for mean, of_fixed in of_columns if not of_fixed)
    below = (sum(fixed) + packed) / whole  # of what is staged
    staged = int((part.nbytes - part.device_bytes) * below)
    return replace(
        part,
        columns=tuple(part.columns[place] for place in places),
        dtypes=tuple(part.dtypes[place] for place in places),
        row_bytes=sum(fixed),
        column_row_bytes=means,
        fixed_column_bytes=fixed,
        nbytes=staged + device,
        device_bytes=device,
        staged_bytes=staged,
        largest_staged_bytes=int(part.largest_staged_bytes * below),
        null_columns=min(part.null_columns, len(places)),
        texts=min(part.texts, len(places)),
    )
