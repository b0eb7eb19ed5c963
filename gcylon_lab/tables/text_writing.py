"""Writing a rank's rows as text: csv, and one JSON object a line."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ..errors import ArgumentError, UnsupportedDtype, WriteError
from .arrow_tables import to_arrow
from .csv_files import CSV_SUFFIXES
from .data import Columns
from .json_files import JSON_SUFFIXES
from .part_files import PartFiles, writing_to
from .row_writers import Format, file_schema, plain_values, refuse_kinds, require_columns_to_write
from .schema import Schema
from .text_blocks import COMPRESSIONS

_ROWS = 2048


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

    return Format(f".csv{_ending(compression)}", CSV_SUFFIXES, open_)


def json_format(*, compression: str | None = None) -> Format:
    """Files of one JSON object a line; compression as for csv."""

    def open_(files: PartFiles, schema: Schema, _: bool) -> JsonRows:
        return JsonRows(files, schema, compression)

    return Format(f".jsonl{_ending(compression)}", JSON_SUFFIXES, open_)


def _ending(compression: str | None) -> str:
    endings = {kind: ending for ending, kind in COMPRESSIONS.items()}
    if compression is not None and compression not in endings:
        raise ArgumentError(
            f"compression={compression!r} is not known for text.", advice=f"It is None or one of {', '.join(endings)}."
        )
    return "" if compression is None else endings[compression]


class _Text:
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
        self.sink.close()
        self._raw.close()

    def abandon(self) -> None:
        """Close the file."""
        for stream in (self.sink, self._raw):
            with suppress(OSError, pa.ArrowException, ValueError):
                stream.close()


class CsvRows(_Text):
    """One csv file. Text stands in quotes; what is missing is nothing between delimiters."""

    def __init__(
        self, files: PartFiles, schema: Schema, delimiter: str, header: bool, compression: str | None
    ) -> None:
        refuse_kinds(schema, ("bytes", "list", "struct", "map"), "csv", "Write parquet or ipc, or leave it out.")
        super().__init__(files, schema, compression)
        broken = [name for name in self.names if "\n" in name or "\r" in name]
        if broken:
            raise WriteError(f"the label {broken[0]!r} has a line end in it", advice="Rename the column.")
        types = pa.schema([pa.field(field.name, _csv_type(field.type)) for field in file_schema(schema)])
        # A line with nothing in it would be no row to those who read it, so a value that is missing is "" there.
        self._alone = len(self.names) == 1
        self._types = pa.schema([pa.field(self.names[0], pa.large_string())]) if self._alone else types
        with writing_to(self.target):
            options = csv.WriteOptions(include_header=header and bool(self.names), delimiter=delimiter)
            self._writer = csv.CSVWriter(self.sink, self._types, write_options=options) if self.names else None

    def write(self, piece: Columns) -> None:
        """Write some rows."""
        require_columns_to_write(self.schema, piece, self.target)
        if piece.rows and self._writer is not None:
            with writing_to(self.target):
                arrays = [plain_values(column).cast(field.type) for column, field in _pairs(piece, self._types)]
                if self._alone:
                    arrays = [pc.fill_null(arrays[0], "")]
                self._writer.write_table(pa.table(arrays, schema=self._types))

    def close(self) -> None:
        """Write the end."""
        with writing_to(self.target):
            if self._writer is not None:
                self._writer.close()
            self.close_file()


def _pairs(piece: Columns, schema: Any) -> Any:
    return zip(to_arrow(piece).columns, schema, strict=True)


def _csv_type(type_: Any) -> Any:
    """The type in which Arrow writes values."""
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    text = pa.types.is_decimal(plain) or pa.types.is_null(plain)
    return pa.large_string() if text else plain


class JsonRows(_Text):
    """One file of JSON lines, each with all columns."""

    def __init__(self, files: PartFiles, schema: Schema, compression: str | None) -> None:
        refuse_kinds(schema, ("bytes",), "JSON", "Write parquet or ipc, or leave it out.")
        super().__init__(files, schema, compression)

    def write(self, piece: Columns) -> None:
        """Write some rows."""
        require_columns_to_write(self.schema, piece, self.target)
        if not piece.rows:
            return
        table = to_arrow(piece)
        for start in range(0, table.num_rows, _ROWS):
            columns = [_json_values(column.slice(start, _ROWS)) for column in table.columns]
            lines = (self._line(row) for row in zip(*columns, strict=True))
            with writing_to(self.target):
                self.sink.write("".join(lines).encode())

    def _line(self, row: tuple[Any, ...]) -> str:
        try:
            return _json(dict(zip(self.names, row, strict=True))) + "\n"
        except ValueError:
            name = next(name for name, value in zip(self.names, row, strict=True) if not _is_json(value))
            raise WriteError(
                f"{self.target} cannot be written: column {name!r} holds an infinity or a NaN inside a value, which "
                "JSON has not",
                advice="Replace it, or write another format.",
                path=self.target,
                column=name,
            ) from None

    def close(self) -> None:
        """Write the end."""
        with writing_to(self.target):
            self.close_file()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_text)


def _is_json(value: Any) -> bool:
    try:
        _json(value)
    except ValueError:
        return False
    return True


def _json_values(column: Any) -> list[Any]:
    plain = plain_values(column)
    type_ = plain.type
    if pa.types.is_duration(type_):
        plain = plain.cast(pa.int64())
    elif pa.types.is_temporal(type_) or pa.types.is_decimal(type_):
        plain = plain.cast(pa.string())
    values: list[Any] = plain.to_pylist(maps_as_pydicts="strict") if pa.types.is_nested(type_) else plain.to_pylist()
    return values


def _text(value: Any) -> Any:
    """What stands for a value inside a list or struct that JSON has no form for."""
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (Decimal, dt.timedelta)):
        return str(value)
    raise UnsupportedDtype(f"JSON cannot hold {type(value).__name__} inside a value", advice="Write parquet or ipc.")
