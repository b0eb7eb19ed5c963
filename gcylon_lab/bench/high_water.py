"""The true memory of this process: as the kernel counts it, once freed memory that libraries kept was given back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from pathlib import Path

import pyarrow as pa


def reset_high_water() -> None:
    """Give back what is free, and let the high-water mark start again from what is resident now."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):
        # Freed memory that malloc kept would hide growth.
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def high_water_bytes() -> int:
    """The most that was resident since `reset_high_water`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
