"""What reading files will take, before it is done: rows from their footers, bytes of a row from some rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow.compute as pc

from ...backends.host.column_buffers import OFFSET_BYTES
from ...backends.protocol.data import Columns
from ...backends.protocol.schema import Schema
from ...engine.plan.plan import lines_html
from ...engine.plan.table_stats import KEPT_FREE_IN_LIMIT
from ...units import format_bytes, format_count


@dataclass(frozen=True, slots=True)
class ReadEstimate:
    """How large a table would be on each rank, and whether that fits. Made by `Cluster.plan_read_parquet`.

    Attributes
    ----------
    schema : Schema
        Columns and dtypes.
    rows, nbytes : tuple of int
        Of each rank: rows as the footers say (the most there can be, with filters), as wide as some are.
    free_bytes, limits : tuple of int
        Of each rank's budget: what is free now, and all of it.
    may_stage : bool
        Whether what does not fit is staged.
    notes : tuple of str
        What is read, in words.
    """

    schema: Schema
    rows: tuple[int, ...]
    nbytes: tuple[int, ...]
    free_bytes: tuple[int, ...]
    limits: tuple[int, ...]
    may_stage: bool
    notes: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        """Rows on all ranks."""
        return sum(self.rows)

    @property
    def total_bytes(self) -> int:
        """Bytes on all ranks."""
        return sum(self.nbytes)

    @property
    def fits(self) -> bool:
        """Whether every rank holds its rows in its budget, beside what is there now: none of them would be staged."""
        return not any(self.staged_bytes)

    @property
    def staged_bytes(self) -> tuple[int, ...]:
        """Of each rank, what would not fit. A reader that may stage leaves a quarter of the budget free for work."""
        kept = [limit // KEPT_FREE_IN_LIMIT if self.may_stage else 0 for limit in self.limits]
        of_ranks = zip(self.nbytes, self.free_bytes, kept, strict=True)
        return tuple(max(0, n - max(0, free - left)) for n, free, left in of_ranks)

    def describe(self) -> str:
        """Return it in words."""
        size = len(self.rows)
        head = (
            f"{format_count(self.num_rows)} rows of {len(self.schema)} columns, about {format_bytes(self.total_bytes)} "
            f"in memory, up to {format_bytes(max(self.nbytes))} a rank of {size}"
        )
        free = f"{format_bytes(min(self.free_bytes))} of {format_bytes(min(self.limits))} are free"
        if self.fits:
            said = f"it fits: {free}"
        elif self.may_stage:
            said = f"up to {format_bytes(max(self.staged_bytes))} a rank would be staged: {free}"
        else:
            said = f"it does not fit, and may not be staged: {free}"
        return "\n".join([f"{head}; {said}", *(f"  {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        return lines_html(self.describe())


def estimate_read(
    shares: Sequence[Any],
    looked: Sequence[Any],
    memory: Sequence[dict[str, int]],
    limits: Sequence[int],
    *,
    may_stage: bool,
    on_gpus: bool,
) -> ReadEstimate:
    """Estimate a table from what each rank would read.

    Parameters
    ----------
    shares : sequence
        Plans of the ranks, whose pieces are rows.
    looked : sequence of Columns
        Some rows, as they are read.
    memory : sequence of dict
        ``used_bytes`` of each rank.
    limits : sequence of int
    may_stage, on_gpus : bool
    """
    rows = tuple(sum(piece.stop - piece.start for piece in share.pieces) for share in shares)
    seen, schema = sum(data.rows for data in looked), looked[0].schema
    nbytes_of = _device_bytes if on_gpus else attrgetter("nbytes")
    width = sum(map(nbytes_of, looked)) / seen if seen else schema.row_bytes
    notes = list(shares[0].notes)
    if schema.variable and seen:
        notes.append(f"texts and other variable columns are counted as wide as in {format_count(seen)} rows of them")
    free = tuple(max(0, limit - one["used_bytes"]) for limit, one in zip(limits, memory, strict=True))
    nbytes = tuple(int(n * width) for n in rows)
    return ReadEstimate(schema, rows, nbytes, free, tuple(limits), may_stage, tuple(notes))


def _device_bytes(data: Columns) -> float:
    """Bytes of rows as a GPU holds them: of texts offsets are half as wide there, and there is no bitmap of nothing."""
    total = float(data.nbytes)
    for place in data.schema.texts:
        texts = data.arrays[place]
        chars = pc.sum(pc.binary_length(texts)).as_py() or 0
        total += chars + data.rows * (OFFSET_BYTES + (1 / 8 if texts.null_count else 0)) - texts.nbytes
    return total
