"""How much memory a rank may count on when it starts."""

from __future__ import annotations

import os
from pathlib import Path

_NO_LIMIT = 2**60


def available_bytes() -> int:
    """Memory that can be had now: the smaller of what the kernel calls available and what the cgroup leaves.

    Returns
    -------
    int
        At least 1.
    """
    return max(1, min(_machine_bytes(), cgroup_left_bytes()))


def total_bytes() -> int:
    """All memory that this process could have: the machine's, or the limit of its control group where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue  # not this version of cgroups, or "max"
    return total


def cgroup_left_bytes() -> int:
    """What this process's control group still allows; a very large number where there is no limit."""
    left = _NO_LIMIT
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            left = min(left, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            continue  # not this version of cgroups, or "max"
    return left


def _machine_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
