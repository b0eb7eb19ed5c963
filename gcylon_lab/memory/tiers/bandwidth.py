"""How fast this machine copies between tiers, measured by copying."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from ...errors import SpillError
from ...units import MIB
from .disk_tier import SpillStore
from .pinned_pool import PinnedPool

Rates = dict[str, float]
"""Bytes a second, by ``down`` and ``up``; empty where it could not be measured."""

_NBYTES = 8 * MIB
_TRIES = 2
_LOOK_S = 0.2  # 16 MiB written and read take 20 ms here; a disk that is busy with others' files takes seconds
_ANY_KIND = 4  # cudaMemcpyDefault


class CopyRates:
    """What is known of the copies of one rank, by tier.

    Parameters
    ----------
    known : mapping of str to Rates, optional
        What was measured at start.
    """

    def __init__(self, known: Mapping[str, Rates] | None = None) -> None:
        self._known = {tier: rates for tier, rates in (known or {}).items() if rates}
        self._folder: str | None = None
        self._measuring: threading.Thread | None = None

    @property
    def known(self) -> dict[str, Rates]:
        """What has been measured so far."""
        return dict(self._known)

    def look(self, tiers: Any, wait_s: float = _LOOK_S) -> None:
        """Measure the disk tier once it has been used, once a folder; for a moment when the rank is idle.

        In a thread of its own, since whoever looks has others to answer too.

        Parameters
        ----------
        tiers : StagingTiers
        wait_s : float
            How long to wait for it; what takes longer is known the next time.
        """
        disk: SpillStore = getattr(tiers, "disk", tiers)
        if not disk.written_bytes or disk.folder == self._folder or self._is_measuring():
            return
        self._folder = disk.folder
        self._measuring = threading.Thread(
            target=self._measure, args=(disk.folder,), name="gcylon-copy-rates", daemon=True
        )
        self._measuring.start()
        self._measuring.join(wait_s)

    def _is_measuring(self) -> bool:
        return self._measuring is not None and self._measuring.is_alive()

    def _measure(self, folder: str) -> None:
        # A new mapping, since `known` may be copying the old one.
        self._known = {**self._known, "disk": disk_rates(folder)}


def disk_rates(folder: str, nbytes: int = _NBYTES) -> Rates:
    """Write a block to a spill file of a folder and read it back, the best of two.

    The way is that of staging, with the system's own caching of files.
    """
    block = np.ones(nbytes, dtype=np.uint8).data
    try:
        down, up = [], []
        for _ in range(_TRIES):
            file = SpillStore(folder).new_file()
            began = perf_counter()
            region = file.append([block])
            written = perf_counter()
            region.read()
            down.append(written - began)
            up.append(perf_counter() - written)
    except SpillError:
        return {}
    return {"down": nbytes / min(down), "up": nbytes / min(up)}


def pinned_rates(pool: PinnedPool, nbytes: int = _NBYTES) -> Rates:
    """Copy a block of device memory to page-locked memory and back, the best of two.

    On the caller's current device and stream. Empty where there is no room for the block.
    """
    import cupy

    buffer = pool.try_take(nbytes, "measuring copies")
    if buffer is None:
        return {}
    try:
        block = cupy.empty(nbytes, dtype=cupy.uint8)
    except MemoryError:
        return {}
    stream = cupy.cuda.get_current_stream()

    def copy(target: int, source: int) -> float:
        begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
        begun.record(stream)
        cupy.cuda.runtime.memcpyAsync(target, source, nbytes, _ANY_KIND, stream.ptr)
        ended.record(stream)
        ended.synchronize()
        return float(cupy.cuda.get_elapsed_time(begun, ended)) / 1e3

    device = int(block.data.ptr)
    down = min(copy(buffer.pointer, device) for _ in range(_TRIES))
    up = min(copy(device, buffer.pointer) for _ in range(_TRIES))
    return {"down": nbytes / down, "up": nbytes / up} if down > 0 and up > 0 else {}
