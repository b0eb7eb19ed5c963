"""Pure: a plan in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

from ...engine.plan.plan import alternative_text
from ...profiling.report import summary
from ...units import format_count, format_rate
from ..figures.series import percent, readable
from ..figures.theme import BUDGET_COLOUR
from ..figures.view import Snapshot, with_latest_operations

_ALIKE = 4
# So many tell how fast a verb is.
_OPERATIONS = 64
_NAMED = 3

_MEANS = {
    "direct": "the result stays on the device, in the fastest rounds",
    "chunked": "in rounds that keep the peak under the budget, the result on the device",
    "staged": "the result goes down to disk, chunk by chunk",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """The speed of some operations of one verb and strategy, the median of theirs, and which they were."""

    gb_per_s: float
    verb: str
    numbers: tuple[int, ...]
    nbytes: tuple[int, ...]

    def describe(self) -> str:
        """In words, as "1.20 GB/s a rank in shuffle #3 of 128 MiB"."""
        several = len(self.numbers) > 1
        said = [f"#{number}" for number in self.numbers[-_NAMED:]]
        listed = " and ".join([", ".join(said[:-1])] * several + said[-1:])
        sizes = list(dict.fromkeys(readable(n) for n in sorted(self.nbytes)))
        size = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else sizes[0]
        median = "the median of " if several else ""
        latest = f" and {len(self.numbers) - _NAMED} before" if len(self.numbers) > _NAMED else ""
        return f"{format_rate(self.gb_per_s * 1e9)} a rank in {median}{self.verb} {listed}{latest} of {size}"


Speeds = Mapping[str, Measured]


def plan_sentence(plan: Mapping[str, Any], used: Sequence[int] = ()) -> str:
    """Return a step of a plan in words: strategy, rounds, bytes a round, predicted peak, reason, notes.

    Parameters
    ----------
    plan : mapping
    used : sequence of int, optional
        What each rank has in use now; the sentence says what the plan adds to it.
    """
    rounds, peak, budget = int(plan["rounds"]), int(plan["predicted_peak_bytes"]), int(plan["budget_bytes"])
    share = f" ({percent(peak / budget)})" if budget else ""
    size = f"{format_count(rounds)} round{'s' * (rounds != 1)} of at most {readable(plan['round_bytes'])} a rank"
    size = size if rounds else "nothing is exchanged"
    means = _MEANS.get(plan["strategy"], "")
    sentence = (
        f"{plan['strategy']}{f', {means}' if means else ''}: {size} · predicted peak {readable(peak)} of "
        f"{readable(budget)}{share}{_added(plan, used)} · {plan['reason']}"
    )
    sentence += (f" ({plan['assumption']})" if plan.get("assumption") else "") + "."
    return " ".join([sentence, *(f"{note[:1].upper()}{note[1:]}." for note in plan.get("notes") or ())])


def _added(plan: Mapping[str, Any], used: Sequence[int]) -> str:
    peaks = list(plan.get("predicted_peaks") or ())
    if not used or len(used) != len(peaks):
        return ""
    worst = max(range(len(peaks)), key=peaks.__getitem__)
    more = int(peaks[worst]) - int(used[worst])
    return f", {readable(more)} more than the {readable(used[worst])} in use" if more >= 0 and used[worst] else ""


def alternatives_text(plan: Mapping[str, Any], speeds: Speeds | None = None) -> str:
    """Return what the other strategies would have meant; empty if none is known.

    Parameters
    ----------
    plan : mapping
    speeds : mapping, optional
        By strategy, as measured; from `measured_speeds`.
    """
    sentences: list[str] = []
    first: dict[str, str] = {}  # of which strategy something was said first
    for other in plan.get("alternatives") or ():
        name = other["strategy"]
        said = _alternative(other, plan, speeds or {}).removeprefix(name)
        same = first.setdefault(said, name)
        sentences.append(name + (said if same == name else f"{said.partition(': ')[0]}: the same as {same}."))
    return " ".join(sentences)


def _alternative(other: Mapping[str, Any], plan: Mapping[str, Any], speeds: Speeds) -> str:
    fits = bool(other["fits"])
    budget = int(plan["budget_bytes"])
    share = f" ({percent(other['predicted_peak_bytes'] / budget)})" if budget and fits else ""
    peak = f"{readable(other['predicted_peak_bytes'])}{share}{_speed(other['strategy'], plan['strategy'], speeds)}"
    return alternative_text(other["strategy"], int(other["rounds"]), peak, other.get("why", ""), fits=fits) + "."


def _speed(other: str, chosen: str, speeds: Speeds) -> str:
    if other not in speeds or chosen not in speeds:
        return ""
    mine, its = speeds[chosen], speeds[other]
    ratio = its.gb_per_s / mine.gb_per_s
    return f", at {ratio:.2g} × the speed of {chosen} ({its.describe()}, against {mine.describe()})"


def measured_speeds(snapshots: Sequence[Snapshot], verb: str, nbytes: int) -> dict[str, Measured]:
    """Return by strategy the median of what the verb's latest operations reached in this session.

    Parameters
    ----------
    snapshots : sequence of dict
        The latest of each rank.
    verb : str
    nbytes : int
        Of the table on all ranks; operations on much more or much less count not, as their speed is another one.
    """
    found: dict[str, list[tuple[float, int, int]]] = {}
    for row in summary(with_latest_operations(snapshots, _OPERATIONS, verb))["operations"]:
        alike = nbytes <= _ALIKE * row["bytes_in"] and row["bytes_in"] <= _ALIKE * nbytes
        if row["verb"] == verb and alike and row["done"] and row["gb_per_s"] and row["strategy"]:
            found.setdefault(row["strategy"], []).append((row["gb_per_s"], row["number"], row["bytes_in"]))
    speeds = {}
    for strategy, told in found.items():
        rates, numbers, sizes = zip(*told, strict=True)
        speeds[strategy] = Measured(median(rates), verb, numbers, sizes)
    return speeds


def plan_html(plan: Mapping[str, Any], speeds: Speeds | None = None, used: Sequence[int] = ()) -> str:
    """Return the plan as HTML: the sentence, a bar of the predicted peak in the budget, the alternatives.

    Where a step follows, each has these to itself, under its name.

    Parameters
    ----------
    plan : mapping
    speeds : mapping, optional
        Of the first step, as for `alternatives_text`.
    used : sequence of int, optional
        What each rank has in use now.
    """
    then = plan.get("then")
    if not then:
        return _step_html(plan, speeds, "", used)
    return _step_html(plan, speeds, f"First: {plan['verb']}", used) + _step_html(then, None, f"Then: {then['verb']}")


def _step_html(step: Mapping[str, Any], speeds: Speeds | None, name: str, used: Sequence[int] = ()) -> str:
    share = min(100.0, 100 * int(step["predicted_peak_bytes"]) / (int(step["budget_bytes"]) or 1))
    bar = (
        f'<div class="gcylon-bar" title="predicted peak in the budget"><i style="width:{share:.1f}%"></i>'
        f'<b style="border-color:{BUDGET_COLOUR}"></b></div>'
    )
    head = f'<div class="gcylon-heading">{escape(name)}</div>' if name else ""
    others = escape(alternatives_text(step, speeds))
    return f'<div class="gcylon-plan">{head}{escape(plan_sentence(step, used))}{bar}<small>{others}</small></div>'
