"""What a person passes to a reader, brought to one form, or refused in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..backends.protocol.scalars import check_flags
from ..errors import ArgumentError, warn
from .filesystems import Storage, is_url


def column_list(option: str, value: str | Iterable[str] | None) -> list[str] | None:
    """Names of columns as a list; one name alone is a list of one.

    Raises
    ------
    ArgumentError
        If it is neither text nor several of them.
    """
    if value is None:
        return None
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [value]
    if not all(isinstance(name, str) for name in names):
        raise ArgumentError(
            f"Expected column names for {option}, got {value!r}.",
            advice=f"Give names, for example {option}=['price', 'day'].",
        )
    return names


def storage_of(paths: Any, options: Mapping[str, Any] | None) -> Storage:
    """How paths are reached.

    Raises
    ------
    ArgumentError
        If the options are no mapping, or there is no URL that they could be for.
    """
    if options is None:
        return Storage()
    if not isinstance(options, Mapping):
        raise ArgumentError(
            f"Expected a dict for storage_options, got {options!r}.", advice="Give one, such as {'anon': True}."
        )
    listed = paths if isinstance(paths, (list, tuple)) else [paths]
    if options and not any(is_url(str(path)) for path in listed):
        raise ArgumentError(f"storage_options= is for URLs, and {listed!r} holds none.", advice="Leave it out.")
    return Storage(options)


def dtype_texts(dtype: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Dtypes of columns as text: Python's types and numpy's and pandas' dtypes may stand in it too.

    Raises
    ------
    ArgumentError
        If it is no mapping.
    """
    if dtype is None:
        return None
    if not isinstance(dtype, Mapping):
        raise ArgumentError(
            f"dtype={dtype!r} does not say for which columns.",
            advice="Give a dict, for example dtype={'price': 'float64'}.",
        )
    return {name: _text(value) for name, value in dtype.items()} or None


def _text(value: Any) -> str:
    if value is str or isinstance(value, str):
        return value if isinstance(value, str) else "str"
    if isinstance(value, type):
        try:
            return np.dtype(value).name
        except TypeError:
            return value.__name__
    return str(value)


def check_delimiter(delimiter: str) -> str:
    """A delimiter that can be used.

    Raises
    ------
    ArgumentError
        For others.
    """
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise ArgumentError(
            f"delimiter={delimiter!r} is invalid.",
            advice="Expected one character of one byte, such as ',', ';' or '\\t'.",
        )
    return delimiter


def csv_options(
    *,
    delimiter: str,
    header: bool,
    dtype: Mapping[str, Any] | None,
    parse_dates: str | Sequence[str],
    newlines_in_values: bool,
    quotes: bool,
) -> dict[str, Any]:
    """Options of `plan_csv`, as plain values.

    Raises
    ------
    ArgumentError
        Naming the option that cannot be used.
    """
    flags = {"header": header, "newlines_in_values": newlines_in_values, "quotes": quotes}
    check_delimiter(delimiter)
    check_flags(**flags)
    return {"delimiter": delimiter, **flags, **text_options(dtype=dtype, parse_dates=parse_dates)}


def text_options(*, dtype: Mapping[str, Any] | None, parse_dates: str | Sequence[str]) -> dict[str, Any]:
    """Options of `plan_json`, as plain values.

    Raises
    ------
    ArgumentError
        Naming the option that cannot be used.
    """
    return {"dtype": dtype_texts(dtype), "parse_dates": column_list("parse_dates", parse_dates) or []}


def check_frame(frame: Any) -> None:
    """Refuse what is no frame; warn of an index with a name, which a table does not take.

    Raises
    ------
    ArgumentError
        With what it is.
    """
    if not (hasattr(frame, "columns") and hasattr(frame, "iloc")):
        kind, library = type(frame).__name__, type(frame).__module__.partition(".")[0]
        advice = "Pass series.to_frame()." if kind == "Series" else "Pass pd.DataFrame(...) of it."
        if hasattr(frame, "__arrow_c_stream__") and kind != "Series":  # of Arrow or polars, and tables of ours
            advice = "Pass it to from_arrow, which takes what speaks Arrow: lab.from_arrow(frame)."
        elif hasattr(frame, "to_pandas"):
            advice = "Pass what its to_pandas() returns."
        raise ArgumentError(
            f"Expected a DataFrame of pandas, got a {kind if library == 'builtins' else f'{library}.{kind}'}.",
            advice=advice,
        )
    names = [str(name) for name in frame.index.names if name is not None]
    if names:
        warn(
            f"The index of this frame ({', '.join(names)}) is left out, as tables have none. To have it as a column, "
            "pass frame.reset_index()."
        )


def other_delimiter(columns: Sequence[Any], delimiter: str) -> str:
    """A sentence on the delimiter that was probably meant where a csv file gave one column; "" otherwise."""
    name = columns[0] if len(columns) == 1 else ""
    for other in (";", "\t", ",", "|"):
        if other != delimiter and isinstance(name, str) and other in name:
            return f"read_csv found one column, {name!r}. If {other!r} separates the values, pass delimiter={other!r}."
    return ""
