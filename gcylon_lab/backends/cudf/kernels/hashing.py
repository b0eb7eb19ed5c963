"""The rank of each row by the hash form of its keys: one kernel from key values to ids, which equal the CPU's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from ...host.keys import hashing
from ...protocol.schema import Column, Label, require_hashable
from ..columns.data import Array, DeviceColumns, as_array, offsets_of
from ..columns.transfer import to_host, uploaded
from ..columns.types import device_type, item_dtype
from .hash_source import CONSTANTS, DECIMALS, KERNEL, NUMBERS, TEXTS

_ROWS_A_BLOCK = 1024
_C_TYPES = {
    "bool": "u8", "int8": "signed char", "int16": "short", "int32": "int", "int64": "i64",
    "uint8": "u8", "uint16": "unsigned short", "uint32": "u32", "uint64": "u64", "float32": "float",
    "float64": "double",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Key:
    """A key in the kernel: its parameters (``@`` stands for its place), their values, and the code that sets ``hash``.

    Attributes
    ----------
    parameters : tuple of str
    code : str
    values : tuple
        Arrays are kept alive by it until the kernel has been started.
    """

    parameters: tuple[str, ...]
    code: str
    values: tuple[Any, ...]


def partition_ids(data: DeviceColumns, keys: Sequence[Label], n: int, buckets: int = 1, *, into: Any = None) -> Any:
    """The id in [0, n) of each row, by the hash form of its keys.

    With several buckets the ids of one are beside each other: ``bucket * size + rank`` for ``rank * buckets + bucket``.
    They are written ``into`` an array that is given.

    Returns
    -------
    cupy array of uint8, uint16 or uint32, shape (rows,)

    Raises
    ------
    UnsupportedDtype
        If a key cannot be hashed (lists, structs).
    """
    columns = [require_hashable(data.schema[key]) for key in keys]
    ids = cupy.empty(data.rows, hashing.id_dtype(n)) if into is None else into
    if n == 1 or not data.rows:
        ids.fill(0)
        return ids
    if any(column.kind == "decimal" and not column.fixed and column.arrow.scale < 0 for column in columns):
        chosen = DeviceColumns(data.schema.select(keys), data.rows, tuple(data.array(key) for key in keys))
        ids[:] = uploaded(np.ascontiguousarray(hashing.bucket_ids(to_host(chosen), keys, n // buckets, buckets)))
        return ids
    forms = [_key(column, data.array(column.name)) for column in columns]
    kernel = _kernel(tuple((form.parameters, form.code) for form in forms), _C_TYPES[ids.dtype.name])
    shift = 64 - (n.bit_length() - 1) if n & (n - 1) == 0 else 0
    values = [value for form in forms for value in form.values]
    blocks = -(-data.rows // _ROWS_A_BLOCK)
    numbers = np.int64(data.rows), np.uint64(n), np.int32(shift), np.uint32(n // buckets), np.uint32(buckets)
    kernel((blocks,), (256,), (*values, *numbers, ids))
    return ids


@lru_cache(maxsize=64)
def _kernel(forms: tuple[tuple[tuple[str, ...], str], ...], id_type: str) -> Any:
    parameters, body = [], []
    for place, (names, code) in enumerate(forms):
        parameters += [name.replace("@", str(place)) for name in names]
        body.append(code.replace("@", str(place)))
        body.append("total = total * COMBINE + hash;" if place else "total = hash;")
    code = "\n            ".join(body)
    needed = [source for call, source in (("hash_decimal", DECIMALS), ("hash_text", TEXTS)) if call in code]
    filled = {"parameters": "".join(f"{name}, " for name in parameters), "body": code, "id_type": id_type}
    kernel = KERNEL % {**filled, "unroll": 1 if needed else 4}
    return cupy.RawKernel("\n".join([CONSTANTS, NUMBERS, *needed, kernel]), "partition_ids")


def _key(column: Column, array: Array) -> _Key:
    if column.kind == "null":
        return _Key((), "hash = NULL_HASH;", ())
    if not column.fixed:
        return _variable_key(column, array)
    c_type = _C_TYPES[item_dtype(column).name]
    load = f"{c_type} value = key@[row];"
    if column.kind == "category":
        table = uploaded(_label_table(column))
        code = f"{{ {load} hash = table@[value < 0 ? labels@ : value]; }}"
        values = (array, table, np.int32(table.size - 1))
        return _Key((f"const {c_type}* key@", "const u64* table@", "int labels@"), code, values)
    parameters = (f"const {c_type}* key@",)
    if column.kind in ("datetime", "timedelta"):
        null = "value == (i64)(1ULL << 63) ? NULL_HASH : "
        return _Key(parameters, f"{{ {load} hash = {null}hash_int({in_ns('value', column.unit)}); }}", (array,))
    return _Key(parameters, f"{{ {load} hash = {number('value', c_type)}; }}", (array,))


def _label_table(column: Column) -> np.ndarray[Any, Any]:
    """Hashes of a category's labels by code, and of null at the end; computed once on the host."""
    return np.ascontiguousarray(hashing._label_hashes(column))


def number(value: str, c_type: str) -> str:
    """The expression that hashes a number of a C type."""
    if c_type in ("float", "double"):
        return f"hash_float(widened({value}))"
    return f"hash_uint64({value})" if c_type == "u64" else f"hash_int((i64){value})"


def in_ns(value: str, unit: str) -> str:
    """The expression for ticks in ns, or in the finest unit in which they fit int64, as `hashing._in_ns` does."""
    own = hashing._TO_NS[unit]
    expression = value
    for target in ("s", "ms", "us", "ns"):
        factor = own // hashing._TO_NS[target]
        if factor > 1:
            limit = (2**63 - 1) // factor
            fits = f"{value} <= {limit}LL && {value} >= -{limit}LL"
            expression = f"({fits} ? {value} * {factor}LL : {expression})"
    return expression


def _variable_key(column: Column, array: Any) -> _Key:
    mask = array.null_mask()
    nulls = np.uint64(mask.ptr if mask is not None else 0)
    parameters: tuple[str, ...] = ("const u32* mask@", "i64 offset@")
    values: tuple[Any, ...] = (nulls, np.int64(array.offset()))
    given: tuple[str, ...]
    if not array.num_children() and column.kind == "str":
        return _Key(parameters, "hash = NULL_HASH;", values)  # all rows are null
    if column.kind == "str":
        offsets = offsets_of(array)
        c_type = _C_TYPES[offsets.dtype.name]
        chars = np.uint64(array.data().ptr if array.data() is not None else 0)
        given = (f"const {c_type}* ends@", "const u8* chars@")
        hashed = "hash_text(chars@ + ends@[row], (i64)ends@[row + 1] - (i64)ends@[row])"
        values = (*values, offsets, chars)
    else:
        given, hashed, items = _items(column, array)
        values = (*values, *items)
    return _Key(parameters + given, f"hash = valid(mask@, row + offset@) ? {hashed} : NULL_HASH;", values)


def _items(column: Column, array: Any) -> tuple[tuple[str, ...], str, tuple[Any, ...]]:
    """Parameters, hashing expression and values of a nullable column of fixed width."""
    if column.kind == "decimal":
        values = (as_array(array, np.uint64, 2), np.int32(column.arrow.scale))
        return ("const u64* key@", "int scale@"), "hash_decimal(key@[2 * row], key@[2 * row + 1], scale@)", values
    if column.kind == "date":
        return ("const int* key@",), "hash_int((i64)key@[row])", (as_array(array, np.int32),)
    if column.kind in ("datetime", "timedelta"):
        return ("const i64* key@",), f"hash_int({in_ns('key@[row]', column.unit)})", (as_array(array, np.int64),)
    dtype = np.dtype(device_type(column.arrow).to_pandas_dtype())
    c_type = _C_TYPES[dtype.name]
    return (f"const {c_type}* key@",), number("key@[row]", c_type), (as_array(array, dtype),)
