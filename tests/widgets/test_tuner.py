"""The tuner: what a hand on the widgets does to plan, config and message."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from replay import CEILING, Replay, ReplaySource, eventually

from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ConfigError
from gcylon_lab.ui.controls.tuner import TunerBox
from gcylon_lab.ui.live.worker import Worker
from gcylon_lab.units import MIB


@pytest.fixture
def failures() -> list[Exception]:
    return []


@pytest.fixture
def tuner(source: ReplaySource, failures: list[Exception]) -> Iterator[TunerBox]:
    worker = Worker(failures.append)
    made = TunerBox(source, worker, source.snapshots)
    made.refresh()
    assert eventually(lambda: made.planner.plan.value)
    yield made
    worker.close()
    made.close()
    assert failures == []


def test_it_opens_with_the_clusters_config(tuner: TunerBox) -> None:
    assert tuner.form.limit.value == 64 * MIB
    assert tuner.form.preset.value == "custom"
    assert tuner.form.fraction.disabled
    assert tuner.form.limit.options[-1][1] == CEILING


def test_another_budget_after_a_restart_is_the_sliders_end(tuner: TunerBox, source: ReplaySource) -> None:
    assert "to 512 MiB" in tuner.form.limit_range.value
    source.ceiling_bytes = 300 * MIB
    tuner.refresh()
    assert "to 300 MiB" in tuner.form.limit_range.value
    assert tuner.form.limit.options[-1][1] == 300 * MIB
    assert tuner.form.limit.value == 64 * MIB
    assert source.configs == []


def test_a_moved_slider_changes_the_plan_at_once_and_the_next_operation(tuner: TunerBox, source: ReplaySource) -> None:
    before = tuner.planner.plan.value
    tuner.form.limit.value = 256 * MIB
    assert eventually(lambda: tuner.planner.plan.value != before)
    assert "direct" in tuner.planner.plan.value and "of 256 MiB" in tuner.planner.plan.value
    assert eventually(lambda: source.config.gpu_memory_limit == 256 * MIB)
    assert eventually(lambda: "next operation" in tuner.message.value)


def test_a_drag_over_many_stops_sets_the_config_once(tuner: TunerBox, source: ReplaySource) -> None:
    for _, size in tuner.form.limit.options[-8:]:
        tuner.form.limit.value = size
    assert eventually(lambda: source.configs)
    assert [c.gpu_memory_limit for c in source.configs] == [CEILING]


def test_a_setting_of_the_last_moment_is_set_at_the_close() -> None:
    source = ReplaySource(Replay(2))
    worker = Worker(lambda error: None)
    tuner = TunerBox(source, worker, source.snapshots)
    tuner.form.limit.value = 256 * MIB
    worker.close()
    tuner.close()
    assert source.config.gpu_memory_limit == 256 * MIB


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("rows", 0, "min_chunk_rows=0 is out of range"),
        ("chunk", "10 B", "chunk_size_bytes=10 is out of range"),
        ("chunk", "many", "is not a size"),
    ],
)
def test_a_value_out_of_range_is_said_and_changes_nothing(
    tuner: TunerBox, source: ReplaySource, name: str, value: object, said: str
) -> None:
    before = tuner.config
    getattr(tuner.form, name).value = value
    assert said in tuner.message.value and "gcylon-error" in tuner.message.value
    assert tuner.config == before and source.configs == []
    tuner.form.rows.value, tuner.form.chunk.value = 2048, "1 MiB"
    assert "gcylon-error" not in tuner.message.value


def test_a_config_that_the_cluster_refuses_is_said(tuner: TunerBox, source: ReplaySource) -> None:
    source.refuse = ConfigError("It is above the ceiling.", advice="Restart with this limit.")
    tuner.form.limit.value = CEILING
    assert eventually(lambda: "Not applied. It is above the ceiling. Restart" in tuner.message.value)


def test_what_cannot_be_planned_is_said_in_its_place(tuner: TunerBox) -> None:
    tuner.planner.strategy.value = "direct"
    tuner.form.limit.value = MIB
    assert eventually(lambda: "gcylon-error" in tuner.planner.plan.value)
    tuner.form.limit.value = 256 * MIB
    assert eventually(lambda: "direct" in tuner.planner.plan.value)


def test_verb_strategy_and_switches_change_the_plan(tuner: TunerBox) -> None:
    tuner.form.limit.value = 256 * MIB
    tuner.planner.strategy.value = "staged"
    assert eventually(lambda: tuner.planner.plan.value.startswith('<div class="gcylon-plan">staged'))
    tuner.form.staging.value = False
    assert eventually(lambda: "has nowhere to put the result" in tuner.planner.plan.value)
    assert tuner.form.disk.disabled
    tuner.planner.strategy.value, tuner.planner.verb.value = "auto", "allgather"
    assert eventually(lambda: "evenly" not in tuner.planner.plan.value and "direct" in tuner.planner.plan.value)


def test_presets_reset_and_code(tuner: TunerBox, source: ReplaySource) -> None:
    tuner.planner.code_button.value = True
    assert "lab.config = gl.GcylonConfig(\n    gpu_memory_limit=&#x27;64MiB&#x27;)" in tuner.planner.code.value
    tuner.form.preset.value = "low memory"
    assert tuner.config == GcylonConfig.low_memory()
    assert (tuner.form.chunk.value, tuner.form.rows.value, tuner.form.limit.value) == ("4 MiB", 256, 0)
    assert not tuner.form.fraction.disabled
    assert "gpu_memory_fraction=0.6" in tuner.planner.code.value
    tuner.form.rows.value = 300
    assert tuner.form.preset.value == "custom"
    tuner.reset.click()
    assert tuner.config == GcylonConfig(gpu_memory_limit=64 * MIB)
    assert eventually(lambda: source.configs and source.configs[-1] == tuner.config)


def test_fields_without_a_widget_are_kept() -> None:
    source = ReplaySource(Replay(2))
    source._config = GcylonConfig(spill_dir="/fast", host_memory_limit="2GiB")
    worker = Worker(lambda error: None)
    tuner = TunerBox(source, worker)
    tuner.form.preset.value = "low memory"
    worker.close()
    assert (tuner.config.spill_dir, tuner.config.host_memory_limit) == ("/fast", 2 * 1024**3)
    tuner.close()


def test_a_config_set_in_code_shows_in_the_widgets(tuner: TunerBox, source: ReplaySource) -> None:
    source._config = GcylonConfig(min_chunk_rows=77, gpu_memory_limit=100 * MIB + 1)
    tuner.refresh()
    assert (tuner.form.rows.value, tuner.form.limit.value) == (77, 100 * MIB + 1)
    assert source.configs == []


def test_without_a_table_it_says_how_to_get_a_plan(tuner: TunerBox, source: ReplaySource) -> None:
    source.tables = lambda: {}  # type: ignore[method-assign]
    tuner.refresh()
    assert eventually(lambda: "lab.read_parquet" in tuner.planner.plan.value)


def test_pinned_memory_is_off_limits_on_cpu_engines(tuner: TunerBox) -> None:
    assert tuner.form.pinned.disabled and "GPU only" in tuner.form.pinned.description
