"""Fixtures for tests that run on ranks."""

from __future__ import annotations

import pytest
from worlds import World

EVERY_WORLD = [
    World("single", 1),
    World("threads", 1),
    World("threads", 2),
    World("threads", 3),
    World("threads", 4),
    pytest.param(World("mpi", 2), marks=pytest.mark.mpi),
    pytest.param(World("mpi", 4), marks=pytest.mark.mpi),
]


@pytest.fixture(params=EVERY_WORLD, ids=str)
def world(request: pytest.FixtureRequest) -> World:
    """Every kind of world, from one rank to four."""
    return request.param


@pytest.fixture(params=EVERY_WORLD[2:], ids=str)
def several(request: pytest.FixtureRequest) -> World:
    """The worlds of more than one rank."""
    return request.param


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try what needs a real browser again before it counts as failed: starved of a core, a page misses its times."""
    for item in items:
        if item.get_closest_marker("browser") is not None:
            item.add_marker(pytest.mark.flaky(reruns=2))
