"""Tables that are not there, or not so large: what every rank would tell of them, and how many rows a verb can take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..backends.host.backend import PandasBackend
from ..backends.protocol.aggregation import Kernel
from ..backends.protocol.backend import Backend
from ..backends.protocol.schema import Schema
from ..config import GcylonConfig
from ..engine.plan.estimate import limits_of
from ..engine.plan.part_stats import Infos, PartStats, parts_of
from ..engine.plan.table_stats import KEPT_FREE_IN_LIMIT, stage_slice_bytes
from ..engine.store.workspace import Workspace
from ..errors import ArgumentError, BudgetExceeded
from .estimate import estimate_parts
from .io.ingest import piece_bytes

# No rank's memory or disk holds more, so that no bound is one.
_MOST_BYTES = 1 << 56
_EXACT = 1000  # the answer is at the most one in so many below the largest number
_MOST_CHUNKS = 1000  # that are told one by one; larger tables are told in larger ones


def unloaded_parts(
    schema: Schema, rows: int, nbytes: int, limits: Sequence[int], config: GcylonConfig,
    workspace: Workspace | None = None,
) -> list[PartStats]:  # fmt: skip
    """What ranks would tell of a table spread evenly, of which nothing is there.

    Parameters
    ----------
    schema : Schema
    rows, nbytes : int
        On all ranks.
    limits : sequence of int
        The budget of each rank, with nothing else in it.
    config : GcylonConfig
    workspace : Workspace, optional
        Of a rank that would hold it; CPU engines' by default.
    """
    backend: Backend = PandasBackend() if workspace is None else workspace.backend
    size, texts = len(limits), len(schema.texts)
    variable = max(0.0, nbytes / max(rows, 1) - schema.row_bytes) / max(len(schema.variable), 1)
    fixed = tuple(0 if column.dtype is None else column.dtype.itemsize for column in schema)
    like = PartStats(
        columns=schema.names,
        dtypes=tuple(column.describe() for column in schema),
        rows=0, nbytes=0, device_bytes=0, staged_bytes=0, chunks=0, device_chunk_bytes=(), largest_staged_bytes=0,
        row_bytes=schema.row_bytes,
        fixed_column_bytes=fixed,
        column_row_bytes=tuple(float(n) if n else variable for n in fixed),
        null_columns=0 if len(schema.variable) == texts else -1,
        texts=texts,
        fixed=not schema.variable,
        ready=True,
        exchange={} if workspace is None else workspace.exchange_shapes(),
        index_row_bytes=backend.index_row_bytes(Schema(())),
        match_row_bytes=backend.match_row_bytes(Schema(())),
        pair_bytes=backend.pair_bytes(),
        grouping_row_bytes=backend.grouping_row_bytes(()),
        ordering_row_bytes=backend.grouping_row_bytes([Kernel("median", (), ())]),
        pinned_tier=workspace is not None and workspace.has_pinned_tier,
        used_bytes=0, ceiling_bytes=0, free_at_start_bytes=0,
    )  # fmt: skip
    shares = [rows * (rank + 1) // size - rows * rank // size for rank in range(size)]
    ranks = [replace(like, ceiling_bytes=limit, free_at_start_bytes=limit) for limit in limits]
    return [
        _of_size(part, n, nbytes * n // max(rows, 1), limit, 0, config)
        for part, n, limit in zip(ranks, shares, limits, strict=True)
    ]


def _of_size(
    part: PartStats, rows: int, nbytes: int, limit_bytes: int, beside_bytes: int, config: GcylonConfig
) -> PartStats:
    """What a rank would tell of its part if that had so many rows and bytes, and others so many of the limit: taken in
    as a reader takes them in, below the device tier as far as there is no room."""
    room = limit_bytes - limit_bytes // KEPT_FREE_IN_LIMIT - beside_bytes
    device = min(nbytes, max(0, room)) if part.may_stage(config) else nbytes
    below = nbytes - device
    chunks = min(_MOST_CHUNKS, -(-device // piece_bytes(limit_bytes)))
    piece = stage_slice_bytes(limit_bytes, on_gpu=part.on_gpu)
    return replace(
        part,
        rows=rows,
        nbytes=nbytes,
        device_bytes=device,
        staged_bytes=below,
        chunks=chunks + -(-below // piece),
        device_chunk_bytes=(device // max(chunks, 1),) * chunks,
        largest_staged_bytes=min(piece, below),
        evicted=(),
        used_bytes=beside_bytes + device,
    )


def most_rows(verb: str, infos: Infos, config: GcylonConfig, strategy: str, **arguments: Any) -> int | None:
    """Return how many rows a table like this one may have for a verb to run; None where memory sets no bound.

    Parameters
    ----------
    verb, strategy, **arguments
        As for `estimate_verb`.
    infos : sequence of mapping
        Every rank's ``Table.info()``: the rows have these widths, and are spread like these.
    config : GcylonConfig

    Raises
    ------
    ArgumentError
        If the table has no rows to judge by.
    """
    parts = parts_of(infos)
    total = sum(part.rows for part in parts)
    if not total:
        raise ArgumentError("max_rows needs a table with rows, to judge by their widths.", advice="Use gl.estimate.")
    limits = limits_of(parts, config)
    beside = [max(0, part.used_bytes - part.device_bytes) for part in parts]
    widest = sum(part.nbytes for part in parts) / total

    def fits(rows: int) -> bool:
        sized = [
            _of_size(part, -(-part.rows * rows // total), part.nbytes * rows // total, limit, held, config)
            for part, limit, held in zip(parts, limits, beside, strict=True)
        ]
        try:
            estimate_parts(verb, [sized], config, strategy=strategy, **arguments)
        except BudgetExceeded:
            return False
        return True

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
        if high * widest > _MOST_BYTES:
            return None
    while high - low > max(1, low // _EXACT):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
