"""How a cluster comes by tables: files that its ranks read, and frames of the notebook."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..config import GcylonConfig
from .messages import Request

if TYPE_CHECKING:
    import pandas as pd

    from .handle import DistTable
    from .session import Session


class Readers:
    """The part of `Cluster` that makes tables."""

    _session: Session

    def read_parquet(
        self,
        paths: str | Sequence[str],
        columns: str | Sequence[str] | None = None,
        *,
        config: GcylonConfig | None = None,
    ) -> DistTable:
        """Read parquet files, row groups spread evenly over the ranks in file order; as `gcylon_lab.read_parquet`."""
        from ..tables.reader_options import column_list

        return self._make("read_parquet", _absolute(paths), column_list("columns", columns), config=config)

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
            Columns to read as datetimes.
        newlines_in_values : bool, default False
            Whether quoted values may hold line ends; such files each go to one rank whole.
        quotes : bool, default True
            Whether double quotes enclose values.
        config : GcylonConfig, optional
            The live one by default.
        """
        from ..tables.reader_options import column_list, csv_options, other_delimiter

        options = csv_options(
            delimiter=delimiter, header=header, dtype=dtype, parse_dates=parse_dates,
            newlines_in_values=newlines_in_values, quotes=quotes,
        )  # fmt: skip
        wanted = column_list("columns", columns)
        table = self._make("read_csv", _absolute(paths), wanted, **options, config=config)
        hint = other_delimiter(table.columns, delimiter)
        if hint:
            warnings.warn(hint, stacklevel=2)
        return table

    def read_json(
        self,
        paths: str | Sequence[str],
        columns: str | Sequence[str] | None = None,
        *,
        dtype: Mapping[str, Any] | None = None,
        parse_dates: str | Sequence[str] = (),
        config: GcylonConfig | None = None,
    ) -> DistTable:
        """Read files of one JSON object a line; as `gcylon_lab.read_json`, with its options."""
        from ..tables.reader_options import column_list, text_options

        options = text_options(dtype=dtype, parse_dates=parse_dates)
        return self._make("read_json", _absolute(paths), column_list("columns", columns), **options, config=config)

    def from_pandas(self, frame: pd.DataFrame, *, config: GcylonConfig | None = None) -> DistTable:
        """Spread a frame of the notebook evenly over the ranks, in order. Its index is not carried.

        Every rank is sent its share alone.
        """
        from ..tables.reader_options import check_frame
        from .handle import DistTable, cut_evenly

        check_frame(frame)
        result = self._session.new_id()
        request = Request("from_local", result=result, kwargs={"config": config})
        replies = self._session.call(request, each=cut_evenly(frame, self._session.launcher.n))
        return DistTable(self._session, result, replies)

    def _make(self, action: str, *args: Any, **kwargs: Any) -> DistTable:
        from .handle import DistTable

        result = self._session.new_id()
        return DistTable(self._session, result, self._session.call(Request(action, "", result, args, kwargs)))


def _absolute(paths: str | Sequence[str]) -> Any:
    """Paths as the engines find them, wherever the notebook has gone since they started."""
    if isinstance(paths, (list, tuple)):
        return [_absolute(path) for path in paths]
    text = str(paths)
    return text if "://" in text else os.path.abspath(os.path.expanduser(text))
