"""The columns of a table. Pure: values in, values out."""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import ColumnMissing, DuplicateColumns, UnsupportedDtype
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


MANY_COLUMNS = 64  # columns: what is done for each by itself takes longer than what is done with its rows
_KEPT_SELECTIONS = 8  # of a schema's columns: the same few are asked for of every piece


@dataclass(frozen=True, slots=True)
class Block:
    """Fixed columns of one width, which can be planes of one array of shape (columns, rows).

    Attributes
    ----------
    items : numpy dtype
        Of the array: as wide as the columns' own.
    places : tuple of int
        Of the columns in the schema.
    stretches : tuple of (int, int, numpy dtype)
        From which plane to which before another they are of one dtype, and that.
    """

    items: np.dtype[Any]
    places: tuple[int, ...]
    stretches: tuple[tuple[int, int, Any], ...]

    @property
    def row_bytes(self) -> int:
        """Of all planes."""
        return self.items.itemsize * len(self.places)


class Schema:
    """An ordered set of columns with distinct names. Never changed once made.

    Parameters
    ----------
    columns : sequence of Column

    Raises
    ------
    DuplicateColumns
        Naming the repeated label.
    """

    __slots__ = (
        "_bytes", "_digest", "_hash", "_index", "_packed", "_planes", "_selected", "blocks", "columns", "fixed",
        "names", "row_bytes", "texts", "variable",
    )  # fmt: skip

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._index = {column.name: place for place, column in enumerate(self.columns)}
        self.names: tuple[Label, ...] = tuple([column.name for column in self.columns])
        self._bytes: bytes | None = None
        self._digest: int | None = None
        self._hash: int | None = None
        self._packed: dict[Label, int] | None = None
        self._planes: tuple[tuple[int, int], ...] | None = None
        self._selected: dict[tuple[Label, ...], Schema] = {}
        # Asked for in every round: the columns held as numpy arrays, as Arrow arrays, and bytes of a row of the former.
        self.fixed = tuple(column for column in self.columns if column.fixed)
        self.variable = tuple(column for column in self.columns if not column.fixed)
        # The places of columns whose characters kernels write.
        self.texts = tuple([at for at, c in enumerate(self.columns) if c.kind == "str" and not c.fixed])
        self.row_bytes = sum(column.dtype.itemsize for column in self.columns if column.dtype is not None)
        self.blocks: tuple[Block, ...] = _blocks(self.columns) if len(self.fixed) >= MANY_COLUMNS else ()
        if len(self._index) != len(self.columns):
            require_distinct([column.name for column in self.columns])

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def place(self, name: Label) -> int:
        """Position of a column.

        Raises
        ------
        ColumnMissing
            If there is none of this name.
        """
        found = self._index.get(name)
        if found is None:
            raise ColumnMissing(
                f"there is no column {name!r}",
                advice=instead_of(name, self.names),
                column=name,
            )
        return found

    def __getitem__(self, name: Label) -> Column:
        return self.columns[self.place(name)]

    def select(self, names: Sequence[Label]) -> Schema:
        """Only these columns, in this order."""
        chosen = tuple(names)
        if self.names == chosen:
            return self
        found = self._selected.get(chosen)
        if found is None:
            if len(self._selected) >= _KEPT_SELECTIONS:
                self._selected = {}  # anew: another thread may be looking
            found = self._selected[chosen] = Schema([self[name] for name in chosen])
        return found

    def plane(self, place: int) -> tuple[int, int]:
        """In which of the blocks a fixed column is, and which of its planes it is."""
        if self._planes is None:
            found = {at: (number, i) for number, block in enumerate(self.blocks) for i, at in enumerate(block.places)}
            self._planes = tuple([found.get(at, (-1, -1)) for at in range(len(self.columns))])
        return self._planes[place]

    def packed_before(self, name: Label) -> int:
        """Bytes of a row that come before a fixed column where all are packed one after the other, block by block where
        there are blocks."""
        if self._packed is None:
            columns = [self.columns[at] for block in self.blocks for at in block.places] or self.fixed
            before, self._packed = 0, {}
            for column in columns:
                self._packed[column.name] = before
                before += column.dtype.itemsize if column.dtype is not None else 0
        return self._packed[name]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Schema) or self.columns != other.columns:
            return False
        self.columns = other.columns  # the same objects: chunks of one table are compared in every round
        return True

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.columns)
        return self._hash

    def __repr__(self) -> str:
        return "Schema(" + ", ".join(f"{c.name!r}: {c.describe()}" for c in self.columns) + ")"

    def __reduce__(self) -> tuple[object, ...]:
        return (Schema.from_bytes, (self.to_bytes(),))

    def to_bytes(self) -> bytes:
        """The schema as bytes, the same for equal schemas."""
        if self._bytes is None:
            plain = [to_plain(column) for column in self.columns]
            self._bytes = json.dumps({"version": 1, "columns": plain}, separators=(",", ":")).encode()
        return self._bytes

    @staticmethod
    def from_bytes(data: bytes | memoryview) -> Schema:
        """Rebuild the schema that `to_bytes` wrote."""
        return Schema([from_plain(plain) for plain in json.loads(bytes(data))["columns"]])

    def digest(self) -> int:
        """A signed 64-bit number, equal where schemas are equal."""
        if self._digest is None:
            plain = json.dumps([to_plain(column, labels_digest) for column in self.columns], separators=(",", ":"))
            made = hashlib.blake2b(plain.encode(), digest_size=8).digest()
            self._digest = int.from_bytes(made, "little", signed=True)
        return self._digest


def plane_items(width: int) -> np.dtype[Any]:
    """What planes of columns of a width are made of."""
    return np.dtype(f"{'u' if width <= 8 else 'V'}{width}")


def _blocks(columns: Sequence[Column]) -> tuple[Block, ...]:
    """The fixed columns by width, in the order in which widths are met."""
    places: dict[int, list[int]] = {}
    for place, column in enumerate(columns):
        if column.dtype is not None:
            places.setdefault(column.dtype.itemsize, []).append(place)
    return tuple(
        Block(plane_items(width), tuple(found), _stretches([columns[p] for p in found]))
        for width, found in places.items()
    )


def _stretches(fixed: Sequence[Column]) -> tuple[tuple[int, int, Any], ...]:
    starts = [i for i, column in enumerate(fixed) if i == 0 or column.dtype != fixed[i - 1].dtype]
    stops = [*starts[1:], len(fixed)]
    return tuple((start, stop, fixed[start].dtype) for start, stop in zip(starts, stops, strict=True))


def require_distinct(names: Sequence[object]) -> None:
    """Refuse labels that name several columns.

    Raises
    ------
    DuplicateColumns
        Naming the repeated label.
    """
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise DuplicateColumns(
                f"the label {name!r} names {list(names).count(name)} columns of {listed_labels(names, name)}",
                advice="Give each column a name of its own.",
                column=str(name),
            )
        seen.add(name)
