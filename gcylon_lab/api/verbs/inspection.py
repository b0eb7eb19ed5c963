"""Verbs that look at some rows: tail, sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...backends.arrow.interop import to_frame as pandas_frame
from ...config import GcylonConfig
from ...operators.exchange.collect import allgather
from ...operators.group.sampling import sample as _sample
from ...operators.rowwise.head_tail import rows_on_host, take_tail
from .base import Verbs

if TYPE_CHECKING:
    import pandas as pd


class LookingVerbs(Verbs):
    """tail, sample."""

    def tail(self, n: int = 5, *, timeout_s: float | None = None) -> pd.DataFrame:
        """Collective: all ranks call it. Return the last ``n`` rows in global order, on every rank."""
        workspace = self._workspace
        tail = take_tail(workspace, self._live(), n, timeout_s)
        try:
            gathered = self._made(allgather(workspace, tail, timeout_s=timeout_s)[0])
        finally:
            tail.release()  # an error that is kept would hold it
        try:
            return pandas_frame(rows_on_host(workspace, gathered._live()))
        finally:
            gathered.release()

    def sample(
        self,
        n: int | None = None,
        *,
        frac: float | None = None,
        seed: int = 0,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Take rows by chance, each at most once.

        Parameters
        ----------
        n : int, optional
            How many.
        frac : float, optional
            Or which part of them, in [0, 1].
        seed : int, default 0
            The same seed takes the same rows of the whole table, on any number of ranks.
        strategy, config, timeout_s
            As for `filter`.

        Returns
        -------
        Table
            The rows in their order, where they are.

        Raises
        ------
        ArgumentError
            If neither or both are given, or there are fewer rows.
        """
        return self._made(*_sample(self._workspace, self._live(), n, frac, seed, strategy, config, timeout_s))
