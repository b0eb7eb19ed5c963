"""A cluster, as the dashboard sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..config import GcylonConfig
from .view import Snapshot


class ClusterSource:
    """Gives the dashboard what it needs of a `Cluster`.

    Parameters
    ----------
    lab : Cluster
    """

    def __init__(self, lab: Any) -> None:
        self._lab = lab
        self._ceilings: dict[int, int] = {}

    @property
    def config(self) -> GcylonConfig:
        """The settings that the next operation will use."""
        config: GcylonConfig = self._lab.config
        return config

    @config.setter
    def config(self, value: GcylonConfig) -> None:
        self._lab.config = value

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """One a rank: rank, host, device, pid."""
        return [{"rank": r.rank, "host": r.host, "device": r.device, "pid": r.pid} for r in self._lab.ranks]

    def snapshots(self) -> Sequence[Snapshot]:
        """What is known of every rank."""
        snapshots: Sequence[Snapshot] = self._lab.snapshots()
        return snapshots

    def subscribe(self, callback: Callable[[Sequence[Snapshot]], None]) -> Callable[[], None]:
        """Have ``callback`` called with all ranks' snapshots whenever there is news."""
        end: Callable[[], None] = self._lab.feed.subscribe(callback)
        return end

    def tables(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Every rank's ``Table.info()``, by the names that the handles have."""
        return {}

    def interrupt(self) -> None:
        """End the running operation with an error on all ranks."""
        self._lab.interrupt()

    def restart(self) -> None:
        """Start all ranks anew."""
        self._lab.restart()

    def status(self) -> dict[str, Any]:
        """State of the cluster, its transport, and who is gone."""
        rows = self._lab.status()
        gone = [{"rank": row["rank"]} for row in rows if row["state"] == "gone"]
        state = "degraded: restart() starts new ranks" if gone else "ready"
        return {"state": state, "transport": "MPI", "dead": gone}
