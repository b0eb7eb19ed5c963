"""What is recorded: events in a bounded ring, and a record for each operation.

Times are of `time.perf_counter_ns`, this process's own clock. Only a snapshot
moves them onto rank 0's clock, by ``Recorder.clock_offset_ns``.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

from gcylon_lab.errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

PHASES = ("partition", "exchange", "stage", "unstage", "compute", "waiting")
NO_OPERATION = -1
# At first a snapshot looks at so many events: more than a fifth of a second brings.
_FEW = 1024
# And at so many operations: looking at all that are kept took more than all else of a snapshot.
_FEW_OPERATIONS = 8
T = TypeVar("T")
CopyKind = Literal["exchange", "staging"]

# For what is rare, never for recording itself. Re-entrant: signal handlers and finalizers
# may end spans while their own thread is inside.
_lock = threading.RLock()

_CATEGORIES: dict[str, int] = {
    "kernel": 0x009E73,
    "memory": 0xE69F00,
    "transfer": 0x0072B2,
    "algorithm": 0x56B4E9,
    "io": 0xCC79A7,
    "sync": 0xD55E00,
    "user": 0x999999,
}


def add_category(name: str, color: int = 0x999999) -> None:
    """Allow a category of one's own in `span` and `mark`.

    Parameters
    ----------
    name : str
        Adding a name again changes only its colour.
    color : int, optional
        0xRRGGBB, for NVTX tools.

    Raises
    ------
    ArgumentError
        If the name is empty.
    """
    if not name:
        raise ArgumentError("A category needs a name.", advice="Pass a non-empty string.")
    _CATEGORIES[name] = color


def categories() -> dict[str, int]:
    """The categories that spans may have, with their colours (0xRRGGBB)."""
    return dict(_CATEGORIES)


def unknown_category(name: str) -> ArgumentError:
    """The error for a category that was never added."""
    return ArgumentError(
        f"{name!r} is not a category; known are {', '.join(_CATEGORIES)}.",
        advice=f"Call add_category({name!r}) first.",
        category=name,
    )


class Event(NamedTuple):
    """A span, or a mark where ``end_ns`` equals ``start_ns``."""

    name: str
    category: str
    start_ns: int
    end_ns: int
    operation: int
    bytes: int
    tier: str
    thread: int

    @property
    def is_mark(self) -> bool:
        """Whether this is an instant."""
        return self.end_ns == self.start_ns


# An `Event`'s fields and its number in the order of recording.
Numbered = tuple[str, str, int, int, int, int, str, int, int]


class Progress(NamedTuple):
    """Where a rank is in its operation; ``since_ns`` is when the phase began."""

    verb: str
    number: int
    round: int
    rounds: int
    phase: str
    since_ns: int


class OpenSpan(Protocol):
    """A span that has not ended."""

    @property
    def name(self) -> str: ...

    @property
    def start_ns(self) -> int: ...


class Owner(Protocol):
    """The thread that runs an operation; ``top`` is its innermost open span."""

    @property
    def top(self) -> OpenSpan | None: ...


@dataclass(slots=True, eq=False)
class OperationRecord:
    """One operation on one rank; whoever runs it fills it in.

    ``phases`` holds the time in ns by span name. Of nested spans each counts
    only the time that no inner one has, so the spans of one thread never sum
    to more than the operation; overlapping spans and spans of other threads
    count in full. ``phase_bytes`` sums the spans' bytes by name.

    Copies that may go on beside other work (between GPUs, and between a GPU and
    the tiers below it) have times of their own: ``exchange_copy_ns`` and
    ``staging_copy_ns`` while they were under way (exchanges: once the rank had
    queued them, and could go on with other work), and of that
    ``exchange_wait_ns`` and ``staging_wait_ns`` while the rank did nothing but
    wait for them. On CPU engines all four are 0: there a copy is the work.

    ``restaged_bytes`` left the device tier without being written, as their copy below had been kept; ``staged_bytes``
    were written.

    ``sent_to`` holds the bytes that exchanges sent to each rank, what the rank keeps
    for itself included; None before the first exchange. Their sum is ``sent_bytes``.
    """

    number: int
    verb: str
    arguments: str = ""
    strategy: str = ""
    reason: str = ""
    start_ns: int = 0
    end_ns: int = 0
    rounds: int = 0
    rounds_done: int = 0
    budget_bytes: int = 0
    used_before_bytes: int = 0
    predicted_peak_bytes: int = 0
    measured_peak_bytes: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    staged_bytes: int = 0
    unstaged_bytes: int = 0
    restaged_bytes: int = 0
    exchange_copy_ns: int = 0
    exchange_wait_ns: int = 0
    staging_copy_ns: int = 0
    staging_wait_ns: int = 0
    error: str = ""
    error_context: str = ""
    phases: dict[str, int] = field(default_factory=dict)
    phase_bytes: dict[str, int] = field(default_factory=dict)
    sent_to: Int64s | None = None
    owner: Owner | None = field(default=None, repr=False)
    outer: OperationRecord | None = field(default=None, repr=False)
    elsewhere: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.end_ns != 0

    def predict(self, peak: int, *, before: int | None = None) -> None:
        """Note that so much will be in use, if no step that needs more was predicted, or none before this one."""
        self.predicted_peak_bytes = max(self.predicted_peak_bytes if before is None else before, peak)

    def add_sent(self, to_ranks: Int64s) -> None:
        """Count bytes that go to each rank; only from the thread that runs the operation."""
        self.sent_to = to_ranks if self.sent_to is None else self.sent_to + to_ranks
        self.sent_bytes += int(to_ranks.sum())

    def add_phase(self, name: str, ns: int, nbytes: int) -> None:
        """Count time and bytes under a phase; only from the thread that runs the operation."""
        self.phases[name] = self.phases.get(name, 0) + ns
        if nbytes:
            self.phase_bytes[name] = self.phase_bytes.get(name, 0) + nbytes

    def add_elsewhere(self, name: str, ns: int, nbytes: int) -> None:
        """As `add_phase`, from any thread."""
        with _lock:
            if self.done:
                self.add_phase(name, ns, nbytes)
            else:
                old_ns, old_bytes = self.elsewhere.get(name, (0, 0))
                self.elsewhere[name] = (old_ns + ns, old_bytes + nbytes)

    def add_copies(self, kind: CopyKind, copy_ns: int, wait_ns: int) -> None:
        """Count copies that are done, from any thread: the time they were under way, and of it the time waited for."""
        with _lock:
            if kind == "exchange":
                self.exchange_copy_ns += copy_ns
                self.exchange_wait_ns += wait_ns
            else:
                self.staging_copy_ns += copy_ns
                self.staging_wait_ns += wait_ns

    def finish(self, end_ns: int) -> None:
        """Set the end, and bring what other threads counted into ``phases``."""
        with _lock:
            self.end_ns = end_ns
            for name, (ns, nbytes) in self.elsewhere.items():
                self.add_phase(name, ns, nbytes)
            self.elsewhere.clear()

    def all_phases(self) -> tuple[dict[str, int], dict[str, int]]:
        """Copies of ``phases`` and ``phase_bytes`` with what other threads have counted so far."""
        with _lock:
            phases, nbytes = dict(self.phases), dict(self.phase_bytes)
            for name, (more_ns, more_bytes) in self.elsewhere.items():
                phases[name] = phases.get(name, 0) + more_ns
                nbytes[name] = nbytes.get(name, 0) + more_bytes
        return phases, nbytes


def hidden_share(copy_s: float, wait_s: float) -> float | None:
    """Return the part of the time of copies that was not waited for, in [0, 1]; None without copies."""
    return min(1.0, max(0.0, 1 - wait_s / copy_s)) if copy_s > 0 else None


def newest(ring: deque[T], count: int) -> list[T]:
    """Return the last so many of what other threads append to, the newest first.

    To read them is a single step of the interpreter, so nothing is appended meanwhile; a copy of a
    whole ring, of which a snapshot reads a few hundred, is one too, of a millisecond.
    """
    while True:
        try:
            return list(islice(reversed(ring), count))
        except RuntimeError:  # appended to between this step and the one before, which looked at where the end is
            continue


def _ended_since(since_ns: int, newest_first: Sequence[Numbered]) -> list[Numbered] | None:
    """Return the events that ended at or after a time; None if there may be more of them further back."""
    # Threads may append a little out of order, so one older event does not end the search.
    found, older = [], 0
    for event in newest_first:
        if event[3] >= since_ns:
            found.append(event)
        elif (older := older + 1) > 256:
            return found
    return None


class Recorder:
    """Keeps the latest events and operations of one rank.

    Parameters
    ----------
    capacity : int, optional
        Events kept; older ones are dropped and counted.
    operations : int, optional
        Operations kept.

    Attributes
    ----------
    spans : bool
        Whether spans and marks are recorded; operations are in any case.
    rank : int
        Whose it is.
    """

    def __init__(self, capacity: int = 65536, operations: int = 1000) -> None:
        if capacity < 1 or operations < 1:
            raise ArgumentError(
                f"A recorder cannot keep {capacity} events and {operations} operations.", advice="Give at least 1 each."
            )
        self.capacity = capacity
        self.clock_offset_ns = 0
        self.spans = True
        self.rank = 0
        self.operations: deque[OperationRecord] = deque(maxlen=operations)
        self.active: OperationRecord | None = None
        self._ring: deque[Numbered] = deque(maxlen=capacity)
        self._numbers = itertools.count()
        self._forgotten = 0
        self._threads: dict[int, int] = {}
        self._thread_names: list[str] = []
        # Both are single steps of the interpreter: threads and signal handlers need no lock to record.
        self.append: Callable[[Numbered], None] = self._ring.append
        self.next_number: Callable[[], int] = self._numbers.__next__

    def events(self, since_ns: int = 0) -> list[Event]:
        """The kept events that ended at or after a time of this process's clock, in the order of ending."""
        return [Event._make(event[:8]) for event in self.numbered(since_ns)]

    def numbered(self, since_ns: int = 0) -> list[Numbered]:
        """The same as `events`, each as it was recorded; making tuples of another kind would be most of the work."""
        kept = self._newest_first(since_ns)
        kept.reverse()
        return kept

    def ended(self, since_ns: int = 0) -> list[OperationRecord]:
        """The kept operations that ended at or after a time of this process's clock, in the order of ending."""
        count = _FEW_OPERATIONS
        while True:
            kept = newest(self.operations, count)
            found = list(takewhile(lambda record: record.end_ns >= since_ns, kept))
            if len(found) < len(kept) or len(kept) < count:
                return found[::-1]
            count *= 8

    def _newest_first(self, since_ns: int) -> list[Numbered]:
        kept = newest(self._ring, _FEW)
        found = _ended_since(since_ns, kept)
        if found is None and len(kept) == _FEW:
            kept = newest(self._ring, self.capacity)
            found = _ended_since(since_ns, kept)
        return [event for event in kept if event[3] >= since_ns] if found is None else found

    def running(self) -> list[OperationRecord]:
        """The operation that runs and those around it, outermost first. May be called from any thread."""
        found = []
        record = self.active
        while record is not None:
            found.append(record)
            record = record.outer
        return found[::-1]

    def thread_position(self, thread: int, name: str = "") -> int:
        """A small number for a thread's ident, always the same; the first ``name`` given for it is kept."""
        with _lock:
            position = self._threads.setdefault(thread, len(self._threads))
            if position == len(self._thread_names):
                self._thread_names.append(name or f"thread {position}")
        return position

    def thread_names(self) -> list[str]:
        """The threads' names by position."""
        return list(self._thread_names)

    @property
    def recorded(self) -> int:
        """Events recorded so far."""
        return self._highest_number() - self._forgotten

    @property
    def dropped(self) -> int:
        """Events that were pushed out of the ring."""
        kept = len(self._ring)  # first: others may append meanwhile
        return self.recorded - kept

    def _highest_number(self) -> int:
        return max((event[8] for event in newest(self._ring, 64)), default=self._forgotten - 1) + 1

    @property
    def progress(self) -> Progress | None:
        """Where the running operation is; None when idle. May be read from any thread."""
        record = self.active
        if record is None:
            return None
        top = record.owner.top if record.owner is not None else None
        phase, since = (top.name, top.start_ns) if top is not None else ("", record.start_ns)
        return Progress(record.verb, record.number, record.rounds_done, record.rounds, phase, since)

    def clear(self) -> None:
        """Forget all events and finished operations, and the dropped count."""
        self._forgotten = self._highest_number()
        self._ring.clear()
        self.operations.clear()
