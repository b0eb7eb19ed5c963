"""Row groups of a parquet file, as a backend is asked for them that decodes them itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .arrow_types import kind_of

# Of these kinds GPU engines make of a file what CPU engines make of it.
_KINDS = ("bool", "int", "float", "str", "date", "datetime", "decimal")
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Some rows of a file, in order.

    Attributes
    ----------
    path : str
        In the local file system.
    groups : tuple of (int, int, int, int)
        Of each row group its place in the file, its rows, and the rows [start, stop) of it that are wanted.
    types : dict
        By name, in order: the Arrow types of the columns wanted.
    dtypes : dict
        By name: dtypes that the Arrow types do not tell, as `gcylon_lab.backends.arrow.tables.from_arrow` takes them.
    """

    path: str
    groups: tuple[tuple[int, int, int, int], ...]
    types: Mapping[str, Any]
    dtypes: Mapping[str, str]

    def wanted(self) -> list[tuple[int, int]]:
        """The rows wanted, as ranges of those of all these groups, one after the other."""
        ranges: list[tuple[int, int]] = []
        first = 0
        for _, rows, start, stop in self.groups:
            if ranges and ranges[-1][1] == first + start:
                ranges[-1] = ranges[-1][0], first + stop
            else:
                ranges.append((first + start, first + stop))
            first += rows
        return ranges


def within(ranges: Sequence[tuple[int, int]], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """What of some ranges lies in [start, stop), counted from there."""
    for low, high in ranges:
        low, high = max(low, start), min(high, stop)
        if low < high:
            yield low - start, high - start


def decoded_by_host(name: str, type_: Any) -> str:
    """Why a column is decoded in host memory also on GPU engines, in words; "" where it is not."""
    kind = kind_of(type_)
    if kind not in _KINDS or str(type_) in ("halffloat", "date64[ms]"):
        return f"column {name!r} is {type_}"
    if kind == "decimal" and type_.precision > _MOST_DIGITS:
        return f"column {name!r} is {type_}"
    return f"the name {name!r} has a dot" if "." in name else ""
