"""Pure: a plan in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from ..units import format_count
from .series import percent, readable
from .theme import BUDGET_COLOUR

_MEANS = {
    "direct": "everything stays on the device",
    "chunked": "in rounds that keep the peak under the budget, the result on the device",
    "staged": "the result goes down to disk, chunk by chunk",
}


def plan_sentence(plan: Mapping[str, Any]) -> str:
    """Return the plan in words: strategy, rounds, bytes a round, predicted peak of the budget, reason, alternatives."""
    rounds, peak, budget = int(plan["rounds"]), int(plan["predicted_peak_bytes"]), int(plan["budget_bytes"])
    share = f" ({percent(peak / budget)})" if budget else ""
    size = f"{format_count(rounds)} round{'s' * (rounds != 1)} of at most {readable(plan['round_bytes'])} a rank"
    size = size if rounds else "nothing is exchanged"
    means = _MEANS.get(plan["strategy"], "")
    sentence = (
        f"{plan['strategy']}{f', {means}' if means else ''}: {size} · predicted peak {readable(peak)} of "
        f"{readable(budget)}{share} · {plan['reason']}"
    )
    sentence += (f" ({plan['assumption']})" if plan.get("assumption") else "") + "."
    return " ".join([sentence, *(f"{note[:1].upper()}{note[1:]}." for note in plan.get("notes") or ())])


def alternatives_text(plan: Mapping[str, Any]) -> str:
    """Return what the other strategies would have meant; empty if none is known."""
    return " ".join(_alternative(other) for other in plan.get("alternatives") or ())


def _alternative(other: Mapping[str, Any]) -> str:
    rounds = int(other["rounds"])
    verdict = "would fit" if other["fits"] else "would not fit"
    return (
        f"{other['strategy']} {verdict}: {format_count(rounds)} round{'s' * (rounds != 1)}, "
        f"peak {readable(other['predicted_peak_bytes'])}."
    )


def plan_html(plan: Mapping[str, Any]) -> str:
    """Return the plan as HTML: the sentence, a bar of the predicted peak in the budget, the alternatives."""
    budget = int(plan["budget_bytes"]) or 1
    share = min(100.0, 100 * int(plan["predicted_peak_bytes"]) / budget)
    bar = (
        f'<div class="gcylon-bar" title="predicted peak in the budget"><i style="width:{share:.1f}%"></i>'
        f'<b style="border-color:{BUDGET_COLOUR}"></b></div>'
    )
    others = escape(alternatives_text(plan))
    return f'<div class="gcylon-plan">{escape(plan_sentence(plan))}{bar}<small>{others}</small></div>'
