"""Where bytes of a region lie: every byte is moved once, to its place, whatever the blocks and pieces."""

from __future__ import annotations

import ctypes

from hypothesis import given, settings
from hypothesis import strategies as st

from gcylon_lab.memory.tiers.layout import length_of, moves_into, padded, pieces, runs_of
from gcylon_lab.memory.tiers.pinned_pool import Pageable, PinnedPool


@given(
    lengths=st.lists(st.integers(0, 20_000), max_size=8),
    piece_bytes=st.sampled_from([256, 4096, 8192, 10_000 // 256 * 256]),
)
@settings(max_examples=50)
def test_pieces_put_together_are_the_padded_buffers(lengths: list[int], piece_bytes: int) -> None:
    buffers = [memoryview(bytes((i + j) % 251 for j in range(n))) for i, n in enumerate(lengths)]
    nbytes = sum(padded(n) for n in lengths)
    pool = PinnedPool(1 << 26, block_bytes=4096, memory=Pageable())
    blocks = [pool.take(piece.nbytes) for piece in pieces(0, nbytes, piece_bytes)]
    for buffer in blocks:
        buffer.view[:] = bytes(buffer.nbytes)
    given = [[b[: len(b) // 3], b[len(b) // 3 :]] if i % 2 else b for i, b in enumerate(buffers)]  # some in pieces
    assert list(map(length_of, given)) == lengths
    moved = moves_into(runs_of(given), blocks, piece_bytes, 0, nbytes)
    for move in moved:
        ctypes.memmove(move.target, move.source, move.nbytes)
    expected = b"".join(bytes(b) + bytes(padded(b.nbytes) - b.nbytes) for b in buffers)
    assert b"".join(bytes(block.view) for block in blocks) == expected
    # And a piece at a time through one block, as on the way to disk.
    through = []
    for piece in pieces(0, nbytes, piece_bytes):
        blocks[0].view[:] = bytes(blocks[0].nbytes)
        for move in moves_into(runs_of(buffers), blocks[:1], piece_bytes, piece.done, piece.nbytes):
            ctypes.memmove(move.target, move.source, move.nbytes)
        through.append(bytes(blocks[0].view[: piece.nbytes]))
    assert b"".join(through) == expected
