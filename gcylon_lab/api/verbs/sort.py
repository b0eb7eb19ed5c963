"""Sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from ...backends.protocol.schema import Label
from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions
from ...operators.sort import sort as _sort
from ...operators.sort.leading_rows import leading_rows
from .base import Verbs

if TYPE_CHECKING:
    import pandas as pd


class SortingVerbs(Verbs):
    """sort_values."""

    def sort_values(
        self,
        by: Label | Sequence[Label],
        *,
        ascending: bool | Sequence[bool] = True,
        na_position: str = "last",
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Sort by one or several columns: the result in rank order is sorted.

        It is stable: rows with equal keys keep their global order, also where they spread over several ranks. Ranks
        get about equal numbers of rows, whatever the keys.

        Parameters
        ----------
        by : label or sequence of labels
            Key columns, the first one decides first.
        ascending : bool or sequence of bool, default True
            One for all keys, or one for each.
        na_position : {"last", "first"}
            Where NaN and nulls go, whatever the direction.
        strategy : {"auto", "direct", "chunked", "staged"}
            All give the same rows on the same rank. A staged result is sorted in as much memory as is free, so its peak
            may be above that of direct where there is room, and falls with the limit.
        config : GcylonConfig, optional
            The same on all ranks; rank 0's live one by default.
        timeout_s : float, optional
            Seconds until `DeadlineExceeded`.

        Returns
        -------
        Table

        Raises
        ------
        ArgumentError
            If ``ascending`` does not fit ``by``.
        ColumnMissing
            If a key is no column.
        UnsupportedDtype
            If a key has no order (lists, structs, maps).
        BudgetExceeded
            If it does not fit.
        """
        part, plan = _sort.sort_values(
            self._workspace, self._live(), by,
            ascending=ascending, na_position=na_position, options=RunOptions(strategy, config, timeout_s),
        )  # fmt: skip
        return self._made(part, plan)

    def _leading(self, n: int, by: list[Label], *, ascending: bool) -> pd.DataFrame:
        part, plan = leading_rows(self._workspace, self._live(), n, by, ascending=ascending)
        some: Any = self._made(part, plan)
        frame: pd.DataFrame = some.sort_values(by, ascending=ascending).head(n)
        return frame
