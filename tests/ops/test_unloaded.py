"""Before a table is loaded: what a verb would take, how many rows it could have, and what an error says of that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import worlds
from worlds import World

import gcylon_lab as gl
from gcylon_lab.cluster.client.readers import Readers
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, BudgetExceeded, ColumnMissing
from gcylon_lab.runtime.context import current
from gcylon_lab.units import MIB

ROWS = 40_000  # on each rank


def frame_of(rows: int, text: bool = False) -> pd.DataFrame:
    numbers = np.arange(rows)
    made = pd.DataFrame({"k": numbers, "v": numbers / 7})
    return made.assign(s=[f"text {n}" for n in numbers]) if text else made


def pieces_of(rows: int, text: bool, limit: int) -> Any:
    """Frames of the size in which a reader takes rows in."""
    frame = frame_of(rows, text)
    count = -(-int(frame.memory_usage(deep=False).sum()) // (limit // 8))
    return (frame[rows * i // count : rows * (i + 1) // count] for i in range(count))


def planned(verb: str, limit: int, strategy: str, text: bool) -> tuple[Any, Any]:
    """A verb's plan of a table that is there, and of one like it that is not."""
    table, size = gl.from_local(pieces_of(ROWS, text, limit)), current().size
    config = GcylonConfig(gpu_memory_limit=limit)
    on = [] if verb in ("allgather", "repartition") else ["k"]
    call = getattr(table, f"plan_{verb}")
    there = call(*on, strategy=strategy, config=config)
    sizes = {"nbytes": table.nbytes * size} if text else {}
    given = {"k": "int64", "v": float} if not text else pa.schema([("k", pa.int64()), ("v", "f8"), ("s", "str")])
    ahead = gl.estimate(given, ROWS * size, verb=verb, on=on, ranks=size, config=config, strategy=strategy, **sizes)
    return there, ahead


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "text"])
@pytest.mark.parametrize("verb", ["shuffle", "allgather", "repartition", "sort_values", "groupby", "drop_duplicates"])
def test_the_plan_of_a_table_that_is_not_loaded_is_near_that_of_one_that_is(verb: str, text: bool) -> None:
    for limit in (64 * MIB, 6 * MIB):
        for there, ahead in World("threads", 2).run(planned, verb, limit, "auto", text):
            near = worlds.ENGINE == "gpu" and abs(there.predicted_peak_bytes - limit) < 0.15 * limit
            assert (ahead.strategy == there.strategy or near) and ahead.budget_bytes == limit, (there, ahead)
            less = near and ahead.predicted_peak_bytes <= there.predicted_peak_bytes  # than all that the limit has
            assert less or ahead.predicted_peak_bytes == pytest.approx(there.predicted_peak_bytes, rel=0.15)


def test_sizes_and_arguments_that_cannot_be_used_are_refused() -> None:
    limit = GcylonConfig(gpu_memory_limit="1MiB")
    plan = gl.estimate(rows=1000, nbytes=16_000, verb="allgather", ranks=2, config=limit)
    assert plan.result_bytes == 16_000 and len(plan.predicted_peaks) == 2
    assert gl.estimate({"k": "int64"}, 10, on="k").budget_bytes > 0  # this machine's memory
    for call, said in (
        (lambda: gl.estimate({"s": "str"}, 10), "How wide the values of 's' are is not known"),
        (lambda: gl.estimate(rows=10), "Expected a schema, or nbytes"),
        (lambda: gl.estimate(rows=10, nbytes=80, on="k"), "shuffle with keys needs to know the columns"),
        (lambda: gl.estimate({"k": "nothing"}, 10), "is invalid"),
        (lambda: gl.estimate({"k": "int64"}, -1), "rows=-1 is invalid"),
        (lambda: gl.estimate({"k": "int64"}, 10, ranks=0), "ranks=0 is invalid"),
        (lambda: gl.estimate({"k": "int64"}, 10, verb="nothing"), "verb='nothing' is invalid"),
    ):
        with pytest.raises(ArgumentError, match=said):
            call()
    with pytest.raises(ColumnMissing):
        gl.estimate({"k": "int64"}, 10, on="x")
    with pytest.raises(BudgetExceeded) as caught:
        gl.estimate({"k": "int64", "v": "f8"}, 10**6, on="k", strategy="direct", ranks=2, config=limit)
    enough = limit.with_values(gpu_memory_limit=caught.value.numbers["would_do"])
    assert gl.estimate({"k": "int64", "v": "f8"}, 10**6, on="k", strategy="direct", ranks=2, config=enough)


def at_most(verb: str, strategy: str, text: bool) -> tuple[Any, ...]:
    """The most rows of a verb; what it does with so many, and with a tenth more, beside another table."""
    context, on_gpu = current(), current().workspace.backend.on_gpu
    limit = 64 * MIB if on_gpu else 4 * MIB  # what a GPU's allocator takes beside is little of it
    config = GcylonConfig(gpu_memory_limit=limit)
    held = None if on_gpu else config  # rows that are staged are copied to be sent
    beside = gl.from_local(frame_of(1000))
    table = gl.from_local(frame_of(2000, text))
    on = None if verb in ("allgather", "repartition") else "k"
    most = table.max_rows(verb, on=on, strategy=strategy, config=config)
    table.release()
    ran = []
    for rows in (int(most * 0.85), int(most * 1.15)):
        large = gl.from_local(pieces_of(rows // context.size, text, limit), config=held)
        args = [] if on is None else [on]
        try:
            getattr(large, verb)(*args, strategy=strategy, config=config).release()
            ran.append("ran")
        except BudgetExceeded as error:
            ran.append(error)
        large.release()
    beside.release()
    return most, ran


@pytest.mark.parametrize(("verb", "strategy"), [("shuffle", "direct"), ("shuffle", "chunked"), ("allgather", "direct")])
def test_so_many_rows_run_and_more_do_not(verb: str, strategy: str) -> None:
    for most, (ran, refused) in World("threads", 2).run(at_most, verb, strategy, False):
        assert ran == "ran" and isinstance(refused, BudgetExceeded), (most, ran, refused)
        told = refused.numbers["fitting_rows"]
        assert told == pytest.approx(most, rel=0.1) and f"About {told:,} of its " in str(refused)
        assert "rows would fit." in refused.message and "is enough" in refused.advice


def bounds() -> dict[str, Any]:
    table, config = gl.from_local(frame_of(1000)), GcylonConfig(gpu_memory_limit=MIB)
    empty = gl.from_local(frame_of(0))
    seen: dict[str, Any] = {"staged": table.max_rows("shuffle", on="k", strategy="staged", config=config)}
    for name, call in {
        "empty": lambda: empty.max_rows("shuffle", on="k"),
        "verb": lambda: table.max_rows("join"),
        "column": lambda: table.max_rows("shuffle", on="x"),
    }.items():
        try:
            call()
        except (ArgumentError, ColumnMissing) as error:
            seen[name] = str(error)
    return seen


def test_where_all_is_staged_memory_sets_no_bound() -> None:
    for seen in World("threads", 2).run(bounds):
        assert seen["staged"] is None and "needs a table with rows" in seen["empty"]
        assert "verb='join' is invalid. Expected" in seen["verb"] and "'x'" in seen["column"]


def read_without_a_tier() -> tuple[int, int]:
    """Rows that a reader says would fit, and what it does with so many."""
    config = GcylonConfig(gpu_memory_limit=MIB, allow_cpu_staging=False)
    frames = [frame_of(10_000) for _ in range(20)]
    with pytest.raises(BudgetExceeded) as caught:
        gl.from_local(iter(frames), config=config)
    rows = caught.value.numbers["fitting_rows"]
    assert "is enough for the rows so far" in caught.value.advice
    with pytest.raises(BudgetExceeded, match="is enough for the rows so far"):
        gl.from_local(iter(frames), config=config.with_values(gpu_memory_limit=caught.value.numbers["would_do"]))
    staging = config.with_values(allow_cpu_staging=True, allow_disk_spill=True)  # as it advises
    assert gl.from_local(iter(frames), config=staging).num_rows == 200_000
    whole = pd.concat(frames, ignore_index=True)[: rows * 95 // 100]
    parts = (whole[at : at + 10_000] for at in range(0, len(whole), 10_000))
    return rows, gl.from_local(parts, config=config).num_rows


def test_a_reader_that_may_not_stage_says_how_many_rows_fit() -> None:
    for rows, ran in World("threads", 2).run(read_without_a_tier):
        assert MIB // 16 * 0.8 < rows <= MIB // 16 and ran == rows * 95 // 100


# ---- files


class Lab(Readers):
    """What `plan_read_parquet` knows of a cluster: no rank is asked."""

    def __init__(self, ranks: int, limit: int, used: int = 0, device: str = "", **config: Any) -> None:
        memory = [{"used_bytes": used, "ceiling_bytes": limit, "free_at_start_bytes": limit}] * ranks
        config = GcylonConfig(gpu_memory_limit=limit, **config)
        self._session: Any = SimpleNamespace(
            launcher=SimpleNamespace(n=ranks),
            memory=memory,
            config=config,
            ranks=[SimpleNamespace(device=device or worlds.ENGINE)],
        )


@pytest.fixture
def files(tmp_path: Path) -> str:
    for part in range(3):
        frame = frame_of(10_000, text=True).assign(n=pd.array([1, None] * 5000, "Int32"), c="a category")
        pq.write_table(
            pa.Table.from_pandas(frame.astype({"c": "category"})), tmp_path / f"{part}.parquet", row_group_size=2500
        )
    return f"{tmp_path}/*.parquet"


def sizes_of(paths: str, columns: list[str] | None) -> tuple[int, int]:
    table = gl.read_parquet(paths, columns)
    return table.num_rows, table.nbytes


@pytest.mark.parametrize("columns", [None, ["k", "v"], ["s"]])
def test_files_are_as_large_as_was_said(files: str, columns: list[str] | None) -> None:
    said = Lab(2, 64 * MIB).plan_read_parquet(files, columns)
    found = World("threads", 2).run(sizes_of, files, columns)
    assert said.rows == tuple(rows for rows, _ in found) and said.num_rows == 30_000 and said.fits
    assert said.nbytes == pytest.approx([nbytes for _, nbytes in found], rel=0.02)
    on_gpus = Lab(2, 64 * MIB, device="gpu").plan_read_parquet(files, columns)
    if worlds.ENGINE == "cpu":  # of a text its offset takes 4 bytes less, and that it is there no bit
        less = 4.125 * 15_000 if "s" in said.schema.names else 0
        assert np.subtract(said.nbytes, on_gpus.nbytes) == pytest.approx([less, less], rel=0.001)
    assert list(said.schema.names) == (columns or ["k", "v", "s", "n", "c"])
    assert "30,000 rows of" in repr(said) and "it fits" in repr(said)
    assert gl.estimate(said.schema, said.num_rows, nbytes=said.total_bytes, verb="allgather", ranks=2).rounds


def staged_of(paths: str) -> int:
    return gl.read_parquet(paths, ["k", "v"])._part.staged_bytes


def test_what_does_not_fit_is_said_before(files: str) -> None:
    limit, columns = 200_000, ["k", "v"]
    said = Lab(2, limit).plan_read_parquet(files, columns)
    assert said.describe() in said._repr_html_()
    found = World("threads", 2).run(staged_of, files, config=GcylonConfig(gpu_memory_limit=limit))
    assert not said.fits
    if worlds.ENGINE == "cpu":
        assert said.staged_bytes == pytest.approx(found, rel=0.25)
    else:  # what libcudf takes to decode a row group is much of so little: more gives way than what does not fit
        assert all(0 < some <= all_of_it for some, all_of_it in zip(said.staged_bytes, found, strict=True))
    assert "a rank would be staged" in repr(said)
    never = Lab(2, limit, allow_cpu_staging=False).plan_read_parquet(files, columns)
    assert "may not be staged" in repr(never) and never.staged_bytes == (40_000, 40_000)
    assert not Lab(2, 400_000, used=150_000).plan_read_parquet(files, columns).fits
    some = Lab(2, limit).plan_read_parquet(files, columns, filters=gl.col("v") < 0.5)
    assert some.num_rows == 7500 and "9 of 12 row groups skipped" in repr(some)


def test_times_that_nanoseconds_do_not_hold_are_as_wide(tmp_path: Path) -> None:
    frame = pd.DataFrame({"t": np.array(["3000-01-01"] * 100, "datetime64[us]")})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "far.parquet", use_deprecated_int96_timestamps=True)
    said = Lab(2, MIB).plan_read_parquet(str(tmp_path / "far.parquet"))
    assert (said.num_rows, said.total_bytes) == (100, 800)
