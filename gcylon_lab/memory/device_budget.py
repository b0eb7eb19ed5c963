"""The budget of a rank that works on a GPU: claims as everywhere, peaks as the allocator measured them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .budget import MemoryBudget
from .device import Device

# The allocator counts each allocation in whole steps of 256 bytes: of so many of them that much may be lost.
_LOST_BYTES, _LOST_PART = 64 * 256, 64


class DeviceBudget(MemoryBudget):
    """Claims on a device whose allocator enforces the same limit.

    What nobody claimed, such as frames that a user made, is counted as in use from the next operation on.

    Parameters
    ----------
    device : Device
        Opened with the ceiling.
    """

    def __init__(self, device: Device) -> None:
        super().__init__(device.limit_bytes)
        self._device = device
        self._unclaimed = 0

    @property
    def allocated_bytes(self) -> int:
        """What is allocated now, claimed or not."""
        return self._device.used_bytes

    @property
    def allocatable_bytes(self) -> int:
        """As `remaining_bytes`, less what the allocator may lose of it."""
        return max(0, self.remaining_bytes - min(_LOST_BYTES, self.limit_bytes // _LOST_PART))

    def has_room(self, nbytes: int) -> bool:
        """Whether so many bytes can be allocated now, claimed or not."""
        if self._device.room_bytes < nbytes:
            self._device.renew_limit()  # what was freed since may be missing in what is left of a lower one
        return self._device.room_bytes >= nbytes

    @property
    def peak_bytes(self) -> int:
        """The most that was allocated since the last `reset_peak`."""
        return self._device.peak_bytes

    @property
    def window_peak_bytes(self) -> int:
        """The most that was allocated since the last `start_window`."""
        return self._device.window_peak_bytes

    @property
    def allocation_count(self) -> int:
        """Allocations since the last `reset_allocation_count`."""
        return self._device.allocation_count

    def reset_peak(self) -> None:
        """Let the peak start again from what is allocated now."""
        self._device.reset_peak()

    def reset_allocation_count(self) -> None:
        """Let the count start again from 0."""
        self._device.reset_allocation_count()

    def start_window(self) -> None:
        """Start the peak of one operation, and look at what is allocated without a claim."""
        with self._lock:
            claimed = self._used - self._unclaimed
            self._unclaimed = max(0, self._device.used_bytes - claimed)
            self._used = claimed + self._unclaimed
        self._device.start_window()

    def recount(self) -> None:
        """Count anew what is claimed; what nobody claimed is looked at by the next operation, as always."""
        super().recount()
        self._unclaimed = 0

    def _take(self, nbytes: int, what: str) -> None:
        super()._take(nbytes, what)
        # What is granted has to fit in the allocator too, where others gave back what they held before the operation.
        self._device.keep_limit_true(self._used)

    def renew_limit(self) -> None:
        """Count anew what a lower limit leaves, after something was freed."""
        self._device.renew_limit()

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Let allocations pass a lower limit for a while; claims do not."""
        with self._device.lifted():
            yield

    @contextmanager
    def limited(self, limit_bytes: int) -> Iterator[None]:
        """Hold a lower limit for a while, in the allocator too.

        Raises
        ------
        ValueError
            If it is above the ceiling.
        """
        with super().limited(limit_bytes):
            if limit_bytes == self.ceiling_bytes:
                yield
                return
            with self._device.limited(limit_bytes):
                yield
