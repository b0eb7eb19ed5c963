"""What a rank's GPU or host has of memory beside its budget; what the rank keeps to use again, and giving it back."""

from __future__ import annotations

import os
from typing import Any

from ..backends.host.keys.scratch_pool import scratch_state, trim_scratch
from ..memory.available import available_bytes, total_bytes
from ..memory.budget import release_freed
from ..memory.nvml import GpuStatus
from ..profiling.sampler import read_rss_bytes
from .devices import Equipment


def memory_info(equipment: Equipment, limit_bytes: int) -> dict[str, Any]:
    """As `Context.memory_info`; ``limit_bytes`` is the budget's of operations without a config of their own."""
    budget, device, transport = equipment.budget, equipment.device, equipment.transport
    free: int | None
    total: int | None
    outside: int | None
    if device is None:
        free, total = available_bytes(), total_bytes()
        outside = max(0, read_rss_bytes() - budget.allocated_bytes)
    else:
        free, total, outside = _gpu(device.slab.nbytes)
    return {
        "rank": transport.rank,
        "host": transport.host,
        "pid": os.getpid(),
        "device": equipment.where,
        "free_bytes": free,
        "total_bytes": total,
        "used_bytes": None if free is None or total is None else total - free,
        "budget_limit_bytes": limit_bytes,
        "budget_used_bytes": budget.allocated_bytes,
        "budget_peak_bytes": budget.peak_bytes,
        "outside_bytes": outside,
    }


def _gpu(slab_bytes: int) -> tuple[int | None, int | None, int | None]:
    """Free, all, and what is in use beside this rank's slab; from NVML, as the driver's own answer needs the context's
    thread."""
    status = GpuStatus()
    used, total = status.read_used_bytes(), status.total_bytes
    if used is None or total is None:
        return None, total, None
    return total - used, total, max(0, used - slab_bytes)


def pools_of(equipment: Equipment, thread: int | None = None) -> list[dict[str, Any]]:
    """As `Context.pools`; ``thread`` is the one that works, this one by default."""
    scratch = scratch_state(thread)
    found = [
        _row("scratch", scratch.held_bytes, scratch.used_bytes, scratch.largest_free_bytes, scratch.hits,
             scratch.misses, scratch.misses, scratch.drops)
    ]  # fmt: skip
    pool, device = equipment.pool, equipment.device
    if pool is not None:
        found.append(
            _row("pinned", pool.held_bytes, pool.used_bytes, pool.largest_free_bytes, pool.hits, pool.misses,
                 pool.growths, pool.drops)
        )  # fmt: skip
    if device is not None:  # one slab from the start: it never grows, and RMM does not tell its free pieces
        found.append(_row("device", device.slab.nbytes, device.used_bytes, None, device.allocation_count, 0, 0, 0))
    return [{"rank": equipment.transport.rank, **row} for row in found]


def trim(equipment: Equipment) -> dict[str, int]:
    """As `Context.trim`."""
    tiers, pool, before = equipment.tiers, equipment.pool, read_rss_bytes()
    kept = tiers.kept.nbytes("pinned") + tiers.kept.nbytes("disk")
    for tier in ("pinned", "disk"):
        tiers.kept.drop(tier)
    tiers.flush()
    freed = {
        "rank": equipment.transport.rank,
        "kept_bytes": kept,
        "pinned_bytes": 0 if pool is None else pool.trim(),
        "scratch_bytes": trim_scratch(),
    }
    release_freed()
    return freed | {"resident_bytes": max(0, before - read_rss_bytes())}


def _row(
    pool: str, held: int, used: int, largest: int | None, hits: int, misses: int, growths: int, drops: int
) -> dict[str, Any]:
    free, asked = held - used, hits + misses
    return {
        "pool": pool, "held_bytes": held, "used_bytes": used, "largest_free_bytes": largest,
        "fragmentation": None if largest is None else 1 - largest / free if free > 0 else 0.0,
        "hits": hits, "misses": misses, "hit_rate": hits / asked if asked else None, "growths": growths, "drops": drops,
    }  # fmt: skip
