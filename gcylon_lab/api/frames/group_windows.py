"""Functions of groups that have an answer for each row: ``t.groupby("k")["x"].cumsum()``.

The answers are columns of the table, in its order: ``t.assign(total=t.groupby("k")["x"].cumsum())`` takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...backends.protocol.aggregation import FUNCTIONS
from ...backends.protocol.expressions import Expression
from ...backends.protocol.methods.signatures import in_own_words
from ...errors import ArgumentError

Make = Callable[[Any], Any]
_ROLLED = ("sum", "mean", "min", "max", "std", "var", "count")


@in_own_words
class GroupWindows:
    """cumsum, cumprod, cummax, cummin, shift, diff, pct_change, rank, ffill, bfill, rolling, transform."""

    def _over(self, make: Make) -> Any:
        """What is made of each column, among the rows of its group."""
        raise NotImplementedError

    def cumsum(self) -> Any:
        """The sums up to and with each row of a group; see `Expression.cumsum`."""
        return self._over(Expression.cumsum)

    def cumprod(self) -> Any:
        """The products up to and with each row of a group."""
        return self._over(Expression.cumprod)

    def cummax(self) -> Any:
        """The greatest values up to and with each row of a group."""
        return self._over(Expression.cummax)

    def cummin(self) -> Any:
        """The least values up to and with each row of a group."""
        return self._over(Expression.cummin)

    def shift(self, periods: int = 1) -> Any:
        """The values so many rows before in a group; see `Expression.shift`."""
        return self._over(lambda value: value.shift(periods))

    def diff(self, periods: int = 1) -> Any:
        """The values less those of so many rows before in a group."""
        return self._over(lambda value: value.diff(periods))

    def pct_change(self, periods: int = 1) -> Any:
        """The values divided by those of so many rows before in a group, less 1."""
        return self._over(lambda value: value.pct_change(periods))

    def rank(self, method: str = "average", *, ascending: bool = True, pct: bool = False) -> Any:
        """The place of each value in the order of its group; see `Expression.rank`."""
        return self._over(lambda value: value.rank(method, ascending=ascending, pct=pct))

    def ffill(self) -> Any:
        """In the place of missing values the last one before in a group."""
        return self._over(Expression.ffill)

    def bfill(self) -> Any:
        """In the place of missing values the first one after in a group."""
        return self._over(Expression.bfill)

    def rolling(self, window: int, min_periods: int | None = None) -> GroupRolling:
        """The last rows of a group: ``rolling(3).mean()``; the answers stay in the order of the table."""
        return GroupRolling(self, window, min_periods)

    def transform(self, function: str, argument: float | None = None) -> Any:
        """A function of all values of a group, for each of its rows.

        Parameters
        ----------
        function : str
            As `GroupBy.agg` has them: "mean", "sum", "max", "count", "size", "median", "nunique", ...
        argument : float, optional
            Of "quantile", "var" and "std".

        Raises
        ------
        ArgumentError
            If there is no such function.
        """
        if not isinstance(function, str) or function not in FUNCTIONS or function == "list":
            said = "a function" if callable(function) else repr(function)
            raise ArgumentError(
                f"transform takes the name of a function, got {said}.",
                advice=f"There are {', '.join(FUNCTIONS[:-1])}, as in transform('mean'), with which columns are "
                "computed: t.x - t.groupby('k')['x'].transform('mean').",
            )
        return self._over(lambda value: value._window("transform", function=function, argument=argument))


class GroupRolling:
    """The last rows of each row in its group; made by ``t.groupby(keys)["x"].rolling(n)``.

    Parameters
    ----------
    groups : GroupBy or GroupedColumns
    window : int
    min_periods : int, optional
    """

    def __init__(self, groups: GroupWindows, window: int, min_periods: int | None) -> None:
        self._groups, self._window, self._periods = groups, window, min_periods

    if not TYPE_CHECKING:  # sum, mean, min, max, std, var and count, as `Rolling` has them

        def __getattr__(self, name: str) -> Any:
            if name not in _ROLLED:
                raise AttributeError(
                    f"there is no groupby(keys).rolling(n).{name}; there are {', '.join(_ROLLED)}, and a column is "
                    "chosen before, as t.groupby('k')['x'].rolling(3).mean()"
                )
            make = self._groups._over
            return lambda: make(lambda value: getattr(value.rolling(self._window, self._periods), name)())
