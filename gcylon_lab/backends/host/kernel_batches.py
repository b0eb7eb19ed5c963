"""Kernels of many columns at once: groups of some columns, one column after the other, are the groups of one column.

What a kernel costs by itself is then spread over many columns, and what it gives is the same to the bit, as it goes
through the rows of a group in their order, whatever other groups there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedDtype
from ..protocol.aggregation import Kernel
from ..protocol.data import Array, Columns, concat_arrays, new_planes, over_planes
from ..protocol.schema import Column, Schema
from . import group_kernels
from .group_kernels import Inputs
from .keys.key_groups import Groups, Int64s

_KINDS = ("bool", "int", "float", "datetime", "timedelta")
_FUNCTIONS = frozenset((
    "count", "sum", "total", "merge_total", "moments", "merge_moments", "first", "last", "first_row", "last_row", "min",
    "max", "any", "all", "median", "quantile", "nunique",
))  # fmt: skip
_FINISHING = frozenset(("same", "sum", "mean", "var", "std"))
_VALUES = 16384  # computed at once: their temporaries are in memory that nobody has claimed, and in the cache
_LEAST = 4  # columns at once: where these have more rows than that, each by itself is as good

Planes = slice | Int64s


@dataclass(frozen=True, slots=True)
class Batch:
    """Kernels that differ in their columns alone.

    Attributes
    ----------
    numbers : tuple of int
        Of the kernels among all.
    kernels : tuple of Kernel
    merging : Kernel, optional
        What brings the results of the first one together with those of before.
    inputs, outputs : tuple of (int, ndarray of int64)
        Of each input and output the block, and the planes of all kernels in it.
    """

    numbers: tuple[int, ...]
    kernels: tuple[Kernel, ...]
    merging: Kernel | None
    inputs: tuple[tuple[int, Int64s], ...]
    outputs: tuple[tuple[int, Int64s], ...]


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """How kernels are computed of rows of one schema.

    Attributes
    ----------
    kernels, merge : tuple of Kernel
    schema : Schema
        Of the result.
    batches : tuple of Batch
    single : tuple of (int, int)
        The others by number, each with that of the first that differs from it in the names of its results alone: one
        is computed where a sum is asked for and a mean, which needs it too.
    places : tuple of range
        Of each kernel's results among the columns.
    """

    kernels: tuple[Kernel, ...]
    merge: tuple[Kernel, ...]
    schema: Schema
    batches: tuple[Batch, ...]
    single: tuple[tuple[int, int], ...]
    places: tuple[range, ...]


class _Same:
    """Kernels that are looked up by identity: there may be thousands of them."""

    __slots__ = ("kernels",)

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.kernels = kernels

    def __hash__(self) -> int:
        return id(self.kernels)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.kernels is other.kernels


def plan_kernels(rows: Schema, keys: Schema, kernels: Sequence[Kernel], merge: Sequence[Kernel] = ()) -> KernelPlan:
    """How kernels are computed of rows, whose results follow the keys; of many columns it is kept, as all pieces of a
    table have the same."""
    return (_kept_plan if rows.blocks else _planned)(rows, keys, _Same(kernels), _Same(merge))


def _planned(rows: Schema, keys: Schema, kernels: _Same, merge: _Same) -> KernelPlan:
    every, merging = tuple(kernels.kernels), tuple(merge.kernels)
    schema = Schema([*keys, *(column for kernel in every for column in kernel.outputs)])
    alike: dict[Any, list[int]] = {}
    first: dict[Any, int] = {}
    single: list[tuple[int, int]] = []
    for number, kernel in enumerate(every):
        last = merging[number].function if merging else ""
        outputs = tuple([(column.form, id(column.labels)) for column in kernel.outputs])
        if rows.blocks and schema.blocks and _is_batched(rows, kernel):
            kinds = tuple([rows[name].form for name in kernel.inputs])
            alike.setdefault((kernel.function, kernel.argument, last, kinds, outputs), []).append(number)
        else:
            like = (kernel.function, kernel.inputs, kernel.argument, outputs, last)
            single.append((number, first.setdefault(like, number)))
    ends = [*accumulate([len(kernel.outputs) for kernel in every], initial=len(keys))]
    places = tuple(map(range, ends, ends[1:]))
    batches: list[Batch] = []
    for numbers in alike.values():
        if len(numbers) < _LEAST:
            single += [(number, number) for number in numbers]
            continue
        some = tuple([every[number] for number in numbers])
        inputs = [[rows.plane(rows.place(one.inputs[i])) for one in some] for i in range(len(some[0].inputs))]
        made = [[schema.plane(places[number][i]) for number in numbers] for i in range(len(some[0].outputs))]
        last_step = merging[numbers[0]] if merging else None
        batches.append(Batch(tuple(numbers), some, last_step, _planes(inputs), _planes(made)))
    return KernelPlan(every, merging, schema, tuple(batches), tuple(sorted(single)), places)


_kept_plan = lru_cache(maxsize=16)(_planned)


def _is_batched(rows: Schema, kernel: Kernel) -> bool:
    inputs = [rows[name] for name in kernel.inputs]
    if not inputs or kernel.function not in _FUNCTIONS | _FINISHING:
        return False
    if any(column.dtype is None or column.kind not in _KINDS for column in (*inputs, *kernel.outputs)):
        return False
    dtype = inputs[0].dtype
    assert dtype is not None
    # Long ints are split in two where any of them is long, in a column by itself too.
    return kernel.function != "moments" or dtype.kind == "f" or dtype.itemsize < 8


def _planes(places: list[list[tuple[int, int]]]) -> tuple[tuple[int, Int64s], ...]:
    """Of columns of one dtype, which are in one block, that and the planes."""
    return tuple((some[0][0], np.array([plane for _, plane in some], np.int64)) for some in places)


class Result:
    """Keys, and what kernels make of groups, as it is made.

    Parameters
    ----------
    plan : KernelPlan
    keys : Columns
    """

    def __init__(self, plan: KernelPlan, keys: Columns) -> None:
        self._schema, self._places, self._rows = plan.schema, plan.places, keys.rows
        self._planes = new_planes(plan.schema, keys.rows)
        self._arrays: list[Any] = [None] * len(plan.schema)
        for place, array in enumerate(keys.arrays):
            self.put(place, array)

    def put(self, place: int, array: Array) -> None:
        """Take a column."""
        number, plane = self._schema.plane(place) if self._planes else (-1, -1)
        if number < 0:
            self._arrays[place] = array
        else:
            out = self._planes[number]
            out[plane] = array.view(out.dtype)

    def put_all(self, number: int, arrays: Sequence[Array]) -> None:
        """Take what a kernel has made."""
        for place, array in zip(self._places[number], arrays, strict=True):
            self.put(place, array)

    def put_batch(self, block: int, planes: Int64s, array: npt.NDArray[Any]) -> None:
        """Take the columns of a batch, one after the other in one array."""
        out = self._planes[block]
        out[_chosen(planes)] = np.ascontiguousarray(array).view(out.dtype).reshape(len(planes), self._rows)

    def finish(self) -> Columns:
        """All columns."""
        if not self._planes:
            return Columns(self._schema, self._rows, tuple(self._arrays))
        variable = [array for array in self._arrays if array is not None]
        return over_planes(self._schema, self._rows, self._planes, variable)


def _chosen(planes: Int64s) -> Planes:
    """Planes as a slice where they are evenly spaced: then they are not copied, or by numpy's own loops."""
    step = int(planes[1] - planes[0]) if len(planes) > 1 else 1
    if step > 0 and bool((np.diff(planes) == step).all()):
        return slice(int(planes[0]), int(planes[-1]) + 1, step)
    return planes


def computed(plan: KernelPlan, keys: Columns, data: Columns, groups: Groups) -> Columns:
    """What kernels make of the groups of some rows."""
    result = Result(plan, keys)

    def one(number: int) -> list[Array]:
        kernel = plan.kernels[number]
        return group_kernels.compute(kernel, groups, inputs_of(kernel, data))

    most = max(data.rows, groups.count)

    def some(batch: Batch) -> None:
        for part, repeated in _parts(batch, most, groups):
            inputs = _inputs(batch, part, data)
            _put(result, batch, part, _made(batch.kernels[0], groups, repeated[0], inputs))

    _run(plan, result, one, some, most, batched=groups.count > 0)
    return result.finish()


@dataclass(frozen=True, slots=True)
class State:
    """Results of before, and where the groups of further rows are among theirs.

    Attributes
    ----------
    data : Columns
    merged : Groups
        Of the keys of before and then those of the rows' own groups.
    going_on : Groups
        The group of each row.
    """

    data: Columns
    merged: Groups
    going_on: Groups


def gone_on(plan: KernelPlan, keys: Columns, data: Columns, groups: Groups, state: State) -> Columns:
    """The same, gone on from results of before."""
    result, merged = Result(plan, keys), state.merged
    most = max(data.rows, len(merged.ids), merged.count)

    def one(number: int) -> list[Array]:
        kernel, merging = plan.kernels[number], plan.merge[number]
        before = [state.data.array(column.name) for column in kernel.outputs]
        if kernel.function in ("total", "merge_total"):
            return group_kernels.go_on(kernel, state.going_on, inputs_of(kernel, data), before)
        own = group_kernels.compute(kernel, groups, inputs_of(kernel, data))  # what merging takes, in its order
        both = [
            (column, concat_arrays(column, [old, new]))
            for column, old, new in zip(kernel.outputs, before, own, strict=True)
        ]
        return group_kernels.compute(merging, merged, both)

    def some(batch: Batch) -> None:
        kernel, merging = batch.kernels[0], batch.merging
        assert merging is not None
        for part, (own, together, further) in _parts(batch, most, groups, merged, state.going_on):
            inputs, count = _inputs(batch, part, data), part.stop - part.start
            befores = [
                _taken(state.data, block, planes[part], column)
                for (block, planes), column in zip(batch.outputs, kernel.outputs, strict=True)
            ]
            if kernel.function in ("total", "merge_total"):
                padded = [np.zeros((count, merged.count), before.dtype) for before in befores]
                for wide, before in zip(padded, befores, strict=True):
                    wide[:, : state.data.rows] = before
                flat = [wide.reshape(-1) for wide in padded]
                _put(result, batch, part, group_kernels.go_on(kernel, further, inputs, flat))
                continue
            made = _made(kernel, groups, own, inputs)
            both = [
                (column, np.concatenate([before, array.reshape(count, -1)], axis=1).reshape(-1))
                for column, before, array in zip(kernel.outputs, befores, made, strict=True)
            ]
            _put(result, batch, part, _made(merging, merged, together, both))

    planes = state.data.planes
    batched = groups.count > 0 and planes is not None and all(len(segments) == 1 for segments in planes)
    _run(plan, result, one, some, most, batched=batched)
    return result.finish()


def finished(plan: KernelPlan, keys: Columns, data: Columns) -> Columns:
    """What the last kernels make of each row."""
    result = Result(plan, keys)

    def one(number: int) -> list[Array]:
        kernel = plan.kernels[number]
        return [group_kernels.finish(kernel, inputs_of(kernel, data))]

    def some(batch: Batch) -> None:
        for part, _ in _parts(batch, data.rows):
            _put(result, batch, part, [group_kernels.finish(batch.kernels[0], _inputs(batch, part, data))])

    _run(plan, result, one, some, data.rows)
    return result.finish()


def inputs_of(kernel: Kernel, data: Columns) -> Inputs:
    """The columns that a kernel needs."""
    return [(data.schema[name], data.array(name)) for name in kernel.inputs]


def _made(kernel: Kernel, groups: Groups, repeated: Groups, inputs: Inputs) -> list[Array]:
    """What a kernel makes of the groups of several columns, one after the other in one."""
    if groups.count == 1 and kernel.function in ("moments", "merge_moments"):  # which are added up pairwise
        return group_kernels.moments_of_columns(kernel, groups, inputs, repeated.count)
    return group_kernels.compute(kernel, repeated, inputs)


def _run(
    plan: KernelPlan, result: Result, one: Callable[[int], list[Array]], some: Callable[[Batch], None], most: int, *,
    batched: bool = True,
) -> None:  # fmt: skip
    """Compute all kernels, of at most so many rows or groups each: by batches, or one by one."""
    known: dict[int, list[Array]] = {}
    for number, first in plan.single:
        if first not in known:
            known[first] = one(first)
        result.put_all(number, known[first])
    batched = batched and 0 < most <= _VALUES
    for batch in plan.batches:
        if batched:
            try:
                some(batch)
                continue
            except UnsupportedDtype:
                pass  # of one of them, which names its column
        for number in batch.numbers:
            result.put_all(number, one(number))


def _parts(batch: Batch, most: int, *groups: Groups) -> Iterator[tuple[slice, list[Groups]]]:
    """As many kernels of a batch at a time as are computed at once, and groups of so many columns."""
    count, step = len(batch.kernels), max(_LEAST, _VALUES // most)
    known: dict[int, list[Groups]] = {}
    for first in range(0, count, step):
        together = min(step, count - first)
        if together not in known:
            known[together] = [_repeated(one, together) for one in groups]
        yield slice(first, first + together), known[together]


def _repeated(groups: Groups, columns: int) -> Groups:
    """The groups of so many columns, one after the other in one."""
    rows, numbers = len(groups.ids), np.arange(columns)[:, None]
    ids = groups.ids + numbers * groups.count
    outside = groups.outside
    if outside is not None:
        ids[:, outside] = -1
    made = Groups(ids.reshape(-1), (groups.first + numbers * rows).reshape(-1))
    if outside is None:
        made.__dict__["outside"] = None  # which nobody has to look for
    made.__dict__["in_runs"] = groups.in_runs
    return made


def _inputs(batch: Batch, part: slice, data: Columns) -> Inputs:
    """What some kernels of a batch need, one column after the other in one."""
    found: Inputs = []
    for number, (block, planes) in enumerate(batch.inputs):
        names = [kernel.inputs[number] for kernel in batch.kernels[part]]
        column = data.schema[names[0]]
        if data.planes is not None and len(data.planes[block]) == 1:
            values = _taken(data, block, planes[part], column).reshape(-1)
        else:
            values = np.concatenate([data.array(name) for name in names])
        found.append((column, values))
    return found


def _taken(data: Columns, block: int, planes: Int64s, column: Column) -> npt.NDArray[Any]:
    """Some columns of one dtype: shape (columns, rows)."""
    assert data.planes is not None and column.dtype is not None
    chosen: npt.NDArray[Any] = data.planes[block][0][_chosen(planes)]
    return chosen.view(column.dtype)


def _put(result: Result, batch: Batch, part: slice, arrays: Sequence[npt.NDArray[Any]]) -> None:
    for (block, planes), array in zip(batch.outputs, arrays, strict=True):
        result.put_batch(block, planes[part], array)
