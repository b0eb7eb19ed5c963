"""Pure planning: stats, config, memory and world size in, a plan out. Reads no data, asks no rank."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

import numpy as np

from ...backends.protocol.scalars import check_choice
from ...config import GcylonConfig
from ...errors import ArgumentError, BudgetExceeded
from ...memory.budget import exceeded
from ...units import format_bytes, format_count
from .costs import Costs, Numbers, costs_of, expected_results
from .minimum_limit import advise, minimum_limit
from .table_stats import TableStats, wished_rows

_HALVINGS = 12  # until the number of rows that fit is known to a four-thousandth

STRATEGIES = ("auto", "direct", "chunked", "staged")
EVENLY = "assuming evenly spread keys"
UNCOUNTED = "planned as for evenly spread keys: a staged result needs no count of them"


class Words(str):
    """Text of several lines that the last line of a cell shows as `print` does."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return lines_html(self)


def lines_html(text: str) -> str:
    """Lines of text as HTML, for JupyterLab, which breaks those of plain text in the middle of words."""
    return f'<div style="font-size:13px;white-space:pre-wrap">{escape(text)}</div>'


@dataclass(frozen=True, slots=True)
class Alternative:
    """What another strategy would have meant.

    Attributes
    ----------
    strategy : str
    predicted_peak_bytes : int
        Where it does not fit, what it would take.
    rounds : int
    fits : bool
        Whether it would do what it is for beside what is in use.
    why : str
        Why it was not taken, in words, where that is known.
    """

    strategy: str
    predicted_peak_bytes: int
    rounds: int
    fits: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """How an operation will run. Sizes are of the rank that needs most.

    Attributes
    ----------
    verb, strategy, reason, assumption : str
        ``assumption`` is empty once the keys have been counted; where an operation ran without that, it says so.
    rounds, chunk_rows : int
        Rounds, and most rows of a chunk.
    round_bytes, result_bytes, budget_bytes : int
        Bytes of a chunk, of the result, and the limit.
    predicted_peaks : tuple of int
        The most that will be in use on every rank, what is in use already included.
    alternatives : tuple of Alternative
        The other strategies.
    notes : tuple of str
        Steps beside the exchange, and what was left out, in words. Without rounds nothing is exchanged.
    passes : int
        How often the tables are gone through, each time for other rows.
    route : str
        How rows travel, where that is not the same for all pairs of ranks.
    then : Plan, optional
        Of the step that follows where there is one; all that is said beside it is of the first one.
    """

    verb: str
    strategy: str
    rounds: int
    chunk_rows: int
    round_bytes: int
    result_bytes: int
    budget_bytes: int
    reason: str
    assumption: str
    predicted_peaks: tuple[int, ...]
    alternatives: tuple[Alternative, ...] = ()
    notes: tuple[str, ...] = ()
    passes: int = 1
    then: Plan | None = None
    route: str = ""

    @property
    def predicted_peak_bytes(self) -> int:
        """The most that will be in use, of the rank that needs most."""
        return max(self.predicted_peaks)

    @property
    def highest_peak_bytes(self) -> int:
        """The predicted peak of the step that needs most."""
        return max(self.predicted_peak_bytes, self.then.highest_peak_bytes if self.then else 0)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        plain = asdict(replace(self, then=None)) | {"predicted_peak_bytes": self.predicted_peak_bytes}
        return plain | {"then": self.then.as_dict() if self.then else None}

    def describe(self) -> str:
        """Return the plan in words, one line and one for each other strategy; then of the step that follows."""
        rounds = "nothing is exchanged"
        if self.rounds:
            count = f"{format_count(self.rounds)} round{'s' * (self.rounds != 1)}"
            rounds = f"{count} of at most {format_bytes(self.round_bytes)}"
            rounds += f" by {self.route}" if self.route else ""
        if self.passes > 1:
            rounds = f"{self.passes} passes, {rounds}"
        lines = [
            f"{self.verb}: {self.strategy}, {rounds} · predicted peak {format_bytes(self.predicted_peak_bytes)} of "
            f"{format_bytes(self.budget_bytes)} · {self.reason}" + (f" ({self.assumption})" if self.assumption else "")
        ]
        lines += [f"  {note}" for note in self.notes]
        lines += [
            "  "
            + alternative_text(
                other.strategy, other.rounds, format_bytes(other.predicted_peak_bytes), other.why, fits=other.fits
            )
            for other in self.alternatives
        ]
        if self.then is not None:
            lines.append(f"then {self.then.describe()}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.describe()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """As the last line of a cell it reads as `print` shows it."""
        printer.text(self.describe())

    def _repr_html_(self) -> str:
        return lines_html(self.describe())


def alternative_text(strategy: str, rounds: int, peak: str, why: str, *, fits: bool) -> str:
    """Return another strategy in words; its peak as text.

    Parameters
    ----------
    strategy : str
    rounds : int
    peak : str
    why : str
        See `Alternative`.
    fits : bool
    """
    count = f"{format_count(rounds)} round{'s' * (rounds != 1)}, " if rounds else ""
    return f"{strategy} would {'' if fits else 'not '}fit: {count}peak {peak}" + (f"; {why}" if why else "")


def check_strategy(strategy: str) -> None:
    """Refuse what is no strategy.

    Raises
    ------
    ArgumentError
        Naming the strategies.
    """
    check_choice("strategy", strategy, STRATEGIES)


def make_plan(
    stats: TableStats,
    config: GcylonConfig,
    strategy: str = "auto",
    *,
    counted_results: tuple[int, ...] | None = None,
    pinned_tier: bool = False,
    compare: bool = True,
    caller: str = "",
) -> Plan:
    """Choose a strategy and chunk size that keep the peak under the budget.

    Parameters
    ----------
    stats : TableStats
        Sizes and free memory of all ranks, the same on all.
    config : GcylonConfig
        The settings of the operation.
    strategy : str, default "auto"
        One of `STRATEGIES`; another than auto is kept, or refused.
    counted_results : tuple of int, optional
        Bytes of every rank's result, where the keys have been counted.
    pinned_tier : bool, default False
        Whether the engines are GPU engines, which can stage without a disk.
    compare : bool, default True
        Whether to say what the other strategies would have meant.
    caller : str, optional
        The verb that the user called, where this exchange is a step of it: for errors.

    Returns
    -------
    Plan

    Raises
    ------
    BudgetExceeded
        If no allowed strategy fits, with the limit that would do.
    ArgumentError
        If the strategy is none.
    """
    check_strategy(strategy)
    results = expected_results(stats) if counted_results is None else counted_results
    assumption = EVENLY if counted_results is None and stats.verb == "shuffle" else ""
    candidates = _Candidates(stats, config, results)
    name = f"The {stats.verb} of {caller}" if caller and caller != stats.verb else stats.verb
    chosen, reason = _choose(candidates, config, strategy, stats, results, name, pinned_tier=pinned_tier)
    fit = candidates[chosen]
    others = [candidates[name] for name in STRATEGIES[1:] if name != chosen] if compare else []
    return Plan(
        verb=stats.verb,
        strategy=chosen,
        rounds=fit.rounds,
        chunk_rows=fit.chunk_rows,
        round_bytes=min(int(fit.chunk_rows * stats.bytes_per_row), max(stats.nbytes, default=0)),
        result_bytes=max(results),
        budget_bytes=min(stats.limits),
        reason=reason,
        assumption=assumption,
        predicted_peaks=fit.peaks,
        alternatives=tuple(Alternative(c.strategy, max(c.peaks), c.rounds, c.fits) for c in others),
        route=stats.route,
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    strategy: str
    fits: bool
    fits_longest: bool  # also a round that has the longest row
    chunk_rows: int
    rounds: int
    peaks: tuple[int, ...]
    costs: Costs
    always: Numbers  # bytes on each rank beside the work of a round: in use before, result, kept ids
    worth_rows: int  # of a chunk that is worth it


class _Candidates(dict[str, _Candidate]):
    """By strategy, each looked at when it is asked for: planning is a part of what a small operation takes."""

    def __init__(self, stats: TableStats, config: GcylonConfig, results: tuple[int, ...]) -> None:
        super().__init__()
        self._known = stats, config, results

    def __missing__(self, strategy: str) -> _Candidate:
        stats, config, results = self._known
        self[strategy] = made = _candidate(stats, config, strategy, results)
        return made


def _candidate(stats: TableStats, config: GcylonConfig, strategy: str, results: tuple[int, ...]) -> _Candidate:
    costs = costs_of(stats, strategy, results)
    results_here = np.zeros(stats.size) if strategy == "staged" else np.array(results, dtype=np.float64)
    always = results_here + costs.kept + stats.used
    rows = wished_rows(stats, config, placed=strategy != "staged")
    worth_rows = rows if strategy == "direct" else min(config.min_chunk_rows, rows)
    if strategy != "direct":
        rows = costs.rows_in(np.maximum(np.array(stats.limits) - always, 0.0), rows)
        rows = max(1, costs.in_whole_chunks(rows))
    peaks, most = always + costs.work(rows), always + costs.most(rows)
    limits = np.array(stats.limits)
    fits = bool((peaks <= limits).all())
    return _Candidate(
        strategy,
        fits=fits,
        fits_longest=bool((most <= limits).all()),
        chunk_rows=rows,
        rounds=costs.rounds(rows),
        peaks=tuple(int(n) for n in (np.minimum(most, limits) if fits else most)),
        costs=costs,
        always=always,
        worth_rows=worth_rows,
    )


def _choose(
    candidates: dict[str, _Candidate],
    config: GcylonConfig,
    strategy: str,
    stats: TableStats,
    results: tuple[int, ...],
    name: str,
    *,
    pinned_tier: bool,
) -> tuple[str, str]:
    may_stage = config.may_stage(pinned_tier=pinned_tier)
    if strategy == "staged" and not may_stage:
        raise _nowhere(config, pinned_tier=pinned_tier)
    if strategy != "auto":
        if not candidates[strategy].fits:
            what = f"{name} with strategy={strategy!r}"
            if stats.in_vain:
                what += ", even if all tables were evicted,"
            raise _too_small(candidates[strategy], stats, config, results, what, may_stage=may_stage)
        return strategy, "because you asked for it"
    if candidates["direct"].fits_longest:
        return "direct", "because the result and the fastest chunk fit beside what is in use"
    chunked = candidates["chunked"]
    worth_it = min(config.min_chunk_rows, max(stats.rows))
    if chunked.fits and (not may_stage or (chunked.chunk_rows >= worth_it and chunked.fits_longest)):
        return "chunked", "because the result and a smaller chunk fit, the fastest chunk does not"
    if may_stage and candidates["staged"].fits:
        return "staged", "because the result does not fit on the device beside what is in use"
    last = candidates["staged"] if may_stage else chunked
    what = f"{name}, even {last.strategy} in chunks of one row,"
    raise _too_small(last, stats, config, results, what, may_stage=may_stage)


def _nowhere(config: GcylonConfig, *, pinned_tier: bool) -> ArgumentError:
    off = [f"allow_cpu_staging={config.allow_cpu_staging}"]
    if not pinned_tier:
        off.append(f"allow_disk_spill={config.allow_disk_spill}")
    return ArgumentError(
        f"strategy='staged' with {' and '.join(off)} has nowhere to put the result.",
        advice="Allow it, or choose another strategy." if pinned_tier else "Allow both, or choose another strategy.",
    )


def _too_small(
    candidate: _Candidate,
    stats: TableStats,
    config: GcylonConfig,
    results: tuple[int, ...],
    what: str,
    *,
    may_stage: bool,
) -> Exception:
    costs, always = candidate.costs, candidate.always
    smallest = candidate.worth_rows if candidate.strategy == "direct" else 1
    needed = always + costs.most(smallest) - stats.used
    worst = int(np.argmax(needed + stats.used - stats.limits))
    would_do = minimum_limit(stats, config, candidate.strategy, results, may_stage=may_stage)
    error = exceeded(
        what, int(needed[worst]), stats.used[worst], stats.limits[worst], rank=worst, would_do=would_do,
        staged=candidate.strategy == "staged",
    )  # fmt: skip
    if candidate.strategy == "staged":
        advise(error, would_do, stages=True)
    else:
        _say_what_fits(error, candidate.strategy, stats, config, results)
    return error


def _say_what_fits(
    error: BudgetExceeded, strategy: str, stats: TableStats, config: GcylonConfig, results: tuple[int, ...]
) -> None:
    """Say of how many rows, as wide as these and spread alike, the result could be held: found by halving."""

    def fits(share: float) -> bool:
        def of(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(int(n * share) for n in values)

        held = [n - below for n, below in zip(stats.nbytes, stats.staged_bytes, strict=True)]
        used = tuple(max(0, u - n) + int(n * share) for u, n in zip(stats.used, held, strict=True))
        smaller = replace(
            stats, rows=of(stats.rows), nbytes=of(stats.nbytes), staged_bytes=of(stats.staged_bytes), used=used,
            target_rows=of(stats.target_rows),
        )  # fmt: skip
        return _candidate(smaller, config, strategy, of(results)).fits

    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    total = sum(stats.rows)
    rows = int(total * low)
    if rows:
        error.message += f" About {format_count(rows)} of its {format_count(total)} rows would fit."
        error.numbers["fitting_rows"] = rows


def eviction_notes(
    own_bytes: int, other_bytes: int, *, inputs: int = 1, ran: bool = False, come_back: bool = False
) -> tuple[str, ...]:
    """What a plan says of it: it is why a smaller limit may allow what a larger one does not.

    Parameters
    ----------
    own_bytes, other_bytes : int
        Bytes of inputs and of other tables, on the rank that has most.
    inputs : int, default 1
        How many the operation takes.
    ran : bool, default False
        Whether it has run; it is still to come otherwise.
    come_back : bool, default False
        Whether a limit of this operation alone was the reason.
    """
    later = "; {} come{} back when next used, as the limit was this operation's alone" if come_back else ""
    are, makes = ("were", "made") if ran else ("are", "makes")
    notes = []
    if other_bytes:
        notes.append(
            f"other tables {are} staged first, up to {format_bytes(other_bytes)} a rank, which {makes} room"
            + later.format("they", "")
        )
    if own_bytes:
        name, is_ = ("the table itself", "was" if ran else "is") if inputs == 1 else ("the tables themselves", are)
        notes.append(
            f"{name} {is_} staged first, up to {format_bytes(own_bytes)} a rank, which {makes} room, and {is_} read "
            "back piece by piece" + (later.format("it", "s") if inputs == 1 else later.format("they", ""))
        )
    return tuple(notes)
