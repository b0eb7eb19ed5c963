"""Fixtures for tests of tables."""

from __future__ import annotations

from typing import Any

import pytest
from backends import SeenFromHost, gpu_missing

from gcylon_lab.backends.host.backend import PandasBackend


@pytest.fixture(scope="session", params=["pandas", pytest.param("cudf", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Any:
    """Every backend; the cuDF one where there is a GPU."""
    if request.param == "pandas":
        return PandasBackend()
    if gpu_missing():
        pytest.skip(gpu_missing())
    return SeenFromHost()


@pytest.fixture(scope="session")
def cudf_backend() -> Any:
    """The cuDF backend, where there is a GPU."""
    if gpu_missing():
        pytest.skip(gpu_missing())
    return SeenFromHost()
