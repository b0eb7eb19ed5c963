"""Key columns as verbs are given them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence, Set
from typing import Any

import numpy as np

from ...backends.protocol.column import instead_of
from ...backends.protocol.scalars import check_own_expression, has_columns, shown
from ...backends.protocol.schema import MANY_COLUMNS, Label, Schema
from ...errors import ArgumentError, ColumnMissing


def listed(names: Label | Sequence[Label], argument: str = "columns") -> list[Label]:
    """Turn one label or several into a list.

    Parameters
    ----------
    names : label or sequence of labels
    argument : str
        What it was given as.

    Raises
    ------
    ArgumentError
        If it is neither: what has no order, or holds columns, is no list of labels.
    """
    if _is_label(names):
        return [plain_label(names)]
    given: Any = names
    unordered = isinstance(given, Set) and not isinstance(given, KeysView)
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, bytearray, Mapping)) and not unordered
    if several and getattr(given, "ndim", 1) == 1:
        given = list(given)
        if all(map(_is_label, given)):
            return [plain_label(name) for name in given]
    for one in given if isinstance(given, (list, tuple)) else [given]:
        check_own_expression(one)
    advice = "Give a label, or a list of labels."
    if unordered:
        advice = "A set has no order: give a list of labels."
    elif has_columns(given):
        advice = "Give a label, or a list of labels, as list(frame.columns)."
    raise ArgumentError(f"Expected column labels for {argument}, got {shown(given)}.", advice=advice)


def _is_label(name: Any) -> bool:
    return isinstance(name, (str, int, np.integer)) and not isinstance(name, bool)


def plain_label(name: Any) -> Any:
    """A label as tables have it: numpy's ints are ints."""
    return name if isinstance(name, (str, int)) or not isinstance(name, np.integer) else int(name)


def check_keys(schema: Schema, keys: Sequence[Label], what: str) -> None:
    """Refuse keys that are no columns.

    Parameters
    ----------
    schema : Schema
    keys : sequence of labels
    what : str
        The argument's name.

    Raises
    ------
    ArgumentError
        If there are none, or one twice.
    ColumnMissing
        Naming the key and the columns there are.
    """
    check_each_once(keys, what)
    check_labels(keys, schema.names)


def check_each_once(keys: Sequence[Label], what: str) -> None:
    """Refuse no keys, and one that is named twice.

    Raises
    ------
    ArgumentError
    """
    if not keys or len(set(keys)) != len(keys):
        raise ArgumentError(
            f"{what}={list(keys)!r} is empty or names a column twice.", advice="Give one or more columns, each once."
        )


def check_labels(names: Iterable[Label], known: Collection[Label]) -> None:
    """Refuse what is no column, of those that are known.

    Raises
    ------
    ColumnMissing
        Naming it and the columns there are.
    """
    there = known if len(known) < MANY_COLUMNS else {name: None for name in known}
    for name in names:
        if name not in there:
            raise ColumnMissing(f"There is no column {name!r}.", advice=instead_of(name, known), column=str(name))


def require_columns(schema: Schema) -> None:
    """Refuse a table without columns, whose rows have nothing that could be compared.

    Raises
    ------
    ArgumentError
    """
    if not len(schema):
        raise ArgumentError("There are no columns to compare rows by.", advice="Take a table that has some.")
