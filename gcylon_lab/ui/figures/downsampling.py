"""Fewer spans for drawing: those too short to be told apart on a screen become one, time and bytes kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from .view import Snapshot

_CELLS = 500
_MOST = 8000
# No further apart do the ranks of an operation end it.
_APART_S = 5.0

Key = tuple[int, str, str, int, str]


class Downsampler:
    """Thins the spans of snapshots that grow, looking at each span once.

    Operations of thousands of rounds record tens of thousands of spans; going through all of them for each
    drawing took ten times as long as all the rest of it.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}

    def thin(self, snapshots: Sequence[Snapshot], window_s: float | None) -> list[Snapshot]:
        """Return the snapshots as a window shows them that ends now.

        They have the operations that had not ended before it, or the latest one, and at most one span of a kind for
        each 500th of it.

        Parameters
        ----------
        snapshots : sequence of dict
        window_s : float, optional
            What will be shown; all by default.
        """
        known = {int(s["rank"]) for s in snapshots}
        self._ranks = {rank: state for rank, state in self._ranks.items() if rank in known}
        return [self._thinned(s, window_s) for s in snapshots]

    def _thinned(self, snapshot: Snapshot, window_s: float | None) -> Snapshot:
        spans, now = snapshot["spans"], int(snapshot["now_ns"])
        if window_s is not None:
            # Those that ended earlier are not shown: nothing is made of them at each drawing. The latest is told.
            since = now - int((window_s + _APART_S) * 1e9)
            known = snapshot["operations"]
            shown = [record for record in known if not 0 < record["end_ns"] < since] or list(known[-1:])
            snapshot = snapshot | {"operations": shown}
        if not spans:
            return snapshot
        whole = now - min(int(spans[0][2]), now - 1)
        # All that is there grows with time: its cells stay as they are until it has doubled.
        window = (1 << whole.bit_length()) if window_s is None else int(window_s * 1e9)
        rank = int(snapshot["rank"])
        state = self._ranks.get(rank)
        if state is None or state.window_ns != window:
            state = self._ranks[rank] = _Rank(window)
        state.take(spans)
        begin = 0 if window_s is None else now - window
        state.forget(begin)
        return snapshot | {"spans": state.since(begin)}


class _Rank:
    """One rank's spans: the long ones, and sums of the short ones."""

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self._cell_ns = max(window_ns // _CELLS, 1)
        self._sums: dict[Key, list[Any]] = {}
        self._last: list[Any] | None = None

    def take(self, spans: Sequence[list[Any]]) -> None:
        first = len(spans)
        while first > 0 and spans[first - 1] is not self._last:
            first -= 1
        if first == 0:
            self._sums.clear()  # others than before: another process, or another clock
        for span in spans[first:]:
            self._add(span)
        self._last = spans[-1]
        for key in list(self._sums)[: max(0, len(self._sums) - _MOST)]:
            del self._sums[key]

    def _add(self, span: list[Any]) -> None:
        name, category, start, end, number, nbytes, tier = span
        if end - start >= self._cell_ns:
            self._sums[(start, name, category, number, tier)] = [start, end, end - start, nbytes]
            return
        key = (end // self._cell_ns, name, category, number, tier)
        known = self._sums.get(key)
        if known is None:
            self._sums[key] = [start, end, end - start, nbytes]
            return
        known[0], known[1] = min(known[0], start), max(known[1], end)
        known[2] += end - start
        known[3] += nbytes

    def forget(self, t_ns: int) -> None:
        """Drop what ended before a time: another window begins anew, so it would only fill memory."""
        old = 0
        for _, end, _, _ in self._sums.values():  # about in the order of their ends
            if end >= t_ns:
                break
            old += 1
        for key in list(islice(self._sums, old)):
            del self._sums[key]

    def since(self, t_ns: int) -> list[list[Any]]:
        return [
            [name, category, start, min(start + spent, end), number, nbytes, tier]
            for (_, name, category, number, tier), (start, end, spent, nbytes) in self._sums.items()
            if end >= t_ns
        ]
