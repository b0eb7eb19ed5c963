"""Times that parquet files hold as INT96: days and nanoseconds, of more years than datetime64[ns] has.

Arrow reads them in one unit, and what that does not hold becomes another time. So they are read in a second unit too,
and compared: all are in nanoseconds, or, where those do not hold them, all are in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ReadError

UNITS = ("ns", "us")
CHECKED_WITH = {"ns": ("ms",), "us": ("ms", "ns")}


def int96_columns(footer: Any) -> list[str]:
    """The columns with such times, in lists and structs too."""
    columns = (footer.schema.column(place) for place in range(footer.num_columns))
    return list(dict.fromkeys(c.path.split(".")[0] for c in columns if c.physical_type == "INT96"))


def require_same_times(path: str, columns: Iterable[str], unit: str, batch: Any, others: list[Any]) -> None:
    """Refuse rows in which a unit makes other times of those in the file.

    Parameters
    ----------
    path : str
    columns : iterable of str
        Those of `int96_columns` that the rows have.
    unit : {"ns", "us"}
    batch : pyarrow.RecordBatch
        Rows in this unit.
    others : list of pyarrow.RecordBatch
        The same rows in the units of `CHECKED_WITH`.

    Raises
    ------
    ReadError
        Naming the column; its numbers say ``read_as``, where all times are held in another unit.
    """
    for name in columns:
        times, coarse, *fine = (_numbers(rows.column(name)) for rows in (batch, *others))
        per_ms = 10**6 if unit == "ns" else 10**3
        if (times // per_ms != coarse).any():
            more = {"read_as": "us"} if unit == "ns" else {}
            raise ReadError(
                f"{path}: column {name!r} holds times (INT96) that datetime64[{unit}] does not",
                advice="Leave it out with columns=[...], or write it again as another type.",
                path=path,
                column=name,
                **more,
            )
        with np.errstate(over="ignore"):
            if fine and (fine[0] != times * 1000).any():
                raise ReadError(
                    f"{path}: column {name!r} holds times (INT96) beyond those of datetime64[ns], and nanoseconds, "
                    "which no one unit holds",
                    advice="Leave it out with columns=[...], or write it again as another type.",
                    path=path,
                    column=name,
                )


def _numbers(array: Any) -> npt.NDArray[np.int64]:
    leaves = [pc.fill_null(leaf.view(pa.int64()), 0).to_numpy() for leaf in _leaves(array)]
    return np.concatenate(leaves) if leaves else np.empty(0, np.int64)


def _leaves(array: Any) -> Iterator[Any]:
    type_ = array.type
    if pa.types.is_timestamp(type_):
        yield array
    elif pa.types.is_struct(type_):
        for field in array.flatten():
            yield from _leaves(field)
    elif pa.types.is_map(type_):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_nested(type_):
        yield from _leaves(array.flatten())
