"""``%px`` and its like: ipyparallel's own, but for what an interrupt does."""

from __future__ import annotations

import time
from typing import Any

from ipyparallel.client.magics import ParallelMagics


class RankMagics(ParallelMagics):  # type: ignore[misc]
    """``%px``, ``%%px`` and so on, for a view of ours.

    ipyparallel's own tell the engines of an interrupt, and end as if the cell had worked: a notebook that is run as a
    whole would go on with the next cell.
    """

    signal_on_interrupt = None

    def parallel_execute(self, cell: str, *args: Any, **options: Any) -> Any:
        """Run a cell on the ranks; where it is interrupted, free them and say so."""
        started, before = time.monotonic(), self.last_result
        try:
            return super().parallel_execute(cell, *args, **options)
        except KeyboardInterrupt as error:
            if self.last_result is not before:
                self.view._channel.cut_short(self.last_result, "cell", started, error)
            raise
