"""A table on the ranks, for libraries of the notebook that read Arrow."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...api.verbs.arguments import checked
from ...api.verbs.pandas_hints import no_array, no_item
from ...backends.arrow.tables import to_arrow
from ...backends.protocol.data import Columns
from ...backends.protocol.schema import Label, Schema
from ...errors import ArgumentError, warn
from ...formats.row_writers import file_schema
from ...operators.rowwise.head_tail import checked_rows
from ...units import format_bytes, format_count
from ..messages import Request
from .forwarding import Forwarding

DEFAULT_LIMIT = 10_000


class ArrowExport(Forwarding):
    """to_arrow, to_batches, to_ipc, tensor, and the protocol behind ``pa.table(t)`` and ``pl.DataFrame(t)``."""

    @property
    def _infos(self) -> list[dict[str, Any]]:
        """Every rank's `Table.info` as it was last told."""
        raise NotImplementedError

    @property
    def schema(self) -> Schema:
        """Columns and dtypes."""
        raise NotImplementedError

    @property
    def num_rows(self) -> int:
        """Rows on all ranks."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes on all ranks."""
        raise NotImplementedError

    @property
    def _called(self) -> str:
        """What errors call the table."""
        raise NotImplementedError

    def _batches(self, action: str, rows: int | None, batch_rows: int | None) -> Iterator[Columns]:
        """The first rows, batch by batch."""
        raise NotImplementedError

    def _check_room(self, rows: int, what: str) -> None:
        """Refuse to bring more rows here than there is memory for."""
        raise NotImplementedError

    def to_arrow(self, limit: int | None = DEFAULT_LIMIT) -> pa.Table:
        """Return the first rows in global order as an Arrow table.

        Parameters
        ----------
        limit : int or None, default 10_000
            How many; None for all. Where the default leaves rows out, a warning says so.

        Returns
        -------
        pyarrow.Table
            Of one chunk for each batch that was sent; with what pandas needs to restore the dtypes.

        Raises
        ------
        BudgetExceeded
            If the notebook's memory has no room for them.
        UnsupportedDtype
            Naming a column for which Arrow has no type (complex, period).
        """
        schema = file_schema(self.schema)
        return pa.Table.from_batches(list(self._first_batches(limit, "to_arrow")), schema)

    @checked
    def to_batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Give all rows in global order, batch by batch.

        Parameters
        ----------
        rows : int, optional
            Of a batch, the last one perhaps less; as many as take about 4 MiB by default.

        Yields
        ------
        pyarrow.RecordBatch
            The notebook holds some tens of megabytes of them at a time. Between batches the ranks are free.

        Raises
        ------
        ArgumentError
            If ``rows`` is no number of at least 1.
        HandleReleased
            If the table is gone before the last one.
        """
        return self._record_batches("to_batches", self.num_rows, rows)

    def to_ipc(self, limit: int | None = DEFAULT_LIMIT) -> bytes:
        """Return the first rows in global order as the bytes of an Arrow IPC stream; `read_ipc` is the way back.

        Parameters
        ----------
        limit : int or None, default 10_000
            How many; None for all. Where the default leaves rows out, a warning says so.

        Raises
        ------
        BudgetExceeded
            If the notebook's memory has no room for them.
        """
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, file_schema(self.schema)) as writer:
            for batch in self._first_batches(limit, "to_ipc"):
                writer.write_batch(batch)
        return sink.getvalue()

    def tensor(self, columns: Label | Sequence[Label] | None = None) -> list[np.ndarray[Any, Any]]:
        """Return every rank's rows as an array, in rank order. All of them come to the notebook.

        Parameters
        ----------
        columns : label or sequence of labels, optional
            A label gives arrays of shape (rows,), a list of labels, whose dtypes are one, arrays of shape
            (rows, columns); all columns by default. Numbers and bools.

        Raises
        ------
        UnsupportedDtype, ArgumentError
            Naming a column that is no number, has missing values, or another dtype than the first one.
        BudgetExceeded
            If the notebook's memory, or a rank's budget, has no room for them.
        """
        self._check_room(self.num_rows, "tensor()")
        name = self._reference(self._session).table
        return [reply.value for reply in self._session.call(Request("tensor", name, args=(columns,)))]

    def __arrow_c_schema__(self) -> Any:
        """The Arrow schema of the rows, as a capsule."""
        return file_schema(self.schema).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """All rows as a stream of Arrow, as a capsule; refused for more than 10,000.

        Raises
        ------
        ArgumentError
            If there are more.
        """
        return self._all_arrow().__arrow_c_stream__(requested_schema)

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        """All rows by the interchange protocol, by which seaborn asks; refused for more than 10,000."""
        return self._all_arrow().__dataframe__(nan_as_null, allow_copy)

    def __narwhals_dataframe__(self) -> Any:
        """All rows for narwhals, by which Altair, plotly and others ask; refused for more than 10,000."""
        narwhals = sys.modules["narwhals"]  # who asks has it
        return narwhals.from_native(self._all_arrow())._compliant_frame

    def _all_arrow(self) -> pa.Table:
        if self.num_rows > DEFAULT_LIMIT:
            raise ArgumentError(
                f"{self._called} has {format_count(self.num_rows)} rows ({format_bytes(self.nbytes)}), and another "
                f"library reads at most {format_count(DEFAULT_LIMIT)} of a table on the ranks by itself.",
                advice="Give it t.to_arrow(limit=None) for all rows, t.to_arrow(1000) for the first ones, or read "
                "t.to_batches() one by one.",
            )
        return self.to_arrow(limit=None)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise no_array(self)

    def __iter__(self) -> Any:
        raise no_item(self)

    def _first_batches(self, limit: int | None, verb: str) -> Iterator[pa.RecordBatch]:
        return self._record_batches(verb, self._rows_within(limit, verb), None)

    def _rows_within(self, limit: int | None, verb: str) -> int:
        """How many rows a limit gives, for which there is room here; warns where the default leaves some out."""
        if limit is not None:
            limit = checked_rows(limit, "limit", or_all=True)
        count = self.num_rows if limit is None else min(limit, self.num_rows)
        self._check_room(count, f"{verb}(limit={limit})")
        if limit == DEFAULT_LIMIT and count < self.num_rows:
            warn(
                f"These are the first {format_count(count)} of {format_count(self.num_rows)} rows "
                f"({format_bytes(self.nbytes)} in all); {verb}(limit=None) gives all."
            )
        return count

    def _record_batches(self, verb: str, count: int, rows: int | None) -> Iterator[pa.RecordBatch]:
        schema = file_schema(self.schema)
        for columns in self._batches(verb, count, rows):
            table = to_arrow(columns).replace_schema_metadata(schema.metadata).combine_chunks()
            del columns
            yield table.to_batches()[0]
