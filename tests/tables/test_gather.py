"""Rows of fixed columns by number on GPUs, by one kernel for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.gpu

ROWS = 100_003
DTYPES = ["int8", "bool", "uint16", "int32", "float32", "int64", "float64", "complex128", "uint8", "uint64"]


@pytest.fixture
def arrays(cudf_backend: Any) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(11)
    return [random.integers(0, 100, ROWS).astype(dtype) for dtype in DTYPES]


def taken(arrays: list[np.ndarray[Any, Any]], rows: Any) -> list[np.ndarray[Any, Any]]:
    import cupy

    from gcylon_lab.backends.cudf.kernels.gather import take_fixed

    there = rows if isinstance(rows, slice) else cupy.asarray(rows)
    return [array.get() for array in take_fixed([cupy.asarray(array) for array in arrays], there)]


@pytest.mark.parametrize("count", [0, 1, 31, 1024, 1025, 250_001])
@pytest.mark.parametrize("numbers", ["int32", "int64", "uint32"])
def test_rows_by_number(arrays: list[Any], numbers: str, count: int) -> None:
    rows = np.random.default_rng(count).integers(0, ROWS, count).astype(numbers)
    for mine, array in zip(taken(arrays, rows), arrays, strict=True):
        np.testing.assert_array_equal(mine, array[rows])


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, ROWS), (7, 8), (1023, 5000), (ROWS - 1, ROWS)])
def test_a_run_of_rows(arrays: list[Any], start: int, stop: int) -> None:
    for mine, array in zip(taken(arrays, slice(start, stop)), arrays, strict=True):
        np.testing.assert_array_equal(mine, array[start:stop])


def test_views_and_no_columns(arrays: list[Any]) -> None:
    rows = np.arange(0, 900, 3)
    for mine, array in zip(taken([array[17:] for array in arrays], rows), arrays, strict=True):
        np.testing.assert_array_equal(mine, array[17:][rows])
    assert taken([], rows) == []
