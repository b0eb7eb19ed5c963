"""Row groups of parquet files, decoded and encoded by libcudf; decoded in passes of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import cupy
import numpy as np
import pyarrow as pa
import pylibcudf as plc

from ....errors import ReadError
from ...arrow.tables import EXACT_IN_FLOAT, held_column
from ...protocol.arrow_types import held_type
from ...protocol.backend import RowGroups, within
from ...protocol.schema import Column, Schema
from ..columns.data import (
    Array,
    DeviceColumns,
    as_array,
    as_column,
    concat_columns,
    current_stream,
    empty_array,
    slice_columns,
)
from ..columns.types import device_type, fixed_type, item_dtype
from ..frames import with_missing, with_null
from ..kernels.utf8 import is_utf8

_NULL_TICKS = np.iinfo(np.int64).min
_CHUNK_BYTES = 1 << 30  # so that no column of strings needs offsets of 64 bits
# Measured with 60 million rows of 4 columns: under any limit of its passes libcudf takes twice the time.
_MOST_PARTS = 8  # in which a file is read whole: each reads the footer again
_STRING_BYTES = 32  # expected of a string, beside what the column has unpacked: a dictionary may be all of that


def read_row_groups(work: RowGroups, pass_bytes: int) -> Iterator[DeviceColumns]:
    """Decode row groups, chunk by chunk; see `gcylon_lab.backends.protocol.backend.Backend.read_row_groups`."""
    parts = _whole_parts(work, pass_bytes)
    for part in parts or [work]:
        wanted, first = part.wanted(), 0
        for data in _decoded(part, pass_bytes, whole=bool(parts)):
            for start, stop in within(wanted, first, first + data.rows):
                # A copy where only some are wanted, so that the others do not stay with them.
                yield data if stop - start == data.rows else concat_columns([slice_columns(data, start, stop)])
            first += data.rows
            del data


def _whole_parts(work: RowGroups, pass_bytes: int) -> list[RowGroups]:
    """Row groups that are read whole together, each of which takes a pass at most; none where these are too many."""
    strings = sum(pa.types.is_string(type_) or pa.types.is_large_string(type_) for type_ in work.types.values())
    row_bytes = sum(16 if pa.types.is_decimal(type_) else 8 for type_ in work.types.values())
    places: list[int] = []
    taken, chars = pass_bytes + 1, 0
    for place, ((_, rows, *_), (packed, unpacked)) in enumerate(zip(work.groups, work.sizes, strict=True)):
        in_strings = unpacked + rows * strings * _STRING_BYTES if strings else 0
        needed = packed + 2 * unpacked + 3 * (rows * row_bytes + in_strings) // 2
        if taken + needed > pass_bytes or chars + in_strings > _CHUNK_BYTES:
            places.append(place)
            taken = chars = 0
        taken, chars = taken + needed, chars + in_strings
        if taken > pass_bytes or len(places) > _MOST_PARTS:
            return []
    ends = [*places[1:], len(work.groups)]
    return [replace(work, groups=work.groups[i:j], sizes=work.sizes[i:j]) for i, j in zip(places, ends, strict=True)]


def _decoded(work: RowGroups, pass_bytes: int, *, whole: bool) -> Iterator[DeviceColumns]:
    data = _read_whole(work) if whole else None
    if data is not None:
        yield data
        return
    reader = plc.io.parquet.ChunkedParquetReader(
        _options(work),
        current_stream(),
        chunk_read_limit=max(1, min(_CHUNK_BYTES, pass_bytes // 2)),
        pass_read_limit=max(1, pass_bytes),
    )
    while reader.has_next():
        yield _held(work, reader.read_chunk())


def _read_whole(work: RowGroups) -> DeviceColumns | None:
    """All rows at once; None where strings turned out longer than expected."""
    try:
        read = plc.io.parquet.read_parquet(_options(work), current_stream())
    except MemoryError:
        return None
    wide = plc.TypeId.INT64  # offsets, where characters are more than 2 GiB
    strings = [column for column in read.columns if column.type().id() == plc.TypeId.STRING and column.num_children()]
    return None if any(one.child(0).type().id() == wide for one in strings) else _held(work, read)


def _options(work: RowGroups) -> Any:
    source = plc.io.types.SourceInfo([work.path])
    options = (
        plc.io.parquet.ParquetReaderOptions.builder(source)
        .column_names(list(work.types))
        .use_pandas_metadata(False)  # it would read columns of an index that nobody asked for
        .decimal_width(plc.TypeId.DECIMAL128)
        .build()
    )
    options.set_row_groups([[group for group, *_ in work.groups]])
    return options


def _held(work: RowGroups, chunk: Any) -> DeviceColumns:
    columns = dict(zip(chunk.column_names(), chunk.columns, strict=True))
    pairs = [_column(work, name, columns[name]) for name in work.types]
    return DeviceColumns(Schema([c for c, _ in pairs]), chunk.tbl.num_rows(), tuple(array for _, array in pairs))


def _column(work: RowGroups, name: str, plain: Any) -> tuple[Column, Array]:
    given, text = work.types[name], work.dtypes.get(name, "")
    if plain.type().id() == plc.TypeId.STRING and not is_utf8(plain):
        raise ReadError(
            f"{work.path}: column {name!r} holds texts that are no UTF-8",
            advice="Leave it out with columns=[...], or write the file again.",
            path=work.path,
            column=name,
        )
    column = held_column(name, given, held_type(given), text, plain.null_count(), lambda: _exact_in_float(plain))
    if not column.fixed:
        return column, _as(plain, plc.DataType.from_arrow(device_type(column.arrow)))
    plain = _as(plain, fixed_type(column))
    missing = np.nan if column.kind == "float" else _NULL_TICKS  # others have none
    return column, with_null(plain, as_array(plain, item_dtype(column)), missing)


def _as(plain: Any, wanted: Any) -> Any:
    return plain if plain.type() == wanted else plc.unary.cast(plain, wanted, stream=current_stream())


def _exact_in_float(plain: Any) -> bool:
    values = as_array(plain, plain.type().typestr)
    values = values[as_array(plc.unary.is_valid(plain, stream=current_stream()), np.bool_)]
    if not values.size:
        return True
    low, high = int(values.min()), int(values.max())
    return -EXACT_IN_FLOAT <= low and high <= EXACT_IN_FLOAT


class FileWriter:
    """Writes a file; implements `gcylon_lab.backends.protocol.backend.RowGroupWriter`."""

    def __init__(self, path: str, schema: Schema, notes: Mapping[str, str], compression: str) -> None:
        self._schema = schema
        types = plc.io.types
        none = plc.Table([_plain(column, empty_array(column)) for column in schema])
        described = types.TableInputMetadata(none)
        for column, entry in zip(schema, described.column_metadata, strict=True):
            entry.set_name(str(column.name)).set_nullability(True)
            if column.kind == "decimal":
                entry.set_decimal_precision(column.arrow.precision)
        options = (
            plc.io.parquet.ChunkedParquetWriterOptions.builder(types.SinkInfo([path]))
            .metadata(described)
            .key_value_metadata([dict(notes)])
            .compression(types.CompressionType[compression.upper()])
            .build()
        )
        self._writer = plc.io.parquet.ChunkedParquetWriter.from_options(options, current_stream())
        self._none: Any = none  # until rows have come: a file that nothing was written to is none

    def write(self, data: Any) -> None:
        columns = [_plain(column, array) for column, array in zip(self._schema, data.arrays, strict=True)]
        self._writer.write(plc.Table(columns))
        self._none = None
        cupy.cuda.get_current_stream().synchronize()

    def close(self) -> None:
        if self._none is not None:
            self._writer.write(self._none)
        self._writer.close([])


def _plain(column: Column, array: Array) -> Any:
    """A column as it is written: NaN is null, as when pandas writes it."""
    if not column.fixed:
        return array
    plain = as_column(column, array)
    return with_missing(plain, ~cupy.isnan(array)) if column.kind == "float" else plain
