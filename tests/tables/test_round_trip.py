"""Every dtype comes back as it went in: whole, sliced, empty, packed, placed, partitioned."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from every_dtype import EVERY_DTYPE

from gcylon_lab.backends.host import packing
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.arrow_types import as_type
from gcylon_lab.backends.protocol.schema import Schema
from gcylon_lab.errors import ArgumentError, DuplicateColumns, UnsupportedDtype

PANDAS = PandasBackend()
every_dtype = pytest.mark.parametrize("series", [pytest.param(s, id=n) for n, s in EVERY_DTYPE.items()])
SLICES = [slice(None), slice(1, None), slice(1, 3), slice(0, 0)]


def same(got: pd.DataFrame, want: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(got, want.reset_index(drop=True), check_column_type=False)


def mixed_frame(rows: int = 100) -> pd.DataFrame:
    """A frame of fixed and variable columns in mixed order, with nulls at odd places."""
    numbers = np.arange(rows)
    return pd.DataFrame(
        {
            "s": [None if i % 7 == 3 else "x" * (i % 13) + str(i) for i in range(rows)],
            "k": numbers,
            "l": [list(range(i % 4)) if i % 5 else None for i in range(rows)],
            "f": numbers * 0.5,
            "b": pd.array([None if i % 3 == 0 else i % 2 == 0 for i in range(rows)], dtype="boolean"),
            "t": pd.date_range("2020-01-01", periods=rows, tz="US/Central"),
            "d": [{"i": i, "s": f"é{i}"} for i in range(rows)],
            "c": pd.Categorical([f"c{i % 3}" for i in range(rows)]),
        }
    )


@every_dtype
def test_frame_to_columns_and_back(backend: Any, series: pd.Series) -> None:
    for rows in SLICES:
        frame = series.iloc[rows].to_frame("x")
        data = backend.from_frame(frame)
        assert data.rows == len(frame)
        same(backend.to_frame(data), frame)


def packed(backend: Any, data: Any) -> list[memoryview]:
    """The buffers, those in pieces as one, as a file gives them back."""
    pieces = [one if isinstance(one, list) else [one] for one in backend.pack(data)]
    return [memoryview(b"".join(some)) for some in pieces]


@every_dtype
def test_staged_buffers_hold_the_slice(backend: Any, series: pd.Series) -> None:
    whole = backend.from_frame(pd.concat([series, series]).to_frame("x"))
    for rows in SLICES:
        start, stop, _ = rows.indices(whole.rows)
        part = backend.slice(whole, start, stop)
        buffers = packed(backend, part)
        back = backend.unpack(part.schema, part.rows, buffers)
        same(backend.to_frame(back), backend.to_frame(whole).iloc[start:stop])


@every_dtype
def test_schema_bytes_restore_the_schema(series: pd.Series) -> None:
    schema = PANDAS.from_frame(series.to_frame("x")).schema
    again = Schema.from_bytes(schema.to_bytes())
    assert again == schema and hash(again) == hash(schema)
    assert again.to_bytes() == schema.to_bytes() and again.digest() == schema.digest()
    sliced = PANDAS.from_frame(series.iloc[1:].to_frame("x")).schema
    assert (sliced.digest() == schema.digest()) == (sliced == schema)


@every_dtype
def test_partition_and_concat_keep_dtypes(backend: Any, series: pd.Series) -> None:
    data = backend.from_frame(series.to_frame("x"))
    ids = (np.arange(data.rows) % 2).astype(np.uint8)
    parted, offsets = backend.partition(data, ids, 2)
    pieces = [backend.slice(parted, offsets[i], offsets[i + 1]) for i in range(2)]
    want = pd.concat([series.iloc[::2], series.iloc[1::2]]).to_frame("x")
    same(backend.to_frame(parted), want)
    same(backend.to_frame(backend.concat(pieces)), want)


def test_frames_are_copied_both_ways(backend: Any) -> None:
    frame = mixed_frame(10)
    data = backend.from_frame(frame)
    want = backend.to_frame(data)
    for each in (frame, backend.to_frame(data)):
        for name in each.columns:
            each[name].array[0] = each[name].array[9]
        each.iloc[1] = each.iloc[8]
    same(backend.to_frame(data), want)


def test_strided_and_foreign_byte_order(backend: Any) -> None:
    table = np.arange(12.0).reshape(4, 3)
    frame = pd.DataFrame(table)
    frame["big"] = np.arange(4, dtype=">i4")
    data = backend.from_frame(frame.iloc[::2])
    assert all(array.flags.c_contiguous for array in data.arrays)
    got = backend.to_frame(data)
    assert got["big"].tolist() == [0, 2] and got["big"].dtype == np.int32
    assert got[1].tolist() == [1.0, 7.0] and got.columns.tolist() == [0, 1, 2, "big"]


def test_no_columns_keep_the_row_count(backend: Any) -> None:
    data = backend.from_frame(pd.DataFrame(index=range(5)))
    back = backend.unpack(data.schema, data.rows, packed(backend, data))
    assert len(backend.to_frame(back)) == 5
    assert backend.concat([data, backend.slice(data, 0, 2)]).rows == 7
    output = backend.allocate(data.schema, 5)
    assert output.fixed_views(0, 5) == [] and output.finish().rows == 5


def test_index_is_not_carried(backend: Any) -> None:
    frame = pd.DataFrame({"x": [1, 2]}, index=["a", "b"])
    assert backend.to_frame(backend.from_frame(frame)).index.equals(pd.RangeIndex(2))


def test_repeated_label_is_named(backend: Any) -> None:
    frame = pd.DataFrame([[1, 2, 3]], columns=["k", "v", "k"])
    with pytest.raises(DuplicateColumns, match="'k'"):
        backend.from_frame(frame)


@pytest.mark.parametrize("label", [None, ("a", "b"), 1.5, True], ids=repr)
def test_other_labels_are_refused(backend: Any, label: object) -> None:
    frame = pd.DataFrame({"x": [1]})
    frame.columns = pd.Index([label], dtype=object, tupleize_cols=False)
    with pytest.raises(UnsupportedDtype, match="labels may be str or int"):
        backend.from_frame(frame)


REFUSED = {
    "mixed": (["a", 1], "'int', 'str'"),
    "bool_and_int": ([True, 1], "'bool', 'int'"),
    "set": ([{1}, {2}], "'set'"),
    "date_and_datetime": ([pd.Timestamp(0).date(), pd.Timestamp(0).to_pydatetime()], "datetime.date"),
    "zones": ([pd.Timestamp(0, tz="UTC"), pd.Timestamp(0)], "different zones"),
    "huge_int": ([2**70, 1], "'int'"),
    "inexact_float": ([2**53 + 1, 1.5], "'float', 'int'"),
    "dict_keys": ([{1: 2}], "'dict'"),
    "list_of_mixed": ([[1, "a"]], "'list'"),
}


@pytest.mark.parametrize("values, found", REFUSED.values(), ids=REFUSED)
def test_objects_without_a_type_are_refused(backend: Any, values: list, found: str) -> None:
    with pytest.raises(UnsupportedDtype, match=f"'x'.*{found}") as caught:
        backend.from_frame(pd.DataFrame({"x": pd.Series(values, dtype=object)}))
    assert caught.value.advice and caught.value.numbers["column"] == "x"


@pytest.mark.parametrize("series", [
    pd.Series(pd.interval_range(0, 2)),
    pd.Series(pd.arrays.SparseArray([0, 1])),
    pd.Series(pd.cut([1, 2, 3], 2)),
    pd.Series([1], dtype="longdouble"),
], ids=["interval", "sparse", "category_of_intervals", "longdouble"])  # fmt: skip
def test_dtypes_without_a_form_are_refused(backend: Any, series: pd.Series) -> None:
    with pytest.raises(UnsupportedDtype, match="'x'") as caught:
        backend.from_frame(series.to_frame("x"))
    assert caught.value.advice


@pytest.mark.parametrize("thing", [pd.Series([1]), {"x": [1]}, None], ids=["series", "dict", "none"])
def test_other_things_are_refused(backend: Any, thing: object) -> None:
    with pytest.raises(ArgumentError, match="expected a .*DataFrame, got a "):
        backend.from_frame(thing)


@pytest.mark.parametrize("shift", [0, 1, 4])
def test_staged_buffers_may_lie_anywhere(backend: Any, shift: int) -> None:
    frame = mixed_frame(100)
    data = backend.from_frame(frame)
    buffers = []
    for buffer in packed(backend, data):
        room = bytearray(len(buffer) + shift)
        room[shift:] = buffer
        buffers.append(memoryview(room)[shift:])
    back = backend.unpack(data.schema, data.rows, buffers)
    same(backend.to_frame(back), frame)
    ids = backend.partition_ids(back, ["k", "s", "f"], 3)
    assert np.array_equal(ids, backend.partition_ids(data, ["k", "s", "f"], 3))
    same(backend.to_frame(backend.partition(back, ids, 3)[0]), backend.to_frame(backend.partition(data, ids, 3)[0]))


def test_select_and_nbytes(backend: Any) -> None:
    data = backend.from_frame(mixed_frame())
    part = backend.select(data, ["t", "s"])
    same(backend.to_frame(part), mixed_frame()[["t", "s"]])
    half = backend.slice(data, 0, 50)
    assert 0.4 < half.nbytes / data.nbytes < 0.6


def test_maps_with_missing_rows_are_cast_by_keys_and_items() -> None:
    """Arrow 24 and 25 end the process where they are asked to cast them; many rows of few, in no order, do it."""
    rows = [[("a", 1)], None, [], [("b", None), ("c", 3)]]
    picks = np.random.default_rng(3).integers(0, 4, 60)
    narrow, wide = pa.map_(pa.string(), pa.int8()), pa.map_(pa.large_string(), pa.int64())
    array = pa.array(rows, narrow).take(pa.array(picks))
    for start, stop in ((0, 60), (7, 41), (5, 5)):
        want = [rows[pick] for pick in picks[start:stop]]
        part = array.slice(start, stop - start)
        for given in (part, pa.chunked_array([part, part])):
            cast = as_type(given, wide)
            assert cast.type == wide and cast.to_pylist() == want * (1 if given is part else 2)
            cast.validate(full=True)
            assert as_type(cast, narrow).to_pylist() == cast.to_pylist()


@pytest.mark.parametrize("rows", [1, 100, 60_000])
def test_a_message_in_pieces_is_that_of_one_piece(rows: int) -> None:
    """A large one is not copied."""
    data = PANDAS.slice(PANDAS.from_frame(mixed_frame(max(rows + 10, 100))), 7, 7 + rows)
    before = pa.total_allocated_bytes()
    pieces = packing.message_pieces(data, 0, rows)
    copied = pa.total_allocated_bytes() - before
    whole = packing.pack_variable(data, 0, rows)
    assert b"".join(pieces) == whole and packing.packed_bytes(data, 0, rows) == whole.nbytes
    assert (len(pieces) > 1) == (whole.nbytes > 256 * 1024)
    assert len(pieces) == 1 or copied < whole.nbytes // 2  # offsets that begin at 0
