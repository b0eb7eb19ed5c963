"""How a cluster comes by tables: files that its ranks read, and frames of the notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...api.verbs.arguments import fitted
from ...config import GcylonConfig
from ...errors import ReadError, warn
from ..handles.forwarding import absolute
from ..messages import Request

if TYPE_CHECKING:
    import pandas as pd

    from ...formats.in_memory import InMemory
    from ...formats.row_filters import Filters
    from ...operators.io.read_estimate import ReadEstimate
    from ..handles.handle import DistTable
    from .appender import DistAppender
    from .session import Session

_FIRST_ROWS = 4096  # of a row group, whose width is taken for that of others


class Readers:
    """The part of `Cluster` that makes tables."""

    _session: Session

    @fitted
    def read_parquet(
        self,
        paths: str | Sequence[str],
        columns: str | Sequence[str] | None = None,
        *,
        filters: Filters = None,
        storage_options: Mapping[str, Any] | None = None,
        config: GcylonConfig | None = None,
    ) -> DistTable:
        """Read parquet files, row groups spread evenly over the ranks in file order; as `gcylon_lab.read_parquet`.

        Parameters
        ----------
        paths : str or sequence of str
            Files, folders or patterns, or URLs of such that fsspec knows. Folders ``key=value`` become columns.
        columns : str or sequence of str, optional
            Only these.
        filters : Expression or list, optional
            Only rows of which it holds: ``gl.col("x") > 3``, or tuples as pandas takes them. Row groups and files that
            statistics and folders' names rule out are not read; `DistTable.explain` says how many.
        storage_options : mapping, optional
            For the filesystem of URLs, as fsspec takes them.
        config : GcylonConfig, optional
            The live one by default.
        """
        return self._read("read_parquet", paths, columns, filters, storage_options, config)

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
    def read_csv(
        self,
        paths: str | Sequence[str],
        columns: str | Sequence[str] | None = None,
        *,
        delimiter: str = ",",
        header: bool = True,
        dtype: Mapping[str, Any] | None = None,
        parse_dates: str | Sequence[str] = (),
        newlines_in_values: bool = False,
        quotes: bool = True,
        filters: Filters = None,
        storage_options: Mapping[str, Any] | None = None,
        config: GcylonConfig | None = None,
    ) -> DistTable:
        """Read csv files, each split over the ranks at line ends; as `gcylon_lab.read_csv`.

        Parameters
        ----------
        paths : str or sequence of str
            Files, folders or patterns.
        columns : str or sequence of str, optional
            Only these.
        delimiter : str, default ","
        header : bool, default True
            Whether the first line of each file names the columns.
        dtype : mapping of str to dtype, optional
            Dtypes of columns; those of others come from the first megabytes of the first file.
        parse_dates : str or sequence of str, optional
            Columns to read as datetimes: of UTC where they have offsets from it.
        newlines_in_values : bool, default False
            Whether each file goes to one rank whole. Line ends inside quotes need it only where a quoted value of
            more than a MiB lies where a file is split over the ranks, which is an error otherwise.
        quotes : bool, default True
            Whether double quotes enclose values.
        filters, storage_options
            As for `read_parquet`.
        config : GcylonConfig, optional
            The live one by default.
        """
        from ...formats.reader_options import csv_options, other_delimiter

        options = csv_options(
            delimiter=delimiter, header=header, dtype=dtype, parse_dates=parse_dates,
            newlines_in_values=newlines_in_values, quotes=quotes,
        )  # fmt: skip
        table = self._read("read_csv", paths, columns, filters, storage_options, config, options)
        hint = other_delimiter(table.columns, delimiter)
        if hint:
            warn(hint)
        return table

    @fitted
    def read_json(
        self,
        paths: str | Sequence[str],
        columns: str | Sequence[str] | None = None,
        *,
        dtype: Mapping[str, Any] | None = None,
        parse_dates: str | Sequence[str] = (),
        filters: Filters = None,
        storage_options: Mapping[str, Any] | None = None,
        config: GcylonConfig | None = None,
    ) -> DistTable:
        """Read files of one JSON object a line; as `gcylon_lab.read_json`, with its options."""
        from ...formats.reader_options import text_options

        options = text_options(dtype=dtype, parse_dates=parse_dates)
        return self._read("read_json", paths, columns, filters, storage_options, config, options)

    @fitted
    def read_ipc(
        self,
        paths: str | Sequence[str] | Any,
        columns: str | Sequence[str] | None = None,
        *,
        filters: Filters = None,
        storage_options: Mapping[str, Any] | None = None,
        config: GcylonConfig | None = None,
    ) -> DistTable:
        """Read Arrow IPC files and streams, spread evenly over the ranks by rows; as `gcylon_lab.read_ipc`.

        Parameters
        ----------
        paths : str or sequence of str, or bytes
            Files, folders or patterns, or URLs of such. Or the bytes of one file or stream: ``bytes``, another buffer,
            or ``io.BytesIO``; each rank is sent its rows alone.
        columns : str or sequence of str, optional
            Only these.
        filters, storage_options, config
            As for `read_parquet`.
        """
        from ...formats.in_memory import in_memory

        given = in_memory(paths, storage_options)
        if given is not None:
            return self._read_bytes(given, columns, filters, config)
        return self._read("read_ipc", paths, columns, filters, storage_options, config)

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
        from .appender import DistAppender

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
        paths: str | Sequence[str],
        columns: str | Sequence[str] | None,
        filters: Filters,
        storage_options: Mapping[str, Any] | None,
        config: GcylonConfig | None,
        options: Mapping[str, Any] | None = None,
    ) -> DistTable:
        from ...formats.reader_options import column_list, storage_of
        from ...formats.row_filters import condition_of

        wanted, condition = column_list("columns", columns), condition_of(filters)
        storage_of(paths, storage_options)  # what cannot be used is said here, without asking the ranks
        more = {"filters": condition, "storage_options": storage_options, "config": config}
        return self._make(reader, absolute(paths), wanted, **(options or {}), **more)

    def _make(self, action: str, *args: Any, **kwargs: Any) -> DistTable:
        from ..handles.handle import DistTable

        request = Request(action, args=args, kwargs=kwargs)
        return self._session.make(request, partial(DistTable, self._session))


def _first_rows(plan: Any, columns: Sequence[str] | None) -> Any:
    from ...formats import io

    return next(iter(io.read_parquet_chunks(plan, columns=columns, max_rows=_FIRST_ROWS)))
