"""Pure: what would change a plan: the limits at which its strategy changes, and the switches that do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...config import GcylonConfig
from ...engine.plan.plan import Plan
from ...errors import GcylonError
from ...units import GIB, KIB, MIB
from ..figures.series import percent, readable
from .limit_slider import format_size

# From what fits least to what fits best.
_ORDER = ("staged", "chunked", "direct")
# Below this nobody looks.
LEAST = 64 * KIB
_PRECISION = 1.02
_ROOM = 16
# A limit that holds the table as it is can allow less than a smaller one, under which the table is evicted first. So
# what holds at a limit is looked for above it too: as far as the table and its result reach.
_ABOVE = (1.04, 1.1, 1.2, 1.35, 1.6, 2.0)
_NO_CEILING = 2**60

PlanAt = Callable[[GcylonConfig], Plan]


@dataclass(frozen=True, slots=True)
class StrategyThreshold:
    """From this limit up the strategy is this one, or a better one."""

    limit_bytes: int
    strategy: str


def without_ceilings(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the tables as on ranks that could have any limit."""
    return {name: [{**info, "ceiling_bytes": _NO_CEILING} for info in infos] for name, infos in tables.items()}


def turns(plan_at: PlanAt, config: GcylonConfig, nbytes: int) -> list[StrategyThreshold]:
    """Return the limits at which the strategy changes, smallest first; the first is the least that does at all.

    Parameters
    ----------
    plan_at : callable
        Gives the plan under a config, of ranks without ceilings.
    config : GcylonConfig
        Everything but the limit.
    nbytes : int
        Of what is involved on all ranks: far above it nothing changes.
    """
    most = max(_ROOM * nbytes, GIB)
    found: list[StrategyThreshold] = []
    for wanted in range(len(_ORDER)):
        limit = _least_for_good(lambda n, wanted=wanted: _place(plan_at, config, n) >= wanted, most)  # type: ignore[misc]
        if limit is None:
            break
        strategy = _ORDER[_place(plan_at, config, limit)]
        if not found or strategy != found[-1].strategy:
            found.append(StrategyThreshold(limit, strategy))
    return found


def non_monotonic_range(
    plan_at: PlanAt, config: GcylonConfig, found: Sequence[StrategyThreshold], now: int
) -> StrategyThreshold | None:
    """Return where, above the limit in force, less fits than under it: from which limit on, and what; None if nowhere.

    Parameters
    ----------
    plan_at, config
        As for `turns`.
    found : sequence of StrategyThreshold
        From `turns`.
    now : int
        The limit in force.
    """
    here = _place(plan_at, config, now)
    end = next((turn.limit_bytes for turn in found if _ORDER.index(turn.strategy) >= here), 0)
    lower = (int(end / more) for more in _ABOVE)
    within = next((n for n in lower if n > now and _place(plan_at, config, n) < here), None) if here > 0 else None
    start = None if within is None else _least(lambda n: _place(plan_at, config, n) < here, within, now)
    return None if start is None else StrategyThreshold(start, _ORDER[max(_place(plan_at, config, start), 0)])


def better_below(plan_at: PlanAt, config: GcylonConfig, now: int) -> StrategyThreshold | None:
    """Return a limit somewhat below the one in force under which more fits than under it; None where there is none.

    Parameters
    ----------
    plan_at, config
        As for `turns`.
    now : int
        The limit in force.
    """
    here = _place(plan_at, config, now)
    lower = (_rounded_up(now / more) for more in _ABOVE if now / more >= LEAST)
    better = ((n, _place(plan_at, config, n)) for n in lower)
    return next((StrategyThreshold(n, _ORDER[place]) for n, place in better if n < now and place > here), None)


def _least_for_good(holds: Callable[[int], bool], most: int) -> int | None:
    """As `_least`, of what also holds above; where it holds below that for a while, that is passed over."""
    low = LEAST
    while (limit := _least(holds, most, low)) is not None:
        failed = [n for n in (int(limit * more) for more in _ABOVE) if n < most and not holds(n)]
        if not failed:
            return limit
        low = failed[-1]
    return None


def _place(plan_at: PlanAt, config: GcylonConfig, limit: int) -> int:
    try:
        return _ORDER.index(plan_at(config.with_values(gpu_memory_limit=limit)).strategy)
    except GcylonError:
        return -1


def _least(holds: Callable[[int], bool], most: int, low: int = LEAST) -> int | None:
    """Return about the smallest limit from which something holds, as a number for people; None where it never does."""
    high = most
    if not holds(high):
        return None
    if holds(low):
        return low
    while high > low * _PRECISION:
        middle = int((low * high) ** 0.5)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return next((n for n in (_rounded_up(high), _rounded_up(high * _PRECISION)) if holds(n)), high)


def _rounded_up(nbytes: float) -> int:
    """Return the next size with about two figures, so that it can be said and set."""
    unit = next(u for u in (GIB, MIB, KIB) if nbytes >= u)
    step = unit if nbytes >= 10 * unit else unit // 8
    return int(-(-nbytes // step) * step)


def limit_now(config: GcylonConfig, infos: Sequence[Mapping[str, Any]]) -> int:
    """Return the limit that a config means on the rank where it is least."""
    return min(config.limit_bytes(int(i["ceiling_bytes"]), int(i["free_at_start_bytes"])) for i in infos)


def limits_text(
    found: Sequence[StrategyThreshold], config: GcylonConfig, infos: Sequence[Mapping[str, Any]], chosen: str = "",
    less: StrategyThreshold | None = None, more: StrategyThreshold | None = None,
) -> str:  # fmt: skip
    """Return the limits around the one in force in a sentence; empty where no limit changes anything.

    Parameters
    ----------
    found : sequence of StrategyThreshold
        From `turns`.
    config : GcylonConfig
        As it is now.
    infos : sequence of mapping
        Of the planned table, with their real ceilings.
    chosen : str, optional
        The strategy of the plan under this config. Where a limit below the table's size leaves its input on disk, a
        strategy can fit that a somewhat larger limit, which holds the input, has no room for.
    less : StrategyThreshold, optional
        From `non_monotonic_range`: where that is so.
    more : StrategyThreshold, optional
        From `better_below`: the same, seen from such a larger limit.
    """
    if not found:
        return ""
    ceiling = min(int(info["ceiling_bytes"]) for info in infos)
    free = min(int(info["free_at_start_bytes"]) for info in infos)
    now = limit_now(config, infos)
    auto = config.gpu_memory_limit == 0
    reached = _ORDER.index(chosen) if chosen in _ORDER else -1
    above = [turn for turn in found if turn.limit_bytes > now and _ORDER.index(turn.strategy) > reached]
    below = [turn for turn in found if turn.limit_bytes <= now]
    texts = [f"{turn.strategy} from {_limit(turn.limit_bytes, ceiling, free, auto=auto)} up" for turn in above]
    if len(below) > 1:
        texts.append(f"{below[-2].strategy} below {format_size(below[-1].limit_bytes)}")
    if below and below[0].limit_bytes > LEAST:
        texts.append(f"nothing fits below {format_size(below[0].limit_bytes)}")
    said = f"By the memory limit ({readable(now)} now): {', '.join(texts)}." if texts else ""
    more_text = (
        f"With {format_size(more.limit_bytes)} it would be {more.strategy}: under such a limit the tables are staged "
        "first, which makes room for the result."
    ) if more else ""  # fmt: skip
    return " ".join(text for text in (said, _less_text(less, found, chosen) if less else "", more_text) if text)


def _less_text(less: StrategyThreshold, found: Sequence[StrategyThreshold], chosen: str) -> str:
    end = next(turn.limit_bytes for turn in found if _ORDER.index(turn.strategy) >= _ORDER.index(chosen))
    return (
        f"Between {format_size(less.limit_bytes)} and {format_size(end)} it is {less.strategy}, not {chosen}: such "
        "limits hold the tables as they are, which leaves less room for the result; under smaller ones the tables are "
        "staged first, which makes room."
    )


def _limit(nbytes: int, ceiling: int, free: int, *, auto: bool) -> str:
    text = format_size(nbytes)
    if nbytes > ceiling:
        return f"{text} (above the ceiling of {readable(ceiling)}: a new cluster needs a higher one)"
    if auto and free and nbytes <= free:
        return f"{text} (fraction {max(nbytes / free, 0.01):.2f})"
    return text


def switches_text(plan_at: PlanAt, config: GcylonConfig, now: Plan | None, *, on_cpu: bool) -> str:
    """Return what the settings other than the limit would change; empty where they change nothing.

    Parameters
    ----------
    plan_at : callable
        Gives the plan under a config.
    config : GcylonConfig
        As it is now.
    now : Plan or None
        The plan under it; None where nothing fits.
    on_cpu : bool
        Whether the disk is the only place to stage to.
    """
    tried: list[tuple[str, GcylonConfig]] = []
    if not config.may_stage(pinned_tier=not on_cpu):
        staging = config.with_values(allow_cpu_staging=True, allow_disk_spill=config.allow_disk_spill or on_cpu)
        tried.append(("staging allowed", staging))
    if config.chunk_size_bytes:
        tried.append(("chunk size auto", config.with_values(chunk_size_bytes=0)))
    if config.min_chunk_rows > 1024:
        tried.append(("min rows 1,024", config.with_values(min_chunk_rows=1024)))
    texts = [_changed(name, plan_at, other, now) for name, other in tried]
    return " ".join(text for text in texts if text)


def _changed(name: str, plan_at: PlanAt, config: GcylonConfig, now: Plan | None) -> str:
    try:
        plan = plan_at(config)
    except GcylonError:
        return ""
    if now is not None and (plan.strategy, plan.rounds) == (now.strategy, now.rounds):
        return ""
    rounds = f"{plan.rounds:,} round{'s' * (plan.rounds != 1)}"
    share = f" ({percent(plan.predicted_peak_bytes / plan.budget_bytes)})" if plan.budget_bytes else ""
    return f"With {name}: {plan.strategy}, {rounds}, peak {readable(plan.predicted_peak_bytes)}{share}."
