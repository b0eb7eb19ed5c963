"""Whether what an expression is given is one value, which stands for every row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ArgumentError


def several_values(value: Any) -> str:
    """What is given where one value belongs, in words: "a Series of 2,000"; empty for one value."""
    if isinstance(value, (str, bytes, bytearray)) or not hasattr(type(value), "__len__"):
        return ""
    if getattr(value, "ndim", 1) == 0:
        return ""  # an array of one value, without an axis
    return f"a {type(value).__name__} of {len(value):,}"


def check_single_values(values: Iterable[Any]) -> None:
    """Refuse several values in the place of one: each rank would fit them to its own rows, and each chunk anew.

    Raises
    ------
    ArgumentError
        If one of them is several.
    """
    for value in values:
        if said := several_values(value):
            raise ArgumentError(
                f"{said} cannot be fitted to the rows of a table, which lie on several ranks and have no index.",
                advice="Give one value or an expression of columns, or bring values in by a key, as in "
                "t.join(lab.from_pandas(frame), on=key). Whether a value is among several, isin says.",
            )
