"""Rows between the notebook and the ranks: the same, in order, within bounds, and nothing left of what is cut short."""

from __future__ import annotations

import concurrent.futures
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pytest

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import from_frame
from gcylon_lab.cluster import row_stream
from gcylon_lab.cluster.handles import collect
from gcylon_lab.tutorials import latest

ROWS = 150_000  # more than goes within a request
SMALL = {"gpu_memory_limit": "1MiB"}


@pytest.fixture(scope="module")
def large() -> pd.DataFrame:
    """Rows of many kinds, about 10 MB."""
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 1000, ROWS)
    text = pd.Series(numbers).astype(str).astype("str")
    return pd.DataFrame(
        {
            "k": numbers,
            "x": rng.random(ROWS),
            "s": text.where(numbers % 7 > 0),
            "c": text.str[:1].astype("category"),
            "t": pd.Timestamp("2024-01-01", tz="Europe/Zurich") + pd.to_timedelta(numbers, "h"),
            "n": pd.Series(numbers).astype("Int32").where(numbers % 5 > 0),
            "o": [f"value {i % 3}" if i % 2 else None for i in range(ROWS)],
        }
    )


def left(lab: gl.Cluster) -> tuple[list[str], int]:
    """Sockets in the cluster's folder, and tables on the ranks that nobody refers to."""
    gc.collect()  # of tests before
    home = Path(lab._session.launcher.home)
    return [path.name for path in home.iterdir() if path.name.startswith("rows-")], len(lab.memory())


def test_there_and_back(lab: gl.Cluster, large: pd.DataFrame) -> None:
    table = lab.from_pandas(large)
    assert [info["rows"] for info in table.info()] == [ROWS // 2] * 2
    pd.testing.assert_frame_equal(table.to_pandas(limit=None), large)
    pd.testing.assert_frame_equal(pd.concat(table.local(), ignore_index=True), large)
    batches = list(table.collect(batch_rows=35_001))
    assert [len(batch) for batch in batches] == [35_001] * 4 + [ROWS - 4 * 35_001]
    pd.testing.assert_frame_equal(pd.concat(batches, ignore_index=True), large)


def test_within_a_budget_far_below_the_table(lab: gl.Cluster, large: pd.DataFrame) -> None:
    config = lab.config.with_values(**SMALL)
    staged = lab.scatter(large, config=config)
    assert staged.tiers["disk"] > 0.8 * staged.nbytes > 4 * 2 * 1024**2 / 2
    assert 0 < latest(lab, last=1)["peak MiB"].max() <= 1
    pd.testing.assert_frame_equal(pd.concat(staged.collect(), ignore_index=True), large)
    with pytest.raises(gl.errors.BudgetExceeded) as refused:
        lab.scatter(large, config=config.with_values(allow_cpu_staging=False))
    enough = config.with_values(allow_cpu_staging=False, gpu_memory_limit=refused.value.numbers["would_do"])
    assert lab.scatter(large, config=enough).tiers["disk"] == 0
    skewed = pd.DataFrame({"s": pd.Series(["a"] * 9000 + ["z" * 3000] * 1000)})
    with pytest.raises(gl.errors.BudgetExceeded) as refused:
        lab.scatter(skewed, config=config.with_values(allow_cpu_staging=False))
    enough = config.with_values(allow_cpu_staging=False, gpu_memory_limit=refused.value.numbers["would_do"])
    pd.testing.assert_frame_equal(lab.scatter(skewed, config=enough).to_pandas(limit=None), skewed)


def test_rows_without_columns(lab: gl.Cluster) -> None:
    table = lab.scatter(pd.DataFrame(index=range(3000)))
    assert table.to_pandas(limit=None).shape == (3000, 0)
    assert sum(len(batch) for batch in table.collect(batch_rows=1000)) == 3000


def test_keys_bring_equal_rows_together(lab: gl.Cluster, large: pd.DataFrame) -> None:
    table = lab.scatter(large[["k", "x"]], by="k")
    assert table.partitioning == {"keys": ["k"], "size": 2}
    one, other = table.local()
    assert not set(one["k"]) & set(other["k"])
    assert sorted([*one["x"], *other["x"]]) == sorted(large["x"])


def test_pieces_of_an_iterable_in_whatever_form(lab: gl.Cluster, large: pd.DataFrame) -> None:
    def pieces() -> Iterator[Any]:
        yield large.iloc[:0]
        yield large.iloc[: ROWS // 2]
        yield pa.Table.from_pandas(large.iloc[ROWS // 2 :], preserve_index=False)

    table = lab.scatter(pieces())
    back = table.sort_values(["k", "x"]).to_pandas(limit=None)
    expected = large.sort_values(["k", "x"], ignore_index=True)
    pd.testing.assert_frame_equal(back, expected, check_dtype=False, check_categorical=False)
    few = lab.scatter(iter([large.iloc[:3]]))
    assert few.num_rows == 3 and few.columns == list(large.columns)
    reader = pa.Table.from_pandas(large[["k"]]).to_reader(max_chunksize=1000)
    assert lab.scatter(reader).sum("k") == large["k"].sum()


def test_an_empty_table_gives_one_batch_without_rows(lab: gl.Cluster, large: pd.DataFrame) -> None:
    (only,) = lab.scatter(large.iloc[:0]).collect()
    assert list(only.columns) == list(large.columns) and len(only) == 0
    with pytest.raises(gl.errors.ArgumentError, match="at least 1"):
        lab.from_pandas(large.head()).collect(batch_rows=0)


def test_other_verbs_between_batches_and_an_early_end(
    lab: gl.Cluster, large: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lab.scatter(large)
    seen = []
    for batch in table.collect(batch_rows=25_000):
        seen.append(lab.from_pandas(batch[["x"]]).sum("x"))
        if len(seen) == 3:
            break
    assert np.allclose(seen, [large["x"][i : i + 25_000].sum() for i in (0, 25_000, 50_000)])
    monkeypatch.setattr(collect, "HIGH_BYTES", 4_000_000)  # several requests
    batches = table.collect(batch_rows=25_000)
    next(batches)
    table.release()
    with pytest.raises(gl.errors.HandleReleased):
        list(batches)


def test_the_notebook_holds_little_of_what_passes(lab: gl.Cluster) -> None:
    wide = pd.DataFrame({name: np.arange(4_000_000.0) for name in "abcd"})
    process, most, stop = psutil.Process(), [0], threading.Event()
    list(lab.scatter(wide.iloc[:100_000]).collect())  # what is made once

    def watch() -> None:
        while not stop.wait(0.005):
            most[0] = max(most[0], process.memory_info().rss)

    before = process.memory_info().rss
    watcher = threading.Thread(target=watch)
    watcher.start()
    table = lab.scatter(wide)
    rows = sum(len(batch) for batch in table.collect())
    stop.set()
    watcher.join()
    assert rows == len(wide)
    assert most[0] - before < 80_000_000 < wide.memory_usage().sum() / 1.5


@pytest.mark.parametrize("kind", ["raises", "uses the cluster", "gives nonsense", "has other columns"])
def test_what_goes_wrong_in_an_iterable_leaves_nothing(lab: gl.Cluster, large: pd.DataFrame, kind: str) -> None:
    def pieces() -> Iterator[Any]:
        yield large
        if kind == "raises":
            raise KeyError("no more")
        if kind == "uses the cluster":
            lab.memory()
        yield {"gives nonsense": "text", "has other columns": large[["k"]]}[kind]

    expected: Any = {
        "raises": (KeyError, "no more"),
        "uses the cluster": (gl.errors.ClusterError, "with another cluster"),
        "gives nonsense": (gl.errors.ArgumentError, "got a str"),
        "has other columns": (gl.errors.ColumnMissing, "k"),
    }[kind]
    before = left(lab)
    with pytest.raises(expected[0], match=expected[1]):
        lab.scatter(pieces())
    assert left(lab) == before
    assert lab.from_pandas(large).num_rows == ROWS


def test_an_interrupt_while_rows_are_sent(hurt: gl.Cluster, large: pd.DataFrame) -> None:
    def pieces() -> Iterator[Any]:
        for _ in range(4):
            yield large
        raise KeyboardInterrupt  # as a person's, in the middle

    before = left(hurt)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match="scatter stopped after"):
        hurt.scatter(pieces())
    assert time.monotonic() - began < 10
    assert left(hurt) == before
    assert hurt.from_pandas(large).num_rows == ROWS


def test_a_source_that_blocks_holds_up_neither_cancel_nor_restart(hurt: gl.Cluster, large: pd.DataFrame) -> None:
    given, goes_on = threading.Event(), threading.Event()

    def pieces() -> Iterator[Any]:
        yield large
        given.set()
        goes_on.wait(120)
        yield large

    began, future = time.monotonic(), hurt.scatter_async(pieces())
    assert given.wait(20)
    assert future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(20)
    assert hurt.from_pandas(large).num_rows == ROWS
    given.clear()
    future = hurt.scatter_async(pieces())
    assert given.wait(20)
    hurt.restart()
    assert isinstance(future.exception(20), gl.errors.ClusterError)
    assert hurt.scatter_async(iter([large, large])).result(20).num_rows == 2 * ROWS
    assert time.monotonic() - began < 100
    goes_on.set()


def test_a_rank_that_dies_while_rows_are_sent(hurt: gl.Cluster, large: pd.DataFrame) -> None:
    pid = hurt.ranks[1].pid

    def killing() -> Iterator[Any]:
        yield large
        psutil.Process(pid).kill()
        while True:
            yield large.iloc[:50_000]

    with pytest.raises(gl.errors.RankLost, match="rank 1 .* is gone"):
        hurt.scatter(killing())
    hurt.restart()
    assert hurt.from_pandas(large).num_rows == ROWS


def test_what_ends_the_notebook_while_it_takes_rows_frees_the_ranks(lab: gl.Cluster, large: pd.DataFrame) -> None:
    def leaving() -> Iterator[Any]:
        yield large
        raise SystemExit("enough")

    before = left(lab)
    with pytest.raises(SystemExit, match="enough"):
        lab.scatter(leaving())
    assert left(lab) == before
    assert lab.from_pandas(large).num_rows == ROWS


class _Source:
    """Rows for rank 0, and for rank 1 once that has had all."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def waits(self, rank: int) -> bool:
        return rank > 0

    def next(self, rank: int, most_bytes: int) -> Any:
        if self.fails:
            raise ValueError("no rows")
        return from_frame(pd.DataFrame({"x": np.arange(10)}))


@pytest.mark.parametrize("fails", ["source", "rank 0", "rank 0 before it asks"])
def test_a_rank_that_comes_once_all_is_over_is_told(tmp_path: Path, fails: str) -> None:
    seen: dict[int, str] = {}
    late = threading.Event()

    def rank(number: int) -> None:
        late.wait(10 if number else 0)
        try:
            with row_stream.RankEnd(end.address, number, 1000, lambda: None) as mine:
                for _ in () if fails.endswith("asks") and not number else mine.receive(1):
                    assert fails != "rank 0"
        except Exception as error:
            seen[number] = type(error).__name__
        else:
            seen[number] = "ended"

    with row_stream.NotebookEnd(tmp_path, 2) as end:
        sending = row_stream.Sending(end, _Source(fails == "source"))
        ranks = [threading.Thread(target=rank, args=(number,), daemon=True) for number in (0, 1)]
        for one in ranks:
            one.start()
        until = time.monotonic() + 10
        while sending(0.02) and time.monotonic() < until:
            if 0 in seen:
                late.set()
        for one in ranks:
            one.join(5)
    assert seen[1] == {"source": "GcylonError"}.get(fails, "ended")
    assert seen[0] == {"source": "GcylonError", "rank 0": "AssertionError"}.get(fails, "ended")


def test_a_sender_waits_for_credit_and_gets_it_back_in_halves() -> None:
    sent: list[list[bytes]] = []
    sender = row_stream.Sender(lambda parts: sent.append([bytes(part) for part in parts]))
    data = from_frame(pd.DataFrame({"x": np.arange(1000)}))
    assert not sender.may_send
    sender.credit_bytes += 8_001
    sender.send(data)
    assert sender.may_send and sender.credit_bytes == 1
    sender.send(data)
    assert not sender.may_send and len(sent) == 2
    granted: list[int] = []
    receiver = row_stream.Receiver(lambda parts: granted.append(int(parts[1])), 20_000)
    for message in sent:
        got, nbytes = receiver.take(message)
        assert nbytes == 8_000 and got.arrays[0].tolist() == list(range(1000))
        receiver.worked_on(nbytes)
    assert granted == [20_000, 16_000], "credit goes back once half of it is worked on"


def test_rows_are_appended_as_they_come(lab: gl.Cluster, large: pd.DataFrame) -> None:
    before = left(lab)
    rows = lab.empty(large.iloc[:0], capacity=1000)
    for start in range(0, 3000, 300):
        rows.append(large.iloc[start : start + 300])
    rows.append(large.iloc[start : start + 10_000] for start in range(3000, ROWS, 10_000))
    assert rows.num_rows == ROWS and rows.capacity == 1000
    for wrong, kind in [
        (large[["k"]], gl.errors.ColumnMissing),
        (large.assign(k=0.5), gl.errors.SchemaMismatch),
        (5, gl.errors.ArgumentError),
    ]:
        with pytest.raises(kind):
            rows.append(wrong)
    assert rows.num_rows == ROWS
    table = rows.table()
    assert max(info["chunks"] for info in table.info()) < 60, "small ones become one"
    back = table.sort_values(["k", "x"]).to_pandas(limit=None)
    pd.testing.assert_frame_equal(back, large.sort_values(["k", "x"], ignore_index=True))
    with pytest.raises(gl.errors.HandleReleased, match="a table by now"):
        rows.append(large)
    del table
    lab.empty({"x": "float64"}, capacity=10**6).release()
    assert left(lab) == before
    with pytest.raises(gl.errors.BudgetExceeded, match="Rows to come"):
        lab.empty({"x": "float64"}, capacity=10**15)
