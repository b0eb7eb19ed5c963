"""What is recorded: events in a bounded ring, and a record for each operation.

Times are of `time.perf_counter_ns`, this process's own clock. Only a snapshot
moves them onto rank 0's clock, by ``Recorder.clock_offset_ns``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gcylon_lab.errors import ArgumentError

if TYPE_CHECKING:
    from .spans import ThreadState

PHASES = ("partition", "exchange", "stage", "unstage", "compute", "waiting")
NO_OPERATION = -1

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
        raise ArgumentError("A category needs a name.", advice="Pass a text that is not empty.")
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


class Progress(NamedTuple):
    """Where a rank is in its operation; ``since_ns`` is when the phase began."""

    verb: str
    number: int
    round: int
    rounds: int
    phase: str
    since_ns: int


@dataclass(slots=True, eq=False)
class OperationRecord:
    """One operation on one rank; whoever runs it fills it in.

    ``phases`` holds the time in ns by span name. Of nested spans each counts
    only the time that no inner one has, so the spans of one thread never sum
    to more than the operation; overlapping spans and spans of other threads
    count in full. ``phase_bytes`` sums the spans' bytes by name.
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
    error: str = ""
    phases: dict[str, int] = field(default_factory=dict)
    phase_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.end_ns != 0

    def add_phase(self, name: str, ns: int, nbytes: int) -> None:
        """Count time and bytes under a phase's name."""
        self.phases[name] = self.phases.get(name, 0) + ns
        if nbytes:
            self.phase_bytes[name] = self.phase_bytes.get(name, 0) + nbytes


class Recorder:
    """Keeps the latest events and operations of one rank.

    Parameters
    ----------
    capacity : int, optional
        Events kept; older ones are dropped and counted.
    operations : int, optional
        Operations kept.
    """

    def __init__(self, capacity: int = 65536, operations: int = 1000) -> None:
        if capacity < 1 or operations < 1:
            raise ArgumentError(
                f"A recorder cannot keep {capacity} events and {operations} operations.", advice="Give at least 1 each."
            )
        self.capacity = capacity
        self.clock_offset_ns = 0
        self.operations: deque[OperationRecord] = deque(maxlen=operations)
        self.active: OperationRecord | None = None
        self.owner: ThreadState | None = None
        self.recorded = 0
        # Re-entrant: signal handlers and finalizers may record while their own thread is inside.
        self._lock = threading.RLock()
        self._ring: deque[tuple[str, str, int, int, int, int, str, int]] = deque(maxlen=capacity)

    def add(
        self,
        event: tuple[str, str, int, int, int, int, str, int],
        record: OperationRecord | None = None,
        own_ns: int = 0,
    ) -> None:
        """Keep an event (an `Event`'s fields) and count ``own_ns`` of it under the operation's phase."""
        with self._lock:
            self._ring.append(event)
            self.recorded += 1
            if record is not None:
                record.add_phase(event[0], own_ns, event[5])

    def finish(self, record: OperationRecord, outer: OperationRecord | None) -> None:
        """Keep a record that has ended, and go on with the operation around it."""
        with self._lock:
            if outer is not None:
                for name, ns in record.phases.items():
                    outer.add_phase(name, ns, record.phase_bytes.get(name, 0))
            self.operations.append(record)
            self.active = outer

    def events(self) -> list[Event]:
        """The kept events, in the order in which they ended."""
        with self._lock:
            kept = list(self._ring)
        return [Event._make(event) for event in kept]

    def recent(self, since_ns: int) -> list[Event]:
        """The kept events that ended at or after a time of this process's clock, in the order of ending."""
        return list(self._newest_first(since_ns))[::-1]

    def _newest_first(self, since_ns: int) -> Iterator[Event]:
        # Threads may append a little out of order, so an older event alone does not end the search.
        with self._lock:
            kept = list(self._ring)
        older = 0
        for event in reversed(kept):
            if event[3] >= since_ns:
                yield Event._make(event)
            elif (older := older + 1) > 256:
                return

    @property
    def dropped(self) -> int:
        """Events that were pushed out of the ring."""
        with self._lock:
            return self.recorded - len(self._ring)

    @property
    def progress(self) -> Progress | None:
        """Where the running operation is; None when idle. May be read from any thread."""
        record, owner = self.active, self.owner
        if record is None or owner is None:
            return None
        top = owner.top
        phase, since = (top.name, top.start_ns) if top is not None else ("", record.start_ns)
        return Progress(record.verb, record.number, record.rounds_done, record.rounds, phase, since)

    def clear(self) -> None:
        """Forget all events and finished operations, and the dropped count."""
        with self._lock:
            self._ring.clear()
            self.operations.clear()
            self.recorded = 0
