"""Verbs that look at some rows, and at how many there may be: tail, sample, max_rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from ...backends.arrow.interop import to_frame as pandas_frame
from ...backends.protocol.schema import Label
from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions, listed
from ...operators.estimate import PLANNED
from ...operators.group.sampling import sample as _sample
from ...operators.rowwise.head_tail import last_rows
from .base import Verbs

if TYPE_CHECKING:
    import pandas as pd


class LookingVerbs(Verbs):
    """tail, sample, max_rows."""

    def tail(self, n: int = 5, *, timeout_s: float | None = None) -> pd.DataFrame:
        """Collective: all ranks call it. Return the last ``n`` rows in global order, on every rank."""
        return pandas_frame(last_rows(self._workspace, self._live(), n, RunOptions(timeout_s=timeout_s)))

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
        return self._made(
            *_sample(self._workspace, self._live(), n, frac, seed, RunOptions(strategy, config, timeout_s))
        )

    def max_rows(
        self,
        verb: str,
        on: Label | Sequence[Label] | None = None,
        *,
        root: int = 0,
        strategy: str = "direct",
        config: GcylonConfig | None = None,
    ) -> int | None:
        """Collective: all ranks call it. Say how many rows a table like this one may have for a verb to run.

        The inverse of a plan: rows are as wide as these and lie on the ranks as these do, others hold what they hold
        now, keys are evenly spread, and the input is staged as far as the config allows. No data is read.

        Parameters
        ----------
        verb : str
            shuffle, allgather, gather, broadcast, repartition, sort_values, groupby, drop_duplicates or unique.
        on : label or sequence of labels, optional
            Its keys.
        root : int
            Of gather and broadcast.
        strategy : str, default "direct"
            "direct" and "chunked" hold the result in the budget. With "auto" and "staged" it may lie below.
        config : GcylonConfig, optional

        Returns
        -------
        int or None
            Rows on all ranks, within a thousandth; None where memory sets no bound, as where all is staged.

        Raises
        ------
        ArgumentError
            If the table has no rows, or an argument is invalid.

        Examples
        --------
        >>> import gcylon_lab as gl, pandas as pd
        >>> t = gl.from_local(pd.DataFrame({"k": range(1000), "v": 0.5}))
        >>> most = t.max_rows("shuffle", on="k", config=gl.GcylonConfig(gpu_memory_limit="1MiB"))
        >>> 10_000 < most < 2**20 // 16
        True
        """
        chosen = PLANNED[verb].chosen([] if on is None else listed(on), root=root)
        return self._most_rows(verb, RunOptions(strategy, config), chosen)
