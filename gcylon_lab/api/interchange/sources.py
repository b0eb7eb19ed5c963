"""Tables of what other libraries hold in memory: Arrow data, and arrays by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...backends.protocol.data import Data
from ...config import GcylonConfig
from ...engine.exec.invocation import Request, RunOptions
from ...operators.io.foreign_arrow import ingest_stream
from ...operators.io.ingest import empty_part, ingest
from ...runtime.context import current
from ..table import Table


def from_arrow(source: Any, *, config: GcylonConfig | None = None) -> Table:
    """Collective: all ranks call it. Make a table of the Arrow data that each rank has.

    Parameters
    ----------
    source : object
        This rank's rows: anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (of pyarrow, polars, DuckDB,
        nanoarrow, arro3), on GPU engines with ``__arrow_c_device_array__`` too (cuDF). A stream is read batch by
        batch, and may give more than fits the budget: what does not fit is staged before the next one is asked for.
    config : GcylonConfig, optional
        The same on all ranks; rank 0's live one by default.

    Returns
    -------
    Table
        On CPU engines over the memory of a batch that fits whole: numbers and times without missing values, text,
        lists and decimals of 64-bit offsets are not copied. It counts in the budget; do not write to it. Ints and bools
        with missing values have nullable dtypes, dictionaries are categories, and dtypes that pandas wrote into the
        metadata are kept, as `read_ipc` does.

    Raises
    ------
    ArgumentError
        On all ranks, if a rank has no Arrow data, or a stream that was read already.
    ReadError
        On all ranks, if a stream fails; with the batch and the rows before it. Nothing is kept then.
    UnsupportedDtype, DuplicateColumns
        On all ranks, if a column of some rank cannot be held.
    SchemaMismatch, ColumnMissing
        If the ranks' columns do not fit each other.

    Examples
    --------
    >>> import gcylon_lab as gl, pyarrow as pa
    >>> gl.from_arrow(pa.table({"k": [1, 2], "s": ["a", None]})).dtypes
    {'k': 'int64', 's': 'str'}
    """
    context = current()
    request = Request("from_arrow", {}, empty_part(context.workspace), RunOptions(config=config))
    return Table(ingest_stream(context.workspace, request, source), context)


def from_columns(columns: Mapping[str, Any], *, schema: Any = None, config: GcylonConfig | None = None) -> Table:
    """Collective: all ranks call it. Make a table of the arrays that each rank has, by name.

    Parameters
    ----------
    columns : mapping of str to array
        This rank's rows, one array of one dimension a column: what has numpy's array interface or a buffer (numpy,
        ``memoryview``, ``array.array``), DLPack (PyTorch, JAX) or Arrow's C interface; on GPU engines what has
        ``__cuda_array_interface__`` too. Or ``bytes`` of little-endian items.
    schema : pyarrow.Schema or mapping of str to dtype, optional
        The dtype of each column, which arrays must have, and which bytes need.
    config : GcylonConfig, optional
        The same on all ranks; rank 0's live one by default.

    Returns
    -------
    Table
        Over the arrays' own memory where they are contiguous and it fits the budget, in which it counts: do not write
        to it.

    Raises
    ------
    ArgumentError
        On all ranks, naming a column that is no array, has another length or more dimensions, or bytes that are no
        whole number of items.
    SchemaMismatch
        Naming a column, its dtype and that of the schema; or if the ranks' columns do not fit each other.
    UnsupportedDtype
        Naming a column that cannot be held.

    Examples
    --------
    >>> import gcylon_lab as gl, numpy as np
    >>> bytes_of_k = np.arange(1, 3, dtype="int32").tobytes()
    >>> table = gl.from_columns({"k": bytes_of_k, "v": np.zeros(2)}, schema={"k": "int32", "v": "float64"})
    >>> table.tensor("k")
    array([1, 2], dtype=int32)
    """
    context = current()
    workspace = context.workspace

    def make() -> Iterator[Data]:
        yield workspace.backend.from_columns(columns, schema)

    request = Request("from_columns", {}, empty_part(workspace), RunOptions(config=config))
    return Table(ingest(workspace, request, make), context)
