"""``gcylon-lab bench shuffle``: ours, a bare loop and dask take turns on the same rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from ..errors import ClusterError
from .cases import ShuffleCase
from .ranks import mpi_contender
from .reports import tell
from .seats import Contender
from .statistics import Series, slowest

PEERS = ("bare", "dask")
_VARIANTS: dict[str, tuple[Any, ...]] = {"ours": ("auto",), "bare": (1, 16, 32, 64), "dask": ("tasks", "p2p")}
Say = Callable[[str], None]


def run(case: ShuffleCase, peers: Sequence[str] = PEERS, say: Say = tell) -> dict[str, Any]:
    """Measure ours and the peers named, turn by turn.

    Parameters
    ----------
    case : ShuffleCase
    peers : sequence of {"bare", "dask"}
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values: ``case``, ``contenders`` (a `Series` as a dict and GB/s for each variant) and ``ratios`` (ours
        over each peer's best variant, by median times).

    Raises
    ------
    ClusterError
        If a contender fails, or its rows are wrong.
    """
    names = ("ours", *peers)
    times: dict[tuple[str, Any], list[float]] = {(name, v): [] for name in names for v in _VARIANTS[name]}
    chosen: dict[str, Any] = {}
    with ExitStack() as stack:
        contenders = {name: stack.enter_context(_start(name, case)) for name in names}
        for repeat in range(case.warmup + case.repeats):
            for (name, variant), series in times.items():
                answers = contenders[name].step(repeat=repeat, variant=variant, check_keys=repeat == 0)
                refuse_wrong(name, variant, answers)
                if repeat >= case.warmup:
                    series.append(slowest(answers))
                if name == "ours":
                    chosen = {key: answers[0][key] for key in ("strategy", "rounds")}
            say(f"turn {repeat + 1} of {case.warmup + case.repeats} done")
    return report_of("shuffle", case, {key: Series(tuple(series)) for key, series in times.items()}, chosen)


def _start(name: str, case: ShuffleCase) -> Contender:
    if name == "dask":
        command = [sys.executable, "-m", "gcylon_lab.bench.dask_peer", str(case.ranks), str(case.rows)]
        return Contender(name, command, 1)
    return mpi_contender(name, f"gcylon_lab.bench.{name}", case.ranks, str(case.rows))


def refuse_wrong(name: str, variant: Any, answers: Sequence[dict[str, Any]]) -> None:
    """Refuse a contender whose result was wrong.

    Raises
    ------
    ClusterError
        Saying what is wrong.
    """
    wrong = next((answer["wrong"] for answer in answers if answer["wrong"]), "")
    if wrong:
        raise ClusterError(f"In the bench {name} ({variant}) gave a wrong result: {wrong}.")


def report_of(
    bench: str, case: ShuffleCase, series: dict[tuple[str, Any], Series], chosen: dict[str, Any]
) -> dict[str, Any]:
    """The times of all contenders, and ours over each peer's best, as plain values."""
    contenders: list[dict[str, Any]] = [
        {"name": name, "variant": str(variant), "bytes_per_s": one.rate(case.rank_bytes)} | one.as_dict()
        for (name, variant), one in series.items()
    ]
    contenders[0]["variant"] += " ({strategy}, rounds: {rounds})".format(**chosen)
    best = {c["name"]: c for c in sorted(contenders, key=lambda c: c["bytes_per_s"])}
    ratios = {name: best["ours"]["bytes_per_s"] / c["bytes_per_s"] for name, c in best.items() if name != "ours"}
    return {
        "bench": bench,
        "case": {"ranks": case.ranks, "rows": case.rows, "repeats": case.repeats, "warmup": case.warmup,
                 "rank_bytes": case.rank_bytes},
        "contenders": contenders,
        "best": {name: c["variant"] for name, c in best.items()},
        "ratios": ratios,
    }  # fmt: skip
