"""A table in the making, to which rows are appended as they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...backends.arrow.foreign import name_of, open_stream, without_rows
from ...backends.arrow.interop import from_frame
from ...backends.arrow.named_arrays import schema_of
from ...backends.protocol.data import Data
from ...backends.protocol.schema import Schema
from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions
from ...formats.file_columns import ipc_dtypes
from ...operators.io.append import Growing
from ...operators.io.foreign_arrow import stream_data
from ...operators.io.notebook_rows import Incoming, leaving, received
from ...operators.rowwise.head_tail import checked_rows
from ...runtime.context import Context, current
from ..table import Table


class Appender:
    """Rows of this rank that will be part of a table. Made by `empty`.

    What was appended counts in the budget, and is staged like a table where others need the room.
    """

    def __init__(self, context: Context, schema: Schema, capacity: int, config: GcylonConfig | None) -> None:
        self._context = context
        self._growing = Growing(context.workspace, schema, capacity, RunOptions(config=config))

    @property
    def num_rows(self) -> int:
        """Rows on this rank so far."""
        return self._growing.part.rows

    @property
    def nbytes(self) -> int:
        """Bytes on this rank so far, in all tiers."""
        return self._growing.part.nbytes

    @property
    def capacity(self) -> int:
        """Rows on this rank for which memory was claimed at the beginning. More may be appended."""
        return self._growing.capacity_rows

    def append(self, rows: Any) -> None:
        """Collective: all ranks call it. Append each rank's rows; all of them on all ranks, or none.

        Parameters
        ----------
        rows : pandas.DataFrame, Arrow data, or mapping of str to array
            This rank's, perhaps none: with the columns that `empty` was given.

        Raises
        ------
        ColumnMissing, SchemaMismatch
            On all ranks, if some rank's have other columns, or values that the dtypes do not hold.
        BudgetExceeded
            On all ranks, if they do not fit and staging is not allowed.
        """
        self._growing.append(lambda: _data(self._context.workspace, rows))

    def append_pieces(self, incoming: Incoming) -> None:
        """Collective: all ranks call it. Append rows that each rank is sent; see `receive_rows`."""
        workspace = self._context.workspace
        self._growing.append(lambda: received(workspace, incoming), lambda: leaving(incoming))

    def table(self) -> Table:
        """Collective: all ranks call it. The table of all rows; nothing can be appended afterwards."""
        return Table(self._growing.finish(), self._context)

    def release(self) -> None:
        """Give the rows up. Idempotent."""
        self._growing.release()


def empty(schema: Any, capacity: int = 0, *, config: GcylonConfig | None = None) -> Appender:
    """Collective: all ranks call it. Begin a table to which rows are appended as they come.

    Parameters
    ----------
    schema : mapping of str to dtype, pyarrow.Schema, or pandas.DataFrame
        Columns and their dtypes; a frame's rows are not taken.
    capacity : int, default 0
        Rows on this rank for whose columns of fixed width memory is claimed now, so that they will fit.
    config : GcylonConfig, optional
        Of all that is appended; the same on all ranks, rank 0's live one by default.

    Returns
    -------
    Appender

    Raises
    ------
    BudgetExceeded
        If there is no room for so many rows.

    Examples
    --------
    >>> import gcylon_lab as gl, numpy as np
    >>> rows = gl.empty({"t": "int64", "x": "float64"}, capacity=1000)
    >>> for second in range(3):
    ...     rows.append({"t": np.array([second]), "x": np.array([second / 2])})
    >>> rows.table().sum("x")
    1.5
    """
    context = current()
    return Appender(context, declared(schema), checked_rows(capacity, "capacity"), config)


def declared(schema: Any) -> Schema:
    """The columns that a person declares."""
    if hasattr(schema, "iloc"):
        return from_frame(schema.iloc[:0]).schema
    types = schema_of(schema)
    return without_rows(types, ipc_dtypes(types)).schema


def _data(workspace: Any, rows: Any) -> Iterator[Data]:
    if hasattr(rows, "iloc"):
        yield workspace.backend.from_frame(rows)
    elif isinstance(rows, Mapping):
        yield workspace.backend.from_columns(rows, None)
    else:
        yield from stream_data(workspace, open_stream(rows), name_of(rows), may_stage=True)
