"""Scratch arrays: used again when free, never while anything refers to them, bounded."""

import threading

import numpy as np
import pytest

from gcylon_lab.backends.host.keys import scratch_pool
from gcylon_lab.backends.host.keys.scratch_pool import KEPT_BYTES, scratch

INT64 = np.dtype(np.int64)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.fixture(autouse=True)
def own_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests before have left is not looked at first."""
    monkeypatch.setattr(scratch_pool, "_local", scratch_pool._Local())
    monkeypatch.setattr(scratch_pool, "_bound", KEPT_BYTES)


def test_free_memory_is_used_again() -> None:
    first = scratch(10_000, INT64)
    place = address(first)
    del first
    again = scratch(10_000, INT64)
    assert address(again) == place
    assert address(scratch(10_000, INT64)) != place


def test_views_and_memoryviews_keep_it() -> None:
    for keep in (lambda a: a[5:], lambda a: a.view(np.uint8), lambda a: a.data, lambda a: memoryview(a)[3:]):
        array = scratch(20_000, INT64)
        place, kept = address(array), keep(array)
        del array
        assert address(scratch(20_000, INT64)) != place
        del kept
        assert place in {address(buffer) for buffer in scratch_pool._local.pool.buffers}


def test_what_stays_is_bounded() -> None:
    held = [scratch(KEPT_BYTES // 40, np.dtype(np.uint8)) for _ in range(100)]
    assert sum(buffer.nbytes for buffer in scratch_pool._local.pool.buffers) <= KEPT_BYTES
    del held
    large = scratch(KEPT_BYTES, INT64)
    assert all(not np.shares_memory(large, buffer) for buffer in scratch_pool._local.pool.buffers)
    for size in range(1000, 200_000, 997):
        scratch(size, INT64)
    assert sum(buffer.nbytes for buffer in scratch_pool._local.pool.buffers) <= KEPT_BYTES


def test_under_a_small_budget_less_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [scratch(100_000, np.dtype(np.uint8)) for _ in range(100)]
    monkeypatch.setattr(scratch_pool, "_bound", KEPT_BYTES)
    scratch_pool.bound_scratch(4 * 1024**2)
    del held
    for size in range(100_000, 200_000, 2000):
        scratch(size, np.dtype(np.uint8))
    assert scratch_pool.scratch_state().held_bytes <= 2 * 1024**2
    scratch_pool.bound_scratch(1024**3)
    assert scratch_pool._bound == KEPT_BYTES


def test_threads_do_not_share() -> None:
    mine = scratch(30_000, INT64)
    place = address(mine)
    del mine
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(address(scratch(30_000, INT64))))
    thread.start()
    thread.join()
    assert found[0] != place


def test_empty() -> None:
    assert scratch(0, INT64).shape == (0,) and scratch(0, INT64).dtype == INT64


def test_thousands_of_arrays_take_no_longer_each(monkeypatch) -> None:
    looks = [0]
    references = scratch_pool._references

    def counted(buffers: list, place: int) -> int:
        looks[0] += 1
        return references(buffers, place)

    monkeypatch.setattr(scratch_pool, "_references", counted)
    held = [scratch(10_000, INT64) for _ in range(3000)]
    assert looks[0] <= 40 * len(held)
