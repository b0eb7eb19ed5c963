"""What is known of one column: a value, equal on every rank once agreed."""

from __future__ import annotations

import base64
import difflib
import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import UnsupportedDtype
from .arrow_types import kind_of

Label = str | int

# Kinds whose rows are one item of a numpy array each. The others are held as Arrow arrays, and so are columns of
# kind bool, int, float, datetime and timedelta whose nulls have no place in the numpy type.
FIXED_KINDS = ("bool", "int", "float", "complex", "datetime", "timedelta", "period", "category")
VARIABLE_KINDS = ("null", "str", "bytes", "decimal", "date", "time", "list", "struct", "map")

# What stands in `Column.pandas` for columns whose dtype is an ArrowDtype; the type itself is in `restore`.
ARROW_DTYPE = "ArrowDtype"
_LABELS_AT_ONCE = 8192

_MOST_LISTED = 20
# Letters of other alphabets that look like those of the Latin one.
_LOOKS_LIKE = str.maketrans("аеорсухіјѕԁһԛԝοικνρτυχ", "aeopcyxijsdhqwoikvptux")


def shown_label(name: Label) -> str:
    """A label as it stands outside quotes: what is not seen, or turns around what follows, is escaped."""
    text = str(name)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown_labels(names: Iterable[Label]) -> str:
    """Labels outside quotes, with commas between them."""
    return ", ".join(map(shown_label, names))


def listed_labels(names: Iterable[object], near: object = None) -> str:
    """Labels in the words of an error: all, or the nearest to one where they are many.

    Parameters
    ----------
    names : iterable of labels
    near : label, optional
        What was asked for; without it the first ones are listed.

    Returns
    -------
    str
    """
    known = list(names)
    if len(known) <= _MOST_LISTED:
        return ", ".join(map(repr, known))
    first = known
    if near is not None:
        by_text = {str(name): name for name in known}
        close = [by_text[text] for text in difflib.get_close_matches(str(near), by_text, _MOST_LISTED, 0.5)]
        first = list(dict.fromkeys([*(n for n in known if _looks(n) == _looks(near)), *close, *known[:_MOST_LISTED]]))
    which = "first" if near is None else "nearest"
    return f"{', '.join(map(repr, first[:_MOST_LISTED]))} (the {_MOST_LISTED} {which} of {len(known):,})"


def instead_of(name: Label, names: Iterable[Label], whose: str = "The") -> str:
    """What an error advises where a label is none of some: those there are, and which of them only looks like it.

    Parameters
    ----------
    name : label
    names : iterable of labels
    whose : str
        Whose they are, such as "Its".

    Returns
    -------
    str
        Sentences.
    """
    known = list(names)
    text = f"{whose} columns are {listed_labels(known, name)}."
    alike = next((one for one in known if one != name and _looks(one) == _looks(name)), None)
    if alike is None:
        return text
    return f"{text} {alike!a} looks like it, but differs from {name!a} in {_difference(str(name), str(alike))}."


def _looks(name: object) -> str:
    """The same text for labels that a person takes for one."""
    text = unicodedata.normalize("NFKC", str(name)).casefold().translate(_LOOKS_LIKE)
    return "".join(c for c in text if c.isprintable() and not c.isspace())


def _difference(a: str, b: str) -> str:
    if unicodedata.normalize("NFC", a) == unicodedata.normalize("NFC", b):
        return "how an accent is written (NFC or NFD)"
    if a.casefold() == b.casefold():
        return "upper and lower case"
    seen = ("".join(c for c in text if c.isprintable() and not c.isspace()).casefold() for text in (a, b))
    return "spaces, or what is not seen" if len(set(seen)) == 1 else "letters that look alike"


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Name, meaning and storage of a column.

    Attributes
    ----------
    name : str or int
        The label.
    kind : str
        What the values are: one of `FIXED_KINDS` or `VARIABLE_KINDS`.
    pandas : str
        The dtype that the user's frame has, as text; ``"ArrowDtype"`` where it is one.
    dtype : numpy dtype, optional
        Item type of a fixed column (codes where it is a category); None where the column is variable.
    arrow : pyarrow type, optional
        Storage of a variable column; None where it is fixed.
    tz : str
        Zone of aware datetimes, whose values are then in UTC; empty where naive.
    labels : pyarrow array, optional
        The category's labels, without nulls.
    label_pandas : str
        dtype of the labels in pandas, as text.
    ordered : bool
        Whether the category is ordered.
    restore : pyarrow type, optional
        The type of an ArrowDtype where it differs from the storage.
    """

    name: Label
    kind: str
    pandas: str
    dtype: np.dtype[Any] | None = None
    arrow: Any = None
    tz: str = ""
    labels: Any = None
    label_pandas: str = ""
    ordered: bool = False
    restore: Any = None

    @property
    def fixed(self) -> bool:
        """Whether the column is held as one contiguous numpy array."""
        return self.dtype is not None

    @property
    def unit(self) -> str:
        """Unit of a datetime or timedelta column, for example ``"ns"``; empty for other kinds."""
        if self.kind not in ("datetime", "timedelta"):
            return ""
        if self.dtype is not None:
            return str(np.datetime_data(self.dtype)[0])
        return str(self.arrow.unit)

    def describe(self) -> str:
        """Name the dtype as a person would."""
        if self.kind == "category":
            text = f"category of {self.label_pandas} ({len(self.labels)} labels)"
            if self.ordered:
                shown = " < ".join(map(str, self.labels.slice(0, 4).to_pylist()))
                text = f"ordered {text[:-1]}: {shown}{' < ...' if len(self.labels) > 4 else ''})"
            return text
        if self.kind == "null":
            return f"{self.pandas} without values"
        if self.pandas == ARROW_DTYPE:
            return f"{self.restore or self.arrow}[pyarrow]"
        if self.pandas == "object":
            return f"object of {self.arrow if self.kind in ('list', 'struct', 'map', 'decimal') else self.kind}"
        return self.pandas

    def named(self, name: Label) -> Column:
        """The same under another name: `replace` takes several times as long, and there may be thousands."""
        return Column(
            name, self.kind, self.pandas, self.dtype, self.arrow, self.tz, self.labels, self.label_pandas, self.ordered,
            self.restore,
        )  # fmt: skip

    @property
    def form(self) -> tuple[Any, ...]:
        """All but its name and labels."""
        return (
            self.kind, self.pandas, self.dtype, self.arrow, self.tz, self.label_pandas, self.ordered, self.restore,
        )  # fmt: skip

    def _key(self) -> tuple[Any, ...]:
        return (
            self.name, type(self.name), self.kind, self.pandas, self.dtype, self.arrow, self.tz,
            self.label_pandas, self.ordered, self.restore,
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Column):
            return NotImplemented
        if self._key() != other._key():
            return False
        return self.labels is other.labels or (self.labels is not None and bool(self.labels.equals(other.labels)))

    def __hash__(self) -> int:
        return hash((self.name, self.kind, self.pandas))


def code_dtype(labels: int) -> np.dtype[Any]:
    """The smallest signed integer type that holds so many labels and -1 for a null."""
    return np.dtype(np.int8 if labels <= 2**7 else np.int16 if labels <= 2**15 else np.int32)


def to_plain(column: Column, labels_text: Callable[[Any], str] | None = None) -> dict[str, Any]:
    """Describe a column in JSON values, the same for equal columns; its labels by a text of their own."""
    plain: dict[str, Any] = {"name": column.name, "kind": column.kind, "pandas": column.pandas}
    if column.dtype is not None:
        plain["dtype"] = column.dtype.str
    if column.arrow is not None:
        plain["arrow"] = _type_text(column.arrow)
    if column.tz:
        plain["tz"] = column.tz
    if column.labels is not None:
        text = (labels_text or _array_text)(column.labels)
        plain |= {"labels": text, "label_pandas": column.label_pandas, "ordered": column.ordered}
    if column.restore is not None:
        plain["restore"] = _type_text(column.restore)
    return plain


def from_plain(plain: Mapping[str, Any]) -> Column:
    """Rebuild the column that `to_plain` described."""
    return Column(
        name=plain["name"],
        kind=plain["kind"],
        pandas=plain["pandas"],
        dtype=np.dtype(plain["dtype"]) if "dtype" in plain else None,
        arrow=_text_type(plain["arrow"]) if "arrow" in plain else None,
        tz=plain.get("tz", ""),
        labels=_text_array(plain["labels"]) if "labels" in plain else None,
        label_pandas=plain.get("label_pandas", ""),
        ordered=plain.get("ordered", False),
        restore=_text_type(plain["restore"]) if "restore" in plain else None,
    )


def _type_text(type_: Any) -> str:
    return base64.b64encode(pa.schema([pa.field("", type_)]).serialize()).decode()


def _text_type(text: str) -> Any:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field(0).type


def _array_text(array: Any) -> str:
    # A plain take gives buffers that do not depend on the array's offset, so equal labels give equal text.
    plain = array.take(pa.array(np.arange(len(array))))
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([plain], names=[""])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def labels_digest(labels: Any) -> str:
    """A text that is the same for equal labels, made of a few at a time: all of them as text take many times their
    size."""
    made = hashlib.blake2b(_type_text(labels.type).encode(), digest_size=16)
    for start in range(0, len(labels), _LABELS_AT_ONCE):
        made.update(_array_text(labels.slice(start, _LABELS_AT_ONCE)).encode())
    return made.hexdigest()


def _text_array(text: str) -> Any:
    table = pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text))).read_all()
    return table.column(0).combine_chunks()


def require_hashable(column: Column) -> Column:
    """The column, which can be a key.

    Raises
    ------
    UnsupportedDtype
        If it cannot, naming it.
    """
    kind = column.kind if column.labels is None else kind_of(column.labels.type)
    if kind in ("complex", "list", "struct", "map"):
        raise UnsupportedDtype(
            f"column {column.name!r} ({column.describe()}) cannot be a key",
            advice="Key on another column; this one can travel as payload.",
            column=column.name,
        )
    return column


def missing_in_tensor(column: Column, count: int) -> UnsupportedDtype:
    """The error for a column of numbers of which some are missing, where only numbers can stand."""
    return UnsupportedDtype(
        f"column {column.name!r} ({column.describe()}) has {count:,} missing values here, which no tensor holds",
        advice=f"Fill them before, as t.fillna({{{column.name!r}: 0}}), or leave them out, as "
        f"t.dropna({[column.name]!r}).",
        column=column.name,
    )
