"""What a group-by computes: the functions, the dtypes that they give, and their steps. Pure: values in, values out.

A function that can be put together from partial results is a step on rows (`Kernel`s to begin with), a step that
brings partial results together, and a last one on whole results. The others need all rows of a group at once.
``std_ticks`` is the std of timedeltas as a float, in their unit, of which reductions make one of theirs.
Dtypes are those that pandas gives, with these exceptions, each to keep a result right: sums of ints are 64 bits wide,
means and the like of decimals are float64, and a column without any value is taken for floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import UnsupportedDtype
from .arrow_types import kind_of
from .promotion import fixed_column, masked_name, value_type
from .schema import ARROW_DTYPE, MANY_COLUMNS, Column, Label, Schema, require_hashable

FUNCTIONS = (
    "sum", "mean", "min", "max", "count", "size", "var", "std", "median", "quantile", "nunique", "first", "last",
    "any", "all", "list",
)  # fmt: skip
_OF_NUMPY = (
    (np.sum, "sum"),
    (np.mean, "mean"),
    (np.min, "min"),
    (np.max, "max"),
)  # which skip missing values in pandas
# These look at all rows of a group at once: there are no partial results that could be brought together.
OF_ALL_ROWS = ("median", "quantile", "nunique", "list")

_NUMBERS = ("bool", "int", "float", "decimal", "null")
_TIMES = ("datetime", "timedelta")
_ORDERED = (*_NUMBERS, *_TIMES, "period", "str", "bytes", "date", "time")
_UNHASHABLE = ("complex", "list", "struct", "map")
_ALLOWED = {
    "sum": (*_NUMBERS, "timedelta"),
    "mean": (*_NUMBERS, *_TIMES),
    "min": _ORDERED,
    "max": _ORDERED,
    "var": _NUMBERS,
    "std": _NUMBERS,
    "std_ticks": ("timedelta",),
    "median": (*_NUMBERS, *_TIMES),
    "quantile": ("int", "float", "decimal", "null", *_TIMES),
    "any": (*_NUMBERS, "timedelta", "str", "bytes"),
    "all": (*_NUMBERS, "timedelta", "str", "bytes"),
}


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One column of a result, as it was asked for.

    Attributes
    ----------
    name : str or int
        Of the result's column.
    function : str
        One of `FUNCTIONS`.
    column : str or int, optional
        What is aggregated; None for ``size``.
    argument : float
        The quantile, or ``ddof`` of var and std.
    """

    name: Label
    function: str
    column: Label | None = None
    argument: float = 0.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """One step: a function of input columns that makes output columns, for each group or (the last step) each row."""

    function: str
    inputs: tuple[Label, ...]
    outputs: tuple[Column, ...]
    argument: float = 0.0
    of: Column | None = None  # the table's column, which errors name: the columns of partial results have other names


@dataclass(frozen=True, slots=True)
class Aggregations:
    """All steps of a group-by.

    Attributes
    ----------
    keys : tuple of labels
    partial : tuple of Kernel
        On rows of the table.
    merge : tuple of Kernel
        On partial results, which have the columns of ``partial``; None where whole groups are needed at once.
    finish : tuple of Kernel
        On the groups' rows.
    mergeable : tuple of (Kernel, Kernel)
        Where ``merge`` is None: those of ``partial`` that could be brought together, each with what does it.
    """

    keys: tuple[Label, ...]
    partial: tuple[Kernel, ...]
    merge: tuple[Kernel, ...] | None
    finish: tuple[Kernel, ...]
    mergeable: tuple[tuple[Kernel, Kernel], ...] = ()

    @property
    def needed(self) -> list[Label]:
        """The table's columns that are read: keys first."""
        return list(dict.fromkeys([*self.keys, *(name for kernel in self.partial for name in kernel.inputs)]))


def plan_aggregations(schema: Schema, keys: Sequence[Label], wanted: Sequence[Aggregation]) -> Aggregations:
    """The steps that compute what is wanted.

    Raises
    ------
    UnsupportedDtype
        Naming the column, its dtype and the function that it has not; or a key that has no equality.
    """
    return (_kept_steps if len(wanted) >= MANY_COLUMNS else _steps)(schema, tuple(keys), tuple(wanted))


def _steps(schema: Schema, keys: tuple[Label, ...], wanted: tuple[Aggregation, ...]) -> Aggregations:
    require_keys(schema, keys)
    steps = _Steps(schema, set(keys))
    finish = tuple([steps.add(aggregation) for aggregation in wanted])
    partial, merge = tuple(steps.partial.values()), tuple(steps.merge.values())
    if len(merge) == len(partial):
        return Aggregations(tuple(keys), partial, merge, finish)
    pairs = tuple((steps.partial[key], kernel) for key, kernel in steps.merge.items())
    return Aggregations(tuple(keys), partial, None, finish, pairs)


def mergeable_steps(steps: Aggregations, size: Label) -> Aggregations:
    """Only what can be brought together of partial results, and how many rows there are, under a name."""
    rows = (fixed_column(size, pa.int64()),)
    pairs = [*steps.mergeable, (Kernel("size", (), rows), Kernel("sum", (size,), rows))]
    return Aggregations(steps.keys, tuple(made for made, _ in pairs), tuple(merge for _, merge in pairs), ())


def require_keys(schema: Schema, keys: Sequence[Label]) -> None:
    """Refuse keys whose values cannot be hashed.

    Raises
    ------
    UnsupportedDtype
        Naming the column.
    """
    for key in keys:
        require_hashable(schema[key])


def whole_rows(schema: Schema, keys: Sequence[Label], keep: str, count: Label | None = None) -> Aggregations:
    """The steps that keep the first or the last row of each key, whole, and where it has a name count its rows.

    Raises
    ------
    UnsupportedDtype
        If a key cannot be hashed.
    """
    return (_kept_rows if schema.blocks else _rows)(schema, tuple(keys), keep, count)


def _rows(schema: Schema, keys: tuple[Label, ...], keep: str, count: Label | None) -> Aggregations:
    require_keys(schema, keys)
    function = "first_row" if keep == "first" else "last_row"
    others = [column for column in schema if column.name not in set(keys)]
    taken = tuple(Kernel(function, (column.name,), (column,)) for column in others)
    finish = tuple(Kernel("same", (c.name,), (c,)) for c in others)
    if count is None:
        return Aggregations(tuple(keys), taken, taken, finish)
    size = fixed_column(count, pa.int64())
    return Aggregations(
        tuple(keys),
        (*taken, Kernel("size", (), (size,))),
        (*taken, Kernel("sum", (count,), (size,))),
        (*finish, Kernel("same", (count,), (size,))),
    )


# Of thousands of columns they take as long to be made as what they do.
_kept_steps = lru_cache(maxsize=4)(_steps)
_kept_rows = lru_cache(maxsize=4)(_rows)


def result_column(column: Column, function: str, name: Label) -> Column:
    """The column that a function of a column gives.

    Raises
    ------
    UnsupportedDtype
        If there is no such function of this dtype.
    """
    _require(column, function)
    if function in ("min", "max", "first", "last"):
        return column.named(name)
    if function == "size" and column.pandas == "string[pyarrow]":
        return _masked(name, pa.int64())
    if function in ("count", "size"):
        return _in_family(column, name, pa.int64())
    if function == "nunique":
        return fixed_column(name, pa.int64())
    if function == "std_ticks":
        return fixed_column(name, pa.float64())
    if function in ("any", "all"):
        return _in_family(column, name, pa.bool_())
    if function == "list":
        return _list_column(column, name)
    if function == "sum":
        return _sum_column(column, name)
    if column.kind in _TIMES:
        return column.named(name)
    return _in_family(column, name, _float_type(column, function))


def _require(column: Column, function: str) -> None:
    kinds = _ALLOWED.get(function)
    kind = column.kind
    fine = kinds is None or kind in kinds
    if function in ("min", "max") and kind == "category":
        fine = column.ordered
    if function == "quantile" and kind == "bool":
        fine = not column.fixed
    if function == "nunique":
        fine = (kind if column.labels is None else kind_of(column.labels.type)) not in _UNHASHABLE
    if function == "list":
        fine = kind not in ("complex", "period")
    if not fine:
        raise UnsupportedDtype(
            f"there is no {function} of column {column.name!r}, whose dtype is {column.describe()}",
            advice="Leave it out, or convert it before."
            + (" An ordered category has a min and a max." if function in ("min", "max") else ""),
            column=column.name,
        )


def _in_family(column: Column, name: Label, type_: Any) -> Column:
    """A column of numbers as pandas makes it from this one: of numpy, nullable, or an ArrowDtype."""
    kind = kind_of(type_) or ""
    if column.pandas == ARROW_DTYPE:
        return Column(name, kind, ARROW_DTYPE, arrow=type_)
    if not column.fixed and column.pandas[:1] in "IUFb" and kind_of(column.arrow) in ("bool", "int", "float"):
        return _masked(name, type_)
    return fixed_column(name, type_)


def _masked(name: Label, type_: Any) -> Column:
    import numpy as np

    return Column(name, kind_of(type_) or "", masked_name(np.dtype(type_.to_pandas_dtype())), arrow=type_)


def _float_type(column: Column, function: str) -> Any:
    if column.kind != "float":
        return pa.float64()
    narrow = value_type(column)
    if pa.types.is_float16(narrow) and function in ("var", "std"):
        return pa.float32() if function == "var" else pa.float64()
    return pa.float64() if function == "quantile" and column.fixed else narrow


def _sum_column(column: Column, name: Label) -> Column:
    if column.kind == "timedelta":
        return column.named(name)
    if column.kind == "decimal":
        type_ = column.arrow
        wide = pa.decimal128(38, type_.scale) if pa.types.is_decimal128(type_) else pa.decimal256(76, type_.scale)
        return replace(column, name=name, arrow=wide, restore=None)
    if column.kind == "null":
        return fixed_column(name, pa.float64())
    if column.kind == "float":
        return _in_family(column, name, value_type(column))
    unsigned = column.kind == "int" and pa.types.is_unsigned_integer(value_type(column))
    return _in_family(column, name, pa.uint64() if unsigned else pa.int64())


def _list_column(column: Column, name: Label) -> Column:
    type_ = column.labels.type if column.labels is not None else value_type(column)
    text = ARROW_DTYPE if column.pandas == ARROW_DTYPE else "object"
    return Column(name, "list", text, arrow=pa.large_list(type_))


class _Steps:
    """Collects kernels; columns of partial results are shared by all functions that need them."""

    def __init__(self, schema: Schema, taken: set[Label]) -> None:
        self._schema = schema
        self._taken = taken
        self.partial: dict[tuple[Any, ...], Kernel] = {}
        self.merge: dict[tuple[Any, ...], Kernel] = {}

    def add(self, wanted: Aggregation) -> Kernel:
        """Add what an aggregation needs; its last step comes back."""
        if wanted.function == "size" or wanted.column is None:
            size = self._kernel("size", (), lambda name: (fixed_column(name, pa.int64()),), "sum")
            given = fixed_column(wanted.name, pa.int64())
            if wanted.column is not None:
                given = result_column(self._schema[wanted.column], "size", wanted.name)
            return Kernel("same", _names(size), (given,))
        column = self._schema[wanted.column]
        output = (result_column(column, wanted.function, wanted.name),)
        if wanted.function in ("mean", "var", "std", "std_ticks") or (
            wanted.function == "sum" and column.kind in ("float", "null")
        ):
            return self._of_floats(wanted, column, output)
        merged = {"count": "sum"} | dict.fromkeys(OF_ALL_ROWS, "")
        function, inner = wanted.function, result_column(column, wanted.function, "")
        if function == "count":
            inner = fixed_column("", pa.int64())
        made = self._kernel(
            function, (column.name,), lambda name: (inner.named(name),), merged.get(function, function),
            wanted.argument, column,
        )  # fmt: skip
        return Kernel("same", _names(made), output)

    def _of_floats(self, wanted: Aggregation, column: Column, output: tuple[Column, ...]) -> Kernel:
        """Sums of floats are kept in two numbers, the second being what the first has no digits for."""
        if wanted.function in ("var", "std", "std_ticks"):
            moments = self._kernel("moments", (column.name,), _moments, "merge_moments")
            return Kernel(wanted.function.removesuffix("_ticks"), _names(moments), output, wanted.argument)
        total = self._kernel("total", (column.name,), _total, "merge_total", of=column)
        if wanted.function == "sum":
            return Kernel("sum", _names(total), output)
        count = self._kernel("count", (column.name,), lambda name: (fixed_column(name, pa.int64()),), "sum")
        return Kernel("mean", (*_names(total), *_names(count)), output, of=column)

    def _kernel(
        self,
        function: str,
        inputs: tuple[Label, ...],
        outputs: Callable[[str], tuple[Column, ...]],
        merged: str,
        argument: float = 0.0,
        of: Column | None = None,
    ) -> Kernel:
        key = (function, inputs, argument)
        if key not in self.partial:
            self.partial[key] = kernel = Kernel(function, inputs, outputs(self._new_name(key)), argument, of)
            if merged:
                self.merge[key] = Kernel(merged, _names(kernel), kernel.outputs, of=of)
        return self.partial[key]

    def _new_name(self, key: tuple[Any, ...]) -> str:
        name = f"{key[0]}({', '.join(map(str, key[1]))})"
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name


def _names(kernel: Kernel) -> tuple[Label, ...]:
    return tuple(column.name for column in kernel.outputs)


def _total(name: str) -> tuple[Column, ...]:
    return fixed_column(name, pa.float64()), fixed_column(name + " rest", pa.float64())


def _moments(name: str) -> tuple[Column, ...]:
    """The count, the mean in two numbers as sums are, and the sum of the squared distances from it."""
    count = fixed_column(name + " n", pa.int64())
    return count, *(fixed_column(name + part, pa.float64()) for part in (" mean", " mean rest", " squares"))


def _row_bytes(columns: tuple[Column, ...]) -> int:
    return sum(column.dtype.itemsize for column in columns if column.dtype is not None)


# Of partial results of floats, by function: what plans count with.
FLOATS_PARTIAL_BYTES = {
    "sum": _row_bytes(_total("")),
    "mean": _row_bytes(_total("")) + 8,
    "var": _row_bytes(_moments("")),
    "std": _row_bytes(_moments("")),
}


def sum_beyond(kernel: Kernel, column: Column, about: float, holder: str) -> UnsupportedDtype:
    """The error for a sum that its type does not hold.

    Parameters
    ----------
    kernel : Kernel
    column : Column
        That was added up: the table's, or one of partial results.
    about : float
        The sum.
    holder : str
        The type.
    """
    of = kernel.of or column
    return UnsupportedDtype(
        f"a sum of column {of.name!r} ({of.describe()}) is about {about:.6g}, which {holder} does not hold",
        advice=f"Convert the column before: astype({{{of.name!r}: 'float64'}}) has sums of that size, rounded.",
        column=of.name,
    )


def partial_schema(schema: Schema, steps: Aggregations) -> Schema:
    """The columns of partial results: keys, then what the kernels make."""
    made = [column for kernel in steps.partial for column in kernel.outputs]
    return Schema([*(schema[key] for key in steps.keys), *made])


def result_schema(schema: Schema, steps: Aggregations) -> Schema:
    """The columns of the result.

    Raises
    ------
    DuplicateColumns
        If two columns have one name.
    """
    return Schema([*(schema[key] for key in steps.keys), *(c for kernel in steps.finish for c in kernel.outputs)])


def by_name(function: Any) -> Any:
    """The name of a function of numpy's that pandas takes for its own; anything else as it is."""
    return next((name for one, name in _OF_NUMPY if function is one), function)
