"""What handles and futures ask of a cluster's session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from ...config import GcylonConfig
from ..channel.progress import Waiting
from ..channel.request_queue import RequestQueue
from ..messages import Reply, Request
from ..rank_info import RankRecord
from ..row_stream import NotebookEnd

H = TypeVar("H")


class MadeAs(Protocol):
    """How a stored table came to be."""

    def describe(self, names: Mapping[str, str]) -> str:
        """In words."""
        ...


class Recordings(Protocol):
    """What the ranks recorded."""

    def snapshots(self) -> list[dict[str, Any]]:
        """Of all ranks, as they are now."""
        ...


class SessionApi(Protocol):
    """A cluster's session, as those see it that send requests through it; see `Session`."""

    name: str
    config: GcylonConfig
    generation: int
    closed: bool
    memory: list[dict[str, int]]
    ranks: list[RankRecord]
    infos: dict[str, list[dict[str, Any]]]
    turns: RequestQueue
    waiting: Waiting

    @property
    def feed(self) -> Recordings:
        """What the ranks recorded."""
        ...

    @property
    def origins(self) -> Mapping[str, MadeAs]:
        """How stored tables came to be."""
        ...

    def new_id(self) -> str:
        """A name for a table that nothing on the engines has yet, nor ever had."""
        ...

    def call(
        self,
        request: Request,
        function: Callable[..., Any] | None = None,
        *,
        each: Sequence[Any] | None = None,
        timeout_s: float | None = None,
        pump: Callable[[float], bool] | None = None,
    ) -> list[Reply]:
        """Send a request to all ranks and wait for their replies."""
        ...

    def make(
        self,
        request: Request,
        handle: Callable[[str, list[Reply]], H],
        function: Callable[..., Any] | None = None,
        *,
        each: Sequence[Any] | None = None,
        timeout_s: float | None = None,
        pump: Callable[[float], bool] | None = None,
    ) -> H:
        """The same for a request that makes a table; what comes back is its handle."""
        ...

    def on_behalf_of(self, future: Any) -> AbstractContextManager[None]:
        """Inside, this thread's requests are a future's."""
        ...

    def row_end(self) -> NotebookEnd:
        """An end for rows that one request moves between here and the ranks."""
        ...

    def drop(self, table: str) -> None:
        """Forget a table on the engines."""
        ...

    def drop_later(self, table: str) -> None:
        """Forget it with the next request; safe in finalizers."""
        ...

    def refresh(self) -> None:
        """Learn what the ranks hold where it may have changed; never waits for other work."""
        ...
