"""Rows of a rank split by the hash of their keys, below the device tier, so that each bucket is worked on alone."""

from __future__ import annotations

from collections.abc import Sequence

from ..tables.schema import Label, Schema
from .local import LocalWork
from .part import Part

MOST_BUCKETS = 64


def split_in_buckets(
    work: LocalWork,
    part: Part,
    keys: Sequence[Label],
    buckets: int,
    *,
    apart: int,
    using_up: bool,
    schema: Schema | None = None,
) -> list[Part]:
    """Split a part; rows with equal keys are in the bucket of one number, whatever the widths of their dtypes.

    Parameters
    ----------
    work : LocalWork
    part : Part
    keys : sequence of labels
    buckets : int
    apart : int
        Into how many the hash has been divided already: the world size, times the buckets of splits before. Divided
        finer it tells the new buckets apart.
    using_up : bool
        Whether chunks are dropped from the part as they are split.
    schema : Schema, optional
        Of the buckets: some of the part's columns, perhaps of wider dtypes. The part's own by default.

    Returns
    -------
    list of Part
        One a bucket.
    """
    backend, schema = work.backend, part.schema if schema is None else schema
    parts = [Part(work.workspace, schema, ()) for _ in range(buckets)]  # nothing of them is left to give way
    dtype = backend.new_ids(0, buckets).dtype
    row_bytes = part.nbytes / max(part.rows, 1)
    scratch = backend.partition_scratch_bytes(1024, buckets) / 1024 + 24
    # As large as fits: the smaller a piece, the more and smaller the chunks of a bucket are.
    wished = work.piece_rows(row_bytes, 0)
    rows = max(1, min(8 * wished, int(work.room() / 3 / (4 * row_bytes + scratch))))
    work.expect_pieces(part, schema, rows, 2 * max(row_bytes, schema.row_bytes) + scratch)
    for piece in work.pieces(part, schema, rows, using_up=using_up):
        needed = 2 * piece.nbytes + 24 * piece.rows + backend.partition_scratch_bytes(piece.rows, buckets)
        with work.claim(needed):
            ids = backend.partition_ids(piece, keys, apart * buckets) % buckets
            data, offsets = backend.partition(piece, ids.astype(dtype), buckets)
            for bucket, start, stop in zip(parts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
                if stop > start:
                    work.put_down(bucket, backend.slice(data, start, stop))
    return parts
