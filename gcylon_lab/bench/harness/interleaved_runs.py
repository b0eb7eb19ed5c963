"""Contenders that take turns in every repetition, so that what else the machine does falls on all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from ...errors import ClusterError
from .reports import tell
from .statistics import Series, slowest
from .worker_processes import Contender

Say = Callable[[str], None]
Times = dict[tuple[str, Any], Series]


class Case(Protocol):
    """What is measured, and how often."""

    @property
    def ranks(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def repeats(self) -> int: ...

    @property
    def warmup(self) -> int: ...

    @property
    def rank_bytes(self) -> int:
        """Input bytes of one rank."""
        ...


def chosen_by(answer: Mapping[str, Any]) -> str:
    """What our last answer says of its plan."""
    return "{strategy}, rounds: {rounds}".format(**answer)


def take_turns(
    case: Case,
    variants: Mapping[str, Sequence[Any]],
    start: Callable[[str], Contender],
    *,
    step: Callable[[int], dict[str, Any]] = lambda repeat: {},
    look: Callable[[list[tuple[str, Any, list[dict[str, Any]]]]], None] | None = None,
    say: Say = tell,
) -> tuple[Times, dict[str, Any]]:
    """Time every variant of every contender, one after the other in each repetition.

    Parameters
    ----------
    case : Case
    variants : mapping
        Of each contender by name, ours among them.
    start : callable
        Starts a contender by its name.
    step : callable, optional
        What a step is told beside repetition and variant, by the repetition.
    look : callable, optional
        Gets name, variant and answers of all of a repetition; raises if they are wrong together.
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict, dict
        A `Series` by name and variant, and our last answer.

    Raises
    ------
    ClusterError
        If a contender fails, or its rows are wrong.
    """
    times: dict[tuple[str, Any], list[float]] = {(name, v): [] for name, those in variants.items() for v in those}
    ours: dict[str, Any] = {}
    with ExitStack() as stack:
        contenders = {name: stack.enter_context(start(name)) for name in variants}
        for repeat in range(case.warmup + case.repeats):
            seen = []
            for (name, variant), series in times.items():
                answers = contenders[name].step(repeat=repeat, variant=variant, **step(repeat))
                refuse_wrong(name, variant, answers)
                seen.append((name, variant, answers))
                if repeat >= case.warmup:
                    series.append(slowest(answers))
                if name == "ours":
                    ours = answers[0]
            if look is not None:
                look(seen)
            say(f"turn {repeat + 1} of {case.warmup + case.repeats} done")
    return {key: Series(tuple(series)) for key, series in times.items()}, ours


def refuse_wrong(name: str, variant: Any, answers: Sequence[dict[str, Any]]) -> None:
    """Refuse a contender whose result was wrong.

    Raises
    ------
    ClusterError
        Saying what is wrong.
    """
    wrong = next((answer["wrong"] for answer in answers if answer.get("wrong")), "")
    if wrong:
        raise ClusterError(f"In the bench {name} ({variant}) gave a wrong result: {wrong}.")


def report_of(bench: str, case: Case, series: Times, chosen: str) -> dict[str, Any]:
    """The times of all contenders, and ours over each peer's best, as plain values.

    Returns
    -------
    dict
        ``case``, ``contenders`` (a `Series` as a dict and bytes/s for each variant, ours first and with what it
        has ``chosen``), ``best`` (the best variant by name) and ``ratios`` (ours over each peer's best, by medians).
    """
    contenders: list[dict[str, Any]] = [
        {"name": name, "variant": str(variant), "bytes_per_s": one.rate(case.rank_bytes)} | one.as_dict()
        for (name, variant), one in series.items()
    ]
    contenders[0]["chosen"] = chosen
    best = {c["name"]: c for c in sorted(contenders, key=lambda c: c["bytes_per_s"])}
    return {
        "bench": bench,
        "case": {"ranks": case.ranks, "rows": case.rows, "repeats": case.repeats, "warmup": case.warmup,
                 "rank_bytes": case.rank_bytes},
        "contenders": contenders,
        "best": {name: c["variant"] for name, c in best.items()},
        "ratios": {name: best["ours"]["bytes_per_s"] / c["bytes_per_s"] for name, c in best.items() if name != "ours"},
    }  # fmt: skip
