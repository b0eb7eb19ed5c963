"""What all formats share when a rank's rows are written: the form of a writer, and what files say of the columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ..backends.arrow.interop import to_frame
from ..backends.arrow.tables import to_arrow
from ..backends.protocol.backend import Backend
from ..backends.protocol.data import Columns, empty_columns
from ..backends.protocol.schema import Column, Schema, listed_labels
from ..errors import UnsupportedDtype, WriteError
from .part_files import PartFiles


class RowWriter(Protocol):
    """Writes rows into a rank's files."""

    def write(self, piece: Any) -> None:
        """Write some rows: `Columns`, or of `Format.by_device` the backend's own."""
        ...

    def close(self) -> None:
        """Write what is left to write. Not called where an error came before."""
        ...

    def abandon(self) -> None:
        """Close the files, whatever state they are in."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """How a table is written.

    Attributes
    ----------
    ending : str
        Of the files' names.
    suffixes : tuple of str
        Endings of files that a reader of the format takes.
    open : callable
        Gives the writer of a rank, made of its files, the schema of all rows, and whether no rank has a row.
    by_device : callable, optional
        Gives one that takes the rows of a GPU backend as they are; or None, and why there is none, in words.
    in_groups : bool
        Whether rows that are written at once are read at once, so that chunks are better joined before.
    """

    ending: str
    suffixes: tuple[str, ...]
    open: Callable[[PartFiles, Schema, bool], RowWriter]
    by_device: Callable[[PartFiles, Schema, Backend], tuple[RowWriter | None, str]] | None = None
    in_groups: bool = False


def file_schema(schema: Schema) -> Any:
    """The Arrow schema of a file, with what pandas needs to restore its dtypes.

    Raises
    ------
    UnsupportedDtype
        If Arrow has no such type (complex, period).
    WriteError
        If two labels are one as text.
    """
    arrow = to_arrow(empty_columns(schema)).schema
    if len(set(arrow.names)) < len(arrow.names):
        raise WriteError(
            f"the labels {listed_labels(schema.names)} are not distinct as text", advice="Rename a column."
        )
    return arrow.with_metadata(_of_pandas(schema) if len(schema) else None)


def _of_pandas(schema: Schema) -> dict[bytes, bytes]:
    """What pandas needs to restore a schema's dtypes. It is asked of one column of each kind: it takes its time."""
    alike: dict[Any, Column] = {}
    for column in schema:
        alike.setdefault((column.form, None if column.labels is None else column.name), column)
    frame = to_frame(empty_columns(Schema(list(alike.values()))))
    frame.columns = frame.columns.map(str)
    metadata: dict[bytes, bytes] = pa.Schema.from_pandas(frame, preserve_index=False).metadata
    if len(alike) == len(schema):
        return metadata
    said = json.loads(metadata[b"pandas"])
    of_form = dict(zip(alike, said["columns"], strict=True))
    said["columns"] = [
        of_form[column.form, None if column.labels is None else column.name]
        | {"name": str(column.name), "field_name": str(column.name)}
        for column in schema
    ]
    return metadata | {b"pandas": json.dumps(said).encode()}


def require_columns_to_write(schema: Schema, piece: Columns, target: str) -> None:
    """Refuse rows of no columns: no format keeps them.

    Raises
    ------
    WriteError
        Naming the file.
    """
    if piece.rows and not len(schema):
        raise WriteError(
            f"{target} cannot be written: the table has rows and no columns, and files keep only what is in columns",
            advice="Give it a column before.",
            path=target,
        )


def refuse_kinds(schema: Schema, kinds: Sequence[str], what: str, advice: str) -> None:
    """Refuse columns of kinds that a format cannot hold.

    Raises
    ------
    UnsupportedDtype
        Naming the first one.
    """
    for column in schema:
        if column.kind in kinds:
            raise UnsupportedDtype(
                f"column {column.name!r} is {column.describe()}, which {what} cannot hold",
                advice=advice,
                column=column.name,
            )


def plain_values(array: Any) -> Any:
    """A column's values where it holds codes of labels; others as they are."""
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array
