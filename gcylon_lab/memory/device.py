"""The memory of the GPU: one slab, one limit that no allocation passes, and what was allocated, counted.

Built once in a process. From below: cudaMalloc (so that peers can map the
slab), a pool that is the slab, by choice bins of small blocks cut from it,
the limit, the statistics. cuDF and CuPy
allocate from the top; a lower limit, of one operation, stands above the
statistics while it holds.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

from ..units import MIB, format_bytes
from .debug_checks import NO_CHECKS, CheckedResource, Checks

_ALIGN = 256  # the limit counts every allocation as a multiple of this
_SLAB_ALIGN = 2 * MIB  # what the driver maps at once
_LEAST_SLACK, _MOST_SLACK, _SLACK_PART = 32 * MIB, 1024 * MIB, 32
_RENEWED_FROM, _RENEWED_PART = 4 * MIB, 16
POOLS = ("pool", "binning")
_BIN_EXPONENTS, _BLOCKS_OF_A_BIN = (8, 16), 128  # blocks of 256 bytes to 64 KiB; RMM makes 128 of them at once
_BINS_BYTES = _BLOCKS_OF_A_BIN * (2 ** (_BIN_EXPONENTS[1] + 1) - 2 ** _BIN_EXPONENTS[0])
_LIBRARIES = ("cupy", "rmm", "pylibcudf", "cudf")

_open: Device | None = None
_kept: list[tuple[Any, int]] = []  # of closed devices: what is still allocated is freed through it; used before


class _Nothing(NamedTuple):
    current_bytes: int = 0
    peak_bytes: int = 0
    total_count: int = 0


_NOTHING = _Nothing()  # what a closed device has counted


class DeviceUnavailable(RuntimeError):
    """This process cannot work on a GPU; ``reason`` says why, so that a caller may use CPU engines instead."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Slab:
    """The device memory that all allocations are in, as the driver knows it."""

    base: int
    nbytes: int


def why_unavailable() -> str:
    """Say why this process cannot work on a GPU; "" where it can. Loads CuPy where there is a driver."""
    return availability()[1]


def availability() -> tuple[str, str]:
    """Say whether this process can work on a GPU, before its memory is taken. Loads CuPy where there is a driver.

    Returns
    -------
    state : str
        "available", "no driver", "not installed", "no device", or "failed" where what is there does not start.
    reason : str
        Why not, in words; "" where it is available.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no driver", "there is no NVIDIA driver (libcuda.so.1 is not found)"
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        return "not installed", f"{', '.join(missing)} not installed (pip install 'gcylon-lab[gpu]')"
    try:
        import cupy

        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if "cudaErrorNoDevice" not in str(error):
                return "failed", f"CUDA does not start: {error}"
            listed = os.environ.get("CUDA_VISIBLE_DEVICES")
            return "no device", "no GPU is visible" + ("" if listed is None else f" (CUDA_VISIBLE_DEVICES={listed!r})")
    except Exception as error:
        return "failed", do_not_load(error)
    return ("available", "") if count else ("no device", "no GPU is visible (see CUDA_VISIBLE_DEVICES)")


def do_not_load(error: Exception) -> str:
    """Say that what is installed does not fit this machine: a missing CUDA library, a driver that is too old."""
    return f"the GPU libraries do not load: {type(error).__name__}: {error}".rstrip(".")


def free_bytes() -> int:
    """Return the memory that is free on the current device; starts its CUDA context, so that this is not in it.

    Raises
    ------
    DeviceUnavailable
        If there is none.
    """
    return _memory_info()[0]


def total_bytes() -> int:
    """Return all memory of the current device.

    Raises
    ------
    DeviceUnavailable
        If there is none.
    """
    return _memory_info()[1]


def slab_bytes(limit_bytes: int, pool: str = "pool") -> int:
    """Return how large the slab for a limit is.

    Beyond the limit it has slack, since free memory in pieces cannot be used
    whole: a 32nd of the limit, at least 32 MiB, at most 1 GiB; and the blocks of bins, where there are some.
    """
    slack = min(max(limit_bytes // _SLACK_PART, _LEAST_SLACK), _MOST_SLACK)
    slack += _BINS_BYTES if pool == "binning" else 0
    return -(-(limit_bytes + slack) // _SLAB_ALIGN) * _SLAB_ALIGN


def current_device() -> Device | None:
    """Return the device of this process, if it is open."""
    return _open


def open_device(
    limit_bytes: int, *, device_id: int = 0, checks: Checks = NO_CHECKS, log_file: str = "", pool: str = "pool"
) -> Device:
    """Make all device allocations of this process come from one slab, under a limit.

    Parameters
    ----------
    limit_bytes : int
        The ceiling. Counted in steps of 256 bytes.
    device_id : int, optional
        Which of the visible devices.
    checks : Checks, optional
        Whether what is freed is poisoned, and what is allocated is tracked: by a Python call for each.
    log_file : str, optional
        Where RMM writes down each allocation, in a file of this name with the device's number in it.
    pool : {"pool", "binning"}, optional
        ``binning`` takes what is at most 64 KiB from blocks of fixed sizes.

    Returns
    -------
    Device
        Also what `current_device` returns until it is closed.

    Raises
    ------
    DeviceUnavailable
        If there is no driver, device or cuDF, or the slab does not fit.
    RuntimeError
        If it is open already: there is one in a process.
    """
    global _open
    if _open is not None:
        raise RuntimeError(f"the device is open already, with a limit of {format_bytes(_open.limit_bytes)}")
    _give_back_slabs()
    if limit_bytes < _ALIGN:
        raise ValueError(f"a device of {limit_bytes} bytes holds nothing")
    if reason := why_unavailable():
        raise DeviceUnavailable(reason)
    _open = Device(limit_bytes, device_id, checks, log_file, pool)
    return _open


class Device:
    """The device memory of this process. Made by `open_device`. Counts may be read from other threads.

    Attributes
    ----------
    limit_bytes : int
        The ceiling.
    device_id : int
        Which of the visible devices.
    pool : str
        ``binning`` where small allocations come from blocks of fixed sizes.
    slab : Slab
        Where all allocations are.
    """

    def __init__(
        self, limit_bytes: int, device_id: int, checks: Checks = NO_CHECKS, log_file: str = "", pool: str = "pool"
    ) -> None:
        import cupy
        import rmm
        from rmm.allocators.cupy import rmm_cupy_allocator

        cupy.cuda.Device(device_id).use()
        # Where memory ends RMM raises, and would print the same a second time.
        self._level_before: Any = rmm.get_logging_level()
        rmm.set_logging_level(rmm.level_enum.critical)
        self.device_id = device_id
        self.limit_bytes, self.pool = limit_bytes, pool
        self._pool: Any = _make_pool(limit_bytes, pool)
        binned = rmm.mr.BinningMemoryResource(self._pool, *_BIN_EXPONENTS) if pool == "binning" else self._pool
        checked = _checked(binned, checks) if checks != NO_CHECKS else binned
        self._log: Any = rmm.mr.LoggingResourceAdaptor(checked, log_file_name=log_file) if log_file else None
        logged = checked if self._log is None else self._log
        self._limiter: Any = rmm.mr.LimitingResourceAdaptor(logged, limit_bytes // _ALIGN * _ALIGN)
        self._statistics: Any = rmm.mr.StatisticsResourceAdaptor(self._limiter)
        self.slab = _find_slab(self._pool)
        self._before: Any = rmm.mr.get_current_device_resource()
        self._allocator_before: Any = cupy.cuda.get_allocator()
        rmm.mr.set_current_device_resource(self._statistics)
        cupy.cuda.set_allocator(rmm_cupy_allocator)
        self._lock = threading.Lock()
        # Counters begin at 0 with each window; these are what came before.
        self._used_before = self._count_before = self._peak = 0
        self._lower: int | None = None
        self._lowered: Any = None
        self._kept = 0
        self._statistics.push_counters()

    @property
    def resource(self) -> Any:
        """The RMM resource that everyone allocates from."""
        return self._statistics

    @property
    def used_bytes(self) -> int:
        """What is allocated now."""
        with self._lock:
            return self._used()

    @property
    def room_bytes(self) -> int:
        """What the allocator grants under the limit that holds now; to it each allocation is of whole 256 bytes."""
        limiter = self._lowered if self._lowered is not None else self._limiter
        return 0 if limiter is None else max(0, limiter.get_allocation_limit() - limiter.get_allocated_bytes())

    @property
    def peak_bytes(self) -> int:
        """The most that was allocated since the last `reset_peak`."""
        with self._lock:
            return max(self._peak, self._window_peak())

    @property
    def window_peak_bytes(self) -> int:
        """The most that was allocated since the last `start_window`."""
        with self._lock:
            return self._window_peak()

    @property
    def allocation_count(self) -> int:
        """Allocations since the last `reset_allocation_count`."""
        with self._lock:
            return int(self._count_before + self._counts().total_count)

    def start_window(self) -> None:
        """Start the peak of one operation; the user's own `peak_bytes` goes on."""
        with self._lock:
            self._next_window()

    def reset_peak(self) -> None:
        """Let the peak start again from what is allocated now."""
        with self._lock:
            self._next_window()
            self._peak = 0

    def reset_allocation_count(self) -> None:
        """Let the count start again from 0."""
        with self._lock:
            self._count_before = -int(self._counts().total_count)

    @contextmanager
    def limited(self, limit_bytes: int) -> Iterator[None]:
        """Hold a lower limit for a while: a second limit, over the statistics, on what is allocated from now on.

        Where more than that is allocated already, nothing can be allocated until some
        of it has been freed and `renew_limit` has been called.

        Raises
        ------
        ValueError
            If it is above the ceiling.
        """
        if limit_bytes > self.limit_bytes:
            raise ValueError(f"{limit_bytes} is above the ceiling of {self.limit_bytes} bytes")
        import rmm

        before = self._lower
        self._lower = limit_bytes if before is None else min(before, limit_bytes)
        self.renew_limit()
        try:
            yield
        finally:
            self._lower = before
            if before is None:
                self._lowered = None
                rmm.mr.set_current_device_resource(self._statistics)
            else:
                self.renew_limit()

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Let only the ceiling hold for a while: for what makes room under a lower limit that is passed already."""
        lower, lowered = self._lower, self._lowered
        if lower is None:
            yield
            return
        import rmm

        self._lower = self._lowered = None
        rmm.mr.set_current_device_resource(self._statistics)
        try:
            yield
        finally:
            self._lower, self._lowered = lower, lowered
            rmm.mr.set_current_device_resource(lowered)
            self.renew_limit()

    def renew_limit(self) -> None:
        """Let a lower limit leave what is free below it now: after what was allocated before it has been freed."""
        if self._lower is None or self._kept:
            return
        import rmm

        # What is allocated through it is freed through it too, whenever that is: buffers keep their resource.
        while True:
            used = self.used_bytes
            lowered = rmm.mr.LimitingResourceAdaptor(self._statistics, max(self._lower - used, 0) // _ALIGN * _ALIGN)
            rmm.mr.set_current_device_resource(lowered)
            if self.used_bytes - lowered.get_allocated_bytes() <= used:
                break  # else another thread allocated through the one before in between
        self._lowered = lowered

    @contextmanager
    def one_limit(self) -> Iterator[None]:
        """Renew no limit for a while: what keeps the resource that it began with, such as a reader of libcudf, would
        have the room that it leaves there a second time."""
        self.renew_limit()
        self._kept += 1
        try:
            yield
        finally:
            self._kept -= 1
            self.renew_limit()

    def keep_limit_true(self, claimed_bytes: int) -> None:
        """Renew a lower limit where enough of what was allocated before it has been freed since, or what is claimed
        and not yet allocated would be refused."""
        lower, lowered = self._lower, self._lowered
        if lower is None or lowered is None or self._kept:
            return
        room, used = lowered.get_allocation_limit() - lowered.get_allocated_bytes(), self.used_bytes
        freed = lower - used - room
        if freed >= min(_RENEWED_FROM, lower // _RENEWED_PART) or (freed > 0 and room < claimed_bytes - used):
            self.renew_limit()

    def close(self) -> None:
        """Put back what allocations were made by before. The slab goes too, unless something is still in it."""
        global _open
        if _open is not self:
            return
        import cupy
        import rmm

        _open = None
        rmm.set_logging_level(self._level_before)
        rmm.mr.set_current_device_resource(self._before)
        cupy.cuda.set_allocator(self._allocator_before)
        if self._log is not None:
            self._log.flush()
        _forget_scalars()
        with self._lock:
            _kept.append((self._statistics, self._used_before))
            self._statistics = self._limiter = self._log = self._pool = None
        _give_back_slabs()

    def _counts(self) -> Any:
        return _NOTHING if self._statistics is None else self._statistics.allocation_counts

    def _used(self) -> int:
        return 0 if self._statistics is None else int(self._used_before + self._counts().current_bytes)

    def _window_peak(self) -> int:
        return int(self._used_before + self._counts().peak_bytes)

    def _next_window(self) -> None:
        ended = self._statistics.pop_counters()
        self._peak = max(self._peak, self._used_before + ended.peak_bytes)
        self._count_before += ended.total_count
        # What the outer counters say at this instant, and not what the window ended with: others allocate meanwhile.
        self._used_before = self._statistics.push_counters().current_bytes


def _give_back_slabs() -> None:
    """Let go of closed devices whose last allocation has been freed since."""
    _kept[:] = [(one, before) for one, before in _kept if before + one.allocation_counts.current_bytes]


def _forget_scalars() -> None:
    """Free the scalars that cuDF keeps for its next calls: the last of them would keep a whole slab."""
    made = getattr(sys.modules.get("cudf.utils.scalar"), "pa_scalar_to_plc_scalar", None)
    if made is not None and hasattr(made, "cache_clear"):
        made.cache_clear()


def _memory_info() -> tuple[int, int]:
    if reason := why_unavailable():
        raise DeviceUnavailable(reason)
    import cupy

    try:
        free, total = cupy.cuda.runtime.memGetInfo()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceUnavailable(f"the GPU cannot be used: {error}") from error
    return int(free), int(total)


def _make_pool(limit_bytes: int, pool: str) -> Any:
    import rmm

    room = (_memory_info()[0] - _SLAB_ALIGN) // _SLAB_ALIGN * _SLAB_ALIGN
    least = -(-limit_bytes // _SLAB_ALIGN) * _SLAB_ALIGN
    nbytes = max(least, min(slab_bytes(limit_bytes, pool), room))  # rather less slack than no slab
    try:
        return rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), nbytes, nbytes)
    except (MemoryError, RuntimeError) as error:
        free, total = _memory_info()
        raise DeviceUnavailable(
            f"a slab of {format_bytes(nbytes)} cannot be made: {format_bytes(free)} of {format_bytes(total)} "
            f"are free on the GPU; lower gpu_memory_limit or gpu_memory_fraction"
        ) from error


def _checked(pool: Any, checks: Checks) -> Any:
    import cupy
    import rmm

    runtime = cupy.cuda.runtime

    def fill(pointer: int, nbytes: int, byte: int, stream: Any) -> None:
        runtime.memsetAsync(pointer, byte, nbytes, stream.__cuda_stream__()[1])

    made = CheckedResource(pool, checks, fill)
    return rmm.mr.CallbackMemoryResource(made.allocate, made.deallocate)


def _find_slab(pool: Any) -> Slab:
    """Ask the driver what one allocation of the pool is part of."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    pointer = pool.allocate(_ALIGN)
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuMemGetAddressRange_v2(
            ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer)
        )
    finally:
        pool.deallocate(pointer, _ALIGN)
    if failed:
        raise DeviceUnavailable(f"the driver does not tell the slab's address (cuMemGetAddressRange says {failed})")
    return Slab(base.value, size.value)
