"""`Benchmark`: times of what one wants to know, and what is said about them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ReadError, WriteError
from ..units import format_rate, format_seconds
from ..whole_files import write_whole
from .harness.comparison import Comparison, compare
from .harness.formats import FORMATS, Cells
from .harness.measurement import Measurement, found_in, machine
from .harness.scaling import Scaling, scaling
from .harness.statistics import CONFIDENCE, RESAMPLES, SEED

_VERSION = 1
_PLAIN = (str, int, float, bool, type(None))
# Of a result that nothing but the loop refers to: its variable, and the argument of getrefcount.
_OURS_ALONE = 2


class Benchmark:
    """Measures callables, and reports, compares and fits their times.

    In a notebook, in a script, and under ``%%px`` and ``mpiexec``, where every rank measures for itself and all call
    `run` alike.

    Parameters
    ----------
    repeats : int, default 7
        Timed calls of each `run`.
    warmup : int, default 2
        Calls before them that are not reported.
    title : str, optional
        What stands above its reports.

    Raises
    ------
    ArgumentError
        If ``repeats`` is below 1 or ``warmup`` below 0.

    Examples
    --------
    >>> import gcylon_lab as gl
    >>> b = gl.Benchmark(repeats=5, warmup=1)
    >>> for rows in (1_000, 10_000, 100_000):
    ...     _ = b.run("sum", lambda: sum(range(rows)), rows=rows)
    >>> [one.rows for one in b.measurements], len(b["sum"].times_s)
    ([1000, 10000, 100000], 5)
    >>> 0.5 < b.scaling(over="rows").fits[0].exponent < 1.5
    True
    >>> b.compare(b).regressed
    []
    """

    def __init__(self, repeats: int = 7, warmup: int = 2, *, title: str = "benchmark") -> None:
        if repeats < 1 or warmup < 0:
            raise ArgumentError(
                f"Expected repeats of at least 1 and a warmup of at least 0, got repeats={repeats}, warmup={warmup}."
            )
        self.repeats, self.warmup, self.title = repeats, warmup, title
        self._measurements: dict[tuple[Any, ...], Measurement] = {}

    @classmethod
    def from_report(cls, report: Mapping[str, Any], title: str = "") -> Benchmark:
        """Make one of a report's plain values: of `as_dict`, or of a bench of ``gcylon-lab bench``."""
        case = report.get("case", {})
        self = cls(max(1, case.get("repeats", 1)), case.get("warmup", 0))
        self.title = title or str(report.get("title") or report.get("bench", "benchmark"))
        self._keep(found_in(report))
        return self

    @property
    def measurements(self) -> list[Measurement]:
        """All that was measured, in the order of first being measured."""
        return list(self._measurements.values())

    def __getitem__(self, name: str) -> Measurement:
        """The latest measurement of a name."""
        for one in reversed(self.measurements):
            if one.name == name:
                return one
        names = ", ".join(dict.fromkeys(one.name for one in self.measurements)) or "none"
        raise ArgumentError(f"{name!r} was not measured; measured are: {names}.")

    def run(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        bytes: int | None = None,
        rows: int | None = None,
        ranks: int | None = None,
        **parameters: Any,
    ) -> Measurement:
        """Call a function ``warmup`` and then ``repeats`` times, and keep how long each of the latter took.

        A result with a ``release`` method, such as a table, is released after each call, unless something else refers
        to it; so are those in a tuple, list or dict. A future is waited for. Neither releasing nor the warm-up counts.
        Where a call fails or is interrupted, what was measured so far is kept.

        Parameters
        ----------
        name : str
        function : callable
            Takes nothing. What it leaves running on a GPU beyond this package's verbs is not in its time.
        bytes, rows, ranks : int, optional
            Sizes: for throughput, and for `scaling`. Of one rank or of all, as you mean the throughput to be.
        **parameters
            Plain values that tell this measurement from others of the same name. Measuring the same again replaces it.

        Returns
        -------
        Measurement

        Raises
        ------
        ArgumentError
            If a size is negative, or a parameter is no plain value.
        """
        _check(bytes=bytes, rows=rows, ranks=ranks)
        odd = {key: value for key, value in parameters.items() if not isinstance(value, _PLAIN)}
        if odd:
            raise ArgumentError(f"Expected text, numbers or None as parameters, got {odd!r}.")
        times: list[float] = []
        try:
            for number in range(self.warmup + self.repeats):
                begin = time.perf_counter()
                result = function()
                if callable(getattr(result, "add_done_callback", None)):
                    result = result.result()
                end = time.perf_counter()
                if number >= self.warmup:
                    times.append(end - begin)
                if sys.getrefcount(result) <= _OURS_ALONE:
                    _release(result)
                del result
        finally:
            if times:
                measured = Measurement(
                    name=name, times_s=tuple(times), bytes=bytes, rows=rows, ranks=ranks,
                    parameters=parameters, repeats=self.repeats,
                )  # fmt: skip
                self._keep([measured])
        return measured

    def _keep(self, measurements: Iterable[Measurement]) -> None:
        self._measurements |= {one.key: one for one in measurements}

    def compare(self, baseline: str | os.PathLike[str] | Benchmark, threshold: float = 0.1) -> Comparison:
        """Say what is faster or slower than a baseline.

        Parameters
        ----------
        baseline : path or Benchmark
            A file of `to_json` or of ``gcylon-lab bench --json``.
        threshold : float, default 0.1
            A median that changed by no more than this share is unchanged. So is one whose 95% interval overlaps the
            baseline's.

        Returns
        -------
        Comparison
            With ``improved``, ``unchanged`` and ``regressed``, lists of what was measured, and ``changes``. Compared is
            what has the same name, sizes and parameters.

        Raises
        ------
        ArgumentError
            If the threshold is negative.
        ReadError
            If the file cannot be read, or holds no measurements.
        """
        if not threshold >= 0:
            raise ArgumentError(f"threshold={threshold} is out of range [0, inf).")
        if isinstance(baseline, Benchmark):
            return compare(baseline.measurements, self.measurements, threshold, baseline.title)
        before, report = read_report(baseline)
        return compare(before.measurements, self.measurements, threshold, str(baseline), _unlike(report))

    def scaling(self, over: str = "rows") -> Scaling:
        """Fit a power law through the medians of each name that was measured at three or more sizes.

        Parameters
        ----------
        over : {"rows", "ranks"}
            Which size; measurements that differ in the other one, or in a parameter, are fitted apart.

        Returns
        -------
        Scaling
            With ``fits`` (exponent, r_squared) and ``figure()``, on logarithmic axes.

        Raises
        ------
        ArgumentError
            If nothing was measured at three sizes.
        """
        return scaling(self.measurements, over)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, with the machine."""
        bootstrap = {"confidence": CONFIDENCE, "resamples": RESAMPLES, "seed": SEED}
        return {
            "version": _VERSION, "title": self.title, "case": {"repeats": self.repeats, "warmup": self.warmup},
            "bootstrap": bootstrap, "machine": machine(),
            "measurements": [one.as_dict() for one in self.measurements],
        }  # fmt: skip

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return JSON, for `compare` too; written to ``path`` where one is given."""
        return _written(path, json.dumps(self.as_dict(), indent=2) + "\n")

    def to_markdown(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return a Markdown table; written to ``path`` where one is given."""
        return _written(path, self.to("markdown") + "\n")

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return an HTML table; written to ``path`` where one is given."""
        return _written(path, self.to("html") + "\n")

    def to_latex(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return a LaTeX table, which needs no package; written to ``path`` where one is given."""
        return _written(path, self.to("latex") + "\n")

    def to(self, form: str) -> str:
        """As text, markdown, html or latex."""
        notes = [
            f"{one.label} was cut short after {len(one.times_s)} of {one.repeats} times"
            for one in self.measurements
            if one.repeats is not None and len(one.times_s) < one.repeats
        ]
        head = ("what", "times", "median", f"{CONFIDENCE:.0%} interval", "mean ± deviation", "p5 to p95", "throughput")
        return FORMATS[form](Cells(self.title, head, [_cells(one) for one in self.measurements], notes))

    def __repr__(self) -> str:
        return self.to("text")

    def _repr_html_(self) -> str:
        return self.to("html")


def read_report(path: str | os.PathLike[str]) -> tuple[Benchmark, dict[str, Any]]:
    """Read a file of `Benchmark.to_json` or of ``gcylon-lab bench --json``.

    Raises
    ------
    ReadError
        If it cannot be read, or holds no measurements.
    """
    advice = "Give a file that to_json, or gcylon-lab bench --json, wrote."
    try:
        report = json.loads(Path(path).read_text())
        benchmark = Benchmark.from_report(report)
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror}.", advice=advice, path=str(path)) from error
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise ReadError(f"{path} holds no measurements.", advice=advice, path=str(path)) from error
    if not benchmark.measurements:
        raise ReadError(f"{path} holds no measurements.", advice=advice, path=str(path))
    return benchmark, report


def _check(**sizes: int | None) -> None:
    for name, value in sizes.items():
        if value is not None and not value >= 0:
            raise ArgumentError(f"{name}={value!r} is out of range [0, inf).")


def _release(result: Any) -> None:
    if isinstance(result, (tuple, list, dict)):
        for one in list(result.values() if isinstance(result, dict) else result):
            # Beside the container also the list refers to it.
            if sys.getrefcount(one) <= _OURS_ALONE + 2:
                _release(one)
    elif callable(release := getattr(result, "release", None)):
        release()


def _unlike(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Say where the baseline comes from another machine: then times tell little."""
    there, here = report.get("machine") or {}, machine()
    differs = [
        f"{name} {there[name]} there, {here[name]} here"
        for name in ("processor", "cores")
        if name in there and there[name] != here[name]
    ]
    return (f"The baseline is of another machine: {'; '.join(differs)}.",) if differs else ()


def _cells(one: Measurement) -> tuple[str, ...]:
    interval, rate = one.interval_s, "-"
    if one.bytes_per_s is not None:
        rate = format_rate(one.bytes_per_s)
    elif one.rows_per_s is not None:
        rate = f"{one.rows_per_s:,.0f} rows/s"
    return (
        one.label,
        f"{len(one.times_s)}",
        format_seconds(one.median_s),
        "-" if interval is None else " to ".join(map(format_seconds, interval)),
        f"{format_seconds(one.mean_s)} ± {format_seconds(one.deviation_s)}",
        f"{format_seconds(one.percentiles_s['p5'])} to {format_seconds(one.percentiles_s['p95'])}",
        rate,
    )


def _written(path: str | os.PathLike[str] | None, text: str) -> str:
    if path is not None:
        try:
            write_whole(path, text, 0o644)
        except OSError as error:
            raise WriteError(f"{path} cannot be written: {error.strerror}.", path=str(path)) from error
    return text
