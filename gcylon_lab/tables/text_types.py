"""The types of columns read from text: asked for, found in the first block, widened where a later block needs it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ArgumentError, ReadError

Types = dict[str, Any]  # column name to Arrow type
_DATES = pa.timestamp("us")
_WITH_OFFSET = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
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
            aware = pd.DatetimeTZDtype.construct_from_string(text)
            return pa.timestamp(aware.unit, str(aware.tz))
        plain = np.dtype(text if text.startswith(("datetime64", "timedelta64")) else text.lower().replace("ean", ""))
        if plain.kind in "biuf":
            return pa.from_numpy_dtype(plain)
        if plain.kind == "M":
            return pa.timestamp(np.datetime_data(plain)[0])
    except (TypeError, pa.ArrowException):
        pass
    raise ArgumentError(
        f"dtype {text!r} of column {name!r} cannot be read from text",
        advice="Use str, bool, an int or float dtype, datetime64[us], or datetime64[us, UTC] for times with offsets.",
        column=name,
    )


def with_offsets(asked: Types, dates: Iterable[str], texts: Callable[[str], Any]) -> Types:
    """Types asked for, where columns of dates whose first value has an offset from UTC are times in UTC.

    Parameters
    ----------
    asked : Types
    dates : iterable of str
        Of these columns only that they are times was said.
    texts : callable
        Gives the values of a column that are there, as text.
    """
    return asked | {name: pa.timestamp("us", "UTC") for name in dates if _has_offset(texts(name))}


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
