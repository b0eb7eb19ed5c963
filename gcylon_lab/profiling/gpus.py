"""What the driver tells of GPUs, beside the budget: each GPU once, however many ranks share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

RankSnapshot = dict[str, Any]


class GpuSample(NamedTuple):
    """A GPU at one instant; None stands for what is not told.

    ``used_bytes`` is of all processes, with what the driver keeps. ``utilisation``
    is the percent of the last moment in which a kernel ran.
    """

    used_bytes: int | None
    utilisation: int | None


# A time in ns of this process's clock, then a GpuSample's fields.
TimedGpu = tuple[int, int | None, int | None]
GPU_COLUMNS = ("t_ns", *GpuSample._fields)


@dataclass(frozen=True, slots=True)
class GpuProbe:
    """The GPU that a rank works on, and how to ask for its figures.

    Attributes
    ----------
    held_bytes : int
        Taken from the driver by this rank's allocator, in use or not.
    read : callable
        Returns a `GpuSample`; called on the sampler's thread.
    """

    uuid: str
    name: str
    total_bytes: int
    held_bytes: int
    read: Callable[[], GpuSample]

    def as_dict(self) -> dict[str, Any]:
        """Return what it is as JSON values, without figures."""
        return {
            "uuid": self.uuid,
            "name": self.name,
            "total_bytes": int(self.total_bytes),
            "held_bytes": int(self.held_bytes),
        }


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """One GPU over time, as told by one of the ranks that work on it.

    Attributes
    ----------
    ranks : tuple of int
        All that work on it, in order.
    held_bytes : int
        What their allocators hold together: their budgets, with slack.
    t_ns, used_bytes, utilisation : list
        Of equal length, on rank 0's clock; None where something was not told.
    """

    uuid: str
    name: str
    host: str
    ranks: tuple[int, ...]
    total_bytes: int
    held_bytes: int
    t_ns: list[int]
    used_bytes: list[int | None]
    utilisation: list[int | None]

    @property
    def short_uuid(self) -> str:
        """Return the first part of its number, as shown where a rank works."""
        return self.uuid.removeprefix("GPU-").removeprefix("MIG-")[:8]

    @property
    def outside_bytes(self) -> list[int | None]:
        """Return what is in use outside the ranks' budgets: by the driver, by CUDA and NCCL, by other programs."""
        return [None if used is None else max(0, used - self.held_bytes) for used in self.used_bytes]

    @property
    def latest_outside_bytes(self) -> int | None:
        """Return the last that was told of `outside_bytes`."""
        return _last(self.outside_bytes)

    @property
    def latest_used_bytes(self) -> int | None:
        """Return the last that was told of `used_bytes`."""
        return _last(self.used_bytes)

    @property
    def latest_utilisation(self) -> int | None:
        """Return the last that was told of `utilisation`."""
        return _last(self.utilisation)

    @property
    def mean_utilisation(self) -> float | None:
        """Return the mean of what was told of `utilisation`."""
        told = [value for value in self.utilisation if value is not None]
        return sum(told) / len(told) if told else None


def gpus_of(snapshots: Sequence[RankSnapshot]) -> list[GpuSeries]:
    """Return the GPUs that ranks work on, each once, in the order of their lowest rank.

    Snapshots of CPU engines, and of ranks to which NVML tells nothing, add none.
    """
    groups: dict[str, list[RankSnapshot]] = {}
    for snapshot in sorted(snapshots, key=lambda s: int(s["rank"])):
        if snapshot.get("gpu"):
            groups.setdefault(str(snapshot["gpu"]["uuid"]), []).append(snapshot)
    return [_figures(group) for group in groups.values()]


def _figures(group: list[RankSnapshot]) -> GpuSeries:
    # All see the same; the one that was heard of longest has the longest line.
    told = max(group, key=lambda s: len(s["gpu"]["samples"]["t_ns"]))
    gpu = told["gpu"]
    return GpuSeries(
        str(gpu["uuid"]),
        str(gpu["name"]),
        str(told["host"]),
        tuple(int(s["rank"]) for s in group),
        int(gpu["total_bytes"]),
        sum(int(s["gpu"]["held_bytes"]) for s in group),
        *(list(gpu["samples"][column]) for column in GPU_COLUMNS),
    )


def _last(values: Sequence[int | None]) -> int | None:
    return next((value for value in reversed(values) if value is not None), None)
