"""The config of a cluster, set while it runs: the same on all ranks and here, or nowhere."""

from __future__ import annotations

import os
import signal
import threading
import time

import pandas as pd
import pytest
from test_stopped import stopped

import gcylon_lab as gl
from gcylon_lab.cluster.client import session
from gcylon_lab.errors import ArgumentError, ConfigError, RankStopped, Revoked

pytestmark = pytest.mark.mpi


def test_a_config_holds_for_the_next_operation(lab: gl.Cluster) -> None:
    before = lab.config
    lab.config = before.with_values(min_chunk_rows=321)
    assert lab.run(lambda: gl.current().config.min_chunk_rows) == [321, 321]
    with pytest.raises(ConfigError):
        lab.config = before.with_values(gpu_memory_limit="900TiB")
    with pytest.raises(ConfigError, match="32 bytes hold nothing"):
        lab.config = before.with_values(gpu_memory_limit=32)
    assert lab.config.min_chunk_rows == 321
    lab.config = before


def test_the_profiler_is_set_beside_the_config(lab: gl.Cluster) -> None:
    def recorded() -> tuple[bool, float, int]:
        context = gl.current()
        before = context.recorder.recorded
        with gl.span("mine"):
            gl.mark("inside")
        return context.recorder.spans, context.profile_hz, context.recorder.recorded - before

    def last() -> int:
        return max((one["number"] for one in lab.snapshots()[0]["operations"]), default=-1)

    before, number = lab.config, last()
    assert lab.profile == 20.0 and lab.run(recorded) == [(True, 20.0, 2)] * 2
    lab.profile = False
    assert lab.profile is False and lab.run(recorded) == [(False, 0.0, 0)] * 2
    lab.config = before.with_values(min_chunk_rows=321)
    assert lab.run(recorded) == [(False, 0.0, 0)] * 2, "the one leaves the other as it is"
    lab.from_pandas(pd.DataFrame({"k": range(9)})).shuffle("k").release()
    assert last() > number, "operations are recorded all the same"
    lab.profile = 50
    assert lab.run(recorded) == [(True, 50.0, 2)] * 2 and lab.config.min_chunk_rows == 321
    for wrong in (0, -1, float("nan"), 2000, "fast"):
        with pytest.raises(ArgumentError, match="is invalid. Expected True, False, or samples a second"):
            lab.profile = wrong  # type: ignore[assignment]
    lab.profile, lab.config = True, before


def test_spans_of_ones_own_are_in_the_times_of_spans(lab: gl.Cluster) -> None:
    cell = """
import gcylon_lab as gl
@gl.span("my work", "io")
def work(n):
    return sum(range(n))
for _ in range(5):
    work(1000)
"""
    lab.view.execute(cell, block=True)
    lab.from_pandas(pd.DataFrame({"k": range(9)})).shuffle("k").release()
    times = lab.by_span()
    assert list(times.columns) == ["count", "total_s", "mean_s", "p50_s", "p95_s", "max_s"]
    assert times.loc[("my work", "io"), "count"].to_dict() == {0: 5, 1: 5}
    assert (times["max_s"] >= times["p95_s"]).all() and (times["p95_s"] >= times["p50_s"]).all()
    assert ("exchange" in times.index.get_level_values("name")) and times.attrs["dropped_events"] >= 0
    on_ranks = lab.run(lambda: gl.profiling.by_span().loc[("my work", "io", gl.current().rank), "count"])
    assert on_ranks == [5, 5]


def test_a_config_that_a_rank_does_not_take_holds_on_none(lab: gl.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lab.config
    monkeypatch.setattr(session, "_CONFIG_TRIES", 1)
    said = r"Rank 1 \(host .*\) is stopped"
    with stopped(lab.ranks[1].pid), pytest.raises(RankStopped, match=said):
        lab.config = before.with_values(min_chunk_rows=321)
    assert lab.config == before
    assert lab.run(lambda: gl.current().config.min_chunk_rows) == [before.min_chunk_rows] * 2


def test_configs_set_at_once_hold_on_ranks_and_here_alike(lab: gl.Cluster) -> None:
    before = lab.config
    setters = [
        threading.Thread(target=setattr, args=(lab, "config", before.with_values(min_chunk_rows=n)))
        for n in (500, 501, 502, 503)
    ]
    with stopped(lab.ranks[1].pid):  # all are under way together, and end together
        for setter in setters:
            setter.start()
        time.sleep(0.3)
    for setter in setters:
        setter.join(20)
    assert lab.run(lambda: gl.current().config.min_chunk_rows) == [lab.config.min_chunk_rows] * 2
    lab.config = before


def test_a_config_that_is_interrupted_holds_on_no_rank(lab: gl.Cluster) -> None:
    before = lab.config
    with stopped(lab.ranks[1].pid), pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        lab.config = before.with_values(min_chunk_rows=321)
    assert lab.config == before
    assert lab.run(lambda: gl.current().config.min_chunk_rows) == [before.min_chunk_rows] * 2


def test_messages_are_read_while_the_cell_that_posts_them_runs(lab: gl.Cluster) -> None:
    code = """
import time
import gcylon_lab as gl
for step in range(3):
    gl.current().post("step", {"step": step, "rank": gl.current().rank})
while time.monotonic() < END:
    time.sleep(0.01)
""".replace("END", str(time.monotonic() + 20))
    sent = lab.view.execute(code, block=False)
    deadline = time.monotonic() + 10
    while len(lab.messages("step")) < 6 and time.monotonic() < deadline:
        time.sleep(0.05)
    messages = lab.messages("step")
    assert [row["state"] for row in lab.status()] == ["busy", "busy"] and not sent.ready()
    by_rank = [[one.value for one in messages if one.rank == rank] for rank in range(2)]
    assert by_rank == [[{"step": step, "rank": rank} for step in range(3)] for rank in range(2)]
    assert messages.dropped == {0: 0, 1: 0} and not messages.silent and len(lab.messages("other")) == 0
    lab.interrupt()
    with pytest.raises(Revoked, match="the cell stopped"):
        sent.get()
    assert len(lab.messages("step")) == 6
