"""What the strategies that a join does not take would have meant: pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...engine.plan.plan import STRATEGIES, Alternative, Plan
from ...errors import BudgetExceeded
from ...units import format_bytes, format_count
from .passes import JoinMemory

Estimated = tuple[Plan, JoinMemory]
_NEEDS = "what is sent, the result, and an index with as much again to look up in it do not fit beside the tables"
_GIVES_WAY = "asked for, it would stage the tables, and read them back piece by piece"


def join_alternatives(
    plan: Plan, asked: str, estimated: Callable[[str], Estimated], *, may_stage: bool
) -> tuple[Alternative, ...]:
    """Say of each other strategy whether it would fit, what it takes, and why it is not taken.

    Parameters
    ----------
    plan : Plan
        The one that is taken.
    asked : str
        The strategy that was asked for.
    estimated : callable
        Plans another strategy, and says how it fits into memory; raises where it would be refused.
    may_stage : bool
        Whether there is a tier below the device.

    Returns
    -------
    tuple of Alternative
    """
    names = [name for name in STRATEGIES[1:] if name != plan.strategy and (may_stage or name != "staged")]
    return tuple(_alternative(name, plan, asked, estimated, may_stage=may_stage) for name in names)


def _alternative(
    name: str, plan: Plan, asked: str, estimated: Callable[[str], Estimated], *, may_stage: bool
) -> Alternative:
    try:
        other, memory = estimated(name)
    except BudgetExceeded as error:
        return _refused(name, error)
    if name == "staged":
        why = "" if asked != "auto" else "what stays on the device need not be read back"
        return Alternative(name, other.predicted_peak_bytes, other.rounds, True, why)
    if memory.passes:
        return Alternative(name, other.predicted_peak_bytes, other.rounds, True, _not_taken(plan, other, asked, memory))
    why = f"{_NEEDS}; {_GIVES_WAY}" if may_stage else _NEEDS
    return Alternative(name, int(memory.needed.max()), other.rounds, False, why)


def _refused(name: str, error: BudgetExceeded) -> Alternative:
    numbers = error.numbers
    needed, used = int(numbers["needed_bytes"]), int(numbers["used_bytes"])
    what = re.sub(r"^\[.*?\] ", "", str(error)).partition(" needs ")[0]  # without the rank
    what = what[:1].lower() + what[1:]
    # Sizes of exchanges are those of the tables; how large the result is, which is no rank's yet, is assumed.
    sure = (
        "it would probably be refused"
        if error.rank is not None
        else "unless it is smaller than assumed, it would be refused"
    )
    why = f"{sure}, as {what} needs {format_bytes(needed)} while {format_bytes(used)} are in use"
    return Alternative(name, needed + used, 0, False, why)


def _not_taken(plan: Plan, other: Plan, asked: str, memory: JoinMemory) -> str:
    """Why a strategy that keeps the result on the device is not taken, where it fits."""
    if asked != "auto":
        return ""
    if plan.strategy == "direct":
        return "no smaller rounds are needed"
    if other.passes > 1:
        return "its passes would take longer than staging"
    if other.chunk_rows < plan.chunk_rows and plan.strategy == "staged":
        return f"its rounds would be of {format_count(other.chunk_rows)} rows"
    return f"tables {'that are not in use ' * memory.evicts}would be staged to make room for it"
