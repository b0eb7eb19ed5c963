"""Writing a rank's rows as parquet: into one file, or one for each value of some columns, in a folder of its name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...backends.arrow.tables import to_arrow
from ...backends.protocol.arrow_types import kind_of
from ...backends.protocol.backend import Backend
from ...backends.protocol.data import Columns, Data
from ...backends.protocol.schema import Schema
from ...errors import ArgumentError, WriteError
from ..filesystems import is_url
from ..hive import TYPES_KEY, folder_of, types_metadata
from ..part_files import PartFiles, writing_to
from ..row_writers import (
    Format,
    RowWriter,
    file_schema,
    plain_values,
    refuse_kinds,
    require_columns_to_write,
)
from .plans import PARQUET_SUFFIXES

_MOST_DICTIONARY_BYTES = 1 << 20
_TEXTS = ("str", "bytes")
_MOST_FOLDERS = 500  # each has an open file
_KEY_KINDS = ("int", "bool", "str", "date", "datetime", "category")
_MIDNIGHT = r" 00:00:00(\.0+)?$"


# libcudf writes what pyarrow reads as the same type. Its chunked writer calls all times those of UTC, so they go the
# host's way, as everything does that is not listed.
_ENCODED_KINDS = ("bool", "int", "float", "str", "date", "decimal")
_COMPRESSIONS = ("snappy", "zstd", "none")


def encoded_by_host(schema: Schema, compression: str) -> str:
    """Why rows are encoded in host memory also on GPU engines, in words; "" where they are not."""
    if compression not in _COMPRESSIONS:
        return f"the compression is {compression}"
    if not len(schema):
        return "there is no column"
    for column in schema:
        if column.kind not in _ENCODED_KINDS or column.restore is not None:
            return f"column {column.name!r} is {column.describe()}"
    return ""


def parquet_format(*, compression: str = "snappy", partition_on: Sequence[str] = ()) -> Format:
    """Parquet files.

    Parameters
    ----------
    compression : str
        What Arrow's writer knows: snappy, zstd, gzip, brotli, lz4 or none.
    partition_on : sequence of str
        Columns that stand in the names of folders and not in the files.
    """

    def open_(files: PartFiles, schema: Schema, nobody_has_rows: bool) -> RowWriter:
        if partition_on:
            return _Folders(files, schema, list(partition_on), compression, nobody_has_rows=nobody_has_rows)
        return _OneFile(files, schema, compression)

    def by_device(files: PartFiles, schema: Schema, backend: Backend) -> tuple[RowWriter | None, str]:
        why = "folders are named by values" if partition_on else encoded_by_host(schema, compression)
        why = "the folder is remote" if is_url(files.folder) else why
        return (None, why) if why else (_OneFileByDevice(files, schema, compression, backend), "")

    return Format(".parquet", PARQUET_SUFFIXES, open_, by_device, in_groups=True)


class _OneFile:
    def __init__(self, files: PartFiles, schema: Schema, compression: str) -> None:
        self._schema = schema
        self._target = files.target()
        self._arrow = file_schema(schema)
        self._stream: Any = None
        with writing_to(self._target):
            self._stream = files.create()
            self._writer = _arrow_writer(files, self._stream, self._arrow, compression)

    def write(self, piece: Columns) -> None:
        require_columns_to_write(self._schema, piece, self._target)
        if piece.rows:
            with writing_to(self._target):
                self._writer.write_table(to_arrow(piece).replace_schema_metadata(self._arrow.metadata))

    def close(self) -> None:
        with writing_to(self._target):
            self._writer.close()
            self._stream.close()

    def abandon(self) -> None:
        _abandon(self._writer, self._stream)


def _arrow_writer(
    files: PartFiles, stream: Any, schema: Any, compression: str, dictionaries_of: Sequence[str] | bool = True
) -> Any:
    # Arrow finds values that it has met before in a table of some sixty times the bytes of a dictionary page, by the
    # side of the budget: a small one goes over to plain values sooner.
    limit = files.storage.limit_bytes
    most = _MOST_DICTIONARY_BYTES if limit is None else min(_MOST_DICTIONARY_BYTES, (128 << 10) + limit // 640)
    return pq.ParquetWriter(
        stream, schema, compression=compression, use_dictionary=dictionaries_of, dictionary_pagesize_limit=most
    )


class _OneFileByDevice:
    """A file whose rows are encoded where they are."""

    def __init__(self, files: PartFiles, schema: Schema, compression: str, backend: Backend) -> None:
        self._schema = schema
        self._target = files.target()
        notes = {key.decode(): value.decode() for key, value in (file_schema(schema).metadata or {}).items()}
        with writing_to(self._target):
            self._file = files.create_descriptor()
            try:
                # By its descriptor, so that nothing that takes its name in between is written to.
                self._writer = backend.row_group_writer(f"/proc/self/fd/{self._file}", schema, notes, compression)
            except BaseException:
                os.close(self._file)
                raise

    def write(self, piece: Data) -> None:
        if piece.rows:
            with writing_to(self._target):
                self._writer.write(piece)

    def close(self) -> None:
        with writing_to(self._target):
            self._writer.close()
            os.close(self._file)

    def abandon(self) -> None:
        with suppress(Exception):  # its finalizer would write to a descriptor that is another file's by then
            self._writer.close()
        with suppress(OSError):
            os.close(self._file)


def _abandon(writer: Any, stream: Any) -> None:
    with suppress(OSError, pa.ArrowException, ValueError):
        writer.close()
    writer.is_open = False  # its finalizer would write to the closed file
    with suppress(OSError, pa.ArrowException):
        stream.close()


class _Folders:
    """One file for each combination of values of some columns."""

    def __init__(
        self, files: PartFiles, schema: Schema, keys: list[str], compression: str, *, nobody_has_rows: bool
    ) -> None:
        self._files = files
        self._keys = keys
        self._compression = compression
        others = [name for name in schema.names if name not in keys]
        _check_keys(schema, keys, others)
        self._types = pa.schema(
            [pa.field(f.name, plain_values(pa.array([], f.type)).type) for f in file_schema(schema.select(keys))]
        )
        arrow = file_schema(schema.select(others))
        dtypes = ["" if column.kind == "category" else column.pandas for column in schema.select(keys)]
        said = {TYPES_KEY: types_metadata(self._types, dtypes)}
        self._arrow = arrow.with_metadata((arrow.metadata or {}) | said)
        # Each open file keeps what the last column was encoded with, and numbers need more to be found again.
        self._of_text = [f.name for f in self._arrow if kind_of(plain_values(pa.array([], f.type)).type) in _TEXTS]
        self._open: dict[str, tuple[Any, Any]] = {}
        if nobody_has_rows:  # so that the columns are known to those who read it
            self._writer(folder_of(keys, [None] * len(keys)))

    def write(self, piece: Columns) -> None:
        if not piece.rows:
            return
        table = to_arrow(piece)
        keys = [_coded(table.column(key).combine_chunks()) for key in self._keys]
        order, starts = _runs(keys)
        sorted_ = table.select(self._arrow.names).take(pa.array(order)).replace_schema_metadata(self._arrow.metadata)
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            folder = folder_of(self._keys, [texts[int(codes[order[start]])].as_py() for codes, texts in keys])
            with writing_to(self._files.target(folder)):
                self._writer(folder).write_table(sorted_.slice(start, stop - start))

    def _writer(self, folder: str) -> Any:
        if folder not in self._open:
            target = self._files.target(folder)
            if len(self._open) >= _MOST_FOLDERS:
                raise WriteError(
                    f"{target} cannot be written: this rank's rows have more than {_MOST_FOLDERS} different values of "
                    f"{self._keys}, each of which has a file",
                    advice="Write by a column of fewer values, or shuffle the table by these columns before.",
                    path=target,
                )
            with writing_to(target):
                stream = self._files.create(folder)
                made = _arrow_writer(self._files, stream, self._arrow, self._compression, self._of_text)
                self._open[folder] = stream, made
        return self._open[folder][1]

    def close(self) -> None:
        for folder, (stream, writer) in self._open.items():
            with writing_to(self._files.target(folder)):
                writer.close()
                stream.close()

    def abandon(self) -> None:
        for stream, writer in self._open.values():
            _abandon(writer, stream)


def _check_keys(schema: Schema, keys: list[str], others: list[Any]) -> None:
    refuse = set(column.kind for column in schema.select(keys)) - set(_KEY_KINDS)
    refuse_kinds(schema.select(keys), sorted(refuse), "the name of a folder", "Leave it out of partition_on.")
    if "" in keys:
        raise ArgumentError(
            "partition_on: the name of a folder cannot say a column without a name.", advice="Rename it before."
        )
    if not others:
        raise ArgumentError(
            f"partition_on={keys} names all columns, and no column is left for the files.", advice="Leave one out."
        )


def _coded(array: Any) -> tuple[npt.NDArray[np.int64], Any]:
    """For each row a place among texts; these as they stand in the name of a folder, the last one None."""
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()  # each text is made once
    values = coded.dictionary
    texts = values.cast(pa.string())
    if pa.types.is_timestamp(values.type) and not values.type.tz:
        texts = pc.replace_substring_regex(texts, _MIDNIGHT, "")
    places = pc.fill_null(coded.indices.cast(pa.int64()), len(values)).to_numpy(zero_copy_only=False)
    return places, pa.concat_arrays([texts, pa.nulls(1, pa.string())])


def _runs(keys: list[tuple[npt.NDArray[np.int64], Any]]) -> tuple[Any, list[int]]:
    """An order in which rows with equal values are together, and where each run of them begins."""
    codes = keys[0][0]
    for places, texts in keys[1:]:
        codes = np.unique(codes * len(texts) + places, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    changes = np.flatnonzero(np.diff(codes[order])) + 1
    return order, [0, *map(int, changes)]
