"""Where tables come from: files, and frames that ranks hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .config import GcylonConfig
from .context import Context, current
from .errors import ArgumentError
from .ops.foresight import check_root
from .ops.intake import empty_part, piece_bytes, reserved, take_in
from .ops.operation import Request
from .ops.repartition import repartition
from .table import Table
from .tables import io
from .tables.backend import Data
from .tables.reader_options import check_frame, column_list, csv_options, other_delimiter, text_options

if TYPE_CHECKING:
    import pandas as pd


def read_parquet(
    paths: str | Sequence[str], columns: str | Sequence[str] | None = None, *, config: GcylonConfig | None = None
) -> Table:
    """Collective: all ranks call it. Read parquet files, row groups spread evenly over the ranks in file order.

    Parameters
    ----------
    paths : str or sequence of str
        Files, folders or patterns such as ``"lineitem/*.parquet"``; the same on all ranks.
    columns : str or sequence of str, optional
        Only these.
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
    context = current()
    wanted = column_list("columns", columns)

    def make(max_bytes: int) -> Iterator[Data]:
        plan = io.plan_parquet(paths, context.size, columns=wanted)[context.rank]
        return io.read_parquet_chunks(plan, columns=wanted, max_bytes=max_bytes)

    return _read("read_parquet", {"paths": _listed(paths), "columns": wanted}, context, config, make)


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
    config: GcylonConfig | None = None,
) -> Table:
    """Collective: all ranks call it. Read csv files; each file is split over the ranks at line ends.

    Parameters
    ----------
    paths : str or sequence of str
        Files, folders or patterns; the same on all ranks.
    columns : str or sequence of str, optional
        Only these.
    delimiter : str, default ","
    header : bool, default True
        Whether the first line of each file names the columns.
    dtype : mapping of str to dtype, optional
        Dtypes of columns, as text or as Python's and numpy's types; those of others come from the first
        megabytes of the first file.
    parse_dates : str or sequence of str, optional
        Columns to read as datetimes.
    newlines_in_values : bool, default False
        Whether quoted values may hold line ends; such files each go to one rank whole.
    quotes : bool, default True
        Whether double quotes enclose values.
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
    context = current()
    wanted = column_list("columns", columns)
    options = csv_options(
        delimiter=delimiter, header=header, dtype=dtype, parse_dates=parse_dates,
        newlines_in_values=newlines_in_values, quotes=quotes,
    )  # fmt: skip

    def make(max_bytes: int) -> Iterator[Data]:
        plan = io.plan_csv(paths, context.size, **options)[context.rank]
        return io.read_csv_chunks(plan, columns=wanted, max_bytes=max_bytes)

    table = _read("read_csv", {"paths": _listed(paths), "columns": wanted, **options}, context, config, make)
    hint = other_delimiter(table.columns, delimiter)
    if hint and context.rank == 0:
        warnings.warn(hint, stacklevel=2)
    return table


def read_json(
    paths: str | Sequence[str],
    columns: str | Sequence[str] | None = None,
    *,
    dtype: Mapping[str, Any] | None = None,
    parse_dates: str | Sequence[str] = (),
    config: GcylonConfig | None = None,
) -> Table:
    """Collective: all ranks call it. Read files of one JSON object a line; each file is split over the ranks.

    Parameters
    ----------
    paths : str or sequence of str
        Files, folders or patterns; the same on all ranks.
    columns : str or sequence of str, optional
        Only these.
    dtype, parse_dates
        As for `read_csv`.
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
    context = current()
    wanted = column_list("columns", columns)
    options = text_options(dtype=dtype, parse_dates=parse_dates)

    def make(max_bytes: int) -> Iterator[Data]:
        plan = io.plan_json(paths, context.size, **options)[context.rank]
        return io.read_json_chunks(plan, columns=wanted, max_bytes=max_bytes)

    return _read("read_json", {"paths": _listed(paths), "columns": wanted, **options}, context, config, make)


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
    request = Request("from_local", {}, empty_part(context.workspace), config=config)

    def make() -> Iterator[Data]:
        for frame in several:
            check_frame(frame)
            yield backend.from_frame(frame)

    part = take_in(context.workspace, request, make)
    return Table(part, context)


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
    workspace = context.workspace

    def make() -> Iterator[Data]:
        check_root(root, context.size)
        if context.rank == root:
            if frame is None:
                raise ArgumentError("from_pandas got no frame on its root.", advice=f"Pass a frame on rank {root}.")
            check_frame(frame)
            yield workspace.backend.from_frame(frame)

    request = Request("from_pandas", {"root": root}, empty_part(workspace), config=config)
    part = take_in(workspace, request, make, only=root)
    try:
        spread, plan = repartition(workspace, part, config=config)
    finally:
        part.release()  # an error that is kept would hold it
    return Table(spread, context, plan)


def _read(verb: str, arguments: dict[str, Any], context: Context, config: GcylonConfig | None, make: Any) -> Table:
    workspace = context.workspace
    request = Request(verb, arguments, empty_part(workspace), config=config)

    def pieces() -> Iterator[Data]:
        # Asked for inside the operation: its limit, which may be the live config's, holds by then.
        max_bytes = piece_bytes(workspace.budget.limit_bytes)
        return reserved(workspace, (workspace.backend.from_host(piece) for piece in make(max_bytes)), max_bytes)

    return Table(take_in(workspace, request, pieces), context)


def _listed(paths: str | Sequence[str]) -> list[str]:
    return [str(paths)] if not isinstance(paths, (list, tuple)) else [str(path) for path in paths]
