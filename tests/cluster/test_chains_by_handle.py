"""Chains of row-wise verbs by handles: no rank is asked until one of their tables is needed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab import col
from gcylon_lab.errors import ArgumentError, ColumnMissing, HandleReleased, Revoked

pytestmark = pytest.mark.mpi


@contextmanager
def requests_of(lab: gl.Cluster) -> Iterator[list[str]]:
    """The actions of the requests that are sent meanwhile."""
    channel, sent = lab._session.channel, []
    plain = channel.call

    def call(request: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(request.action)
        return plain(request, *args, **kwargs)

    channel.call = call
    try:
        yield sent
    finally:
        del channel.call


def stored(lab: gl.Cluster) -> list[str]:
    """Tables that rank 0 keeps."""
    return lab.run(lambda: sorted(__import__("gcylon_lab.cluster.engine.engine", fromlist=["x"]).current().tables))[0]


def operations(lab: gl.Cluster) -> list[str]:
    return lab.run(lambda: [record.verb for record in gl.current().recorder.operations])[0]


def test_a_chain_is_no_request_and_goes_with_the_verb_that_needs_it(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    mean = table.mean("v")
    before = len(operations(lab))
    with requests_of(lab) as sent:
        assert table.filter(col("v") > mean).columns == ["k", "v", "s"]  # a number of numpy's
        assert sent == []
        chain = table.filter(col("v") > 0.25).assign(w=col("v") * 2).drop("s").rename({"k": "key"})
        assert chain.columns == ["key", "v", "w"] and chain.dtypes["w"] == "float64" and chain.num_columns == 3
        assert chain.schema.names == ("key", "v", "w")
        assert sent == []
        groups = chain.groupby("key").agg(w=("w", "sum"))
        assert sent == ["group_agg"]
        ours = groups.sort_values("key").to_pandas()
    kept = frame[frame["v"] > 0.25]
    expected = (kept["v"] * 2).groupby(kept["k"]).sum()
    assert ours["key"].tolist() == expected.index.tolist()
    assert ours["w"].tolist() == pytest.approx(expected.tolist())
    assert operations(lab)[before:][:2] == ["filter.assign.drop.rename", "groupby"]
    assert "filter, assign, drop and rename in one pass over the rows, which read 2 of 3 columns" in chain.explain()


def test_what_is_asked_of_a_table_makes_its_rows(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    expected = frame[frame["v"] > 0.5]
    asks = {
        "len": (lambda one: len(one), len(expected)),
        "repr": (lambda one: f"{len(expected)} rows" in repr(one), True),
        "card": (lambda one: "<table" in one._repr_html_(), True),
        "head": (lambda one: one.head(3)["v"].tolist(), expected["v"].head(3).tolist()),
        "info": (lambda one: sum(info["rows"] for info in one.info()), len(expected)),
        "sum": (lambda one: one.sum("v"), pytest.approx(expected["v"].sum())),
        "plan": (lambda one: one.plan_shuffle("k").verb, "shuffle"),
        "run": (lambda one: sum(lab.run(lambda t: len(t.local()), one)), len(expected)),
        "pandas": (lambda one: len(one.to_pandas(None)), len(expected)),
        "join": (lambda one: one.join(table, on="k", how="semi").num_rows, len(expected)),
        "other": (lambda one: table.concat([one, one]).num_rows, 1000 + 2 * len(expected)),
        "local": (lambda one: sum(map(len, one.local())), len(expected)),
    }
    for name, (ask, answer) in asks.items():
        made = table.filter(col("v") > 0.5).select(["k", "v"])
        with requests_of(lab) as sent:
            assert ask(made) == answer, name
            assert 1 <= len(sent) <= 3, (name, sent)


def test_rows_of_a_chain_come_with_the_request_that_makes_it(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    expected = frame[frame["v"] > 0.5].reset_index(drop=True)
    for ask in (lambda one: one.to_pandas(), lambda one: one.to_pandas(None), lambda one: one.head(200)):
        made = table.filter(col("v") > 0.5)
        with requests_of(lab) as sent:
            ours = ask(made)
        pd.testing.assert_frame_equal(ours, expected.head(len(ours)))
        assert len(ours) in (200, len(expected)) and sent == ["made"]
        with requests_of(lab) as sent:
            pd.testing.assert_frame_equal(made.head(8), expected.head(8))
            assert len(made) == len(expected)
        assert sent == []
    long = lab.from_pandas(pd.DataFrame({"x": range(300_000), "s": "some text"}))  # more than goes with a reply
    with requests_of(lab) as sent:
        assert long.filter(col("x") >= 10).to_pandas(None)["x"].tolist() == list(range(10, 300_000))
    assert sent == ["made", "to_pandas"]
    few = table.filter(col("v") > 0.5).to_pandas(3)
    few.loc[0, "k"] = -1  # a person's own
    pd.testing.assert_frame_equal(table.filter(col("v") > 0.5).to_pandas(3), expected.head(3))


def test_fields_of_times_are_remembered_whether_or_not_a_time_is_missing(lab: gl.Cluster) -> None:
    times = pd.Series(pd.date_range("2019-12-01", periods=100, freq="D"))
    for missing in (times, times.where(times.index != 50)):
        frame = pd.DataFrame({"d": missing, "v": range(100)})
        table = lab.from_pandas(frame)
        with requests_of(lab) as sent:
            late = table[table.d.dt.year == 2020]
            by_month = table.assign(m=table.d.dt.month + 1, start=table.d.dt.is_month_start)
            assert by_month.columns == ["d", "v", "m", "start"]
            assert sent == []
            sums = by_month.groupby("m").agg(v=("v", "sum"))
            assert sent == ["group_agg"]
            assert late.to_pandas()["v"].tolist() == frame["v"][missing.dt.year == 2020].tolist()
            assert sent == ["group_agg", "made"]
        expected = frame.assign(m=missing.dt.month + 1, start=missing.dt.is_month_start)
        pd.testing.assert_frame_equal(by_month.to_pandas(), expected)
        assert by_month.dtypes["m"] == str(expected["m"].dtype) == by_month.schema["m"].describe()
        assert sums.sort_values("m").to_pandas()["v"].tolist() == expected.groupby("m")["v"].sum().tolist()
    with pytest.raises(ArgumentError, match=r"\.dt is of times"):
        table.assign(y=table.v.dt.year)


def test_rows_of_a_handle_that_two_others_need_are_made_once(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    before = len(operations(lab))
    few = table.filter(col("v") > 0.25)
    one, two = few.assign(w=col("v") + 1), few.filter(col("k") < 20)
    assert one.sum("w") == pytest.approx(few.sum("v") + few.num_rows)
    assert two.num_rows == ((frame["v"] > 0.25) & (frame["k"] < 20)).sum()
    done = operations(lab)[before:]
    assert done.count("filter") + done.count("filter.assign") + done.count("filter.filter") == 3, done


def test_errors_are_told_by_the_verb(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    chain = lab.from_pandas(frame).filter(col("v") > 0.25)
    with pytest.raises(ColumnMissing, match="'nope'"):
        chain.select(["k", "nope"])
    with pytest.raises(ArgumentError, match="cannot be computed"):
        chain.assign(z=col("s") + col("v"))
    with pytest.raises(ArgumentError, match="float64"):
        chain.filter(col("v") + 1)
    rest = lab.from_pandas(frame).drop("v")
    with pytest.raises(ArgumentError, match=r"filter\(.*astype\('int64'\).* cannot be computed: ValueError"):
        rest.filter(col("s").str.slice(0, 2).astype("int64") > 1)
    assert len(chain) == (frame["v"] > 0.25).sum()  # and goes on


def test_released_inputs_are_kept_until_the_chain_is_made(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    few = table.filter(col("v") > 0.5)
    fewer = few.select(["k"])
    table.release()
    few.release()
    with pytest.raises(HandleReleased):
        few.sum("v")
    assert len(fewer) == (frame["v"] > 0.5).sum()
    table, lost = lab.from_pandas(frame), lab.from_pandas(frame).drop("s")
    few = table.filter(col("v") > 0.5)
    name = table._name
    del table
    gc.collect()
    assert name in stored(lab)
    assert len(few) == (frame["v"] > 0.5).sum() and len(lost) == 1000
    gc.collect()
    lab.run(lambda: None)
    assert name not in stored(lab)


def test_a_handle_that_nobody_asked_for_leaves_nothing(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    gc.collect()
    before = stored(lab)
    with requests_of(lab) as sent:
        for _ in range(3):
            table.filter(col("v") > 0.5).release()
            table.select(["k"])
        gc.collect()
        assert repr(table).startswith("<DistTable")
        assert sent == []
    assert stored(lab) == before


def test_settings_are_those_of_a_request(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    with requests_of(lab) as sent:
        table.select(["k", "v"]).filter(col("v") > 0.5, timeout_s=60)
        table.filter(col("v") > 0.5, strategy="staged")
        table.map_parts(lambda rows: rows.head(1))
        table.assign(q=col("k") // 3)  # floats where a divisor is 0: what values show
    assert sent == ["filter", "filter", "map_parts", "assign"]


def test_a_chain_gets_a_name_and_is_made_by_futures(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    table.filter(col("v") > 0.5).select(["k"]).bind("few")
    lab.view.execute("found = len(few.local())", silent=False)
    assert sum(lab.view["found"]) == (frame["v"] > 0.5).sum() == lab.table("few").num_rows
    made = table.filter_async(col("v") > 0.5).result()
    with requests_of(lab) as sent:
        assert made.num_rows == (frame["v"] > 0.5).sum()
    assert sent == []

    async def both() -> int:
        return len(await table.select(["k"]).drop_duplicates_async())

    assert asyncio.run(both()) == 40


def sleepy(rows: pd.DataFrame) -> pd.DataFrame:
    import time

    time.sleep(20)
    return rows


def test_a_chain_is_told_anew_after_a_request_that_was_cut_short(hurt: gl.Cluster, frame: pd.DataFrame) -> None:
    chain = hurt.from_pandas(frame).filter(col("v") > 0.5).assign(w=col("v") * 2)
    future = chain.map_parts_async(sleepy)
    while not future.running():
        pass
    future.cancel()
    with pytest.raises((Revoked, BaseException)):
        future.result(60)
    assert chain.sum("w") == pytest.approx(2 * frame.loc[frame["v"] > 0.5, "v"].sum())
