"""What only the cuDF backend does: the CPU's ids, cuDF frames, streams, memory; and its sizes at millions of rows."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from backends import host_items
from equal_values import EQUAL
from every_dtype import EVERY_DTYPE
from test_hashing import MANY
from test_round_trip import mixed_frame, same

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.errors import UnsupportedDtype

pytestmark = pytest.mark.gpu
PANDAS = PandasBackend()
ROWS = 3_000_000
every_dtype = pytest.mark.parametrize("series", [pytest.param(s, id=n) for n, s in EVERY_DTYPE.items()])
FORMS = [(f"{name}-{i}", form) for name, forms in EQUAL.items() for i, form in enumerate(forms)]


def large_frame(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    keys = rng.integers(-(2**62), 2**62, rows)
    return pd.DataFrame(
        {
            "k": keys,
            "small": keys.astype("int8"),
            "short": keys.astype("int16"),
            "f": np.where(keys % 3 == 0, np.nan, keys / 4096),
            "f4": keys.astype("float32"),
            "t": keys.astype("M8[ns]"),
            "b": keys % 2 == 0,
            "c": pd.Categorical.from_codes((keys % 5 - 1).astype("int8"), ["a", "b", "c", "d"]),
        }
    )


def both(backend: Any, frame: pd.DataFrame) -> tuple[Any, Any]:
    return PANDAS.from_frame(frame), backend.from_frame(frame)


@every_dtype
def test_columns_travel_exactly(cudf_backend: Any, series: pd.Series) -> None:
    columns = PANDAS.from_frame(pd.concat([series, series]).to_frame("x"))
    data = cudf_backend.from_frame(PANDAS.to_frame(columns))
    for start, stop in ((0, columns.rows), (1, 7), (3, 4), (5, 5)):
        want = PANDAS.slice(columns, start, stop)
        got = cudf_backend.to_host(cudf_backend.slice(data, start, stop))
        assert got.schema == want.schema and got.rows == want.rows
        same(PANDAS.to_frame(got), PANDAS.to_frame(want))
        for column, a, b in zip(want.schema, got.arrays, want.arrays, strict=True):
            assert a.dtype == b.dtype if column.fixed else a.type == b.type == column.arrow


@every_dtype
@pytest.mark.parametrize("n", [MANY, 7])
def test_ids_are_the_ones_of_the_cpu(cudf_backend: Any, series: pd.Series, n: int) -> None:
    values = pd.concat([series] * 3)
    columns, data = both(cudf_backend, pd.DataFrame({"x": values, "y": values}))
    if columns.schema["x"].kind in ("complex", "list", "struct", "map"):
        pytest.skip("no key")
    assert np.array_equal(cudf_backend.partition_ids(data, ["x"], n), PANDAS.partition_ids(columns, ["x"], n))
    part = cudf_backend.slice(data, 3, 10)
    assert np.array_equal(
        cudf_backend.partition_ids(part, ["y", "x"], n),
        PANDAS.partition_ids(PANDAS.slice(columns, 3, 10), ["y", "x"], n),
    )


@pytest.mark.parametrize(("size", "buckets"), [(1, 64), (2, 64), (3, 16), (5, 51), (20, 16)])
def test_buckets_are_the_ones_of_the_cpu(cudf_backend: Any, size: int, buckets: int) -> None:
    frame = pd.DataFrame({"x": np.arange(5000) * 7919, "d": [Decimal(i) for i in range(5000)]})
    columns, data = both(cudf_backend, frame)
    for keys in (["x"], ["d", "x"]):
        mine = cudf_backend.device.bucket_ids(data, keys, size, buckets)
        theirs = PANDAS.bucket_ids(columns, keys, size, buckets)
        assert mine.dtype == theirs.dtype and np.array_equal(mine.get(), theirs)


@pytest.mark.parametrize("form", [pytest.param(form, id=name) for name, form in FORMS])
def test_equal_values_have_the_ids_of_the_cpu(cudf_backend: Any, form: tuple[Any, dict[str, Any]]) -> None:
    columns, data = both(cudf_backend, pd.Series(form[0], **form[1]).to_frame("k"))
    assert np.array_equal(cudf_backend.partition_ids(data, ["k"], MANY), PANDAS.partition_ids(columns, ["k"], MANY))


def test_decimals_of_every_size_have_the_ids_of_the_cpu(cudf_backend: Any) -> None:
    rng = np.random.default_rng(3)
    units = [int(x) * 10 ** int(e) for x in rng.integers(-(2**62), 2**62, 100) for e in rng.integers(0, 9, 5)]
    units += [2**63, -(2**63), 2**63 - 1, 2**64 - 1, 2**64, -(2**63) - 1, (2**64 - 1) * 1000, -(2**63) * 1000, 0]
    for scale in (0, 2, 7):
        values = [Decimal(unit).scaleb(-scale) if abs(unit) < 10**27 else None for unit in units]
        array = pa.array(values, pa.decimal128(38, scale))
        columns, data = both(cudf_backend, pd.DataFrame({"d": pd.array(array, dtype=pd.ArrowDtype(array.type))}))
        assert np.array_equal(cudf_backend.partition_ids(data, ["d"], MANY), PANDAS.partition_ids(columns, ["d"], MANY))


def test_strings_of_every_length_have_the_ids_of_the_cpu(cudf_backend: Any) -> None:
    texts = [None if i % 11 == 0 else "yé" * (i % 200) + str(i) for i in range(20_000)]
    columns, data = both(cudf_backend, pd.DataFrame({"s": texts, "j": pd.array(range(20_000), "Int64")}))
    want = PANDAS.partition_ids(columns, ["s", "j"], 1000)
    assert np.array_equal(cudf_backend.partition_ids(data, ["s", "j"], 1000), want)
    for step in (7001, 1999):
        parts = [cudf_backend.slice(data, i, min(i + step, 20_000)) for i in range(0, 20_000, step)]
        found = np.concatenate([cudf_backend.partition_ids(p, ["s", "j"], 1000) for p in parts])
        assert np.array_equal(found, want)


@pytest.mark.parametrize("n", [2, 3, 8, 64, 256, 300])
def test_millions_of_rows(cudf_backend: Any, n: int) -> None:
    frame = large_frame(ROWS)
    columns, data = both(cudf_backend, frame)
    for keys in (["k"], ["f"], ["t"], ["c", "small"], ["b", "k"]):
        ids = cudf_backend.partition_ids(data, keys, n)
        assert np.array_equal(ids, PANDAS.partition_ids(columns, keys, n)), keys
    ids = cudf_backend.partition_ids(data, ["k"], n)
    assert np.array_equal(cudf_backend.count_ids(ids, n), np.bincount(ids, minlength=n))
    parted, offsets = cudf_backend.partition(data, ids, n)
    assert np.array_equal(np.diff(offsets), np.bincount(ids, minlength=n))
    order = np.argsort(ids, kind="stable")
    for got, want in zip(parted.arrays, columns.arrays, strict=True):
        want = want.view(np.int64) if want.dtype.kind == "M" else want
        assert np.array_equal(host_items(got), want[order], equal_nan=want.dtype.kind == "f")
    again, same_offsets = cudf_backend.partition(data, ids, n, offsets)
    assert same_offsets is offsets and np.array_equal(host_items(again.arrays[0]), frame["k"].to_numpy()[order])


@pytest.mark.parametrize("n", [2, 8, 300])
def test_strings_of_millions_of_rows(cudf_backend: Any, n: int) -> None:
    numbers = np.arange(ROWS)
    texts = pa.array(numbers).cast(pa.large_string())
    frame = pd.DataFrame({"s": pd.array(texts, dtype=pd.ArrowDtype(pa.large_string())), "k": numbers})
    columns, data = both(cudf_backend, frame)
    ids = cudf_backend.partition_ids(data, ["s"], n)
    assert np.array_equal(ids, PANDAS.partition_ids(columns, ["s"], n))
    parted, offsets = cudf_backend.partition(data, ids, n)
    order = np.argsort(ids, kind="stable")
    host = cudf_backend.to_host(parted)
    assert np.array_equal(host.array("k"), order)
    assert host.array("s").equals(pa.chunked_array([pa.array(order).cast(pa.large_string())]))
    told = cudf_backend.variable_bytes(data, ids, n)
    for place in (0, n - 1):
        start, stop = int(offsets[place]), int(offsets[place + 1])
        message = cudf_backend.device.pack_variable(parted, start, stop)
        assert 0.9 < message.nbytes / told[place] < 1.1
        assert 0.99 < cudf_backend.slice(parted, start, stop).nbytes / (told[place] + 8 * (stop - start)) < 1.01


@pytest.mark.parametrize("name", ["s", "l", "b", "d"])
def test_bytes_of_a_slice_are_its_own(cudf_backend: Any, name: str) -> None:
    data = cudf_backend.from_frame(mixed_frame(10_000)[[name]])
    for start, stop in ((0, 5_000), (1, 1_001), (9_990, 10_000), (7, 7)):
        part = cudf_backend.slice(data, start, stop)
        copy = cudf_backend.concat([part])
        assert abs(part.nbytes - copy.nbytes) <= 64 + 0.01 * copy.nbytes


def test_descriptions_of_many_columns(cudf_backend: Any) -> None:
    frame = pd.DataFrame({f"s{i}": [f"{i}-{row}" for row in range(50)] for i in range(200)})
    data = cudf_backend.from_frame(frame)
    output = cudf_backend.allocate(data.schema, 50)
    output.put_variable(20, 30, cudf_backend.device.pack_variable(data, 20, 50))
    output.put_variable(0, 20, cudf_backend.device.pack_variable(data, 0, 20))
    same(cudf_backend.to_frame(output.finish()), frame)


def through_everything(backend: Any, frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """What comes out of a shuffle with oneself, and the ids."""
    device = backend.device
    data = device.from_frame(frame)
    ids = device.partition_ids(data, ["k", "s"], 5)
    parted, offsets = device.partition(data, ids, 5)
    output = device.allocate(data.schema, data.rows)
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        sources = device.fixed_views(parted, start, stop)
        for view, source in zip(output.fixed_views(start, stop), sources, strict=True):
            view[:] = source
        output.put_variable(start, stop - start, device.pack_variable(parted, start, stop))
    return backend.to_frame(output.finish()), ids.get()


def test_everything_runs_on_the_current_stream(cudf_backend: Any) -> None:
    import cupy

    frame = pd.concat([mixed_frame(5_000)] * 20, ignore_index=True)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        result, ids = through_everything(cudf_backend, frame)
        stream.synchronize()
    same(result, frame.iloc[np.argsort(ids, kind="stable")])


@pytest.mark.parametrize("n", [2, 8, 64, 300])
@pytest.mark.parametrize("text", [False, True])
def test_scratch_is_as_foretold(cudf_backend: Any, n: int, text: bool) -> None:
    import rmm

    rows = 1_000_000
    frame = pd.DataFrame({"k": np.arange(rows), "v": np.arange(rows) / 2})
    if text:
        frame["n"] = pd.array(np.arange(rows), dtype="Int64")  # gathered like text, but of a known size
    data = cudf_backend.from_frame(frame)
    before = rmm.mr.get_current_device_resource()
    counted = rmm.mr.StatisticsResourceAdaptor(before)
    rmm.mr.set_current_device_resource(counted)
    try:
        ids = cudf_backend.device.partition_ids(data, ["k"], n)
        parted, _ = cudf_backend.device.partition(data, ids, n)
        peak = counted.allocation_counts.peak_bytes
        measured = peak - ids.nbytes - parted.nbytes
    finally:
        del parted, ids
        rmm.mr.set_current_device_resource(before)
    foretold = cudf_backend.partition_scratch_bytes(rows, n)
    assert measured <= foretold, (measured, foretold)


def test_the_widest_row_is_found_on_the_device(cudf_backend: Any) -> None:
    """As on CPU engines, but for the widths of offsets."""
    texts = [f"text {n}" for n in range(100_000)]
    texts[70_000] = "z" * 50_000
    data = cudf_backend.device.from_frame(pd.DataFrame({"k": range(100_000), "s": texts, "t": texts}))
    assert 100_000 <= cudf_backend.device.widest_row_bytes(data) <= 100_020
    assert cudf_backend.device.widest_row_bytes(cudf_backend.device.slice(data, 0, 70_000)) < 50
    assert 100_000 <= cudf_backend.device.widest_row_bytes(cudf_backend.device.slice(data, 69_990, 70_010)) <= 100_020
    assert cudf_backend.device.widest_row_bytes(cudf_backend.device.slice(data, 0, 0)) == 0
    assert cudf_backend.device.widest_row_bytes(cudf_backend.device.select(data, ["k"])) == 0


CUDF_FRAME = {
    "i": ([1, -2, 3], {"dtype": "int32"}),
    "i_null": ([1, None, 3], {"dtype": "Int64"}),
    "f": ([1.5, 2.5, -0.0], {}),
    "b": ([True, False, True], {}),
    "b_null": ([True, None, False], {"dtype": "boolean"}),
    "s": (["a", None, "é"], {"dtype": "str"}),
    "t": (pd.to_datetime(["2020-01-01", None, "1969-01-01"]), {}),
    "t_s": (np.array(["2020-01-01", "NaT", "1969-01-01"], "M8[s]"), {}),
    "aware": (pd.to_datetime(["2020-01-01", None, "2020-07-01"]).tz_localize("UTC").tz_convert("US/Central"), {}),
    "delta": (pd.to_timedelta([1, None, -3], unit="s"), {}),
    "c": (pd.Categorical(["x", None, "y"], categories=["y", "unused", "x"]), {}),
    "c_ordered": (pd.Categorical([3, 1, 3], categories=[3, 1], ordered=True), {}),
}


def test_cudf_frames_have_the_columns_that_pandas_has(cudf_backend: Any) -> None:
    import cudf

    frame = pd.DataFrame({name: pd.Series(values, **how) for name, (values, how) in CUDF_FRAME.items()})
    data = cudf_backend.device.from_frame(cudf.from_pandas(frame))
    want = PANDAS.from_frame(frame)
    for column in want.schema:
        assert data.schema[column.name] == column, (data.schema[column.name].describe(), column.describe())
    same(cudf_backend.to_frame(data), frame)
    back = cudf_backend.device.to_frame(data)
    assert isinstance(back, cudf.DataFrame) and list(back.columns) == list(frame.columns)
    again = cudf_backend.device.from_frame(back)
    assert again.schema == data.schema
    same(cudf_backend.to_frame(again), frame)


def test_decimals_lists_and_structs_of_cudf_frames(cudf_backend: Any) -> None:
    import cudf

    arrays = {
        "d": pa.array([Decimal("1.10"), None, Decimal("-5.00")], pa.decimal128(10, 2)),
        "l": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
        "r": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": ""}]),
    }
    frame = cudf.DataFrame({name: cudf.Series.from_arrow(array) for name, array in arrays.items()})
    data = cudf_backend.device.from_frame(frame)
    for _ in range(2):
        host = cudf_backend.to_host(data)
        assert {name: host.array(name).to_pylist() for name in arrays} == {n: a.to_pylist() for n, a in arrays.items()}
        assert [column.kind for column in host.schema] == ["decimal", "list", "struct"]
        assert host.schema["d"].arrow == pa.decimal128(10, 2)
        data = cudf_backend.device.from_frame(cudf_backend.device.to_frame(data))


@every_dtype
def test_every_dtype_has_a_nearest_one_in_cudf(cudf_backend: Any, series: pd.Series) -> None:
    data = cudf_backend.from_frame(series.to_frame("x"))
    frame = cudf_backend.device.to_frame(data)
    assert len(frame) == len(series) and frame["x"].isna().to_pandas().tolist() == series.isna().tolist()


def test_cudf_frames_are_copied(cudf_backend: Any) -> None:
    import cudf

    frame = cudf.DataFrame({"k": [1, 2, 3], "s": ["a", "b", "c"]})
    data = cudf_backend.device.from_frame(frame)
    frame.loc[0, "k"], frame.loc[0, "s"] = 7, "z"
    back = cudf_backend.device.to_frame(data)
    back.loc[1, "k"], back.loc[1, "s"] = 8, "y"
    assert cudf_backend.to_frame(data).to_dict("list") == {"k": [1, 2, 3], "s": ["a", "b", "c"]}


@pytest.mark.parametrize("series", [
    pd.Series([1j]), pd.Series([b"a"]), pd.Series([dt.time(1)]), pd.Series([1.5], dtype="float16"),
    pd.Series(pd.PeriodIndex(["2020-01"], freq="M")), pd.Series([Decimal(10) ** 60]),
    pd.Series([[("a", 1)]], dtype=pd.ArrowDtype(pa.map_(pa.string(), pa.int8()))),
], ids=["complex", "bytes", "time", "half", "period", "wide_decimal", "map"])  # fmt: skip
def test_what_cudf_cannot_hold_is_named(cudf_backend: Any, series: pd.Series) -> None:
    with pytest.raises(UnsupportedDtype, match="'x'.*GPU engines: cuDF has no type") as caught:
        cudf_backend.device.from_frame(series.to_frame("x"))
    assert caught.value.advice
    with pytest.raises(UnsupportedDtype, match="'x'"):
        cudf_backend.empty(PANDAS.from_frame(series.to_frame("x")).schema)
