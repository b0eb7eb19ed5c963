"""Handles from their name to their end: bound, listed, staged and brought back, released, forgotten."""

from __future__ import annotations

import gc

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.api.table import Table
from gcylon_lab.errors import ArgumentError, BudgetExceeded, HandleReleased

pytestmark = pytest.mark.mpi


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

    def kept() -> list[list[str]]:
        return lab.run(lambda: sorted(__import__("gcylon_lab.cluster.engine.engine", fromlist=["x"]).current().tables))

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


def shuffle_and_gather(table: Table, config: gl.GcylonConfig) -> None:
    shuffled = table.shuffle("k", config=config)
    shuffled.allgather()  # not the table: what was staged of it would come back


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
    assert {info["staged_by"] for info in columns.info()} == {""} and table.tiers["disk"] == 0, "this was a use of it"
    kept = table.shuffle("k", strategy="staged")
    number = lab.snapshots()[0]["operations"][-1]["number"]
    columns = kept.select(["k"])
    assert {info["staged_by"] for info in columns.info()} == {f"shuffle #{number}"}, "rows that were staged before"
