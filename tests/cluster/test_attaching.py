"""A new notebook kernel takes over ranks that are in the middle of something, or not all there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import gcylon_lab as gl
from gcylon_lab.cluster.client import reattach, session
from gcylon_lab.cluster.rank_info import check_complete
from gcylon_lab.errors import ClusterDegraded, ClusterError

OWNER = """
import time
import pandas as pd
import gcylon_lab as gl
lab = gl.Cluster(2, name={name!r}, grace_s=30, progress=False)
print([r.pid for r in lab.ranks], flush=True)
def one_skips():
    table = gl.from_local(pd.DataFrame({{"k": [1, 2]}}))
    return table.shuffle("k").num_rows if gl.current().rank == 0 else None
{work}
"""


def start_owner(name: str, work: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A process with a cluster of two ranks, and the ranks' processes."""
    code = OWNER.format(name=name, work=work)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().strip(" []\n").split(",")]


@pytest.mark.mpi
def test_a_rank_that_waits_for_a_lost_kernel_is_freed(runtime_dir: str) -> None:
    owner, pids = start_owner("waits", "print('begins', flush=True); lab.run(one_skips)")
    assert owner.stdout is not None and owner.stdout.readline().startswith("begins")
    owner.kill()
    owner.wait()
    with gl.Cluster.attach("waits", progress=False) as lab:
        assert lab.run(os.getpid) == pids


@pytest.mark.mpi
def test_a_rank_that_is_gone_is_named(runtime_dir: str) -> None:
    owner, pids = start_owner("hurt_before", "time.sleep(600)")
    os.kill(pids[1], signal.SIGKILL)
    owner.kill()
    owner.wait()
    try:
        with pytest.raises(ClusterDegraded, match="rank 1 is gone .*Killed") as caught:
            gl.Cluster.attach("hurt_before", progress=False)
        assert "gl.Cluster(2)" in caught.value.advice and caught.value.numbers["lost_ranks"] == [1]
        # It was not taken: this process is not its owner, so what is left ends by itself.
        with pytest.raises(ClusterDegraded, match="rank 1 is gone"):
            gl.Cluster.attach("hurt_before", progress=False)
    finally:
        os.kill(pids[0], signal.SIGKILL)


def test_how_a_rank_ended_may_be_said_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter(["", "", "signal Killed"])
    late = SimpleNamespace(launcher=SimpleNamespace(exit_of=lambda rank: next(said)))
    assert session.Session._exit_of(late, 1, time.monotonic()) == "signal Killed"  # type: ignore[arg-type]
    silent = SimpleNamespace(launcher=SimpleNamespace(exit_of=lambda rank: ""))
    monkeypatch.setattr(session, "_LAST_WORDS_S", 0.05)
    assert session.Session._exit_of(silent, 1, time.monotonic()) == ""  # type: ignore[arg-type]


def busy(rank: int, running: str, operation: int = 0, verb: str = "") -> dict[str, Any]:
    progress = {"verb": verb, "round": 1, "rounds": 4} if verb else None
    return {
        "rank": rank, "pid": 100 + rank, "running": running, "operation": operation, "progress": progress,
        "revoked": False, "requests": 1,
    }  # fmt: skip


def test_a_rank_that_turns_out_to_be_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reattach, "_EVERY_S", 0.01)
    asked: list[int] = []

    def ask(each: Any) -> list[Any]:
        asked.append(len(each))
        return [busy(0, ""), None]

    reattach.wait_until_idle(ask, 2, 5.0, has_fewer=lambda: len(asked) >= 3)
    assert asked == [2, 2, 2]


def test_ranks_that_stay_busy_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reattach, "_SAID_AFTER_S", 0.05)
    monkeypatch.setattr(reattach, "_EVERY_S", 0.02)
    states = [busy(1, "run", 3, "shuffle"), busy(0, "run", 3), None]
    said = r"rank 1 \(pid 101\) is in shuffle round 1/4; rank 0 \(pid 100\) runs run; one does not answer"
    with (
        pytest.warns(UserWarning, match=f"attach waits for the ranks: {said}"),
        pytest.raises(ClusterError, match=f"still busy after .*: {said}"),
    ):
        reattach.wait_until_idle(lambda asked: states, 3, 0.2)


def test_only_the_waiting_rank_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reattach, "_STRANDED_S", 0.05)
    monkeypatch.setattr(reattach, "_EVERY_S", 0.02)
    freed: list[list[str]] = []

    def ask(contents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        asked = [content["ask"] for content in contents]
        if "free" in asked:
            freed.append(asked)
        # The engines are not in the order of their ranks.
        return [busy(1, ""), busy(0, "" if freed else "run", 1, "shuffle")]

    reattach.wait_until_idle(ask, 2, 5.0)
    assert freed == [["state", "free"]]


def test_which_ranks_are_gone() -> None:
    answers = [{"rank": 2, "size": 3}]
    with pytest.raises(ClusterDegraded, match=r"ranks 0-1 are gone \(rank 0: signal 9; rank 1: its launcher"):
        check_complete(answers, 3, lambda rank: "" if rank else "signal 9")
    check_complete([{"rank": 0, "size": 1}] * 3, 3, str)  # never one world: that is told otherwise
    check_complete([{"rank": rank, "size": 3} for rank in range(3)], 3, str)
