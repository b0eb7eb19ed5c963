"""`ClusterCard`: the cluster's strip and buttons, alone."""

from __future__ import annotations

from typing import Any

from ..figures.panels.memory import near_budget
from ..figures.view import make_view
from ..live.live_widget import LiveWidget
from .cluster_box import ClusterBox

_WINDOW_S = 2.0


class ClusterCard(LiveWidget):
    """Who the ranks of a cluster are and how each is, live, with buttons that free them.

    A rank that waits turns amber after 2 s and says for whom; one that waits in vain, or does not answer, is stuck;
    a dead one is named with its exit. It is on top of the dashboard, and stands alone.

    Parameters
    ----------
    lab : Cluster

    Examples
    --------
    >>> gl.ClusterCard(lab)                                          # doctest: +SKIP
    """

    def __init__(self, lab: Any = None) -> None:
        super().__init__(lab)
        self.cluster = ClusterBox(self._source, self._hands, self._forget)
        self._compose(self.cluster.box)

    def _forget(self) -> None:
        self._snapshots, self._status = [], {}
        self.errors.value = ""
        self._ask_for_drawing()

    def _may_look(self) -> bool:
        return not self.cluster.restarting

    def _draw(self) -> None:
        near = near_budget(make_view(self._snapshots, window_s=_WINDOW_S))
        self.cluster.show(self._snapshots, self._status, near, age_s=self._age_s)
        self._ask_for_status()
