"""Strings that are nearly all different: found equal, and put in order, without a copy of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.host.group_kernels import ordered_values
from gcylon_lab.backends.host.keys.key_groups import are_mostly_different, key_codes
from gcylon_lab.backends.protocol.aggregation import Aggregation, plan_aggregations

BACKEND = PandasBackend()


def _column(values):
    data = BACKEND.from_frame(pd.DataFrame({"s": pd.Series(values, dtype="str")}))
    return data.schema.columns[0], data.arrays[0]


def _strings(rows, length, different):
    random = np.random.default_rng(3)
    words = ["".join(word) for word in random.choice([*"abcdé"], (different, length))]
    values = [words[i] for i in random.integers(0, different, rows)] if different < rows else words
    values[rows // 3] = values[rows // 2]
    values[0] = None
    return values


@pytest.mark.parametrize("different", [40, 5000])
@pytest.mark.parametrize("length", [4, 120])
def test_codes_and_order_are_those_of_the_values(length, different):
    values = _strings(5000, length, different)
    column, array = _column(values)
    codes, count = key_codes(column, array)
    assert codes[0] == -1 and codes.max() < count
    assert pd.Series(codes[1:]).groupby(codes[1:]).ngroups == len(set(values[1:]))
    assert codes[5000 // 3] == codes[5000 // 2]
    order, valid = ordered_values(column, array)
    assert valid.tolist() == [False] + [True] * 4999
    pairs = sorted(zip(values[1:], order[1:].tolist(), strict=True), key=lambda pair: pair[0].encode())
    assert [place for _, place in pairs] == sorted(order[1:].tolist())


@pytest.mark.parametrize("function", ["max", "min"])
def test_the_largest_and_least_strings_of_groups(function):
    values = _strings(5000, 60, 5000)
    frame = pd.DataFrame({"k": np.arange(5000) % 7, "s": pd.Series(values, dtype="str")})
    data = BACKEND.from_frame(frame)
    steps = plan_aggregations(data.schema, ["k"], [Aggregation("s", function, "s")])
    made = BACKEND.to_frame(BACKEND.aggregate(data, ["k"], steps.partial, dropna=True))
    expected = frame.dropna().groupby("k")["s"].agg(function)
    assert made.iloc[:, 1].tolist() == expected.tolist()


@pytest.mark.parametrize("work", [ordered_values, key_codes])
def test_no_string_is_copied(work):
    column, array = _column(_strings(20_000, 200, 20_000))
    before, taken = pa.default_memory_pool(), pa.proxy_memory_pool(pa.system_memory_pool())
    pa.set_memory_pool(taken)
    try:
        work(column, array)
    finally:
        pa.set_memory_pool(before)
    assert taken.max_memory() < array.nbytes // 2


def test_few_different_strings_are_told_from_many():
    assert are_mostly_different(pa.array(_strings(5000, 20, 5000))) and not are_mostly_different(pa.array(["a"] * 5000))


def test_empty_and_missing_strings():
    for values in ([], [None, None], [""]):
        column, array = _column(values)
        codes, count = key_codes(column, array)
        assert codes.tolist() == [-1 if value is None else 0 for value in values] and count >= len(set(values) - {None})


def test_many_strings_and_decimals_are_numbered_as_pandas_does():
    """Strings in parts, decimals as numbers: the same rows are alike, and missing ones are -1."""
    random = np.random.default_rng(5)
    numbers = random.integers(0, 200_000, 300_000)
    missing = random.random(len(numbers)) < 0.01
    expected = pd.factorize(pd.Series(numbers).where(~missing))[0]
    texts = pd.Series([f"{n:x}" for n in numbers], dtype="str").where(~missing, None)
    units = np.zeros((len(numbers), 2), np.int64)
    units[:, 0], units[:, 1] = numbers - 100_000, np.where(numbers < 100_000, -1, 0)
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    prices = pa.Array.from_buffers(pa.decimal128(15, 2), len(numbers), [valid, pa.py_buffer(units)])
    for column, array in (_column(texts), _decimals(prices)):
        codes, count = key_codes(column, array)
        assert codes.max() < count and ((codes < 0) == missing).all()
        pairs = pd.DataFrame({"ours": codes, "theirs": expected})[~missing].drop_duplicates()
        assert len(pairs) == pairs["ours"].nunique() == pairs["theirs"].nunique()


def _decimals(array):
    data = BACKEND.from_frame(pd.DataFrame({"d": pd.Series(pd.arrays.ArrowExtensionArray(array))}))
    return data.schema.columns[0], data.arrays[0].slice(0)
