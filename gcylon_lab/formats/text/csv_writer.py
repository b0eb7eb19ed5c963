"""Writing a rank's rows as csv; and what text files share."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ...backends.arrow.tables import to_arrow
from ...backends.protocol.data import Columns
from ...backends.protocol.schema import Schema
from ...errors import ArgumentError, WriteError
from ..part_files import PartFiles, writing_to
from ..row_writers import Format, file_schema, plain_values, refuse_kinds, require_columns_to_write
from .blocks import COMPRESSIONS
from .csv_reader import CSV_SUFFIXES

ROWS_AT_ONCE = 1 << 16
_MOST_BYTES = 1 << 30  # Arrow's writer has texts of less than 2 GiB
_DIGITS = r"^-?[0-9]+$"
_IN_VALUES = frozenset("0123456789 :-+.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def csv_format(*, delimiter: str = ",", header: bool = True, compression: str | None = None) -> Format:
    """csv files.

    Parameters
    ----------
    delimiter : str
    header : bool
        Whether the first line of each file names the columns.
    compression : str, optional
        gzip, bz2, zstd, lz4 or brotli.
    """

    def open_(files: PartFiles, schema: Schema, _: bool) -> CsvRows:
        return CsvRows(files, schema, delimiter, header, compression)

    return Format(f".csv{compressed_ending(compression)}", CSV_SUFFIXES, open_)


def compressed_ending(compression: str | None) -> str:
    """What names of compressed files end in.

    Raises
    ------
    ArgumentError
        If there is no such compression.
    """
    endings = {kind: ending for ending, kind in COMPRESSIONS.items()}
    if compression is not None and compression not in endings:
        raise ArgumentError(
            f"compression={compression!r} is not known for text.", advice=f"It is None or one of {', '.join(endings)}."
        )
    return "" if compression is None else endings[compression]


class TextRows:
    """A file of text, perhaps compressed."""

    def __init__(self, files: PartFiles, schema: Schema, compression: str | None) -> None:
        self.schema = schema
        self.target = files.target()
        self.names = file_schema(schema).names
        self._raw: Any = None
        with writing_to(self.target):
            self._raw = files.create()
            sink = self._raw if isinstance(self._raw, pa.NativeFile) else pa.PythonFile(self._raw, "w")
            self.sink = sink if compression is None else pa.CompressedOutputStream(sink, compression)

    def close_file(self) -> None:
        """Close the file, and what compresses it."""
        self.sink.close()
        self._raw.close()

    def abandon(self) -> None:
        """Close the file."""
        for stream in (self.sink, self._raw):
            with suppress(OSError, pa.ArrowException, ValueError):
                stream.close()


class CsvRows(TextRows):
    """One csv file. Text stands in quotes; what is missing is nothing between delimiters."""

    def __init__(self, files: PartFiles, schema: Schema, delimiter: str, header: bool, compression: str | None) -> None:
        refuse_kinds(schema, ("bytes", "list", "struct", "map"), "csv", "Write parquet or ipc, or leave it out.")
        super().__init__(files, schema, compression)
        broken = [name for name in self.names if "\n" in name or "\r" in name]
        if broken:
            raise WriteError(f"the label {broken[0]!r} has a line end in it", advice="Rename the column.")
        self._delimiter = delimiter
        # A line with nothing in it would be no row to those who read it.
        self._missing = '""' if len(self.names) == 1 else ""
        if header and self.names:
            names = (name.replace('"', '""') for name in self.names)
            with writing_to(self.target):
                self.sink.write((delimiter.join(f'"{name}"' for name in names) + "\n").encode())

    def write(self, piece: Columns) -> None:
        """Write some rows."""
        require_columns_to_write(self.schema, piece, self.target)
        table = to_arrow(piece)
        for start in range(0, piece.rows, ROWS_AT_ONCE):
            some = [plain_values(column.slice(start, ROWS_AT_ONCE)) for column in table.columns]
            with writing_to(self.target):
                if not self._written_by_arrow(some):
                    self.sink.write(self._lines([column.combine_chunks() for column in some]))

    def _written_by_arrow(self, columns: list[Any]) -> bool:
        """Let Arrow write rows, unless it writes other text: floats have no point there, and a missing value alone is a
        line with nothing in it."""
        nbytes = sum(column.nbytes for column in columns)
        if len(columns) == 1 or self._delimiter in _IN_VALUES or nbytes > _MOST_BYTES:
            return False
        any_texts = any(_is_text(column.type) for column in columns)
        values = []
        for column in columns:
            if pa.types.is_float16(column.type) or (
                pa.types.is_floating(column.type) and pc.any(_whole(column)).as_py()
            ):
                if any_texts:
                    return False  # Arrow would put these in quotes too
                column = text_of(column.combine_chunks())
            values.append(column.cast(pa.int64()) if pa.types.is_duration(column.type) else column)
        csv.write_csv(
            pa.table(values, names=self.names),
            self.sink,
            csv.WriteOptions(
                include_header=False,
                batch_size=ROWS_AT_ONCE,
                delimiter=self._delimiter,
                quoting_style="needed" if any_texts else "none",
            ),
        )
        return True

    def _lines(self, arrays: list[Any]) -> Any:
        """Lines of values, as one buffer."""
        parts: list[Any] = []
        for place, array in enumerate(arrays):
            parts += [self._delimiter] * (place > 0) + self._texts(array)
        return joined(*parts, "\n").buffers()[2]  # all values one after the other

    def _texts(self, array: Any) -> list[Any]:
        """What stands for a column's values, in parts that follow each other."""
        text = text_of(array)
        if _is_text(array.type) or self._delimiter in _IN_VALUES:
            text = pc.replace_substring(text, '"', '""') if _has_quotes(text) else text
            if not text.null_count:
                return ['"', text, '"']
            text = joined('"', text, '"')
        return [pc.fill_null(text, self._missing) if text.null_count else text]

    def close(self) -> None:
        """Write the end."""
        with writing_to(self.target):
            self.close_file()


def _is_text(type_: Any) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _has_quotes(text: Any) -> bool:
    """Whether there is a double quote in any value, or in memory beside it."""
    chars = text.buffers()[2]
    return chars is not None and bool((np.frombuffer(chars, np.uint8) == ord('"')).any())


def text_of(array: Any) -> Any:
    """Plain values as text; floats always with a point or an exponent, times as in ISO 8601, timedeltas as counts."""
    type_, text = array.type, pa.large_string()
    if pa.types.is_floating(type_):
        plain = (array.cast(pa.float32()) if pa.types.is_float16(type_) else array).cast(text)
        whole = _whole(array)
        if not pc.any(whole).as_py():
            return plain
        some = plain.filter(whole)
        pointed = pc.if_else(pc.match_substring_regex(some, _DIGITS), joined(some, ".0"), some)
        return pc.replace_with_mask(plain, whole, pointed)
    if pa.types.is_duration(type_):
        return array.cast(pa.int64()).cast(text)
    if pa.types.is_null(type_):
        return pa.nulls(len(array), text)
    return array.cast(pa.string()).cast(text)


def _whole(floats: Any) -> Any:
    """Which floats may stand as digits alone."""
    values = floats.cast(pa.float32()) if pa.types.is_float16(floats.type) else floats
    return pc.equal(values, pc.floor(values))


def joined(*parts: Any) -> Any:
    """Texts beside each other, row by row; null where one is missing."""
    texts = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()))
