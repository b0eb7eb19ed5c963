"""Columns of Python objects on the way out and in: the values that Arrow's lists have, of its types, in less time."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcylon_lab.backends.arrow import objects
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.backends.arrow.objects import column_of_objects, objects_of
from gcylon_lab.backends.protocol.arrow_types import held_type
from gcylon_lab.backends.protocol.data import Columns
from gcylon_lab.backends.protocol.schema import Column, Schema

CENTS = np.random.default_rng(3).integers(-300, 300, 4000)
MANY = [None if place % 7 == 0 else Decimal(int(cents)) / 100 for place, cents in enumerate(CENTS)]
ARRAYS = {
    "repeated decimals": pa.array(MANY, pa.decimal128(12, 2)),
    "different decimals": pa.array([Decimal(place) / 1000 for place in range(-50, 4000)], pa.decimal128(30, 10)),
    "sorted decimals": pa.array([Decimal(place // 40) for place in range(40_000)], pa.decimal128(12, 2)),
    "wide decimals": pa.array([Decimal(10) ** 60, None], pa.decimal256(70, 2)),
    "other scales": pa.array([Decimal("1E+5"), Decimal("0E+5")] * 20, pa.decimal128(5, -5)),
    "zeros": pa.array([Decimal("0E-10")] * 30, pa.decimal128(20, 10)),
    "missing decimals": pa.array([None] * 9, pa.decimal128(5, 2)),
    "no decimals": pa.array([], pa.decimal128(5, 2)),
    "dates": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "no dates": pa.array([], pa.date32()),
    "seconds": pa.array([dt.time(1, 2, 3), None], pa.time32("s")),
    "microseconds": pa.array([dt.time(1, 2, 3, 4), None, dt.time(23, 59, 59, 999_999)], pa.time64("us")),
    "nanoseconds": pa.array([1001, None], pa.int64()).view(pa.time64("ns")),
    "texts": pa.array(["a", None, ""], pa.large_string()),
}


def kind_of(name: str) -> str:
    words = {"dates": "date", "seconds": "time", "microseconds": "time", "nanoseconds": "time", "texts": "str"}
    return words.get(name.split()[-1], "decimal")


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("name", ARRAYS)
def test_objects_are_those_of_lists(name: str, pieces: int) -> None:
    array, kind = ARRAYS[name], kind_of(name)
    edges = [len(array) * i // pieces for i in range(pieces + 1)]
    chunked = pa.chunked_array([array[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True)], array.type)
    frame = to_frame(Columns(Schema([Column("v", kind, "object", arrow=array.type)]), len(array), (chunked,)))
    expected = array.to_pylist()
    assert frame["v"].dtype == object
    assert [(type(value), str(value)) for value in frame["v"]] == [(type(value), str(value)) for value in expected]


def test_what_repeats_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str) -> int:
        return len({id(value) for value in objects_of("decimal", pa.chunked_array([ARRAYS[name]]))})

    assert made("repeated decimals") == 601 and made("sorted decimals") == 1000
    monkeypatch.setattr(objects, "_SAMPLED", 512)  # of these two by what a sample has in common
    assert made("repeated decimals") == 601 and made("sorted decimals") == 1000
    assert made("different decimals") == 4050


def test_no_lists_are_made_of_what_arrow_makes_faster() -> None:
    def refused(self: Any) -> list[Any]:
        raise AssertionError("a list was made")

    for name in ("repeated decimals", "different decimals", "dates", "microseconds"):
        chunked = pa.chunked_array([ARRAYS[name]])
        watched = type("Watched", (), {"to_pylist": refused, "type": chunked.type, "num_chunks": 1})()
        watched.chunk = chunked.chunk
        assert len(objects_of(kind_of(name), watched)) == len(chunked)


def _decimal(digits: int, exponent: int) -> Decimal:
    return Decimal(digits).scaleb(exponent)


_INTS = st.integers(-(10**18), 10**18)
_SAME = st.integers(-12, 4).flatmap(
    lambda exponent: st.lists(st.builds(_decimal, _INTS, st.just(exponent)), min_size=1)
)
_MIXED = st.lists(st.builds(_decimal, _INTS, st.integers(-12, 4)), min_size=1)


@given(values=st.one_of(_SAME, _MIXED))
def test_decimals_get_the_type_that_arrow_finds(values: list[Decimal]) -> None:
    array = np.array(values, object)
    expected = pa.array(values).cast(held_type(pa.array(values).type))
    column, found = column_of_objects("d", array, np.zeros(len(values), np.bool_))
    assert column.arrow == expected.type and [str(v) for v in found.to_pylist()] == [
        str(v) for v in expected.to_pylist()
    ]
    same = len({value.as_tuple().exponent for value in values}) == 1
    assert (objects._decimal_type(array) is not None) == same
