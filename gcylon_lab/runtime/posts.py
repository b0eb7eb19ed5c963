"""Messages that code on a rank posts, for whoever looks: kept in a bounded ring, never waited for."""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ..errors import ArgumentError
from ..units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

CAPACITY = 1024
MOST_BYTES = 8192
_LONGEST_TOPIC = 100
_SHOWN = 20


class Message(NamedTuple):
    """What was posted: its topic, value and rank, and when, in seconds since the epoch by the rank's clock."""

    topic: str
    value: Any
    rank: int
    at_s: float


class Messages(Sequence[Message]):
    """Messages in the order of time, and how many older ones each rank has dropped, of all topics.

    Parameters
    ----------
    messages : iterable of Message
    dropped : dict of int to int
        By rank.
    silent : sequence of int, optional
        Ranks that did not answer.
    """

    def __init__(self, messages: Iterable[Message], dropped: dict[int, int], silent: Sequence[int] = ()) -> None:
        self._messages = sorted(messages, key=lambda one: one.at_s)
        self.dropped = dropped
        self.silent = tuple(silent)

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        return self._messages[place]

    def __len__(self) -> int:
        return len(self._messages)

    def to_frame(self) -> pd.DataFrame:
        """As a frame: topic, value, rank, at_s."""
        import pandas as pd

        return pd.DataFrame(self._messages, columns=list(Message._fields))

    def _notes(self) -> list[str]:
        lost = {rank: count for rank, count in self.dropped.items() if count}
        notes = [f"rank {rank} has dropped {count:,} older message{'s' * (count != 1)}" for rank, count in lost.items()]
        notes += [f"rank {rank} did not answer" for rank in self.silent]
        if len(self) > _SHOWN:
            notes.append(f"the last {_SHOWN} of {len(self):,}")
        return notes

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (time.strftime("%H:%M:%S", time.localtime(one.at_s)), f"rank {one.rank}", one.topic, repr(one.value))
            for one in self._messages[-_SHOWN:]
        ]

    def __repr__(self) -> str:
        lines = ["  ".join(row) for row in self._rows()] or ["no messages"]
        return "\n".join([*lines, *(f"({note})" for note in self._notes())])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows())
        notes = "".join(f"<div>{escape(note)}</div>" for note in self._notes())
        return f"<table>{rows}</table>{notes}" if rows else f"<div>no messages</div>{notes}"


class PostRing:
    """The latest messages of one rank; safe to use from any thread.

    Parameters
    ----------
    rank : int
    capacity : int, optional
        Messages kept; older ones are dropped and counted.
    """

    def __init__(self, rank: int, capacity: int = CAPACITY) -> None:
        self._rank = rank
        # As text: what changes later is not what was posted, and what is kept is as large as was checked.
        self._ring: deque[tuple[int, str, str, float]] = deque(maxlen=capacity)
        self._numbers = itertools.count()

    def post(self, topic: str, value: Any) -> None:
        """Keep a value; see `Context.post`."""
        if not isinstance(topic, str) or not 0 < len(topic) <= _LONGEST_TOPIC:
            raise ArgumentError(f"topic={topic!r} is invalid. Expected text of 1 to {_LONGEST_TOPIC} characters.")
        try:
            text = json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(
                f"Expected JSON values (dicts, lists, text, numbers, True, False, None) for {topic!r}, got "
                f"{type(value).__name__}: {error}.",
                advice="Convert it, for example with float(x) or x.tolist().",
            ) from None
        if len(text) > MOST_BYTES:
            raise ArgumentError(
                f"The value for {topic!r} takes {format_bytes(len(text))} as JSON; at most {format_bytes(MOST_BYTES)} "
                "are kept.",
                advice="Post a summary, and return the rest or keep it in a variable of the ranks.",
                nbytes=len(text),
            )
        self._ring.append((next(self._numbers), topic, text, time.time()))

    def as_dict(self, topic: str | None = None) -> dict[str, Any]:
        """What is kept of a topic, or of all, as plain values: messages ([topic, JSON, at_s]), dropped, rank."""
        kept = self._ring.copy()  # one step of the interpreter
        messages = [[name, text, at_s] for _, name, text, at_s in kept if topic in (None, name)]
        return {"messages": messages, "dropped": kept[0][0] if kept else 0, "rank": self._rank}


def read_messages(answers: Iterable[dict[str, Any]], silent: Sequence[int] = ()) -> Messages:
    """Make `Messages` of what the ranks' rings gave."""
    answers = list(answers)
    messages = (
        Message(topic, json.loads(text), answer["rank"], at_s)
        for answer in answers
        for topic, text, at_s in answer["messages"]
    )
    return Messages(messages, {answer["rank"]: answer["dropped"] for answer in answers}, silent)
