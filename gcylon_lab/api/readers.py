"""Where tables come from: files, and frames that ranks hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..backends.protocol.data import Data
from ..config import GcylonConfig
from ..engine.exec.invocation import Request, RunOptions
from ..engine.plan.estimate import check_root
from ..errors import ArgumentError, ReadError, SchemaMismatch, warn
from ..formats import io
from ..formats.in_memory import in_memory
from ..formats.reader_options import (
    check_frame,
    column_list,
    csv_options,
    other_delimiter,
    storage_of,
    text_options,
)
from ..formats.row_filters import Filters, condition_of, read_columns
from ..operators.exchange.redistribution import repartition
from ..operators.io.ingest import empty_part, ingest
from ..operators.io.notebook_rows import Incoming, receive_rows
from ..operators.io.read import read_files
from ..runtime.context import current
from ..runtime.registry import clusters
from .table import Table
from .verbs.arguments import fitted

if TYPE_CHECKING:
    import pandas as pd

_told: set[str] = set()


@fitted
def read_parquet(
    paths: str | Sequence[str],
    columns: str | Sequence[str] | None = None,
    *,
    filters: Filters = None,
    storage_options: Mapping[str, Any] | None = None,
    config: GcylonConfig | None = None,
) -> Table:
    """Collective: all ranks call it. Read parquet files, row groups spread evenly over the ranks in file order.

    Parameters
    ----------
    paths : str or sequence of str
        Files, folders or patterns such as ``"lineitem/*.parquet"``, or URLs of such that fsspec knows; the same on
        all ranks. Folders ``key=value`` below a folder or pattern become columns, the last ones: ints, bools, days
        or text.
    columns : str or sequence of str, optional
        Only these.
    filters : Expression or list, optional
        Only rows of which it holds, as `Table.filter` gives them: ``gl.col("x") > 3``, or tuples as pandas takes them.
        Row groups and files that statistics and folders' names rule out are not read; `Table.explain` says how many.
    storage_options : mapping, optional
        For the filesystem of URLs, as fsspec takes them.
    config : GcylonConfig, optional
        The same on all ranks; rank 0's live one by default.

    Returns
    -------
    Table
        What does not fit the budget is staged while reading.

    Raises
    ------
    ReadError
        On all ranks, if a file is missing or cannot be read, naming it.
    """
    storage = storage_of(paths, storage_options)
    read = _Reading("read_parquet", paths, columns, filters, storage, config)

    how: dict[str, Any] = {"int96_unit": "ns", "nullable": ()}

    def plan(size: int) -> list[io.ParquetPlan]:
        return io.plan_parquet(paths, size, columns=read.columns, condition=read.condition, storage=storage, **how)

    while True:  # what statistics would have told is told by values: with an error that is the same on all ranks
        try:
            return read.table(plan, io.read_parquet_chunks)
        except ReadError as error:
            if "read_as" not in error.numbers:
                raise
            how["int96_unit"] = error.numbers["read_as"]
        except SchemaMismatch as error:
            name = error.numbers.get("column")
            if not error.numbers.get("rounds_ints") or name in how["nullable"]:
                raise
            how["nullable"] += (name,)


@fitted
def read_csv(
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
) -> Table:
    """Collective: all ranks call it. Read csv files; each file is split over the ranks at line ends.

    Parameters
    ----------
    paths : str or sequence of str
        Files, folders or patterns, or URLs of such; the same on all ranks. Compressed files are known by their
        ending (.gz, .bz2, .zst, .lz4, .br), and each is read by one rank.
    columns : str or sequence of str, optional
        Only these.
    delimiter : str, default ","
    header : bool, default True
        Whether the first line of each file names the columns.
    dtype : mapping of str to dtype, optional
        Dtypes of columns, as text or as Python's and numpy's types, such as ``"datetime64[us, UTC]"`` for times with
        offsets; those of others come from the first megabytes of the first file.
    parse_dates : str or sequence of str, optional
        Columns to read as datetimes: of UTC where they have offsets from it, in ns where nanoseconds are written.
    newlines_in_values : bool, default False
        Whether each file goes to one rank whole. Line ends inside quotes need it only where a quoted value of more
        than a MiB lies where a file is split over the ranks, which is an error otherwise.
    quotes : bool, default True
        Whether double quotes enclose values.
    filters : Expression or list, optional
        Only rows of which it holds; see `read_parquet`.
    storage_options : mapping, optional
        For the filesystem of URLs, as fsspec takes them.
    config : GcylonConfig, optional
        As for `read_parquet`.

    Returns
    -------
    Table

    Raises
    ------
    ReadError
        On all ranks, if a file is missing or cannot be read, naming it.
    """
    options = csv_options(
        delimiter=delimiter, header=header, dtype=dtype, parse_dates=parse_dates,
        newlines_in_values=newlines_in_values, quotes=quotes,
    )  # fmt: skip
    storage = storage_of(paths, storage_options)
    table = _Reading("read_csv", paths, columns, filters, storage, config, options).table(
        lambda size: io.plan_csv(paths, size, **options, storage=storage), io.read_csv_chunks
    )
    hint = other_delimiter(table.columns, delimiter)
    if hint and current().rank == 0:
        warn(hint)
    return table


@fitted
def read_json(
    paths: str | Sequence[str],
    columns: str | Sequence[str] | None = None,
    *,
    dtype: Mapping[str, Any] | None = None,
    parse_dates: str | Sequence[str] = (),
    filters: Filters = None,
    storage_options: Mapping[str, Any] | None = None,
    config: GcylonConfig | None = None,
) -> Table:
    """Collective: all ranks call it. Read files of one JSON object a line; each file is split over the ranks.

    Parameters
    ----------
    paths : str or sequence of str
        Files, folders or patterns, or URLs of such; the same on all ranks. Compressed files are known by their
        ending (.gz, .bz2, .zst, .lz4, .br), and each is read by one rank.
    columns : str or sequence of str, optional
        Only these.
    dtype, parse_dates
        As for `read_csv`. Where ``"str"`` is asked for, values that are no text are read as their JSON text.
    filters : Expression or list, optional
        Only rows of which it holds; see `read_parquet`.
    storage_options : mapping, optional
        For the filesystem of URLs, as fsspec takes them.
    config : GcylonConfig, optional
        As for `read_parquet`.

    Returns
    -------
    Table

    Raises
    ------
    ReadError
        On all ranks, if a file is missing or cannot be read, naming it.
    """
    options = text_options(dtype=dtype, parse_dates=parse_dates)
    storage = storage_of(paths, storage_options)
    return _Reading("read_json", paths, columns, filters, storage, config, options).table(
        lambda size: io.plan_json(paths, size, **options, storage=storage), io.read_json_chunks
    )


@fitted
def read_ipc(
    paths: str | Sequence[str] | Any,
    columns: str | Sequence[str] | None = None,
    *,
    filters: Filters = None,
    storage_options: Mapping[str, Any] | None = None,
    config: GcylonConfig | None = None,
) -> Table:
    """Collective: all ranks call it. Read Arrow IPC files (Feather) and streams, spread evenly over the ranks by rows.

    Parameters
    ----------
    paths : str or sequence of str, or bytes
        Files, folders or patterns, or URLs of such; the same on all ranks. Or the bytes of one file or stream, the
        same on all ranks too: ``bytes``, another buffer, or ``io.BytesIO``.
    columns : str or sequence of str, optional
        Only these.
    filters : Expression or list, optional
        Only rows of which it holds; see `read_parquet`.
    storage_options : mapping, optional
        For the filesystem of URLs, as fsspec takes them.
    config : GcylonConfig, optional
        As for `read_parquet`.

    Returns
    -------
    Table
        A record batch that is compressed is unpacked whole, inside the budget; all else is read piece by piece.

    Raises
    ------
    ReadError
        On all ranks, if a file is missing or cannot be read, naming it, or ranks were given different bytes.
    """
    given = in_memory(paths, storage_options)
    storage = storage_of(paths, storage_options) if given is None else given
    paths = paths if given is None else given.path
    read = _Reading("read_ipc", paths, columns, filters, storage, config)
    return read.table(lambda size: io.plan_ipc(paths, size, columns=read.columns, storage=storage), io.read_ipc_chunks)


def from_local(frames: pd.DataFrame | Iterable[pd.DataFrame], *, config: GcylonConfig | None = None) -> Table:
    """Collective: all ranks call it. Make a table of the rows that each rank has.

    Parameters
    ----------
    frames : pandas.DataFrame or iterable of pandas.DataFrame
        This rank's rows; copied. The index is not carried. An iterable may give more than
        fits the budget: what does not fit is staged before the next frame is asked for.
    config : GcylonConfig, optional
        The same on all ranks; rank 0's live one by default.

    Returns
    -------
    Table

    Raises
    ------
    UnsupportedDtype, DuplicateColumns
        On all ranks, if a column of some rank cannot be held.
    SchemaMismatch, ColumnMissing
        If the ranks' columns do not fit each other.
    """
    context = current()
    backend = context.workspace.backend
    one = hasattr(frames, "iloc") or isinstance(frames, (str, dict)) or not isinstance(frames, Iterable)
    several = [frames] if one else frames
    request = Request("from_local", {}, empty_part(context.workspace), RunOptions(config=config))

    def make() -> Iterator[Data]:
        for frame in several:
            check_frame(frame)
            yield backend.from_frame(frame)

    part = ingest(context.workspace, request, make)
    return Table(part, context)


def from_pieces(
    incoming: Incoming,
    verb: str,
    expected_bytes: int = 0,
    *,
    config: GcylonConfig | None = None,
) -> Table:
    """Collective: all ranks call it. Make a table of rows that each rank is sent, piece by piece.

    Parameters
    ----------
    incoming : Incoming
        This rank's rows.
    verb : str
        The call that they are of.
    expected_bytes : int, default 0
        About what this rank's rows take; 0 where that is not known.
    config : GcylonConfig, optional
        As for `from_local`.

    Returns
    -------
    Table
    """
    context = current()
    request = Request(verb, {}, empty_part(context.workspace), RunOptions(config=config))
    return Table(receive_rows(context.workspace, request, incoming, expected_bytes), context)


def from_pandas(frame: pd.DataFrame | None, root: int = 0, *, config: GcylonConfig | None = None) -> Table:
    """Collective: all ranks call it. Spread one rank's frame evenly over all ranks, in order.

    Parameters
    ----------
    frame : pandas.DataFrame
        Looked at on the root only.
    root : int, default 0
        The rank that has it.
    config : GcylonConfig, optional
        As for `from_local`.

    Returns
    -------
    Table
    """
    context = current()
    _tell_of_engines(context.size, "from_pandas")
    workspace = context.workspace

    def make() -> Iterator[Data]:
        check_root(root, context.size)
        if context.rank == root:
            if frame is None:
                raise ArgumentError("from_pandas got no frame on its root.", advice=f"Pass a frame on rank {root}.")
            check_frame(frame)
            yield workspace.backend.from_frame(frame)

    request = Request("from_pandas", {"root": root}, empty_part(workspace), RunOptions(config=config))
    part = ingest(workspace, request, make, only=root)
    try:
        spread, plan = repartition(workspace, part, options=RunOptions(config=config))
    finally:
        part.release()  # an error that is kept would hold it
    return Table(spread, context, plan)


def _tell_of_engines(size: int, verb: str) -> None:
    """Say once that a process alone makes a table of its own, where it has a cluster whose engines could."""
    if size > 1 or not clusters or _told:
        return
    _told.add(verb)
    warn(
        f"gl.{verb} makes a table in this process alone, of one rank. To have it on the engines of the cluster "
        f"{next(reversed(clusters))!r}, call the cluster's own, as in lab.{verb}(...)."
    )


class _Reading:
    """One call of a reader on this rank."""

    def __init__(
        self,
        verb: str,
        paths: str | Sequence[str],
        columns: str | Sequence[str] | None,
        filters: Filters,
        storage: io.Storage,
        config: GcylonConfig | None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._context = current()
        _tell_of_engines(self._context.size, verb)
        self._asked = column_list("columns", columns)
        self._storage = storage
        self.condition = condition_of(filters)
        self.columns = read_columns(self._asked, self.condition)
        said = {"paths": _listed(paths), "columns": self._asked, **(options or {})}
        more = {"filters": self.condition, "storage_options": sorted(storage.options) or None}
        said |= {name: value for name, value in more.items() if value is not None}
        self._request = Request(verb, said, empty_part(self._context.workspace), RunOptions(config=config))

    def table(self, plan: Callable[[int], Sequence[Any]], chunks: Callable[..., Iterator[Any]]) -> Table:
        """Read."""
        workspace = self._context.workspace

        def planned(size: int) -> Sequence[Any]:
            self._storage.limit_bytes = workspace.budget.limit_bytes  # that of the operation, which runs by now
            return plan(size)

        try:
            part, made = read_files(
                workspace, self._request, planned, chunks, self.columns, self.condition, self._asked
            )
        except SchemaMismatch as error:
            _advise_reader(error, has_dtypes="dtype" in self._request.arguments)
            raise
        return Table(part, self._context, made)


def _advise_reader(error: SchemaMismatch, *, has_dtypes: bool) -> None:
    """Say what a reader can do where pieces do not go together: nobody can convert them before."""
    name = error.numbers.get("column")
    if "columns=" in error.advice or name is None:
        return
    text = f"Pass dtype={{{name!r}: 'str'}}, or another dtype that all its values have."
    error.advice = text if has_dtypes else "Read the files one by one, or leave the column out with columns=[...]."


def _listed(paths: str | Sequence[str]) -> list[str]:
    return [str(paths)] if not isinstance(paths, (list, tuple)) else [str(path) for path in paths]
