"""Plans in the panel: every verb, what would change them, and the code that runs them. All of real plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from replay import Replay, ReplaySource, eventually

from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.plan.plan import Alternative
from gcylon_lab.errors import ArgumentError, BudgetExceeded, ColumnMissing
from gcylon_lab.profiling.report import summary
from gcylon_lab.ui.controls.limit_slider import format_size
from gcylon_lab.ui.controls.limit_sweep import (
    LEAST,
    better_below,
    limits_text,
    non_monotonic_range,
    switches_text,
    turns,
    without_ceilings,
)
from gcylon_lab.ui.controls.plan_text import Measured, alternatives_text, measured_speeds
from gcylon_lab.ui.controls.planned import VERBS, Planned, read_keys, second_table
from gcylon_lab.ui.controls.tuner import TunerBox
from gcylon_lab.ui.figures.series import readable
from gcylon_lab.ui.live.worker import Worker
from gcylon_lab.units import GIB, MIB, format_rate

TABLES = ReplaySource(Replay(4)).tables()
TABLES = {"lineitem": TABLES["lineitem"], "parts": [{**i, "rows": 1000, "nbytes": 32_000} for i in TABLES["lineitem"]]}
LIMIT = 256 * MIB


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_plan_and_code(verb: str) -> None:
    planned = Planned(verb, "lineitem", ("k",), other="parts")
    plan = planned.plan(TABLES, GcylonConfig(gpu_memory_limit=LIMIT))
    assert (plan.verb, plan.budget_bytes) == (verb, LIMIT)
    assert plan.predicted_peak_bytes > 0 and plan.reason
    assert planned.code().startswith(f"lineitem.{verb}(")


def test_a_join_says_what_the_other_strategies_would_take() -> None:
    plan = Planned("join", "lineitem", ("k",), other="parts").plan(TABLES, GcylonConfig(gpu_memory_limit=LIMIT))
    assert {other.strategy for other in plan.alternatives} | {plan.strategy} == {"direct", "chunked", "staged"}
    assert "broadcast join" in plan.notes[0]
    tight = Planned("join", "lineitem", ("k",), other="lineitem").plan(TABLES, GcylonConfig(gpu_memory_limit=40 * MIB))
    text = alternatives_text(tight.as_dict())
    assert tight.strategy == "staged" and "would fit" not in text
    for other in tight.alternatives:
        assert f"{other.strategy} would not fit: " in text and f"; {other.why}." in text
    assert {other.strategy for other in tight.alternatives} == {"direct", "chunked"}


def test_what_holds_of_two_strategies_is_said_once() -> None:
    plan = Planned("join", "lineitem", ("k",), other="parts").plan(TABLES, GcylonConfig(gpu_memory_limit=LIMIT))
    others = [Alternative(name, 5 * MIB, 3, name == "staged", "too much") for name in ("direct", "chunked", "staged")]
    assert alternatives_text(plan.as_dict() | {"alternatives": [asdict(other) for other in others]}) == (
        "direct would not fit: 3 rounds, peak 5 MiB; too much. chunked would not fit: the same as direct. "
        "staged would fit: 3 rounds, peak 5 MiB (2%); too much."
    )


def test_keys_that_are_no_columns_and_a_join_of_one_table_are_refused() -> None:
    config = GcylonConfig(gpu_memory_limit=LIMIT)
    with pytest.raises(ColumnMissing, match="no column 'q'"):
        Planned("shuffle", "lineitem", ("q",)).plan(TABLES, config)
    with pytest.raises(ArgumentError, match="second table"):
        Planned("join", "lineitem", ("k",)).plan(TABLES, config)
    with pytest.raises(ArgumentError, match="difference needs a second table"):
        Planned("difference", "lineitem").plan(TABLES, config)
    with pytest.raises(ArgumentError, match="needs key columns"):
        Planned("shuffle", "lineitem").arguments()


@pytest.mark.parametrize(
    ("planned", "code"),
    [
        (Planned("shuffle", "t", ("k",)), "t.shuffle(on='k')"),
        (Planned("shuffle", "t", ("k", 3), strategy="staged"), "t.shuffle(on=['k', 3], strategy='staged')"),
        (Planned("join", "t", ("k",), other="u"), "t.join(u, on='k')"),
        (Planned("join", "t", other="u", how="cross"), "t.join(u, how='cross')"),
        (Planned("groupby", "t", ("k",), strategy="direct"), "t.groupby('k').size(strategy='direct')"),
        (Planned("drop_duplicates", "t", ("k", "b")), "t.drop_duplicates(subset=['k', 'b'])"),
        (Planned("unique", "t", ("k",), strategy="staged"), "t.unique(columns='k', strategy='staged')"),
        (Planned("unique", "t"), "t.unique()"),
        (Planned("gather", "t", ("k",), root=2), "t.gather(root=2)"),
        (Planned("allgather", "t", ("k",)), "t.allgather()"),
        (Planned("union", "t", ("k",), other="u"), "t.union(u)"),
        (Planned("concat", "t", other="u", strategy="staged"), "t.concat(u, strategy='staged')"),
    ],
)
def test_the_code_of_an_operation(planned: Planned, code: str) -> None:
    assert planned.code() == code


def test_keys_are_read_from_text() -> None:
    assert read_keys("k, 7,no", ["k", 7, "a, b"]) == ("k", 7, "no")
    assert read_keys("a, b", ["k", 7, "a, b"]) == ("a, b",)
    assert read_keys("  ", ["k"]) == ()


OTHERS = {"days": ["d"], "orders": ["o", "k"], "parts": ["p", "k"], "more": ["b", "k", "a"]}


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (Planned("join", "t", ("k",), other="days"), ("orders", ("k",))),
        (Planned("join", "t", ("k",), other="parts"), ("parts", ("k",))),  # what fits stays
        (Planned("join", "t", ("k", "b"), other="days"), ("more", ("k", "b"))),
        (Planned("join", "t", ("a",), other="orders"), ("more", ("a",))),
        (Planned("join", "t", (), other="days"), ("orders", ("k",))),
        (Planned("join", "t", ("z",), other="days"), ("orders", ("k",))),  # no table has that
        (Planned("join", "t", ("k",), other="days", how="cross"), ("days", ("k",))),
        (Planned("union", "t", ("k",), other="days"), ("more", ("k",))),
        (Planned("difference", "t", ("k",), other="more"), ("more", ("k",))),
        (Planned("concat", "t", ("k",), other="days"), ("days", ("k",))),
    ],
)
def test_a_second_table_is_one_that_the_verb_can_take(planned: Planned, found: tuple[str, tuple[str, ...]]) -> None:
    assert second_table(planned, ["k", "a", "b"], OTHERS) == found
    nothing = second_table(planned, ["q"], {"days": ["d"]})
    assert nothing == ("days" if planned.verb == "concat" or planned.how == "cross" else planned.other, planned.keys)


def plan_at(verb: str, strategy: str = "auto") -> Any:
    planned = Planned(verb, "lineitem", ("k",), other="parts", strategy=strategy)
    return lambda config: planned.plan(without_ceilings(TABLES), config)


@pytest.mark.parametrize("verb", ["shuffle", "sort_values", "join", "groupby", "allgather"])
def test_the_limits_at_which_the_strategy_changes_are_where_it_does(verb: str) -> None:
    config = GcylonConfig(gpu_memory_limit=LIMIT)
    found = turns(plan_at(verb), config, 128 * MIB)
    assert len(found) >= 2 and found[-1].strategy == "direct"
    for before, turn in zip([None, *found], found, strict=False):
        at = plan_at(verb)(config.with_values(gpu_memory_limit=turn.limit_bytes))
        assert at.strategy == turn.strategy
        below = config.with_values(gpu_memory_limit=int(turn.limit_bytes * 0.85))
        if before is not None:
            assert plan_at(verb)(below).strategy != turn.strategy
        elif turn.limit_bytes > LEAST:
            with pytest.raises(BudgetExceeded):
                plan_at(verb)(below)


def test_where_nothing_may_be_staged_a_limit_is_said_below_which_nothing_fits() -> None:
    kept = GcylonConfig(gpu_memory_limit=LIMIT, allow_cpu_staging=False)
    found = turns(plan_at("shuffle"), kept, 128 * MIB)
    assert [turn.strategy for turn in found] == ["chunked", "direct"]
    with pytest.raises(BudgetExceeded):
        plan_at("shuffle")(kept.with_values(gpu_memory_limit=int(found[0].limit_bytes * 0.85)))
    text = limits_text(found, kept, TABLES["lineitem"])
    assert f"nothing fits below {found[0].limit_bytes // MIB}" in text


def test_the_limits_stand_in_words_beside_the_one_in_force() -> None:
    found = turns(plan_at("shuffle"), GcylonConfig(), 128 * MIB)
    assert [turn.strategy for turn in found] == ["staged", "chunked", "direct"]
    staged, chunked, direct = ((turn.limit_bytes) for turn in found)
    infos = TABLES["lineitem"]
    text = limits_text(found, GcylonConfig(gpu_memory_limit=direct + MIB), infos)
    assert "chunked below" in text and "nothing fits" not in text and "from" not in text
    text = limits_text(found, GcylonConfig(gpu_memory_limit=chunked - MIB), infos)
    assert "chunked from" in text and "direct from" in text and "fraction" not in text
    now = limits_text(found, GcylonConfig(gpu_memory_limit=chunked - MIB), infos, "chunked")
    assert "chunked from" not in now and "direct from" in now, "it is that already"
    small = [{**info, "ceiling_bytes": staged + 1} for info in infos]
    assert "above the ceiling of" in limits_text(found, GcylonConfig(gpu_memory_limit=staged), small)
    free = [{**info, "free_at_start_bytes": GIB} for info in infos]
    auto = limits_text(found, GcylonConfig(gpu_memory_fraction=0.05), free)
    assert f"direct from {direct // MIB} MiB (fraction {direct / GIB:.2f}) up" in auto


# Under a limit that does not hold this table of one chunk it is staged first, and its result has the device alone.
WHOLE = [
    {**info, "rows": 2**19, "nbytes": 16 * MIB, "row_bytes": 32, "tiers": {"device": 16 * MIB, "disk": 0}, "chunks": 1,
     "device_chunk_bytes": [16 * MIB], "largest_staged_bytes": 0, "used_bytes": 16 * MIB}
    for info in TABLES["lineitem"][:2]
]  # fmt: skip


@pytest.mark.parametrize(("verb", "now", "best"), [("repartition", 17.6, "direct"), ("shuffle", 20, "chunked")])
def test_a_smaller_limit_that_allows_more_is_explained(verb: str, now: float, best: str) -> None:
    at = lambda config: Planned(verb, "t", ("k",)).plan(without_ceilings({"t": WHOLE}), config)  # noqa: E731
    config = GcylonConfig(gpu_memory_limit=int(now * MIB))
    plan, larger = at(config), at(config.with_values(gpu_memory_limit=25 * MIB))
    assert (plan.strategy, larger.strategy) == (best, "staged") and larger.notes == ()
    assert plan.notes == (
        "the table itself is staged first, up to 16 MiB a rank, which makes room, and is read back piece by piece",
    )
    found = turns(at, config, 32 * MIB)
    for turn in found[1:]:  # no strategy is said to hold from a limit up above which it does not
        above = [at(config.with_values(gpu_memory_limit=int(turn.limit_bytes * r))).strategy for r in (1.01, 1.3, 1.9)]
        assert "staged" not in above
    less = non_monotonic_range(at, config, found, int(now * MIB))
    assert less is not None and less.strategy == "staged"
    for limit, strategy in ((less.limit_bytes * 1.01, "staged"), (less.limit_bytes * 0.94, best)):
        assert at(config.with_values(gpu_memory_limit=int(limit))).strategy == strategy
    text = limits_text(found, config, WHOLE, plan.strategy, less)
    end = next(turn.limit_bytes for turn in found if turn.strategy == best)
    assert (
        f"Between {less.limit_bytes // MIB} MiB and {end // MIB} MiB it is staged, not {best}: such limits hold" in text
    )
    inside = int(less.limit_bytes * 1.01)
    more = better_below(at, config, inside)
    assert more is not None and more.strategy == best
    assert at(config.with_values(gpu_memory_limit=more.limit_bytes)).strategy == best
    text = limits_text(found, config.with_values(gpu_memory_limit=inside), WHOLE, "staged", None, more)
    assert f"With {format_size(more.limit_bytes)} it would be {best}: under such a limit" in text
    assert better_below(at, config, int(now * MIB)) is None
    roomy = 25 * MIB
    assert non_monotonic_range(at, config, found, roomy) is None, "no larger limit allows less than that"


def test_a_strategy_that_was_asked_for_has_one_limit() -> None:
    found = turns(plan_at("shuffle", "direct"), GcylonConfig(), 128 * MIB)
    assert [turn.strategy for turn in found] == ["direct"]


def test_switches_that_would_change_a_plan_are_named() -> None:
    tight = GcylonConfig(gpu_memory_limit=36 * MIB, allow_cpu_staging=False)
    assert switches_text(plan_at("allgather"), tight, None, on_cpu=True).startswith("With staging allowed: staged,")
    small = GcylonConfig(gpu_memory_limit=LIMIT, chunk_size_bytes=1 * MIB)
    now = plan_at("shuffle")(small)
    assert "With chunk size auto: direct, " in switches_text(plan_at("shuffle"), small, now, on_cpu=True)
    plain = GcylonConfig(gpu_memory_limit=LIMIT)
    assert switches_text(plan_at("shuffle"), plain, plan_at("shuffle")(plain), on_cpu=True) == ""


def test_speeds_are_those_measured_with_tables_of_about_that_size() -> None:
    snapshots = Replay(4).at(16.0)
    speeds = measured_speeds(snapshots, "shuffle", 4 * 32 * MIB)
    assert set(speeds) == {"direct", "chunked", "staged"} and speeds["direct"].gb_per_s > speeds["staged"].gb_per_s > 0
    known = summary(snapshots)["operations"]
    for strategy, speed in speeds.items():
        row = next(row for row in known if (row["verb"], row["strategy"]) == ("shuffle", strategy))
        rate = format_rate(row["gb_per_s"] * 1e9)
        assert speed.describe() == f"{rate} a rank in shuffle #{row['number']} of {readable(row['bytes_in'])}"
    assert measured_speeds(snapshots, "shuffle", 64 * 32 * MIB) == measured_speeds(snapshots, "join", 128 * MIB) == {}


def test_a_median_names_the_operations_that_it_is_of() -> None:
    several = Measured(1.2, "join", (2, 5), (64 * MIB, 128 * MIB))
    assert several.describe() == "1.20 GB/s a rank in the median of join #2 and #5 of 64 MiB to 128 MiB"
    many = Measured(1.2, "join", (1, 2, 3, 4, 9), (64 * MIB,) * 5)
    assert many.describe().endswith("join #3, #4 and #9 and 2 before of 64 MiB")


@pytest.fixture
def tuner(source: ReplaySource) -> Iterator[TunerBox]:
    failures: list[Exception] = []
    source.tables = lambda: TABLES  # type: ignore[assignment, method-assign, return-value]
    worker = Worker(failures.append)
    made = TunerBox(source, worker, lambda: Replay(4).at(16.0))
    made.refresh()
    assert eventually(lambda: made.planner.plan.value)
    yield made
    worker.close()
    made.close()
    assert failures == []


def test_the_panel_says_that_a_table_is_read_back_each_time(tuner: TunerBox, source: ReplaySource) -> None:
    below = [i | {"tiers": {"device": 0, "disk": 32 * MIB}, "staged_by": "join #7"} for i in TABLES["parts"]]
    source.tables = lambda: TABLES | {"parts": below}  # type: ignore[assignment, method-assign, return-value]
    said = "parts: 128 MiB on disk since join #7, read back by each operation"
    tuner.planner.table.value = "lineitem"
    tuner.refresh()  # offers the other table as a second one
    tuner.planner.verb.value = "join"
    tuner.planner.other.value = "parts"
    assert eventually(lambda: said in tuner.planner.plan.value)
    tuner.planner.verb.value = "shuffle"
    assert eventually(lambda: said not in tuner.planner.plan.value), "the second table is no matter of a shuffle"


def test_the_panel_says_what_would_change_the_plan(tuner: TunerBox) -> None:
    planner = tuner.planner
    planner.table.value = "lineitem"
    assert eventually(lambda: "× the speed of " in planner.plan.value and "a rank in shuffle #" in planner.plan.value)
    assert "By the memory limit (64 MiB now): direct from" in planner.plan.value
    tuner.form.limit.value = 512 * MIB
    assert eventually(lambda: "(512 MiB now): chunked below" in planner.plan.value)


def test_the_panel_asks_for_what_a_verb_needs_and_no_more(tuner: TunerBox) -> None:
    planner = tuner.planner
    shown = lambda: {  # noqa: E731
        name for name in ("keys", "other", "how", "root") if getattr(planner, name).layout.display != "none"
    }
    needs = {"shuffle": {"keys"}, "join": {"keys", "other", "how"}, "gather": {"root"}, "repartition": set()}
    for verb, parts in needs.items():
        planner.verb.value = verb
        assert shown() == parts
    planner.verb.value, planner.table.value = "join", "lineitem"
    assert planner.planned().other == "lineitem"  # until the choice is brought up to date
    tuner.refresh()
    assert (planner.planned().other, planner.planned().keys) == ("parts", ("k",))
    assert eventually(lambda: "broadcast join" in planner.plan.value.lower())
    planner.keys.value = "k, nothing"
    assert eventually(lambda: "nothing" in planner.plan.value and "gcylon-error" in planner.plan.value)


def test_the_first_plan_of_a_join_or_union_is_no_error(source: ReplaySource, tuner: TunerBox) -> None:
    wide = [{**i, "columns": ["x", *"klm"], "dtypes": ["int64"] * 4} for i in TABLES["lineitem"]]
    apart = [{**i, "columns": list("uvwx"), "dtypes": ["int64"] * 4} for i in TABLES["lineitem"]]
    known = {"apart": apart, "wide": wide, **TABLES}
    source.tables = lambda: known  # type: ignore[assignment, method-assign, return-value]
    planner = tuner.planner
    planner.table.value = "lineitem"
    tuner.refresh()
    planner.other.value = "apart"  # of no use to a shuffle, but chosen
    tuner.refresh()
    assert planner.planned().other == "apart", "a hand is not fought"
    for verb, other in (("join", "wide"), ("union", "parts"), ("intersect", "parts"), ("shuffle", "parts")):
        planner.verb.value = verb
        assert (planner.planned().other, planner.keys.value) == (other, "k")
        assert eventually(lambda: "of 64 MiB" in planner.plan.value and "gcylon-error" not in planner.plan.value)
    planner.table.value, planner.verb.value = "apart", "join"
    tuner.refresh()
    assert (planner.planned().other, planner.keys.value) == ("wide", "x"), "the one column that two tables share"


def test_the_code_sets_the_config_and_runs_the_operation(tuner: TunerBox) -> None:
    planner = tuner.planner
    planner.code_button.value = True
    planner.table.value, planner.strategy.value = "lineitem", "staged"
    assert eventually(lambda: "result = lineitem.shuffle(on=" in planner.code.value)
    assert "strategy=" in planner.code.value and "gpu_memory_limit=&#x27;64MiB&#x27;" in planner.code.value
    tuner.form.preset.value = "default"
    assert "lab.config = gl.GcylonConfig()\n" in planner.code.value


def test_without_handles_a_comparison_says_so(tuner: TunerBox) -> None:
    box = tuner.planner.compare_box
    box.button.click()
    assert eventually(lambda: "There is no table to run it on" in box.asks.value)
    assert box.start.disabled and not box.running


def test_what_a_comparison_says_follows_what_is_chosen(tuner: TunerBox, source: ReplaySource) -> None:
    planner, box = tuner.planner, tuner.planner.compare_box
    source.handles = lambda: {name: object() for name in TABLES}  # type: ignore[method-assign, assignment, return-value]
    planner.table.value = "lineitem"
    box.button.click()
    assert eventually(lambda: "Runs lineitem.shuffle(" in box.asks.value)
    planner.verb.value = "allgather"
    assert eventually(lambda: "Runs lineitem.allgather(" in box.asks.value), "it would run that"
    box.dismiss.click()
    planner.verb.value = "gather"
    assert eventually(lambda: "allgather" not in planner.plan.value)
    assert "Runs lineitem.allgather(" in box.asks.value, "nobody sees it"
