"""The config of a cluster, set while it runs: the same on all ranks and here, or nowhere."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import gcylon_lab as gl
from gcylon_lab.cluster.client import session
from gcylon_lab.errors import ConfigError, RankStopped

pytestmark = pytest.mark.mpi


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
        with pytest.raises(RankStopped, match=r"Rank 1 \(host .*\) is stopped"):
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
