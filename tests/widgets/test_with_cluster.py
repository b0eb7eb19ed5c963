"""The dashboard on a real cluster: MPI engines, their feed, their config."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from replay import eventually

import gcylon_lab as gl
from gcylon_lab.cluster.channel import stall_detector
from gcylon_lab.errors import GcylonError
from gcylon_lab.units import MIB

pytestmark = [pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def lab() -> Iterator[gl.Cluster]:
    with gl.Cluster(2, name="dashboard", grace_s=20, progress=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    """The namespace in which a notebook has its names."""
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.fixture(scope="module")
def table(lab: gl.Cluster, shell: InteractiveShell) -> Iterator[gl.DistTable]:
    rng = np.random.default_rng(3)
    rows = 200_000
    shell.user_ns["trips"] = lab.from_pandas(pd.DataFrame({"k": rng.integers(0, 999, rows), "v": rng.random(rows)}))
    yield shell.user_ns["trips"]
    shell.user_ns.clear()


@pytest.fixture
def dashboard(lab: gl.Cluster, table: gl.DistTable) -> Iterator[gl.Dashboard]:
    began = lab.config
    with gl.Dashboard(lab) as made:
        made.start()
        yield made
    lab.config = began  # a setting that was moved is applied a moment later, before the close or not


def test_it_shows_the_ranks_and_what_they_did(dashboard: gl.Dashboard, table: gl.DistTable) -> None:
    table.shuffle("k", strategy="staged").release()
    assert eventually(lambda: "shuffle" in dashboard.numbers.html and "staged" in dashboard.numbers.html, 20)
    assert eventually(lambda: "2 ranks" in dashboard.headline.value and "MPI" in dashboard.headline.value, 20)
    figure = dashboard.live.widget
    assert eventually(lambda: [t.name for t in figure.data[:2]] == ["rank 0", "rank 1"], 20)
    assert eventually(lambda: max(figure.data[0].x) > 0 and max(figure.data[0].y) > 0, 20)
    staged = next(t for t in dashboard.lives[1].widget.data if t.meta == "phase-stage")
    assert eventually(lambda: staged.x, 20)
    assert dashboard.errors.value == ""


def test_the_figure_gains_at_least_five_points_a_second_while_ranks_work(
    dashboard: gl.Dashboard, lab: gl.Cluster, table: gl.DistTable
) -> None:
    assert eventually(lambda: len(dashboard.live.widget.data) > 2 and dashboard.live.widget.data[0].x, 20)

    def points() -> int:
        return len(dashboard.live.widget.data[0].x)

    before, messages, began = points(), dashboard.live.messages, time.monotonic()
    lab.run(time.sleep, 2.0)
    took = time.monotonic() - began
    assert eventually(lambda: points() - before >= 5 * min(took, 3.0))  # longer it lasts on a busy machine
    assert dashboard.live.messages - messages <= 10 * (time.monotonic() - began) + 2


def test_its_plan_is_that_of_the_handle(dashboard: gl.Dashboard, lab: gl.Cluster, table: gl.DistTable) -> None:
    assert eventually(lambda: list(dashboard.tuner.planner.table.options) == ["trips"], 20)
    dashboard.tuner.form.limit.value = 4 * MIB
    strategy = table.plan_shuffle("k", config=lab.config.with_values(gpu_memory_limit=4 * MIB)).strategy
    assert eventually(lambda: f'gcylon-plan">{strategy},' in dashboard.tuner.planner.plan.value, 20)
    assert eventually(lambda: lab.config.gpu_memory_limit == 4 * MIB, 20)


def test_a_moved_slider_holds_for_the_next_operation(
    dashboard: gl.Dashboard, lab: gl.Cluster, table: gl.DistTable
) -> None:
    before = lab.config
    dashboard.tuner.form.limit.value = 8 * MIB
    assert eventually(lambda: lab.config.gpu_memory_limit == 8 * MIB, 20)
    result = table.shuffle("k")
    assert result.last_plan is not None and result.last_plan.budget_bytes == 8 * MIB
    result.release()
    dashboard.tuner.reset.click()
    assert eventually(lambda: lab.config == before, 20)


def test_a_limit_above_the_ceiling_is_said(dashboard: gl.Dashboard, lab: gl.Cluster) -> None:
    form = dashboard.tuner.form
    ceiling = form.limit.options[-1][1]
    form._ceiling = 4 * ceiling
    form.show(dashboard.tuner.config)
    form.limit.value = 4 * ceiling
    assert eventually(lambda: "Not applied." in dashboard.tuner.message.value, 20)
    assert "ceiling" in dashboard.tuner.message.value
    with pytest.raises(GcylonError):
        lab.config = lab.config.with_values(gpu_memory_limit=4 * ceiling)


def test_traffic_of_a_skewed_shuffle(lab: gl.Cluster, table: gl.DistTable) -> None:
    rows = 50_000
    hot = lab.from_pandas(pd.DataFrame({"k": np.full(rows, 7), "v": np.zeros(rows)}))
    hot.shuffle("k", strategy="staged").release()
    hot.release()
    with gl.Panel(lab, "traffic") as panel:
        panel.start()
        assert eventually(lambda: " shuffle: " in " ".join(a.text for a in panel.live.widget.layout.annotations), 20)
        latest = max(int(r["number"]) for r in lab.snapshots()[0]["operations"] if r["verb"] == "shuffle")
        assert eventually(lambda: latest in [number for _, number in panel.operation.options], 20)
        panel.operation.value = latest
        assert eventually(lambda: "2.0 × the mean" in panel.live.widget.layout.annotations[1].text, 20)
    snapshots = lab.snapshots()
    records = [next(r for r in reversed(s["operations"]) if r["verb"] == "shuffle") for s in snapshots]
    assert [sum(r["sent_to"]) for r in records] == [r["sent_bytes"] for r in records]
    received = [sum(r["sent_to"][rank] for r in records) for rank in range(2)]
    assert received == [r["received_bytes"] for r in records] and sorted(received) == [0, rows * 16]
    rates = [s["copy_rates"].get("disk", {}) for s in snapshots]
    assert all(1e5 < rate[way] < 1e12 for rate in rates if rate for way in ("down", "up")) and any(rates)


def test_compare_runs_them_and_marks_the_best(lab: gl.Cluster, table: gl.DistTable) -> None:
    before, held = lab.config, lab.memory()["id"].nunique()
    configs = {
        "roomy": before,
        "kept": gl.GcylonConfig(gpu_memory_limit=64 * 1024, allow_cpu_staging=False),
        "tight": gl.GcylonConfig(gpu_memory_limit=1 * MIB),
    }
    found = gl.compare(table, "shuffle", on="k", configs=configs, repeat=2)
    frame = found.frame.set_index("name")
    assert list(frame.index) == ["roomy", "kept", "tight"]
    assert (frame.strategy["roomy"], frame.strategy["tight"]) == ("direct", "staged")
    assert frame.measured_peak_bytes["tight"] <= MIB < frame.measured_peak_bytes["roomy"]
    assert frame.staged_bytes["roomy"] == 0 < frame.staged_bytes["tight"]
    assert (frame.runs["roomy"], frame.rounds["roomy"]) == (2, 1) and frame.seconds["roomy"] > 0
    assert "gpu_memory_limit" in frame.error["kept"] and np.isnan(frame.seconds["kept"])
    text, html = repr(found), found._repr_html_()
    assert "shuffle(on='k')" in text and "✖ " in text and "★ nothing" in text
    assert "<b>★ " in html and html.count("<tr>") == 4
    assert lab.config == before and lab.memory()["id"].nunique() == held


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [("groupby", {"by": "k", "agg": {"v": "sum"}}), ("sort_values", {"by": "k"}), ("gather", {"root": 1})],
)
def test_other_verbs_are_compared_by_strategy(table: gl.DistTable, verb: str, arguments: dict[str, object]) -> None:
    frame = gl.compare(table, verb, strategies=["direct", "staged"], **arguments).frame
    assert list(frame.name) == list(frame.strategy) == ["direct", "staged"]
    assert frame.error.eq("").all() and (frame.seconds > 0).all()


def test_what_cannot_be_compared_is_refused(table: gl.DistTable) -> None:
    for verb, more, said in (
        ("sum", {}, "cannot be compared"), ("shuffle", {"strategies": ["best"]}, "is invalid"),
        ("shuffle", {"configs": {}}, "nothing to compare"), ("shuffle", {"repeat": 0}, "number of runs .* got 0"),
    ):  # fmt: skip
        with pytest.raises(GcylonError, match=said):
            gl.compare(table, verb, on="k", **more)  # type: ignore[arg-type]


def test_the_button_says_what_it_will_do_and_shows_the_comparison(dashboard: gl.Dashboard, table: gl.DistTable) -> None:
    planner = dashboard.tuner.planner
    assert eventually(lambda: planner.table.value == "trips" and planner.keys.value == "k", 20)
    box = planner.compare_box
    box.button.click()
    assert eventually(lambda: "Runs trips.shuffle(on=&#x27;k&#x27;) on all 2 ranks" in box.asks.value, 20)
    assert box.table.value == ""
    box.start.click()
    assert eventually(lambda: "3 ran." in box.asks.value, 60)
    assert all(f">{name}</th>" in box.table.value for name in ("direct", "chunked", "staged"))
    box.dismiss.click()
    assert box.table.value == ""


def in_background(work: Callable[[], object]) -> tuple[threading.Thread, list[Exception]]:
    """Do what blocks as a cell does, on a thread; with the errors it ended in."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


_WAIT = """
import os, time
until = time.monotonic() + 30
while not os.path.exists(file) and time.monotonic() < until:
    time.sleep(0.01)
"""


def busy_until(lab: gl.Cluster, file: Path) -> tuple[threading.Thread, list[Exception]]:
    """Ranks at work, until a file is made or half a minute is over."""
    thread, errors = in_background(lambda: lab.run(exec, _WAIT, {"file": str(file)}))
    assert eventually(lambda: lab.status()[0]["running"] == "run", 20)
    return thread, errors


def test_a_comparison_is_stopped_and_says_what_was_not_run(
    dashboard: gl.Dashboard, lab: gl.Cluster, table: gl.DistTable, tmp_path: Path
) -> None:
    box = dashboard.tuner.planner.compare_box
    assert eventually(lambda: dashboard.tuner.planner.keys.value == "k", 20)
    thread, _ = busy_until(lab, tmp_path / "go")  # the comparison waits for this
    box.start.click()
    assert eventually(lambda: box.running, 20)
    time.sleep(0.5)
    box.start.click()
    time.sleep(0.1)
    (tmp_path / "go").touch()
    thread.join(20)
    assert eventually(lambda: "0 ran" in box.asks.value and "3 not run" in box.asks.value, 30)
    assert not box.running and box.table.value.count("not run: stopped") == 3
    assert lab.run(int, 3) == [3, 3]


_STRAND = "import gcylon_lab as gl, pandas as pd\nq = gl.from_local(pd.DataFrame({'k': [1]}))\n" + (
    "if gl.current().rank == 0: q.shuffle('k')"
)


@pytest.mark.parametrize("button", ["revoke", "interrupt"])
def test_a_rank_that_is_stuck_is_named_and_freed_by_a_button(
    lab: gl.Cluster, button: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_detector, "IDLE_S", 60.0)  # nobody but the button frees it
    with gl.ClusterCard(lab) as card:
        card.start()
        thread, errors = in_background(lambda: lab.view.execute(_STRAND, block=True))
        assert eventually(lambda: "in shuffle: rank 1 is idle" in card.cluster.chips.value, 50)
        getattr(card.cluster, button).click()
        thread.join(20)
        revoked = button == "revoke"
        assert not thread.is_alive()
        assert ("Revoked" if revoked else "Interrupted: the cell stopped after") in str(errors[0])
        said = "revoked: no rank is at work any more" if revoked else "Interrupted: shuffle stopped after"
        assert eventually(lambda: said in card.cluster.said.value, 20)
        assert "MPI, because" in card.cluster.headline.value
    assert lab.run(int, 3) == [3, 3]


def test_a_revoke_leaves_alone_what_a_rank_does_by_itself(lab: gl.Cluster, tmp_path: Path) -> None:
    thread, errors = busy_until(lab, tmp_path / "go")
    lab.revoke()
    thread.join(0.5)
    assert thread.is_alive()
    (tmp_path / "go").touch()
    thread.join(20)
    assert errors == [] and not thread.is_alive()
    assert lab.run(int, 3) == [3, 3]


def test_the_report_of_a_cluster(lab: gl.Cluster, table: gl.DistTable, tmp_path: object) -> None:
    html = gl.html_report(f"{tmp_path}/report.html", lab, title="real").read_text()
    assert "#1 from_local" in html and "2 ranks on" in html


def test_a_closed_cluster_ends_the_live_view_quietly(shell: InteractiveShell) -> None:
    lab = gl.Cluster(1, name="brief", progress=False)
    with gl.Dashboard(lab) as dashboard:
        dashboard.start()
        assert eventually(lambda: "1 rank" in dashboard.headline.value, 20)
        lab.close()
        dashboard.tuner.form.rows.value = 2000
        assert eventually(lambda: "is closed" in dashboard.tuner.message.value, 20)
        assert eventually(lambda: "closed" in dashboard.headline.value, 20)
