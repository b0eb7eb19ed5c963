"""Reading files of one JSON object a line, each rank its own lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from json import loads
from typing import Any

import pyarrow as pa
from pyarrow import json

from ..errors import ReadError
from .arrow_tables import from_arrow
from .data import Columns, bounded
from .exact_numbers import first_rounded_number, fits_uint64, json_numbers, rounded, rounded_columns
from .file_columns import require_columns
from .filesystems import Storage
from .read_errors import unreadable
from .read_plans import BytePiece, Paths, expand_paths, spread_bytes
from .text_blocks import COMPRESSED, Place, blocks, first_records, text_notes, text_size
from .text_types import Types, asked_types, plain_type, settled, widened

_LOOKED_AT = 100
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
        Columns that are times; they become datetime64[us].
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
    types = (_first_types(Place(first[0], storage), first[1], asked) if first else {}) | asked
    sizes = [(file, text_size(file, storage), not file.endswith(COMPRESSED)) for file in files]
    plan = JsonPlan((), first[0] if first else files[0], types, asked, storage, text_notes(sizes))
    return [replace(plan, pieces=tuple(share)) for share in spread_bytes(sizes, size)]


def _first_types(place: Place, block: bytes, asked: Types) -> Types:
    found = _parse(place, block, asked)
    types = {field.name: plain_type(field.type) for field in found.schema}
    for name in rounded_columns(found, asked):
        if pa.types.is_floating(types[name]) and fits_uint64(json_numbers(block, name)):
            types[name] = pa.uint64()
    return {name: types[name] for name in dict.fromkeys([*_names(block), *types]) if name in types}


def _names(block: bytes) -> list[str]:
    """Columns in the order in which the first lines have them: Arrow gives those that were asked for first."""
    lines = (line for line in block.split(b"\n", _LOOKED_AT) if line.strip())
    objects = (loads(line) for line in islice(lines, _LOOKED_AT - 1))
    return list(dict.fromkeys(name for one in objects if isinstance(one, dict) for name in one))


def _parse(place: Place, block: bytes, types: Types) -> Any:
    known = pa.schema([pa.field(name, type_) for name, type_ in types.items() if not pa.types.is_null(type_)])
    try:
        return json.read_json(
            pa.BufferReader(block),
            json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            json.ParseOptions(explicit_schema=known, unexpected_field_behavior="infer"),
        )
    except pa.ArrowInvalid as error:
        row = re.search(r"in row (\d+)", str(error))
        line = place.line(block, int(row[1]) + 1, None) if row else None
        raise unreadable(place.path, error, _advice(str(error), types), line=line) from None


def _advice(reason: str, types: Types) -> str:
    """What to change, by what arrow says went wrong."""
    changed = re.search(r"Column\(/([^)/]+)", reason)
    if changed is None:
        return "Each line has to be one JSON object."
    name = changed[1]
    if name in types:
        return f"{name!r} holds other values than {types[name]}: leave it out of parse_dates, or pass the dtype it has."
    return f"Column {name!r} holds values of several kinds; all lines need one."


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
        for place, block in blocks(piece, plan.storage, 0, max(4096, max_bytes // 4), None):
            if block.strip():
                any_rows = True
                table = _typed(place, block, plan.types).select(wanted)
                for name in rounded_columns(table, plan.asked):
                    value = first_rounded_number(json_numbers(block, name))
                    if value is not None:
                        raise rounded(piece.path, name, value, text_can_be_asked_for=False)
                yield from bounded(from_arrow(table, nullable=True), max_bytes, max_rows)
    if not any_rows:
        fields = [pa.field(name, plan.types[name]) for name in wanted]
        yield from_arrow(pa.schema(fields).empty_table(), nullable=True)


def _typed(place: Place, block: bytes, types: Types) -> Any:
    known = {name: type_ for name, type_ in types.items() if not pa.types.is_null(type_)}
    try:
        table = _parse(place, block, known)
    except ReadError as error:
        found = {field.name: plain_type(field.type) for field in _parse(place, block, {}).schema}
        known = widened(place.path, known, found, error.message)
        table = _parse(place, block, known)
    again = settled(table.schema, known)
    if again is not None:
        table = _parse(place, block, again)
    unknown = [name for name in table.schema.names if name not in types]
    if unknown:
        raise ReadError(
            f"{place.path} has a column {unknown[0]!r} that does not stand in the first megabytes of the first file",
            advice=f"Pass its dtype, for example dtype={{{unknown[0]!r}: 'str'}}.",
            path=place.path,
            column=unknown[0],
        )
    arrays = [table.column(n) if n in table.schema.names else pa.nulls(table.num_rows, types[n]) for n in types]
    return pa.table(arrays, names=list(types))
