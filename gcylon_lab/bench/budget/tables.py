"""The tables of ``bench budget``: a key and columns of one dtype, made from a seed."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

KEY = "k"
SKEWS = ("uniform", "hot", "zipf", "equal")
_MANY_LABELS = 100_000
_LONG_STRING = 50_000_000
_WIDE_STRING = 5_000_000
_ROWS_A_KEY = 8

Random = np.random.Generator


@dataclass(frozen=True, slots=True)
class Kind:
    """Columns of one dtype.

    Attributes
    ----------
    row_bytes : int
        About so many, from which the number of rows follows.
    values : callable
        Makes the columns beside the key from a random generator and a number of rows.
    function : str
        How group-by aggregates them.
    labels : int
        How many keys there are; 0 for one in eight rows.
    key : callable, optional
        Makes the key column from numbers; they are it by default.
    hashable : bool
        Whether rows can be compared as a whole.
    """

    row_bytes: int
    values: Callable[[Random, int], dict[str, Any]]
    function: str = "sum"
    labels: int = 0
    key: Callable[[Any], Any] | None = None
    hashable: bool = True


def _ints(random: Random, rows: int) -> dict[str, Any]:
    return {name: random.integers(0, 1_000_000, rows) for name in ("v", "w")}


def _floats(random: Random, rows: int) -> dict[str, Any]:
    return {name: random.random(rows) for name in ("v", "w")}


def _bools(random: Random, rows: int) -> dict[str, Any]:
    return {name: random.random(rows) < 0.5 for name in "stuvw"}


def _strings(random: Random, lengths: Any) -> Any:
    """Strings of so many letters, nearly all different."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    letters = random.integers(97, 123, int(offsets[-1]), np.uint8)
    array = pa.LargeStringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters))
    return pd.Series(array, dtype=pd.StringDtype("pyarrow", na_value=np.nan))


def _short_strings(random: Random, rows: int) -> dict[str, Any]:
    return {"v": _strings(random, random.integers(4, 21, rows))}


def _long_tailed(random: Random, rows: int) -> dict[str, Any]:
    return {"v": _strings(random, np.minimum(random.lognormal(3.5, 1.3, rows), 100_000).astype(np.int64))}


def _one_long(random: Random, rows: int) -> dict[str, Any]:
    lengths = random.integers(4, 21, rows)
    lengths[rows // 2] = _LONG_STRING
    return {"v": _strings(random, lengths)}


def _wide(random: Random, rows: int) -> dict[str, Any]:
    return {"v": _strings(random, np.full(rows, _WIDE_STRING))}


def _many_columns(random: Random, rows: int) -> dict[str, Any]:
    return {f"v{i}": random.random(rows) for i in range(200)}


def _decimals(random: Random, rows: int) -> dict[str, Any]:
    cents = random.integers(0, 10_000_000, rows)
    words = np.zeros((rows, 2), np.int64)
    words[:, 0] = cents
    array = pa.Array.from_buffers(pa.decimal128(15, 2), rows, [None, pa.py_buffer(words)])
    return {name: pd.Series(pd.arrays.ArrowExtensionArray(array)) for name in ("v", "w")}


def _lists(random: Random, rows: int) -> dict[str, Any]:
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(random.integers(0, 9, rows), out=offsets[1:])
    array = pa.ListArray.from_arrays(pa.array(offsets), pa.array(random.integers(0, 1000, int(offsets[-1]))))
    return {"v": pd.Series(pd.arrays.ArrowExtensionArray(array))}


def _nullables(random: Random, rows: int) -> dict[str, Any]:
    missing = random.random(rows) < 0.1
    ints = pd.arrays.IntegerArray(random.integers(0, 1_000_000, rows), missing)
    floats = pd.arrays.FloatingArray(random.random(rows), missing)
    return {"v": ints, "w": floats}


def _times(random: Random, rows: int) -> dict[str, Any]:
    seconds = random.integers(0, 2_000_000_000, rows) * 1_000_000
    times = pd.DatetimeIndex(seconds.view("datetime64[us]")).tz_localize("UTC")
    return {"v": times.tz_convert("Europe/Berlin"), "w": times.tz_convert("UTC")}


def _objects(random: Random, rows: int) -> dict[str, Any]:
    days = np.array([datetime.date.fromordinal(730_000 + i) for i in range(5000)], dtype=object)
    words = np.array([b"x" * (i % 23) for i in range(1000)], dtype=object)
    return {"v": days[random.integers(0, len(days), rows)], "w": words[random.integers(0, len(words), rows)]}


def _string_key(numbers: Any) -> Any:
    text = pa.array(numbers).cast(pa.string())
    return pd.Series(pa.compute.binary_join_element_wise("customer-", text, ""), dtype="str")


def _labelled(count: int) -> Callable[[Any], Any]:
    def make(numbers: Any) -> Any:
        return pd.Categorical.from_codes(
            np.asarray(numbers), categories=[f"label number {i:08d}" for i in range(count)]
        )

    return make


KINDS: dict[str, Kind] = {
    "int": Kind(24, _ints),
    "float": Kind(24, _floats),
    "bool": Kind(13, _bools),
    "nullable": Kind(24, _nullables),
    "tz": Kind(24, _times, "max"),
    "decimal": Kind(40, _decimals),
    "str": Kind(28, _short_strings, "max"),
    "longstr": Kind(94, _long_tailed, "max"),
    "strkey": Kind(38, _floats, key=_string_key),
    "cat": Kind(17, _floats, labels=12, key=_labelled(12)),
    "cat100k": Kind(20, _floats, labels=_MANY_LABELS, key=_labelled(_MANY_LABELS)),
    "list": Kind(45, _lists, "first", hashable=False),
    "object": Kind(35, _objects, "first"),
    "columns": Kind(1608, _many_columns),
    "bigstr": Kind(28, _one_long, "max"),
    "widestr": Kind(_WIDE_STRING + 16, _wide, "first"),
}


def make_frame(name: str, skew: str, part_bytes: int, rank: int, size: int) -> pd.DataFrame:
    """Make a rank's rows.

    Parameters
    ----------
    name : str
        One of `KINDS`. Of ``bigstr`` only rank 0 has the long string.
    skew : str
        One of `SKEWS`: of uniform keys each comes about eight times; of hot ones 90% are one key.
    part_bytes : int
        About so many.
    rank, size : int

    Returns
    -------
    pandas.DataFrame
    """
    kind = KINDS[name]
    random = np.random.default_rng((7, rank))
    rows = max(2, part_bytes // kind.row_bytes)
    numbers = _numbers(random, skew, rows, number_of_keys(name, rows * size))
    values = (_short_strings if name == "bigstr" and rank else kind.values)(random, rows)
    return pd.DataFrame({KEY: numbers if kind.key is None else kind.key(numbers)} | values)


def make_right(name: str, part_bytes: int, rank: int, size: int) -> pd.DataFrame:
    """Make a rank's rows of the right side of a join: each key once on all ranks, and a number."""
    kind = KINDS[name]
    keys = number_of_keys(name, max(2, part_bytes // kind.row_bytes) * size)
    numbers = np.arange(keys)[keys * rank // size : keys * (rank + 1) // size]
    return pd.DataFrame({KEY: numbers if kind.key is None else kind.key(numbers), "r": numbers * 3})


def number_of_keys(name: str, rows: int) -> int:
    """How many keys a table of so many rows is made with."""
    return KINDS[name].labels or max(1, rows // _ROWS_A_KEY)


def _numbers(random: Random, skew: str, rows: int, keys: int) -> Any:
    if skew == "equal":
        return np.zeros(rows, np.int64)
    if skew == "zipf":
        return random.zipf(1.3, rows) % keys
    numbers = random.integers(0, keys, rows)
    if skew == "hot":
        numbers[random.random(rows) < 0.9] = 0
    return numbers
