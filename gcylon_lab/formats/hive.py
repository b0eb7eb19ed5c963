"""Columns that stand in the names of folders, ``key=value``: read from files found there, and named when writing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from ..backends.arrow.tables import from_arrow
from ..backends.expressions.unlike_values import kind_of_value
from ..backends.protocol.expressions import Expression
from ..backends.protocol.schema import _text_type, _type_text, listed_labels
from ..errors import ReadError
from .read_plans import FoundFile

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
TYPES_KEY = b"gcylon_lab.folders"  # in a file's metadata: the types of the columns that its folders name
_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_HOLDS: dict[str, Callable[[Any, list[Any]], bool]] = {
    "eq": lambda number, given: bool(number == given[0]),
    "ne": lambda number, given: bool(number == given[0]),  # and then not
    "lt": lambda number, given: bool(number < given[0]),
    "le": lambda number, given: bool(number <= given[0]),
    "gt": lambda number, given: bool(number > given[0]),
    "ge": lambda number, given: bool(number >= given[0]),
    "between": lambda number, given: bool(given[0] <= number <= given[1]),
    "isin": lambda number, given: number in given,
}


def _is_column(of: Any) -> bool:
    return isinstance(of, Expression) and of.operation == "col"


def _plain(value: Any) -> Any:
    return value.arguments[0] if isinstance(value, Expression) and value.operation == "lit" else value


@dataclass(frozen=True, slots=True)
class FolderColumns:
    """The columns that folders name.

    Attributes
    ----------
    types : dict
        The Arrow type of each, in order.
    dtypes : dict
        Their dtypes as text, where the Arrow type does not tell.
    values : dict
        Of each file: a value for each column, None where it is missing.
    """

    types: Mapping[str, Any]
    dtypes: Mapping[str, str]
    values: Mapping[str, tuple[Any, ...]]

    def array(self, path: str, name: str, rows: int) -> Any:
        """The column of so many rows of a file."""
        value = self.values[path][list(self.types).index(name)]
        return pa.repeat(pa.scalar(value, self.types[name]), rows)

    def value(self, path: str, name: str) -> Any:
        """The value of all rows of a file."""
        return self.values[path][list(self.types).index(name)]

    def by_number(self, condition: Any) -> Any:
        """A condition in which folders named by numbers with zeros in front, as in ``month=01``, are compared as such.

        They are text, which no number equals; a comparison with numbers becomes one with the texts that it holds of.
        """
        if not isinstance(condition, Expression):
            return condition
        made = Expression(condition.operation, *map(self.by_number, condition.arguments))
        operation, arguments = condition.operation, condition.arguments
        if operation in _FLIPPED and _is_column(arguments[1]):
            operation, arguments = _FLIPPED[operation], arguments[::-1]
        if operation not in _HOLDS or not _is_column(arguments[0]):
            return made
        texts = self._numbers(arguments[0].arguments[0])
        given = arguments[1] if operation == "isin" else [_plain(value) for value in arguments[1:]]
        if not texts or not all(kind_of_value(value) == "number" for value in given):
            return made
        found = arguments[0].isin([text for text, number in texts.items() if _HOLDS[operation](number, given)])
        return ~found if operation == "ne" else found

    def _numbers(self, name: Any) -> dict[str, int | float]:
        """The texts of a column, and the numbers that they are; empty where not all are."""
        if name not in self.types or not pa.types.is_large_string(self.types[name]):
            return {}
        place = list(self.types).index(name)
        texts = {values[place] for values in self.values.values()} - {None}
        if not all(_NUMBER.fullmatch(text) for text in texts):
            return {}
        return {text: float(text) if "." in text else int(text) for text in sorted(texts)}

    def only(self, paths: set[str]) -> FolderColumns:
        """The same, of some files alone."""
        return FolderColumns(self.types, self.dtypes, {p: v for p, v in self.values.items() if p in paths})


def folder_columns(files: Sequence[FoundFile], schema: Any) -> FolderColumns:
    """Columns named by the folders below the one that was asked for, and not in the files.

    Parameters
    ----------
    files : sequence of FoundFile
    schema : pyarrow.Schema
        Of the first file.

    Raises
    ------
    ReadError
        If the folders of two files name other columns.
    """
    texts = [_texts(file) for file in files]
    names = [name for name in texts[0] if name not in schema.names]
    for file, text in zip(files, texts, strict=True):
        different = set(text) ^ set(texts[0])
        if different:
            raise ReadError(
                f"the folders of {file.path} name the columns {listed_labels(text)}, those of {files[0].path} "
                f"{listed_labels(texts[0])}",
                advice="Read those with the same columns apart, or move the others away.",
                path=file.path,
            )
    known = _known_types(schema)
    arrays = {name: _array(name, [text[name] for text in texts], known) for name in names}
    texts_of = {name: text for name, (_, text) in known.items()}
    dtypes = {c.name: c.pandas for c in from_arrow(pa.table(arrays), texts_of).schema} if arrays else {}
    columns = [array.to_pylist() for array in arrays.values()]
    values = {file.path: tuple(column[at] for column in columns) for at, file in enumerate(files)}
    return FolderColumns(
        {name: array.type for name, array in arrays.items()}, {str(n): text for n, text in dtypes.items()}, values
    )


def _texts(file: FoundFile) -> dict[str, str | None]:
    pairs = [folder.split("=", 1) for folder in file.folders if "=" in folder[1:]]
    return {unquote(name): None if text == NO_VALUE else unquote(text) for name, text in pairs}


def _array(name: str, texts: list[str | None], known: Mapping[str, tuple[Any, str]]) -> Any:
    plain = pa.array(texts, pa.string())
    type_ = known[name][0] if name in known else _type_of([text for text in texts if text is not None])
    try:
        return plain.cast(type_)
    except pa.ArrowException:
        return plain.cast(pa.large_string())


def _type_of(texts: list[str]) -> Any:
    """Ints, truth, days; all else is text."""
    if texts and all(_INT.fullmatch(text) for text in texts):
        return pa.int64()
    if texts and all(text in ("true", "false", "True", "False") for text in texts):
        return pa.bool_()
    if texts and all(_DAY.fullmatch(text) for text in texts):
        return pa.timestamp("us")
    return pa.large_string()


def types_metadata(schema: Any, dtypes: Sequence[str]) -> bytes:
    """What a file says of the columns that its folders name: their Arrow types, and what pandas calls them."""
    pairs = zip(schema, dtypes, strict=True)
    return "\n".join(f"{quote(f.name)} {_type_text(f.type)} {quote(text)}" for f, text in pairs).encode()


def _known_types(schema: Any) -> dict[str, tuple[Any, str]]:
    text = (schema.metadata or {}).get(TYPES_KEY, b"").decode()
    lines = [line.split(" ") for line in text.splitlines()]
    return {unquote(name): (_text_type(type_), unquote(dtype)) for name, type_, dtype in lines}


def folder_of(names: Sequence[str], texts: Sequence[str | None]) -> str:
    """The folders of rows that have these values, as text."""
    return "/".join(
        f"{_readable(quote(name, safe=' '))}={NO_VALUE if text is None else _present(quote(text, safe=' :'))}"
        for name, text in zip(names, texts, strict=True)
    )


def _readable(name: str) -> str:
    """A folder's name that does not begin as those do which readers pass over."""
    return f"%{ord(name[0]):02X}{name[1:]}" if name[:1] in (".", "_") else name


def _present(text: str) -> str:
    """A value's text, other than what stands for a missing one."""
    return f"%{ord(text[0]):02X}{text[1:]}" if text == NO_VALUE else text
