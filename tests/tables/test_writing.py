"""Texts, nullable numbers and decimals that kernels write to where they belong: the same rows as partitioned ones."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gcylon_lab.backends.host.column_buffers import can_write, planes_of

pytestmark = pytest.mark.gpu

EDGES = ([0, 20_000], [0, 1, 20_000], [0, 4096, 8192, 20_000], list(range(0, 20_001, 1250)))


def mixed_frame(rows: int, *, nulls: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    lacks = (lambda share: rng.random(rows) < share) if nulls else (lambda share: np.zeros(rows, bool))
    texts = np.array(["", "a", "päß", "a longer one with some words", "x" * 300], object)
    number = rng.integers(-(2**40), 2**40, rows)
    return pd.DataFrame(
        {
            "k": rng.integers(0, 2**40, rows),
            "s": pd.Series(np.where(lacks(0.2), None, texts[rng.integers(0, 5, rows)]), dtype="str"),
            "n": pd.array(np.where(lacks(0.3), None, number), "Int64"),
            "i2": pd.array(np.where(lacks(0.1), None, number % 1000), "Int16"),
            "yes": pd.array(np.where(lacks(0.1), None, number % 2 == 0), "boolean"),
            "m": pd.Series(np.where(lacks(0.1), None, [Decimal(int(v)).scaleb(-2) for v in number]), dtype=object),
            "o": pd.Series([dt.date(2000, 1, 1 + int(v) % 28) for v in number], dtype=object),
            "f": rng.random(rows),
            "t": pd.to_datetime(number, unit="s"),
            "row": pd.Series([str(i) for i in range(rows)], dtype="str"),
        }
    )


def written(backend: Any, data: Any, ids: Any, n: int, edges: list[int], before: int) -> list[Any]:
    """Write into outputs of this process, in which there is room for rows of others before."""
    import cupy

    device, schema = backend.device, data.schema
    pieces = [backend.slice(data, start, stop) for start, stop in pairwise(edges)]
    writing = device.writing(ids, n, edges, schema)
    for place, piece in enumerate(pieces):
        writing.weigh(place, piece)
    chars = writing.chars().sum(axis=0)
    rows, texts = writing.rows.sum(axis=0), len(schema.texts)
    nulls = [bool(flag) for flag in device.has_missing(data)]
    planes = planes_of(schema, nulls)
    outputs = [device.allocate_written(schema, int(rows[i]) + before, nulls, chars[i] + 7) for i in range(n)]
    for output in outputs:
        for place, buffer in enumerate(output.buffers):
            buffer[: buffer.size - 4 * (place < len(planes) and planes[place].kind == "text")] = 0
    addresses = np.array([[b.data.ptr for b in output.buffers] for output in outputs], dtype=np.int64)
    widths = np.array([plane.width for plane in planes])
    first = np.full((n, texts), 7, np.int64)  # of others
    writing.aim_at(planes, addresses[:, : len(planes)] + before * widths, addresses[:, len(planes) :], first)
    half = len(pieces) // 2  # in two rounds
    writing.put(0, pieces[:half])
    writing.put(half, pieces[half:])
    cupy.cuda.get_current_stream().synchronize()
    for output in outputs:
        for plane, buffer in zip(planes, output.buffers, strict=False):
            assert not buffer[: before * plane.width].any()
        for buffer in output.buffers[len(planes) :]:
            assert not buffer[:7].any()
    return [output.finish() for output in outputs]


@pytest.mark.parametrize("n", [2, 3, 17, 256])
@pytest.mark.parametrize("edges", EDGES, ids=len)
def test_every_row_is_where_partition_puts_it(cudf_backend: Any, n: int, edges: list[int]) -> None:
    frame = mixed_frame(edges[-1])
    data = cudf_backend.from_frame(frame)
    assert can_write(data.schema)
    ids = cudf_backend.device.partition_ids(data, ["k"], n)
    results = written(cudf_backend, data, ids, n, edges, before=3)
    parted, offsets = cudf_backend.partition(data, ids, n)
    for target in range(0, n, max(1, n // 5)):
        want = cudf_backend.slice(parted, int(offsets[target]), int(offsets[target + 1]))
        got = cudf_backend.slice(results[target], 3, results[target].rows)
        pd.testing.assert_frame_equal(cudf_backend.to_frame(got), cudf_backend.to_frame(want))


def test_slices_and_columns_without_missing_values(cudf_backend: Any) -> None:
    """Rows that begin in the middle of their buffers, of which some are of one that has no mask."""
    frame = mixed_frame(9000, nulls=False)
    data = cudf_backend.slice(cudf_backend.from_frame(frame), 1001, 8003)
    ids = cudf_backend.device.partition_ids(data, ["k"], 4)
    results = written(cudf_backend, data, ids, 4, [0, 100, 7002], before=0)
    parted, offsets = cudf_backend.partition(data, ids, 4)
    for target, (start, stop) in enumerate(pairwise(offsets.tolist())):
        want = cudf_backend.to_frame(cudf_backend.slice(parted, start, stop))
        pd.testing.assert_frame_equal(cudf_backend.to_frame(results[target]), want)


def test_all_rows_to_one_and_none_to_others(cudf_backend: Any) -> None:
    import cupy

    data = cudf_backend.from_frame(mixed_frame(5000))
    results = written(cudf_backend, data, cupy.full(5000, 2, cupy.uint8), 4, [0, 5000], before=0)
    assert [result.rows for result in results] == [0, 0, 5000, 0]
    pd.testing.assert_frame_equal(cudf_backend.to_frame(results[2]), cudf_backend.to_frame(data))


def test_texts_that_are_all_missing(cudf_backend: Any) -> None:
    frame = pd.DataFrame({"k": np.arange(5000), "s": pd.Series([None] * 5000, dtype="str")})
    data = cudf_backend.from_frame(frame)
    ids = cudf_backend.device.partition_ids(data, ["k"], 2)
    results = written(cudf_backend, data, ids, 2, [0, 5000], before=0)
    assert all(cudf_backend.to_frame(result)["s"].isna().all() for result in results)
