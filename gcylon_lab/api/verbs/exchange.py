"""Verbs that move rows, between ranks and between tiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from ...backends.protocol.schema import Label
from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions
from ...operators.exchange import redistribution
from ...operators.exchange.unstage import unstage as _unstage
from ...operators.sort import sort as _sort
from ...operators.sort.leading_rows import leading_rows
from .base import Verbs

if TYPE_CHECKING:
    import pandas as pd


class ExchangingVerbs(Verbs):
    """shuffle, allgather, gather, broadcast, repartition, sort_values, unstage."""

    def shuffle(
        self,
        on: Label | Sequence[Label],
        *,
        keep_order: bool = False,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Bring rows with equal keys to one rank.

        Parameters
        ----------
        on : label or sequence of labels
            Key columns.
        keep_order : bool, default False
            Keep (source rank, row) order inside each rank; otherwise it is unspecified.
        strategy : {"auto", "direct", "chunked", "staged"}
            All give the same rows on the same rank.
        config : GcylonConfig, optional
            The same on all ranks; rank 0's live one by default.
        timeout_s : float, optional
            Seconds until `DeadlineExceeded`.

        Returns
        -------
        Table

        Raises
        ------
        ColumnMissing
            If a key is no column.
        UnsupportedDtype
            If a key cannot be hashed (lists, structs).
        BudgetExceeded
            If it does not fit.
        """
        options = RunOptions(strategy, config, timeout_s)
        part, plan = redistribution.shuffle(self._workspace, self._live(), on, keep_order=keep_order, options=options)
        return self._made(part, plan)

    def allgather(
        self, *, strategy: str = "auto", config: GcylonConfig | None = None, timeout_s: float | None = None
    ) -> Self:
        """Collective: all ranks call it. Bring all rows to every rank, in (rank, row) order.

        Parameters
        ----------
        strategy, config, timeout_s
            As for `shuffle`.

        Returns
        -------
        Table
        """
        return self._collected("allgather", 0, RunOptions(strategy, config, timeout_s))

    def gather(
        self,
        root: int = 0,
        *,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Bring all rows to one rank, in (rank, row) order.

        Parameters
        ----------
        root : int, default 0
            The rank that gets them; the others hold an empty table of the same schema.
        strategy, config, timeout_s
            As for `shuffle`.

        Returns
        -------
        Table
        """
        return self._collected("gather", root, RunOptions(strategy, config, timeout_s))

    def broadcast(
        self,
        root: int = 0,
        *,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Bring one rank's rows to every rank.

        Parameters
        ----------
        root : int, default 0
            The rank whose rows they are.
        strategy, config, timeout_s
            As for `shuffle`.

        Returns
        -------
        Table
        """
        return self._collected("broadcast", root, RunOptions(strategy, config, timeout_s))

    def _collected(self, verb: str, root: int, options: RunOptions) -> Self:
        return self._made(*redistribution.collect(self._workspace, self._live(), verb, root, options=options))

    def repartition(
        self,
        rows_per_rank: Sequence[int] | None = None,
        *,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Cut the table anew over the ranks, keeping the global order.

        Parameters
        ----------
        rows_per_rank : sequence of int, optional
            Rows that each rank will hold; evenly by default.
        strategy, config, timeout_s
            As for `shuffle`.

        Returns
        -------
        Table

        Raises
        ------
        ArgumentError
            If the numbers do not fit the ranks or the rows.
        """
        options = RunOptions(strategy, config, timeout_s)
        return self._made(*redistribution.repartition(self._workspace, self._live(), rows_per_rank, options=options))

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

    def unstage(self, *, config: GcylonConfig | None = None, timeout_s: float | None = None) -> Self:
        """Collective: all ranks call it. Bring back into the budget what of this table was staged.

        The table stays the same one, with its rows in their order and how it is partitioned: only where they lie
        changes. Their copy below the device tier is kept while there is room: to stage them again writes nothing.
        Where nothing is staged, nothing is done.

        Parameters
        ----------
        config : GcylonConfig, optional
            The same on all ranks.
        timeout_s : float, optional
            Seconds until `DeadlineExceeded`.

        Returns
        -------
        Table
            This one.

        Raises
        ------
        BudgetExceeded
            If it does not fit beside what is held on some rank: no other table is evicted for it, and nothing has
            changed then. A few columns may fit: ``t.select(columns).unstage()``.
        SpillError
            If it cannot be read back; nothing has changed then either.
        """
        _unstage(self._workspace, self._live(), RunOptions("auto", config, timeout_s))
        return self

    def _leading(self, n: int, by: list[Label], *, ascending: bool) -> pd.DataFrame:
        part, plan = leading_rows(self._workspace, self._live(), n, by, ascending=ascending)
        some: Any = self._made(part, plan)
        frame: pd.DataFrame = some.sort_values(by, ascending=ascending).head(n)
        return frame
