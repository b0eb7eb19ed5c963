"""What became faster or slower since a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...units import format_seconds
from .formats import FORMATS, Cells
from .measurement import Measurement

_TOO_FEW = "too few times"


@dataclass(frozen=True, slots=True)
class Change:
    """One measurement beside the one of the same name, sizes and parameters in the baseline.

    ``outcome`` is improved, unchanged or regressed; "new" or "missing" where the other side has none like it, and "too
    few times" where one side has no interval. ``change`` is the median's, as a share of the baseline's.
    """

    label: str
    outcome: str
    before: Measurement | None
    now: Measurement | None
    change: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        before, now = (None if one is None else one.median_s for one in (self.before, self.now))
        return {
            "label": self.label, "outcome": self.outcome, "change": self.change, "before_s": before, "now_s": now,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """All changes since a baseline, as `Benchmark.compare` makes it."""

    baseline: str
    threshold: float
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def improved(self) -> list[str]:
        """What is faster."""
        return self._of("improved")

    @property
    def unchanged(self) -> list[str]:
        """What is neither."""
        return self._of("unchanged")

    @property
    def regressed(self) -> list[str]:
        """What is slower."""
        return self._of("regressed")

    def _of(self, outcome: str) -> list[str]:
        return [change.label for change in self.changes if change.outcome == outcome]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        changes = [change.as_dict() for change in self.changes]
        return {"baseline": self.baseline, "threshold": self.threshold, "changes": changes, "notes": list(self.notes)}

    def to(self, form: str) -> str:
        """As text, markdown, html or latex."""
        means = f"changed: by more than {self.threshold:.0%}, and the medians' 95% intervals do not overlap"
        title = f"compared with {self.baseline} ({means})"
        head = ("what", "before", "now", "change", "outcome")
        return FORMATS[form](Cells(title, head, [_cells(change) for change in self.changes], self.notes))

    def __repr__(self) -> str:
        return self.to("text")

    def _repr_html_(self) -> str:
        return self.to("html")


def compare(
    before: Sequence[Measurement],
    now: Sequence[Measurement],
    threshold: float,
    baseline: str,
    notes: tuple[str, ...] = (),
) -> Comparison:
    """Put each measurement beside the one like it; see `Change`."""
    known = {one.key: one for one in before}
    seen = {one.key for one in now}
    changes = [_change(known.get(one.key), one, threshold) for one in now]
    changes += [Change(one.label, "missing", one, None, None) for one in before if one.key not in seen]
    return Comparison(baseline, threshold, tuple(changes), notes)


def _change(before: Measurement | None, now: Measurement, threshold: float) -> Change:
    if before is None:
        return Change(now.label, "new", None, now, None)
    change = now.median_s / before.median_s - 1
    was, is_now = before.interval_s, now.interval_s
    if was is None or is_now is None:
        outcome = _TOO_FEW
    elif change > threshold and is_now[0] > was[1]:
        outcome = "regressed"
    elif change < -threshold and is_now[1] < was[0]:
        outcome = "improved"
    else:
        outcome = "unchanged"
    return Change(now.label, outcome, before, now, change)


def _cells(change: Change) -> tuple[str, ...]:
    before, now = ("-" if one is None else format_seconds(one.median_s) for one in (change.before, change.now))
    return change.label, before, now, "-" if change.change is None else f"{change.change:+.1%}", change.outcome
