"""One column of all ranks brought to one dtype, and all their columns to one schema. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ColumnMissing, SchemaMismatch, UnsupportedDtype
from .arrow_types import TypeClash, kind_of, merge_types
from .schema import ARROW_DTYPE, Column, Schema, code_dtype, listed_labels

# Kinds whose numpy type has a value that says null.
_NULL_IN_PLACE = ("float", "datetime", "timedelta")


def promote(columns: Sequence[Column], rows: Sequence[int]) -> Column:
    """The column that holds every rank's values exactly.

    Parameters
    ----------
    columns : sequence of Column, shape (ranks,)
        The same column on each rank.
    rows : sequence of int, shape (ranks,)
        Rows of each rank; without rows a dtype of another kind gives way.

    Raises
    ------
    SchemaMismatch
        Naming the column, the dtypes and the ranks.
    """
    nulls = any(column.kind == "null" and count for column, count in zip(columns, rows, strict=True))
    try:
        return _fold(_participants(columns, rows), nulls)
    except (TypeClash, pa.ArrowInvalid):  # the latter where a label has no exact value in the common type
        raise _mismatch(columns, rows) from None


def _participants(columns: Sequence[Column], rows: Sequence[int]) -> list[Column]:
    """Distinct columns in rank order, less those that give way."""
    distinct: dict[Column, bool] = {}
    for column, count in zip(columns, rows, strict=True):
        distinct[column] = distinct.get(column, False) or count > 0
    typed = {column: live for column, live in distinct.items() if column.kind != "null"}
    if not typed:
        return [columns[0]]
    live = [column for column in typed if typed[column]]
    if not live:
        return list(typed)
    return [column for column in typed if typed[column] or _agrees(column, live)]


def _agrees(column: Column, live: Sequence[Column]) -> bool:
    """Whether a column without rows says something that the others can take up."""
    if all(column.kind != other.kind for other in live):
        return False
    try:
        _fold([*live, column], nulls=False)
    except TypeClash:
        return False
    return True


def _fold(columns: Sequence[Column], nulls: bool) -> Column:
    kinds = {column.kind for column in columns}
    if len(columns) == 1 and not (nulls and columns[0].fixed and columns[0].kind in ("bool", "int")):
        return columns[0]
    if kinds == {"category"}:
        return _merge_categories(columns)
    if kinds == {"period"}:
        raise TypeClash  # another frequency
    if "complex" in kinds:
        return _merge_complex(columns)
    if kinds == {"category", "str"}:
        columns = [c for c in columns if c.kind == "str" or kind_of(c.labels.type) not in ("str", "null")]
    return _build(columns, reduce(merge_types, map(value_type, columns)), nulls)


def in_one_zone(columns: Sequence[Column]) -> list[Column]:
    """Columns of times, those with a zone in that of the first one that has one: they are instants, as keys are."""
    zoned = next((column.tz for column in columns if column.kind == "datetime" and column.tz), "")
    return [_in_zone(column, zoned) if column.tz and column.tz != zoned else column for column in columns]


def _in_zone(column: Column, zone: str) -> Column:
    if column.fixed:
        return fixed_column(column.name, pa.timestamp(column.unit, zone))
    return replace(column, arrow=pa.timestamp(column.arrow.unit, zone), tz=zone, restore=None)


def value_type(column: Column) -> Any:
    """The Arrow type of a column's values.

    Raises
    ------
    TypeClash
        If Arrow has none (complex, period, category).
    """
    if column.dtype is None:
        return column.arrow
    if column.kind in ("complex", "period", "category"):
        raise TypeClash
    if column.kind == "datetime":
        return pa.timestamp(column.unit, column.tz or None)
    return pa.from_numpy_dtype(column.dtype)


def _build(columns: Sequence[Column], type_: Any, nulls: bool) -> Column:
    name, kind = columns[0].name, kind_of(type_) or ""
    objects = [column.pandas == "object" and not column.fixed for column in columns]
    typed = [column for column, is_object in zip(columns, objects, strict=True) if not column.fixed and not is_object]
    fits = kind in _NULL_IN_PLACE or not (nulls or any(objects))
    if not typed and not all(objects) and fits and kind not in ("decimal", "str"):
        return fixed_column(name, type_)
    chosen = typed[0] if typed else None
    if chosen is not None and chosen.pandas == ARROW_DTYPE:
        same = all(column.restore == chosen.restore and column.arrow == type_ for column in columns)
        return Column(name, kind, ARROW_DTYPE, arrow=type_, tz=_tz(type_), restore=chosen.restore if same else None)
    text = chosen.pandas if chosen is not None and kind != "decimal" else "object"
    if kind in ("bool", "int", "float") and not all(objects):
        text = masked_name(np.dtype(type_.to_pandas_dtype()))
    return Column(name, kind, text, arrow=type_, tz=_tz(type_))


def may_not_fit(source: Column, target: Column) -> bool:
    """Whether a value of a column may have no place in the one that it was promoted to, so that all need a look.

    Ints meet floats, int64 meets uint64, and times meet finer ones: most values fit, and few do not.
    """
    if source == target:
        return False
    if source.kind == "int":
        return _int_may_not_fit(_numpy_type(source), target)
    if source.kind in ("datetime", "timedelta"):
        return source.unit != target.unit
    return source.kind in ("list", "struct", "map") and source.arrow != target.arrow


def _int_may_not_fit(source: np.dtype[Any], target: Column) -> bool:
    if target.kind not in ("int", "float"):
        return False
    wide = _numpy_type(target)
    if wide.kind == "f":
        return 8 * source.itemsize > np.finfo(wide).nmant + 1
    return not np.can_cast(source, wide)


def _numpy_type(column: Column) -> np.dtype[Any]:
    return np.dtype(column.arrow.to_pandas_dtype()) if column.dtype is None else column.dtype


def fixed_column(name: Any, type_: Any) -> Column:
    """The fixed column for values of an Arrow type (bool, int, float, timestamp or duration)."""
    if isinstance(type_, pa.TimestampType):
        return _of_times(name, type_)
    return _unnamed(type_).named(name)


@lru_cache(maxsize=64)
def _unnamed(type_: Any) -> Column:
    kind = kind_of(type_) or ""
    dtype = np.dtype(f"m8[{type_.unit}]") if kind == "timedelta" else np.dtype(type_.to_pandas_dtype())
    return Column("", kind, str(dtype), dtype=dtype)


def _of_times(name: Any, type_: Any) -> Column:
    tz = _tz(type_)
    if tz and not _is_time_zone(tz):
        raise UnsupportedDtype(
            f"column {name!r} holds times of the time zone {tz!r}, which is not known here",
            advice="Write it in a zone of the IANA database, such as UTC; PyPI's tzdata has them all.",
            column=name,
        )
    text = f"datetime64[{type_.unit}, {tz}]" if tz else f"datetime64[{type_.unit}]"
    return Column(name, "datetime", text, dtype=np.dtype(f"M8[{type_.unit}]"), tz=tz)


def masked_name(dtype: np.dtype[Any]) -> str:
    """The nullable pandas dtype for a numpy one, for example ``Int64``."""
    if dtype.kind == "b":
        return "boolean"
    if dtype.kind == "f":
        return "Float64" if dtype.itemsize == 8 else "Float32"
    return ("UInt" if dtype.kind == "u" else "Int") + str(8 * dtype.itemsize)


@cache
def _is_time_zone(tz: str) -> bool:
    try:
        pa.lib.string_to_tzinfo(tz)
    except (pa.ArrowException, ValueError, KeyError):
        return False
    return True


def _tz(type_: Any) -> str:
    return (type_.tz or "") if pa.types.is_timestamp(type_) else ""


def _merge_complex(columns: Sequence[Column]) -> Column:
    if any(column.dtype is None or column.dtype.kind not in "fc" for column in columns):
        raise TypeClash
    dtype = reduce(np.promote_types, [column.dtype for column in columns if column.dtype is not None])
    return Column(columns[0].name, "complex", str(dtype), dtype=dtype)


def _merge_categories(columns: Sequence[Column]) -> Column:
    if len({column.ordered for column in columns}) > 1:
        raise TypeClash
    first = next((column for column in columns if len(column.labels)), columns[0])
    type_ = reduce(merge_types, [column.labels.type for column in columns if len(column.labels)], first.labels.type)
    text = first.label_pandas if type_ == first.labels.type else _label_text(type_)
    parts = [column.labels.cast(type_) for column in columns if len(column.labels)] or [first.labels]
    labels = _ordered_union(parts) if first.ordered else pc.unique(pa.concat_arrays(parts))
    return Column(
        first.name, "category", "category", dtype=code_dtype(len(labels)), labels=labels, label_pandas=text,
        ordered=first.ordered,
    )  # fmt: skip


def _label_text(type_: Any) -> str:
    return fixed_column("", type_).pandas if kind_of(type_) in ("int", "float", "datetime", "timedelta") else "object"


def _ordered_union(parts: Sequence[Any]) -> Any:
    """The longest labels, of which all others must be a part in the same order: no order is made up."""
    longest = max(parts, key=len)
    for labels in parts:
        places = pc.index_in(labels, value_set=longest)
        steps = np.diff(places.to_numpy(zero_copy_only=False))
        if places.null_count or (steps <= 0).any():
            raise TypeClash
    return longest


def _mismatch(columns: Sequence[Column], rows: Sequence[int]) -> SchemaMismatch:
    ranks: dict[str, list[int]] = {}
    for rank, column in enumerate(columns):
        if column.kind != "null" and (rows[rank] or not any(rows)):
            ranks.setdefault(column.describe(), []).append(rank)
    held = "; ".join(f"{text} on rank{'s' if len(r) > 1 else ''} {_few(r)}" for text, r in ranks.items())
    name = columns[0].name
    return SchemaMismatch(
        f"column {name!r} cannot be brought to one dtype: {held}",
        advice=f"Convert it before with frame[{name!r}].astype(...), so that all ranks hold one dtype.",
        column=name,
        dtypes={text: r[:16] for text, r in ranks.items()},
    )


def _few(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def agree_schemas(schemas: Sequence[Schema], rows: Sequence[int] | None = None) -> Schema:
    """Bring the schemas of all ranks to one.

    Parameters
    ----------
    schemas : sequence of Schema, shape (ranks,)
        What each rank holds.
    rows : sequence of int, shape (ranks,), optional
        How many rows each rank holds. A rank without rows gives way where its dtype is of another kind. Without
        it every rank counts as holding rows.

    Returns
    -------
    Schema
        Rank 0's column order, with dtypes that hold every rank's values exactly; labels of categories are the
        union in rank order.

    Raises
    ------
    ColumnMissing
        If the ranks hold different columns, naming a rank and a column.
    SchemaMismatch
        If dtypes cannot be brought together, naming the column, the dtypes and the ranks.
    """
    first = schemas[0]
    if all(schema == first for schema in schemas[1:]):
        return first
    _require_same_columns(schemas)
    counts = list(rows) if rows is not None else [1] * len(schemas)
    return Schema([promote([schema[name] for schema in schemas], counts) for name in first.names])


def _require_same_columns(schemas: Sequence[Schema]) -> None:
    every = dict.fromkeys(name for schema in schemas for name in schema.names)
    # Rank 0's columns first: where one rank differs, it is the one that is named.
    for name in every:
        for rank, schema in enumerate(schemas):
            if name not in schema:
                holder = next(r for r, s in enumerate(schemas) if name in s)
                raise ColumnMissing(
                    f"rank {rank} has no column {name!r}, which rank {holder} has; rank {rank} holds "
                    f"{listed_labels(schema.names, name)}",
                    advice="Give every rank the same columns; a rank without rows needs them too.",
                    rank=rank,
                    column=name,
                )
