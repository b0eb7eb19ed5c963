"""Who holds the budget, and what is kept for reuse: now, and while ranks work."""

from __future__ import annotations

from typing import Any

import pytest
from drawn import trace
from replay import Replay

from gcylon_lab.ui.figures.figures import panel_dict
from gcylon_lab.ui.figures.numbers import pool_table, uses_table
from gcylon_lab.ui.figures.theme import LIGHT
from gcylon_lab.ui.figures.view import make_view
from gcylon_lab.ui.report import report_html
from gcylon_lab.units import MIB


def words(figure: dict[str, Any]) -> str:
    return " ".join(a["text"] for a in figure["layout"]["annotations"])


def test_parts_of_a_bar_are_what_a_rank_holds() -> None:
    snapshots = Replay(4).at(12.0)
    figure = panel_dict("uses", make_view(snapshots), LIGHT)
    held = [sum(s["uses"].values()) / MIB for s in snapshots]
    bars = [t for t in figure["data"] if t["x"]]
    assert [sum(t["y"][rank] for t in bars) for rank in range(4)] == pytest.approx(held, abs=1e-3)
    for below, above in zip(bars, bars[1:], strict=False):
        ends = [base + y for base, y in zip(below["base"], below["y"], strict=True)]
        assert above["base"] == pytest.approx(ends, abs=1e-3), "they stand on each other"
    assert trace(figure, "use-external")["y"][0] > 0 == trace(figure, "use-external")["y"][1]
    assert all(name in words(figure) for name in ("tables", "external", "of 64 MiB"))


def test_between_operations_the_budget_is_that_of_the_latest() -> None:
    snapshots = [one | {"limit_bytes": 512 * MIB} for one in Replay(2).at(30.0)]
    assert {record["budget_bytes"] for record in snapshots[0]["operations"]} == {64 * MIB}
    assert "of 64 MiB" in words(panel_dict("uses", make_view(snapshots), LIGHT))
    assert "budget 64 MiB a rank" in report_html(snapshots)
    assert "budget 512 MiB a rank" in report_html([one | {"operations": []} for one in snapshots])


def test_claims_come_and_go_and_the_smallest_are_counted_together() -> None:
    snapshots = Replay(2).at(12.0)
    idle = panel_dict("uses", make_view(snapshots), LIGHT)
    for s in snapshots:
        s["uses"] = {"tables": 9 * MIB, **{f"claim <{n}>": (5 - n) * MIB for n in range(4)}}
    busy = panel_dict("uses", make_view(snapshots), LIGHT)
    assert [t["meta"] for t in busy["data"]] == [t["meta"] for t in idle["data"]], "no trace is made anew"
    assert trace(busy, "use-use 0")["name"] == "claim <0>" and trace(busy, "use-more")["y"] == [5, 5]
    assert "claim &lt;0&gt;" in words(busy) and "<0>" not in words(busy)
    assert uses_table(snapshots)[1][0] == ["rank 0", "9 MiB", "5 MiB", "4 MiB", "3 MiB", "2 MiB"]


def test_pools_are_told_where_there_are_some() -> None:
    figure = panel_dict("pools", make_view(Replay(2, gpus=2).at(12.0)), LIGHT)
    assert trace(figure, "pool-pinned-used")["y"] == [40, 50] and trace(figure, "pool-device-held")["x"] == []
    assert "scratch: 7 MiB of 32 MiB in use · 97% of 2,000 asks served" in words(figure)
    on_cpus = Replay(2).at(12.0)
    assert trace(panel_dict("pools", make_view(on_cpus), LIGHT), "pool-pinned-held")["x"] == []
    assert [row[:4] for row in pool_table(on_cpus)[1]] == [
        ["rank 0", "scratch", "16 MiB", "3 MiB"],
        ["rank 1", "scratch", "16 MiB", "4 MiB"],
    ]


@pytest.mark.parametrize("name", ["uses", "pools"])
def test_without_any_it_is_said_what_will_be_there(name: str) -> None:
    snapshots = [s | {"uses": None, "pools": []} for s in Replay(2).at(12.0)]
    figure = panel_dict(name, make_view(snapshots), LIGHT)
    assert not any(t["x"] for t in figure["data"]) and "<br>" in words(figure)
