"""Numbers and times as unsigned 64-bit words that are ordered as they are, so that a search can halve their range."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...protocol.data import Words

_TOP = np.uint64(1 << 63)
_ALL = (1 << 64) - 1


def to_bits(values: npt.NDArray[Any]) -> Words:
    """Words of ints or floats, ordered as the values; NaN must not be among them."""
    if values.dtype.kind == "f":
        wide = np.add(values, 0.0, dtype=np.float64)  # -0.0 is 0.0
        flipped: Words = (wide.view(np.int64) >> 63).view(np.uint64)  # all bits of a negative number, else the top one
        flipped |= _TOP
        flipped ^= wide.view(np.uint64)
        return flipped
    if values.dtype.kind == "u":
        return values.astype(np.uint64)
    return values.astype(np.int64).view(np.uint64) ^ _TOP


def from_bits(bits: Words, kind: str) -> npt.NDArray[Any]:
    """The values of words: kind is that of the dtype they were made of, ``i``, ``u`` or ``f``."""
    if kind == "f":
        return np.where(bits & _TOP != 0, bits & ~_TOP, ~bits).view(np.float64)
    return bits if kind == "u" else (bits ^ _TOP).view(np.int64)


def histogram(bits: Words, low: int, high: int, bins: int) -> npt.NDArray[np.int64]:
    """How many words lie in each part of [low, high], which is cut into parts of one width; shape (bins,)."""
    count, width = high - low + 1, bin_width(low, high, bins)
    if count % width:
        bits = bits[(bits >= np.uint64(low)) & (bits <= np.uint64(high))]
    places = bits - np.uint64(low) if low else bits  # what is below is far above then
    shift = width.bit_length() - 1
    places = places >> np.uint64(shift) if width == 1 << shift else places // np.uint64(width)
    used = -(-count // width)
    if count <= _ALL:
        places = np.minimum(places, np.uint64(used))  # a place beyond for all that is outside
    counts = np.bincount(places.view(np.int64), minlength=bins + 1).astype(np.int64, copy=False)
    counts[used:] = 0
    return counts[:bins]


def bin_width(low: int, high: int, bins: int) -> int:
    """The width of a part."""
    return -(-(high - low + 1) // bins)
