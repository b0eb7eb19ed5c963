"""The seam between operations and whatever moves bytes between ranks.

Shaped so that one-sided movers fit too: a receiver exposes buffers as a
window, a sender names the offset at which its bytes belong. Two-sided movers
ignore the offsets, one-sided ones ignore the receives. Views are memoryviews, or
device arrays of bytes (1-D, uint8) where the transport moves device memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

INTERRUPTED = "The operation was interrupted, on this rank or another."
"""What a rank says that was told to leave; the one that was interrupted knows more."""


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes for another rank. Sends to one rank arrive in the order given.

    Where the exchange is given a window, ``buffer`` and ``offset`` say where the bytes belong in
    the receiver's: the number of the buffer that it exposed, and a byte in it.
    """

    rank: int
    view: Any
    buffer: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Receive:
    """Room for bytes from another rank, exactly as long as what is sent."""

    rank: int
    view: Any


@dataclass(frozen=True, slots=True)
class Window:
    """Buffers that other ranks may write into until the next `finish`.

    Attributes
    ----------
    buffers : tuple
        Of this rank.
    addresses : ndarray of int64, shape (size, buffers), optional
        Where each rank's are, as this rank addresses them, for transports that write into them.
    """

    buffers: tuple[Any, ...]
    addresses: Int64s | None = None


class Transport(Protocol):
    """Moves bytes between the ranks of one world; knows nothing of tables.

    After a `CommError` only `revoke`, `recover` and `close` may be called.

    Attributes
    ----------
    completes_in_finish : bool
        Whether an exchange goes on after it has returned: receives are filled, and what
        was sent may be changed, only after the next `finish`.
    """

    name: str
    completes_in_finish: bool
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

    def expose(self, buffers: Sequence[Any]) -> Window:
        """Let others write into these buffers until the next `finish`."""
        ...

    def places(self, window: Window) -> Int64s:
        """What other ranks have to know to write into exposed buffers in several exchanges, shape (n,).

        Of no number where nobody writes by address; n is the same on all ranks that expose as many buffers.
        """
        ...

    def open_window(self, window: Window, places: Int64s) -> Window:
        """A window with the addresses of every rank's buffers, from what all ranks' `places` are, shape (size, n)."""
        ...

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. Move bytes; both lists may be empty.

        All ranks give a window, and sends say their places in the receiver's; or none does.
        Per pair of ranks, the n-th send fits the n-th receive. Sends to oneself are allowed.
        Returns when the receives are filled and the sent views may be changed, unless
        ``completes_in_finish``.
        """
        ...

    def finish(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. As `agree`, after all transfers into windows are complete."""
        ...

    def drain(self) -> None:
        """Wait until what this rank has sent may be changed. At once where an exchange completes itself."""
        ...

    def check(self) -> None:
        """Raise if this rank must leave what it waits for: after a revoke, a deadline, a lost rank."""
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


class PlainTransport:
    """What a transport has where an exchange is complete when it returns, and nobody writes by address."""

    completes_in_finish = False

    def agree(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. Every rank's numbers."""
        raise NotImplementedError

    def finish(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. As `agree`."""
        return self.agree(values)

    def drain(self) -> None:
        """Nothing is under way."""

    def expose(self, buffers: Sequence[Any]) -> Window:
        """Let others write into these buffers until the next `finish`."""
        return Window(tuple(buffers))

    def places(self, window: Window) -> Int64s:
        """Nothing."""
        return np.zeros(0, np.int64)

    def open_window(self, window: Window, places: Int64s) -> Window:
        """The same."""
        return window


@runtime_checkable
class WritableWindows(Protocol):
    """A transport whose ranks can write to the addresses in an open window with kernels of their own."""

    def writing(self) -> AbstractContextManager[None]:
        """Kernels that are queued on the current stream within it are complete as an exchange would be.

        Not a collective: other ranks may exchange, write, or do nothing in the same round.
        """
        ...


def first_failure(transport: Transport, failure: str) -> str:
    """Collective: all ranks call it. Tell what failed on this rank, and learn what failed on any.

    Parameters
    ----------
    transport : Transport
    failure : str
        In words, without the rank; "" where all is well here.

    Returns
    -------
    str
        The failure of the first rank that has one, with its number unless all have the same; "" if none has.
    """
    if not transport.agree(np.array([bool(failure)], dtype=np.int64)).any():
        return ""
    told = [text.decode() for text in transport.share(failure.encode())]
    rank = next(rank for rank, text in enumerate(told) if text)
    return told[rank] if len(set(told)) == 1 else f"on rank {rank} {told[rank]}"


DEFAULT_MESSAGE_BYTES = 2**30
_MANY_VIEWS, _SMALL_BYTES = 16, 32768  # of a rank: MPI gathers so many of such a size sooner than it sends each
_FEW_BYTES = 16384  # that a memoryview copies sooner than numpy begins


def split_view(view: Any, limit_bytes: int) -> Iterable[Any]:
    """Cut a byte view into consecutive views of at most ``limit_bytes``; nothing for an empty view."""
    if 0 < view.nbytes <= limit_bytes:
        return (view,)
    return (view[start : start + limit_bytes] for start in range(0, view.nbytes, limit_bytes))


def goes_together(lengths: Sequence[int], limit_bytes: int) -> bool:
    """Whether views of one rank for another are one message: both sides know their lengths, so they do the same."""
    return len(lengths) >= _MANY_VIEWS and sum(lengths) <= min(limit_bytes, len(lengths) * _SMALL_BYTES)


def copy_to_self(sends: list[Any], receives: list[Any]) -> None:
    """Copy what a rank sends to itself, n-th send to n-th receive.

    Raises
    ------
    ValueError
        If the lists do not fit each other.
    """
    if len(sends) != len(receives):
        raise ValueError(f"{len(sends)} sends to oneself meet {len(receives)} receives")
    for source, target in zip(sends, receives, strict=True):
        copy_bytes(target, source)


def copy_bytes(target: Any, source: Any) -> None:
    """Copy between byte views of equal length. Numpy's copy lets other threads run; a memoryview's does not."""
    nbytes = source.nbytes
    if target.nbytes != nbytes:
        raise ValueError(f"{nbytes} bytes sent into {target.nbytes} bytes of room")
    if not nbytes:
        return
    if not isinstance(target, memoryview):
        target.data.copy_from_device_async(source.data, nbytes)  # on the current stream, as all of a rank's work
    elif nbytes <= _FEW_BYTES and isinstance(source, memoryview) and source.format == target.format == "B":
        target[:] = source
    else:
        np.frombuffer(target, dtype=np.uint8)[:] = np.frombuffer(source, dtype=np.uint8)


def share_by_exchange(transport: Transport, payload: bytes) -> list[bytes]:
    """Collective: all ranks call it. `Transport.share` made of `agree` and `exchange`."""
    lengths = transport.agree(np.array([len(payload)], dtype=np.int64))[:, 0]
    room: list[npt.NDArray[np.uint8]] = [np.empty(int(n), dtype=np.uint8) for n in lengths]
    view = memoryview(payload)
    sends = [Send(rank, view) for rank in range(transport.size)]
    receives = [Receive(rank, room[rank].data) for rank in range(transport.size)]
    window: Window | None = None
    transport.exchange(window, sends, receives)
    return [buffer.tobytes() for buffer in room]
