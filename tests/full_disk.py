"""A disk that is full for some files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gcylon_lab.formats import filesystems


def fill_the_disk_for(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Whoever creates a file of this name writes to /dev/full, which has no space left."""
    create = filesystems.create_exclusively

    def full(path: str | Path, mode: int) -> int:
        return os.open("/dev/full", os.O_WRONLY) if part in str(path) else create(path, mode)

    monkeypatch.setattr(filesystems, "create_exclusively", full)
