"""The dashboard on a real cluster: MPI engines, their feed, their config."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from replay import eventually

import gcylon_lab as gl
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
    with gl.Dashboard(lab) as made:
        made.start()
        yield made


def test_it_shows_the_ranks_and_what_they_did(dashboard: gl.Dashboard, table: gl.DistTable) -> None:
    table.shuffle("k", strategy="staged").release()
    assert eventually(lambda: "shuffle" in dashboard.numbers.value and "staged" in dashboard.numbers.value, 20)
    assert eventually(lambda: "2 ranks" in dashboard.headline.value and "MPI" in dashboard.headline.value, 20)
    figure = dashboard.live.widget
    assert eventually(lambda: [t.name for t in figure.data[:2]] == ["rank 0", "rank 1"], 20)
    assert eventually(lambda: max(figure.data[0].x) > 0 and max(figure.data[0].y) > 0, 20)
    staged = next(t for t in figure.data if t.meta == "phase-stage")
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
    assert eventually(lambda: points() - before >= 5 * took)
    assert dashboard.live.messages - messages <= 10 * (time.monotonic() - began) + 2


def test_its_plan_is_that_of_the_handle(dashboard: gl.Dashboard, lab: gl.Cluster, table: gl.DistTable) -> None:
    assert eventually(lambda: list(dashboard.tuner.planner.table.options) == ["trips"], 20)
    dashboard.tuner.form.limit.value = 4 * MIB
    strategy = table.plan_shuffle("k", config=lab.config.with_values(gpu_memory_limit=4 * MIB)).strategy
    assert eventually(lambda: f'gcylon-plan">{strategy},' in dashboard.tuner.planner.plan.value, 20)


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
        assert eventually(lambda: "2.0 × the mean" in panel.live.widget.layout.annotations[1].text, 20)
    snapshots = lab.snapshots()
    records = [next(r for r in reversed(s["operations"]) if r["verb"] == "shuffle") for s in snapshots]
    assert [sum(r["sent_to"]) for r in records] == [r["sent_bytes"] for r in records]
    received = [sum(r["sent_to"][rank] for r in records) for rank in range(2)]
    assert received == [r["received_bytes"] for r in records] and sorted(received) == [0, rows * 16]
    rates = [s["copy_rates"].get("disk", {}) for s in snapshots]
    assert all(1e7 < rate[way] < 1e12 for rate in rates if rate for way in ("down", "up")) and any(rates)


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
