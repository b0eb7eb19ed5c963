"""A transport for device memory on top of one that carries everything else; and two such in one exchange."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from .device_waits import DeviceWaits
from .transport import Int64s, PlainTransport, Receive, Send, Transport, Window


class Overlay(PlainTransport):
    """Hands agreements, texts, deadlines, revokes and recovery to the transport beneath.

    Parameters
    ----------
    base : Transport
        Whose ranks these are.
    """

    name = "overlay"
    completes_in_finish = False

    def __init__(self, base: Transport) -> None:
        self.base = base
        self.ground: Transport = base.ground if isinstance(base, Overlay) else base
        """Moves ordinary memory, whatever lies between."""
        self.rank, self.size, self.host = base.rank, base.size, base.host

    def agree(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. Every rank's numbers, shape (size, n)."""
        return self.base.agree(values)

    def share(self, payload: bytes) -> list[bytes]:
        """Collective: all ranks call it. Every rank's bytes."""
        return self.base.share(payload)

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. Move bytes."""
        self.base.exchange(window, sends, receives)

    def finish(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. As `agree`, after all transfers."""
        return self.base.finish(values)

    def drain(self) -> None:
        """Wait until what this rank has sent may be changed."""
        self.base.drain()

    def check(self) -> None:
        """Raise if this rank must leave what it waits for."""
        self.base.check()

    def set_deadline(self, timeout_s: float | None) -> None:
        """Let collectives raise `DeadlineExceeded` once this much time has passed; None lifts it."""
        self.base.set_deadline(timeout_s)

    def revoke(self) -> None:
        """Make every rank leave its collective. May be called from any thread, more than once."""
        self.base.revoke()

    def recover(self) -> None:
        """Collective: all ranks call it. Make the transport usable after a revoke."""
        self.base.recover()

    def close(self) -> None:
        """Release what the transport holds. Idempotent."""
        self.base.close()

    def __getattr__(self, name: str) -> Any:
        # What only one kind of base has (progress, abort, revocable); what it can do with windows is not this one's.
        if name in ("base", "writing"):
            raise AttributeError(name)
        return getattr(self.base, name)


class QueuedOverlay(Overlay):
    """An overlay whose exchanges are queued on streams of its own, and are complete after the next `finish`.

    Parameters
    ----------
    base : Transport
        Whose ranks these are.
    waits : DeviceWaits
        Over the streams.
    """

    completes_in_finish = True

    def __init__(self, base: Transport, waits: DeviceWaits) -> None:
        super().__init__(base)
        self._waits = waits
        # What is under way writes to and reads from, after an error until the next recovery.
        self._kept: list[Any] = []
        self._sent: list[Any] = []

    def wait_with(self, beneath: QueuedOverlay) -> None:
        """Wait for the streams of one that this stands on too, so that what is under way at once is timed once."""
        self._waits = beneath._waits = self._waits.joined(beneath._waits)

    def finish(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. Every rank's numbers, once what all ranks have queued is done."""
        self._waits.for_streams()
        result = self.base.finish(values)
        self._forget()
        return result

    def drain(self) -> None:
        """Wait until what this rank has sent may be changed."""
        self._waits.for_streams()
        self._sent.clear()
        self.base.drain()

    def _forget(self) -> None:
        """Let go of what nobody writes to or reads from any more."""
        self._kept.clear()
        self._sent.clear()


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
