"""Verbs that move rows between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ...backends.protocol.schema import Label
from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions
from ...operators.exchange import redistribution
from .base import Verbs


class ExchangingVerbs(Verbs):
    """shuffle, allgather, gather, broadcast, repartition."""

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
        part, plan = redistribution.allgather(
            self._workspace, self._live(), options=RunOptions(strategy, config, timeout_s)
        )
        return self._made(part, plan)

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
        part, plan = redistribution.gather(
            self._workspace, self._live(), root, options=RunOptions(strategy, config, timeout_s)
        )
        return self._made(part, plan)

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
        part, plan = redistribution.broadcast(
            self._workspace, self._live(), root, options=RunOptions(strategy, config, timeout_s)
        )
        return self._made(part, plan)

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
        part, plan = redistribution.repartition(
            self._workspace, self._live(), rows_per_rank, options=RunOptions(strategy, config, timeout_s)
        )
        return self._made(part, plan)
