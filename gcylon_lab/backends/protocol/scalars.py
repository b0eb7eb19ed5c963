"""What a person gives for one argument: one value or a list, one of some choices; and how errors show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Integral
from typing import Any

from ...errors import ArgumentError


def several_values(value: Any) -> str:
    """What is given where one value belongs, in words: "a Series of 2,000"; empty for one value."""
    if isinstance(value, (str, bytes, bytearray)) or not hasattr(type(value), "__len__"):
        return ""
    if getattr(value, "ndim", 1) == 0:
        return ""  # an array of one value, without an axis
    return f"a {type(value).__name__} of {len(value):,}"


_OF_EXPRESSIONS = ("polars", "duckdb", "ibis", "pyspark", "narwhals", "dask")


def check_own_expression(value: Any) -> None:
    """Refuse an expression of another library, which is neither a value nor known here.

    Raises
    ------
    ArgumentError
    """
    library = type(value).__module__.partition(".")[0].lstrip("_")
    if library in _OF_EXPRESSIONS and type(value).__name__ in ("Expr", "Expression", "Column", "Then", "When"):
        raise ArgumentError(
            f"{shown(value)} is an expression of {library}, which is not known here.",
            advice="Write it with gl.col('x'), gl.lit(1) and gl.when(condition).",
        )


def check_single_values(values: Iterable[Any]) -> None:
    """Refuse several values in the place of one: each rank would fit them to its own rows, and each chunk anew.

    Raises
    ------
    ArgumentError
        If one of them is several.
    """
    for value in values:
        check_own_expression(value)
        if said := several_values(value):
            raise ArgumentError(
                f"{said} cannot be fitted to the rows of a table, which lie on several ranks and have no index.",
                advice="Give one value or an expression of columns, or bring values in by a key, as in "
                "t.join(lab.from_pandas(frame), on=key). Whether a value is among several, isin says.",
            )


_SHOWN = 80


def has_columns(value: Any) -> bool:
    """Whether it is a frame or a table, whatever library's."""
    columns = getattr(type(value), "columns", None)
    return columns is not None and not callable(columns)


def shown(value: Any) -> str:
    """A value in the words of an error: as it is written, or what it is where that is long, or many lines."""
    if not has_columns(value):
        text = repr(value)
        if len(text) <= _SHOWN and "\n" not in text:
            return text
    return several_values(value) or f"a {type(value).__name__}"


def listed_values(name: str, given: Any) -> list[Any]:
    """Several values as a list; those of a set in an order that is the same in every process.

    Parameters
    ----------
    name : str
        Of the argument.
    given : iterable
        Text is one value, as it is in pandas.

    Raises
    ------
    ArgumentError
        If it is one value, or what holds columns.
    """
    if isinstance(given, Set):
        return sorted(given, key=repr)
    one = isinstance(given, (str, bytes, bytearray, Mapping)) or not isinstance(given, Iterable)
    if one or getattr(given, "ndim", 1) != 1:
        text = shown(given)
        single = isinstance(given, (str, bytes)) or not hasattr(given, "__len__")
        meant = f", as [{text}]" if single and text == repr(given) else ""
        raise ArgumentError(f"Expected a list of values for {name}, got {text}.", advice=f"Pass a list{meant}.")
    return list(given)


def is_missing(value: Any) -> bool:
    """Whether a value stands for a missing one: None, NaN, NaT or NA."""
    same = value is not None and value == value  # of NA that is NA, which is neither true nor false
    return type(same).__name__ == "NAType" or not same


def check_flags(**flags: bool) -> None:
    """Refuse options that are no bools.

    Raises
    ------
    ArgumentError
        Naming the first one.
    """
    for name, value in flags.items():
        if type(value).__name__ not in ("bool", "bool_"):  # numpy's too, which need not be loaded
            raise ArgumentError(f"{name}={shown(value)} is invalid.", advice="Expected True or False.")


def check_choice(option: str, value: Any, choices: Sequence[Any], hint: str = "") -> None:
    """Refuse what is not among some values.

    Raises
    ------
    ArgumentError
        Naming them.
    """
    if not (value in choices if isinstance(value, str) else any(value is one for one in choices)):
        *others, last = map(repr, choices)
        raise ArgumentError(
            f"{option}={shown(value)} is invalid.", advice=f"Expected {', '.join(others)} or {last}.{hint}"
        )


def whole_number(name: str, given: Any, *, least: int | None = None) -> int:
    """A whole number that was given for an argument, as a plain int.

    Raises
    ------
    ArgumentError
        If it is none, or less than the least.
    """
    # To numpy a timedelta64 is a whole number.
    whole = isinstance(given, Integral) and hasattr(given, "__index__") and not isinstance(given, bool)
    if not whole or (least is not None and int(given) < least):
        at_least = "" if least is None else f" of at least {least}"
        raise ArgumentError(
            f"Expected a whole number for {name}, got {shown(given)}.", advice=f"Give one{at_least}, such as 3."
        )
    return int(given)
