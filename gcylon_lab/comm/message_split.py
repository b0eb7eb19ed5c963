"""Cutting long transfers into messages that a transport can count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .transport import Receive, Send, Transport, Window

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
