"""SIGTERM of a rank, at any time: as any other end of a process it is an error soon, which names it and the signal."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_stopped import frame, sleeps_on, sort_for

import gcylon_lab as gl
from gcylon_lab.errors import ClusterDegraded, RankLost

pytestmark = pytest.mark.mpi

# Five seconds are promised; a machine that runs twenty processes on two cores notices them some seconds late.
SOON_S = 9.0


def read_for(path: str, seconds: float) -> int:
    """Read a file again and again; all ranks as often."""
    until, more = time.monotonic() + seconds, True
    while more:
        gl.read_csv(path).release()
        more = bool(gl.current().transport.agree(np.array([time.monotonic() < until], dtype=np.int64)).all())
    return 1


def write_for(table: gl.Table, path: str, seconds: float) -> int:
    """Write a table again and again; all ranks as often."""
    until, number, more = time.monotonic() + seconds, 0, True
    while more:
        table.write_parquet(f"{path}/{number}")
        number, more = number + 1, time.monotonic() < until
        more = bool(gl.current().transport.agree(np.array([more], dtype=np.int64)).all())
    return number


@pytest.fixture(scope="module", autouse=True)
def mended(hurt: gl.Cluster) -> Any:
    """Leave a cluster that works."""
    yield
    hurt.restart()


@pytest.mark.parametrize("then", ["to_pandas", "run", "memory", "sort", "read", "write"])
def test_the_rank_and_the_signal_are_named(hurt: gl.Cluster, then: str, tmp_path: Path) -> None:
    if hurt._session.channel.lost:
        hurt.restart()
    table, pid = hurt.from_pandas(frame()), hurt.ranks[1].pid
    frame().to_csv(tmp_path / "rows.csv", index=False)
    calls: dict[str, Callable[[], Any]] = {
        "to_pandas": table.to_pandas,
        "run": lambda: hurt.run(sleeps_on, 0, 0.0),
        "memory": hurt.memory,
        "sort": lambda: hurt.run(sort_for, table, 60),
        "read": lambda: hurt.run(read_for, str(tmp_path / "rows.csv"), 60),
        "write": lambda: hurt.run(write_for, table, str(tmp_path), 60),
    }
    idle = then in ("to_pandas", "run", "memory")
    ended = threading.Timer(0.0 if idle else 1.0, os.kill, (pid, signal.SIGTERM))
    ended.start()
    if idle:
        ended.join()
    began = time.monotonic()
    # Whether it is known to be gone when the request is made is a matter of milliseconds.
    kinds = (RankLost, ClusterDegraded) if idle else RankLost
    with pytest.raises(kinds, match=rf"rank 1 \(host .*, pid {pid}\) is gone: signal Terminated") as caught:
        calls[then]()
    assert time.monotonic() - began < SOON_S
    assert caught.value.numbers["lost_ranks"] == [1]
    assert then not in ("sort", "read", "write") or caught.value.rank == 1
