"""Who owns the engines, and when nobody does any more."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gcylon_lab.cluster.launch.lease import Lease, LeaseHeartbeat, LeaseMonitor, Owner, this_system


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_killed_process_is_gone_even_before_it_is_reaped() -> None:
    process = sleeper()
    owner = Owner.of(process.pid)
    assert owner.is_alive()
    process.kill()
    deadline = time.monotonic() + 5
    while owner.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not owner.is_alive()  # nobody has waited for it: it is a zombie
    process.wait()
    assert not owner.is_alive()


def test_a_later_process_of_the_same_number_is_another() -> None:
    mine = Owner.this_process()
    assert mine.is_alive()
    assert not Owner(mine.host, mine.pid, mine.started - 1000).is_alive()


def test_a_lease_is_private_and_says_who_owns(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lease.json")
    assert lease.owner() is None
    lease.claim()
    assert stat.S_IMODE(lease.path.stat().st_mode) == 0o600
    assert lease.owner() == Owner.this_process()


def test_a_vigil_is_over_only_after_the_grace_time(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lease.json")
    lease.claim()
    vigil = LeaseMonitor(lease, grace_s=0.2)
    assert not vigil.is_over()
    lease.path.unlink()
    assert not vigil.is_over()
    time.sleep(0.25)
    assert vigil.is_over()
    lease.claim()  # a new owner came
    assert not vigil.is_over()


def test_a_vigil_is_over_at_once_when_the_owner_says_so(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lease.json")
    lease.claim(closed=True)
    assert LeaseMonitor(lease, grace_s=1000).is_over()


def test_a_keeper_claims_again_what_was_swept_away(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lease.json")
    keeper = LeaseHeartbeat(lease, every_s=0.02)
    keeper.start()
    lease.path.unlink()
    deadline = time.monotonic() + 5
    while lease.owner() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    keeper.stop()
    assert lease.owner() == Owner.this_process()


def test_an_owner_of_another_container_is_heard_by_what_it_renews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process numbers of another namespace say nothing here, nor does its clock."""
    lease = Lease(tmp_path / "lease.json")
    elsewhere = replace(Owner.of(os.getpid()), host=this_system() + "0", pid=2**22 + 1)  # no process here has it

    def renew(at: float) -> None:
        lease.path.write_text(json.dumps(asdict(elsewhere)))
        os.utime(lease.path, (at, at))

    now = [time.monotonic()]
    monkeypatch.setattr("gcylon_lab.cluster.launch.lease.time.monotonic", lambda: now[0])
    vigil = LeaseMonitor(lease, grace_s=10)
    for number in range(5):
        renew(1e6 + number)  # by a clock of 1970
        now[0] += 20
        assert not vigil.is_over()
    now[0] += 29
    assert not vigil.is_over()
    now[0] += 2
    assert not vigil.is_over()  # not heard for too long: the grace time begins
    now[0] += 11
    assert vigil.is_over()
