"""The types of columns read from text: asked for, found in the first block, widened where a later block needs it; and
the numbers that a float64 would change, which are kept, or refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ArgumentError, ReadError

Types = dict[str, Any]  # column name to Arrow type
_DATES = pa.timestamp("us")
_WITH_OFFSET = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_NANOSECONDS = r":\d\d\.\d{7,9}(Z|[+-]|$)"
_EXACT = 2.0**53  # up to here a float64 holds every int
_SURE_DIGITS = 15
_INTEGER = r"^[+-]?[0-9]+$"
_FINER_THAN_US = re.compile(r":\d\d\.\d{7,9}\D")


def asked_types(dtype: Mapping[str, str] | None, parse_dates: tuple[str, ...]) -> Types:
    """Arrow types for dtypes named by a user.

    Raises
    ------
    ArgumentError
        If a text names no dtype that can be read.
    """
    types = dict.fromkeys(parse_dates, _DATES)
    return types | {name: _asked(name, str(text)) for name, text in (dtype or {}).items()}


def _asked(name: str, text: str) -> Any:
    if text in ("str", "string", "object"):
        return pa.large_string()
    try:
        if text.startswith("datetime64[") and "," in text:
            aware: Any = pd.DatetimeTZDtype.construct_from_string(text)
            return pa.timestamp(aware.unit, str(aware.tz))
        plain = np.dtype(text if text.startswith(("datetime64", "timedelta64")) else text.lower().replace("ean", ""))
        if plain.kind in "biuf" and plain != np.float16:  # which Arrow does not read
            return pa.from_numpy_dtype(plain)
        if plain.kind == "M":
            return pa.timestamp(np.datetime_data(plain)[0])
    except (TypeError, ValueError, pa.ArrowException):
        pass
    raise ArgumentError(
        f"dtype {text!r} of column {name!r} cannot be read from text",
        advice="Use str, bool, an int or float dtype, datetime64[us], or datetime64[us, UTC] for times with offsets.",
        column=name,
    )


def with_offsets(asked: Types, dates: Iterable[str], texts: Callable[[str], Any]) -> Types:
    """Types asked for, where columns of dates whose first value has an offset from UTC are times in UTC, and those in
    which nanoseconds are written count these.

    Parameters
    ----------
    asked : Types
    dates : iterable of str
        Of these columns only that they are times was said.
    texts : callable
        Gives the values of a column that are there, as text.
    """
    return asked | {name: _type_of_dates(texts(name)) for name in dates}


def _type_of_dates(texts: Any) -> Any:
    finer = pc.any(pc.match_substring_regex(texts, _NANOSECONDS)).as_py()
    return pa.timestamp("ns" if finer else "us", "UTC" if _has_offset(texts) else None)


def _has_offset(texts: Any) -> bool:
    first = texts.slice(0, 1)
    return bool(pc.all(pc.match_substring_regex(first, _WITH_OFFSET), min_count=1).as_py())


def advice_on_times(name: str, type_: Any, reason: str) -> str:
    """What to change where a text is no time of a type, by what arrow says went wrong."""
    text = f"dtype={{{name!r}: 'str'}} to read it as text"
    if "expected no zone offset" in reason:
        aware = f"dtype={{{name!r}: 'datetime64[{type_.unit}, UTC]'}}"
        return f"Pass {aware} if all its times have offsets from UTC, or {text}."
    if "expected a zone offset" in reason:
        naive = f"dtype={{{name!r}: 'datetime64[{type_.unit}]'}}"
        return f"Pass {naive} if none of its times has an offset from UTC, or {text}."
    zone = f", {type_.tz}" if type_.tz else ""
    if type_.unit == "ns":
        us = f"dtype={{{name!r}: 'datetime64[us{zone}]'}}"
        return f"datetime64[ns] holds the years 1678 to 2261: pass {us} for others, or {text}."
    if type_.unit == "us" and _FINER_THAN_US.search(f"{reason} "):
        return f"Pass dtype={{{name!r}: 'datetime64[ns{zone}]'}} for nanoseconds, or {text}."
    return f"Leave {name!r} out of parse_dates and dtype: it is text then, or what its values are."


def plain_type(type_: Any) -> Any:
    """The type in which an inferred one is read: as in pandas, times stay text unless they are asked for."""
    if any(test(type_) for test in (pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)):
        return type_
    if pa.types.is_list(type_):
        return pa.list_(plain_type(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in type_])
    return pa.large_string()


def _may_hold(type_: Any, other: Any) -> bool:
    """Whether a block that was inferred to be of another type may still be read as a known one."""
    nested = pa.types.is_nested(type_) and pa.types.is_nested(other)
    int_as_float = pa.types.is_floating(type_) and pa.types.is_integer(other)
    return bool(other == type_ or pa.types.is_null(other) or int_as_float or nested)


def settled(schema: Any, known: Types) -> Types | None:
    """Types with which to read a block again, where it let a type be inferred that is not a plain one; else None."""
    # In a known struct or list of them, a block may hold a field that is new.
    times = [field for field in schema if pa.types.is_nested(field.type) and _holds_times(field.type)]
    known = known | {field.name: plain_type(field.type) for field in times}
    open_ = [field for field in schema if field.name not in known]
    if not times and all(pa.types.is_string(field.type) or field.type == plain_type(field.type) for field in open_):
        return None
    return known | {field.name: plain_type(field.type) for field in open_ if not pa.types.is_null(field.type)}


def _holds_times(type_: Any) -> bool:
    inner = [type_.field(i).type for i in range(type_.num_fields)]
    return bool(pa.types.is_timestamp(type_) or any(map(_holds_times, inner)))


def widened(path: str, known: Types, found: Types, reason: str) -> Types:
    """Types for a block that the known ones do not fit, from those inferred for it alone.

    Ints become floats. Anything else would give the column another meaning halfway.

    Raises
    ------
    ReadError
        Naming the column, both types and what to pass.
    """
    types: Types = {}
    for name, type_ in known.items():
        other = found.get(name, type_)
        if pa.types.is_integer(type_) and pa.types.is_floating(other):
            types[name] = other
        elif _may_hold(type_, other):
            types[name] = type_
        else:
            raise ReadError(
                f"{path}: column {name!r} begins as {type_} in the first file, but further on holds {other} ({reason})",
                advice=f"Pass dtype={{{name!r}: 'str'}}, or the dtype that all of it has.",
                path=path,
                column=name,
            )
    return types


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
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    if pa.types.is_floating(values.type):
        return any(_ends_are_large(chunk) for chunk in chunks if len(chunk))
    if pa.types.is_list(values.type):
        return any(_has_large(chunk.flatten()) for chunk in chunks)
    if pa.types.is_struct(values.type):
        return any(_has_large(field) for chunk in chunks for field in chunk.flatten())
    return False


def _ends_are_large(floats: Any) -> bool:
    if not floats.null_count:  # Arrow takes longer to begin than numpy for all rows of one of many columns
        array = floats.to_numpy()
        most, least = array.max(), array.min()
        if most == most and least == least:  # no NaN, which hides the others
            return bool(max(most, -least) >= _EXACT)
    ends = pc.min_max(floats).as_py()
    return ends["max"] is not None and max(ends["max"], -ends["min"]) >= _EXACT


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
            yield from _numbers(json.loads(line, strict=False).get(name))


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
