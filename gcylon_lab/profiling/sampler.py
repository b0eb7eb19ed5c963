"""The memory timeline of a rank: a thread that asks a probe at a steady rate."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from itertools import takewhile
from time import perf_counter_ns, thread_time_ns
from typing import NamedTuple, TypeVar

from gcylon_lab.errors import ArgumentError

from .events import Recorder, newest
from .gpus import GpuProbe, TimedGpu
from .spans import mark, recording


class Sample(NamedTuple):
    """Memory of a rank at one instant: of the budget, of the tiers below, of the process."""

    used_bytes: int
    limit_bytes: int
    disk_bytes: int
    pinned_bytes: int
    rss_bytes: int


DEFAULT_HZ = 20.0
_MOST_HZ = 1000.0
# At first a snapshot looks at so many samples: of some seconds.
_FEW = 128
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# A time in ns of this process's clock, then a Sample's fields.
Timed = tuple[int, int, int, int, int, int]
T = TypeVar("T", Timed, TimedGpu)


def checked_hz(profile: bool | float) -> float:
    """The rate that a setting of the profiler means: True the default, False 0, which is off.

    Raises
    ------
    ArgumentError
        If it is none.
    """
    if isinstance(profile, bool):
        return DEFAULT_HZ if profile else 0.0
    if not isinstance(profile, (int, float)) or not 0 < profile <= _MOST_HZ:
        raise ArgumentError(
            f"profile={profile!r} is invalid. Expected True, False, or samples a second in (0, {_MOST_HZ:g}]."
        )
    return float(profile)


def read_rss_bytes() -> int:
    """Memory of this process that is resident, in bytes.

    Where there is no /proc, the largest it has been so far.
    """
    try:
        # Plain calls: open() takes twice as long, at every sample.
        file = os.open("/proc/self/statm", os.O_RDONLY)
        try:
            return int(os.read(file, 128).split()[1]) * _PAGE_BYTES
        finally:
            os.close(file)
    except OSError:
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


class Sampler:
    """Samples a probe ``hz`` times a second on a thread of its own.

    Parameters
    ----------
    recorder : Recorder
        Gets a mark when the probe or ``on_tick`` fails first.
    probe : callable
        Returns a `Sample`; called on the sampler's thread, and on that of `sample_now`.
    hz : float, optional
        Samples a second.
    on_tick : callable, optional
        Called on the sampler's thread after a sample, at most ``tick_hz`` times a second.
    tick_hz : float, optional
    capacity : int, optional
        Samples kept; older ones are dropped.
    gpu : GpuProbe, optional
        Read on the sampler's thread after a sample, at most ``gpu_hz`` times a second.
    gpu_hz : float, optional
        The driver renews a GPU's utilisation only a few times a second.

    Raises
    ------
    ArgumentError
        If a rate or the capacity is not positive.
    """

    def __init__(
        self,
        recorder: Recorder,
        probe: Callable[[], Sample],
        hz: float = DEFAULT_HZ,
        *,
        on_tick: Callable[[], None] | None = None,
        tick_hz: float = 5.0,
        capacity: int = 16384,
        gpu: GpuProbe | None = None,
        gpu_hz: float = 4.0,
    ) -> None:
        if hz <= 0 or tick_hz <= 0 or gpu_hz <= 0 or capacity < 1:
            raise ArgumentError(
                f"A sampler cannot run at {hz} Hz, tick at {tick_hz} Hz and keep {capacity} samples.",
                advice="Give rates above 0 and a capacity of at least 1.",
            )
        self.hz = hz
        self.tick_hz = tick_hz
        self.gpu_hz = gpu_hz
        self.on_tick = on_tick
        self.gpu = gpu
        self.errors = 0
        self._recorder = recorder
        self._probe = probe
        self._ring: deque[Timed] = deque(maxlen=capacity)
        self._gpu_ring: deque[TimedGpu] = deque(maxlen=capacity)
        # Re-entrant: a signal handler may sample while its thread is sampling.
        self._lock = threading.RLock()
        self._thread_cpu_ns = 0
        self._callers_cpu_ns = 0
        self._halt = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def cpu_ns(self) -> int:
        """CPU time spent on sampling and ticking so far, on all threads, in ns."""
        return self._thread_cpu_ns + self._callers_cpu_ns

    @property
    def running(self) -> bool:
        """Whether the thread is there."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start sampling. Does nothing while running."""
        if self.running:
            return
        # A held lock to wait on: it wakes for less than an Event.
        self._halt = threading.Lock()
        self._halt.acquire()
        self._thread = threading.Thread(target=self._run, args=(self._halt,), name="memory sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling, and wait for the thread unless called from it. Idempotent; samples are kept."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._halt.release()
        if thread is not threading.current_thread():
            thread.join(timeout=5)

    def sample_now(self) -> Sample | None:
        """Take a sample on this thread; None if the probe failed."""
        begin = thread_time_ns()
        sample = self._sample()
        with self._lock:
            self._callers_cpu_ns += thread_time_ns() - begin
        return sample

    def _sample(self) -> Sample | None:
        with self._lock:
            try:
                sample = self._probe()
            except Exception as error:
                self._failed("probe", error)
                return None
            self._ring.append((perf_counter_ns(), *sample))
        return sample

    def _read_gpu(self, gpu: GpuProbe) -> None:
        try:
            sample = gpu.read()
        except Exception as error:
            self._failed("GPU probe", error)
            return
        if any(figure is not None for figure in sample):
            with self._lock:
                self._gpu_ring.append((perf_counter_ns(), *sample))

    def samples(self, since_ns: int = 0) -> list[Timed]:
        """The kept samples later than a time of this process's clock, in order of time."""
        with self._lock:
            return _later(self._ring, since_ns)

    def gpu_samples(self, since_ns: int = 0) -> list[TimedGpu]:
        """The kept figures of the GPU later than a time of this process's clock, in order of time."""
        with self._lock:
            return _later(self._gpu_ring, since_ns)

    def latest(self) -> Timed | None:
        """The last sample, or None before the first."""
        return self._ring[-1] if self._ring else None

    def _failed(self, what: str, error: Exception) -> None:
        # Watching must never end the work that is watched; once is told, all are counted.
        self.errors += 1
        if self.errors == 1:
            with recording(self._recorder):
                mark(f"{what} failed: {type(error).__name__}: {error}"[:200], "memory")

    def _run(self, halt: threading.Lock) -> None:
        before = self._thread_cpu_ns
        period_ns, tick_ns, gpu_ns = (int(1e9 / hz) for hz in (self.hz, self.tick_hz, self.gpu_hz))
        next_ns = next_tick_ns = next_gpu_ns = perf_counter_ns()
        while not halt.acquire(timeout=max(0.0, (next_ns - perf_counter_ns()) / 1e9)):
            self._sample()
            now = perf_counter_ns()
            if self.on_tick is not None and now >= next_tick_ns:
                self._tick(self.on_tick)
                next_tick_ns = _next(next_tick_ns, tick_ns)
            if self.gpu is not None and now >= next_gpu_ns:
                self._read_gpu(self.gpu)
                next_gpu_ns = _next(next_gpu_ns, gpu_ns)
            next_ns = _next(next_ns, period_ns)
            self._thread_cpu_ns = before + thread_time_ns()

    def _tick(self, on_tick: Callable[[], None]) -> None:
        try:
            on_tick()
        except Exception as error:
            self._failed("on_tick", error)


def _later(samples: deque[T], since_ns: int) -> list[T]:
    kept = newest(samples, _FEW)
    if len(kept) == _FEW and kept[-1][0] > since_ns:
        kept = newest(samples, len(samples))
    return list(takewhile(lambda sample: sample[0] > since_ns, kept))[::-1]


def _next(due_ns: int, period_ns: int) -> int:
    """One period on; after a delay the missed ones are left out, and half a period stays free."""
    return max(due_ns + period_ns, perf_counter_ns() + period_ns // 2)
