"""This rank's rows for other libraries: as Arrow, and as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...backends.arrow.interop import with_owner
from ...backends.arrow.tables import to_arrow
from ...backends.protocol.schema import Column, Label
from ...engine.exec.invocation import check_labels, listed
from ...engine.store.chunk import Chunk
from ...errors import ArgumentError, UnsupportedDtype
from ...formats.ipc_writer import arrow_table, ipc_bytes
from ...formats.row_writers import file_schema
from ...operators.rowwise.head_tail import first_rows
from ...units import MIB
from ..verbs.base import Verbs
from ..verbs.pandas_hints import no_array

BATCH_BYTES = 4 * MIB


class InterchangeVerbs(Verbs):
    """tensor, to_arrow, to_batches, to_ipc, and the protocols by which other libraries read a table."""

    def tensor(self, columns: Label | Sequence[Label] | None = None) -> Any:
        """Return this rank's rows as an array, for numpy, PyTorch or JAX.

        Parameters
        ----------
        columns : label or sequence of labels, optional
            A label gives an array of shape (rows,), a list of labels, whose dtypes are one, an array of shape
            (rows, columns); all columns by default. Numbers and bools.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            The latter on GPU engines. One column that is in memory in one chunk is not copied: on CPU engines the array
            is read-only then, as a table never changes. What is copied counts in the budget while the array
            is alive, and its columns are contiguous (strides of one item down a column).

        Raises
        ------
        UnsupportedDtype
            Naming a column that is no number, or has missing values.
        SchemaMismatch, ArgumentError
            If several columns have different dtypes, or there is none.
        BudgetExceeded
            If a copy does not fit.

        Notes
        -----
        It has DLPack and numpy's (or CUDA's) array interface: ``torch.from_dlpack(t.tensor("x"))``,
        ``jax.numpy.asarray(t.tensor("x"))``. `from_columns` is the way back.
        """
        part, workspace = self._mine(), self._workspace
        backend, schema = workspace.backend, part.schema
        names = list(schema.names) if columns is None else listed(columns)
        one = isinstance(columns, (str, int))
        check_labels(names, part.schema.names)
        if not names:
            raise ArgumentError("tensor needs at least one column.", advice=f"Give one of {list(schema.names)!r}.")
        dtype = _one_dtype([schema[name] for name in names])
        part.return_evicted(workspace, workspace.live_limit_bytes)
        if len(names) == 1 and len(part.chunks) == 1 and schema[names[0]].fixed:
            chunk = part.chunks[0]
            if chunk.is_held and chunk.schema[names[0]] == schema[names[0]]:
                data: Any = chunk.data
                array = backend.as_tensor(data.array(names[0]), chunk.claim)
                return array if one else array[:, None]
        nbytes = part.rows * len(names) * dtype.itemsize
        claim = workspace.budget.reserve(nbytes, f"A tensor of {len(names)} columns")
        made = backend.new_tensor(part.rows, len(names), dtype)
        start = 0
        for chunk in part.chunks:
            with chunk.load(workspace, names) as rows:
                piece = backend.cast(backend.select(rows, names), schema.select(names))
                for place, name in enumerate(names):
                    backend.fill_tensor(made[start : start + chunk.rows, place], piece, name)
            start += chunk.rows
        return backend.as_tensor(made[:, 0] if one else made, claim, own=True)

    def to_arrow(self, limit: int | None = 10_000) -> pa.Table:
        """Collective: all ranks call it. Return the first rows in global order as an Arrow table, on every rank.

        Parameters
        ----------
        limit : int or None, default 10_000
            How many; None for all. ``pa.table(t)`` has the rows of this rank alone.

        Returns
        -------
        pyarrow.Table
            With what pandas needs to restore the dtypes.

        Raises
        ------
        UnsupportedDtype
            Naming a column for which Arrow has no type (complex, period).
        """
        return arrow_table(first_rows(self._workspace, self._live(), limit))

    def to_ipc(self, limit: int | None = 10_000) -> bytes:
        """Collective: all ranks call it. Return the first rows in global order as the bytes of an Arrow IPC stream.

        Parameters
        ----------
        limit : int or None, default 10_000
            How many; None for all.
        """
        return ipc_bytes(first_rows(self._workspace, self._live(), limit))

    def to_batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Give this rank's rows in order, batch by batch; those that are staged are read when their turn has come.

        Parameters
        ----------
        rows : int, optional
            Of a batch at the most; as many as take about 4 MiB by default.

        Yields
        ------
        pyarrow.RecordBatch
        """
        part, schema = self._mine(), file_schema(self.schema)
        most = rows or max(1, BATCH_BYTES * part.rows // max(1, part.nbytes))
        return (
            whole.slice(start, most)
            for whole in self._batches(list(part.chunks), schema)
            for start in range(0, whole.num_rows, most)
        )

    # ---- protocols

    def __arrow_c_schema__(self) -> Any:
        """The Arrow schema of the rows, as a capsule."""
        return file_schema(self.schema).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """This rank's rows as a stream of Arrow, as a capsule, a batch a chunk.

        Rows on the device tier of CPU engines are not copied as far as Arrow holds them as numpy does; they count in
        the budget until whoever reads them lets go of them, also after `release`. Rows below it are read when they are
        asked for, outside the budget.
        """
        part, schema = self._mine(), file_schema(self.schema)
        reader = pa.RecordBatchReader.from_batches(schema, self._batches(list(part.chunks), schema))
        return reader.__arrow_c_stream__(requested_schema)

    @property
    def __arrow_c_device_array__(self) -> Any:
        """On GPU engines: this rank's rows as an Arrow array in the memory of the GPU, as capsules.

        One chunk on the device tier is not copied. The memory is kept until whoever reads it lets go of it.
        """
        if not self._workspace.backend.on_gpu:
            raise AttributeError("rows are in host memory here: __arrow_c_stream__ has them")
        return self._device_array

    def _device_array(self, requested_schema: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        with self._workspace.memory_named("An Arrow array of a table's rows", staged=True):
            return self._workspace.backend.to_device_arrow(self._whole())

    def _whole(self) -> Any:
        """All rows of this rank as one piece."""
        raise NotImplementedError

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise no_array(self)

    def _batches(self, chunks: list[Chunk], schema: Any) -> Iterator[Any]:
        workspace, held = self._workspace, self.schema  # now: it may be released before the first is read
        backend = workspace.backend

        def read() -> Iterator[Any]:
            while chunks:
                chunk = chunks.pop(0)
                data = backend.to_host(backend.cast(chunk.read(workspace), held))
                table = to_arrow(data)
                if chunk.is_held and not backend.on_gpu and chunk.schema == held:
                    table = with_owner(table, chunk.claim)
                yield from table.replace_schema_metadata(schema.metadata).to_batches()

        return read()


def _one_dtype(columns: Sequence[Column]) -> Any:
    """The numpy dtype that columns of numbers have in common."""
    found: dict[Any, Column] = {}
    for column in columns:
        if column.kind not in ("bool", "int", "float", "complex"):
            raise UnsupportedDtype(
                f"column {column.name!r} is {column.describe()}, of which no tensor is made",
                advice="Leave it out, or make numbers of it before, as t.astype({'x': 'float32'}).",
                column=column.name,
            )
        dtype = column.dtype if column.dtype is not None else np.dtype(column.arrow.to_pandas_dtype())
        found.setdefault(np.dtype(dtype), column)
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise ArgumentError(
            f"column {second.name!r} is {other}, expected {one} as column {first.name!r} is.",
            advice=f"Bring them to one dtype, as t.astype({{{second.name!r}: {one.name!r}}}), or ask for each.",
        )
    return next(iter(found))
