"""The profile's GPU figures in real operations: what was hidden, and what NVML tells, on GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gcylon_lab.cluster.launch.mpiexec import find_mpiexec
from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.nvml import visible_gpus

PROGRAM = Path(__file__).with_name("figures_on_gpu.py")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not visible_gpus() or bool(why_unavailable()), reason="there is no GPU that can be used"),
]


def run(ranks: int, route: str) -> dict[str, Any]:
    mpi = find_mpiexec()
    command = [mpi.path, *mpi.arguments, "-n", str(ranks), sys.executable, str(PROGRAM)]
    environment = os.environ | mpi.environment | {"GCYLON_TRANSPORT": route, "PYTHONPATH": str(PROGRAM.parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["kind"] == "gpu", found["reason"]
    return found


def check(row: dict[str, Any], record: dict[str, Any], route: str) -> None:
    """What must hold of one rank's operation; prints what was found, beside the rate it would mean."""
    copy_s, wait_s = record["exchange_copy_ns"] / 1e9, record["exchange_wait_ns"] / 1e9
    moved = (record["received_bytes"] + record["sent_bytes"]) / 2
    hidden = "-" if row["hidden"] is None else f"{row['hidden']:.1%}"
    print(
        f"{route} {row['verb']} {row['strategy']} rank {row['rank']}: {row['seconds'] * 1e3:.2f} ms, "
        f"exchange span {record['phases'].get('exchange', 0) / 1e6:.2f} ms, copies {copy_s * 1e3:.3f} ms, "
        f"waited {wait_s * 1e3:.3f} ms, staging {record['staging_copy_ns'] / 1e6:.3f} ms, "
        f"waited {record['staging_wait_ns'] / 1e6:.3f} ms, hidden {hidden}, {moved / 1e6:.0f} MB moved"
    )
    assert row["hidden"] is None or 0 <= row["hidden"] <= 1
    assert 0 <= wait_s <= copy_s <= row["seconds"] and row["transfer_wait_s"] <= row["transfer_s"]
    if route != "host":  # what is under way beside the rank's work is not what it still queues
        assert copy_s <= row["seconds"] - record["phases"]["exchange"] / 1e9 + 0.001
    if row["verb"] == "shuffle":
        assert (record["staging_copy_ns"] > 0) == (row["strategy"] == "staged")


@pytest.mark.parametrize("ranks, route", [(2, "peer"), (2, "host"), (2, "nccl")])
def test_transfers_are_timed_and_gpus_are_counted_once(ranks: int, route: str) -> None:
    if route == "nccl" and len(visible_gpus()) < ranks:
        pytest.skip(f"NCCL wants a GPU a rank, and there are {len(visible_gpus())}")
    found = run(ranks, route)
    for row in found["ranks"]:
        record = next(r for r in found["operations"][row["rank"]] if r["number"] == row["number"])
        if row["verb"] in ("shuffle", "repartition"):
            check(row, record, route)
    if route == "host":
        assert {row["hidden"] for row in found["ranks"] if row["strategy"] in ("direct", "chunked")} == {0.0}
    gpus = found["gpus"]
    assert sorted(rank for gpu in gpus for rank in gpu["ranks"]) == list(range(ranks))
    assert len(gpus) == len({gpu["uuid"] for gpu in gpus}) == min(ranks, len(visible_gpus()))
    for gpu in gpus:
        assert gpu["used_bytes"] == gpu["held_bytes"] + gpu["outside_bytes"] and gpu["outside_bytes"] > 0
        assert max(told for told in gpu["utilisation"] if told is not None) <= 100
    print(found["costs"])
    assert found["costs"]["sampler_share"] < 0.02 and found["costs"]["timing_us"] < 200
