"""What a rank may count on at start: the smaller of what the machine and the control group leave."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from gcylon_lab.memory import available
from gcylon_lab.memory.available import available_bytes, cgroup_left_bytes, total_bytes


def with_files(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    """Let the files of the kernel hold other text; those not named do not exist."""

    def read(path: Path) -> str:
        if str(path) not in files:
            raise FileNotFoundError(str(path))
        return files[str(path)]

    monkeypatch.setattr(Path, "read_text", read)


V2, V1 = "/sys/fs/cgroup/memory.", "/sys/fs/cgroup/memory/memory."
MEMINFO = {"/proc/meminfo": "MemTotal:       8000000 kB\nMemAvailable:   5000000 kB\n"}


def test_of_this_machine() -> None:
    assert 1 <= available_bytes() <= psutil.virtual_memory().total


def test_machine_where_no_group_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with_files(monkeypatch, MEMINFO | {f"{V2}max": "max\n", f"{V2}current": "123\n"})
    assert available_bytes() == 5_000_000 * 1024
    assert cgroup_left_bytes() > 2**50


@pytest.mark.parametrize(
    "group",
    [
        {f"{V2}max": "4000000\n", f"{V2}current": "1000000\n"},
        {f"{V1}limit_in_bytes": "4000000\n", f"{V1}usage_in_bytes": "1000000\n"},
    ],
    ids=["version 2", "version 1"],
)
def test_what_the_group_leaves(monkeypatch: pytest.MonkeyPatch, group: dict[str, str]) -> None:
    with_files(monkeypatch, MEMINFO | group)
    assert available_bytes() == 3_000_000


def test_never_less_than_one_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    with_files(monkeypatch, MEMINFO | {f"{V2}max": "1000\n", f"{V2}current": "2000\n"})
    assert available_bytes() == 1


def test_where_the_kernel_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with_files(monkeypatch, {})
    assert available_bytes() == psutil.virtual_memory().total
    assert available._machine_bytes() == available_bytes()


def test_all_memory_is_the_groups_where_it_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_bytes() <= total_bytes() <= psutil.virtual_memory().total
    with_files(monkeypatch, MEMINFO | {f"{V2}max": "4096000\n", f"{V2}current": "123\n"})
    assert total_bytes() == 4_096_000
