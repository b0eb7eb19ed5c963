"""Writing a rank's rows as an Arrow IPC file or stream."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa

from ..backends.arrow.tables import to_arrow
from ..backends.protocol.data import Columns
from ..backends.protocol.schema import ARROW_DTYPE, Schema
from .ipc_reader import IPC_SUFFIXES
from .part_files import PartFiles, writing_to
from .row_writers import Format, file_schema, plain_values, require_columns_to_write

# Of a record batch on average: smaller ones are brought together, which copies them.
_BATCH_ROWS = 1 << 15
_BATCH_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 18  # columns of fewer are written together


def ipc_format(*, stream: bool = False, compression: str | None = None) -> Format:
    """Arrow IPC files (Feather version 2), or streams.

    Parameters
    ----------
    stream : bool
    compression : str, optional
        Of the record batches: lz4 or zstd.
    """

    def open_(files: PartFiles, schema: Schema, _: bool) -> IpcRows:
        return IpcRows(files, schema, stream=stream, compression=compression)

    return Format(".arrows" if stream else ".arrow", IPC_SUFFIXES, open_)


class IpcRows:
    """One file of record batches."""

    def __init__(self, files: PartFiles, schema: Schema, *, stream: bool, compression: str | None) -> None:
        self._schema = schema
        self._target = files.target()
        # Every batch would come with labels of its own, which a file cannot hold.
        self._plain = [str(c.name) for c in schema if c.pandas == ARROW_DTYPE and c.restore is not None]
        arrow = file_schema(schema)
        self._arrow = self._with_plain(arrow.empty_table()).schema.with_metadata(arrow.metadata)
        self._stream: Any = None
        self._sink: Any = None
        make = pa.ipc.new_stream if stream else pa.ipc.new_file
        with writing_to(self._target):
            self._stream = files.create()
            sink = self._stream if isinstance(self._stream, pa.NativeFile) else pa.PythonFile(self._stream, "w")
            self._sink = pa.BufferedOutputStream(sink, _BUFFER_BYTES)
            self._writer = make(self._sink, self._arrow, options=pa.ipc.IpcWriteOptions(compression=compression))

    def _with_plain(self, table: Any) -> Any:
        for name in self._plain:
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, plain_values(table.column(name)))
        return table

    def write(self, piece: Columns) -> None:
        """Write some rows, as one record batch or several that are not small."""
        require_columns_to_write(self._schema, piece, self._target)
        if piece.rows:
            with writing_to(self._target):
                table = self._with_plain(to_arrow(piece)).replace_schema_metadata(self._arrow.metadata)
                most = max(column.num_chunks for column in table.columns)
                small = table.num_rows < most * _BATCH_ROWS or table.nbytes < most * _BATCH_BYTES
                self._writer.write_table(table.combine_chunks() if most > 1 and small else table)

    def close(self) -> None:
        """Write the end."""
        with writing_to(self._target):
            self._writer.close()
            self._sink.close()
            self._stream.close()

    def abandon(self) -> None:
        """Close the file."""
        for stream in filter(None, (self._sink, self._stream)):
            with suppress(OSError, pa.ArrowException, ValueError):
                stream.close()


def arrow_table(rows: Columns) -> Any:
    """Rows as an Arrow table, with what pandas needs to restore their dtypes."""
    return to_arrow(rows).replace_schema_metadata(file_schema(rows.schema).metadata)


def ipc_bytes(rows: Columns) -> bytes:
    """Rows as an Arrow IPC stream of one record batch; see `arrow_table`."""
    sink, table = pa.BufferOutputStream(), arrow_table(rows)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    written: bytes = sink.getvalue().to_pybytes()
    return written
