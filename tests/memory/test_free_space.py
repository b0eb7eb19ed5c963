"""What the tiers below the device can still take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gcylon_lab.memory.tiers import free_space
from gcylon_lab.memory.tiers.disk_tier import SpillStore
from gcylon_lab.memory.tiers.free_space import UNKNOWN, disk_room


def test_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = os.statvfs(tmp_path)
    monkeypatch.setattr(free_space, "file_system", lambda folder: "ext4")
    plain = SpillStore(str(tmp_path)).room()
    assert plain.most_bytes == plain.disk_bytes == pytest.approx(stat.f_bavail * stat.f_frsize, rel=0.1)
    assert (plain.pinned_bytes, plain.disk) == (0, str(os.stat(tmp_path).st_dev))
    monkeypatch.setattr(free_space, "file_system", lambda folder: "btrfs")  # which may compress what is written
    assert disk_room(str(tmp_path)).most_bytes > 8 * plain.disk_bytes
    assert disk_room(str(tmp_path / "missing")).most_bytes == UNKNOWN
