"""A cluster, as the dashboard sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...cluster.handles.display_name import handles
from ...cluster.handles.handle import DistTable
from ...config import GcylonConfig
from ...errors import ClusterError
from ..figures.view import Snapshot


class ClusterSource:
    """Gives the dashboard what it needs of a `Cluster`. Only `restart` waits for a running operation.

    Parameters
    ----------
    lab : Cluster
    """

    def __init__(self, lab: Any) -> None:
        self._lab = lab
        self._used: dict[int, int] = {}
        self._since: dict[int, tuple[tuple[str, str], float]] = {}

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
        """One a rank: rank, host, device, pid, route, ceiling_bytes, free_at_start_bytes."""
        memory = self._lab._session.memory
        at_start = [
            {name: m.get(name, 0) for name in ("ceiling_bytes", "free_at_start_bytes")}
            for m in memory or [{}] * len(self._lab.ranks)
        ]
        return [
            {
                "rank": r.rank, "host": r.host, "device": r.device, "pid": r.pid, "route": r.route, **known,
            }
            for r, known in zip(self._lab.ranks, at_start, strict=True)
        ]  # fmt: skip

    def snapshots(self) -> Sequence[Snapshot]:
        """What is known of every rank."""
        snapshots: Sequence[Snapshot] = self._lab.snapshots()
        return snapshots

    def subscribe(self, callback: Callable[[Sequence[Snapshot]], None]) -> Callable[[], None]:
        """Have ``callback`` called with all ranks' snapshots whenever there is news."""

        def tell(snapshots: Sequence[Snapshot]) -> None:
            heard = [s for s in snapshots if s["samples"]["t_ns"]]
            self._used = {int(s["rank"]): int(s["samples"]["used_bytes"][-1]) for s in heard}
            callback(snapshots)

        end: Callable[[], None] = self._lab.feed.subscribe(tell)
        return end

    def tables(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Every rank's ``Table.info()`` with its memory now, by the notebook's names of this cluster's handles.

        Of those whose rows are made: a look at them makes none.
        """
        return {name: self._infos(one) for name, one in self.handles().items() if not one._is_pending}

    def handles(self) -> dict[str, DistTable]:
        """This cluster's handles, by the notebook's names of them."""
        found = handles(self._lab._session).items()
        return {name: value for name, value in found if isinstance(value, DistTable) and not value.released}

    def _infos(self, handle: DistTable) -> list[dict[str, Any]]:
        infos = zip(handle.info(), self._lab._session.memory, strict=True)
        merged = [{**info, **now} for info, now in infos]
        return [{**info, "used_bytes": self._used.get(rank, info["used_bytes"])} for rank, info in enumerate(merged)]

    def interrupt(self) -> None:
        """End what the ranks do, with an error on all of them."""
        self._lab.interrupt()

    def revoke(self) -> None:
        """Free ranks that wait for others; what a rank does by itself goes on."""
        self._lab.revoke()

    def restart(self) -> None:
        """Start all ranks anew."""
        self._lab.restart()
        self._used, self._since = {}, {}

    def status(self) -> dict[str, Any]:
        """State of the cluster, its transport, who is gone and how, and what each rank does, since when."""
        launcher = self._lab._session.launcher
        known = {"transport": launcher.mpi.describe().partition(" (")[0], "revocable": launcher.mpi.revocable}
        try:
            rows = self._lab.status()
        except ClusterError:
            return {"state": "closed", "dead": [], "ranks": [], **known}
        gone = [{"rank": row["rank"], "exit": launcher.exit_of(row["rank"])} for row in rows if row["state"] == "gone"]
        ranks = [{name: row[name] for name in ("rank", "state", "running")} | self._lasting(row) for row in rows]
        state = "a rank is gone: restart" if gone else "ready"
        return {"state": state, "dead": gone, "ranks": ranks, **known}

    def _lasting(self, row: Mapping[str, Any]) -> dict[str, float]:
        """For how long a rank has been seen to do what it does; of one that does nothing it does not matter."""
        if row["state"] == "idle":
            self._since.pop(row["rank"], None)
            return {"since_s": 0.0}
        now, what = time.monotonic(), (str(row["state"]), str(row["running"]))
        before = self._since.get(row["rank"])
        if before is None or before[0] != what:
            self._since[row["rank"]] = before = (what, now)
        return {"since_s": now - before[1]}
