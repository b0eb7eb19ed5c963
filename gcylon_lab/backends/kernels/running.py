"""Kernels on pandas series: their values and missing ones out, a loop over them, and the result in a series again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ...errors import ArgumentError
from .compiled import CompiledLoop, NotCompiled, compiled
from .interpreted import InterpretedLoop
from .source import KernelSource

Loop = CompiledLoop | InterpretedLoop

NUMPY, MASKED, ARROW = "numpy", "masked", "arrow"
INSTALL = "pip install 'gcylon-lab[kernels]' brings numba, which compiles it"
_MASKED_ARRAYS = (pd.arrays.BooleanArray, pd.arrays.IntegerArray, pd.arrays.FloatingArray)
_NONE: Any = np.zeros(0, np.bool_)
_interpreted: dict[Any, InterpretedLoop] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Given:
    """One argument of a kernel.

    Attributes
    ----------
    values
        An array of numpy, without gaps; or one value for all rows.
    nulls
        Which are missing; None where none is.
    form : str
        Whether the result can have missing values, by this one's dtype alone: not where it is `NUMPY`.
    """

    values: Any
    nulls: Any = None
    form: str = NUMPY

    @property
    def dtype(self) -> str:
        """Of the values, as numpy names it."""
        return str(self.values.dtype)


def loop_of(source: KernelSource, dtypes: Sequence[str], scalars: Sequence[bool]) -> tuple[Loop, str]:
    """What runs a kernel on columns of some dtypes, and why that, in words."""
    try:
        loop = compiled(source, dtypes, scalars)
    except NotCompiled as error:
        own = _by_numpy(source, tuple(dtypes))
        advice = f" ({INSTALL})" if "not installed" in str(error) else ""
        return own, f"{own.how}, as {error}{advice}"
    return loop, loop.how


def _by_numpy(source: KernelSource, dtypes: tuple[str, ...]) -> InterpretedLoop:
    with _lock:
        if (source, dtypes) not in _interpreted:
            _interpreted[source, dtypes] = InterpretedLoop(source, dtypes)
        return _interpreted[source, dtypes]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a kernel gave.

    Attributes
    ----------
    made
        A series; a value where it was given no series.
    dtypes : tuple of str
        Of its columns.
    how : str
        Which code ran on which engine, and why, in words.
    nbytes : int
        Read and written.
    rows : int
    """

    made: Any
    dtypes: tuple[str, ...]
    how: str
    nbytes: int
    rows: int


def run(source: KernelSource, dtype: np.dtype[Any] | None, values: Sequence[Any]) -> Ran:
    """Compute a kernel of pandas series and single values.

    Parameters
    ----------
    source : KernelSource
    dtype : numpy.dtype, optional
        Of the result.
    values : sequence of Series and numbers

    Raises
    ------
    ArgumentError
        If one has a dtype of which it knows no numbers, or what it gives is none.
    """
    index = next((value.index for value in values if isinstance(value, pd.Series)), None)
    given = [_given(name, value) for name, value in zip(source.parameters, values, strict=True)]
    dtypes = tuple(one.dtype for one in given)
    if index is None:  # one row is not worth compiling
        out = _by_numpy(source, dtypes)([one.values for one in given], _NONE, 1)
        return Ran(_result(out, _NONE, NUMPY, dtype)[0].item(), dtypes, "", out.nbytes, 0)
    loop, how = loop_of(source, dtypes, [not np.ndim(one.values) for one in given])
    nulls, rows = joined_nulls([one.nulls for one in given]), len(index)
    out = loop([one.values for one in given], nulls, rows)
    nbytes = sum(one.values.nbytes for one in given) + out.nbytes
    forms = {one.form for one in given}
    made = _result(out, nulls, ARROW if ARROW in forms else MASKED if MASKED in forms else NUMPY, dtype)
    made = pd.Series(made, index=index, copy=False)
    return Ran(made, dtypes, f"on the CPU, as this is a CPU engine: {how}", nbytes, rows)


def joined_nulls(all_nulls: Sequence[Any]) -> Any:
    """Where any value of a row is missing; an array without elements where none is."""
    some = [nulls for nulls in all_nulls if nulls is not None]
    if not some:
        return _NONE
    joined = some[0] if len(some) == 1 else some[0] | some[1]
    for nulls in some[2:]:
        joined |= nulls
    return joined


def refused(name: str, dtype: Any, instead: str = "") -> ArgumentError:
    """The error for a column of which a kernel knows no numbers."""
    return ArgumentError(
        f"Its {name} is a column of {dtype}.",
        advice=instead or "It takes numbers, bools, datetimes and timedeltas: convert it by astype before.",
    )


def scalar(name: str, value: Any) -> Any:
    """A value that is the same for all rows, as the kernel sees it."""
    if isinstance(value, (bool, np.bool_)):
        return np.bool_(value)
    if isinstance(value, (int, np.integer)) and hasattr(value, "__index__") and -(2**63) <= value < 2**63:
        return np.int64(value)
    if isinstance(value, (float, np.floating)):
        return np.float64(value)
    raise ArgumentError(f"Its {name} is {value!r}.", advice="Give a column or a number.")


def check_numbers(name: str, dtype: np.dtype[Any]) -> None:
    """Refuse a dtype of which a kernel knows no numbers.

    Raises
    ------
    ArgumentError
        Naming it, and what to convert it to.
    """
    if dtype.kind == "u" and dtype.itemsize == 8:
        raise refused(name, dtype, "A kernel computes whole numbers as int64: convert it by astype('int64') before.")
    if dtype.kind not in "biuf" or dtype.itemsize > 8 or dtype == np.float16:
        raise refused(name, dtype)


def _given(name: str, value: Any) -> Given:
    if not isinstance(value, pd.Series):
        return Given(scalar(name, value))
    dtype: Any = value.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _times(value.dt.tz_convert(None).to_numpy())
    if isinstance(dtype, np.dtype):
        if dtype.kind in "Mm":
            return _times(value.to_numpy())
        check_numbers(name, dtype)
        return Given(np.ascontiguousarray(value.to_numpy()))
    if isinstance(dtype, pd.ArrowDtype):
        return _of_arrow(name, value)
    own = getattr(dtype, "numpy_dtype", None)
    if own is None or not isinstance(value.array, _MASKED_ARRAYS):
        raise refused(name, dtype)
    check_numbers(name, own)
    nulls = value.isna().to_numpy()
    plain = np.ascontiguousarray(value.to_numpy(dtype=own, na_value=own.type(0)))
    return Given(plain, nulls if nulls.any() else None, MASKED)


def _times(values: Any) -> Given:
    nulls = np.isnat(values)
    return Given(np.ascontiguousarray(values).view(np.int64), nulls if nulls.any() else None, MASKED)


def _of_arrow(name: str, value: Any) -> Given:
    array = pa.chunked_array([value.array.__arrow_array__()]).combine_chunks() if len(value) else None
    type_: Any = value.dtype.pyarrow_dtype
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        own: np.dtype[Any] = np.dtype(np.int64)
    else:
        try:
            own = np.dtype(type_.to_pandas_dtype())
        except (NotImplementedError, TypeError):
            own = np.dtype(object)
        check_numbers(name, own)
    if array is None:
        return Given(np.zeros(0, own), None, ARROW)
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        array = array.cast(pa.int64())
    filled = array.fill_null(False if pa.types.is_boolean(type_) else 0) if array.null_count else array
    return Given(np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), own), nulls, ARROW)


def _result(out: Any, nulls: Any, form: str, dtype: np.dtype[Any] | None) -> Any:
    """What a kernel gave, as pandas holds it: with place for missing values where its columns had that."""
    if dtype is not None and dtype.kind in "Mm":
        if out.dtype.kind != "i":
            raise ArgumentError(
                f"It gives {out.dtype}, which is no count of {np.datetime_data(dtype)[0]} for {dtype}.",
                advice="Let it give whole numbers, as x // 1000 does.",
            )
        out = out.view(dtype)
        out[nulls if len(nulls) else slice(0)] = np.array("NaT", dtype)
        return out
    with np.errstate(all="ignore"):
        out = out if dtype is None else out.astype(dtype, copy=False)
    if form == NUMPY:
        return out
    if form == ARROW:
        return pd.arrays.ArrowExtensionArray(pa.array(out, mask=nulls if len(nulls) else None))
    mask = nulls if len(nulls) else np.zeros(len(out), np.bool_)
    if out.dtype.kind == "b":
        return pd.arrays.BooleanArray(out, mask)
    return (pd.arrays.FloatingArray if out.dtype.kind == "f" else pd.arrays.IntegerArray)(out, mask)
