"""Delimited text, read on the device: where values end, what they are, and whether all is as the host would read it."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np
import pyarrow as pa
import pylibcudf as plc

from ...arrow.tables import EXACT_IN_FLOAT, from_arrow
from ...protocol.backend import DelimitedText
from ...protocol.schema import Column, Schema
from ..columns.data import Array, DeviceColumns, as_column
from ..columns.transfer import uploaded
from ..frames import with_missing
from ..kernels.delimited_source import KERNELS, PARSE
from ..kernels.utf8 import is_utf8

_THREADS, _STEP = 256, 16
# As `told` in the source: what lets the host read a block, how many floats it shall read, a place for each column.
_OTHER, _LEFT, _NULLS = 4, 4, 5
_MOST_LEFT = 4096
_NAMES = (
    "count_quotes", "count_marks", "place_marks", "read_ints", "read_floats", "read_bools", "read_times",
    "measure_texts", "copy_texts",
)  # fmt: skip
_PLACES = {"s": 0, "ms": 3, "us": 6, "ns": 9}


@cache
def _kernels() -> dict[str, Any]:
    module = cupy.RawModule(code=PARSE + KERNELS)
    return {name: module.get_function(name) for name in _NAMES}


def read_delimited(block: bytes | memoryview, work: DelimitedText) -> DeviceColumns | None:
    """The rows of whole lines; see `gcylon_lab.backends.protocol.backend.Backend.read_delimited`."""
    if block[-1:] != b"\n":
        block = bytes(block) + b"\n"
    text = uploaded(np.frombuffer(block, np.uint8))
    told = cupy.zeros(_NULLS + len(work.types), np.int32)
    before = _quotes_before(text) if work.quotes else None
    marks = _marks(text, work, before, told)
    if marks is None:
        return None
    quoted = before is not None
    rows = marks.size // len(work.types)
    looked_at = [name for name, type_ in work.types.items() if name in work.wanted or not _is_text(type_)]
    left = cupy.empty(_MOST_LEFT, np.int64)
    values = {name: _values(text, marks, rows, work, name, told, left, quoted) for name in looked_at}
    seen = told.get()
    if seen[:_OTHER].any() or not is_utf8(_one_text(text)):
        return None
    if seen[_LEFT] and not _read_floats(block, marks, left[: int(seen[_LEFT])], work, values):
        return None
    schema = _schema(work, seen[_NULLS:].astype(bool))
    places, arrays = {name: place for place, name in enumerate(work.types)}, []
    for name, column in zip(work.wanted, schema, strict=True):
        place, (found, valid) = places[name], values.pop(name)
        if _is_text(work.types[name]):
            found = _strings(text, marks, rows, len(places), place, found, quoted)
        arrays.append(_array(column, found, valid, missing=bool(seen[_NULLS + place])))
    return DeviceColumns(schema, rows, tuple(arrays))


def _quotes_before(text: Any) -> Any:
    """How many double quotes there are before each block of threads; None where there are none."""
    blocks = _blocks(text)
    counts = cupy.empty(blocks, np.uint32)
    _kernels()["count_quotes"]((blocks,), (_THREADS,), (text, np.int64(text.size), counts))
    ends = cupy.cumsum(counts, dtype=np.int64)
    return ends - counts if int(ends[-1]) else None


def _blocks(text: Any) -> int:
    return -(-int(text.size) // (_THREADS * _STEP))


def _marks(text: Any, work: DelimitedText, before: Any, told: Any) -> Any:
    """Where values end, with the last one of a line; None where no rows come of that."""
    kernels, delimiter, columns = _kernels(), np.uint8(ord(work.delimiter)), len(work.types)
    blocks = _blocks(text)
    counts, nbytes = cupy.empty(blocks, np.uint32), np.int64(text.size)
    quotes = np.uint64(0) if before is None else before
    kernels["count_marks"]((blocks,), (_THREADS,), (text, nbytes, delimiter, quotes, counts, told))
    ends = cupy.cumsum(counts, dtype=np.int64)
    total = int(ends[-1])
    if total % columns:
        return None
    marks = cupy.empty(total, np.uint32)
    given = (text, nbytes, delimiter, quotes, np.int32(columns), ends, marks, told)
    kernels["place_marks"]((blocks,), (_THREADS,), given)
    return None if told[:2].any() else marks


def _values(
    text: Any, marks: Any, rows: int, work: DelimitedText, name: str, told: Any, left: Any, quoted: bool
) -> tuple[Any, Any]:
    """What a column's values are, and which are there; of strings how long they are."""
    kernel, dtype, option = _reader(work, name)
    values, valid = cupy.empty(rows, dtype), cupy.empty(rows, np.uint8)
    place = list(work.types).index(name)
    columns, nulls = np.int32(len(work.types)), _nulls(work.nulls)
    given = (text, marks, np.int64(rows), columns, np.int32(place), np.int32(quoted), nulls, valid, told)
    beside = (left,) if kernel == "read_floats" else ()
    _kernels()[kernel]((-(-rows // _THREADS),), (_THREADS,), (*given, values, np.int64(option), *beside))
    return values, valid.view(np.bool_)


def _read_floats(
    block: bytes | memoryview, marks: Any, left: Any, work: DelimitedText, values: dict[str, tuple[Any, Any]]
) -> bool:
    """Read in host memory what kernels have left, such as inf, 1e-300 or more than 19 digits; whether all could be."""
    before = cupy.where(left > 0, marks[cupy.maximum(left - 1, 0)].astype(np.int64) + 1, 0).get()
    places, stops = left.get(), marks[left].get()
    texts = [bytes(block[start:stop]) for start, stop in zip(before.tolist(), stops.tolist(), strict=True)]
    try:
        numbers = pa.array(texts, pa.binary()).cast(pa.string()).cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return False
    rows, columns = np.divmod(places, len(work.types))
    for place, name in enumerate(work.types):
        mine = columns == place
        if not mine.any():
            continue
        large = np.abs(numbers[mine])
        if name not in work.asked and ((large >= EXACT_IN_FLOAT) & np.isfinite(large)).any():
            return False
        values[name][0][uploaded(rows[mine])] = uploaded(numbers[mine])
    return True


def _reader(work: DelimitedText, name: str) -> tuple[str, str, int]:
    """The kernel that reads a column, the dtype of what it makes, and what it is told."""
    type_ = work.types[name]
    if pa.types.is_int64(type_):
        return "read_ints", "int64", 0
    if pa.types.is_float64(type_):
        return "read_floats", "float64", int(name in work.asked)
    if pa.types.is_boolean(type_):
        return "read_bools", "bool", int(work.ones)
    if pa.types.is_timestamp(type_):
        return "read_times", "int64", _PLACES[type_.unit]
    return "measure_texts", "int32", 0


def _nulls(texts: tuple[str, ...]) -> Any:
    packed = b"".join(bytes([len(text)]) + text.encode() for text in texts) + b"\xff"
    return uploaded(np.frombuffer(packed, np.uint8))


def _schema(work: DelimitedText, missing: np.ndarray[Any, Any]) -> Schema:
    """The columns as the host makes them of such values."""
    places = {name: place for place, name in enumerate(work.types)}
    alike = {name: _alike(work.types[name], missing=bool(missing[places[name]])) for name in work.wanted}
    return from_arrow(pa.table(alike), nullable=True).schema


def _alike(type_: Any, *, missing: bool) -> Any:
    if missing:
        return pa.nulls(1, type_)
    return pa.array([""], type_) if _is_text(type_) else pa.array([0]).cast(type_)


def _is_text(type_: Any) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _array(column: Column, values: Any, valid: Any, *, missing: bool) -> Array:
    if column.fixed:
        return values
    if isinstance(values, plc.Column):
        return with_missing(values, valid) if missing else values
    plain = Column(column.name, column.kind, values.dtype.name, dtype=values.dtype)
    return with_missing(as_column(plain, values), valid)


def _strings(text: Any, marks: Any, rows: int, columns: int, place: int, lengths: Any, quoted: bool) -> Any:
    offsets = cupy.zeros(rows + 1, np.int32)
    cupy.cumsum(lengths, dtype=np.int32, out=offsets[1:])
    chars = cupy.empty(int(offsets[-1]), np.uint8)
    grid = (-(-rows * 32 // _THREADS),)
    given = (text, marks, np.int64(rows), np.int32(columns), np.int32(place), np.int32(quoted), offsets, chars)
    _kernels()["copy_texts"](grid, (_THREADS,), given)
    return _string_column(offsets, chars)


def _one_text(text: Any) -> Any:
    """All of a block as one string."""
    return _string_column(uploaded(np.array([0, text.size], np.int32)), text)


def _string_column(offsets: Any, chars: Any) -> Any:
    of_offsets = plc.Column(plc.DataType(plc.TypeId.INT32), offsets.size, plc.gpumemoryview(offsets), None, 0, 0, [])
    data = plc.gpumemoryview(chars) if chars.size else None
    return plc.Column(plc.DataType(plc.TypeId.STRING), offsets.size - 1, data, None, 0, 0, [of_offsets])
