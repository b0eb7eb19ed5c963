"""Handles: the verbs of a Table, called from the notebook."""

from __future__ import annotations

import gc
import inspect
import json
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_lifecycle import wait_until

import gcylon_lab as gl
from gcylon_lab.api.table import Table
from gcylon_lab.cluster.handles import handle
from gcylon_lab.cluster.handles.handle import DistTable
from gcylon_lab.errors import ArgumentError, BudgetExceeded, ClusterError, ColumnMissing, ReadError

pytestmark = pytest.mark.mpi


def public(cls: type) -> dict[str, object]:
    names = {name for kind in cls.__mro__[:-1] for name in vars(kind) if not name.startswith("_")}
    return {name: inspect.getattr_static(cls, name) for name in names}


def parameters(function: object) -> list[tuple[str, object, object]]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


def test_handles_have_the_verbs_of_tables() -> None:
    tables, handles = public(Table), public(DistTable)
    handles = {name: value for name, value in handles.items() if not name.endswith("_async")}
    assert set(tables) - set(handles) == set()
    assert set(handles) - set(tables) == {"bind", "collect"}
    for name, value in tables.items():
        assert isinstance(value, property) == isinstance(handles[name], property), name
        if not isinstance(value, property):
            assert parameters(value) == parameters(handles[name]), name


def test_a_frame_goes_out_and_comes_back(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    assert table.num_rows == len(table) == 1000
    assert table.columns == ["k", "v", "s"]
    assert [info["rows"] for info in table.info()] == [500, 500]
    back = table.to_pandas(limit=None)
    pd.testing.assert_frame_equal(back, frame.astype(back.dtypes.to_dict()))


@pytest.mark.parametrize("strategy", ["auto", "direct", "chunked", "staged"])
def test_a_shuffle_brings_equal_keys_together(lab: gl.Cluster, frame: pd.DataFrame, strategy: str) -> None:
    shuffled = lab.from_pandas(frame).shuffle("k", strategy=strategy)
    parts = shuffled.local()
    assert len(parts) == 2
    assert set(parts[0]["k"]).isdisjoint(parts[1]["k"])
    assert sorted(np.concatenate([part["v"] for part in parts])) == sorted(frame["v"])
    assert shuffled.last_plan is not None
    assert shuffled.explain().startswith(f"shuffle: {shuffled.last_plan.strategy}")


def test_the_other_verbs(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    assert [len(part) for part in table.allgather().local()] == [1000, 1000]
    assert [len(part) for part in table.gather(root=1).local()] == [0, 1000]
    assert [len(part) for part in table.broadcast(root=0).local()] == [500, 500]
    cut = table.repartition([100, 900])
    assert [len(part) for part in cut.local()] == [100, 900]
    assert list(cut.to_pandas(limit=None)["v"]) == list(frame["v"])


def test_plans_are_known_here(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    gc.collect()  # handles of tests before are dropped with the next request
    table = lab.from_pandas(frame)
    before = len(lab.client.history)
    plan = table.plan_shuffle("k")
    assert plan.verb == "shuffle"
    assert plan.assumption
    assert table.plan_allgather(strategy="chunked").strategy == "chunked"
    assert table.plan_gather(1).verb == "gather"
    assert table.plan_broadcast().verb == "broadcast"
    assert table.plan_repartition([1000, 0]).verb == "repartition"
    assert repr(table).startswith("<DistTable #")
    assert len(lab.client.history) == before, "a plan or a repr asked the ranks"


def test_plans_here_and_there_are_the_same(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    here = table.plan_shuffle("k")
    there = lab.run(lambda t: t.plan_shuffle("k"), table)[0]
    assert (here.strategy, here.rounds, here.chunk_rows) == (there.strategy, there.rounds, there.chunk_rows)
    assert here.predicted_peak_bytes == there.predicted_peak_bytes


def test_rows_come_only_as_far_as_asked(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    pd.testing.assert_series_equal(table.head(3)["v"], frame["v"].head(3))
    long = lab.from_pandas(pd.DataFrame({"a": range(10_001)}))
    with pytest.warns(UserWarning, match="first 10,000 of 10,001 rows"):
        assert len(long.to_pandas()) == 10_000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(table.to_pandas(limit=10)) == 10
        assert len(table.to_pandas()) == 1000
    with pytest.raises(ArgumentError, match="a number of rows for limit, got -1"):
        table.to_pandas(limit=-1)
    for ask, said in (
        (lambda: table.to_pandas("all"), "limit, got 'all'"), (lambda: table.head("3"), "n, got '3'"),
        (lambda: table.tail(-2), "n, got -2"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=f"Expected a number of rows for {said}. Give one of at least 0"):
            ask()
    assert len(table.head(np.int64(2))) == len(table.tail(np.int64(2))) == 2
    with pytest.raises(ArgumentError, match=r"Expected a quantile in \[0, 1\] for q, got 'half'"):
        table.quantile(["half"], "v")
    several = table.quantile(np.array([0.5, 0.25]), ["v"])
    pd.testing.assert_frame_equal(several, frame[["v"]].quantile([0.5, 0.25]))


def test_the_notebook_is_not_filled(lab: gl.Cluster, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # handles of tests before are dropped with the next request
    table = lab.from_pandas(frame)
    monkeypatch.setattr(handle, "_ALWAYS_BYTES", 0)
    monkeypatch.setattr(handle, "available_bytes", lambda: table.nbytes)
    sent = len(lab.client.history)
    for bring in (table.local, table.to_pandas, lambda: table.to_pandas(limit=None), lambda: table.to_pandas(900)):
        with pytest.raises(BudgetExceeded, match="of the notebook's memory.*Give a smaller limit"):
            bring()
    assert len(lab.client.history) == sent
    assert len(table.to_pandas(limit=300)) == 300
    monkeypatch.setattr(handle, "_ALWAYS_BYTES", 2 * table.nbytes + 1)
    assert len(table.to_pandas()) == 1000


@pytest.mark.parametrize("verb", ["write_parquet", "write_csv", "write_json", "write_ipc"])
def test_a_handle_writes_with_the_options_of_the_ranks(verb: str) -> None:
    assert parameters(getattr(gl.DistTable, verb)) == parameters(getattr(gl.Table, verb))


@pytest.mark.parametrize("reader", ["read_parquet", "read_csv", "read_json", "read_ipc"])
def test_a_cluster_reads_with_the_options_of_the_ranks(reader: str) -> None:
    assert parameters(getattr(gl.Cluster, reader))[1:] == parameters(getattr(gl, reader))


def test_an_error_of_the_ranks_comes_once(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    with pytest.raises(ColumnMissing, match="zz") as caught:
        table.shuffle("zz")
    assert caught.value.ranks == (0, 1)
    assert "ColumnMissing" in caught.value.remote_traceback
    with pytest.raises(ReadError):
        lab.read_parquet("/nowhere/x.parquet")
    assert table.shuffle("k").num_rows == 1000


def test_functions_run_on_every_rank(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    assert lab.run(lambda t, n: t.num_rows + n, table, 1) == [501, 501]
    assert lab.run(lambda: gl.current().rank) == [0, 1]
    with pytest.raises(ClusterError, match=r"a Table is one rank's part and is not sent.*lab\.table\(name\)"):
        lab.run(lambda t: t.select("k"), table)


def test_a_handle_sorts(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    plan = table.plan_sort_values(["k"])
    sorted_ = table.sort_values(["k"], ascending=[False])
    assert plan.strategy == sorted_.last_plan.strategy == "direct"
    want = frame.sort_values("k", ascending=False, kind="stable", ignore_index=True)
    pd.testing.assert_frame_equal(sorted_.to_pandas(), want)


def test_ranks_and_status(lab: gl.Cluster) -> None:
    assert [record.rank for record in lab.ranks] == [0, 1]
    assert lab.run(__import__("os").getpid) == [record.pid for record in lab.ranks]
    # A rank that does not get a core for a second is silent.
    assert wait_until(lambda: [row["state"] for row in lab.status()] == ["idle", "idle"], 20)
    assert "2 ranks on 1 host" in repr(lab)


def test_snapshots_have_the_operations(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    lab.from_pandas(frame).shuffle("k")
    snapshots = lab.snapshots()
    assert [snapshot["rank"] for snapshot in snapshots] == [0, 1]
    assert all("shuffle" in [row["verb"] for row in snapshot["operations"]] for snapshot in snapshots)


def test_rows_and_values(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    found = table.filter(gl.col("s").str.contains("S1", case=False, na=True)).to_pandas(limit=None)
    assert found["v"].tolist() == frame.loc[frame["s"].str.contains("S1", case=False, na=True), "v"].tolist()
    some = table.filter((gl.col("v") > 0.5) & gl.col("s").notna()).assign(w=gl.col("v") * 2).select(["k", "w"])
    expected = frame[(frame["v"] > 0.5) & frame["s"].notna()]
    assert some.to_pandas(limit=None)["w"].tolist() == (expected["v"] * 2).tolist()
    doubled = table.map_parts(lambda part: part.assign(v=part["v"] * 2))
    assert doubled.sum("v") == pytest.approx(frame["v"].sum() * 2)
    assert table.map_parts(f=lambda part: part.head(1)).shape == (2, 3)
    assert table.mean(["v", "k"])["v"] == pytest.approx(frame["v"].mean())
    assert table.describe(["v"]).loc["75%", "v"] == frame["v"].quantile(0.75)
    timed = frame.assign(t=pd.Timestamp("2024-03-01") + pd.to_timedelta(frame["k"], unit="D"))
    found = lab.from_pandas(timed).describe(percentiles=np.array([0.9, 0.5]), include=[np.number, "datetime"])
    pd.testing.assert_frame_equal(found, timed.describe(percentiles=[0.9, 0.5]))
    assert table.tail(3)["v"].tolist() == frame["v"].tail(3).tolist()
    assert table.sample(10, seed=1).num_rows == 10
    assert table.drop_duplicates("k").count_rows() == frame["k"].nunique() == table.unique("k").num_rows
    rare = frame.assign(k=frame["k"] * frame["k"] % 1000 * (frame.index % 31))
    kept = lab.from_pandas(rare).drop_duplicates("k", keep=False).to_pandas(limit=None)
    assert sorted(kept["v"]) == sorted(rare.drop_duplicates("k", keep=False)["v"]) and len(kept)
    with pytest.raises(gl.errors.UnsupportedDtype, match="'s'"):
        table.std()


def planned_in_order(table: Any) -> dict[str, Any]:
    return table.groupby("k", sort=True).plan().as_dict()


def test_groups(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    made = table.groupby("k").agg({"v": "sum"}, n=("v", "size"))
    expected = frame.groupby("k").agg(v=("v", "sum"), n=("v", "size")).reset_index()
    got = made.to_pandas(limit=None).sort_values("k").reset_index(drop=True)
    pd.testing.assert_frame_equal(got, expected, check_dtype=False)
    assert made.partitioning == {"keys": ["k"], "size": 2}
    assert made.explain().startswith("groupby: ")
    assert "nothing is exchanged" in made.groupby("k").size().explain()
    in_order = table.groupby("k", sort=True, as_index=False).agg({"v": "sum"}, n=("v", "size"))
    pd.testing.assert_frame_equal(in_order.to_pandas(limit=None), expected, check_dtype=False)
    plan = table.groupby("k", sort=True).plan()
    assert "sorted by k" in plan.describe() and "\nthen sort_values: direct, 1 round " in plan.describe()
    assert plan.then is not None and plan.highest_peak_bytes >= plan.then.predicted_peak_bytes > 0
    assert lab.run(planned_in_order, table) == [plan.as_dict()] * 2
    assert "\nthen sort_values: " in in_order.explain()
    with pytest.raises(ArgumentError, match="tables have no index"):
        table.groupby("k", as_index=True)
    with pytest.raises(gl.errors.ColumnMissing, match="nope"):
        table.groupby("nope").size()
    with pytest.raises(TypeError, match="nope"):
        table.groupby("k").size(nope=1)


def test_what_is_printed_has_the_rows_that_came_and_asks_no_rank(
    lab: gl.Cluster, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = lab.from_pandas(frame.head(3)), lab.from_pandas(frame)
    wide = lab.from_pandas(pd.DataFrame({f"c{n}": [n] for n in range(60)}))
    asked: list[object] = []
    monkeypatch.setattr(lab._session, "call", lambda *args, **kwargs: asked.append(args))
    head, *rows = str(few).splitlines()
    assert head == repr(few) and len(repr(few).splitlines()) == 1
    assert rows == frame.head(3).reset_index(drop=True).to_string().splitlines()
    assert str(many).splitlines()[1:] == frame.head(5).reset_index(drop=True).to_string().splitlines()
    assert str(wide).splitlines()[1].split() == [f"c{n}" for n in range(12)]
    assert asked == []
    monkeypatch.undo()
    few.release()
    assert str(few) == repr(few) and "released" in str(few)


def test_warnings_are_of_the_line_that_asked(lab: gl.Cluster) -> None:
    table = lab.from_pandas(pd.DataFrame({"x": range(10_001)}))
    for ask in (table.to_pandas, table.to_numpy, table.to_arrow, table.to_ipc, table.x.to_pandas):
        with pytest.warns(UserWarning, match="first 10,000 of 10,001 rows") as said:
            ask()
        assert [one.filename for one in said] == [__file__]


def test_info_of_all_ranks_is_shown_in_few_lines(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    info = table.info()
    assert [one["rows"] for one in info] == [500, 500] and sum(one["nbytes"] for one in info) == table.nbytes
    shown = repr(info).splitlines()
    assert shown[0].split() == ["column", "dtype"] and [line.split()[0] for line in shown[1:4]] == ["k", "v", "s"]
    assert shown[4].startswith("rank 0: 500 rows, ") and shown[6].startswith("all: 1,000 rows, ") and len(shown) == 7
    assert pickle.loads(pickle.dumps(info)) == json.loads(json.dumps(info)) == info
    assert lab.run(lambda t: t.info()["rows"], table) == [500, 500]
