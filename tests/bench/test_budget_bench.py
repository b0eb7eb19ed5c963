"""The bench of budgets: its cells run small, and its bars tell what misses them."""

from __future__ import annotations

import json

import pytest

from gcylon_lab.bench.budget import BudgetCase, format_cell, summary_of
from gcylon_lab.bench.budget.tables import KINDS, SKEWS, make_frame, make_right, number_of_keys
from gcylon_lab.cli.main import main
from gcylon_lab.errors import ArgumentError

_RAN = {
    "verb": "join", "kind": "int", "skew": "hot", "share": 0.1, "strategy": "auto", "input": 64_000_000,
    "limit": 6_400_000, "outcome": "ran", "peak": 6_000_000, "held": 0, "grown": 9_000_000, "allowed": 27_040_000,
    "predicted_ratio": 1.0, "planned_ratio": 1.0, "cpu_ratio": 3.0, "wrong": "",
}  # fmt: skip


@pytest.mark.mpi
def test_cells_run_and_are_judged(tmp_path, capsys):
    file = tmp_path / "budget.json"
    options = ["--part", "400kB", "--verbs", "shuffle", "--dtypes", "int", "--skews", "uniform"]
    main(["bench", "budget", *options, "--limits", "1.5,0.5", "--json", str(file)])
    text, report = capsys.readouterr().out, json.loads(file.read_text())
    cells = {(cell["strategy"], cell["share"]): cell for cell in report["cells"]}
    assert len(cells) == 4 and {cells["auto", 1.5]["outcome"], cells["auto", 0.5]["outcome"]} == {"ran"}
    assert cells["direct", 0.5]["outcome"] == "refused" and cells["direct", 0.5]["advice_works"]
    assert 0 < cells["auto", 0.5]["peak"] <= cells["auto", 0.5]["limit"] and cells["auto", 0.5]["grown"] >= 0
    assert all(cell["limit"] == int(cell["share"] * cell["input"]) for cell in report["cells"])
    assert text.count("shuffle") == 4 and "bars hold" in text


@pytest.mark.parametrize(
    ("changed", "bar"),
    [
        ({"grown": 28_000_000}, "over_growth"),
        ({"peak": 6_400_001}, "over_limit"),
        ({"predicted_ratio": 0.79}, "mispredicted"),
        ({"predicted_ratio": 1.26}, "mispredicted"),
        ({"wrong": "1 rows where 2 came without a budget"}, "wrong"),
        ({"outcome": "refused", "advice_works": False, "would_do": 1, "advice_error": ""}, "misadvised"),
        ({"outcome": "error", "error": "TypeError"}, "error"),
    ],
)
def test_a_cell_that_misses_a_bar_is_told(changed, bar):
    good, bad = summary_of([_RAN]), summary_of([_RAN, _RAN | changed])
    assert good["holds"] and not good[bar] and not bad["holds"] and bad[bar] == 1
    assert format_cell(_RAN | changed) != format_cell(_RAN)


def test_times_are_judged_by_their_median():
    slow = _RAN | {"cpu_ratio": 9.0}
    assert summary_of([_RAN, _RAN, slow])["holds"] and not summary_of([_RAN, slow, slow])["holds"]
    assert summary_of([slow | {"input": 1_000_000}])["holds"]  # too small to tell


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("bigstr", "widestr")])
def test_tables_have_their_size_and_keys(kind):
    for skew in SKEWS:
        frame = make_frame(kind, skew, 200_000, 1, 2)
        assert frame.equals(make_frame(kind, skew, 200_000, 1, 2))
        keys = number_of_keys(kind, 2 * len(frame))
        assert frame["k"].nunique() <= keys and (skew != "equal" or frame["k"].nunique() == 1)
        assert frame["k"].isin(make_right(kind, 200_000, 0, 1)["k"]).all() or KINDS[kind].labels == 0
    right = [make_right(kind, 200_000, rank, 2) for rank in range(2)]
    assert sum(map(len, right)) == number_of_keys(kind, 2 * len(frame)) and not right[0]["k"].isin(right[1]["k"]).any()


def test_unknown_names_and_sizes_are_refused():
    with pytest.raises(ArgumentError, match="jion cannot be measured"):
        BudgetCase(verbs=("jion",))
    with pytest.raises(ArgumentError, match="limits above 0"):
        BudgetCase(shares=(0.0,))
