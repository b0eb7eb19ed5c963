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
        """One a rank: rank, host, device, pid."""
        ...

    def snapshots(self) -> Sequence[Snapshot]:
        """What is known of every rank, the latest included; at most one a rank."""
        ...

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called, from any thread, after something new has come."""
        ...

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """End what `subscribe` began."""
        ...

    def tables(self) -> Sequence[str]:
        """Names of the tables that a plan can be made for."""
        ...

    def plan(self, verb: str, table: str, config: GcylonConfig, strategy: str) -> Mapping[str, Any]:
        """The plan of a verb, as `Plan.as_dict` gives it, made without asking a rank.

        Raises
        ------
        GcylonError
            If the verb cannot be run so; the message says why.
        """
        ...

    def interrupt(self) -> object:
        """End the running operation with an error on all ranks."""
        ...

    def restart(self) -> object:
        """Start all ranks anew."""
        ...

    def status(self) -> Mapping[str, Any]:
        """state, transport and dead (a list of rank, host, exit)."""
        ...
