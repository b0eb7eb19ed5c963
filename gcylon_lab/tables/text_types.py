"""The types of columns read from text: asked for, found in the first block, widened where a later block needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import ArgumentError, ReadError

Types = dict[str, Any]  # column name to Arrow type


def asked_types(dtype: Mapping[str, str] | None, parse_dates: tuple[str, ...]) -> Types:
    """Arrow types for dtypes named by a user.

    Raises
    ------
    ArgumentError
        If a text names no dtype that can be read.
    """
    types = {name: pa.timestamp("us") for name in parse_dates}
    return types | {name: _asked(name, str(text)) for name, text in (dtype or {}).items()}


def _asked(name: str, text: str) -> Any:
    if text in ("str", "string", "object"):
        return pa.large_string()
    try:
        plain = np.dtype(text if text.startswith(("datetime64", "timedelta64")) else text.lower().replace("ean", ""))
        if plain.kind in "biuf":
            return pa.from_numpy_dtype(plain)
        if plain.kind == "M":
            return pa.timestamp(np.datetime_data(plain)[0])
    except (TypeError, pa.ArrowException):
        pass
    raise ArgumentError(
        f"dtype {text!r} of column {name!r} cannot be read from text",
        advice="Use str, bool, an int or float dtype, or datetime64[us].",
        column=name,
    )


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
    open_ = [field for field in schema if field.name not in known]
    if all(pa.types.is_string(field.type) or field.type == plain_type(field.type) for field in open_):
        return None
    return known | {field.name: plain_type(field.type) for field in open_ if not pa.types.is_null(field.type)}


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
