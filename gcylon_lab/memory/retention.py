"""How much freed memory this process keeps: an allocator's pool is in no budget, so it is to be small beside one.

Arrow's own allocator keeps tens of megabytes of what was freed, and glibc's up to twice the largest block that was ever
freed, if that is below 32 MiB. Both were most of what processes grew by beyond small budgets.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

from ..units import MIB

_ARROW_VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers, of malloc.h
# A part of a limit may be kept. Blocks above it are given back when they are freed, which costs a page fault for each
# of their pages: with less than 1 MiB work took up to twice the time, above 32 MiB glibc has it so anyway.
_KEPT_IN_LIMIT = 16
_LEAST, _MOST = MIB, 32 * MIB
# Beside such a limit what Arrow's own allocator keeps is little, and a shuffle of strings takes it less time.
_AMPLE = 1024 * MIB


def bound_retention(limit_bytes: int) -> None:
    """Let this process keep of freed memory what is a small part of a limit, as far as its allocators can be told.

    Below 1 GiB Arrow allocates with malloc, as numpy does, unless the environment names a pool.
    """
    mallopt = _mallopt()
    if mallopt is None:
        return
    kept = kept_bytes(limit_bytes)
    mallopt(_MMAP_THRESHOLD, kept)
    mallopt(_TRIM_THRESHOLD, kept)
    if not os.environ.get(_ARROW_VARIABLE):
        _choose_pool(small=limit_bytes < _AMPLE)


def _choose_pool(*, small: bool) -> None:
    import pyarrow as pa

    own, system = _own_pool(), pa.system_memory_pool()
    if small != (pa.default_memory_pool().backend_name == system.backend_name):
        pa.set_memory_pool(system if small else own)
        if small:
            own.release_unused()


@cache
def _own_pool() -> Any:
    import pyarrow as pa

    return pa.default_memory_pool()


def kept_bytes(limit_bytes: int) -> int:
    """What may be kept of freed memory under a limit."""
    return min(_MOST, max(_LEAST, limit_bytes // _KEPT_IN_LIMIT))


@cache
def _mallopt() -> Callable[[int, int], int] | None:
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - others have a mallopt of other numbers
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return None
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return mallopt  # type: ignore[no-any-return]
