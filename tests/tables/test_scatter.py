"""Rows that a kernel writes straight to where they belong: the same as partitioned ones, whatever the pieces."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.gpu


def wide_frame(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    columns: dict[str, Any] = {f"c{i}": rng.integers(0, 2**62, rows) for i in range(8)}  # more than one launch takes
    columns |= {"b": rng.random(rows) < 0.5, "i2": np.arange(rows).astype("int16"), "f4": rng.random(rows, "f4")}
    return pd.DataFrame({"row": np.arange(rows)} | columns)


def scattered(
    backend: Any, data: Any, ids: Any, n: int, edges: list[int], before: int, ids_each: int = 1, some: Any = None
) -> Any:
    """Scatter into outputs of this process, or only rows of some ids; ``before`` rows of each are there already."""
    import cupy

    scattering = backend.scattering(ids, n, edges, ids_each=ids_each)
    if some is not None:
        scattering = scattering.chosen(*some)
    assert scattering.rows.shape == (len(edges) - 1, n) and not scattering.aimed
    counts = scattering.rows.sum(axis=0)
    outputs = [backend.allocate(data.schema, int(count) + before) for count in counts]
    views = [output.fixed_views(0, int(count) + before) for output, count in zip(outputs, counts, strict=True)]
    for view in views:
        for column in view:
            column[:] = 0xEE
    widths = [array.dtype.itemsize for array in data.fixed]
    addresses = [[v.data.ptr + before * w for v, w in zip(view, widths, strict=True)] for view in views]
    scattering.aim(np.array(addresses, dtype=np.int64), widths)
    for place, (start, stop) in enumerate(pairwise(edges)):
        scattering.put(place, [backend.slice(data, start, stop)])
    cupy.cuda.get_current_stream().synchronize()
    for view in views:
        for column, width in zip(view, widths, strict=True):
            assert (column[: before * width] == 0xEE).all()  # nothing of others is overwritten
    return scattering.rows, [output.finish() for output in outputs]


@pytest.mark.parametrize("n", [2, 3, 4, 17, 256])
@pytest.mark.parametrize(
    "edges",
    [[0, 20_000], [0, 1, 20_000], [0, 4096, 8192, 20_000], [0, 5000, 9097, 9098, 20_000], list(range(0, 20_001, 500))],
    ids=len,
)
def test_every_row_is_where_partition_puts_it(cudf_backend: Any, n: int, edges: list[int]) -> None:
    data = cudf_backend.from_frame(wide_frame(edges[-1]))
    ids = cudf_backend.device.partition_ids(data, ["c0"], n)
    rows, results = scattered(cudf_backend, data, ids, n, edges, before=3)
    host_ids = ids.get()
    for place, (start, stop) in enumerate(pairwise(edges)):
        assert np.array_equal(rows[place], np.bincount(host_ids[start:stop], minlength=n))
    parted, offsets = cudf_backend.partition(data, ids, n)
    for target, result in enumerate(results):
        want = cudf_backend.slice(parted, int(offsets[target]), int(offsets[target + 1]))
        for mine, theirs in zip(result.fixed, want.fixed, strict=True):
            assert (mine[3:].view("u1") == theirs.view("u1")).all()


@pytest.mark.parametrize("target", [0, 3])
def test_all_rows_to_one(cudf_backend: Any, target: int) -> None:
    import cupy

    data = cudf_backend.from_frame(wide_frame(10_000))
    ids = cupy.full(10_000, target, cupy.uint8)
    rows, results = scattered(cudf_backend, data, ids, 4, [0, 3000, 10_000], before=0)
    assert rows.sum(axis=0).tolist() == [10_000 if i == target else 0 for i in range(4)]
    pd.testing.assert_frame_equal(_frame(cudf_backend, results[target]), _frame(cudf_backend, data))


@pytest.mark.parametrize(
    ("n", "first", "last"), [(2, 0, 1), (2, 3, 8), (2, 127, 128), (4, 0, 20), (4, 1, 64), (2, 0, 128)]
)
@pytest.mark.parametrize("edges", [[0, 20_000], [0, 1, 4096, 5000, 20_000]], ids=len)
def test_only_rows_of_some_ids_travel(cudf_backend: Any, n: int, first: int, last: int, edges: list[int]) -> None:
    data = cudf_backend.from_frame(wide_frame(edges[-1]))
    ids = cudf_backend.device.partition_ids(data, ["c0"], 256)
    rows, results = scattered(cudf_backend, data, ids, n, edges, 2, 256 // n, (first, last))
    host = ids.get().astype(np.int64) - first * n
    host[(host < 0) | (host >= n * (last - first))] = -1
    for place, (start, stop) in enumerate(pairwise(edges)):
        piece = host[start:stop]
        assert rows[place].tolist() == [int(((piece >= 0) & (piece % n == rank)).sum()) for rank in range(n)]
    numbers = np.asarray(data.array("row").get() if hasattr(data.array("row"), "get") else data.array("row"))
    for rank, result in enumerate(results):
        mine = np.flatnonzero((host >= 0) & (host % n == rank))
        order = mine[np.argsort(host[mine], kind="stable")]  # id after id, and each in the order of its rows
        assert np.array_equal(np.asarray(result.array("row").get())[2:], numbers[order])
        for got, column in zip(result.fixed, data.fixed, strict=True):
            assert np.array_equal(got.get()[2:], column.get()[order], equal_nan=got.dtype.kind == "f")


def _frame(backend: Any, data: Any) -> pd.DataFrame:
    frame = backend.to_frame(data)
    return frame.to_pandas() if hasattr(frame, "to_pandas") else frame
