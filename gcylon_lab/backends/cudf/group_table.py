"""A hash table in device memory: sums and counts by one whole-number key, to which rows are added piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from ..protocol.aggregation import Kernel
from ..protocol.schema import Column, Label, Schema
from .columns.data import DeviceColumns
from .columns.types import item_dtype
from .kernels.group_source import C_TYPES, EMPTY, FULL, GROUPS, LARGEST, Step, source
from .rows import made

_THREADS, _BLOCKS_A_PROCESSOR = 256, 8
_MOST_SUM = 2**63 - 1
_FINDING_ROW_BYTES, _ORDERING_ROW_BYTES = 12, 32  # of each group: its key and place; and while keys are ordered


class GroupTable:
    """Implements `gcylon_lab.backends.protocol.relational.Folding`.

    Parameters
    ----------
    schema : Schema
        Of all rows that are added.
    key : label
        A fixed column of whole numbers.
    kernels : sequence of Kernel
        Sums and counts; see `gcylon_lab.backends.cudf.hash_groups.may_hash`.
    slots : int
        A power of 2.
    """

    def __init__(self, schema: Schema, key: Label, kernels: Sequence[Kernel], slots: int) -> None:
        self._key, self._column, self._kernels, self._slots = key, schema[key], tuple(kernels), slots
        asked = [one for kernel in kernels for one in _steps(kernel, schema, key)]
        self._steps = tuple(step for step, _ in asked)
        self._inputs = [name for _, name in asked]
        self._results = tuple(_results(kernels))
        self._rows = 0
        self._keys: Any = None
        self._sums: Any = None
        self._status: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return 8 * ((self._slots + 1) * (1 + len(self._steps)) + LARGEST + len(self._steps))

    def reading_bytes(self, groups: float) -> int:
        """Bytes that reading out so many groups takes beside the table, at the most, the result among them."""
        results = item_dtype(self._column).itemsize + 8 * (1 + len(self._results))  # and the order
        return int(groups * (_FINDING_ROW_BYTES + max(_ORDERING_ROW_BYTES, results)))

    def begin(self) -> None:
        """Take the memory."""
        places, steps = self._slots + 1, len(self._steps)
        self._keys = cupy.full(places, EMPTY, dtype=np.uint64)
        self._sums = cupy.zeros((steps, places), np.uint64)  # floats as their bits
        self._status = cupy.zeros(LARGEST + steps, np.uint64)

    def add(self, data: Any) -> None:
        """Add rows; nothing is waited for."""
        if not data.rows:
            return
        arguments: list[Any] = [data.array(self._key), np.int64(data.rows), self._keys]
        arguments += [np.uint32(self._slots - 1), self._status]
        for place, name in enumerate(self._inputs):
            arguments += [data.array(name), self._sums[place]]
        _launch(self._code().group_rows, data.rows, arguments)
        self._rows += data.rows

    def groups(self) -> int | None:
        """How many groups there are; None where they did not fit, or a sum may have passed 64 bits. Waits once."""
        self._status[GROUPS:LARGEST].fill(0)
        places = self._slots + 1
        _launch(self._code().count_groups, places, [self._keys, np.int64(places), self._status])
        found = self._status.get().tolist()
        largest = max((found[LARGEST + i] for i, step in enumerate(self._steps) if step.how == "whole"), default=0)
        return None if found[FULL] or largest * self._rows > _MOST_SUM else int(found[GROUPS])

    def made(self, groups: int, *, in_order: bool = True) -> DeviceColumns:
        """So many groups as `groups` has found, perhaps in the order of their keys; the table is given up."""
        code, places, dtype = self._code(), np.int64(self._slots + 1), item_dtype(self._column)
        found, at = cupy.empty(groups, np.uint64), cupy.empty(groups, np.uint32)
        _launch(code.find_groups, int(places), [self._keys, places, self._status, found, at])
        order: Any = np.uint64(0)  # as they stand in the table
        if in_order:
            order = cupy.argsort(found if dtype.kind == "u" else found.view(np.int64))
        keys, results = cupy.empty(groups, dtype), cupy.empty((len(self._results), groups), np.uint64)
        arguments = [order, np.int64(groups), found, at, self._sums, places, keys, results]
        _launch(code.read_groups, groups, arguments)
        self._keys = self._sums = self._status = None
        outputs = [column for kernel in self._kernels for column in kernel.outputs]
        arrays = [self._array(column, results[i], self._results[i]) for i, column in enumerate(outputs)]
        return DeviceColumns(Schema([self._column, *outputs]), groups, (keys, *arrays))

    def _array(self, column: Column, bits: Any, step: int | None) -> Any:
        if step is None or self._steps[step].how == "float":
            return made(column, bits.view(np.float64))
        return made(column, bits if column.dtype == np.uint64 else bits.view(np.int64))

    def _code(self) -> _Code:
        return _compiled(_c_type(self._column), self._steps, self._results)


class _Code(NamedTuple):
    group_rows: Any
    count_groups: Any
    find_groups: Any
    read_groups: Any


@cache
def _compiled(key_type: str, steps: tuple[Step, ...], results: tuple[int | None, ...]) -> _Code:
    module = cupy.RawModule(code=source(key_type, steps, results))
    return _Code(*(module.get_function(name) for name in _Code._fields))


@cache
def _processors(device: int) -> int:
    runtime = cupy.cuda.runtime
    return int(runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, device))


def _launch(kernel: Any, items: int, arguments: Sequence[Any]) -> None:
    blocks = min(-(-items // _THREADS), _BLOCKS_A_PROCESSOR * _processors(cupy.cuda.runtime.getDevice()))
    kernel((blocks,), (_THREADS,), tuple(arguments))


def _c_type(column: Column) -> str:
    return C_TYPES[item_dtype(column).str[1:]]


def _steps(kernel: Kernel, schema: Schema, key: Label) -> list[tuple[Step, Label]]:
    """What is added up for a kernel, and of which columns."""
    if kernel.function == "size":  # nothing is read for it
        return [(Step("count", _c_type(schema[key]), False), key)]
    skips = schema[kernel.inputs[0]].kind == "float" and kernel.function != "merge_total"
    how = {"count": "count", "sum": "whole"}.get(kernel.function, "float")
    return [(Step(how, _c_type(schema[name]), skips), name) for name in kernel.inputs]


def steps_of(kernels: Sequence[Kernel]) -> int:
    """How many sums a table holds for some kernels."""
    return sum(max(1, len(kernel.inputs)) for kernel in kernels)


def _results(kernels: Sequence[Kernel]) -> list[int | None]:
    """Of which step each output is; None for what rounding took, of which nothing is known on GPUs."""
    results: list[int | None] = []
    step = 0
    for kernel in kernels:
        results += [step, None] if kernel.function == "total" else range(step, step + len(kernel.outputs))
        step += steps_of([kernel])
    return results
