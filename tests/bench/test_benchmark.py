"""`gl.Benchmark`: what it measures, what it says about it, and that it keeps nothing."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import subprocess
import weakref
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import World

import gcylon_lab as gl
from gcylon_lab.bench import benchmark
from gcylon_lab.bench.harness.statistics import Series
from gcylon_lab.errors import ArgumentError, ReadError


def with_times(**times: Any) -> gl.Benchmark:
    items = [{"name": name, "parameters": {}, "times_s": values} for name, values in times.items()]
    return gl.Benchmark.from_report({"measurements": items}, "made up")


def test_the_example_runs():
    assert doctest.testmod(benchmark).attempted >= 5 and doctest.testmod(benchmark).failed == 0


@given(st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=30))
def test_what_is_said_of_times_is_what_numpy_says(times):
    told = Series(tuple(times)).as_dict()
    assert told["median_s"] == pytest.approx(np.median(times)) and told["mean_s"] == pytest.approx(np.mean(times))
    assert told["deviation_s"] == pytest.approx(np.std(times, ddof=1), abs=1e-12)
    assert told["p95_s"] == pytest.approx(np.percentile(times, 95))
    low, high = told["interval_s"]
    assert min(times) <= low <= told["median_s"] <= high <= max(times)
    assert Series(tuple(times)).interval_s == (low, high)


def test_the_interval_holds_the_true_median_about_as_often_as_it_says():
    random = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        low, high = Series(tuple(random.exponential(1.0, 25))).interval_s
        held += low <= np.log(2) <= high
    assert 0.9 <= held / 200 <= 1.0


def test_slower_is_where_intervals_part_and_the_change_is_large_enough():
    before = with_times(slow=[1.0, 1.01, 1.02, 1.01], close=[1.0, 1.01, 1.02, 1.01], wide=[1.0, 1.0, 5.0, 1.0],
                        fast=[1.0, 1.01, 1.02, 1.01], gone=[1.0] * 4, few=[1.0] * 4)  # fmt: skip
    now = with_times(slow=[1.5, 1.51, 1.52, 1.5], close=[1.06, 1.07, 1.06, 1.07], wide=[1.3, 0.9, 3.0, 1.6],
                     fast=[0.5, 0.51, 0.5, 0.5], few=[9.0, 9.0], new=[1.0] * 4)  # fmt: skip
    compared = now.compare(before)
    assert (compared.regressed, compared.improved, compared.unchanged) == (["slow"], ["fast"], ["close", "wide"])
    assert {c.label: c.outcome for c in compared.changes if c.label in ("gone", "few", "new")} == {
        "gone": "missing", "few": "too few times", "new": "new",
    }  # fmt: skip
    assert now.compare(before, threshold=0.03).regressed == ["slow", "close"]
    assert now.compare(before, threshold=0.6).regressed == []
    with pytest.raises(ArgumentError, match=r"threshold=-1 is out of range"):
        now.compare(before, threshold=-1)


def test_a_power_law_is_found_over_rows_and_over_ranks():
    b = gl.Benchmark()
    for ranks in (1, 2, 4):
        for rows in (1000, 2000, 8000):
            times = [2e-6 * rows**1.5 / ranks] * 3
            one = {"name": "sort", "rows": rows, "ranks": ranks, "parameters": {"kind": "int"}, "times_s": times}
            b._keep(gl.Benchmark.from_report({"measurements": [one]}).measurements)
    over_rows, over_ranks = b.scaling("rows"), b.scaling(over="ranks")
    assert [fit.exponent for fit in over_rows.fits] == pytest.approx([1.5] * 3)
    assert [fit.exponent for fit in over_ranks.fits] == pytest.approx([-1.0] * 3)
    assert [fit.r_squared for fit in over_rows.fits] == pytest.approx([1.0] * 3)
    assert over_rows.fits[1].label == "sort (ranks=2, kind=int)" and "1.500" in repr(over_rows)
    figure = over_rows.figure()
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log") and len(figure.data) == 6
    assert figure.data[1].y == pytest.approx(figure.data[0].y)
    with pytest.raises(ArgumentError, match="measured at 3 or more different rows, got 1 at most"):
        gl.Benchmark.from_report({"measurements": [one]}).scaling()
    with pytest.raises(ArgumentError, match="over='bytes' is invalid"):
        b.scaling("bytes")


def test_reports_hold_what_was_measured_and_escape_what_stands_in_names(tmp_path):
    b = gl.Benchmark(repeats=3, warmup=0, title="a <b> & 50%_|")
    b.run("x<y>|&_%", lambda: None, bytes=10, rows=5, kind="<i>")
    html, markdown, latex = b.to_html(), b.to_markdown(), b.to_latex()
    assert "<b>a &lt;b&gt; &amp; 50%_|</b>" in html and "<i>" not in html and b._repr_html_() in html
    median, interval = re.findall(r'right;padding:1px 6px">([^<]*)</td>', html)[1:3]
    assert re.fullmatch(r"\S+\xa0\S+", median), "figures keep their units"
    assert re.fullmatch(r"-|\S+\xa0\S+ to\xa0\S+\xa0\S+", interval), "and a narrow card breaks between two"
    assert markdown.splitlines()[4].startswith("| x&lt;y&gt;\\|&amp;_% (rows=5, kind=&lt;i&gt;) | 3 |")
    assert r"x\textless{}y\textgreater{}\textbar{}\&\_\% (rows=5" in latex and latex.count(r" \\") == 2
    told = json.loads(b.to_json(tmp_path / "b.json"))
    assert json.loads((tmp_path / "b.json").read_text()) == told
    assert told["bootstrap"] == {"confidence": 0.95, "resamples": 10_000, "seed": 0}
    (one,) = told["measurements"]
    assert (one["bytes"], one["rows"], one["parameters"], len(one["times_s"])) == (10, 5, {"kind": "<i>"}, 3)
    assert one["bytes_per_s"] == pytest.approx(10 / one["median_s"])
    compared = b.compare(tmp_path / "b.json")
    assert compared.unchanged == ["x<y>|&_% (rows=5, kind=<i>)"] and not compared.notes
    (tmp_path / "other.json").write_text(json.dumps(told | {"machine": {"processor": "abacus"}}))
    assert "of another machine: processor abacus there" in repr(b.compare(tmp_path / "other.json"))


def test_markdown_takes_whatever_stands_in_names():
    b = gl.Benchmark(repeats=1, warmup=0, title="<script>\n\n![x](http://a)")
    b.run("a\\|b [l](javascript:x)", lambda: None)
    lines = b.to_markdown().splitlines()
    assert lines[0] == r"**&lt;script&gt; !\[x](http://a)**"
    assert lines[4].startswith(r"| a\\\|b \[l](javascript:x) | 1 |")


def test_latex_takes_whatever_stands_in_names(tmp_path):
    b = gl.Benchmark(repeats=2, warmup=0, title="a <b> & 50%_|^~\\{}$# µ ± ²")
    b.run("x", lambda: None)
    b.run("[x] *y*", lambda: None, path="C:\\x~^", said="Zoë → \n\n日\0 ≤ ę --fast")
    latex = b.to_latex()
    assert "\n{}[x] *y* (path=" in latex and "Zoë → U+65E5U+0000 \\ensuremath{\\leq} e -{}-fast" in latex
    if shutil.which("pdflatex") is None:
        return
    document = f"\\documentclass{{article}}\\begin{{document}}\n{latex}\n\\end{{document}}\n"
    (tmp_path / "b.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "b.tex"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert ran.returncode == 0, ran.stdout[-1000:]


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"measurements": []}', '{"x": [{"times_s": ["a"]}]}'])
def test_a_baseline_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ReadError, match=r"x.json holds no measurements. Give a file that to_json"):
        gl.Benchmark().compare(tmp_path / "x.json")
    with pytest.raises(ReadError, match=r"missing.json cannot be read: No such file.*\. Give a file that to_json"):
        gl.Benchmark().compare(tmp_path / "missing.json")


class Result:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


def test_results_are_released_unless_somebody_else_has_them():
    b, held = gl.Benchmark(repeats=2, warmup=1), Result()
    made: list[Any] = []

    def make() -> Result:
        result = Result()
        made.append((weakref.ref(result), result.__dict__))
        return result

    b.run("made", make)
    assert [(ref(), state["released"]) for ref, state in made] == [(None, 1)] * 3
    made.clear()
    b.run("several", lambda: (make(), [make()], {"a": make()}))
    assert [(ref(), state["released"]) for ref, state in made] == [(None, 1)] * 9
    kept = [held]
    b.run("held", lambda: held)
    b.run("kept", lambda: kept)
    b.run("beside", lambda: (held, 1))
    assert held.released == 0


def test_what_was_measured_stays_where_a_call_fails_or_is_interrupted():
    b, calls = gl.Benchmark(repeats=5, warmup=1), []

    def third_fails() -> None:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        b.run("x", third_fails)
    assert len(b["x"].times_s) == 2 and "x was cut short after 2 of 5 times" in b.to_markdown()
    with pytest.raises(ZeroDivisionError):
        b.run("y", lambda: 1 // 0)
    with pytest.raises(ArgumentError, match="'y' was not measured; measured are: x"):
        b["y"]
    with pytest.raises(ArgumentError, match=r"rows=-1 is out of range \[0, inf\)"):
        b.run("z", list, rows=-1)
    with pytest.raises(ArgumentError, match="Expected repeats of at least 1"):
        gl.Benchmark(repeats=0)


def measured_on_a_rank() -> tuple[int, int, int, int]:
    context = gl.current()
    t = gl.from_local(pd.DataFrame({"k": np.arange(1000), "x": 1.0}))
    before, b = context.budget.used_bytes, gl.Benchmark(repeats=3, warmup=1)
    one = b.run("shuffle", lambda: t.shuffle("k"), bytes=t.nbytes, rows=t.num_rows, ranks=context.size)
    b.run("in place", lambda: t.unstage())
    return context.budget.used_bytes - before, len(one.times_s), t.count_rows(), one.bytes or 0


@pytest.mark.parametrize("world", ["single", "threads"])
def test_on_ranks_results_go_and_the_input_stays(world):
    world = World(world, 1 if world == "single" else 2)
    for grown, times, rows, nbytes in world.run(measured_on_a_rank):
        assert (grown, times, rows, nbytes) == (0, 3, 1000 * world.size, 16_000)
