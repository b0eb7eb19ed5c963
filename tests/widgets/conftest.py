"""A played-back cluster, dashboards that are closed whatever happens, a browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import comm
import pytest
from replay import Replay, ReplaySource

from gcylon_lab.bench.dashboard.page import chromium, find_chromium
from gcylon_lab.ui.dashboard import Dashboard


@pytest.fixture
def source() -> ReplaySource:
    """A cluster of four ranks, at its beginning."""
    return ReplaySource(Replay(4))


@pytest.fixture
def dashboard(source: ReplaySource) -> Iterator[Dashboard]:
    """A dashboard of `source` that has not been shown."""
    made = Dashboard(source)
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium; without it these tests are skipped, but never in CI."""
    if find_chromium() is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no Chromium here (apt-get install chromium)")
    with chromium() as made:
        yield made


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widgets stand on no page, also where another test's imports gave this process a kernel's way to one, with which
    they would send nothing."""
    monkeypatch.setattr(comm, "create_comm", comm.DummyComm)
