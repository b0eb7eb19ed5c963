"""Page-locked host memory, pooled: locking pages takes about half a second a GiB, far longer than a copy into them."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable
from time import sleep
from typing import Any, Protocol

import numpy as np

from ...profiling import span
from ...units import MIB, format_bytes
from ..debug_checks import NEW_BYTE, NO_CHECKS, Checks, poison_host
from .free_list import Extents

PAGE_BYTES = 4096
# While pages are locked other threads' CUDA calls wait: so in short steps, with time for them in between.
_PREFILL_STEP, _PREFILL_PAUSE_S = 32 * MIB, 0.002


def _pause() -> bool:
    sleep(_PREFILL_PAUSE_S)
    return True


def no_room(nbytes: int) -> bool:
    """What is asked for room where nobody keeps anything."""
    return False


class HostMemory(Protocol):
    """Where a pool's memory comes from."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory; any exception says that there is none."""
        ...

    def free(self, pointer: int) -> None:
        """Give it back."""
        ...


class PageLocked:
    """Memory that the copy engines of all GPUs read and write directly. Made on the device that is current now."""

    def __init__(self) -> None:
        import cupy

        self._runtime: Any = cupy.cuda.runtime
        # Without it a background thread would start the CUDA context of device 0.
        self._device: Any = cupy.cuda.Device()

    def allocate(self, nbytes: int) -> int:
        """Lock new pages."""
        with self._device:
            return int(self._runtime.hostAlloc(nbytes, self._runtime.hostAllocPortable))

    def free(self, pointer: int) -> None:
        """Unlock the pages and give them back."""
        with self._device:
            self._runtime.freeHost(pointer)


class Pageable:
    """Ordinary memory: for ``use_pinned_memory=False``, and for what cannot be page-locked."""

    def __init__(self) -> None:
        self._held: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}

    def allocate(self, nbytes: int) -> int:
        """Make room that takes memory only where it is written."""
        array = np.empty(nbytes, dtype=np.uint8)
        pointer: int = array.ctypes.data
        self._held[pointer] = array
        return pointer

    def free(self, pointer: int) -> None:
        """Give it back."""
        del self._held[pointer]


class PinnedBuffer:
    """Bytes from a pool. They go back when it is released, or when it and all its views are collected.

    Attributes
    ----------
    pointer, nbytes : int
        Address and length.
    pinned : bool
        Whether it is the pool's own memory; ordinary memory otherwise.
    """

    __slots__ = ("_pool", "_size", "nbytes", "pinned", "pointer")

    def __init__(self, pool: PinnedPool, pointer: int, nbytes: int, size: int, *, pinned: bool) -> None:
        self._pool: PinnedPool | None = pool
        self._size = size
        self.pointer = pointer
        self.nbytes = nbytes
        self.pinned = pinned

    @property
    def view(self) -> memoryview:
        """The bytes, writable. It keeps the buffer."""
        return np.asarray(self).data

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self._pool is None:
            raise ValueError("the buffer was released")
        return {"version": 3, "typestr": "|u1", "shape": (self.nbytes,), "data": (self.pointer, False)}

    def release(self) -> None:
        """Give the bytes back; nobody may use a view of them afterwards. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool._give(self.pointer, self._size, pinned=self.pinned)

    def __del__(self) -> None:
        if hasattr(self, "_pool"):
            self.release()


class PinnedPool:
    """Page-locked memory of one rank, made in large steps and lent out in pieces.

    Safe to use from several threads. Never raises for want of memory: what
    cannot be page-locked is ordinary memory, with one warning.

    Parameters
    ----------
    cap_bytes : int
        The most that it page-locks (``host_memory_limit``).
    block_bytes : int, optional
        Size of the pieces that staging takes; also the least that the pool grows by.
    step_bytes : int, optional
        The most that it grows by at once.
    memory : HostMemory, optional
        Where the memory comes from; `PageLocked` by default.
    checks : Checks, optional
        Whether what is given back is poisoned, and what is lent is tracked.

    Attributes
    ----------
    checks : Checks
    refusal : str
        What the system said when it locked no more pages, the last time; "" where it never did.
    make_room : callable
        Asked for room, in bytes, where there is none; says whether anything was given back. Called without a lock.
    """

    def __init__(
        self,
        cap_bytes: int,
        *,
        block_bytes: int = 16 * MIB,
        step_bytes: int = 256 * MIB,
        memory: HostMemory | None = None,
        checks: Checks = NO_CHECKS,
    ) -> None:
        self.block_bytes = _padded(block_bytes)
        self._cap = cap_bytes
        self._step = step_bytes
        self._memory: HostMemory = PageLocked() if memory is None else memory
        self._pageable = Pageable()
        self._lock = threading.Lock()
        self._growing = threading.Lock()
        # A buffer may be collected anywhere, also inside this class: it leaves word here and takes no lock.
        self._returned: deque[tuple[int, int, bool]] = deque()
        self._free = Extents()
        self.checks = checks
        self._live = checks.extents("pinned memory")
        self.refusal = ""
        self.make_room: Callable[[int], bool] = no_room
        self._refused = False
        self._warned = False
        self._used = self._pageable_used = 0
        self._hits = self._misses = self._pageable_count = self._growths = self._drops = 0

    @property
    def cap_bytes(self) -> int:
        """The most that it page-locks."""
        return self._cap

    @property
    def held_bytes(self) -> int:
        """Page-locked now, lent or not."""
        return self._free.held_bytes

    @property
    def used_bytes(self) -> int:
        """Lent now, of the page-locked memory."""
        with self._lock:
            self._collect()
            return self._used

    @property
    def pageable_bytes(self) -> int:
        """Lent now, of ordinary memory."""
        with self._lock:
            self._collect()
            return self._pageable_used

    @property
    def hits(self) -> int:
        """Buffers that were there already."""
        return self._hits

    @property
    def misses(self) -> int:
        """Buffers that were not: the pool grew, or could not."""
        return self._misses

    @property
    def largest_free_bytes(self) -> int:
        """The largest piece that can be lent without growing."""
        with self._lock:
            self._collect()
            return self._free.largest_free

    @property
    def growths(self) -> int:
        """How often memory was page-locked, ahead of need too."""
        return self._growths

    @property
    def drops(self) -> int:
        """How often page-locked memory was given back to the system."""
        return self._drops

    @property
    def pageable_count(self) -> int:
        """Buffers that were ordinary memory instead."""
        return self._pageable_count

    def take(self, nbytes: int, what: str = "a buffer") -> PinnedBuffer:
        """Lend a buffer; ordinary memory where no more can be page-locked. ``what`` for, for the check of overlap."""
        return self.try_take(nbytes, what) or self._take_pageable(nbytes)

    def take_within(self, nbytes: int, what: str = "a buffer") -> PinnedBuffer | None:
        """Lend a buffer; where the system locks no more pages, of ordinary memory as long as the cap is kept."""
        buffer = self.try_take(nbytes, what)
        if buffer is None and self.held_bytes + self.pageable_bytes + _padded(nbytes) <= self._cap:
            return self._take_pageable(nbytes)
        return buffer

    def try_take(self, nbytes: int, what: str = "a buffer") -> PinnedBuffer | None:
        """Lend a page-locked buffer, or None where no more can be page-locked.

        Where more is being locked just now, that is waited for.
        """
        size = _padded(nbytes)
        with self._lock:
            pointer = self._take(size, what)
            self._hits += pointer is not None
            self._misses += pointer is None
        if pointer is None:
            with self._growing:
                pointer = self._grow(size, what)
        while pointer is None and self.make_room(size):
            with self._lock:
                pointer = self._take(size, what)
        if pointer is None:
            return None
        if self.checks.poison_new:
            poison_host(pointer, size, NEW_BYTE)
        return PinnedBuffer(self, pointer, nbytes, size, pinned=True)

    def prefill(self, nbytes: int, go_on: Callable[[], bool] = _pause) -> int:
        """Page-lock memory ahead of use, until so much is held or no more can be; returns what is held.

        Meant for a background thread. Requests wait for one short step of it at the most.

        Parameters
        ----------
        nbytes : int
            How much is to be held.
        go_on : callable, optional
            Called after each step, to let others work for a moment; False ends it.
        """
        while (missing := min(nbytes, self._cap) // PAGE_BYTES * PAGE_BYTES - self.held_bytes) > 0:
            with self._growing:
                grown = self._pin(min(missing, _PREFILL_STEP))
            if not grown or not go_on():
                break
        return self.held_bytes

    def set_cap(self, cap_bytes: int, *, keep_idle: bool = False) -> None:
        """Change the cap.

        Steps of which nothing is lent are given back where they are above it, unless they are to be kept for later.
        """
        with self._growing, self._lock:
            self._cap, self._refused = cap_bytes, False
            self._collect()
            if not keep_idle:
                self._drop_idle(cap_bytes)

    def trim(self) -> int:
        """Give back all steps of which nothing is lent; returns their bytes."""
        with self._growing, self._lock:
            self._collect()
            return self._drop_idle(0)

    def _drop_idle(self, left_bytes: int) -> int:
        before = self.held_bytes
        for start in self._free.idle_steps():
            if self.held_bytes > left_bytes:
                self._free.remove_step(start)
                self._memory.free(start)
                self._drops += 1
        return before - self.held_bytes

    def close(self) -> None:
        """Give back all memory that is not lent; what is lent stays until the process ends."""
        self.set_cap(0)

    def _take(self, size: int, what: str) -> int | None:
        self._collect()
        if self._used + size > self._cap:
            return None
        pointer = self._free.take(size)
        if pointer is not None:
            self._used += size
            if self._live is not None:
                self._live.add(pointer, size, what)
        return pointer

    def _give(self, pointer: int, size: int, *, pinned: bool) -> None:
        # Whoever copies from it keeps it until the copy is done, so that only a wrong use can see this.
        if self.checks.poison:
            poison_host(pointer, size)
        self._returned.append((pointer, size, pinned))

    def _collect(self) -> None:
        while self._returned:
            pointer, size, pinned = self._returned.popleft()
            if pinned:
                self._used -= size
                if self._live is not None:
                    self._live.remove(pointer, size)
                self._free.give(pointer, size)
            else:
                self._pageable_used -= size
                self._pageable.free(pointer)

    def _grow(self, size: int, what: str) -> int | None:
        """Take a piece of a new step; of what another thread has made meanwhile, if that will do."""
        with self._lock:
            pointer = self._take(size, what)
        if pointer is not None:
            return pointer
        # Twice as much each time: little use does not pay for a whole GiB.
        step = max(size, min(self._step, max(self.held_bytes, self.block_bytes)))
        room = (self._cap - self.held_bytes) // PAGE_BYTES * PAGE_BYTES
        if size > room or self._refused:
            return None
        with span("grow pinned pool", "memory", bytes=min(step, room), tier="pinned"):
            self._refused = not self._pin(min(step, room))
        with self._lock:
            return self._take(size, what)

    def _pin(self, nbytes: int) -> bool:
        if self.held_bytes + nbytes > self._cap:
            return False
        try:
            pointer = self._memory.allocate(nbytes)
        except Exception as error:  # whatever the driver says: there is ordinary memory
            self.refusal = f"{type(error).__name__}: {error}"
            return False
        with self._lock:
            self._free.add_step(pointer, nbytes)
            self._growths += 1
        return True

    def _take_pageable(self, nbytes: int) -> PinnedBuffer:
        size = _padded(nbytes)
        with self._lock:
            pointer = self._pageable.allocate(size)
            self._pageable_used += size
            self._pageable_count += 1
            first, self._warned = not self._warned, True
        buffer = PinnedBuffer(self, pointer, nbytes, size, pinned=False)
        if first:
            warnings.warn(self._complaint(nbytes), RuntimeWarning, stacklevel=3)
        return buffer

    def _complaint(self, nbytes: int) -> str:
        why = f"no more can be had ({self.refusal})" if self._refused else "the limit is reached"
        return (
            f"Staging uses ordinary memory for {format_bytes(nbytes)}, and copies are slower: "
            f"{format_bytes(self.held_bytes)} of at most {format_bytes(self._cap)} are page-locked and {why}. "
            "Raise host_memory_limit, or what the system lets a process lock."
        )


def _padded(nbytes: int) -> int:
    return -(-max(nbytes, 1) // PAGE_BYTES) * PAGE_BYTES
