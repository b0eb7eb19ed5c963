"""The seam between operations and whatever moves bytes between ranks.

Shaped so that one-sided movers fit too: a receiver exposes buffers as a
window, a sender names the offset at which its bytes belong. Two-sided movers
ignore the offsets, one-sided ones ignore the receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes for another rank. Sends to one rank arrive in the order given."""

    rank: int
    view: memoryview
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Receive:
    """Room for bytes from another rank, exactly as long as what is sent."""

    rank: int
    view: memoryview


@dataclass(frozen=True, slots=True)
class Window:
    """Buffers that other ranks may write into until the next `finish`."""

    buffers: tuple[memoryview, ...]


class Transport(Protocol):
    """Moves bytes between the ranks of one world; knows nothing of tables.

    After a `CommError` only `revoke`, `recover` and `close` may be called.
    """

    name: str
    rank: int
    size: int
    host: str

    def agree(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. Every rank's numbers, on every rank.

        Parameters
        ----------
        values : ndarray of int64, shape (n,)
            n is the same on all ranks.

        Returns
        -------
        ndarray of int64, shape (size, n)
        """
        ...

    def share(self, payload: bytes) -> list[bytes]:
        """Collective: all ranks call it. Every rank's bytes, of any length, on every rank, in rank order."""
        ...

    def expose(self, buffers: Sequence[memoryview]) -> Window:
        """Let others write into these buffers until the next `finish`."""
        ...

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. Move bytes; both lists may be empty.

        Per pair of ranks, the n-th send fits the n-th receive. Sends to oneself are allowed.
        Returns when the receives are filled and the sent views may be changed.
        """
        ...

    def finish(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. As `agree`, after all transfers into windows are complete."""
        ...

    def set_deadline(self, timeout_s: float | None) -> None:
        """Let collectives raise `DeadlineExceeded` once this much time has passed from now; None lifts it."""
        ...

    def revoke(self) -> None:
        """Make every rank leave its collective with `Revoked`. May be called from any thread, more than once."""
        ...

    def recover(self) -> None:
        """Collective: all ranks call it. Make the transport usable after a revoke, with nothing else in flight."""
        ...

    def close(self) -> None:
        """Release what the transport holds. Idempotent."""
        ...
