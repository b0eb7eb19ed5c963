"""Results received in place: any order of messages, any split, no copy, no gaps."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_round_trip import mixed_frame, same

from gcylon_lab.backends.host.backend import PandasBackend

PANDAS = PandasBackend()


def place(backend: Any, frame: pd.DataFrame, cuts: list[int], order: list[int]) -> pd.DataFrame:
    data = backend.from_frame(frame)
    output = backend.allocate(data.schema, data.rows)
    pieces = list(zip(cuts, cuts[1:], strict=False))
    for i in order:
        start, stop = pieces[i]
        views = output.fixed_views(start, stop)
        sources = backend.fixed_views(data, start, stop)
        assert [len(view) for view in views] == [len(source) for source in sources]
        for view, source in zip(views, sources, strict=True):
            view[:] = source
        output.put_variable(start, stop - start, memoryview(bytes(backend.pack_variable(data, start, stop))))
    return backend.to_frame(output.finish())


@given(st.lists(st.integers(0, 100), max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_any_split_in_any_order(backend: Any, inner: list[int], random) -> None:
    cuts = [0, *sorted(inner), 100]
    order = list(range(len(cuts) - 1))
    random.shuffle(order)
    frame = mixed_frame(100)
    same(place(backend, frame, cuts, order), frame)


def test_no_rows(backend: Any) -> None:
    frame = mixed_frame(5).iloc[:0]
    same(place(backend, frame, [0, 0], [0]), frame)
    same(place(backend, frame, [0], []), frame)


def test_views_are_views() -> None:
    data = PANDAS.from_frame(pd.DataFrame({"k": [1, 2, 3], "t": pd.date_range("2020", periods=3)}))
    for view, array in zip(PANDAS.fixed_views(data, 1, 3), data.arrays, strict=True):
        assert view.readonly and view.format == "B" and view.nbytes == 16
        assert np.shares_memory(np.frombuffer(view, np.uint8), array)
    output = PANDAS.allocate(data.schema, 3)
    assert all(not view.readonly for view in output.fixed_views(0, 3))
    assert [view.nbytes for view in output.fixed_views(2, 2)] == [0, 0]


def test_messages_are_not_copied() -> None:
    data = PANDAS.from_frame(pd.DataFrame({"s": ["x" * 100] * 1000}))
    message = PANDAS.pack_variable(data, 0, 1000)
    buffer = pa.allocate_buffer(len(message))
    received = memoryview(buffer).cast("B")
    received[:] = message
    output = PANDAS.allocate(data.schema, 1000)
    output.put_variable(0, 1000, received)
    before = pa.total_allocated_bytes()
    result = output.finish()
    assert pa.total_allocated_bytes() - before < 1000
    address = result.arrays[0].chunk(0).buffers()[2].address
    assert buffer.address <= address < buffer.address + buffer.size


@pytest.mark.parametrize("shift", range(1, 8))
def test_unaligned_messages_are_read_right(backend: Any, shift: int) -> None:
    frame = mixed_frame(50)
    data = backend.from_frame(frame[["s", "l", "b", "d"]])
    room = bytearray(100_000)
    message = backend.pack_variable(data, 3, 47)
    view = memoryview(room)[shift : shift + len(message)]
    view[:] = message
    output = backend.allocate(data.schema, 44)
    output.put_variable(0, 44, view)
    same(backend.to_frame(output.finish()), frame[["s", "l", "b", "d"]].iloc[3:47])


@pytest.mark.parametrize("messages", [[(0, 40)], [(0, 40), (50, 100)], [(60, 100), (0, 40)], []], ids=str)
def test_a_gap_is_an_error(backend: Any, messages: list[tuple[int, int]]) -> None:
    data = backend.from_frame(mixed_frame(100))
    output = backend.allocate(data.schema, 100)
    for start, stop in messages:
        output.put_variable(start, stop - start, backend.pack_variable(data, start, stop))
    with pytest.raises(RuntimeError, match="end at row"):
        output.finish()


@pytest.mark.parametrize("name", ["s", "l", "b", "d"])
def test_a_message_is_as_large_as_its_slice(backend: Any, name: str) -> None:
    data = backend.from_frame(mixed_frame(20_000)[[name]])
    whole = len(backend.pack_variable(data, 0, 20_000))
    for start in (0, 1, 9_999):  # odd starts have bit offsets
        part = backend.slice(data, start, start + 200)
        for message in (backend.pack_variable(data, start, start + 200), backend.pack_variable(part, 0, 200)):
            assert len(message) < whole / 100 + 1500


def test_nothing_variable_is_an_empty_message(backend: Any) -> None:
    data = backend.from_frame(mixed_frame(10))
    assert len(backend.pack_variable(data, 4, 4)) == 0
    assert len(backend.pack_variable(backend.select(data, ["k", "c"]), 0, 10)) == 0


def test_many_chunks_pack_as_one_message() -> None:
    frame = mixed_frame(60)
    data = PANDAS.from_frame(frame)
    pieces = [PANDAS.slice(data, i, i + 7 if i < 56 else 60) for i in range(0, 60, 7)]
    arrays = tuple(
        array if column.fixed else pa.chunked_array([c for piece in pieces for c in piece.arrays[i].chunks])
        for i, (column, array) in enumerate(zip(data.schema.columns, data.arrays, strict=True))
    )
    chunked = type(data)(data.schema, 60, arrays)
    variable = [column.name for column in data.schema.variable]
    output = PANDAS.allocate(data.schema.select(variable), 50)
    output.put_variable(0, 50, PANDAS.pack_variable(chunked, 5, 55))
    same(PANDAS.to_frame(output.finish()), frame[variable].iloc[5:55])


def test_concat_does_not_hold_its_pieces() -> None:
    before = pa.total_allocated_bytes()
    data = PANDAS.from_frame(pd.DataFrame({"s": ["x" * 1000] * 1000}))
    copy = PANDAS.concat([PANDAS.slice(data, 0, 10)])
    del data
    assert copy.rows == 10 and pa.total_allocated_bytes() - before < 100_000
