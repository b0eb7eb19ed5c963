"""``gcylon-lab bench budget``: what verbs take under budgets of 1.5 to 1/50 of their input, counted and truly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from ...errors import ArgumentError, ClusterError
from ...units import format_bytes
from ..harness.worker_processes import Contender, mpi_contender
from .tables import KINDS, SKEWS

_SAY: Callable[[str], None] = partial(print, flush=True)  # cells are what is asked for, no progress
VERBS = ("shuffle", "sort_values", "groupby", "drop_duplicates", "distinct", "join")
STRATEGIES = ("auto", "direct")
SHARES = (1.5, 0.5, 0.1, 0.02)

# The bars. A process may grow by what was free of the limit, a part of the limit, and what does not depend on it.
_GROWTH_BYTES, _GROWTH_SHARE = 20_000_000, 0.1
_PREDICTED = (0.8, 1.25)
# Times of the CPU time without a budget, as medians, where a rank has so many bytes at least.
_SLOWER = {0.1: 8.0, 0.02: 20.0}
_TIMED_BYTES = 64_000_000

Cell = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCase:
    """The cells of a run: every verb, dtype, skew, limit and strategy with every other.

    Parameters
    ----------
    ranks : int
    part_bytes : int
        About so many on each rank.
    verbs, kinds, skews, strategies : tuple of str
        Of `VERBS`, `KINDS`, `SKEWS`, `STRATEGIES` and the other strategies.
    shares : tuple of float
        Limits as shares of the largest rank's input.

    Raises
    ------
    ArgumentError
        If one is unknown or out of range.
    """

    ranks: int = 2
    part_bytes: int = 64_000_000
    verbs: tuple[str, ...] = VERBS
    kinds: tuple[str, ...] = tuple(KINDS)
    skews: tuple[str, ...] = SKEWS
    shares: tuple[float, ...] = SHARES
    strategies: tuple[str, ...] = STRATEGIES

    def __post_init__(self) -> None:
        known = (VERBS, tuple(KINDS), SKEWS, ("auto", "direct", "chunked", "staged"))
        for given, names in zip((self.verbs, self.kinds, self.skews, self.strategies), known, strict=True):
            unknown = sorted(set(given) - set(names))
            if unknown or not given:
                raise ArgumentError(f"{', '.join(unknown) or 'Nothing'} cannot be measured.",
                                    advice=f"There are {', '.join(names)}.")  # fmt: skip
        if self.ranks < 1 or self.part_bytes < 1000 or not self.shares or min(self.shares) <= 0:
            raise ArgumentError("ranks are at least 1, parts at least 1,000 bytes, and limits above 0.")


def run(case: BudgetCase, *, say: Callable[[str], None] = _SAY) -> dict[str, Any]:
    """Run all cells, and judge them.

    Parameters
    ----------
    case : BudgetCase
    say : callable
        Gets a line for each cell.

    Returns
    -------
    dict
        ``case``, ``cells`` (plain values of each) and ``summary`` (see `summary_of`).
    """
    cells: list[Cell] = []
    say(_HEADER)
    with _Ranks(case.ranks) as ranks:
        for kind in case.kinds:
            for skew in case.skews:
                for cell in _cells_of(case, ranks, kind, skew):
                    cells.append(cell)
                    say(format_cell(cell))
    return {
        "bench": "budget",
        "case": {"ranks": case.ranks, "part_bytes": case.part_bytes, "shares": list(case.shares)},
        "cells": cells,
        "summary": summary_of(cells),
    }


class _Ranks(AbstractContextManager["_Ranks"]):
    """The processes, started anew after one failed."""

    def __init__(self, ranks: int) -> None:
        self._count = ranks
        self._contender: Contender | None = None
        self._loaded: dict[str, Any] = {}

    def load(self, **order: Any) -> list[dict[str, Any]]:
        self._loaded = order
        return self._step(do="load", **order)

    def run(self, **order: Any) -> list[dict[str, Any]]:
        if self._contender is None and self._loaded:
            self._step(do="load", **self._loaded)
        return self._step(do="run", **order)

    def _step(self, **order: Any) -> list[dict[str, Any]]:
        if self._contender is None:
            self._contender = mpi_contender("budget", "gcylon_lab.bench.budget.ranks", self._count, step_s=1800)
        try:
            return self._contender.step(**order)
        except ClusterError:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        contender, self._contender = self._contender, None
        if contender is not None:
            contender.close()


def _cells_of(case: BudgetCase, ranks: _Ranks, kind: str, skew: str) -> Iterator[Cell]:
    loaded = ranks.load(kind=kind, skew=skew, part_bytes=case.part_bytes)
    input_bytes = max(part["nbytes"] for part in loaded)
    bare = {
        verb: _ran(ranks, verb=verb, limit_bytes=0, strategy="auto", stage=False)
        for verb in case.verbs
        if verb != "distinct" or KINDS[kind].hashable
    }
    for share in sorted(case.shares, reverse=True):
        for verb, without in bare.items():
            for strategy in case.strategies:
                cell: Cell = {
                    "verb": verb, "kind": kind, "skew": skew, "share": share, "strategy": strategy,
                    "input": input_bytes, "limit": max(1, int(share * input_bytes)),
                }  # fmt: skip
                yield cell | _judged(ranks, cell, without)


def _ran(ranks: _Ranks, **order: Any) -> list[dict[str, Any]]:
    """Each rank's answer; where processes failed, one that says so."""
    try:
        return ranks.run(warm=True, **order)
    except ClusterError as error:
        return [{"error": str(error), "refused": False, "failed": True}]


def _judged(ranks: _Ranks, cell: Cell, without: Sequence[dict[str, Any]]) -> Cell:
    """Run a cell, and say what it took beside what it may."""
    limit, stage = cell["limit"], cell["share"] < 1
    answers = _ran(ranks, verb=cell["verb"], strategy=cell["strategy"], limit_bytes=limit, stage=stage)
    first = answers[0]
    if first["error"]:
        judged: Cell = {"outcome": "refused" if first["refused"] else "error", "error": first["error"]}
        if first["refused"]:
            judged["would_do"] = first["would_do"]
            again = _ran(
                ranks, verb=cell["verb"], strategy=cell["strategy"], limit_bytes=first["would_do"], stage=stage
            )
            judged["advice_works"] = not again[0]["error"]
            judged["advice_error"] = again[0]["error"]
        elif without[0]["error"]:
            judged["outcome"] = "unsupported"
        return judged
    allowed = [limit - answer["held"] + _GROWTH_BYTES + int(_GROWTH_SHARE * limit) for answer in answers]
    worst = max(range(len(answers)), key=lambda rank: answers[rank]["grown"] - allowed[rank])
    off = max(answers, key=lambda one: _off(one["predicted"], one["measured"]))
    peak = max(answer["measured"] for answer in answers)
    bare_cpu = sum(answer.get("cpu_s", 0) for answer in without)
    cpu = sum(answer["cpu_s"] for answer in answers)
    return {
        "outcome": "ran", "chosen": first["chosen"], "rounds": first["rounds"],
        "peak": max(answer["peak"] for answer in answers), "held": answers[worst]["held"],
        "grown": answers[worst]["grown"], "allowed": allowed[worst],
        "predicted_ratio": off["predicted"] / max(1, off["measured"]), "planned_ratio": first["planned"] / max(1, peak),
        "cpu_s": cpu, "bare_cpu_s": bare_cpu, "cpu_ratio": cpu / bare_cpu if bare_cpu else 0.0,
        "wrong": _wrong(answers, without),
    }  # fmt: skip


def _wrong(answers: Sequence[dict[str, Any]], without: Sequence[dict[str, Any]]) -> str:
    rows, before = (
        sum(answer["rows"] for answer in these) if "rows" in these[0] else 0 for these in (answers, without)
    )
    return f"{rows} rows where {before} came without a budget" if before and rows != before else ""


def _off(predicted: int, measured: int) -> float:
    """How far a prediction is off, whatever the side."""
    ratio = max(1, predicted) / max(1, measured)
    return max(ratio, 1 / ratio)


def summary_of(cells: Iterable[Cell]) -> dict[str, Any]:
    """Judge cells by the bars.

    Returns
    -------
    dict
        How many ``ran``, were ``refused``, are ``unsupported`` or ended in an ``error``; how many are ``over_limit``
        (by the counter), ``over_growth``, ``mispredicted`` (and ``misplanned``, by the plan alone), ``misadvised`` or
        ``wrong``; ``slower``: for each share that has a bar its median of CPU time over the unbudgeted run, where a
        rank has 64 MB at least; and ``holds``, whether all bars do. A plan alone is not judged: it reads nothing.
    """
    cells = list(cells)
    ran = [cell for cell in cells if cell["outcome"] == "ran"]
    count: dict[str, Any] = {
        what: sum(cell["outcome"] == what for cell in cells) for what in ("ran", "refused", "unsupported", "error")
    }
    count["over_limit"] = sum(cell["peak"] > max(cell["limit"], cell["held"]) for cell in ran)
    count["over_growth"] = sum(is_over(cell) for cell in ran)
    count["mispredicted"] = sum(not _PREDICTED[0] <= cell["predicted_ratio"] <= _PREDICTED[1] for cell in ran)
    count["misplanned"] = sum(not _PREDICTED[0] <= cell["planned_ratio"] <= _PREDICTED[1] for cell in ran)
    count["misadvised"] = sum(not cell["advice_works"] for cell in cells if cell["outcome"] == "refused")
    count["wrong"] = sum(bool(cell["wrong"]) for cell in ran)
    times: dict[float, list[float]] = {}
    for cell in ran:
        if cell["share"] in _SLOWER and cell["input"] >= _TIMED_BYTES * 0.95 and cell["cpu_ratio"]:
            times.setdefault(cell["share"], []).append(cell["cpu_ratio"])
    count["slower"] = {str(share): median(ratios) for share, ratios in times.items()}
    bars = ("over_limit", "over_growth", "mispredicted", "misadvised", "wrong", "error")
    count["holds"] = not any(count[bar] for bar in bars) and all(
        count["slower"][str(share)] <= _SLOWER[share] for share in times
    )
    return count


def is_over(cell: Cell) -> bool:
    """Whether the process grew by more than it may."""
    return bool(cell["grown"] > cell["allowed"])


_COLUMNS = (("verb", 15), ("dtype", 9), ("skew", 8), ("strategy", 8), ("limit", 6), ("bytes", 11), ("counted", 11),
            ("grew", 11), ("may grow", 11), ("pred", 5), ("plan", 5), ("CPU", 6))  # fmt: skip
_HEADER = " ".join(name.ljust(width) if i < 4 else name.rjust(width) for i, (name, width) in enumerate(_COLUMNS))


def format_cell(cell: Cell) -> str:
    """One line of a cell, with a word for each bar that it misses."""
    texts = [cell["verb"], cell["kind"], cell["skew"], cell["strategy"], f"{cell['share']:g}",
             format_bytes(cell["limit"])]  # fmt: skip
    if cell["outcome"] == "ran":
        texts += [format_bytes(cell[name]) for name in ("peak", "grown", "allowed")]
        texts += [f"{cell['predicted_ratio']:.2f}", f"{cell['planned_ratio']:.2f}", f"{cell['cpu_ratio']:.1f}x"]
    line = " ".join(
        text.ljust(width) if i < 4 else text.rjust(width)
        for i, (text, (_, width)) in enumerate(zip(texts, _COLUMNS, strict=False))
    )
    return f"{line}  {_remark(cell)}".rstrip()


def _remark(cell: Cell) -> str:
    if cell["outcome"] == "refused":
        enough = "is enough" if cell["advice_works"] else f"is NOT ENOUGH: {cell['advice_error']}"
        return f"refused; the advised {format_bytes(cell['would_do'])} {enough}"
    if cell["outcome"] != "ran":
        return f"{cell['outcome']}: {cell['error']}"
    over = cell["peak"] > max(cell["limit"], cell["held"])
    marks = [
        "OVER LIMIT" * over,
        "GREW" * is_over(cell),
        "PREDICTED" * (not _PREDICTED[0] <= cell["predicted_ratio"] <= _PREDICTED[1]),
        cell["wrong"] and f"WRONG: {cell['wrong']}",
    ]
    return " ".join(mark for mark in marks if mark)


def format_budget(report: dict[str, Any]) -> str:
    """The summary as text."""
    case, count = report["case"], report["summary"]
    low, high = _PREDICTED
    lines = [
        "",
        f"budget, {case['ranks']} ranks of {format_bytes(case['part_bytes'])}: {len(report['cells'])} cells, "
        f"{count['ran']} ran, {count['refused']} refused, {count['unsupported']} unsupported",
        f"{count['over_limit']:4} counted more than the limit",
        f"{count['over_growth']:4} grew by more than what was free of the limit, {_GROWTH_SHARE:.0%} of it and "
        f"{_GROWTH_BYTES // 10**6} MB",
        f"{count['mispredicted']:4} had predicted less than {low} or more than {high} of the peak "
        f"({count['misplanned']} by a plan that reads nothing)",
        f"{count['misadvised']:4} were refused with an advised limit that is not enough",
        f"{count['error']:4} ended in an error",
        f"{count['wrong']:4} gave other rows",
    ]
    for share, ratio in count["slower"].items():
        lines.append(f"{ratio:4.1f} x the CPU time without a budget at a limit of {share} (at most "
                     f"{_SLOWER[float(share)]:g}, the median)")  # fmt: skip
    lines.append("All bars hold." if count["holds"] else "Not all bars hold.")
    return "\n".join(lines)
