"""The plan of a join from what is known of both tables already: no data is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends.protocol.join_columns import JoinSpec, join_columns, join_spec
from ...backends.protocol.schema import Label, Schema
from ...config import GcylonConfig
from ...engine.exec.operation import Int64s
from ...engine.plan.estimate import PlannedVerb, as_used, estimate_exchange
from ...engine.plan.part_stats import Parts
from ...engine.plan.plan import EVENLY, STRATEGIES, Alternative, Plan
from ...engine.store.part import Partitioning
from ...errors import BudgetExceeded
from ...memory.budget import exceeded
from ...units import format_bytes, format_count
from .distribution import IN_PASSES, JoinDistribution, Side, build_side, choose_strategy, plan_distribution
from .passes import JoinCosts, JoinMemory, join_costs, join_memory, scratch_bytes, worth_scattering

Keys = Label | Sequence[Label]
_ASSUMED = f"{EVENLY}, and as many pairs as the larger side has rows"


def _join(
    tables: Sequence[Parts],
    config: GcylonConfig,
    strategy: str,
    *,
    how: str = "inner",
    on: Keys | None = None,
    left_on: Keys | None = None,
    right_on: Keys | None = None,
    suffixes: Sequence[str | None] = ("_x", "_y"),
    indicator: bool | str = False,
    validate: str | None = None,
) -> Plan:
    left, right = as_used(tables, config)
    names = left[0].columns, right[0].columns
    spec = join_spec(*names, how, on, left_on, right_on, suffixes, indicator, validate)
    plan, _ = _estimated(spec, left, right, config, strategy)
    may_stage = left[0].may_stage(config)
    others = join_alternatives(
        plan, strategy, lambda name: _estimated(spec, left, right, config, name), may_stage=may_stage
    )
    return replace(plan, alternatives=others, route=left[0].exchange.get("route", ""))


def _estimated(spec: JoinSpec, left: Parts, right: Parts, config: GcylonConfig, strategy: str) -> Estimated:
    """One strategy's plan, and how it fits into memory."""
    limits = [i.limit_bytes(config) for i in left]
    index_row_bytes = left[0].index_row_bytes
    sides = {"left": _side("left", spec.left_on, left), "right": _side("right", spec.right_on, right)}
    distribution = plan_distribution(spec, sides["left"], sides["right"], limits, index_row_bytes)
    build = build_side(spec, distribution, sum(sides["left"].nbytes), sum(sides["right"].nbytes))
    costs = _costs(spec, left, right, config, min(limits))
    sizes = _sizes(left, right, limits, config)
    may_stage = config.may_stage(pinned_tier=False) and not left[0].pinned_tier
    memory = join_memory(spec, distribution, build, sizes, costs, strategy, instead=may_stage and strategy == "auto")
    notes = (f"{distribution.kind} join: {distribution.reason}", *memory.notes)
    if memory.passes > 1:
        return _in_passes(memory, costs, sizes, notes), memory
    plans = [_exchange(distribution, name, left, right, config, strategy) for name in distribution.moved]
    results = [int(memory.result_bytes / len(limits))] * len(limits)
    if memory.passes:
        peaks = [int(n) for n in memory.peaks]
    else:
        peaks = _peaks(distribution, build, sides, costs.index_row_bytes, results, sizes[:, 5].tolist())
    if strategy == "staged":  # nothing that is exchanged or made is held: an index, a piece, and a block of the result
        used, share = sizes[:, 5], 1 if distribution.kind == "broadcast" else len(limits)
        index = np.full(len(limits), costs.index_row_bytes * sum(sides[build].rows) / share)
        probe = sizes[:, 1 if build == "right" else 3].astype(np.float64)
        room = np.maximum(sizes[:, 4] - used - index, 0.0)
        beside = index + scratch_bytes(costs, room, np.zeros(len(limits)), probe, np.array(results))
        peaks = [int(n) for n in used + beside]
    peaks = [max(peak, *(plan.predicted_peaks[rank] for plan in plans), 0) for rank, peak in enumerate(peaks)]
    fits = memory.passes == 1 and all(peak <= limit for peak, limit in zip(peaks, limits, strict=True))
    chosen, reason = choose_strategy(strategy, [plan.strategy for plan in plans], fits=fits)
    if chosen != "staged" and max(results) > min(limits):
        raise exceeded(f"The result of a join with strategy={chosen!r}", max(results), 0, min(limits))
    peaks = [min(peak, limit) for peak, limit in zip(peaks, limits, strict=True)]
    plan = Plan(
        verb="join",
        strategy=chosen,
        rounds=sum(plan.rounds for plan in plans),
        chunk_rows=max((plan.chunk_rows for plan in plans), default=0),
        round_bytes=max((plan.round_bytes for plan in plans), default=0),
        result_bytes=max(results),
        budget_bytes=min(limits),
        reason=reason,
        assumption=_ASSUMED,
        predicted_peaks=tuple(peaks),
        notes=notes,
    )
    return plan, memory


def _in_passes(memory: JoinMemory, costs: JoinCosts, sizes: Int64s, notes: tuple[str, ...]) -> Plan:
    # What stays behind in a pass is gone through with what travels where kernels write it.
    sent = int(sizes[:, [0, 2]].max()) // (1 if costs.scatters else memory.passes)
    peaks = tuple(int(n) for n in memory.peaks)
    return Plan(
        verb="join",
        strategy="chunked",
        rounds=2 * memory.passes * max(1, -(-sent // max(costs.chunk_bytes, 1))),
        chunk_rows=int(sizes[:, [1, 3]].max()) // memory.passes,
        round_bytes=min(sent, costs.chunk_bytes),
        result_bytes=int(memory.result_bytes / len(sizes)),
        budget_bytes=int(sizes[:, 4].min()),
        reason=IN_PASSES,
        assumption=_ASSUMED,
        predicted_peaks=peaks,
        notes=notes,
        passes=memory.passes,
    )


def _costs(spec: JoinSpec, left: Parts, right: Parts, config: GcylonConfig, limit: int) -> JoinCosts:
    """What ranks will take the work for, where keys are numbers."""
    shown = (left,) if spec.filters else (left, right)
    out = sum(sum(i.nbytes for i in infos) / max(sum(i.rows for i in infos), 1) for infos in shown)
    if not spec.filters and spec.how != "cross":
        dtypes = dict(zip(left[0].columns, left[0].dtypes, strict=True))
        both = (key for key, other in zip(spec.left_on, spec.right_on, strict=True) if key == other)
        out = max(1.0, out - sum(_width(str(dtypes[key])) for key in both))  # a key of one name is one column
    index = left[0].index_row_bytes if spec.how != "cross" else 0
    fast = left[0].fast_chunk_bytes
    match, pair = left[0].match_row_bytes, left[0].pair_bytes
    sums = [(sum(i.nbytes for i in infos), sum(i.rows for i in infos)) for infos in (left, right)]
    fixed = all(i.nbytes == i.rows * i.row_bytes for infos in (left, right) for i in infos)
    scatters = fixed and left[0].exchange.get("scatters", False) and worth_scattering(len(left), sums)
    return join_costs(index, match, pair, out, config, fast, limit, scatters=scatters)


def _width(dtype: str) -> int:
    try:
        return int(np.dtype(dtype).itemsize)
    except TypeError:
        return 0


def _sizes(left: Parts, right: Parts, limits: list[int], config: GcylonConfig) -> Int64s:
    """What `join_memory` asks of each rank."""
    rows: list[tuple[int, ...]] = []
    for one, other, limit in zip(left, right, limits, strict=True):
        used = max(one.used_bytes, other.used_bytes)
        here = one.device_bytes + other.device_bytes
        beside = max(0, used - here) if one.may_stage(config) else 0
        staged = one.nbytes + other.nbytes - here
        apart = (infos.nbytes * (infos.chunks > 1) for infos in (one, other))
        rows.append((one.nbytes, one.rows, other.nbytes, other.rows, limit, used, beside, staged, *apart))
    return np.array(rows, dtype=np.int64)


def _side(name: str, keys: tuple[Any, ...], infos: Parts) -> Side:
    spread = infos[0].spread
    known = None if spread is None else Partitioning(spread.keys, spread.size)
    return Side(name, keys, tuple(i.nbytes for i in infos), tuple(i.rows for i in infos), known)


def _exchange(
    distribution: JoinDistribution, name: str, left: Parts, right: Parts, config: GcylonConfig, strategy: str
) -> Plan:
    """The plan of an exchange of one side; the right one stays where it is until it has been exchanged itself."""
    infos = left if name == "left" else right
    held = strategy in ("direct", "chunked") and name == "left" == distribution.moved[0]
    beside = [i.device_bytes for i in right] if held else []
    if distribution.kind == "broadcast":
        return estimate_exchange("allgather", infos, config, strategy=strategy, beside=beside)
    keys: Any = [*distribution.keys(name)]
    return estimate_exchange("shuffle", infos, config, strategy=strategy, on=keys, beside=beside)


def _peaks(
    distribution: JoinDistribution,
    build: str,
    sides: dict[str, Side],
    index_row_bytes: float,
    results: list[int],
    used: list[int],
) -> list[int]:
    """In use on each rank once the result is made: tables of before, what was exchanged, the index, the result."""
    share = 1 if distribution.kind == "broadcast" else len(used)
    index = int(index_row_bytes * sum(sides[build].rows)) // share
    moved = sum(sum(sides[name].nbytes) // share for name in distribution.moved)
    return [here + moved + index + result for here, result in zip(used, results, strict=True)]


def _refuse(schemas: Sequence[Schema], rows: Sequence[int], **arguments: Any) -> None:
    left, right = schemas
    join_columns(left, right, join_spec(left.names, right.names, **arguments))


PLANNED = (PlannedVerb("join", _join, keys="on", all_by_default=True, tables="right", refuse=_refuse),)


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
