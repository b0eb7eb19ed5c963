"""The form in which two keys are compared, so that equal values are equal whatever their dtypes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import SchemaMismatch
from .arrow_types import TypeClash, kind_of, merge_types
from .promotion import fixed_column, value_type
from .schema import Column, require_hashable

_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True, slots=True)
class KeyForm:
    """How a pair of keys is compared.

    Attributes
    ----------
    kind : str
        ``int``: as int64; ``uint``: as uint64, negative ones match nothing; ``float``: as float64, where -0.0 is
        0.0; ``ticks``: as int64 of a unit; ``str``, ``bytes``, ``decimal``: as values of an Arrow type; ``null``:
        there are no values. Floats compare as ints with ints, and match nothing if they are not whole.
    unit : str
        Of ticks.
    arrow : pyarrow type, optional
        Of values.
    partial : bool
        Whether one side may hold values that none of the other side equals, whatever they are.
    """

    kind: str
    unit: str = ""
    arrow: Any = None
    partial: bool = False


def key_form(left: Column, right: Column) -> KeyForm:
    """The form that holds the keys of both sides.

    Raises
    ------
    SchemaMismatch
        If they cannot be compared.
    UnsupportedDtype
        If one cannot be hashed.
    """
    a, b = (labels_column(require_hashable(c)) if c.kind == "category" else require_hashable(c) for c in (left, right))
    if a.kind == "null":
        a = b
    elif b.kind == "null":
        b = a
    form = _form(a, b)
    if form is None:
        raise SchemaMismatch(
            f"Key {left.name!r} of the left side ({left.describe()}) and key {right.name!r} of the right side "
            f"({right.describe()}) cannot be compared.",
            advice="Convert one of them before, for example with astype.",
            column=left.name,
            other=right.name,
        )
    return form


def _form(a: Column, b: Column) -> KeyForm | None:
    kinds = {a.kind, b.kind}
    if kinds == {"float"}:
        return KeyForm("float")
    if kinds <= {"bool", "int", "float"}:
        unsigned = [c.kind == "int" and value_type(c).equals(pa.uint64()) for c in (a, b)]
        partial = "float" in kinds or any(unsigned) != all(unsigned)
        return KeyForm("uint" if any(unsigned) else "int", partial=partial)
    if kinds <= {"int", "decimal"}:
        return _decimal_form(a, b)
    if len(kinds) > 1:
        return None
    kind = a.kind
    if kind in ("datetime", "timedelta", "time"):
        if bool(a.tz) != bool(b.tz):
            return None
        units = [c.unit or c.arrow.unit for c in (a, b)]
        return KeyForm("ticks", max(units, key=_UNITS.index), partial=units[0] != units[1])
    if kind == "date":
        return KeyForm("ticks", "D")
    if kind == "period":
        return KeyForm("ticks", a.pandas) if a.pandas == b.pandas else None
    if kind in ("str", "bytes"):
        return KeyForm(kind, arrow=a.arrow)
    return KeyForm("null") if kind == "null" else None


def _decimal_form(a: Column, b: Column) -> KeyForm | None:
    try:
        return KeyForm("decimal", arrow=merge_types(value_type(a), value_type(b)))
    except TypeClash:
        return None


def labels_column(column: Column) -> Column:
    """The column that a category becomes where its values stand for themselves."""
    type_ = column.labels.type
    kind = kind_of(type_) or ""
    if kind in ("int", "float", "datetime", "timedelta"):
        return fixed_column(column.name, type_)
    text = column.label_pandas if kind == "str" else "object"
    return Column(column.name, kind, text, arrow=type_)


def same_category(a: Column, b: Column) -> bool:
    """Whether two columns are categories of one dtype, as pandas says it: the order of labels counts where ordered."""
    if a.kind != "category" or b.kind != "category" or a.ordered != b.ordered or a.labels.type != b.labels.type:
        return False
    if a.ordered or a.labels.equals(b.labels):
        return bool(a.labels.equals(b.labels))
    # Labels are distinct. A set of them as Python objects would take a hundred bytes for each.
    return len(a.labels) == len(b.labels) and bool(pc.all(pc.is_in(a.labels, value_set=b.labels)).as_py())
