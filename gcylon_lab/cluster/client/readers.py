"""How a cluster comes by tables: files that its ranks read, and frames of the notebook."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from ...api import readers
from ...api.verbs.arguments import fitted
from ...backends.protocol.methods.signatures import fit
from ...config import GcylonConfig
from ...errors import HandleReleased, ReadError, warn
from ...units import format_bytes, format_count
from ..handles.forwarding import absolute, handle_doc
from ..handles.handle import DistTable
from ..messages import Reply, Request
from .scatter import append
from .session import Session

if TYPE_CHECKING:
    import pandas as pd

    from ...api.table import Table
    from ...formats.in_memory import InMemory
    from ...formats.row_filters import Filters
    from ...operators.io.read_estimate import ReadEstimate
    from ..handles.handle import DistTable
    from .session import Session

P = ParamSpec("P")

_FIRST_ROWS = 4096  # of a row group, whose width is taken for that of others


def _reader(verb: Callable[P, Table]) -> Callable[Concatenate[Any, P], DistTable]:
    """A reader of `gcylon_lab`, as a cluster's method: what cannot be used is said here, and its ranks read."""
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    def call(self: Readers, /, *args: Any, **kwargs: Any) -> DistTable:
        bound = fit(verb.__name__, signature, args, kwargs)
        bound.apply_defaults()
        return self._read(verb.__name__, **bound.arguments)

    given = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *signature.parameters.values()]
    call.__signature__ = signature.replace(parameters=given, return_annotation="DistTable")  # type: ignore[attr-defined]
    call.__doc__ = handle_doc(verb)
    return call


class Readers:
    """The part of `Cluster` that makes tables."""

    _session: Session

    read_parquet = _reader(readers.read_parquet)
    read_csv = _reader(readers.read_csv)
    read_json = _reader(readers.read_json)
    read_ipc = _reader(readers.read_ipc)

    @fitted
    def plan_read_parquet(
        self,
        paths: str | Sequence[str],
        columns: str | Sequence[str] | None = None,
        *,
        filters: Filters = None,
        storage_options: Mapping[str, Any] | None = None,
        config: GcylonConfig | None = None,
    ) -> ReadEstimate:
        """Say how large the table that `read_parquet` would make is on each rank, and whether that fits.

        The notebook reads the footers of the files, and some rows for their width: the first ones of the first row
        group, of one in the middle, and of the last one. No rank is asked.

        Parameters
        ----------
        paths, columns, filters, storage_options, config
            As for `read_parquet`. What filters leave of the row groups that they do not rule out is not known.

        Returns
        -------
        ReadEstimate
            ``num_rows``, ``total_bytes``, ``rows`` and ``nbytes`` of each rank, ``fits``, ``staged_bytes``, ``schema``.

        Raises
        ------
        ReadError
            If a file is missing, or is no parquet file.

        Examples
        --------
        >>> lab.plan_read_parquet("lineitem/*.parquet", ["l_orderkey", "l_tax"])          # doctest: +SKIP
        6,001,215 rows of 2 columns, about 91.6 MiB in memory, up to 45.8 MiB a rank of 2; it fits: ...
        >>> gl.estimate(_.schema, _.num_rows, nbytes=_.total_bytes, verb="shuffle", on="l_orderkey")  # doctest: +SKIP
        """
        from ...formats import io
        from ...formats.reader_options import column_list, storage_of
        from ...formats.row_filters import condition_of, read_columns
        from ...operators.io.read_estimate import estimate_read

        session = self._session
        wanted, condition = column_list("columns", columns), condition_of(filters)
        names, storage = read_columns(wanted, condition), storage_of(paths, storage_options)
        shares = io.plan_parquet(
            absolute(paths), session.launcher.n, columns=names, condition=condition, storage=storage
        )
        pieces = [piece for share in shares for piece in share.pieces]
        places = sorted({0, len(pieces) // 2, len(pieces) - 1}) if pieces else []
        some = [replace(shares[0], pieces=(pieces[place],)) for place in places] or shares[:1]
        try:
            looked = [_first_rows(one, wanted) for one in some]
        except ReadError as error:
            if "read_as" not in error.numbers:
                raise
            unit = error.numbers["read_as"]  # for times that ns do not hold, which are as wide
            looked = [_first_rows(replace(one, int96_unit=unit), wanted) for one in some]
        chosen = config or session.config
        limits = [chosen.limit_bytes(one["ceiling_bytes"], one["free_at_start_bytes"]) for one in session.memory]
        on_gpus = session.ranks[0].device != "cpu"
        may_stage = chosen.may_stage(pinned_tier=on_gpus)
        return estimate_read(shares, looked, session.memory, limits, may_stage=may_stage, on_gpus=on_gpus)

    @fitted
    def from_pandas(self, frame: pd.DataFrame, *, config: GcylonConfig | None = None) -> DistTable:
        """Spread a frame of the notebook evenly over the ranks, in order. Its index is not carried.

        Every rank is sent its share alone.
        """
        from ...formats.reader_options import check_frame
        from .scatter import spread_frame

        check_frame(frame)
        return spread_frame(self._session, frame, config)

    @fitted
    def scatter(self, rows: Any, by: str | Sequence[str] = "rows", *, config: GcylonConfig | None = None) -> DistTable:
        """Send rows of the notebook to the ranks, piece by piece; neither side holds more than some pieces of them.

        Parameters
        ----------
        rows : pandas.DataFrame, Arrow data, or iterable of such
            A frame or a pyarrow table is spread evenly, in order. Of an iterable, such as a generator, or a stream of
            Arrow (a reader, a relation of DuckDB), each piece goes to the rank that is ahead; what makes them may not
            use this cluster meanwhile. Indices are not carried.
        by : {"rows"} or column or sequence of columns, default "rows"
            Columns bring rows with equal values of them to one rank, by a `shuffle`.
        config : GcylonConfig, optional
            The live one by default.

        Returns
        -------
        DistTable
            What does not fit the budget is staged as it comes.

        Raises
        ------
        GcylonError
            If the ranks cannot take the rows. What an iterable raises is raised as it is. No table is left then.

        Examples
        --------
        >>> table = lab.scatter(pd.read_csv("large.csv", chunksize=100_000))  # doctest: +SKIP
        """
        from .scatter import scatter

        if by == "rows":
            return scatter(self._session, rows, config)
        spread = scatter(self._session, rows, config)
        try:
            return spread.shuffle(by, config=config)
        finally:
            spread.release()

    @fitted
    def from_arrow(self, source: Any, *, config: GcylonConfig | None = None) -> DistTable:
        """Spread Arrow data of the notebook evenly over the ranks, in order, batch by batch.

        Parameters
        ----------
        source : object
            Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``: of pyarrow, polars, DuckDB, nanoarrow, arro3.
            A stream is read as it is sent, never whole. Where it does not say how many rows it has (``num_rows`` or
            ``height``), all go to rank 0 first, which stages what does not fit, and are spread from there.
        config : GcylonConfig, optional
            The live one by default.

        Returns
        -------
        DistTable
            With dtypes as `gcylon_lab.from_arrow` gives them.

        Raises
        ------
        ArgumentError
            If it is no Arrow data, or a stream that was read already.
        ReadError
            If a stream fails; with the batch and the rows before it. No rank keeps anything then.
        """
        from .scatter import spread_arrow

        return spread_arrow(self._session, source, config)

    @fitted
    def from_columns(
        self, columns: Mapping[str, Any], *, schema: Any = None, config: GcylonConfig | None = None
    ) -> DistTable:
        """Spread arrays of the notebook, by name, evenly over the ranks, in order.

        Parameters
        ----------
        columns : mapping of str to array
            One array of one dimension a column, of numpy, a buffer, DLPack or Arrow; or bytes of little-endian items.
        schema : pyarrow.Schema or mapping of str to dtype, optional
            The dtype of each column, which arrays must have, and which bytes need.
        config : GcylonConfig, optional
            The live one by default.

        Raises
        ------
        ArgumentError, SchemaMismatch, UnsupportedDtype
            Naming the column, what it is and what was expected; see `gcylon_lab.from_columns`.
        """
        from ...backends.arrow.named_arrays import from_columns
        from .scatter import spread_columns

        return spread_columns(self._session, from_columns(columns, schema), config)

    @fitted
    def empty(self, schema: Any, capacity: int = 0, *, config: GcylonConfig | None = None) -> DistAppender:
        """Begin a table to which rows are appended as they come; as `gcylon_lab.empty`.

        Parameters
        ----------
        schema : mapping of str to dtype, pyarrow.Schema, or pandas.DataFrame
            Columns and their dtypes; a frame's rows are not taken.
        capacity : int, default 0
            Rows in all for whose columns of fixed width the ranks claim memory now, so that they will fit.
        config : GcylonConfig, optional
            Of all that is appended; the live one by default.

        Examples
        --------
        >>> rows = lab.empty({"t": "datetime64[us]", "x": "float64"}, capacity=1_000_000)  # doctest: +SKIP
        >>> rows.append(frame)  # doctest: +SKIP
        >>> table = rows.table()  # doctest: +SKIP
        """
        from ...operators.rowwise.head_tail import checked_rows

        schema = schema.iloc[:0] if hasattr(schema, "iloc") else schema
        request = Request("empty", args=(schema, checked_rows(capacity, "capacity")), kwargs={"config": config})
        return self._session.make(request, partial(DistAppender, self._session, capacity))

    def _read_bytes(
        self, given: InMemory, columns: str | Sequence[str] | None, filters: Filters, config: GcylonConfig | None
    ) -> DistTable:
        from ...formats.ipc_reader import ipc_batches
        from ...formats.reader_options import column_list
        from ...formats.row_filters import condition_of, read_columns
        from .scatter import spread_batches

        asked, condition = column_list("columns", columns), condition_of(filters)
        schema, batches, rows = ipc_batches(given, read_columns(asked, condition))
        table = spread_batches(self._session, schema, batches, rows, config)
        if condition is None:
            return table
        some = table.filter(condition, config=config)
        return some if asked is None else some.select(asked)

    def _read(
        self,
        reader: str,
        *,
        paths: Any,
        columns: str | Sequence[str] | None,
        filters: Filters,
        storage_options: Mapping[str, Any] | None,
        config: GcylonConfig | None,
        **options: Any,
    ) -> DistTable:
        from ...formats.in_memory import in_memory
        from ...formats.reader_options import column_list, csv_options, other_delimiter, storage_of, text_options
        from ...formats.row_filters import condition_of

        given = in_memory(paths, storage_options) if reader == "read_ipc" else None
        if given is not None:
            return self._read_bytes(given, columns, filters, config)
        if options:
            options = csv_options(**options) if reader == "read_csv" else text_options(**options)
        wanted, condition = column_list("columns", columns), condition_of(filters)
        storage_of(paths, storage_options)  # what cannot be used is said here, without asking the ranks
        more = {"filters": condition, "storage_options": storage_options, "config": config}
        table = self._make(reader, absolute(paths), wanted, **options, **more)
        hint = other_delimiter(table.columns, options["delimiter"]) if reader == "read_csv" else ""
        if hint:
            warn(hint)
        return table

    def _make(self, action: str, *args: Any, **kwargs: Any) -> DistTable:
        from ..handles.handle import DistTable

        request = Request(action, args=args, kwargs=kwargs)
        return self._session.make(request, partial(DistTable, self._session))


def _first_rows(plan: Any, columns: Sequence[str] | None) -> Any:
    from ...formats import io

    return next(iter(io.read_parquet_chunks(plan, columns=columns, max_rows=_FIRST_ROWS)))


class DistAppender:
    """Rows on the ranks that will be a table. Made by `Cluster.empty`; given up by `release`, or when it is collected.

    What was appended counts in the ranks' budget, and is staged like a table where others need the room.
    """

    def __init__(self, session: Session, capacity: int, name: str, replies: Sequence[Reply]) -> None:
        self._session = session
        self._name = name
        self._generation = session.generation
        self._sizes = [(0, 0)] * len(replies)
        self._finalizer = weakref.finalize(self, session.drop_later, name)
        self._finalizer.atexit = False
        self.capacity = capacity

    @property
    def num_rows(self) -> int:
        """Rows so far, on all ranks."""
        return sum(rows for rows, _ in self._sizes)

    @property
    def nbytes(self) -> int:
        """Bytes so far, on all ranks, in all tiers."""
        return sum(nbytes for _, nbytes in self._sizes)

    def append(self, rows: Any) -> None:
        """Append rows: all of them, or none where anything goes wrong.

        Parameters
        ----------
        rows : pandas.DataFrame, Arrow data, mapping of str to array, or iterable of frames or Arrow data
            With the columns that `Cluster.empty` was given. A frame or table is spread evenly, in order; of an
            iterable each piece goes to the rank that is ahead.

        Raises
        ------
        ColumnMissing, SchemaMismatch
            If they have other columns, or values that the dtypes do not hold.
        BudgetExceeded
            If they do not fit and staging is not allowed.
        HandleReleased
            If it was released, or is a table by now.
        """
        self._check()
        self._sizes = [reply.value for reply in append(self._session, self._name, rows)]

    def table(self) -> DistTable:
        """Make a table of all rows. Nothing can be appended afterwards."""
        self._check()
        made = self._session.make(Request("appended", self._name), partial(DistTable, self._session))
        self.release()
        return made

    def release(self) -> None:
        """Give the rows up. Idempotent."""
        alive = not self._session.closed and self._session.generation == self._generation
        if self._finalizer.detach() is not None and alive:
            self._session.drop(self._name)

    def __repr__(self) -> str:
        if not self._finalizer.alive:
            return "<DistAppender: released, or a table by now>"
        return (
            f"<DistAppender {self._name}: {format_count(self.num_rows)} rows, {format_bytes(self.nbytes)}, "
            f"room claimed for {format_count(self.capacity)}>"
        )

    def _check(self) -> None:
        if not self._finalizer.alive:
            raise HandleReleased("These rows were released, or are a table by now.", advice="Begin anew with empty().")
        if self._session.closed or self._session.generation != self._generation:
            raise HandleReleased(
                f"These rows are gone: the cluster {self._session.name!r} was closed or restarted.",
                advice="Begin anew with empty().",
            )
