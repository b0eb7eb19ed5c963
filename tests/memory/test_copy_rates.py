"""How fast the machine copies: measured for the disk tier, once it has been used, once a folder."""

from __future__ import annotations

import threading
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import pytest

from gcylon_lab.memory.tiers import bandwidth
from gcylon_lab.memory.tiers.disk_tier import SpillStore


def test_a_disk_is_measured_by_writing_and_reading(tmp_path: Path) -> None:
    found = bandwidth.disk_rates(str(tmp_path), 1 << 20)
    assert set(found) == {"down", "up"} and all(1e4 < rate < 1e12 for rate in found.values())
    assert list(tmp_path.iterdir()) == []
    assert bandwidth.disk_rates(str(tmp_path / "missing")) == {}


def test_only_a_disk_in_use_is_measured_and_once_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    small = bandwidth.disk_rates
    monkeypatch.setattr(bandwidth, "disk_rates", lambda folder: measured.append(folder) or small(folder, 4096))
    store, known = SpillStore(str(tmp_path)), bandwidth.CopyRates({"pinned": {}})
    known.look(store)
    assert known.known == {} and measured == []
    region = store.new_file().append([np.ones(10, dtype=np.uint8).data])
    known.look(store)
    known.look(store)
    assert measured == [str(tmp_path)] and known.known["disk"]["down"] > 0
    other = tmp_path / "other"
    other.mkdir()
    store.set_folder(str(other))
    known.look(store)
    assert measured == [str(tmp_path), str(other)] and region.nbytes


def test_a_slow_disk_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(bandwidth, "disk_rates", lambda _: {"down": 1.0, "up": 2.0} if go_on.wait(30) else {})
    store, known = SpillStore(str(tmp_path)), bandwidth.CopyRates()
    region = store.new_file().append([np.ones(10, dtype=np.uint8).data])
    began = perf_counter()
    known.look(store, wait_s=0.05)
    known.look(store, wait_s=0.05)
    assert perf_counter() - began < 5 and known.known == {} and region.nbytes
    go_on.set()
    deadline = perf_counter() + 10
    while not known.known and perf_counter() < deadline:
        sleep(0.01)
    assert known.known == {"disk": {"down": 1.0, "up": 2.0}}
