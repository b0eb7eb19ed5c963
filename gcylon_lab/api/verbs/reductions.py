"""Reductions: one value for a whole column, the same on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...backends.protocol.schema import Label
from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions, listed
from ...operators.group.describe import DESCRIBED, most_frequent, together
from ...operators.group.describe import describe as _describe
from ...operators.group.reduce import count_rows as _count_rows
from ...operators.group.reduce import reduce_columns
from ...operators.statistics.histogram import histogram as _histogram
from ...operators.statistics.pair_sums import pair_sums
from .base import Verbs

if TYPE_CHECKING:
    import pandas as pd

Labels = Label | Sequence[Label] | None

_NUMBERS = ("int", "float", "decimal")


class ReductionVerbs(Verbs):
    """sum, mean, min, max, count, std, var, median, quantile, nunique, any, all, describe, corr, cov, histogram,
    count_rows."""

    def sum(
        self,
        columns: Labels = None,
        *,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Collective: all ranks call it. Add up columns over all ranks.

        Parameters
        ----------
        columns : label or sequence of labels, optional
            One column gives its value; several, or all by default, a pandas Series.
        numeric_only : bool, default False
            Leave out columns that hold no numbers.
        config : GcylonConfig, optional
            The same on all ranks.
        timeout_s : float, optional
            Seconds until `DeadlineExceeded`.

        Returns
        -------
        scalar or pandas.Series
            On every rank, the same bits everywhere. Missing values are skipped.

        Raises
        ------
        ColumnMissing
            If one is no column.
        UnsupportedDtype
            If a column has no such function, by its name.
        """
        return self._reduced("sum", 0.0, columns, numeric_only, RunOptions("auto", config, timeout_s))

    def mean(
        self,
        columns: Labels = None,
        *,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Collective: all ranks call it. The mean of columns; see `sum`."""
        return self._reduced("mean", 0.0, columns, numeric_only, RunOptions("auto", config, timeout_s))

    def min(
        self,
        columns: Labels = None,
        *,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Collective: all ranks call it. The least value of columns; see `sum`."""
        return self._reduced("min", 0.0, columns, numeric_only, RunOptions("auto", config, timeout_s))

    def max(
        self,
        columns: Labels = None,
        *,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Collective: all ranks call it. The greatest value of columns; see `sum`."""
        return self._reduced("max", 0.0, columns, numeric_only, RunOptions("auto", config, timeout_s))

    def count(
        self,
        columns: Labels = None,
        *,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Collective: all ranks call it. How many values columns have, without missing ones; see `sum`."""
        return self._reduced("count", 0.0, columns, numeric_only, RunOptions("auto", config, timeout_s))

    def any(self, columns: Labels = None, *, config: GcylonConfig | None = None, timeout_s: float | None = None) -> Any:
        """Collective: all ranks call it. Whether any value of columns is true; see `sum`."""
        return self._reduced("any", 0.0, columns, False, RunOptions("auto", config, timeout_s))

    def all(self, columns: Labels = None, *, config: GcylonConfig | None = None, timeout_s: float | None = None) -> Any:
        """Collective: all ranks call it. Whether all values of columns are true; see `sum`."""
        return self._reduced("all", 0.0, columns, False, RunOptions("auto", config, timeout_s))

    def var(
        self,
        columns: Labels = None,
        *,
        ddof: int = 1,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Collective: all ranks call it. The variance of columns, divided by their count less ``ddof``; see `sum`."""
        return self._reduced("var", float(ddof), columns, numeric_only, RunOptions("auto", config, timeout_s))

    def std(
        self,
        columns: Labels = None,
        *,
        ddof: int = 1,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Collective: all ranks call it. The square root of `var`; see `sum`."""
        return self._reduced("std", float(ddof), columns, numeric_only, RunOptions("auto", config, timeout_s))

    def median(
        self,
        columns: Labels = None,
        *,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Collective: all ranks call it. The median of columns, exact; see `sum`."""
        return self._reduced("median", 0.0, columns, numeric_only, RunOptions("auto", config, timeout_s))

    def quantile(
        self,
        q: float | Sequence[float] = 0.5,
        columns: Labels = None,
        *,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Collective: all ranks call it. A quantile of columns, exact, on a line between two values; see `sum`.

        Parameters
        ----------
        q : float or sequence of float, default 0.5
            In [0, 1].
        columns, numeric_only, config, timeout_s
            As for `sum`.

        Returns
        -------
        scalar, pandas.Series or pandas.DataFrame
            As of `sum`; of several quantiles, all found in one go, a frame with a row for each, or of one column a
            Series.

        Raises
        ------
        ArgumentError
            If q is no quantile, or there is none in it.
        """
        import pandas as pd

        given: Any = q
        if not isinstance(given, Iterable) or isinstance(given, str):
            return self._reduced("quantile", _as_float(q), columns, numeric_only, RunOptions("auto", config, timeout_s))
        asked = [("quantile", _as_float(one)) for one in given]
        found = self._found("quantile", asked, columns, numeric_only, RunOptions("auto", config, timeout_s))
        index = pd.Index([one for _, one in asked], dtype="float64")
        frame = pd.DataFrame({label: [found[one][label] for one in asked] for label in found[asked[0]]}, index=index)
        return frame[columns] if isinstance(columns, (str, int)) else frame

    def nunique(
        self, columns: Labels = None, *, config: GcylonConfig | None = None, timeout_s: float | None = None
    ) -> Any:
        """Collective: all ranks call it. How many different values columns have, without missing ones; see `sum`."""
        return self._reduced("nunique", 0.0, columns, False, RunOptions("auto", config, timeout_s))

    def count_rows(self, *, timeout_s: float | None = None) -> int:
        """Collective: all ranks call it. How many rows all ranks hold together."""
        return _count_rows(self._workspace, self._live(), RunOptions(timeout_s=timeout_s))

    def describe(
        self,
        columns: Labels = None,
        *,
        percentiles: Sequence[float] | None = None,
        include: Any = None,
        exclude: Any = None,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> pd.DataFrame:
        """Collective: all ranks call it. Count, mean, std, min, percentiles and max of columns of numbers and times.

        Parameters
        ----------
        columns : label or sequence of labels, optional
            By default those that pandas takes: of numbers, timedeltas, and datetimes without a time zone, and those
            with one where there is nothing else; decimals too.
        percentiles : sequence of float, optional
            In [0, 1], each once; the quartiles by default. They are exact.
        include, exclude : dtypes, optional
            Choose columns by their dtypes, as `pandas.DataFrame.select_dtypes` does; ``include="all"`` are all, also
            those without numbers, of which count, unique, top and freq are said.
        config : GcylonConfig, optional
            The same on all ranks.
        timeout_s : float, optional
            Seconds until `DeadlineExceeded`.

        Returns
        -------
        pandas.DataFrame
            On every rank, with the rows, columns and dtypes of pandas' own; datetimes have no std. Decimals are
            described as floats.

        Raises
        ------
        ArgumentError
            If percentiles are none, or there is no column of numbers or times.
        ColumnMissing
            If one is no column.
        UnsupportedDtype
            If a column that was asked for by its dtype holds neither numbers nor times.
        """
        chosen, options = None if columns is None else listed(columns), RunOptions("auto", config, timeout_s)
        schema = self.schema
        asked = list(schema.names) if include == "all" and chosen is None else chosen or []
        others = [name for name in asked if name in schema and schema[name].kind not in DESCRIBED]
        if not others or (include is not None and include != "all") or exclude is not None:
            found: pd.DataFrame = _describe(
                self._workspace, self._live(), chosen, percentiles, include, exclude, options
            )
            return found
        numbers = [name for name in asked if name not in others]
        frames = [self._frequencies(others, options)]
        if numbers:
            frames.append(_describe(self._workspace, self._live(), numbers, percentiles, None, None, options))
        return together(frames, schema, asked)

    def _frequencies(self, columns: Sequence[Label], options: RunOptions) -> pd.DataFrame:
        """Collective: all ranks call it. Of columns that hold no numbers: count, unique, top and freq."""
        import pandas as pd

        table: Any = self
        how: dict[str, Any] = {"config": options.config, "timeout_s": options.timeout_s}
        counts, unique = self.count(list(columns), **how), self.nunique(list(columns), **how)
        described = {}
        for name in columns:
            top, most = most_frequent(table, name, how)
            described[name] = pd.Series(
                {"count": int(counts[name]), "unique": int(unique[name]), "top": top, "freq": most}, dtype=object
            )
        return pd.DataFrame(described)

    def corr(
        self,
        columns: Labels = None,
        *,
        min_periods: int = 1,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> pd.DataFrame:
        """Collective: all ranks call it. Pearson's correlation of each pair of columns, as pandas has it.

        Parameters
        ----------
        columns : label or sequence of labels, optional
            All by default.
        min_periods : int, default 1
            How many rows with both values are enough.
        numeric_only : bool, default False
            Leave out columns that hold no numbers.
        config, timeout_s
            As for `sum`.

        Returns
        -------
        pandas.DataFrame
            On every rank. Of each pair, rows with both values count.
        """
        return self._pairs("corr", columns, 1, min_periods, numeric_only, RunOptions("auto", config, timeout_s))

    def cov(
        self,
        columns: Labels = None,
        *,
        ddof: int = 1,
        min_periods: int = 1,
        numeric_only: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> pd.DataFrame:
        """Collective: all ranks call it. The covariance of each pair of columns, divided by their count less ``ddof``;
        see `corr`."""
        options = RunOptions("auto", config, timeout_s)
        return self._pairs("cov", columns, int(ddof), min_periods, numeric_only, options)

    def histogram(
        self,
        column: Label,
        bins: int | Sequence[float] = 10,
        *,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Collective: all ranks call it. How many values of a column lie between edges; only counts leave the ranks.

        Parameters
        ----------
        column : label
        bins : int or sequence of float, default 10
            So many even ones from the least value to the greatest, or their edges.
        config, timeout_s
            As for `sum`.

        Returns
        -------
        ndarray of int64, ndarray of float64
            Counts and edges, as `numpy.histogram` gives them; missing values are left out. Of decimals as floats.
        """
        return _histogram(self._workspace, self._live(), column, bins, RunOptions("auto", config, timeout_s))

    def _pairs(
        self, verb: str, columns: Labels, ddof: int, min_periods: int, numeric_only: bool,
        options: RunOptions,
    ) -> pd.DataFrame:  # fmt: skip
        schema = self.schema
        names = list(schema.names) if columns is None else listed(columns)
        if numeric_only:
            names = [name for name in names if name not in schema or schema[name].kind in (*_NUMBERS, "bool")]
        return pair_sums(
            self._workspace, self._live(), verb, names, ddof=ddof, min_periods=min_periods,
            options=options,
        )  # fmt: skip

    def _reduced(
        self,
        function: str,
        argument: float,
        columns: Labels,
        numeric_only: bool,
        options: RunOptions,
    ) -> Any:
        import pandas as pd

        one = (function, argument)
        values = self._found(function, [one], columns, numeric_only, options)[one]
        if isinstance(columns, (str, int)):
            return values[columns]
        return pd.Series(list(values.values()), index=list(values), dtype=None if values else "float64")

    def _found(
        self,
        verb: str,
        functions: Sequence[tuple[str, float]],
        columns: Labels,
        numeric_only: bool,
        options: RunOptions,
    ) -> dict[tuple[str, float], dict[Label, Any]]:
        chosen = None if columns is None else listed(columns)
        kinds = (*_NUMBERS, "bool") if numeric_only else None
        return reduce_columns(self._workspace, self._live(), verb, chosen, kinds, functions, options)


def _as_float(q: Any) -> Any:
    """A quantile as a number; what is none stays what it is, and is refused by all ranks together."""
    try:
        return q if isinstance(q, str) else float(q)
    except (TypeError, ValueError):
        return q
