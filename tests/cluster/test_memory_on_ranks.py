"""Memory as a notebook sees it: of GPUs or hosts, pools, and of tables before they are there."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import gcylon_lab as gl
from gcylon_lab.memory.budget import KEEPING_FREED


def in_own_code(nbytes: int) -> tuple[int, bool]:
    with gl.budget.reserve(nbytes, "mine"):
        return gl.budget.by_use()["mine"], gl.budget.fits(2**60)


def of_the_process(name: str) -> str:
    import os

    return os.environ.get(name, "")


def test_ranks_keep_freed_pages_of_arrow(lab: gl.Cluster) -> None:
    for name, value in KEEPING_FREED.items():
        assert lab.run(of_the_process, name) == [value] * 2


def of_the_rank(what: str) -> object:
    return gl.budget.by_use() if what == "by_use" else gl.current().pools()


def test_memory_pools_and_plans_of_what_is_not_loaded(lab: gl.Cluster, frame: pd.DataFrame, tmp_path: Path) -> None:
    info = lab.memory_info()
    assert list(info["rank"]) == [0, 1] and (info["free_bytes"] + info["used_bytes"] == info["total_bytes"]).all()
    assert (info["budget_used_bytes"] <= info["budget_limit_bytes"]).all() and (info["outside_bytes"] > 0).all()
    pools = lab.pools()
    assert set(pools["rank"]) == {0, 1} and "scratch" in set(pools["pool"])
    assert "MiB" in repr(info) and "free_<wbr>bytes" in info._repr_html_() and "…" not in repr(info)
    assert f"{gl.units.format_bytes(int(info['free_bytes'][0]))}" in info[["free_bytes"]]._repr_html_()
    table = lab.from_pandas(frame)
    told = lab.snapshots()  # of a thread that does not work
    assert [one["uses"] for one in told] == lab.run(of_the_rank, "by_use")
    assert [one["pools"] for one in told] == lab.run(of_the_rank, "pools")
    tight = lab.config.with_values(gpu_memory_limit=16 * 1024, min_chunk_rows=1)
    table.shuffle("k", config=tight).release()
    table.unstage()
    kept = table.tiers["also on disk"]
    assert kept > 0 and [info["kept"] for info in table.info()] and "on disk too: staging them" in table._repr_html_()
    assert lab.trim()["kept_bytes"].sum() >= kept and "also on disk" not in table.tiers
    most = table.max_rows("shuffle", on="k", config=lab.config.with_values(gpu_memory_limit="8MiB"))
    assert len(table) < most < 2 * 8 * 2**20 // 16
    assert lab.run(in_own_code, 4096) == [(4096, False)] * 2
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet", row_group_size=100)
    said = lab.plan_read_parquet(str(tmp_path / "*.parquet"), ["k", "v"])
    there = lab.read_parquet(str(tmp_path / "*.parquet"), ["k", "v"])
    assert said.fits and said.rows == tuple(info["rows"] for info in there.info()) and said.total_bytes == there.nbytes
