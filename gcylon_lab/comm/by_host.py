"""Two transports in one exchange: one between the ranks of a host, another between hosts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from .device_overlay import Overlay, QueuedOverlay
from .transport import Receive, Send, Window


class ByHostTransport(Overlay):
    """What goes to ranks of this host by one transport, what goes to others by another.

    The first stands on the second, so that both are closed by one agreement, revoked
    together, and recover one after the other. Nobody writes by address where some
    cannot: senders learn in each exchange where in this host their bytes belong.

    Parameters
    ----------
    near : Overlay
        Between the ranks of a host; its ``base`` is ``far``.
    far : Overlay
        Between hosts.
    peers : collection of int
        The ranks of this rank's host, itself too.
    """

    def __init__(self, near: Overlay, far: Overlay, peers: Collection[int]) -> None:
        super().__init__(near)
        self.name = f"{near.name} inside hosts and {far.name} between them"
        self.completes_in_finish = near.completes_in_finish or far.completes_in_finish
        self._peers = frozenset(peers)
        # What is only queued is under way while the other waits; of two that are queued the slower goes first.
        self._order = (far, near) if far.completes_in_finish else (near, far)
        self._near = near
        if isinstance(near, QueuedOverlay) and isinstance(far, QueuedOverlay):
            near.wait_with(far)

    def expose(self, buffers: Sequence[Any]) -> Window:
        """Let the ranks of this host write into these buffers until the next `finish`."""
        self._near.expose(buffers)
        return Window(tuple(buffers))

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. Move bytes of each pair of ranks the way that is theirs."""
        for mover in self._order:
            near = mover is self._near
            mover.exchange(
                window,
                [send for send in sends if (send.rank in self._peers) is near],
                [receive for receive in receives if (receive.rank in self._peers) is near],
            )
