"""What the dashboard needs of a cluster, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...config import GcylonConfig
from ...errors import GcylonError
from ..figures.view import Snapshot


class Source(Protocol):
    """A cluster as the dashboard sees it. Nothing here may wait for a running operation, except `restart`."""

    @property
    def config(self) -> GcylonConfig:
        """The settings that the next operation will use."""
        ...

    @config.setter
    def config(self, value: GcylonConfig) -> None: ...

    @property
    def ranks(self) -> Sequence[Mapping[str, Any]]:
        """One a rank: rank, host, device, pid, and where known what else there is.

        That is ceiling_bytes, free_at_start_bytes, and route: how rows travel, and why.
        """
        ...

    def snapshots(self) -> Sequence[Snapshot]:
        """What is known of every rank, the latest included; at most one a rank."""
        ...

    def subscribe(self, callback: Callable[[Sequence[Snapshot]], None]) -> Callable[[], None]:
        """Have ``callback`` called with all ranks' snapshots, from any thread, whenever there is news.

        Returns
        -------
        callable
            Ends it.
        """
        ...

    def tables(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The tables that a plan can be made for: by name, every rank's ``Table.info()``, without asking a rank."""
        ...

    def handles(self) -> Mapping[str, Any]:
        """The tables that operations can really be run on, by the names of `tables`; empty where that cannot be."""
        ...

    def interrupt(self) -> object:
        """End what the ranks do, with an error on all of them."""
        ...

    def revoke(self) -> object:
        """Free ranks that wait for others; what a rank does by itself goes on."""
        ...

    def restart(self) -> object:
        """Start all ranks anew."""
        ...

    def status(self) -> Mapping[str, Any]:
        """How the cluster is: it takes a moment to find out, a second where a rank does not answer.

        Returns
        -------
        mapping
            state ("ready", or what keeps it from being so), transport, dead: a list of rank and where known exit, and
            where known ranks: a list of rank, state (as `Cluster.status`), since_s and running, and revocable.
        """
        ...


def as_source(thing: Any) -> Source:
    """Return what the widgets need of a cluster.

    Raises
    ------
    GcylonError
        If it is neither a cluster nor a source.
    """
    from .cluster_source import ClusterSource

    if hasattr(thing, "feed"):
        return ClusterSource(thing)
    if all(hasattr(thing, name) for name in ("snapshots", "subscribe", "ranks", "config", "tables")):
        return thing  # type: ignore[no-any-return]
    if thing is None:
        raise GcylonError(
            "No cluster was given.", advice="Start one, as lab = gl.Cluster(2), and give it, as gl.Dashboard(lab)."
        )
    raise GcylonError(f"Expected a cluster, got {thing!r}.", advice="Give what gl.Cluster(n) returned.")
