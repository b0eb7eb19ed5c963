"""Text of lists and structs that is put together column by column is what Python's json makes of each value."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=200, deadline=None)
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
