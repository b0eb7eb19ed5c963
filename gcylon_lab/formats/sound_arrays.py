"""Whether arrays of files are what their types say: what offsets of a damaged file point to may be anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def require_sound(array: Any, *, in_order: bool = False) -> None:
    """Look at an array as `Array.validate(full=True)` does. Arrow looks at texts one by one, which takes several times
    longer where all are ASCII.

    Parameters
    ----------
    array : pyarrow.Array
    in_order : bool, default False
        Whether offsets of texts are known to be so already, from the first to the last.

    Raises
    ------
    pa.ArrowInvalid
    """
    type_ = array.type
    wide = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    if wide or pa.types.is_string(type_) or pa.types.is_binary(type_):
        array.validate()
        if _is_ascii(array, np.dtype(np.int64 if wide else np.int32), in_order=in_order):
            return
    array.validate(full=True)


def _is_ascii(array: Any, dtype: np.dtype[Any], *, in_order: bool) -> bool:
    """Whether texts lie one after the other in memory that is there, and are all ASCII."""
    valid, offsets, chars = array.buffers()
    if valid is not None or offsets is None or chars is None or not len(array):
        return False  # how many are missing is to be looked at too
    ends = np.frombuffer(offsets, dtype, len(array) + 1, array.offset * dtype.itemsize)
    first, last = int(ends[0]), int(ends[-1])
    if not 0 <= first <= last <= chars.size or not (in_order or (ends[1:] >= ends[:-1]).all()):
        return False
    return first == last or bool(np.frombuffer(chars, np.int8, last - first, first).min() >= 0)
