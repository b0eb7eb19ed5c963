"""Numbers in text that a float64 would change: found after reading, and kept or refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ReadError

_EXACT = 2.0**53  # up to here a float64 holds every int
_SURE_DIGITS = 15
_INTEGER = r"^[+-]?[0-9]+$"


def rounded_columns(table: Any, sure: Iterable[str]) -> list[str]:
    """Columns read as floats with values so large that ints among them may have been rounded.

    Parameters
    ----------
    table : pyarrow.Table
    sure : iterable of str
        Columns for which floats were asked for.
    """
    skipped = set(sure)
    return [name for name in table.schema.names if name not in skipped and _has_large(table.column(name))]


def _has_large(values: Any) -> bool:
    if pa.types.is_floating(values.type):
        top = pc.max(pc.abs(values)).as_py()
        return top is not None and top >= _EXACT
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    if pa.types.is_list(values.type):
        return any(_has_large(chunk.flatten()) for chunk in chunks)
    if pa.types.is_struct(values.type):
        return any(_has_large(field) for chunk in chunks for field in chunk.flatten())
    return False


def type_of_integers(texts: Any) -> Any:
    """uint64 or text for a column of ints that int64 does not hold, as in pandas; None where not all are ints.

    Parameters
    ----------
    texts : pyarrow.ChunkedArray of strings
        The column as it stands in the file.
    """
    if not pc.all(pc.match_substring_regex(texts, _INTEGER)).as_py():
        return None
    try:
        texts.cast(pa.uint64())
    except pa.ArrowInvalid:
        return pa.large_string()
    return pa.uint64()


def first_rounded(texts: Any) -> str | None:
    """The first text of an int that a float64 does not hold exactly."""
    long = texts.filter(pc.greater(pc.utf8_length(texts), _SURE_DIGITS))
    ints = long.filter(pc.match_substring_regex(long, _INTEGER))
    return next((text for text in ints.to_pylist() if _changes(int(text))), None)


def _changes(number: int) -> bool:
    try:
        return int(float(number)) != number
    except OverflowError:
        return True


def json_numbers(block: bytes, name: str) -> Iterator[Any]:
    """The numbers in one column of JSON lines, as Python reads them: ints of any size."""
    for line in block.splitlines():
        if line.strip():
            yield from _numbers(json.loads(line).get(name))


def _numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)


def fits_uint64(numbers: Iterable[Any]) -> bool:
    """Whether all numbers are ints that uint64 holds."""
    return all(isinstance(number, int) and 0 <= number < 2**64 for number in numbers)


def first_rounded_number(numbers: Iterable[Any]) -> int | None:
    """The first int that a float64 does not hold exactly."""
    return next((number for number in numbers if isinstance(number, int) and _changes(number)), None)


def rounded(path: str, name: str, value: object) -> ReadError:
    """The error for an int that stands in a column of floats."""
    text, float_ = (f"dtype={{{name!r}: {dtype!r}}}" for dtype in ("str", "float64"))
    return ReadError(
        f"{path}: column {name!r} is read as float64, which would change {value}",
        advice=f"Pass {text} to keep it as text, or {float_} if it may be rounded.",
        path=path,
        column=name,
    )
