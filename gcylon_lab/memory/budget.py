"""The limit on the device tier, and the claims on it."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import TracebackType
from typing import Any

from ..errors import BudgetExceeded, note_left
from ..units import MIB, format_bytes
from . import debug_checks
from .allocation_log import AllocationLog

_ARROW_VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"
# Arrow's own allocator gives freed pages back soon, and what comes next pays for each anew: of 22 queries of TPC-H a
# tenth of all time. It is told when it starts, in ms; `HeapWatch` has it give back more than a part of the limit before
# that. Not -1, which is never: then it does not where it is asked to either.
KEEPING_FREED = {"MIMALLOC_PURGE_DELAY": "100000"}
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers, of malloc.h
# A part of a limit may be kept. Blocks above it are given back when they are freed, which costs a page fault for each
# of their pages: with less than 1 MiB work took up to twice the time, above 32 MiB glibc has it so anyway.
_KEPT_IN_LIMIT = 16
_LEAST, _MOST = MIB, 32 * MIB
_LEAST_WATCHED = 12 * MIB  # growth that nobody looks at
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
# Beside such a limit what Arrow's own allocator keeps is little, and a shuffle of strings takes it less time.
_AMPLE = 1024 * MIB
_POOLS = threading.Lock()  # around choosing the pool of the process
STAGE_IT = ", or let it stage (strategy='staged', allow_cpu_staging and allow_disk_spill)."


class Reservation:
    """A claim on the budget, held while the bytes exist. Made by `MemoryBudget.reserve`.

    Released on leaving a ``with`` block, by `release`, or when it is collected.
    """

    __slots__ = ("__weakref__", "_budget", "nbytes", "what")

    def __init__(self, budget: MemoryBudget, nbytes: int, what: str) -> None:
        self._budget: MemoryBudget | None = budget
        self.nbytes = nbytes
        self.what = what

    def release(self) -> None:
        """Give the bytes back. Idempotent."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget._give(self.nbytes, self.what)
            self.nbytes = 0

    def resize(self, nbytes: int) -> None:
        """Grow or shrink to ``nbytes``.

        Raises
        ------
        BudgetExceeded
            If growing does not fit; the reservation then stays as it was.
        """
        if self._budget is None:
            raise ValueError(f"the reservation for {self.what} was released")
        if nbytes < 0:
            raise ValueError(f"cannot reserve {nbytes} bytes")
        if nbytes > self.nbytes:
            self._budget._take(nbytes - self.nbytes, self.what)
        else:
            self._budget._give(self.nbytes - nbytes, self.what)
        self.nbytes = nbytes

    def split(self, nbytes: int, what: str = "") -> Reservation:
        """Make so many of the bytes, or as many as there are, a claim of its own, perhaps for something else; this one
        keeps the rest."""
        if self._budget is None:
            raise ValueError(f"the reservation for {self.what} was released")
        own = min(nbytes, self.nbytes)
        self.nbytes -= own
        what = what or self.what
        self._budget._count_as(own, self.what, what)
        return Reservation(self._budget, own, what)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            note_left(error, claim=(self.what, self.nbytes))
        self.release()

    def __del__(self, _is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _is_ending():  # all memory goes then, and what `release` calls may have gone already
            self.release()


class MemoryBudget:
    """The device tier of one rank: a limit, what is claimed, and the most that was.

    Reserve first, then allocate: what is not granted is never allocated, so
    the peak cannot pass the limit. Safe to read from other threads.

    Parameters
    ----------
    limit_bytes : int
        The ceiling, at least 1.
    on_limit : callable, optional
        Called with each limit that begins to hold.
    log : AllocationLog, optional
        Where claims are written down.
    """

    def __init__(
        self, limit_bytes: int, on_limit: Callable[[int], None] | None = None, log: AllocationLog | None = None
    ) -> None:
        if limit_bytes < 1:
            raise ValueError(f"a budget of {limit_bytes} bytes holds nothing")
        self._on_limit = on_limit
        self._heap = None if on_limit is None else HeapWatch()
        self._log = log
        # Re-entrant: a reservation collected inside a call comes back through `_give` on the same thread.
        self._lock = threading.RLock()
        self.ceiling_bytes = limit_bytes
        self._limit = limit_bytes
        self._used = 0
        self._uses: dict[str, int] = {}
        self._peak = 0
        self._window_peak = 0
        self._count = 0

    @property
    def limit_bytes(self) -> int:
        """The limit now: the ceiling, or the lower one of a running operation."""
        return self._limit

    @property
    def used_bytes(self) -> int:
        """What is claimed now."""
        return self._used

    @property
    def allocated_bytes(self) -> int:
        """What is in use now as far as is known: what is claimed, where no allocator counts."""
        return self._used

    @property
    def peak_bytes(self) -> int:
        """The most that was claimed since the last `reset_peak`."""
        return self._peak

    @property
    def remaining_bytes(self) -> int:
        """What can still be reserved; 0 where tables of before exceed a lowered limit."""
        return max(0, self._limit - self._used)

    @property
    def allocatable_bytes(self) -> int:
        """What can be reserved and then be allocated in some parts."""
        return max(0, self._limit - self._used)

    @property
    def allocation_count(self) -> int:
        """Claims granted since the last `reset_allocation_count`: reservations, and their growing."""
        return self._count

    def reserve(self, nbytes: int, what: str) -> Reservation:
        """Claim bytes before they are allocated.

        Parameters
        ----------
        nbytes : int
            At least 0.
        what : str
            What for, in words that stand in the error.

        Raises
        ------
        BudgetExceeded
            If the limit would be passed; nothing is claimed then.
        """
        if nbytes < 0:
            raise ValueError(f"cannot reserve {nbytes} bytes")
        self._take(nbytes, what)
        return Reservation(self, nbytes, what)

    def reset_peak(self) -> None:
        """Let the peak start again from what is claimed now."""
        with self._lock:
            self._peak = self._used

    @property
    def window_peak_bytes(self) -> int:
        """The most that was claimed since the last `start_window`."""
        return self._window_peak

    def start_window(self) -> None:
        """Start the peak of one operation; the user's own `peak_bytes` goes on."""
        with self._lock:
            self._window_peak = self._used
        if self._heap is not None:
            self._heap.start(self._used)

    def reset_allocation_count(self) -> None:
        """Let the count start again from 0."""
        with self._lock:
            self._count = 0

    def recount(self) -> None:
        """Count anew what is claimed, with nothing in flight.

        An interrupt may strike between a claim and its count, or while Python collects a claim, which then is never
        given back.
        """
        live = self.claims()
        with self._lock:
            self._used = sum(one.nbytes for one in live)
            self._uses = {}
            for one in live:
                self._uses[one.what] = self._uses.get(one.what, 0) + one.nbytes

    def by_use(self) -> dict[str, int]:
        """What is claimed now, by what it is for."""
        with self._lock:
            return {what: nbytes for what, nbytes in self._uses.items() if nbytes}

    def claims(self) -> list[Reservation]:
        """All claims that are held now. They are looked for among all objects, which takes a moment: nobody lists them
        as they come and go."""
        # Not among those of gc.get_objects: its list would keep alive, for that moment, what other threads let go of.
        return [one for one in gc.get_referrers(self) if type(one) is Reservation]

    def has_room(self, nbytes: int) -> bool:
        """Whether so many bytes are free now, as whoever counts them says."""
        return self.remaining_bytes >= nbytes

    def renew_limit(self) -> None:
        """Nothing to do: claims are counted as they come and go."""

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Let allocations pass a lower limit for a while: nothing to do where no allocator holds it."""
        yield

    @contextmanager
    def limited(self, limit_bytes: int) -> Iterator[None]:
        """Hold a lower limit for a while.

        Raises
        ------
        ValueError
            If it is above the ceiling.
        """
        if limit_bytes > self.ceiling_bytes:
            raise ValueError(f"{limit_bytes} is above the ceiling of {self.ceiling_bytes} bytes")
        with self._lock:
            before, self._limit = self._limit, limit_bytes
        if self._on_limit is not None:
            self._on_limit(limit_bytes)
        try:
            yield
        finally:
            with self._lock:
                self._limit = before

    def _take(self, nbytes: int, what: str) -> None:
        with self._lock:
            # Nothing fits always, also where tables of before exceed a lowered limit.
            if nbytes and self._used + nbytes > self._limit:
                raise exceeded(what, nbytes, self._used, self._limit)
            self._used += nbytes
            self._uses[what] = self._uses.get(what, 0) + nbytes
            self._peak = max(self._peak, self._used)
            self._window_peak = max(self._window_peak, self._used)
            self._count += 1
        if self._log is not None and nbytes:
            self._log.write("allocate", nbytes, what)
        if debug_checks.noting:
            debug_checks.note_purpose(what)

    def _give(self, nbytes: int, what: str) -> None:
        with self._lock:
            self._used -= nbytes
            self._count_as(nbytes, what, "")
        heap = self._heap
        if heap is not None:
            heap.freed += nbytes
            if heap.freed >= _LEAST:  # asked often: most claims are small
                heap.look(self._used, self._limit)
        if self._log is not None and nbytes:
            self._log.write("free", nbytes, what)

    def _count_as(self, nbytes: int, before: str, what: str) -> None:
        """Count bytes that were for something as for something else, or as for nothing any more."""
        with self._lock:
            left = self._uses.get(before, 0) - nbytes
            if left > 0:
                self._uses[before] = left
            else:
                self._uses.pop(before, None)
            if what:
                self._uses[what] = self._uses.get(what, 0) + nbytes


def advised(limit_bytes: int, would_do: int, *, staged: bool, evicted: bool = False) -> str:
    """What to change, where something did not fit; see `exceeded`. ``evicted``: whatever may be staged has been."""
    limit = f"gpu_memory_limit is {format_bytes(limit_bytes)} now; {format_bytes(would_do)} ({would_do}) is enough."
    if evicted:
        return f"{limit} All that may be evicted is evicted already: this much is needed at once."
    return f"{limit} Or release tables" + ("." if staged else STAGE_IT)


def exceeded(
    what: str,
    needed_bytes: int,
    used_bytes: int,
    limit_bytes: int,
    rank: int | None = None,
    would_do: int = 0,
    *,
    staged: bool = False,
) -> BudgetExceeded:
    """Make the error that says what did not fit, and which limit would do.

    Parameters
    ----------
    what : str
        What the bytes were for.
    needed_bytes, used_bytes, limit_bytes : int
        What was asked, what was claimed already, and the limit.
    rank : int, optional
        Where it did not fit.
    would_do : int, optional
        A limit that is large enough; what is claimed and what was asked by default.
    staged : bool, default False
        Whether it is staged already, so that staging is no advice.
    """
    would_do = max(would_do, used_bytes + needed_bytes)
    message = (
        f"{what} needs {format_bytes(needed_bytes)} while {format_bytes(used_bytes)} of the "
        f"{format_bytes(limit_bytes)} budget are in use."
    )
    return BudgetExceeded(
        message,
        advice=advised(limit_bytes, would_do, staged=staged),
        rank=rank,
        needed_bytes=needed_bytes,
        used_bytes=used_bytes,
        limit_bytes=limit_bytes,
        knob="gpu_memory_limit",
        would_do=would_do,
    )


# ---- how much freed memory this process keeps. It is in no budget, so it is to be small beside one: Arrow's own
# allocator keeps tens of megabytes, and glibc's up to twice the largest block that was ever freed, if that is below
# 32 MiB. Both were most of what processes grew by beyond small budgets.


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
    with _POOLS:
        chosen = small != (pa.default_memory_pool().backend_name == system.backend_name)
        if chosen:
            pa.set_memory_pool(system if small else own)
    if chosen and small:
        _release_own_pool()


def release_evicted(nbytes: int, limit_bytes: int) -> None:
    """Give back what allocators keep of so many bytes that were just freed, where it is more than a part of a limit.

    glibc keeps blocks below its threshold that have others above them, and may put what comes next elsewhere: of many
    narrow columns a table would take its memory twice.
    """
    _release_own_pool()
    if nbytes > max(kept_bytes(limit_bytes), _LEAST_WATCHED):
        _trim()


class HeapWatch:
    """Has freed memory given back where a process has grown by more than what is claimed of its budget.

    Blocks of many sizes come and go in work on strings, and what fits nowhere else stays with glibc: as much again as
    the budget, at times. It is looked at each time when as much was freed as may be kept.

    Attributes
    ----------
    freed : int
        Bytes that were given back since it was looked at.
    """

    def __init__(self) -> None:
        self.freed = self._before = 0

    def start(self, used_bytes: int) -> None:
        """Count growth from now on."""
        self._before, self.freed = _resident_bytes() - used_bytes, 0

    def look(self, used_bytes: int, limit_bytes: int) -> None:
        """Give back what is too much, where enough was freed; so many bytes are still claimed."""
        kept = kept_bytes(limit_bytes)
        if self.freed < kept or not self._before:
            return
        self.freed = 0
        ample = limit_bytes >= _AMPLE  # of which Arrow's own allocator keeps as large a part as glibc does of others
        growth = limit_bytes // _KEPT_IN_LIMIT if ample else kept
        most = self._before + used_bytes + max(growth, _LEAST_WATCHED)
        if _resident_bytes() > most:
            (release_freed if ample else _trim)()
            # What is left is no free memory: it is not looked for each time.
            self._before += max(0, _resident_bytes() - most) // 2


def _resident_bytes() -> int:
    """What of this process is in memory; 0 where nobody tells."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _release_own_pool() -> None:
    """Give back what Arrow's own allocator keeps, where Arrow allocates with malloc: nothing else would make it."""
    import pyarrow as pa

    own = _own_pool()
    if pa.default_memory_pool().backend_name != own.backend_name:
        _release_unused(own)


def _release_unused(pool: Any) -> None:
    """Give back what a pool keeps. pyarrow's `release_unused` asks the default pool, whichever it is called on."""
    import pyarrow as pa

    with _POOLS:
        before = pa.default_memory_pool()
        pa.set_memory_pool(pool)
        try:
            pool.release_unused()
        finally:
            pa.set_memory_pool(before)


@cache
def _own_pool() -> Any:
    import pyarrow as pa

    return pa.default_memory_pool()


def release_freed() -> None:
    """Give freed memory that the allocators keep back to the system, as far as they can be told."""
    import pyarrow as pa

    for pool in {id(pool): pool for pool in (_own_pool(), pa.default_memory_pool())}.values():
        _release_unused(pool)
    _trim()


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


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
    return mallopt
