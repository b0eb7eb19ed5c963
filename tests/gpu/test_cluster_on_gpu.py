"""A notebook's cluster on GPU engines: the choice is shown, rows are right, ranks that fail are survived.

    python -m pytest tests/gpu/test_cluster_on_gpu.py

A rank for each GPU, at least two, which then share one. Needs a GPU with cuDF; is skipped elsewhere.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from exchanges_on_gpu import frame_of, same, sorted_rows
from ipyparallel.error import CompositeError
from on_ranks import agree, arm, disarm, rank_1_raises, shuffle_on_and_on, shuffled_rows, state

import gcylon_lab as gl
from gcylon_lab.errors import ClusterDegraded, GcylonError, RankError, RankLost, Revoked
from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.nvml import visible_gpus

RANKS = max(2, len(visible_gpus()))
STRATEGIES = ("direct", "chunked", "staged")
PROMISED_S = 5.0
ROUTES = {"peer": "peer puts", "nccl": "NCCL", "host": "host memory"}
SMALL_CHUNKS = gl.GcylonConfig(chunk_size_bytes="1MiB", min_chunk_rows=64)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.mpi,
    pytest.mark.skipif(not visible_gpus() or bool(why_unavailable()), reason="there is no GPU that can be used"),
]


@pytest.fixture(scope="module", params=list(ROUTES))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[gl.Cluster]:
    """A rank for each GPU; rows travel by each route in turn."""
    route = request.param
    if route == "nccl" and len(visible_gpus()) < RANKS:
        pytest.skip("NCCL wants a GPU for each rank")
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {"GCYLON_TRANSPORT": "auto" if route == "peer" else route, "PYTHONPATH": os.pathsep.join(paths)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        config = gl.GcylonConfig(gpu_memory_limit="4GiB", host_memory_limit="2GiB")
        with gl.Cluster(RANKS, name=f"gpu_{route}", config=config, env=environment, progress=False) as cluster:
            cluster.route = ROUTES[route]  # type: ignore[attr-defined]
            yield cluster


def works(lab: gl.Cluster) -> None:
    """All ranks meet, and an operation's rows are right."""
    assert lab.run(agree) == [list(range(RANKS))] * RANKS
    frame = frame_of(5, 3000)
    table = lab.from_pandas(frame)
    shuffled = table.shuffle("k", strategy="chunked", config=SMALL_CHUNKS)
    same(sorted_rows(shuffled.local()), frame)
    shuffled.release()
    table.release()


def held(lab: gl.Cluster) -> list[dict[str, int]]:
    return lab.run(state)


@pytest.fixture
def big(lab: gl.Cluster) -> Iterator[Any]:
    """A table of some 100 MB a rank, and a check that nothing more than it is held once a test is over."""
    works(lab)
    lab.view.execute("import on_ranks; big = on_ranks.big_table(4_000_000)", silent=False)
    table = lab.table("big")
    before = held(lab)
    assert [rank["exposed"] for rank in before] == [0] * RANKS
    yield table
    if table.released:
        return  # the ranks were restarted
    works(lab)
    assert held(lab) == before, "something is left of what failed"
    rows = table.shuffle("k")
    whole = pd.concat(rows.local(), ignore_index=True)
    assert len(whole) == 4_000_000 * RANKS and whole["position"].is_unique
    assert (whole["v"] * 8 == whole["position"]).all()
    rows.release()
    lab.view.execute("del big", silent=False)
    table.release()


def test_the_choice_is_shown_with_its_reason(lab: gl.Cluster) -> None:
    route = lab.route  # type: ignore[attr-defined]
    for record in lab.ranks:
        assert record.device.startswith("NVIDIA")
        assert record.engines == "GPU engines, because every rank has a GPU and cuDF"
        assert record.route.startswith(f"{route}, because ")
    html = lab._repr_html_()
    assert lab.ranks[0].engines in html and lab.ranks[0].route in html and lab.ranks[-1].device in html
    log = lab._session.launcher.output()
    assert f"rank 1, {lab.ranks[1].device}: GPU engines, because" in log and f"rows travel by {route}" in log
    gpus = {record.device for record in lab.ranks}
    assert len(gpus) == min(RANKS, len(visible_gpus())), "ranks do not have a GPU each"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_handles_give_the_right_rows(lab: gl.Cluster, strategy: str) -> None:
    frame = frame_of(0, 20_000)
    table = lab.from_pandas(frame)
    before = held(lab)
    for config in (None, SMALL_CHUNKS):
        shuffled = table.shuffle("k", strategy=strategy, config=config)
        assert shuffled.last_plan is not None and shuffled.last_plan.strategy == strategy
        parts = shuffled.local()
        same(sorted_rows(parts), frame)
        keys = [set(part["k"]) for part in parts]
        assert sum(map(len, keys)) == len(set().union(*keys)), "a key is on two ranks"
        gathered = table.allgather(strategy=strategy, config=config)
        for part in gathered.local():
            same(part, frame)
        shuffled.release()
        gathered.release()
    assert held(lab) == before
    table.release()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_px_gives_the_right_rows(lab: gl.Cluster, strategy: str) -> None:
    frame = frame_of(1, 20_000)
    lab.from_pandas(frame).bind("orders")
    code = f"u = orders.shuffle('k', strategy={strategy!r}); mine = u.local(); kind = type(mine).__module__"
    lab.view.execute(code, silent=False)
    assert set(lab.view["kind"]) == {"cudf.core.dataframe"}
    same(sorted_rows([part.to_pandas() for part in lab.view["mine"]]), frame)
    same(sorted_rows(lab.table("u").local()), frame)
    lab.view.execute("del orders, u, mine", silent=False)


def test_a_rank_that_raises_in_its_cell(lab: gl.Cluster, big: Any) -> None:
    for _ in range(3):
        start = time.monotonic()
        with pytest.raises(CompositeError) as caught:
            lab.view.execute(
                "if gl.current().rank == 1: raise KeyError('in a cell')\nbig.shuffle('k').release()", silent=False
            )
        assert time.monotonic() - start < PROMISED_S
        assert [entry[0] for entry in caught.value.elist] == ["KeyError"]
        works(lab)
        with pytest.raises(RankError, match="on purpose"):
            lab.run(rank_1_raises)
        works(lab)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_interrupt_in_the_middle_of_operations(lab: gl.Cluster, big: Any, strategy: str) -> None:
    draws = random.Random(3)
    lab.config = lab.config.with_values(chunk_size_bytes="2MiB")
    for _ in range(4):
        timer = threading.Timer(draws.uniform(0.2, 0.5), lab.interrupt)
        timer.start()
        with pytest.raises(Revoked):
            lab.run(shuffle_on_and_on, big, strategy, 30.0)
        timer.join()
        works(lab)
    pid = lab.ranks[1].pid  # and one rank alone, of which the notebook knows nothing
    timer = threading.Timer(0.3, os.kill, (pid, signal.SIGINT))
    timer.start()
    with pytest.raises(Revoked):
        lab.run(shuffle_on_and_on, big, strategy, 30.0)
    timer.join()
    lab.config = lab.config.with_values(chunk_size_bytes=0)


FAULTS = [
    ("backend", "partition", 2, True, "OSError"),
    ("backend", "partition", 3, False, "MemoryError"),
    ("backend", "partition_ids", 3, True, "KeyboardInterrupt"),
    ("backend", "allocate", 1, True, "MemoryError"),
    ("transport", "exchange", 1, False, "OSError"),  # this rank's puts are queued, the others' too
    ("transport", "exchange", 3, True, "OSError"),
    ("transport", "exchange", 4, False, "KeyboardInterrupt"),
    ("transport", "finish", 3, True, "OSError"),
    ("transport", "finish", 4, False, "KeyboardInterrupt"),
    ("backend", "scattering", 1, True, "MemoryError"),
    ("transport", "writing", 1, True, "OSError"),  # where kernels write into the others' results
    ("transport", "writing", 3, True, "MemoryError"),
    ("transport", "writing", 4, True, "KeyboardInterrupt"),
]


@pytest.mark.parametrize("strategy", ["chunked", "staged"])
def test_a_rank_fails_while_copies_are_under_way(lab: gl.Cluster, big: Any, strategy: str) -> None:
    chunks = lab.config.with_values(chunk_size_bytes="2MiB")
    reached = 0
    late = []
    for number, (target, method, nth, before, kind) in enumerate(FAULTS):
        rank = number % RANKS
        lab.run(arm, rank, target, method, nth, before, kind)
        start = time.monotonic()
        try:
            big.shuffle("k", strategy=strategy, config=chunks).release()
        except GcylonError as error:
            reached += 1
            assert error.rank == rank or isinstance(error, Revoked), error
        took = time.monotonic() - start
        late += [f"{FAULTS[number]} on rank {rank} took {took:.2f} s"] if took >= PROMISED_S else []
        lab.run(disarm)
        works(lab)
    assert late == []
    assert reached >= len(FAULTS) // 2  # rows travel in messages or are written by kernels: no strategy calls all


@pytest.mark.parametrize("when", ["in operations", "outside"])
def test_a_killed_rank_is_told_in_time_and_a_restart_mends(lab: gl.Cluster, big: Any, when: str) -> None:
    pid, wait_s = lab.ranks[1].pid, 0.7
    killed = threading.Timer(wait_s, os.kill, (pid, signal.SIGKILL))
    killed.start()
    start = time.monotonic()
    with pytest.raises(RankLost, match=rf"rank 1 \(host .*, pid {pid}\) is gone: signal Killed") as caught:
        if when == "outside":
            lab.view.execute("import on_ranks; on_ranks.rank_1_sleeps(60)", silent=False)
        else:
            lab.run(shuffle_on_and_on, big, "chunked", 60.0)
    assert time.monotonic() - start < wait_s + PROMISED_S
    assert caught.value.rank == 1
    with pytest.raises(ClusterDegraded, match="restart"):
        big.shuffle("k")
    lab.restart()
    works(lab)
    assert lab.ranks[1].pid != pid and lab.ranks[1].route.startswith(lab.route)  # type: ignore[attr-defined]
    for strategy in STRATEGIES:
        assert sum(lab.run(shuffled_rows, 1_000_000, strategy)) == 1_000_000 * RANKS


def test_faults_in_a_row() -> None:
    """Many faults of every kind; `tests/faults/soak.py` with GPU ranks."""
    soak = Path(__file__).parents[1] / "faults" / "soak.py"
    command = [sys.executable, str(soak), "--ranks", "2", "--faults", "12", "--seed", "3"]
    paths = os.pathsep.join([str(soak.parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"GCYLON_ENGINE": "gpu", "PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "no hang, every next operation right" in done.stdout
