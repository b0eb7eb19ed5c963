"""What ranks have at start: a host's memory is shared once, evenly, and the environment is read by name."""

from __future__ import annotations

import threading

import pytest

from gcylon_lab.cli import doctor
from gcylon_lab.comm.threads import ThreadsWorld
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ConfigError
from gcylon_lab.runtime import devices
from gcylon_lab.runtime.context import current, run_threads
from gcylon_lab.runtime.devices import Topology, discover, read_ahead, read_device_pool
from gcylon_lab.units import GIB


def around(monkeypatch: pytest.MonkeyPatch, hosts: list[str], available: list[int]) -> list[Topology]:
    """What each of several ranks finds, on hosts and with memory that are made up."""
    mine = threading.local()
    monkeypatch.setattr(devices, "available_bytes", lambda: available[mine.rank])
    found: list[Topology | None] = [None] * len(hosts)
    transports = ThreadsWorld(len(hosts), 2**30).transports()

    def look(rank: int) -> None:
        mine.rank = rank
        transports[rank].host = hosts[rank]
        found[rank] = discover(transports[rank])

    threads = [threading.Thread(target=look, args=(rank,)) for rank in range(len(hosts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [each for each in found if each is not None]


def test_ranks_of_a_host_share_what_is_available_there(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ["big host", "big host", "small", "big host"]  # a name may hold blanks
    found = around(monkeypatch, hosts, [90 * GIB, 90 * GIB, 8 * GIB, 90 * GIB])
    assert [each.share_bytes for each in found] == [30 * GIB, 30 * GIB, 8 * GIB, 30 * GIB]
    assert all(each.hosts == tuple(hosts) for each in found)


def test_ranks_of_a_host_count_alike_where_one_saw_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that looks later sees less: no rank's share hangs on when it was scheduled."""
    found = around(monkeypatch, ["a", "a", "b"], [80 * GIB, 50 * GIB, 4 * GIB])
    assert [each.share_bytes for each in found] == [25 * GIB, 25 * GIB, 4 * GIB]


def test_a_share_is_never_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.share_bytes for each in around(monkeypatch, ["a", "a", "a"], [1, 1, 1])] == [1, 1, 1]


def test_cpu_engines_take_the_fraction_of_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "available_bytes", lambda: 8 * GIB)

    def ceilings() -> tuple[int, int, int, int]:
        context = current()
        free = context.equipment.free_at_start_bytes
        return context.budget.ceiling_bytes, free, context.local_size, context.local_rank

    config = GcylonConfig(gpu_memory_fraction=0.5)
    assert run_threads(4, ceilings, config=config) == [(GIB, 2 * GIB, 4, rank) for rank in range(4)]


@pytest.mark.parametrize("text, expected", [("", None), ("auto", None), ("0", 0), ("3GiB", 3 * GIB)])
def test_how_much_is_to_be_locked_ahead(monkeypatch: pytest.MonkeyPatch, text: str, expected: int | None) -> None:
    monkeypatch.setenv("GCYLON_PINNED_AHEAD", text)
    assert read_ahead() == expected


def test_no_size_is_an_error_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCYLON_PINNED_AHEAD", "plenty")
    with pytest.raises(ConfigError, match=r"GCYLON_PINNED_AHEAD='plenty'.*0 for none, or auto"):
        run_threads(1, current)
    assert doctor._pinned(1, GIB).status == doctor.FAIL
    assert [said.status for said in doctor._at_start()] == [doctor.FAIL]


def test_an_unknown_pool_is_an_error_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_device_pool() == "binning"
    monkeypatch.setenv("GCYLON_DEVICE_POOL", "arena")
    with pytest.raises(ConfigError, match=r"GCYLON_DEVICE_POOL='arena' is invalid.\n*.*auto, pool, binning"):
        run_threads(1, current)
    assert [said.status for said in doctor._at_start()] == [doctor.FAIL]


def test_the_doctor_says_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "available_bytes", lambda: 64 * GIB)
    said = doctor._pinned(2, 81559 * 2**20)
    assert said.value == "at most 16 GiB of host memory a rank (one a GPU), 8 GiB locked ahead of need"
    assert "The first 1 GiB before a rank is ready" in said.note
    monkeypatch.setenv("GCYLON_PINNED_AHEAD", "512MiB")
    monkeypatch.setenv("GCYLON_HOST_MEMORY_LIMIT", "20GiB")
    assert "at most 20 GiB of host memory a rank (one a GPU), 512 MiB" in doctor._pinned(2, GIB).value
    monkeypatch.setenv("GCYLON_USE_PINNED_MEMORY", "0")
    assert "use_pinned_memory is off" in doctor._pinned(2, GIB).value


def test_the_doctor_warns_of_checks_that_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(doctor._at_start())
    monkeypatch.setenv("GCYLON_POISON_FREED", "1")
    [said] = doctor._at_start()
    assert said.status == doctor.WARN and said.value == "memory that is given back is poisoned"
    monkeypatch.setenv("GCYLON_CHECK_OVERLAP", "maybe")
    [said] = doctor._at_start()
    assert said.status == doctor.FAIL and "GCYLON_CHECK_OVERLAP='maybe'" in said.value
