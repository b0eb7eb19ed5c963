"""Row groups that GPU engines decode themselves: which files of a plan have what they decode as CPU engines do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

import pyarrow as pa

from ...backends.arrow.tables import from_arrow
from ...backends.protocol.arrow_types import decoded_by_host
from ...backends.protocol.backend import RowGroups
from ...backends.protocol.data import Columns
from ..filesystems import is_url
from .footer import Footer
from .plans import ParquetPlan, int96_columns, reading_parquet
from .reader import wanted_columns


@dataclass(frozen=True, slots=True)
class FileShare:
    """What a rank reads of one file.

    Attributes
    ----------
    plan : ParquetPlan
        Of these rows alone.
    columns : tuple of str
        In order; of them ``groups.types`` are in the file.
    groups : RowGroups
    by_host : str
        Why they are decoded in host memory also on GPU engines, in words; "" where they are not.
    """

    plan: ParquetPlan
    columns: tuple[str, ...]
    groups: RowGroups
    by_host: str

    def folder_row(self) -> Columns:
        """The columns that the file does not have, but its folder: one row, which is that of all."""
        folders, path = self.plan.folders, self.groups.path
        names = [name for name in self.columns if name in folders.types]
        table = pa.table({name: folders.array(path, name, 1) for name in names})
        return from_arrow(table, self.plan.dtypes)

    def rest(self, done: int) -> ParquetPlan:
        """A plan of the rows after so many of these."""
        pieces = []
        for piece in self.plan.pieces:
            left = max(0, done)
            done -= piece.stop - piece.start
            if piece.start + left < piece.stop:
                pieces.append(replace(piece, start=piece.start + left))
        return replace(self.plan, pieces=tuple(pieces))


def file_shares(plan: ParquetPlan, columns: Sequence[str] | None) -> Iterator[FileShare]:
    """What a plan gives to one rank, file by file.

    Raises
    ------
    ReadError
        If a file cannot be read, or has no such column.
    """
    wanted = tuple(wanted_columns(plan, columns))
    for path, pieces in groupby(plan.pieces, attrgetter("path")):
        some = replace(plan, pieces=tuple(pieces))
        with reading_parquet(path):
            footer = plan.footer(path)
            schema = footer.metadata.schema.to_arrow_schema()
        known = {name: schema.field(name).type for name in wanted if name in schema.names}
        rows = [(p.group, footer.groups[p.group].rows, p.start, p.stop) for p in some.pieces]
        leaves = footer.leaves_of(known)
        chunks = [[footer.groups[p.group].chunk(leaf) for leaf in leaves] for p in some.pieces]
        sizes = tuple((sum(c.packed for c in of_one), sum(c.nbytes for c in of_one)) for of_one in chunks)
        groups = RowGroups(path, tuple(rows), known, plan.dtypes, sizes)
        yield FileShare(some, wanted, groups, _by_host(some, wanted, groups, footer))


def _by_host(plan: ParquetPlan, wanted: Sequence[str], groups: RowGroups, footer: Footer) -> str:
    if is_url(groups.path):
        return "the file is remote"
    if plan.indexes.get(groups.path):
        return "an index stands in its metadata alone"
    if not groups.types:
        return "none of its columns is read"
    times = [name for name in int96_columns(footer) if name in wanted]
    if times:
        return f"column {times[0]!r} holds times as INT96"
    return next(filter(None, map(decoded_by_host, groups.types, groups.types.values())), "")
