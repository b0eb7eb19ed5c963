"""What a rank's GPU or host has of memory, beside its budget."""

from __future__ import annotations

import os
from typing import Any

from ..memory.available import available_bytes, total_bytes
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
