"""What stands as text: the ranks' states, the plan, the numbers."""

from __future__ import annotations

from html import escape
from typing import Any

import pytest
from replay import Replay, ReplaySource

from gcylon_lab.config import GcylonConfig
from gcylon_lab.operators.estimate import estimate_verb
from gcylon_lab.profiling.report import summary
from gcylon_lab.ui.controls import plan_text
from gcylon_lab.ui.controls.plan_text import (
    Measured,
    alternatives_text,
    measured_speeds,
    plan_html,
    plan_sentence,
)
from gcylon_lab.ui.controls.status_bar import chips_html, headline_html, limit_of, rank_states
from gcylon_lab.ui.figures import numbers
from gcylon_lab.ui.figures.numbers import (
    gpu_table,
    html_table,
    operation_table,
    phase_table,
    rank_table,
    tier_table,
)
from gcylon_lab.ui.figures.series import readable
from gcylon_lab.units import GIB, MIB

RANKS = [{"rank": r, "host": "h1", "device": "cpu"} for r in range(4)]


def working(at_s: float = 10.5) -> list[dict[str, Any]]:
    return Replay(4).at(at_s)


def waiting(snapshot: dict[str, Any], seconds: float) -> None:
    since = snapshot["now_ns"] - int(seconds * 1e9)
    place = {"verb": "shuffle", "number": 4, "round": 3, "rounds": 24}
    snapshot["progress"] = {**place, "phase": "waiting", "since_ns": since}


def test_idle_and_working_ranks() -> None:
    assert {s.kind for s in rank_states(RANKS, Replay(4).at(0.5))} == {"idle"}
    states = rank_states(RANKS, working())
    assert {s.kind for s in states} == {"working"}
    assert all(s.text.startswith("round ") and s.text.endswith("/24") for s in states)


def test_who_waits_longer_than_two_seconds_is_amber_and_says_for_whom() -> None:
    snapshots = working()
    for rank in (0, 1, 3):
        waiting(snapshots[rank], 3.1)
    states = rank_states(RANKS, snapshots)
    assert [s.kind for s in states] == ["waiting", "waiting", "working", "waiting"]
    assert states[0].text == "waiting 3.1 s for rank 2"
    assert "▲" in chips_html(states) and "#C77700" in chips_html(states)


def test_a_short_wait_is_no_trouble() -> None:
    snapshots = working()
    waiting(snapshots[0], 1.9)
    assert rank_states(RANKS, snapshots)[0].kind == "working"


def test_a_dead_rank_is_named_with_its_exit() -> None:
    states = rank_states(RANKS, working(), [{"rank": 2, "exit": -9}])
    assert (states[2].kind, states[2].text) == ("dead", "dead, exit -9")
    assert "✖" in chips_html(states)


def test_a_rank_that_never_answered_is_there_all_the_same() -> None:
    states = rank_states(RANKS, working()[:3])
    assert (states[3].kind, states[3].text) == ("unknown", "no news yet")


def test_of_many_ranks_trouble_is_shown_first() -> None:
    ranks = [{"rank": r, "host": f"h{r // 8}", "device": "GPU0"} for r in range(64)]
    text = chips_html(rank_states(ranks, Replay(64).at(0.5), [{"rank": 61, "exit": 1}]))
    assert "✖ 1 dead · ○ 63 idle" in text
    assert text.count("gcylon-tile ") == 64 and text.count("gcylon-chip") == 1
    assert "rank 61 <small>h7 GPU0</small>" in text and "dead, exit 1" in text
    many = chips_html(rank_states(ranks, Replay(64).at(0.5), [{"rank": r, "exit": ""} for r in range(20)]))
    assert many.count("gcylon-chip") == 9 and "and 12 more in trouble" in many


def test_the_headline_says_what_runs_and_what_is_wrong() -> None:
    snapshots = working()
    status = {"state": "a rank is gone: restart", "transport": "MPI <x>"}
    text = headline_html(rank_states(RANKS, snapshots), snapshots, status, [(1, 0.97)])
    for part in ("4 ranks", "1 host", "MPI &lt;x&gt;", "budget 64 MiB", "#4 shuffle", "a rank is gone"):
        assert part in text
    assert "rank 1 at 97% of the budget" in text
    tight = headline_html(rank_states(RANKS, snapshots), snapshots, status, limit_bytes=MIB)
    assert "budget 1 MiB a rank" in tight, "the setting holds, whatever ranks have while they rest"
    last_words = [s if s["rank"] == 1 else s | {"progress": None} for s in snapshots]
    dead = headline_html(rank_states(RANKS, last_words, [{"rank": 1, "exit": -9}]), last_words, status)
    assert "running" not in dead, "what a dead rank told last has ended with it"


@pytest.mark.parametrize("config", [
    GcylonConfig(), GcylonConfig.low_memory(), GcylonConfig(gpu_memory_limit=64 * MIB),
], ids=["default", "low memory", "64 MiB"])  # fmt: skip
def test_the_budget_on_top_is_the_one_of_the_plan_below(config: GcylonConfig) -> None:
    free = [800 * MIB, 600 * MIB]
    ranks = [{"rank": r, "ceiling_bytes": int(0.8 * n), "free_at_start_bytes": n} for r, n in enumerate(free)]
    table = ReplaySource(Replay(2)).tables()["lineitem"]
    infos = [{**info, **rank, "used_bytes": 0} for info, rank in zip(table, ranks, strict=True)]
    plan = estimate_verb("shuffle", [infos], config, on=["k"])
    assert limit_of(ranks, config) == plan.budget_bytes
    snapshots = [s | {"limit_bytes": ranks[s["rank"]]["ceiling_bytes"]} for s in Replay(2).at(0.5)]
    text = headline_html(rank_states(ranks, snapshots), snapshots, {}, limit_bytes=limit_of(ranks, config))
    assert f"budget {readable(plan.budget_bytes)} a rank" in text


def test_a_limit_above_the_ceiling_or_of_ranks_that_told_nothing_is_no_error() -> None:
    above = [{"rank": 0, "ceiling_bytes": MIB, "free_at_start_bytes": GIB}]
    assert limit_of(above, GcylonConfig(gpu_memory_limit=GIB)) == MIB
    assert limit_of(RANKS, GcylonConfig()) == 0 and limit_of(RANKS, GcylonConfig(gpu_memory_limit=MIB)) == MIB


def test_the_headline_says_what_helps_where_there_was_no_room() -> None:
    snapshots = Replay(4).at(1000.0)
    record = snapshots[2]["operations"][-1]
    shown = lambda: headline_html(rank_states(RANKS, snapshots), snapshots, {})  # noqa: E731
    assert "failed" not in shown()
    record["error"] = "SpillError: Staging 1.00 MiB in '/little' failed: No space left on device."
    assert f"#{record['number']} {record['verb']} failed (SpillError): choose another spill folder" in shown()
    record["error"] = "Revoked: interrupted"
    assert "failed" not in shown(), "whoever interrupts knows"
    record["error"] = "SpillError: long ago"
    snapshots[0]["operations"].append(record | {"number": record["number"] + 1, "error": ""})
    assert "failed" not in shown()


def plan_of(strategy: str = "auto", **config: Any) -> dict[str, Any]:
    infos = ReplaySource().tables()["lineitem"]
    return estimate_verb("shuffle", [infos], GcylonConfig(**config), strategy=strategy, on=["k"]).as_dict()


def test_a_plan_in_a_sentence_has_all_that_matters() -> None:
    plan = plan_of(gpu_memory_limit=64 * MIB)
    text = plan_sentence(plan)
    assert text.startswith(f"{plan['strategy']}, ")
    assert f"{plan['rounds']} rounds of at most" in text
    assert "of 64 MiB (" in text
    assert plan["reason"] in text and "assuming evenly spread keys" in text
    others = alternatives_text(plan)
    for other in plan["alternatives"]:
        assert f"{other['strategy']} would {'' if other['fits'] else 'not '}fit" in others


def test_a_plan_changes_with_the_limit() -> None:
    assert plan_of(gpu_memory_limit=256 * MIB)["strategy"] == "direct"
    assert plan_of(gpu_memory_limit=40 * MIB)["strategy"] == "staged"
    assert plan_sentence(plan_of(gpu_memory_limit=256 * MIB)) != plan_sentence(plan_of(gpu_memory_limit=40 * MIB))


def test_one_round_is_one_round_and_nothing_overflows_the_bar() -> None:
    plan = plan_of(gpu_memory_limit=256 * MIB) | {"rounds": 1, "predicted_peak_bytes": 4 * GIB, "budget_bytes": GIB}
    assert "1 round of" in plan_sentence(plan)
    used = [peak - 7 * 1024 for peak in plan["predicted_peaks"]]
    assert f", 7 KiB more than the {readable(max(used))} in use · " in plan_sentence(plan, used)
    assert "more than" not in plan_sentence(plan)
    assert "width:100.0%" in plan_html(plan)


def test_what_is_drawn_again_and_again_does_not_grow_with_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = Replay(2).at(16.0)
    for one in snapshots:
        one["operations"] = [one["operations"][0] | {"number": n} for n in range(1, 301)]
    head, rows = operation_table(snapshots)
    looked: list[int] = []

    def counted(some: Any) -> Any:
        looked.extend(len(one["operations"]) for one in some)
        return summary(some)

    monkeypatch.setattr(numbers, "summary", counted)
    monkeypatch.setattr(plan_text, "summary", counted)
    assert operation_table(snapshots, last=6) == (head, rows[-6:])
    assert measured_speeds(snapshots, snapshots[0]["operations"][0]["verb"], 256 * MIB)
    assert max(looked) <= 64


def test_numbers_stand_as_text_with_units() -> None:
    snapshots = Replay(4).at(16.0)
    head, rows = operation_table(snapshots)
    last = dict(zip(head, rows[-1], strict=True))
    worst = max(s["operations"][-1]["measured_peak_bytes"] for s in snapshots)
    assert last["operation"] == "#5 repartition"
    assert last["staged"] == "128 MiB"
    assert last["peak (worst rank)"].startswith(f"{worst / MIB:.3g} MiB (rank ")
    assert last["budget, used"].startswith("64 MiB, ")
    assert last["rate a rank"].endswith("B/s")
    assert operation_table(snapshots, last=2) == (head, rows[-2:])
    assert len(rank_table(snapshots)[1]) == 20
    assert all(len(row) == len(phase_table(snapshots)[0]) for row in phase_table(snapshots)[1])


def test_names_from_outside_are_escaped() -> None:
    table = html_table((["<b>"], [["<script>x</script>"]]), caption="a & b")
    assert "<script>" not in table and "&lt;script&gt;" in table and "a &amp; b" in table


@pytest.mark.parametrize("strategy", ["direct", "chunked", "staged"])
def test_every_strategy_says_what_it_means(strategy: str) -> None:
    plan = plan_of(strategy, gpu_memory_limit=512 * MIB)
    assert plan["strategy"] == strategy
    meaning = {"direct": "the result stays", "chunked": "in rounds", "staged": "the result goes down"}[strategy]
    assert plan_sentence(plan).startswith(f"{strategy}, {meaning}")


def test_the_strip_says_what_is_outside_the_budget_and_how_busy_each_gpu_is() -> None:
    snapshots = Replay(4, gpus=2).at(10.5)
    states = rank_states(RANKS, snapshots, [{"rank": 3, "exit": -9}])
    assert [s.busy for s in states] == [88, 79, 88, None]
    text = headline_html(states, snapshots, {})
    assert "outside the budget: at most 27 MiB a GPU (driver, NCCL, other programs)" in text
    assert chips_html(states).count("GPU 88% busy") == 2
    one = Replay(2, gpus=1).at(10.5)
    assert "outside the budget: 26 MiB (driver" in headline_html(rank_states(RANKS, one), one, {})


def test_on_cpus_the_strip_says_nothing_of_gpus() -> None:
    states = rank_states(RANKS, working())
    assert {s.busy for s in states} == {None}
    assert "GPU" not in headline_html(states, working(), {}) + chips_html(states)


def cells(table: tuple[list[str], list[list[str]]], row: int) -> dict[str, str]:
    return dict(zip(table[0], table[1][row], strict=True))


def test_what_was_hidden_stands_in_the_tables_and_on_cpus_a_dash() -> None:
    on_gpus, on_cpus = Replay(4, gpus=4).at(16.0), Replay(4).at(16.0)
    # A third of the exchange is waited for on even ranks, half on odd ones, and a tenth of staging.
    assert cells(operation_table(on_gpus), 0)["transfers hidden"] == "58%"
    row = cells(rank_table(on_gpus), 1)
    assert (row["transfers"], row["waited for"], row["hidden"]) == ("240 ms", "120 ms", "50%")
    assert "transfers hidden" not in cells(operation_table(on_cpus), 0), "a column without a number takes room"
    row = cells(rank_table(on_cpus), 1)
    assert (row["transfers"], row["waited for"], row["hidden"]) == ("–", "–", "–")


def test_each_ranks_tiers_and_each_gpu_stand_in_tables() -> None:
    snapshots = Replay(4, gpus=2).at(16.0)
    row = cells(tier_table(snapshots), 0)
    assert (row["rank"], row["device: now"], row["pinned: now"], row["disk: most"]) == (
        "rank 0", "6.40 MiB", "300 MiB", "380 MiB",
    )  # fmt: skip
    assert "pinned: now" not in tier_table(Replay(4).at(16.0))[0]
    assert len(gpu_table(snapshots)[1]) == 2 and gpu_table(Replay(4).at(16.0))[1] == []
    row = cells(gpu_table(snapshots), 1)
    assert (row["GPU"], row["ranks"]) == ("NVIDIA H100 80GB HBM3 1f2a91c0", "1, 3")
    assert (row["held for budgets"], row["in use, all programs"], row["outside the budgets"]) == (
        "192 MiB", "219 MiB", "27 MiB",
    )  # fmt: skip
    for snapshot in snapshots:
        snapshot["gpu"]["samples"] = {"t_ns": [], "used_bytes": [], "utilisation": []}
    row = cells(gpu_table(snapshots), 1)
    assert (row["outside the budgets"], row["most outside"], row["busy now"]) == ("–", "–", "–")


def test_a_step_that_follows_stands_by_itself_with_its_name_its_bar_and_its_own_alternatives() -> None:
    rank = {
        "rows": 10**6, "nbytes": 24 * MIB, "tiers": {"device": 24 * MIB}, "chunks": 1, "largest_staged_bytes": 0,
        "columns": ["k", "v", "w"], "dtypes": ["int64"] * 3, "partitioning": None,
        "row_bytes": 24, "used_bytes": 24 * MIB, "ceiling_bytes": GIB, "free_at_start_bytes": GIB,
    }  # fmt: skip
    plan = estimate_verb("groupby", [[rank, rank]], GcylonConfig(gpu_memory_limit=256 * MIB), by=["k"], sort=True)
    assert plan.then is not None and plan.predicted_peak_bytes != plan.then.predicted_peak_bytes
    speeds = {name: Measured(1.0, "groupby", (1,), (MIB,)) for name in ("direct", "chunked", "staged")}
    first, then = plan_html(plan.as_dict(), speeds).split("Then: sort_values")
    assert "First: groupby" in first and first.count("gcylon-plan") == 2 and then.count("gcylon-plan") == 0
    for html, step, measured in ((first, plan, speeds), (then, plan.then, None)):
        assert escape(plan_sentence(step.as_dict())) in html
        assert escape(alternatives_text(step.as_dict(), measured)) in html and step.alternatives
        assert html.count("gcylon-bar") == 1
        assert f"width:{100 * step.predicted_peak_bytes / step.budget_bytes:.1f}%" in html
    alone = plan_html(estimate_verb("groupby", [[rank, rank]], GcylonConfig(), by=["k"]).as_dict())
    assert "First" not in alone and "Then" not in alone
