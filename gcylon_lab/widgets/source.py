"""What the dashboard needs of a cluster, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..config import GcylonConfig
from .view import Snapshot


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
        """One a rank: rank, host, device, pid, and where known ceiling_bytes."""
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

    def interrupt(self) -> object:
        """End the running operation with an error on all ranks."""
        ...

    def restart(self) -> object:
        """Start all ranks anew."""
        ...

    def status(self) -> Mapping[str, Any]:
        """state ("ready", or what keeps it from being so), transport, and dead: a list of rank and where known exit."""
        ...
