"""Text files in blocks, at the pace of memory: read by several threads into room that is used again. What is not local,
compressed, or of records longer than a block is left to `blocks`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

from ..filesystems import Storage, is_url, reading
from ..read_plans import BytePiece
from .blocks import COMPRESSED, Block, Place, blocks, cut, one_ahead, open_text
from .csv_records import opening_quote, record_start

_READERS = 4
_SEGMENT_BYTES = 4 << 20  # of a read: several fill a block


def plain_blocks(
    piece: BytePiece, storage: Storage, skip: int, block_bytes: int, delimiter: bytes | None
) -> Iterator[tuple[Place, Block]]:
    """As `blocks`; a block is there until the next one but one is asked for.

    The next one is read while one is used.
    """
    if piece.whole or is_url(piece.path) or piece.path.endswith(COMPRESSED):
        yield from one_ahead(blocks(piece, storage, skip, block_bytes, delimiter))
        return
    with reading(piece.path), open_text(piece.path, storage) as file:
        start = record_start(file, max(piece.start, skip), skip, delimiter)
        stop = record_start(file, max(piece.stop, skip), skip, delimiter)
        with ThreadPoolExecutor(_READERS, "reading") as readers, ThreadPoolExecutor(1, "reading ahead") as ahead:
            rooms = [bytearray(2 * block_bytes) for _ in range(2)]  # with what is left of the block before
            filled = _fill(readers, file.fileno(), rooms[0], b"", start, min(stop, start + block_bytes))
            while filled:
                room, last = rooms[0], start + filled == stop
                end = filled if last else room.rfind(b"\n", 0, filled) + 1
                while end and delimiter is not None and (opened := opening_quote(room, end, delimiter)) >= 0:
                    end = 0 if last else room.rfind(b"\n", 0, opened) + 1
                if filled - end > block_bytes or not end:
                    break
                rest, after = bytes(room[end:filled]), start + filled
                rooms.reverse()
                upto = min(stop, after + block_bytes)
                coming = ahead.submit(_fill, readers, file.fileno(), rooms[0], rest, after, upto)
                yield Place(piece.path, storage, start), memoryview(room)[:end]
                start, filled = start + end, coming.result()
        if start < stop:
            file.seek(start)
            yield from cut(Place(piece.path, storage, start), file, stop - start, block_bytes, delimiter)


def _fill(readers: Executor, descriptor: int, room: bytearray, rest: bytes, start: int, stop: int) -> int:
    """Put what is left, and bytes [start, stop) of a file, into a room; how many bytes are there then: fewer where the
    file ends before."""
    room[: len(rest)] = rest
    with memoryview(room) as whole:

        def read(first: int) -> int:
            at, end = first, min(stop, first + _SEGMENT_BYTES)
            while at < end:
                place = len(rest) + at - start
                count = os.preadv(descriptor, [whole[place : place + end - at]], at)
                if not count:
                    break
                at += count
            return at - first

        done = 0
        for first, count in zip(
            range(start, stop, _SEGMENT_BYTES), readers.map(read, range(start, stop, _SEGMENT_BYTES)), strict=True
        ):
            if first == start + done:
                done += count
    return len(rest) + done
