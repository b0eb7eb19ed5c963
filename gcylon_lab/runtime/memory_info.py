"""What a rank's GPU or host has of memory, beside its budget."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..memory.available import available_bytes, total_bytes
from ..memory.nvml import GpuStatus
from ..profiling.sampler import read_rss_bytes

if TYPE_CHECKING:
    from .context import Context


def memory_info(context: Context) -> dict[str, Any]:
    """As `Context.memory_info`."""
    budget, device = context.budget, context.equipment.device
    if device is None:
        free, total = available_bytes(), total_bytes()
        outside: int | None = max(0, read_rss_bytes() - budget.allocated_bytes)
    else:
        free, total, outside = _gpu(device.slab.nbytes)
    return {
        "rank": context.rank,
        "host": context.host,
        "pid": os.getpid(),
        "device": context.device,
        "free_bytes": free,
        "total_bytes": total,
        "used_bytes": None if free is None or total is None else total - free,
        "budget_limit_bytes": context.workspace.live_limit_bytes,
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
