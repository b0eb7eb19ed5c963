"""Where the bytes of buffers lie in a region, and what has to be copied where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .pinned_pool import PinnedBuffer

_ALIGN = 256  # what libcudf wants its columns aligned to


class Move(NamedTuple):
    """Bytes to copy, by their addresses."""

    target: int
    source: int
    nbytes: int


class Piece(NamedTuple):
    """Part of a run of bytes that lies in one block of a row of blocks."""

    block: int
    start: int
    done: int
    nbytes: int


def pieces(offset: int, nbytes: int, block_bytes: int) -> Iterator[Piece]:
    """Cut a run of bytes that begins at ``offset`` of a row of equal blocks at their borders."""
    done = 0
    while done < nbytes:
        block, start = divmod(offset + done, block_bytes)
        size = min(block_bytes - start, nbytes - done)
        yield Piece(block, start, done, size)
        done += size


class Run(NamedTuple):
    """A buffer's address and length, and where it begins in its region."""

    address: int
    nbytes: int
    begin: int


def runs_of(buffers: Sequence[Any]) -> list[Run]:
    """Lay buffers out one after the other, each padded; in device memory or memoryviews, or in a list of pieces."""
    runs, start = [], 0
    for buffer in buffers:
        begin = start
        for piece in buffer if isinstance(buffer, list) else (buffer,):
            length = int(piece.nbytes)
            if length:
                runs.append(Run(_address(piece), length, begin))
            begin += length
        start += padded(begin - start)
    return runs


def length_of(buffer: Any) -> int:
    """Bytes of a buffer, perhaps in a list of pieces."""
    return sum(int(one.nbytes) for one in buffer) if isinstance(buffer, list) else int(buffer.nbytes)


def _address(buffer: Any) -> int:
    on_device = getattr(buffer, "__cuda_array_interface__", None)
    if on_device is not None:
        return int(on_device["data"][0])
    return int(np.frombuffer(buffer, dtype=np.uint8).ctypes.data)


def moves_into(
    runs: Sequence[Run], blocks: Sequence[PinnedBuffer], block_bytes: int, start: int, nbytes: int
) -> list[Move]:
    """Say what goes where of bytes [start, start + nbytes) of a region, into a row of blocks."""
    moves = []
    for address, length, begin in runs:
        first, last = max(begin, start), min(begin + length, start + nbytes)
        for piece in pieces(first - start, last - first, block_bytes):
            target = blocks[piece.block].pointer + piece.start
            moves.append(Move(target, address + first - begin + piece.done, piece.nbytes))
    return moves


def padded(nbytes: int) -> int:
    """Return a length with its padding."""
    return -(-nbytes // _ALIGN) * _ALIGN
