"""A played-back cluster, and dashboards that are closed whatever happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from replay import Replay, ReplaySource

from gcylon_lab.widgets.dashboard import Dashboard


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
