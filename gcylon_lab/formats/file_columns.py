"""Whether several files hold the columns of one table, by what they say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ..backends.protocol.arrow_types import TypeClash, held_type, kind_of, merge_types
from ..backends.protocol.schema import instead_of, listed_labels
from ..errors import ReadError, SchemaMismatch
from .filesystems import reading


class FileSchema(Protocol):
    """What is known of a file before its rows are read."""

    @property
    def path(self) -> str:
        """Where it is."""
        ...

    @property
    def schema(self) -> Any:
        """Its Arrow schema."""
        ...

    @property
    def rows(self) -> int:
        """How many rows it has."""
        ...


def indexes_in_metadata(files: Sequence[FileSchema]) -> dict[str, dict[str, range]]:
    """Indexes with a name that pandas wrote as a range, of which only a file's metadata know: by path and name.

    They are columns, as other indexes with a name are. A range of another length than the file is not of its rows,
    and one that a file lacks is no column of all.
    """
    found = {}
    for file in files:
        with reading(file.path, "What pandas wrote into its metadata is damaged."):
            found[file.path] = _ranges(file)
    names = dict.fromkeys(name for ranges in found.values() for name in ranges)
    shared = [name for name in names if all(name in found[file.path] or name in file.schema.names for file in files)]
    return {path: {name: ranges[name] for name in shared if name in ranges} for path, ranges in found.items()}


def _ranges(file: FileSchema) -> dict[str, range]:
    entries = (file.schema.pandas_metadata or {}).get("index_columns", [])
    named = [entry for entry in entries if isinstance(entry, dict) and entry.get("name") is not None]
    ranges = {str(e["name"]): range(e["start"], e["stop"], e["step"]) for e in named if e.get("kind") == "range"}
    columns = set(file.schema.names)
    return {n: values for n, values in ranges.items() if len(values) == file.rows and n not in columns}


def with_indexes(schema: Any, indexes: Iterable[str]) -> Any:
    """A schema with the columns of such indexes, the last ones."""
    for name in indexes:
        schema = schema.append(pa.field(name, pa.int64()))
    return schema


def index_array(values: range, start: int, stop: int) -> Any:
    """Rows of such an index."""
    return pa.array(np.arange(start, stop, dtype=np.int64) * values.step + values.start)


def require_same_columns(files: Sequence[FileSchema], columns: Sequence[str] | None) -> None:
    """Refuse files with other columns than the first, less those that nobody reads.

    Raises
    ------
    ReadError
        Naming the file and the columns.
    """
    first = files[0].schema.names
    for file in files:
        names = file.schema.names
        different = sorted((set(first) ^ set(names)) & set(columns if columns is not None else [*first, *names]))
        if different:
            raise ReadError(
                f"{file.path} has the columns {listed_labels(names)}, but {files[0].path} has {listed_labels(first)}; "
                f"they differ in {listed_labels(different)}",
                advice="Read files with the same columns, or pass columns=[...] that all have.",
                path=file.path,
            )


def require_types_of_one_kind(files: Sequence[FileSchema], columns: Sequence[str] | None) -> None:
    """Refuse files with types of a column that have nothing in common.

    Raises
    ------
    SchemaMismatch
        Naming both files.
    """
    first: dict[str, tuple[str, Any]] = {}
    for file in files:
        with reading(file.path):
            for column in file.schema:
                wanted = columns is None or column.name in columns
                if wanted and file.rows and kind_of(column.type) not in (None, "null"):
                    _require_one_kind(file.path, column, *first.setdefault(column.name, (file.path, column.type)))
                # categories and the like are looked at with their values


def _require_one_kind(path: str, column: Any, known_path: str, known: Any) -> None:
    try:
        merge_types(held_type(known), held_type(column.type))
    except TypeClash:
        raise SchemaMismatch(
            f"column {column.name!r} is {known} in {known_path} and {column.type} in {path}, which have no common "
            "dtype",
            advice="Read the files one by one, or leave the column out with columns=[...].",
            column=column.name,
            paths=[known_path, path],
        ) from None


def pandas_dtypes(schema: Any) -> dict[str, str]:
    """Nullable and string dtypes of a frame that pandas wrote, as a file's metadata has them."""
    known: dict[str, str] = {}
    for entry in (schema.pandas_metadata or {}).get("columns", []):
        text, name = entry.get("numpy_type", ""), entry.get("field_name")
        if text.startswith(("Int", "UInt", "Float", "boolean", "string[")) or text.endswith("[pyarrow]"):
            known[name] = text
        elif text == "string":
            known[name] = "string[pyarrow]"
    return known


def ipc_dtypes(schema: Any) -> dict[str, str]:
    """As `pandas_dtypes`; and ints and bools that were Python objects are so again."""
    objects = [
        entry["field_name"]
        for entry in (schema.pandas_metadata or {}).get("columns", [])
        if entry.get("numpy_type") == "object" and entry.get("field_name") in schema.names
    ]
    plain = (name for name in objects if _is_plain(schema.field(name).type))
    return pandas_dtypes(schema) | dict.fromkeys(plain, "object")


def _is_plain(type_: Any) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_floating(type_))


def require_columns(path: str, names: Iterable[str], wanted: Iterable[str] | None) -> list[str]:
    """The columns wanted; all where None.

    Raises
    ------
    ReadError
        If a file does not have one of them, naming the first such and the file.
    """
    names = list(names)
    wanted, known = names if wanted is None else list(wanted), set(names)
    for name in wanted:
        if name not in known:
            raise ReadError(
                f"{path} has no column {name!r}",
                advice=instead_of(name, names, "Its"),
                path=path,
                column=name,
            )
    return wanted
