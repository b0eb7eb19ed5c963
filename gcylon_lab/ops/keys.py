"""Key columns as verbs are given them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import ArgumentError, ColumnMissing
from ..tables.schema import Label
from .part import Part


def listed(names: Label | Sequence[Label]) -> list[Label]:
    """Turn one label or several into a list."""
    return [names] if isinstance(names, (str, int)) else list(names)


def check_keys(part: Part, keys: Sequence[Label], what: str) -> None:
    """Refuse keys that are no columns.

    Parameters
    ----------
    part : Part
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
    if not keys or len(set(keys)) != len(keys):
        raise ArgumentError(
            f"{what}={list(keys)!r} names no column, or one twice.", advice="Give one or more columns, each once."
        )
    check_columns(part, keys)


def check_columns(part: Part, names: Iterable[Label]) -> None:
    """Refuse what is no column.

    Raises
    ------
    ColumnMissing
        Naming it and the columns there are.
    """
    for name in names:
        if name not in part.schema.names:
            there = ", ".join(map(repr, part.schema.names))
            raise ColumnMissing(f"There is no column {name!r}.", advice=f"The columns are {there}.", column=str(name))
