"""Handles: the verbs of a Table, called from the notebook."""

from __future__ import annotations

import gc
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_lifecycle import wait_until

import gcylon_lab as gl
from gcylon_lab import sources
from gcylon_lab.cluster import handle, session
from gcylon_lab.cluster.handle import DistTable
from gcylon_lab.errors import (
    ArgumentError,
    BudgetExceeded,
    ClusterError,
    ColumnMissing,
    ConfigError,
    HandleReleased,
    RankError,
    ReadError,
)
from gcylon_lab.table import Table

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
    assert set(handles) - set(tables) == {"bind"}
    for name, value in tables.items():
        assert isinstance(value, property) == isinstance(handles[name], property), name
        if not isinstance(value, property):
            assert parameters(value) == parameters(handles[name]), name


def test_the_notebooks_half_loads_no_mpi() -> None:
    code = (
        "import sys, gcylon_lab as gl; gl.Cluster; gl.DistTable; "
        "print([m for m in ('mpi4py', 'cudf', 'cupy', 'rmm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
    assert repr(table).startswith("<DistTable t")
    assert len(lab.client.history) == before, "a plan or a repr asked the ranks"


def test_plans_here_and_there_are_the_same(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    here = table.plan_shuffle("k")
    there = lab.run(lambda t: t.plan_shuffle("k"), table)[0]
    assert (here.strategy, here.rounds, here.chunk_rows) == (there.strategy, there.rounds, there.chunk_rows)
    assert here.predicted_peak_bytes == there.predicted_peak_bytes


@pytest.fixture
def by_itself() -> Iterator[None]:
    """For tests that make tables in this process, which is a rank of its own then: it is none again afterwards."""
    yield
    gl.current().close()


def test_a_reader_of_this_process_says_once_that_the_clusters_own_reads_on_its_engines(
    lab: gl.Cluster, frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_itself: None
) -> None:
    monkeypatch.setattr(sources, "_told", set())
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.warns(
        UserWarning, match=r"gl.read_parquet makes a table in this process .* in lab.read_parquet"
    ) as said:
        gl.read_parquet(tmp_path / "a.parquet").release()
    assert said[0].filename == __file__, "it is said of the line that reads"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gl.from_pandas(frame).release()
        lab.run(lambda path: gl.read_parquet(path).release(), str(tmp_path / "a.parquet"))
    monkeypatch.setattr(sources, "_told", set())
    with pytest.warns(UserWarning, match="gl.from_pandas makes a table in this process") as said:
        gl.from_pandas(frame).release()
    assert said[0].filename == __file__


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
    with pytest.raises(ArgumentError, match="limit=-1 is no number of rows"):
        table.to_pandas(limit=-1)
    for ask in (lambda: table.to_pandas("all"), lambda: table.head("3"), lambda: table.tail(-2)):
        with pytest.raises(ArgumentError, match="is no number of rows. Give one of at least 0"):
            ask()
    assert len(table.head(np.int64(2))) == len(table.tail(np.int64(2))) == 2
    with pytest.raises(ArgumentError, match="q='half' is no quantile"):
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


def test_files_are_read_and_written(lab: gl.Cluster, frame: pd.DataFrame, tmp_path: Path) -> None:
    table = lab.from_pandas(frame)
    files = table.write_parquet(str(tmp_path / "out"))
    assert len(files) == 2
    again = lab.read_parquet(str(tmp_path / "out" / "*.parquet"), columns=["v"])
    assert again.columns == ["v"]
    assert sorted(again.to_pandas(limit=None)["v"]) == sorted(frame["v"])
    frame[["k", "v"]].to_csv(tmp_path / "a.csv", index=False)
    assert lab.read_csv(str(tmp_path / "a.csv")).num_rows == 1000
    frame[["k", "v"]].to_json(tmp_path / "a.json", orient="records", lines=True)
    assert lab.read_json(str(tmp_path / "a.json")).num_rows == 1000
    narrow = lab.read_csv(str(tmp_path / "a.csv"), ["v"], dtype={"v": "float32"})
    assert (narrow.columns, str(narrow.dtypes["v"])) == (["v"], "float32")
    assert str(lab.read_json(str(tmp_path / "a.json"), dtype={"k": "int16"}).dtypes["k"]) == "int16"


def test_every_format_goes_out_and_in(lab: gl.Cluster, frame: pd.DataFrame, tmp_path: Path) -> None:
    table = lab.from_pandas(frame)
    folder = f"file://{tmp_path}"
    for kind, ending in (("parquet", ".parquet"), ("csv", ".csv"), ("json", ".jsonl"), ("ipc", ".arrow")):
        files = getattr(table, f"write_{kind}")(f"{folder}/{kind}")
        assert files == [f"{tmp_path}/{kind}/part-0000{rank}{ending}" for rank in range(2)]
        again = getattr(lab, f"read_{kind}")(f"{folder}/{kind}", "v", filters=gl.col("k") < 20)
        assert sorted(again.to_pandas(limit=None)["v"]) == sorted(frame.loc[frame["k"] < 20, "v"])
        assert "only rows of which (col('k') < 20) holds" in again.explain()
    with pytest.raises(gl.errors.WriteError, match="already holds 2 csv files.*overwrite=True"):
        table.write_csv(str(tmp_path / "csv"))
    table.write_parquet(str(tmp_path / "by"), partition_on="k", compression="zstd")
    some = lab.read_parquet(str(tmp_path / "by"), filters=[("k", "in", [3, 4])])
    assert some.columns == ["v", "s", "k"] and some.num_rows == frame["k"].isin([3, 4]).sum()
    assert len(set(tmp_path.rglob("by/*/part*"))) == int(re.search(r"of (\d+) files whole", some.explain())[1])


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


def test_a_name_becomes_a_handle_and_a_handle_gets_a_name(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    lab.from_pandas(frame).bind("orders")
    lab.view.execute("u = orders.shuffle('k'); not_a_table = 5", silent=False)
    assert lab.table("u").num_rows == 1000
    with pytest.raises(ArgumentError, match="ranks 0-1: int"):
        lab.table("not_a_table")
    with pytest.raises(ArgumentError, match="nothing"):
        lab.table("no_such_name")
    with pytest.raises(ArgumentError, match="variable's name"):
        lab.table("u").bind("two words")


def test_a_released_handle_is_gone_and_so_is_its_memory(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    used = lambda: sum(lab.run(lambda: (__import__("gc").collect(), gl.current().budget.used_bytes)[1]))  # noqa: E731
    gc.collect()  # handles of tests before are dropped with the request after this
    used()
    before = used()
    table = lab.from_pandas(frame)
    assert used() > before
    table.release()
    table.release()
    assert table.released
    assert "released" in repr(table)
    assert used() <= before  # less where the last handle of another test went meanwhile
    with pytest.raises(HandleReleased, match="released"):
        table.shuffle("k")


def test_a_forgotten_handle_is_dropped_with_the_next_request(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    name = table._name
    kept = lambda: lab.run(lambda: sorted(__import__("gcylon_lab.cluster.engine", fromlist=["x"]).current().tables))  # noqa: E731
    assert name in kept()[0]
    sent = len(lab.client.history)
    del table
    gc.collect()
    assert len(lab.client.history) == sent, "a finalizer sent something"
    assert name not in kept()[0]


def test_memory_lists_tables_by_rank_and_tier(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame).bind("listed")
    memory = lab.memory()
    rows = memory[memory["table"].str.contains("listed")]
    assert list(rows["rank"]) == [0, 1]
    assert list(rows["rows"]) == [500, 500]
    assert rows["bytes"].sum() == table.nbytes
    assert {"device_bytes", "disk_bytes"} <= set(memory.columns)


def test_a_config_holds_for_the_next_operation(lab: gl.Cluster) -> None:
    before = lab.config
    lab.config = before.with_values(min_chunk_rows=321)
    assert lab.run(lambda: gl.current().config.min_chunk_rows) == [321, 321]
    with pytest.raises(ConfigError):
        lab.config = before.with_values(gpu_memory_limit="900TiB")
    assert lab.config.min_chunk_rows == 321
    lab.config = before


def test_a_config_that_a_rank_does_not_take_holds_on_none(lab: gl.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lab.config
    monkeypatch.setattr(session, "_CONFIG_TRIES", 1)
    os.kill(lab.ranks[1].pid, signal.SIGSTOP)
    try:
        with pytest.raises(ClusterError, match=r"Rank 1 did not answer within 5 s"):
            lab.config = before.with_values(min_chunk_rows=321)
    finally:
        os.kill(lab.ranks[1].pid, signal.SIGCONT)
    assert lab.config == before
    assert lab.run(lambda: gl.current().config.min_chunk_rows) == [before.min_chunk_rows] * 2


def test_configs_set_at_once_hold_on_ranks_and_here_alike(lab: gl.Cluster) -> None:
    before = lab.config
    setters = [
        threading.Thread(target=setattr, args=(lab, "config", before.with_values(min_chunk_rows=n)))
        for n in (500, 501, 502, 503)
    ]
    os.kill(lab.ranks[1].pid, signal.SIGSTOP)  # all are under way together, and end together
    for setter in setters:
        setter.start()
    time.sleep(0.3)
    os.kill(lab.ranks[1].pid, signal.SIGCONT)
    for setter in setters:
        setter.join(20)
    assert lab.run(lambda: gl.current().config.min_chunk_rows) == [lab.config.min_chunk_rows] * 2
    lab.config = before


def test_a_config_that_is_interrupted_holds_on_no_rank(lab: gl.Cluster) -> None:
    before = lab.config
    os.kill(lab.ranks[1].pid, signal.SIGSTOP)
    try:
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            lab.config = before.with_values(min_chunk_rows=321)
    finally:
        os.kill(lab.ranks[1].pid, signal.SIGCONT)
    assert lab.config == before
    assert lab.run(lambda: gl.current().config.min_chunk_rows) == [before.min_chunk_rows] * 2


def test_functions_run_on_every_rank(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    assert lab.run(lambda t, n: t.num_rows + n, table, 1) == [501, 501]
    assert lab.run(lambda: gl.current().rank) == [0, 1]


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


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        (lambda t: t.k, AttributeError, r"sum\('k'\), select\('k'\) or filter"),
        (lambda t: t.compute, AttributeError, r"use to_pandas\(\)"),
        (lambda t: t.shufle, AttributeError, r"did you mean 'shuffle'"),
        (lambda t: t["k"], TypeError, r"select\(columns\)"),
        (list, TypeError, r"to_pandas\(limit\) for rows"),
        (lambda t: t.__setitem__("y", 1), TypeError, r"t = t.assign\(y="),
        (lambda t: t.isna, AttributeError, r"gl.col\('x'\).isna\(\) in filter"),
        (lambda t: t.sort, AttributeError, r"use sort_values\(by\)"),
        (lambda t: t.sort_values("k", na_positon="first"), TypeError, r"^sort_values\(\) got .* mean 'na_position'"),
        (lambda t: t.groupby("k")["v"].mean(), TypeError, r"use agg\(\{'v': 'mean'\}\)"),
        (lambda t: t.groupby("k").sum, AttributeError, r"use agg\(\{'x': 'sum'\}\)"),
        (lambda t: t.groupby("k").agg("sum"), ArgumentError, r"'sum' does not say of which columns"),
        (lambda t: t.assign(y=lambda frame: frame.v), ArgumentError, "expressions, not of functions"),
        (lambda t: t.join(t.rename({"k": "a", "v": "b", "s": "c"})), ArgumentError, "No column stands on both sides"),
    ],
)  # fmt: skip
def test_habits_of_pandas_are_answered_with_the_verb(
    lab: gl.Cluster, frame: pd.DataFrame, asked: object, kind: type[Exception], said: str
) -> None:
    table = lab.from_pandas(frame)
    with pytest.raises(kind, match=said):
        asked(table)  # type: ignore[operator]
    assert not hasattr(table, "_repr_svg_") and not hasattr(table, "unheard_of")


def in_the_notebook(function: FunctionType) -> FunctionType:
    """The function as a cell would have made it, with a module, a value and itself among the names around it."""
    made = FunctionType(function.__code__, {"maths": np, "limit": 3, "own": function}, function.__name__)
    made.__module__ = "__main__"
    return made


def test_a_function_of_the_notebook_takes_its_modules_along(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    squares = in_the_notebook(lambda part: part.assign(v=[maths.square(v) for v in part["v"]]))  # type: ignore[name-defined] # noqa: F821
    assert table.map_parts(squares).sum("v") == pytest.approx((frame["v"] ** 2).sum())
    few = in_the_notebook(lambda part: part.head(limit))  # type: ignore[name-defined] # noqa: F821
    with pytest.raises(RankError, match=r"'limit' is not defined\. A function runs on the ranks with the names"):
        table.map_parts(few)
    with pytest.raises(RankError, match=r"'own' is not defined\. A function runs"):
        lab.run(in_the_notebook(lambda: own))  # type: ignore[name-defined] # noqa: F821


def test_a_rank_names_the_verb_too(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    def ask(table: Table) -> list[str]:
        said = []
        for name in ("k", "compute", "_hidden"):
            try:
                getattr(table, name)
            except AttributeError as error:
                said.append(str(error))
        return said

    for column, habit, hidden in lab.run(ask, lab.from_pandas(frame)):
        assert "select('k')" in column and "to_pandas()" in habit and hidden.endswith("no attribute '_hidden'")


def shuffle_and_gather(table: Table, config: gl.GcylonConfig) -> None:
    table.shuffle("k", config=config)
    table.allgather()


def chunk_sizes(table: Table) -> list[int]:
    return table.info()["device_chunk_bytes"]


def test_what_a_tight_operation_staged_is_named_and_comes_back_with_the_verb_that_is_told(
    lab: gl.Cluster, frame: pd.DataFrame
) -> None:
    table = lab.from_pandas(frame)
    tight = lab.config.with_values(gpu_memory_limit=16 * 1024, min_chunk_rows=1)
    shuffled = table.shuffle("k", config=tight)
    number = lab.snapshots()[0]["operations"][-1]["number"]
    for handle_ in (table, shuffled):  # an input that gave way, and a result
        assert handle_.tiers["disk"] > 0
        assert {info["staged_by"] for info in handle_.info()} == {f"shuffle #{number}"}
        assert f"on disk since shuffle #{number}, read back" in handle_._repr_html_()
    rows, how, name, on_disk = shuffled.to_pandas(None), shuffled.explain(), shuffled._name, shuffled.tiers["disk"]
    assert "the table itself was staged first, up to " in how
    with pytest.raises(BudgetExceeded, match="needs .* of the 16 KiB budget are in use"):
        shuffled.unstage(config=tight)
    assert shuffled.tiers["disk"] == on_disk
    assert shuffled.unstage() is shuffled and shuffled._name == name and shuffled.partitioning["keys"] == ["k"]
    assert shuffled.tiers["disk"] == 0 and "read back" not in shuffled._repr_html_() and shuffled.explain() == how
    assert [info["device_chunk_bytes"] for info in shuffled.info()] == lab.run(chunk_sizes, shuffled)
    pd.testing.assert_frame_equal(shuffled.to_pandas(None), rows)
    assert {info["staged_by"] for info in shuffled.info()} == {""}
    assert {info["staged_by"] for info in table.info()} == {f"shuffle #{number}"}, "this one was left where it was"
    assert table.unstage_async().result(60) is table and table.tiers["disk"] == 0
    table.allgather(config=tight).release()
    number = lab.snapshots()[0]["operations"][-1]["number"]
    assert {info["staged_by"] for info in table.info()} == {f"allgather #{number}"}, "for the second time"
    other = lab.from_pandas(frame)
    lab.run(shuffle_and_gather, other, tight)
    done = [record for record in lab.snapshots()[0]["operations"] if record["staged_bytes"]][-1]
    assert {info["staged_by"] for info in other.info()} == {f"shuffle #{done['number']}"}, "not by the latest of all"
    columns = table.select(["k"])
    assert {info["staged_by"] for info in columns.info()} == {f"allgather #{number}"}, "rows that were staged before"
