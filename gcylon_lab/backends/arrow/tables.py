"""Arrow tables to columns and back, with the dtypes that pandas gives when it reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import UnsupportedDtype
from ..protocol.arrow_types import TypeClash, as_type, held_type, kind_of
from ..protocol.data import Array, Columns, copied_together, one_array, over_planes
from ..protocol.promotion import fixed_column, masked_name, value_type
from ..protocol.schema import ARROW_DTYPE, MANY_COLUMNS, Column, Schema, code_dtype, require_distinct
from .casting import as_arrow, as_fixed, as_view

EXACT_IN_FLOAT = 2**53
_NUMBERS = ("bool", "int", "float")


def from_arrow(
    table: Any, dtypes: Mapping[str, str] | None = None, *, nullable: bool = False, share: bool = False
) -> Columns:
    """Columns of an Arrow table or record batch; fixed columns are copied, the others share its memory.

    Parameters
    ----------
    table : pyarrow.Table or RecordBatch
    dtypes : mapping of column name to text, optional
        Where pandas knows better than the Arrow type: a nullable dtype such as ``"Int64"``, a string dtype, any
        text ending in ``[pyarrow]`` for an ArrowDtype, ``"float64"`` for ints, ``"object"`` for bools.
    nullable : bool, default False
        Whether ints and bools with nulls become nullable dtypes. Otherwise they become what pandas makes of
        them, float64 and object, except ints that float64 cannot hold.
    share : bool, default False
        Whether fixed columns are views of its memory, read-only, where that holds them as numpy does: in one chunk,
        aligned, without nulls, and no bools.

    Raises
    ------
    UnsupportedDtype
        Naming the column and its Arrow type.
    """
    names = list(table.schema.names)
    require_distinct(names)
    many = len(names) >= MANY_COLUMNS and not share
    alike = plane_schema(table.schema, dtypes) if many else None
    if alike is not None and not any([column.null_count for column in table.columns]):
        return _in_planes(alike, table)
    pairs = (
        _column(name, _chunked(table.column(place)), (dtypes or {}).get(name, ""), nullable, share or many)
        for place, name in enumerate(names)
    )
    if many:
        return copied_together(pairs, table.num_rows, len(names))
    held = list(pairs)
    return Columns(Schema([c for c, _ in held]), table.num_rows, tuple([array for _, array in held]))


def plane_schema(schema: Any, dtypes: Mapping[str, str] | None = None) -> Schema | None:
    """The schema of many columns of one width that numpy holds as Arrow does where none is missing; None of others."""
    return _plane_schema(schema, tuple((dtypes or {}).items()))


@lru_cache(maxsize=16)  # to make it anew of each piece would take longer than to copy the rows
def _plane_schema(schema: Any, dtypes: tuple[tuple[str, str], ...]) -> Schema | None:
    if len(schema) < MANY_COLUMNS or any(pa.types.is_dictionary(type_) for type_ in schema.types):
        return None
    texts = dict(dtypes)
    made = Schema(
        [_column(field.name, pa.chunked_array([], field.type), texts.get(field.name, ""), False)[0] for field in schema]
    )
    alike = all(
        column.fixed and column.kind != "bool" and value_type(column) == type_
        for column, type_ in zip(made, schema.types, strict=True)
    )
    return made if alike and len(made.blocks) == 1 else None


def _in_planes(schema: Schema, table: Any) -> Columns:
    """Columns of a `plane_schema`, none of whose values is missing."""
    planes = empty_planes(schema, table.num_rows)
    items = planes.dtype
    for column, plane in zip(table.columns, planes, strict=True):
        at = 0
        for chunk in _chunked(column).chunks:
            if len(chunk):
                memory = np.frombuffer(chunk.buffers()[1], items, len(chunk), chunk.offset * items.itemsize)
                plane[at : at + len(chunk)] = memory
                at += len(chunk)
    return over_planes(schema, table.num_rows, [planes])


def empty_planes(schema: Schema, rows: int) -> Array:
    """Room for the columns of a `plane_schema`; of Arrow's memory, which is used again, where numpy's is new."""
    items = schema.blocks[0].items
    memory = pa.allocate_buffer(len(schema) * rows * items.itemsize)
    return np.frombuffer(memory, items).reshape(len(schema), rows)


def _chunked(values: Any) -> Any:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _column(name: str, chunked: Any, text: str, nullable: bool, share: bool = False) -> tuple[Column, Array]:
    if isinstance(chunked.type, pa.BaseExtensionType):
        chunked = pa.chunked_array([c.storage for c in chunked.chunks], type=chunked.type.storage_type)
    given = chunked.type
    if pa.types.is_dictionary(given):
        if not is_arrow_dtype(text):
            return _category(name, chunked)
        chunked = chunked.cast(given.value_type)
    try:
        held = as_type(chunked, held_type(chunked.type))
    except TypeClash:
        raise UnsupportedDtype(
            f"column {name!r} has Arrow type {chunked.type}, which cannot be distributed",
            advice="Leave it out with columns=[...], or convert it in the file.",
            column=name,
        ) from None
    column = held_column(name, given, held.type, text, held.null_count, lambda: exact_in_float(held), nullable)
    if not column.fixed:
        return column, held
    if column.kind == "float" and pa.types.is_integer(held.type):
        return column, as_fixed(column, held.cast(pa.float64()))
    return column, _fixed(column, held, share)


def is_arrow_dtype(text: str) -> bool:
    """Whether a dtype that pandas names is one of its ArrowDtypes."""
    return text.endswith("[pyarrow]") and not text.startswith("string[")


def held_column(
    name: str, given: Any, type_: Any, text: str, nulls: int, exact: Callable[[], bool], nullable: bool = False
) -> Column:
    """The column that values of an Arrow type make, with the dtype that pandas gives them when it reads them.

    Parameters
    ----------
    name : str
    given, type_ : pyarrow type
        As the values came, and as they are held; see `held_type`. No dictionary, but for an ArrowDtype.
    text : str
        What pandas knows better, as of `from_arrow`; or "".
    nulls : int
        How many of the values are null.
    exact : callable
        Whether float64 holds the values; asked of ints with nulls alone.
    nullable : bool, default False
        See `from_arrow`.
    """
    kind = kind_of(type_) or ""
    if is_arrow_dtype(text):
        tz = (type_.tz or "") if kind == "datetime" else ""
        restore = given if given != type_ else None
        return Column(name, kind, ARROW_DTYPE, arrow=type_, tz=tz, restore=restore)
    if kind in ("datetime", "timedelta"):
        return fixed_column(name, type_)
    if kind not in _NUMBERS:
        strings = text if text.startswith("string[") else "str"
        return Column(name, kind, strings if kind == "str" else "object", arrow=type_)
    masked = masked_name(np.dtype(type_.to_pandas_dtype()))
    if text in ("object", masked):
        return Column(name, kind, text, arrow=type_)
    if kind == "int" and (text == "float64" or (nulls and not nullable)):
        if text == "float64" or exact():
            return fixed_column(name, pa.float64())
        return Column(name, kind, masked, arrow=type_)
    if nulls and kind != "float":
        return Column(name, kind, masked if nullable or kind == "int" else "object", arrow=type_)
    return fixed_column(name, type_)


def _fixed(column: Column, held: Any, share: bool) -> Array:
    shared = as_view(column, held) if share else None
    return as_fixed(column, held) if shared is None else shared


def exact_in_float(ints: Any) -> bool:
    """Whether float64 holds all of some ints."""
    extremes = pc.min_max(ints).as_py()
    return extremes["min"] is None or (-EXACT_IN_FLOAT <= extremes["min"] and extremes["max"] <= EXACT_IN_FLOAT)


def _category(name: str, chunked: Any) -> tuple[Column, Array]:
    array = one_array(chunked.unify_dictionaries())
    if array.dictionary.null_count or len(array.dictionary.unique()) < len(array.dictionary):
        array = array.dictionary_decode().dictionary_encode()  # Arrow's may have them, categories of pandas have not
    label, labels = _column(name, pa.chunked_array([array.dictionary]), "", False)
    plain = as_arrow(label, labels) if label.fixed else one_array(labels)
    codes = pc.fill_null(array.indices.cast(pa.int64()), -1).to_numpy().astype(code_dtype(len(plain)))
    column = Column(
        name, "category", "category", dtype=codes.dtype, labels=plain, label_pandas=label.pandas,
        ordered=bool(chunked.type.ordered),
    )  # fmt: skip
    return column, codes


def owned_array(array: Any) -> Any:
    """A copy of an Arrow array, which keeps nothing of what it was a slice of."""
    if pa.types.is_dictionary(array.type):
        labels = pa.concat_arrays([array.dictionary])
        return pa.DictionaryArray.from_arrays(pa.concat_arrays([array.indices]), labels, ordered=array.type.ordered)
    return pa.concat_arrays([array])


def table_of(arrays: Sequence[Any], names: Sequence[str], rows: int) -> Any:
    """Arrays as an Arrow table, which keeps its rows without a column too."""
    if not arrays:
        return pa.Table.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.table(arrays, names=names)


def to_arrow(data: Columns) -> Any:
    """Columns as an Arrow table; labels become text, and NaN and NaT nulls, as when pandas writes them.

    Raises
    ------
    UnsupportedDtype
        If Arrow has no such type (complex, period).
    """
    whole = _whole_floats(data)
    arrays = [
        _plain(c, array, nan_is_null=place not in whole)
        for place, (c, array) in enumerate(zip(data.schema.columns, data.arrays, strict=True))
    ]
    return table_of(arrays, [str(name) for name in data.schema.names], data.rows)


def _whole_floats(data: Columns) -> set[int]:
    """Places of columns of floats without NaN, of planes: to look at each by itself takes longer than to look."""
    found: set[int] = set()
    for block, segments in zip(data.schema.blocks, data.planes or (), strict=False):
        first = 0
        for segment in segments if data.rows else ():
            stop = first + len(segment)
            for begin, end, dtype in block.stretches:
                low, high = max(begin, first), min(end, stop)
                if low < high and dtype.kind == "f":
                    least = segment[low - first : high - first].view(dtype).min(axis=1)
                    found.update([block.places[low + at] for at in np.flatnonzero(least == least).tolist()])
            first = stop
    return found


def _plain(column: Column, array: Array, *, nan_is_null: bool = True) -> Any:
    if column.fixed:
        return as_arrow(column, array, nan_is_null=nan_is_null)
    if column.pandas == ARROW_DTYPE and column.restore is not None:
        wanted = column.restore
        return array.dictionary_encode() if pa.types.is_dictionary(wanted) else as_type(array, wanted)
    return array
