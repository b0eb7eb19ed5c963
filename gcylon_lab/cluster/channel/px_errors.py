"""Errors of ``%px`` cells: shown once, however many ranks raise them, with the cause and not its echoes."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ipyparallel.error import CompositeError
from IPython.core.error import UsageError

from ..failures import name_ranks, summary_of
from .interrupts import as_revoked, stopped

_OURS = re.compile(r"^[ \t]*(%lab|%lab_plan|%%lab_profile)(?!\w)", re.MULTILINE)
_LONG_LINES = 12
_ECHO = "Revoked"  # what ranks raise because another one failed
_CUT = (_ECHO, "KeyboardInterrupt")

Entry = tuple[str, str, str, dict[str, Any]]


class FoldedError(CompositeError):  # type: ignore[misc]
    """What a cell raised: each different error once, and a line on who raised what else."""

    def __init__(self, message: str, entries: Sequence[Entry], note: str) -> None:
        super().__init__(message, list(entries))
        self.note = note

    def __str__(self) -> str:
        return "\n".join(filter(None, [super().__str__(), self.note]))

    def render_traceback(self, excid: int | None = None) -> list[str]:
        """Lines for IPython: what was raised and by whom, then the tracebacks."""
        lines: list[str] = super().render_traceback(excid)
        top = [f"{name}: {text}" for name, text, _, _ in self.elist]
        return [*top, *([self.note] if self.note else []), "", *lines]


class Cut(Protocol):
    """The way to the engines, as a cell's result sees it."""

    engine_ids: list[int]

    def was_cut(self, since: float) -> bool:
        """Whether a person has interrupted what ran at that time."""
        ...

    def cut_after(self, since: float) -> float:
        """After how many seconds."""
        ...

    def raise_if_lost(self) -> None:
        """Raise what is known of ranks that are gone."""
        ...


def fold_cell(sent: Any, channel: Cut) -> None:
    """Let a cell's result raise and stream folded errors.

    Parameters
    ----------
    sent : ipyparallel.AsyncResult
        Changed in place.
    channel : Cut
        Knows which engine is which rank, and which ranks are gone.
    """
    started = time.monotonic()
    shown = _Shown(sent._iopub_streaming_output_callback, lambda: channel.was_cut(started))
    get, stream = sent.get, sent.stream_output

    @contextmanager
    def watched_stream() -> Iterator[None]:
        with stream():
            shown.streams = True
            try:
                yield
            finally:
                shown.streams = False

    def folded_get(*args: Any, **kwargs: Any) -> Any:
        try:
            return get(*args, **kwargs)
        except CompositeError as error:
            channel.raise_if_lost()
            if channel.was_cut(started) and all(entry[0] in _CUT for entry in error.elist):
                raise as_revoked(stopped("cell", channel.cut_after(started))) from None
            entries, note = fold_entries(error.elist, channel.engine_ids)
            if shown.streams and sent._output_ready:
                # Nothing streams in any more, and ipyparallel shows none of it again.
                shown.show_missed(entries)
            if shown.count or shown.held:
                shown.flush()
                print(note, file=sys.stderr, end="\n" if note else "")
            raise FoldedError(error.msg, entries, note) from None

    sent._iopub_streaming_output_callback = shown.on_message
    sent.stream_output = watched_stream
    sent.get = folded_get


def refuse_magics(code: str) -> None:
    """Refuse a cell for the ranks that holds a magic of the notebook's: there it would only be unknown.

    Raises
    ------
    UsageError
        Which IPython shows as one line.
    """
    found = _OURS.search(code)
    if found is not None:
        raise UsageError(
            f"{found[1]} belongs to the notebook, and this cell goes to the ranks. "
            "Leave %autopx by %autopx first, or take it out of the %%px cell."
        )


def fold_entries(entries: Sequence[Entry], engine_ids: Sequence[int]) -> tuple[list[Entry], str]:
    """The different errors among those of all ranks, echoes left out if there is a cause, and a note on the rest."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault(summary_of(entry[0], entry[1]), []).append(entry)
    causes = [group for key, group in groups.items() if key[0] != _ECHO] or list(groups.values())[:1]
    notes = []
    for group in groups.values():
        ranks = name_ranks(_ranks(group, engine_ids))
        if group[0][0] == "KeyboardInterrupt":  # a person's own is told as such before; this one somebody else sent
            notes.append(f"{ranks.capitalize()} {'was' if len(group) == 1 else 'were'} interrupted by a signal.")
        elif group not in causes:
            notes.append(f"{ranks.capitalize()} left with {group[0][0]}.")
        elif len(group) > 1:
            notes.append(f"{ranks.capitalize()} raised the same {group[0][0]}.")
    return [group[0] for group in causes], " ".join(notes)


class _Shown:
    """Decides which errors that stream in are shown."""

    def __init__(self, show: Callable[..., None], was_cut: Callable[[], bool]) -> None:
        self._show = show
        self._was_cut = was_cut
        self._seen: set[tuple[str, str]] = set()
        self.held: list[tuple[Any, ...]] = []
        self.count = 0
        self.streams = False

    def on_message(self, engine: int, future: Any, message: dict[str, Any]) -> None:
        """As ipyparallel's callback for what streams in."""
        if message["header"]["msg_type"] == "error":
            name, text = message["content"]["ename"], message["content"]["evalue"]
            if name == _ECHO or (name in _CUT and self._was_cut()):
                self.held.append((engine, future, message))
                return
            if summary_of(name, text) in self._seen:
                return
            self._seen.add(summary_of(name, text))
            self.count += 1
            message["content"]["traceback"] = _with_top(name, text, message["content"]["traceback"])
        self._show(engine, future, message)

    def show_missed(self, entries: Sequence[Entry]) -> None:
        """Show what came before anybody listened: ipyparallel replays prints of a fast cell then, but no error."""
        for name, text, traceback, info in entries:
            content = {"ename": name, "evalue": text, "traceback": traceback.splitlines(), "engine_info": info}
            self.on_message(info.get("engine_id", -1), None, {"header": {"msg_type": "error"}, "content": content})

    def flush(self) -> None:
        """Show one echo if no cause was shown."""
        if self.held and not self.count:
            self._show(*self.held[0])
        self.held.clear()


def _with_top(name: str, text: str, traceback: list[str]) -> list[str]:
    """A traceback that is long says first what it is about."""
    is_long = sum(part.count("\n") + 1 for part in traceback) > _LONG_LINES
    return [f"{name}: {text}\n", *traceback] if is_long else traceback


def _ranks(entries: Sequence[Entry], engine_ids: Sequence[int]) -> list[int]:
    engines = [entry[3].get("engine_id") for entry in entries]
    return [engine_ids.index(engine) for engine in engines if engine in engine_ids]
