"""Rows before each row: what is computed of the last ones, or of all, as expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....errors import ArgumentError
from ..scalars import whole_number


class Rolling:
    """The last rows of each row, made by `Expression.rolling`.

    Parameters
    ----------
    of : Expression
    window : int
        How many rows.
    min_periods : int, optional
        How many values are enough.
    """

    def __init__(self, of: Any, window: int, min_periods: int | None = None) -> None:
        self._of, self._window = of, whole_number("window", window, least=1)
        periods = window if min_periods is None else whole_number("min_periods", min_periods, least=0)
        if periods > window:
            raise ArgumentError(f"min_periods={periods} is more than window={window}.", advice="Give at most that.")
        self._periods = periods

    def sum(self) -> Any:
        """The sum of the values in these rows."""
        return self._rolled("sum")

    def mean(self) -> Any:
        """The mean of the values in these rows."""
        return self._rolled("mean")

    def min(self) -> Any:
        """The least of the values in these rows."""
        return self._rolled("min")

    def max(self) -> Any:
        """The greatest of the values in these rows."""
        return self._rolled("max")

    def std(self) -> Any:
        """The standard deviation of the values in these rows."""
        return self._rolled("std")

    def var(self) -> Any:
        """The variance of the values in these rows."""
        return self._rolled("var")

    def count(self) -> Any:
        """How many values are in these rows."""
        return self._rolled("count")

    def _rolled(self, function: str) -> Any:
        return self._of._window("rolling", function=function, window=self._window, min_periods=self._periods)

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"there is no rolling(n).{name}; there are sum, mean, min, max, std, var and count")


class Expanding:
    """All rows up to each row, made by `Expression.expanding`.

    Parameters
    ----------
    of : Expression
    min_periods : int
        How many values are enough.
    """

    def __init__(self, of: Any, min_periods: int = 1) -> None:
        self._of, self._periods = of, whole_number("min_periods", min_periods, least=0)

    def count(self) -> Any:
        """How many values are in these rows, as a float; of fewer rows than values are enough there is no answer."""
        if self._periods < 2:
            return self._counted()
        rows = (self._of.isna() | self._of.notna()).astype("float64").cumsum()
        return self._counted().where(rows >= self._periods, None)

    def sum(self) -> Any:
        """The sum of the values in these rows."""
        return self._enough(self._of.astype("float64").fillna(0.0).cumsum())

    def mean(self) -> Any:
        """The mean of the values in these rows."""
        return self._enough(self._of.astype("float64").fillna(0.0).cumsum() / self._counted())

    def min(self) -> Any:
        """The least of the values in these rows."""
        return self._enough(self._of.astype("float64").cummin().ffill())

    def max(self) -> Any:
        """The greatest of the values in these rows."""
        return self._enough(self._of.astype("float64").cummax().ffill())

    def _counted(self) -> Any:
        return self._of.notna().astype("float64").cumsum()

    def _enough(self, made: Any) -> Any:
        return made.where(self._counted() >= self._periods, None)

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"there is no expanding().{name}; there are count, sum, mean, min and max")
