"""Categories of many labels: what is asked of all labels is asked once, not for each piece, nor as Python objects."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.host.keys import key_values
from gcylon_lab.backends.host.keys.key_values import NEVER, NULL, KeyEncoder
from gcylon_lab.backends.protocol.key_forms import key_form, same_category
from gcylon_lab.backends.protocol.schema import Schema

BACKEND = PandasBackend()
_MANY = 50_000


def _made(codes, labels, ordered=False):
    """A column of a category and its codes."""
    values = pd.Categorical.from_codes(np.asarray(codes), categories=labels, ordered=ordered)
    data = BACKEND.from_frame(pd.DataFrame({"k": values}))
    return data.schema.columns[0], data.arrays[0]


def _strings(values):
    data = BACKEND.from_frame(pd.DataFrame({"k": pd.Series(values, dtype="str")}))
    return data.schema.columns[0], data.arrays[0]


@pytest.fixture
def looked_up(monkeypatch):
    """How many values were looked up, or encoded, by each call of Arrow."""
    counts = []
    index_in = pc.index_in

    def counting(values, *args, **how):
        counts.append(len(values))
        return index_in(values, *args, **how)

    monkeypatch.setattr(key_values.pc, "index_in", counting)
    key_values._tables.clear()
    return counts


LABELS = [f"label {i}" for i in range(_MANY)]


def test_codes_of_one_category_are_its_ids(looked_up):
    column, array = _made([3, -1, 0], LABELS)
    form = key_form(column, column)
    encoder = KeyEncoder(form, column, array)
    assert encoder.own.tolist() == [4, NULL, 1] and encoder.count == _MANY + 1
    assert encoder.find(*_made([0, 3, -1, 7], LABELS)).tolist() == [1, 4, NULL, 8]
    assert not looked_up


def test_labels_of_another_category_are_looked_up_once(looked_up):
    own, other = _made([3, 0], LABELS), _made([0, 2, -1, 1], ["none of them", *LABELS[:0:-1]])
    form = key_form(own[0], other[0])
    for _ in range(3):  # blocks of that side
        encoder = KeyEncoder(form, *own)
        for _ in range(3):  # pieces of the other
            assert encoder.find(*other).tolist() == [NEVER, _MANY - 1, NULL, _MANY]
    assert looked_up == [_MANY]


@pytest.mark.parametrize("labels", [LABELS[:5], []])
def test_strings_find_a_category_and_the_other_way_round(labels):
    category, strings = _made([1, -1] if labels else [-1, -1], labels), _strings([*LABELS[1:2], "none", None])
    form = key_form(category[0], strings[0])
    found = KeyEncoder(form, *category).find(*strings)
    assert found.tolist() == [2 if labels else NEVER, NEVER, NULL]
    encoder = KeyEncoder(form, *strings)
    assert encoder.find(*category).tolist() == [encoder.own[0] if labels else NULL, NULL]
    empty = _made([-1], [])
    assert KeyEncoder(key_form(empty[0], category[0]), *empty).find(*category).tolist() == (
        [NEVER, NULL] if labels else [NULL, NULL]
    )


def test_the_order_of_labels_counts_where_they_are_ordered():
    there, back, less = (_made([0], labels)[0] for labels in (LABELS[:5], LABELS[4::-1], LABELS[1:6]))
    assert same_category(there, back) and not same_category(there, less)
    there, back = (_made([0], labels, ordered=True)[0] for labels in (LABELS[:5], LABELS[4::-1]))
    assert same_category(there, there) and not same_category(there, back)


def test_a_digest_makes_no_text_of_all_labels():
    labels = pa.array(LABELS)
    column = _made([0], LABELS)[0]
    tracemalloc.start()
    try:
        digest = Schema([column]).digest()
        assert tracemalloc.get_traced_memory()[1] < labels.nbytes
    finally:
        tracemalloc.stop()
    same = _made([0, 1], pd.Index(LABELS))[0]
    assert digest == Schema([same]).digest()
    assert digest != Schema([_made([0], [*LABELS[:-1], "other"])[0]]).digest()
    assert digest != Schema([_made([0], LABELS, ordered=True)[0]]).digest()
