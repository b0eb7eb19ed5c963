"""Reading files of one JSON object a line, each rank its own lines."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from json import dumps, loads
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import json

from ...backends.arrow.tables import from_arrow
from ...backends.protocol.data import Columns, bounded
from ...errors import ReadError
from ...units import format_bytes
from ..file_columns import require_columns
from ..filesystems import Storage, reading, unreadable
from ..read_plans import BytePiece, Paths, expand_paths, spread_bytes
from .blocks import COMPRESSED, Place, blocks, first_records, text_notes, text_size
from .types import (
    Types,
    advice_on_times,
    asked_types,
    first_rounded_number,
    fits_uint64,
    json_numbers,
    plain_type,
    rounded,
    rounded_columns,
    settled,
    widened,
    with_offsets,
)

_LOOKED_AT = 100
_DEEPEST = 200
_STEP = 1 << 20  # bytes that are looked at for brackets at once
_CELL_BYTES = 16  # of a value in memory, also where a line does not have it
_INFERRED_BYTES = 16 * 1024**2
_INFERRED_FIRST = 8 * 1024
_ONE_A_LINE = (
    "Each line has to be one JSON object: write it so, for example with jq -c, or with to_json(orient='records', "
    "lines=True) of pandas."
)
JSON_SUFFIXES = tuple(f"{end}{packed}" for end in (".json", ".jsonl", ".ndjson") for packed in ("", *COMPRESSED))


@dataclass(frozen=True, slots=True)
class JsonPlan:
    """What one rank reads; the types are the same on all ranks."""

    pieces: tuple[BytePiece, ...]
    first: str
    types: Types
    asked: Types  # those among the types that a user named
    storage: Storage = field(default_factory=Storage)
    notes: tuple[str, ...] = ()


def plan_json(
    paths: Paths,
    size: int,
    *,
    dtype: Mapping[str, str] | None = None,
    parse_dates: Sequence[str] = (),
    storage: Storage | None = None,
) -> list[JsonPlan]:
    """Share the lines of JSON files out evenly by bytes, in file order.

    Columns and types come from the first megabytes of the first file with rows, which every rank looks at.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders or patterns; one JSON object a line, perhaps compressed.
    size : int
        Number of ranks.
    dtype : mapping of column name to dtype text, optional
        Where the first megabytes do not tell, and for columns that they do not have.
    parse_dates : sequence of str
        Columns that are times; they become datetime64[us], or datetime64[us, UTC] where the first one has an offset
        from UTC, and [ns] where the first megabytes have nanoseconds.
    storage : Storage, optional
        How URLs are reached.

    Returns
    -------
    list of JsonPlan, shape (size,)

    Raises
    ------
    ReadError
        If a file is missing or cannot be read.
    """
    storage = storage or Storage()
    files = expand_paths(paths, JSON_SUFFIXES, storage)
    asked = asked_types(dtype, tuple(parse_dates))
    firsts = ((file, first_records(file, storage, 0, None)) for file in files)
    first = next(((file, block) for file, block in firsts if block.strip()), None)
    dates = [name for name in parse_dates if name not in (dtype or {})]
    with reading(first[0] if first else files[0]):
        types = _first_types(Place(first[0], storage), first[1], asked, dates) if first else asked
    sizes = [(file, text_size(file, storage), not file.endswith(COMPRESSED)) for file in files]
    plan = JsonPlan((), first[0] if first else files[0], types, asked, storage, text_notes(sizes))
    return [replace(plan, pieces=tuple(share)) for share in spread_bytes(sizes, size)]


def _first_types(place: Place, block: bytes, asked: Types, dates: Sequence[str]) -> Types:
    _require_shallow(place, block)
    names = _names(place, block)
    _require_utf8(place, block)
    block = _start_of_few_columns(block, {})
    as_texts = asked | dict.fromkeys(dates, pa.large_string())
    texts = _parse(place, block, as_texts, as_texts)
    asked = with_offsets(asked, dates, lambda name: texts.column(name).drop_null())
    found = _parse(place, block, asked, asked) if dates else texts
    types = {field.name: plain_type(field.type) for field in found.schema} | asked
    for name in rounded_columns(found, asked):
        if pa.types.is_floating(types[name]) and fits_uint64(json_numbers(block, name)):
            types[name] = pa.uint64()
    return {name: types[name] for name in dict.fromkeys([*names, *types]) if name in types}


def _names(place: Place, block: bytes) -> list[str]:
    """Columns in the order in which the first lines have them: Arrow gives those that were asked for first."""
    names: dict[str, None] = {}
    for row, line in enumerate(filter(bytes.strip, block.split(b"\n", _LOOKED_AT)[:_LOOKED_AT]), 1):
        try:
            one = loads(line, strict=False)
        except ValueError as error:
            reason = error if isinstance(error, UnicodeError) else f"it is not a JSON object by itself: {error}"
            raise unreadable(place.path, reason, _ONE_A_LINE, line=place.line(block, row, None)) from None
        names |= dict.fromkeys(one if isinstance(one, dict) else ())
    return list(names)


def _require_utf8(place: Place, block: bytes) -> None:
    """Refuse other encodings: Arrow takes bytes as they are for text."""
    ends = pa.array([0, len(block)], pa.int64())
    text = pa.LargeStringArray.from_buffers(1, ends.buffers()[1], pa.py_buffer(block))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        try:
            block.decode()
        except UnicodeDecodeError as error:
            raise unreadable(place.path, error, line=place.line_at(block, error.start)) from None


def _require_shallow(place: Place, block: bytes) -> None:
    """Refuse values nested so deeply that parsing them, a function within a function, would end the process."""
    start = 0
    while start < len(block):  # in steps: places of brackets take many times their bytes
        stop = block.rfind(b"\n", start, start + _STEP) + 1 or block.find(b"\n", start) + 1 or len(block)
        if stop - start > _STEP or _may_be_deep(np.frombuffer(block, np.uint8, stop - start, start)):
            _require_shallow_lines(place, block, start, stop)
        start = stop


def _may_be_deep(data: npt.NDArray[np.uint8]) -> bool:
    opens = np.flatnonzero(data | 0x20 == ord("{"))  # and "[", which differs from it by that bit
    return len(opens) > _DEEPEST and _most_in_a_line(data, opens) > _DEEPEST


def _require_shallow_lines(place: Place, block: bytes, start: int, stop: int) -> None:
    for line in block[start:stop].split(b"\n"):
        if line.count(b"[") + line.count(b"{") > _DEEPEST and (depth := _depth(line)) > _DEEPEST:
            reason = f"a value is nested {depth:,} levels deep, and {_DEEPEST} are read at the most"
            raise unreadable(place.path, reason, line=place.line_at(block, start))
        start += len(line) + 1


def _most_in_a_line(data: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> int:
    before = np.searchsorted(places, np.flatnonzero(data == ord("\n")))
    return int(np.diff(before, prepend=0, append=len(places)).max())


def _depth(line: bytes) -> int:
    """How deeply the value of a line is nested; what stands in texts does not count."""
    if b"\\" in line:
        line = re.sub(rb"\\.", b"", line)  # an escaped quote ends no text
    depth = most = quotes = 0
    for at in range(0, len(line), _STEP):
        data = np.frombuffer(line, np.uint8, min(_STEP, len(line) - at), at)
        quoted = quotes + np.cumsum(data == ord('"'), dtype=np.int32)
        opens, closes = (data | 0x20 == ord(bracket) for bracket in "{}")
        steps = np.where(quoted & 1 == 0, opens.astype(np.int8) - closes, 0)
        depths = depth + np.cumsum(steps, dtype=np.int32)
        most = max(most, int(depths.max()))
        depth, quotes = int(depths[-1]), int(quoted[-1])
    return most


def _parse(place: Place, block: bytes, types: Types, asked: Types) -> Any:
    _require_shallow(place, block)
    # Arrow would drop the offsets of times that are read as such, and take those without one for UTC.
    read_as = {name: pa.large_string() if pa.types.is_timestamp(type_) else type_ for name, type_ in types.items()}
    texts: tuple[str, ...] = ()
    while True:
        try:
            table = _read(place, _with_texts(block, texts) if texts else block, read_as)
            break
        except pa.ArrowInvalid as error:
            name = _column_of(str(error))
            if name in texts or not pa.types.is_large_string(asked.get(name, pa.null())):
                row = re.search(r"in row (\d+)", str(error))
                line = place.line(block, int(row[1]) + 1, None) if row else None
                failed = unreadable(place.path, error, _advice(name, types), line=line)
                failed.numbers |= {"column": name} if name else {}
                raise failed from None
            texts = (*texts, name)  # values that are no text shall be read as theirs
    for name, type_ in types.items():
        if pa.types.is_timestamp(type_) and name in table.schema.names:
            place_of = table.schema.get_field_index(name)
            table = table.set_column(place_of, name, _times(place, block, table.column(name), name, type_))
    return table


def _read(place: Place, block: bytes, types: Types) -> Any:
    try:
        return _read_as(block, types, "error")
    except pa.ArrowInvalid:  # there are columns that are not known
        known = {name: type_ for name, type_ in types.items() if not pa.types.is_null(type_)}
    if types and len(_start_of_few_columns(block, known)) < len(block):
        raise ReadError(
            f"{place.path} has lines with so few columns in common, and so many of them, that they take more than "
            f"{format_bytes(_INFERRED_BYTES)} from line {place.line_at(block, 0)} on",
            advice="Are values written as names? Write them again as values.",
            path=place.path,
        )
    return _read_as(block, known, "infer")


def _read_as(block: bytes, types: Types, unknown: str) -> Any:
    return json.read_json(
        pa.BufferReader(block),
        json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        json.ParseOptions(explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior=unknown),
    )


def _start_of_few_columns(block: bytes, types: Types) -> bytes:
    """So many of the first lines that their columns take memory in bounds: each takes some in every line, so lines
    that have none in common take the square of theirs."""
    size, some = _INFERRED_FIRST, b""
    while size < len(block):
        more = block[: block.find(b"\n", size) + 1 or len(block)]
        try:
            nbytes = _read_as(more, types, "infer").nbytes
        except pa.ArrowException:
            return block  # whoever reads it tells why
        if nbytes > _INFERRED_BYTES:
            return some or more
        # So much more that it takes twice the bound at the most, if all of it has other columns.
        some, size = more, int(len(more) * min(64, (2 * _INFERRED_BYTES / max(1, nbytes)) ** 0.5))
    return block


def _times(place: Place, block: bytes, texts: Any, name: str, type_: Any) -> Any:
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:
        row = bisect_left(range(1, len(texts)), True, key=lambda rows: _cast_error(texts.slice(0, rows), type_) != "")
        reason = _cast_error(texts.slice(row, 1), type_)
        line = place.line(block, row + 1, None)
        failed = unreadable(place.path, reason, advice_on_times(name, type_, reason), line=line)
        failed.numbers["column"] = name
        raise failed from None


def _cast_error(texts: Any, type_: Any) -> str:
    try:
        texts.cast(type_)
    except pa.ArrowInvalid as error:
        return str(error)
    return ""


class _Int(int):
    """A number, and how it is written."""

    text: str


class _Float(float):
    """A number, and how it is written."""

    text: str


def _written(kind: Any) -> Any:
    def made(text: str) -> Any:
        number = kind(text)
        number.text = text
        return number

    return made


def _with_texts(block: bytes, names: Sequence[str]) -> bytes:
    """Lines in which values of some columns are their JSON texts, where they are no texts already."""
    lines = []
    for line in block.split(b"\n"):
        one = (
            loads(line, strict=False, parse_int=_written(_Int), parse_float=_written(_Float)) if line.strip() else None
        )
        for name in names:
            value = one.get(name) if isinstance(one, dict) else None
            if isinstance(one, dict) and value is not None and not isinstance(value, str):
                one[name] = getattr(value, "text", None) or dumps(value)
        lines.append(line if one is None else dumps(one).encode())
    return b"\n".join(lines)


def _column_of(reason: str) -> str:
    """The column whose kind changed, as arrow says it; "" where it says another thing."""
    changed = re.search(r"Column\(/([^)/]+)[^)]*\) changed", reason)
    return "" if changed is None else changed[1]


def _advice(name: str, types: Types) -> str:
    """What to change where a column holds other values than were expected."""
    if not name:
        return _ONE_A_LINE
    text = f"pass dtype={{{name!r}: 'str'}} to read all of it as text"
    if pa.types.is_timestamp(types.get(name, pa.null())):
        return f"{name!r} holds values that are not times: leave it out of parse_dates and dtype, or {text}."
    if name in types:
        return f"{name!r} holds other values than {types[name]}: {text}, or the dtype that all of it has."
    return f"Column {name!r} holds values of several kinds: {text}."


def read_json_chunks(
    plan: JsonPlan,
    *,
    columns: Sequence[str] | None = None,
    max_bytes: int = 32 * 1024**2,
    max_rows: int | None = None,
) -> Iterator[Columns]:
    """Read what a plan gives to one rank, piece by piece.

    Parameters
    ----------
    plan : JsonPlan
    columns : sequence of str, optional
        Only these, in this order.
    max_bytes : int
        About the largest size of a piece; a longer line is a piece of its own.
    max_rows : int, optional
        The most rows of a piece.

    Yields
    ------
    Columns
        In file order; one without rows where there is nothing to read. What an object does not have is null.

    Raises
    ------
    ReadError
        If a file cannot be read, or holds columns or values that the first megabytes do not let expect.
    """
    wanted = require_columns(plan.first, plan.types, columns)
    any_rows = False
    for piece in plan.pieces:
        with reading(piece.path):
            for table in _tables(piece, plan, wanted, max(4096, max_bytes // 4), max_bytes // _CELL_BYTES):
                any_rows = True
                yield from bounded(from_arrow(table, nullable=True), max_bytes, max_rows)
    if not any_rows:
        fields = [pa.field(name, plan.types[name]) for name in wanted]
        yield from_arrow(pa.schema(fields).empty_table(), nullable=True)


def _tables(
    piece: BytePiece, plan: JsonPlan, wanted: Sequence[str], block_bytes: int, most_cells: int
) -> Iterator[Any]:
    whole = blocks(piece, plan.storage, 0, block_bytes, None)
    most_lines = max(1, most_cells // max(1, len(plan.types)))
    for place, block in (some for one in whole for some in _of_few_lines(*one, most_lines)):
        if block.strip():
            _require_utf8(place, block)
            table = _typed(place, block, plan).select(wanted)
            for name in rounded_columns(table, plan.asked):
                value = first_rounded_number(json_numbers(block, name))
                if value is not None:
                    raise rounded(piece.path, name, value)
            yield table


def _of_few_lines(place: Place, block: bytes, count: int) -> Iterator[tuple[Place, bytes]]:
    """A block, in parts of so many lines: short ones may have many columns, which they do not name."""
    if block.count(b"\n") <= count:
        yield place, block
        return
    ends = (np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))[count - 1 :: count] + 1).tolist()
    for start, end in zip([0, *ends], [*ends, len(block)], strict=True):
        yield replace(place, offset=place.offset + start), block[start:end]


def _typed(place: Place, block: bytes, plan: JsonPlan) -> Any:
    types, asked = plan.types, plan.asked
    known = {name: type_ for name, type_ in types.items() if not pa.types.is_null(type_)}
    try:
        table = _parse(place, block, types, asked)
    except ReadError as error:
        if error.numbers.get("column") in asked:
            raise
        found = {field.name: plain_type(field.type) for field in _parse(place, block, asked, asked).schema}
        known = widened(place.path, known, found, error.message)
        table = _parse(place, block, known, asked)
    again = settled(table.schema, known)
    if again is not None:
        table = _parse(place, block, again, asked)
    there = set(table.schema.names)
    unknown = [name for name in table.schema.names if name not in types]
    if unknown:
        raise ReadError(
            f"{place.path} has a column {unknown[0]!r} that does not stand in the first megabytes of the first file",
            advice=f"Pass its dtype, for example dtype={{{unknown[0]!r}: 'str'}}.",
            path=place.path,
            column=unknown[0],
        )
    arrays = [table.column(n) if n in there else pa.nulls(table.num_rows, types[n]) for n in types]
    return pa.table(arrays, names=list(types))
