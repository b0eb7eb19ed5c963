"""Writing a table as parquet: a folder with one file a rank."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import GcylonError, WriteError
from .arrow_tables import to_arrow
from .data import Columns, empty_columns
from .interop import to_frame
from .parquet_plans import PARQUET_SUFFIXES
from .schema import Schema

_PART = re.compile(r"part-(\d{5,})\.parquet")


def prepare_folder(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Make a folder for one file a rank, or refuse it; changes nothing that stands there.

    All ranks call it, and agree, before one of them writes.

    Raises
    ------
    WriteError
        If parquet files stand there and ``overwrite`` is False, if there are any that are not parts of a table
        written before, or if it cannot be made.
    """
    path = os.fspath(path)
    try:
        os.makedirs(path, exist_ok=True)
        names = sorted(name for name in os.listdir(path) if name.endswith(PARQUET_SUFFIXES))
    except OSError as error:
        raise WriteError(f"{path} cannot be a folder to write to: {error.strerror or error}", path=path) from None
    foreign = [name for name in names if not _PART.fullmatch(name)]
    if foreign or (names and not overwrite):
        found = foreign or names
        raise WriteError(
            f"the folder {path} already holds {len(found)} parquet file{'s' if len(found) > 1 else ''}, "
            f"for example {found[0]}",
            advice="Choose another folder." if foreign else "Choose another folder, or pass overwrite=True.",
            path=path,
        )


def remove_leftovers(path: str | os.PathLike[str], size: int) -> None:
    """Remove parts that a table of more ranks left in a folder; one rank calls it."""
    for name in os.listdir(path):
        part = _PART.fullmatch(name)
        if part and int(part[1]) >= size:
            with suppress(FileNotFoundError):
                os.remove(os.path.join(path, name))


def write_parquet(path: str | os.PathLike[str], rank: int, schema: Schema, pieces: Iterable[Columns]) -> str:
    """Write one rank's rows into a file of its own, piece by piece.

    Parameters
    ----------
    path : path
        A folder that `prepare_folder` has made.
    rank : int
    schema : Schema
        Of all pieces.
    pieces : iterable of Columns
        May be empty: the file then has the columns and no rows.

    Returns
    -------
    str
        The file, ``part-00000.parquet`` for rank 0. It appears under its name only once it is whole.

    Raises
    ------
    WriteError
        If it cannot be written, or has rows and no columns; nothing is left behind then.
    UnsupportedDtype
        If parquet has no such type (complex, period).
    """
    target = os.path.join(os.fspath(path), f"part-{rank:05d}.parquet")
    unfinished = os.path.join(os.fspath(path), f".part-{rank:05d}.{os.getpid()}.unfinished")
    arrow = _file_schema(schema)
    try:
        with pq.ParquetWriter(unfinished, arrow) as writer:
            for piece in pieces:
                if piece.rows:
                    _require_columns(schema, target)
                    writer.write_table(to_arrow(piece).replace_schema_metadata(arrow.metadata))
        os.replace(unfinished, target)
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, GcylonError):  # from the pieces
            raise
        raise WriteError(f"{target} cannot be written: {error}", path=target) from None
    finally:
        with suppress(OSError):
            os.remove(unfinished)
    return target


def _require_columns(schema: Schema, target: str) -> None:
    if not len(schema):
        raise WriteError(
            f"{target} cannot be written: the table has rows and no columns, and parquet keeps only what is in columns",
            advice="Give it a column before.",
            path=target,
        )


def _file_schema(schema: Schema) -> Any:
    """The Arrow schema, with what pandas needs to restore its dtypes."""
    empty = empty_columns(schema)
    arrow = to_arrow(empty).schema
    if len(set(arrow.names)) < len(arrow.names):
        raise WriteError(f"the labels {list(schema.names)} are not distinct as text", advice="Rename a column.")
    frame = to_frame(empty)
    frame.columns = frame.columns.map(str)
    metadata = pa.Schema.from_pandas(frame, preserve_index=False).metadata if len(schema) else None
    return arrow.with_metadata(metadata)
