"""Numbers and times as unsigned 64-bit words that are ordered as they are, so that a search can halve their range."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

_TOP = np.uint64(1 << 63)


def to_bits(values: npt.NDArray[Any]) -> Words:
    """Words of ints or floats, ordered as the values; NaN must not be among them."""
    if values.dtype.kind == "f":
        wide = values.astype(np.float64) + 0.0  # -0.0 is 0.0
        bits = wide.view(np.uint64)
        return np.where(bits & _TOP != 0, ~bits, bits | _TOP)
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
    inside = bits[(bits >= np.uint64(low)) & (bits <= np.uint64(high))]
    places = (inside - np.uint64(low)) // np.uint64(bin_width(low, high, bins))
    return np.bincount(places.astype(np.int64), minlength=bins).astype(np.int64)


def bin_width(low: int, high: int, bins: int) -> int:
    """The width of a part."""
    return -(-(high - low + 1) // bins)
