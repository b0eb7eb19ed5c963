"""Whether texts are UTF-8: libcudf takes the bytes of a file as they are, and what reads them later may not."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from ..columns.data import offsets_of

# Each byte looks at those beside it: a first one at what has to follow, another one for the first one it belongs to.
_BYTE = """
    const long long at = start + i;
    const unsigned char c = bytes[at];
    bool right = true;
    if (c >= 0xC0) {
        const int more = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
        right = c >= 0xC2 && c <= 0xF4 && at + more < stop;
        for (int k = 1; right && k <= more; ++k) right = (bytes[at + k] & 0xC0) == 0x80;
        if (right) {
            const unsigned char next = bytes[at + 1];
            right = !((c == 0xE0 && next < 0xA0) || (c == 0xED && next > 0x9F) || (c == 0xF0 && next < 0x90) ||
                      (c == 0xF4 && next > 0x8F));
        }
    } else if (c >= 0x80) {
        right = false;
        for (int k = 1; k <= 3 && at - k >= start; ++k) {
            const unsigned char before = bytes[at - k];
            if ((before & 0xC0) == 0x80) continue;
            right = before >= (k == 1 ? 0xC0 : k == 2 ? 0xE0 : 0xF0);
            break;
        }
    }
    if (!right) wrong[0] = true;
"""
# No text begins in the middle of a letter.
_START = """
    const long long offset = offsets[i];
    if (offset < stop && (bytes[offset] & 0xC0) == 0x80) wrong[0] = true;
"""


@lru_cache(maxsize=1)
def _kernels() -> tuple[Any, Any]:
    given = "raw uint8 bytes, int64 start, int64 stop"
    return (
        cupy.ElementwiseKernel(given, "raw bool wrong", _BYTE, "gcylon_utf8_bytes"),
        cupy.ElementwiseKernel(f"raw T offsets, {given}", "raw bool wrong", _START, "gcylon_utf8_starts"),
    )


def is_utf8(column: Any) -> bool:
    """Whether all texts of a pylibcudf column of strings are."""
    if not column.size() or column.data() is None or not column.data().size:
        return True
    offsets = offsets_of(column)
    start, stop = (int(one) for one in offsets[:: offsets.size - 1].get())
    if start == stop:
        return True
    memory = cupy.cuda.UnownedMemory(column.data().ptr, column.data().size, column)
    text = cupy.ndarray((stop,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))
    wrong = cupy.zeros(1, np.bool_)
    of_bytes, of_starts = _kernels()
    of_bytes(text, start, stop, wrong, size=stop - start)
    of_starts(offsets, text, start, stop, wrong, size=offsets.size - 1)
    return not bool(wrong[0])
