"""Writing a rank's rows as one JSON object a line: columns become text first, and lines are made of these."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...backends.arrow.tables import to_arrow
from ...backends.protocol.data import Columns
from ...backends.protocol.schema import Schema
from ...errors import UnsupportedDtype, WriteError
from ..part_files import PartFiles, writing_to
from ..row_writers import Format, plain_values, refuse_kinds, require_columns_to_write
from .csv_writer import ROWS_AT_ONCE, TextRows, compressed_ending, joined, text_of
from .json_reader import JSON_SUFFIXES

_ESCAPED = r'[\x00-\x1f"\\]'


def json_format(*, compression: str | None = None) -> Format:
    """Files of one JSON object a line; compression as for csv."""

    def open_(files: PartFiles, schema: Schema, _: bool) -> JsonRows:
        return JsonRows(files, schema, compression)

    return Format(f".jsonl{compressed_ending(compression)}", JSON_SUFFIXES, open_)


class JsonRows(TextRows):
    """One file of JSON lines, each with all columns."""

    def __init__(self, files: PartFiles, schema: Schema, compression: str | None) -> None:
        refuse_kinds(schema, ("bytes",), "JSON", "Write parquet or ipc, or leave it out.")
        super().__init__(files, schema, compression)

    def write(self, piece: Columns) -> None:
        """Write some rows."""
        require_columns_to_write(self.schema, piece, self.target)
        table = to_arrow(piece)
        for start in range(0, piece.rows, ROWS_AT_ONCE):
            some = [column.slice(start, ROWS_AT_ONCE) for column in table.columns]
            texts = [self._texts(name, column) for name, column in zip(self.names, some, strict=True)]
            with writing_to(self.target):
                self.sink.write(_lines(self.names, texts))

    def _texts(self, name: str, column: Any) -> Any:
        try:
            return pc.fill_null(_json_texts(plain_values(column.combine_chunks())), "null")
        except ValueError:
            raise WriteError(
                f"{self.target} cannot be written: column {name!r} holds an infinity or a NaN inside a value, which "
                "JSON cannot represent",
                advice="Replace it, or write another format.",
                path=self.target,
                column=name,
            ) from None

    def close(self) -> None:
        """Write the end."""
        with writing_to(self.target):
            self.close_file()


def _lines(names: list[str], texts: list[Any]) -> Any:
    """Lines of columns of JSON values, as one buffer."""
    parts: list[Any] = []
    for place, (name, text) in enumerate(zip(names, texts, strict=True)):
        parts += [f"{', ' if place else '{'}{_json(name)}: ", text]
    return joined(*parts, "}\n").buffers()[2]  # all values one after the other


def _json_texts(array: Any) -> Any:
    """Each value as JSON has it; null where it is missing.

    Raises
    ------
    ValueError
        If JSON has no form for a number.
    """
    type_ = array.type
    if pa.types.is_floating(type_) and array.null_count < len(array) and not pc.all(pc.is_finite(array)).as_py():
        raise ValueError("not finite")
    if pa.types.is_nested(type_):
        if _is_plain(type_):
            return _nested_texts(array)
        values = array.to_pylist(maps_as_pydicts="strict")
        return pa.array([None if value is None else _json(value) for value in values], pa.large_string())
    text = text_of(array)
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_duration)
    if any(test(type_) for test in numbers):
        return text
    if pc.any(pc.match_substring_regex(text, _ESCAPED)).as_py():
        return pa.array([None if value is None else _json(value) for value in text.to_pylist()], pa.large_string())
    return joined('"', text, '"')


def _is_plain(type_: Any) -> bool:
    """Whether values are lists and structs of numbers, bools and strings alone, whose texts can be put together."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _is_plain(type_.value_type)
    if pa.types.is_struct(type_):
        fields = list(type_)
        return len({field.name for field in fields}) == len(fields) and all(_is_plain(field.type) for field in fields)
    tests = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    return any(test(type_) for test in tests)


def _nested_texts(array: Any) -> Any:
    """As `_json_texts`, of lists and structs that are plain."""
    if pa.types.is_struct(array.type):
        parts: list[Any] = ["{"]
        for place, (field, values) in enumerate(zip(array.type, array.flatten(), strict=True)):
            parts += [f"{', ' if place else ''}{_json(field.name)}: ", pc.fill_null(_json_texts(values), "null")]
        text = joined(*parts, "}") if len(parts) > 1 else pa.array(["{}"] * len(array), pa.large_string())
    else:
        values = pc.fill_null(_json_texts(array.flatten()), "null")
        counts = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        between = pa.scalar(", ", pa.large_string())
        text = joined("[", pc.binary_join(pa.ListArray.from_arrays(offsets, values), between), "]")
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.large_string()))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_text)


def _text(value: Any) -> Any:
    """What stands for a value inside a list or struct that JSON has no form for."""
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (Decimal, dt.timedelta)):
        return str(value)
    raise UnsupportedDtype(f"JSON cannot hold {type(value).__name__} inside a value", advice="Write parquet or ipc.")
