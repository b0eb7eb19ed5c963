"""Memory that is handed to others: whoever holds it holds the claim on it too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


class _Owned:
    """An array's memory by numpy's interface, with what shall live as long."""

    def __init__(self, array: np.ndarray[Any, Any], owner: object) -> None:
        self._kept = array, owner
        self.__array_interface__ = array.__array_interface__


def view_with_owner(array: np.ndarray[Any, Any], owner: object) -> np.ndarray[Any, Any]:
    """The same memory as another array, which keeps an owner alive."""
    if not array.size:
        return array
    ticks = array.view(np.int64) if array.dtype.kind in "mM" else array
    return np.asarray(_Owned(ticks, owner)).view(array.dtype)


def with_owner(table: Any, owner: object) -> Any:
    """An Arrow table over the same memory, whose columns keep an owner alive. Nested ones do not."""
    arrays = [pa.chunked_array([_array(c, owner) for c in column.chunks], column.type) for column in table.columns]
    return pa.table(arrays, schema=table.schema) if arrays else table


def _array(array: Any, owner: object) -> Any:
    if pa.types.is_dictionary(array.type):
        indices = _array(array.indices, owner)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary, ordered=array.type.ordered)
    if pa.types.is_nested(array.type) or pa.types.is_null(array.type):
        return array
    buffers = [None if b is None else pa.foreign_buffer(b.address, b.size, (b, owner)) for b in array.buffers()]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, array.offset)
