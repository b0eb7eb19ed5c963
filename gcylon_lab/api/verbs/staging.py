"""Where a table's rows lie: unstage."""

from __future__ import annotations

from typing import Self

from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions
from ...operators.exchange.unstage import unstage as _unstage
from .base import Verbs


class StagingVerbs(Verbs):
    """unstage."""

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
