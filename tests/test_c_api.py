"""The table of gcylon's C API: every function of it has its line, and every line runs on MPI ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import ColumnMissing

PAGE = (Path(__file__).parent.parent / "notebooks" / "reference_c_api.md").read_text()
SIZE = 2

# What a line has made on a rank, by the C function that it stands for.
CHECKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "gcylon_config_default": lambda s: s["config"] == gl.GcylonConfig(),
    "gcylon_config_low_memory": lambda s: s["tight"].gpu_memory_fraction < s["config"].gpu_memory_fraction,
    "gcylon_context_create_with_comm": lambda s: s["half"] is gl.current() and s["half"].size == 1,
    "gcylon_context_create_mpi": lambda s: s["context"] is gl.current(),
    "gcylon_context_get_rank": lambda s: s["rank"] == s["MPI"].COMM_WORLD.rank,
    "gcylon_context_get_world_size": lambda s: s["size"] == SIZE,
    "gcylon_get_device_count": lambda s: s["count"] >= 0,
    "gcylon_set_device": lambda s: s["device"] == "cpu",
    "gcylon_get_device": lambda s: s["device"] == "cpu",
    "gcylon_get_gpu_memory_info": lambda s: s["free"] + s["used"] == s["total"] > 0,
    "gcylon_table_from_cudf": lambda s: isinstance(s["t"], gl.Table),
    "gcylon_table_create_sequential": lambda s: s["u"].local()["k"].tolist() == list(range(0, 20, 2)),
    "gcylon_table_create_random": lambda s: s["r"].shape == (10, 2),
    "gcylon_table_get_cudf": lambda s: s["mine"].equals(s["frame"]),
    "gcylon_table_num_rows": lambda s: s["rows"] == 10,
    "gcylon_table_num_columns": lambda s: s["columns"] == 2,
    "gcylon_shuffle": lambda s: s["shuffled"].partitioning.keys == ("k",) and s["shuffled"].count_rows() == 20,
    "gcylon_allgather": lambda s: s["everywhere"].local()["x"].tolist() == list(range(20)),
    "gcylon_gather": lambda s: s["gathered"].num_rows == (20 if s["rank"] == 0 else 0),
    "gcylon_broadcast": lambda s: s["told"].local()["x"].tolist() == list(range(10)),
    "gcylon_distributed_join": lambda s: s["joined"].count_rows() == 20,
    "gcylon_distributed_sort": lambda s: s["ordered"].to_pandas()["k"].tolist() == sorted([*range(10)] * 2)[::-1],
    "gcylon_repartition": lambda s: s["cut"].num_rows == [5, 15][s["rank"]],
    "gcylon_status_string": lambda s: s["status"] == ColumnMissing.__name__,
    "gcylon_get_last_error": lambda s: "'nowhere'" in s["message"] and "The columns are" in s["message"],
    "gcylon_table_free": lambda s: s["t"].released,
    "gcylon_context_free": lambda s: s["context"].transport is not None and s["r"].released,
}


def lines() -> list[tuple[list[str], str]]:
    """The table's lines: names in C, and Python."""
    found = re.findall(r"^\| (`gcylon_.*?) \| `(.*)` \|$", PAGE, re.MULTILINE)
    return [(re.findall(r"`(\w+)`", names), code) for names, code in found]


def walk(table: list[tuple[list[str], str]]) -> list[str]:
    """Run all lines on this rank; return the C functions whose line did not give what it should."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    frame = pd.DataFrame({"k": np.arange(10), "x": np.arange(10) + 10 * rank})
    space: dict[str, Any] = {"gl": gl, "np": np, "pd": pd, "MPI": MPI, "frame": frame}
    wrong = []
    for names, code in table:
        if "error" in code:
            space["error"] = failed(space["t"])
        exec(code, space)
        wrong += [name for name in names if not CHECKS[name](space)]
    return wrong


def failed(table: gl.Table) -> gl.GcylonError:
    try:
        table.shuffle("nowhere")
    except gl.GcylonError as error:
        return error
    raise AssertionError("a column that is none was taken for one")


def test_every_function_has_its_line() -> None:
    assert sorted(name for names, _ in lines() for name in names) == sorted(CHECKS)


@pytest.mark.mpi
def test_every_line_runs_on_mpi_ranks() -> None:
    assert World("mpi", SIZE).run(walk, lines()) == [[]] * SIZE


def not_one() -> str:
    try:
        gl.initialize(comm=3)  # type: ignore[arg-type]
    except gl.GcylonError as error:
        return str(error)
    return ""


def test_what_is_no_communicator_is_refused() -> None:
    assert "Expected a communicator for comm and no transport, got comm=3" in not_one()
