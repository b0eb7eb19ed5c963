"""Page-locked memory ahead of need: locking takes half a second a GiB, which no operation is to pay for."""

from __future__ import annotations

import atexit
import threading
import warnings
from contextlib import suppress
from time import perf_counter_ns

from ...profiling import Recorder, recording, span
from ...units import GIB, format_bytes
from .pinned_pool import PAGE_BYTES, PinnedPool

STEP_BYTES = GIB
_AHEAD_PART = 4  # of what a rank may count on; the user's own frames and the page cache want memory too
_PAUSE_S = 0.002  # other threads' CUDA calls wait while pages are locked, so they get time in between
_LOOK_AGAIN_S = 0.02
# So long after an operation nothing is locked: one that soon follows would wait for the short step under way (16 ms).
_QUIET_NS = 1_000_000_000


def pinned_cap(host_memory_limit: int, share_bytes: int) -> int:
    """Return the most that a rank may page-lock: its limit, or half of what it may count on where that is 0."""
    return host_memory_limit or share_bytes // 2


def ahead_bytes(asked: int | None, cap_bytes: int, share_bytes: int, device_limit_bytes: int) -> int:
    """Return how much a rank page-locks ahead of need.

    Parameters
    ----------
    asked : int or None
        What the user wants; None takes a quarter of what the rank may count on, and
        no more than its device tier: what is staged was there before.
    cap_bytes : int
        The most that it may lock.
    share_bytes : int
        The host memory that it may count on.
    device_limit_bytes : int
        The limit of its device tier.
    """
    wanted = min(share_bytes // _AHEAD_PART, device_limit_bytes) if asked is None else asked
    return min(wanted, cap_bytes)


class PinnedPrefetch:
    """A thread that page-locks memory of a pool up to a target, a GiB after the other.

    It stands back while an operation runs, and a moment longer, as others often follow: a request that finds too little
    grows the pool itself, and where more is being locked at that moment it waits for that. What goes wrong here is told
    in one warning and nowhere else.

    Parameters
    ----------
    pool : PinnedPool
        Whose memory it is.
    target_bytes : int
        How much is to be held; the pool's cap holds too.
    recorder : Recorder, optional
        Where each growth is recorded, and which tells whether an operation runs.
    """

    def __init__(self, pool: PinnedPool, target_bytes: int, recorder: Recorder | None = None) -> None:
        self.target_bytes = target_bytes
        self._pool = pool
        self._recorder = recorder
        self._ended = threading.Event()
        self._first = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pinning", daemon=True)

    def start(self) -> None:
        """Begin. A process that ends without `stop` does not end while pages are being locked."""
        if self.target_bytes > 0:
            atexit.register(self.stop)
            self._thread.start()

    def wait_for_first(self) -> None:
        """Wait until the first GiB is there, or as much of it as is wanted and can be had."""
        if self._thread.ident is not None:
            self._first.wait()

    def stop(self) -> None:
        """End it, after the short step under way. Idempotent."""
        self._ended.set()
        atexit.unregister(self.stop)
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def running(self) -> bool:
        """Whether more is still to be locked."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            with recording(self._recorder):
                while self._grow() and not self._ended.is_set():
                    self._first.set()
                    self._stand_back()
        except Exception as error:
            self._complain(f"{type(error).__name__}: {error}")
        finally:
            self._first.set()

    def _grow(self) -> bool:
        """Lock up to a step more; whether there is still something to do."""
        pool, before = self._pool, self._pool.held_bytes
        wanted = min(self.target_bytes, pool.cap_bytes) // PAGE_BYTES * PAGE_BYTES
        if before >= wanted:
            return False
        with span("lock memory ahead", "memory", tier="pinned") as locking:
            now = pool.prefill(min(wanted, before + STEP_BYTES), self._go_on)
            locking.bytes = now - before
        if now <= before and not self._ended.is_set():  # not even one short step
            self._complain(pool.refusal)
            return False
        return True

    def _go_on(self) -> bool:
        return not self._ended.wait(_PAUSE_S) and not self._busy

    @property
    def _busy(self) -> bool:
        """Whether an operation runs, or ran a moment ago."""
        recorder = self._recorder
        if recorder is None:
            return False
        return recorder.active is not None or bool(recorder.ended(perf_counter_ns() - _QUIET_NS))

    def _stand_back(self) -> None:
        while self._busy and not self._ended.wait(_LOOK_AGAIN_S):
            pass

    def _complain(self, why: str) -> None:
        with suppress(Warning):  # where warnings are errors there is nobody here to catch one
            warnings.warn(
                f"Only {format_bytes(self._pool.held_bytes)} of {format_bytes(self.target_bytes)} were page-locked "
                f"ahead of need ({why}): staging may begin more slowly. Set GCYLON_PINNED_AHEAD lower, or raise what "
                "the system lets a process lock.",
                RuntimeWarning,
                stacklevel=2,
            )
