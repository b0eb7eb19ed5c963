"""Hashes of strings and bytes: eight bytes of every row at a time, on their UTF-8."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

# Longer strings go through blake2b one by one: its cost per string no longer matters, and the number of passes below
# stays bounded. The rule depends on the string alone, so equal strings always take the same way.
_LONG_BYTES = 256
_LOOKED_AT = 512  # of many strings, to tell whether few are different
_LEAST_STEP = 8
_TIMES = 2  # each of these then stands there, on average
_WORD_BYTES = 8  # strings of one word are hashed in less time than equal ones are found
_LENGTH = np.uint64(0x8EBC6AF09C88C6E3)
_STEP = np.uint64(0x589965CC75374CC3)
_HALF = np.uint64(32)
_KEEP = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)


def text_hashes(array: Any) -> Hashes:
    """Hash a large_string or large_binary array; nulls give any value."""
    if _are_few(array):  # Arrow finds equal ones in less time than their words are gathered
        encoded = array.dictionary_encode()
        places = pc.fill_null(encoded.indices, 0) if array.null_count else encoded.indices
        hashes: Hashes = _word_hashes(encoded.dictionary)[places.to_numpy()]
        return hashes
    return _word_hashes(array)


def _are_few(array: Any) -> bool:
    """Whether few of many strings are different, as far as some of them tell."""
    step = len(array) // _LOOKED_AT
    if step < _LEAST_STEP or array.nbytes < 2 * _WORD_BYTES * len(array):  # 8 bytes of each are its offset
        return False
    some = array.take(pa.array(np.arange(0, len(array), step)))
    return some.null_count < len(some) and _TIMES * len(some.unique()) <= len(some)


def _word_hashes(array: Any) -> Hashes:
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = (lengths + 1).astype(np.uint64) * _LENGTH
    buffer = array.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.empty(0, np.uint8)
    short = (lengths > 0) & (lengths <= _LONG_BYTES)
    # A word of eight bytes may reach past the end of the buffer: the few strings there are read from a padded copy.
    inside = starts + ((lengths + 7) & ~7) <= len(data)
    _add_words(data, starts, lengths, np.flatnonzero(short & inside), hashes)
    last = np.flatnonzero(short & ~inside)
    if len(last):
        base = int(starts[last].min())
        tail = np.append(data[base:], np.zeros(8, np.uint8))
        _add_words(tail, starts - base, lengths, last, hashes)
    for row in np.flatnonzero(lengths > _LONG_BYTES):
        text = data[starts[row] : starts[row] + lengths[row]]
        hashes[row] = int.from_bytes(blake2b(text.data, digest_size=8).digest(), "little")
    return hashes


def _add_words(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints, rows: Ints, hashes: Hashes) -> None:
    """Fold the words of some rows into their hashes."""
    if not len(rows):
        return
    # Eight bytes at any offset; as raw items, which numpy gathers with a plain copy.
    words: npt.NDArray[np.void] = np.ndarray((len(data) - 7,), "V8", data, strides=(1,))
    if len(rows) == len(starts):
        at, left, state = starts, lengths, hashes
    else:
        at, left, state = starts[rows], lengths[rows], hashes[rows]
    while True:
        least = int(left.min())
        word = words[at].view("<u8")
        if least < 8:
            word &= _KEEP[np.minimum(left, 8)]
        state ^= word
        state *= _STEP
        state ^= state >> _HALF
        more = left > 8 if least <= 8 else None
        if more is None or more.all():
            at, left = at + 8, left - 8
            continue
        if state is not hashes:
            hashes[rows] = state  # those that go on are written again when they end
        going_on = np.flatnonzero(more)
        if not len(going_on):
            return
        rows, state = rows[going_on], state[going_on]
        at, left = at[going_on] + 8, left[going_on] - 8
