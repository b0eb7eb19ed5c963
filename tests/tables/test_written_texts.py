"""Text of lists and structs that is put together column by column is what Python's json makes of each value; and csv is
the same where Arrow writes it."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcylon_lab.backends.arrow.tables import from_arrow
from gcylon_lab.formats.text.csv_writer import CsvRows, csv_format
from gcylon_lab.formats.text.json_writer import _is_plain, _json_texts

LEAVES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1), pa.uint8(): st.integers(0, 255), pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.string(): st.text(), pa.large_string(): st.text(alphabet='a"\\\n\té\u2028\x00,:{}[]'),
}  # fmt: skip


def values_of(type_: Any) -> st.SearchStrategy[Any]:
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        made: st.SearchStrategy[Any] = st.lists(values_of(type_.value_type), max_size=4)
    elif pa.types.is_struct(type_):
        made = st.fixed_dictionaries({field.name: values_of(field.type) for field in type_})
    else:
        made = LEAVES[type_]
    return st.none() | made


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.tuples(st.text(max_size=3), inner), max_size=3, unique_by=lambda pair: pair[0])
    return inner.map(pa.list_) | inner.map(pa.large_list) | fields.map(pa.struct)


TYPES = nested(st.recursive(st.sampled_from(list(LEAVES)), nested, max_leaves=4))


@settings(max_examples=200)
@given(data=st.data(), type_=TYPES, start=st.integers(0, 3))
def test_it_is_what_json_makes_of_each_value(data: st.DataObject, type_: Any, start: int) -> None:
    values = data.draw(st.lists(values_of(type_), max_size=8))
    assert _is_plain(type_)
    texts = _json_texts(pa.array(values, type_).slice(start)).to_pylist()
    assert [None if text is None else json.loads(text) for text in texts] == values[start:]


@pytest.mark.parametrize("value", [[1.0, float("inf")], [[float("nan")]]])
def test_what_json_has_not_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="finite"):
        _json_texts(pa.array([value]))


WHOLE = st.sampled_from([0.0, -0.0, 1.0, -3.0, 2.0**53, 1e15, 1e22, float("inf"), float("-inf")])
CELLS: dict[Any, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1), pa.uint8(): st.integers(0, 255), pa.bool_(): st.booleans(),
    pa.float64(): WHOLE | st.floats(), pa.float32(): WHOLE | st.floats(width=32), pa.float16(): st.floats(width=16),
    pa.string(): st.text(alphabet='a"\\\n\t\r,;é') | st.sampled_from(["", "NA", "1.0"]),
    pa.date32(): st.dates(), pa.timestamp("us"): st.datetimes(), pa.duration("ms"): st.timedeltas().map(
        lambda one: dt.timedelta(milliseconds=one // dt.timedelta(milliseconds=1))),
    pa.timestamp("ns", "UTC"): st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["x", 'y"', "z,"]),
}  # fmt: skip


class InMemoryFile:
    """What a writer asks of its files."""

    def __init__(self) -> None:
        self.stream = io.BytesIO()
        self.stream.close = lambda: None  # type: ignore[method-assign]

    def target(self) -> str:
        return "part"

    def create(self) -> io.BytesIO:
        return self.stream


def written(table: Any, delimiter: str) -> bytes:
    data, files = from_arrow(table, nullable=True), InMemoryFile()
    writer = csv_format(delimiter=delimiter).open(files, data.schema, False)  # type: ignore[arg-type]
    writer.write(data)
    writer.close()
    return files.stream.getvalue()


@settings(max_examples=200)
@given(data=st.data(), delimiter=st.sampled_from(",;|\t"), missing=st.booleans())
def test_arrow_writes_the_same_csv(data: st.DataObject, delimiter: str, missing: bool) -> None:
    types = data.draw(st.lists(st.sampled_from(list(CELLS)), min_size=1, max_size=4))
    rows = data.draw(st.integers(1, 5))
    table = {}
    for place, type_ in enumerate(types):
        cells = st.none() | CELLS[type_] if missing else CELLS[type_]
        table[f"c{place}"] = pa.array(data.draw(st.lists(cells, min_size=rows, max_size=rows)), type_)
    by_arrow = written(pa.table(table), delimiter)
    with patch.object(CsvRows, "_written_by_arrow", lambda *_: False):
        assert by_arrow == written(pa.table(table), delimiter)


def test_most_tables_are_written_by_arrow() -> None:
    table = pa.table({"n": [1, None], "v": [1.0, 2.5], "t": [dt.datetime(2020, 1, 1)] * 2})
    with patch.object(CsvRows, "_lines", side_effect=AssertionError):
        assert written(table, ",").splitlines()[1:] == [
            b"1,1.0,2020-01-01 00:00:00.000000",
            b",2.5," + b"2020-01-01 00:00:00.000000",
        ]
        assert written(pa.table({"s": ["a", 'b"', None], "v": [0.5, 1.5, None]}), ",").splitlines()[1:] == [
            b'"a",0.5',
            b'"b""",1.5',
            b",",
        ]
