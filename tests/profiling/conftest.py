"""Fixtures of the profiling tests."""

from __future__ import annotations

import pytest

from gcylon_lab.profiling import snapshot, spans


class Clock:
    """Stands in for `perf_counter_ns`; passes only when told to."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def pass_ns(self, ns: int) -> None:
        """Let time pass."""
        self.now_ns += ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock in the hand of the test, under spans and snapshots."""
    turned = Clock(1_000)
    for module in (spans, snapshot):
        monkeypatch.setattr(module, "perf_counter_ns", turned)
    return turned
