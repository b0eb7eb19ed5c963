"""All ranks come to one schema, which holds every rank's values exactly, or they are told why not."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from every_dtype import EVERY_DTYPE
from hypothesis import given, settings
from hypothesis import strategies as st

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.data import Columns
from gcylon_lab.backends.protocol.promotion import agree_schemas
from gcylon_lab.backends.protocol.schema import Schema
from gcylon_lab.errors import ColumnMissing, SchemaMismatch

PANDAS = PandasBackend()


def columns(backend: Any, values: object, **how: object) -> Columns:
    return backend.from_frame(pd.Series(values, **how).to_frame("x"))


def agree(*parts: Columns) -> Schema:
    return agree_schemas([part.schema for part in parts], [part.rows for part in parts])


def dtype_of(backend: Any, schema: Schema) -> str:
    return str(backend.to_frame(backend.empty(schema))["x"].dtype)


def plain(value: object) -> object:
    """A value in a form that compares across dtypes."""
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, complex) and (value != value or not value.imag):
        return plain(value.real)
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if plain(v) is not None}
    return value


def values_of(backend: Any, data: Columns) -> list[object]:
    return [plain(value) for value in backend.to_frame(data)["x"].tolist()]


INT = ([1, -2], {"dtype": "int64"})
NONE = ([None, None], {"dtype": object})
ARROW_STRING = pd.ArrowDtype(pa.string())
DAYS = np.array(["2020-01-01", "2020-01-02"], "M8[D]")
TOGETHER = {
    "int_widths": [(([1, -2], {"dtype": "int32"}), INT), "int64"],
    "signs": [(([1, 2], {"dtype": "uint8"}), ([1, -2], {"dtype": "int8"})), "int16"],
    "int64_uint64": [(INT, ([1, 2], {"dtype": "uint64"})), "int64"],
    "int_float": [(INT, ([0.5, np.nan], {})), "float64"],
    "int16_float32": [(([1, 2], {"dtype": "int16"}), ([0.5, 1.5], {"dtype": "float32"})), "float32"],
    "float_widths": [(([0.1, 1.5], {"dtype": "float32"}), ([0.1, 1.5], {})), "float64"],
    "float_complex": [(([0.5, 1.5], {}), ([1j, 2], {})), "complex128"],
    "int_nullable": [(INT, ([1, None], {"dtype": "Int32"})), "Int64"],
    "float_nullable_int": [(([0.5, np.nan], {}), ([1, None], {"dtype": "Int64"})), "Float64"],
    "bool_nullable": [(([True, False], {}), ([True, None], {"dtype": "boolean"})), "boolean"],
    "int_all_null": [(INT, NONE), "Int64"],
    "bool_all_null": [(([True, False], {}), NONE), "boolean"],
    "float_all_null": [(([0.5, 1.0], {}), NONE), "float64"],
    "time_all_null": [((DAYS.astype("M8[ns]"), {}), NONE), "datetime64[ns]"],
    "str_all_null": [(NONE, (["a", None], {"dtype": "str"})), "str"],
    "list_all_null": [(([[1], None], {}), NONE), "object"],
    "category_all_null": [((pd.Categorical(["a", None]), {}), NONE), "category"],
    "nothing": [(NONE, NONE), "object"],
    "str_object": [((["a", None], {"dtype": object}), (["b", "c"], {"dtype": "str"})), "str"],
    "objects": [((["a", None], {"dtype": object}), (["b", "c"], {"dtype": object})), "object"],
    "str_arrow": [((["a"], {"dtype": ARROW_STRING}), (["b"], {"dtype": object})), "large_string[pyarrow]"],
    "time_units": [((DAYS.astype("M8[s]"), {}), (DAYS.astype("M8[us]"), {})), "datetime64[us]"],
    "time_objects": [(([dt.datetime(2020, 1, 1)], {"dtype": object}), (DAYS.astype("M8[s]"), {})), "datetime64[us]"],
    "delta_units": [(([1, 2], {"dtype": "timedelta64[s]"}), ([3, 4], {"dtype": "timedelta64[ns]"})), "timedelta64[ns]"],
    "decimal_scales": [(([Decimal("1.5"), None], {}), ([Decimal("12345.123"), None], {})), "object"],
    "decimal_int": [(([Decimal("1.5"), None], {}), ([7, 2**62], {})), "object"],
    "lists": [(([[1], []], {}), ([[], [None]], {})), "object"],
    "lists_widen": [(([[1], [2]], {}), ([[0.5], None], {})), "object"],
    "structs": [(([{"a": 1}], {}), ([{"b": "x", "a": None}], {})), "object"],
    "categories": [((pd.Categorical(["b", "a"]), {}), (pd.Categorical(["c", "b"]), {})), "category"],
    "category_str": [((pd.Categorical(["b", None]), {}), (["x", None], {"dtype": "str"})), "str"],
    "arrow_widths": [(([1], {"dtype": "int8[pyarrow]"}), ([None, 300], {"dtype": "int16[pyarrow]"})), "int16[pyarrow]"],
}  # fmt: skip


@pytest.mark.parametrize("sides, dtype", TOGETHER.values(), ids=TOGETHER)
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
def test_promotions_are_exact(backend: Any, sides: tuple, dtype: str, turned: bool) -> None:
    parts = [columns(backend, values, **how) for values, how in (sides[::-1] if turned else sides)]
    schema = agree(*parts)
    assert dtype_of(backend, schema) == dtype
    for part in parts:
        cast = backend.cast(part, schema)
        assert cast.schema == schema and values_of(backend, cast) == values_of(backend, part)
    whole = backend.concat([backend.cast(part, schema) for part in parts])
    assert whole.rows == sum(part.rows for part in parts)


APART = {
    "int_str": (INT, (["a", "b"], {})),
    "int_bool": (INT, ([True, False], {})),
    "int_time": (INT, (DAYS.astype("M8[s]"), {})),
    "aware_naive": ((pd.to_datetime(DAYS).tz_localize("UTC"), {}), (DAYS.astype("M8[s]"), {})),
    "zones": tuple((pd.to_datetime(DAYS).tz_localize(zone), {}) for zone in ("UTC", "US/Central")),
    "date_time": (([dt.date(2020, 1, 1)], {}), (DAYS.astype("M8[s]"), {})),
    "decimal_float": (([Decimal("0.1")], {}), ([0.1], {})),
    "list_scalar": (([[1]], {}), INT),
    "category_labels": ((pd.Categorical(["a"]), {}), (pd.Categorical([1]), {})),
    "category_int": ((pd.Categorical([1]), {}), INT),
    "ordered_unordered": ((pd.Categorical(["a"], ordered=True), {}), (pd.Categorical(["a"]), {})),
    "order": tuple((pd.Categorical(["a"], categories=c, ordered=True), {}) for c in (["a", "b"], ["b", "a"])),
    "made_up_order": tuple((pd.Categorical([c[0]], categories=c, ordered=True), {}) for c in (["a", "b"], ["b", "c"])),
    "periods": tuple((pd.PeriodIndex(["2020-01"], freq=freq), {}) for freq in ("M", "D")),
}


@pytest.mark.parametrize("sides", APART.values(), ids=APART)
def test_what_does_not_go_together_is_told_with_ranks(sides: tuple) -> None:
    left, right = (columns(PANDAS, values, **how) for values, how in sides)
    with pytest.raises(SchemaMismatch, match="column 'x'.*on rank.* 0, 2.*on rank 1") as caught:
        agree(left, right, left)
    assert caught.value.advice
    for side in (left, right):
        assert side.schema["x"].describe() in str(caught.value)


def test_labels_are_the_union_in_rank_order(backend: Any) -> None:
    parts = [columns(backend, pd.Categorical(v, categories=v)) for v in (["b", "a"], ["c", "b"], ["d"])]
    schema = agree(*parts)
    assert schema["x"].labels.to_pylist() == ["b", "a", "c", "d"]
    assert values_of(backend, backend.cast(parts[1], schema)) == ["c", "b"]


@pytest.mark.parametrize("labels, width", [(0, 1), (128, 1), (129, 2), (32768, 2), (32769, 4)])
def test_codes_are_as_narrow_as_the_labels_allow(backend: Any, labels: int, width: int) -> None:
    data = columns(backend, pd.Categorical(range(labels)))
    assert data.schema["x"].dtype.itemsize == width
    assert data.arrays[0].tolist() == list(range(labels))
    assert backend.to_frame(data)["x"].tolist() == list(range(labels))


def test_many_labels_widen_the_codes(backend: Any) -> None:
    parts = [columns(backend, pd.Categorical([f"{r}-{i}" for i in range(100)])) for r in range(3)]
    schema = agree(*parts)
    assert parts[0].schema["x"].dtype == np.int8 and schema["x"].dtype == np.int16
    assert all(values_of(backend, backend.cast(part, schema)) == values_of(backend, part) for part in parts)


def test_an_ordered_category_keeps_the_fullest_order() -> None:
    orders = (["low", "high"], ["low", "mid", "high"])
    parts = [columns(PANDAS, pd.Categorical(["low"], categories=order, ordered=True)) for order in orders]
    assert agree(*parts)["x"].labels.to_pylist() == orders[1]


@pytest.mark.parametrize("series", [pytest.param(s, id=n) for n, s in EVERY_DTYPE.items() if s.dtype != "category"])
def test_a_rank_without_rows_gives_way(series: pd.Series) -> None:
    full = columns(PANDAS, series)
    for dtype in (object, "float64", "str", "bool", "category"):
        none = columns(PANDAS, [], dtype=dtype)
        if full.schema["x"].kind in ("null", none.schema["x"].kind):
            continue
        for parts in ((full, none), (none, full)):
            assert agree(*parts) == full.schema
            assert PANDAS.cast(none, full.schema).rows == 0


def test_a_rank_without_rows_still_tells_its_labels() -> None:
    full = columns(PANDAS, pd.Categorical(["a"]))
    none = columns(PANDAS, pd.Categorical([], categories=["z", "a"]))
    assert agree(none, full)["x"].labels.to_pylist() == ["z", "a"]


def test_columns_follow_rank_0(backend: Any) -> None:
    first = backend.from_frame(pd.DataFrame({"a": [1], "b": ["x"]}))
    other = backend.from_frame(pd.DataFrame({"b": ["y"], "a": [2]}))
    schema = agree(first, other)
    assert schema.names == ("a", "b")
    assert backend.to_frame(backend.cast(other, schema)).to_dict("list") == {"a": [2], "b": ["y"]}


def test_a_missing_column_is_told_with_its_rank() -> None:
    parts = [PANDAS.from_frame(pd.DataFrame({name: [1]})) for name in ("k", "k", "q")]
    with pytest.raises(ColumnMissing, match="rank 2 has no column 'k', which rank 0 has") as caught:
        agree(*parts)
    assert caught.value.rank == 2


@pytest.mark.parametrize("schema_of, value", [
    (columns(PANDAS, [0.5]), columns(PANDAS, [2**53 + 1])),
    (columns(PANDAS, [1, -2]), columns(PANDAS, [2**63], dtype="uint64")),
    (columns(PANDAS, DAYS.astype("M8[ns]")), columns(PANDAS, np.array(["9999-01-01"], "M8[s]"))),
], ids=["int_as_float", "uint64_as_int64", "far_time_as_ns"])  # fmt: skip
def test_a_value_that_does_not_fit_is_an_error(backend: Any, schema_of: Columns, value: Columns) -> None:
    schema = agree(schema_of, value)
    data = value if backend.name == "pandas" else backend.to_device(value)
    with pytest.raises(SchemaMismatch, match="column 'x'"):
        backend.cast(data, schema)


def test_equal_schemas_cost_nothing(backend: Any) -> None:
    data = columns(backend, EVERY_DTYPE["category_str"])
    again = Schema.from_bytes(data.schema.to_bytes())
    assert agree_schemas([data.schema, again]) is data.schema
    assert backend.cast(data, again) is data


NAMES = [name for name in EVERY_DTYPE if name not in ("category_wide",)]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 4)), min_size=1, max_size=4))
@settings(max_examples=100)
def test_agreement_is_one_answer_that_every_rank_fits(picks: list[tuple[str, int]]) -> None:
    parts = [columns(PANDAS, EVERY_DTYPE[name].iloc[:rows]) for name, rows in picks]
    try:
        schema = agree(*parts)
    except SchemaMismatch as error:
        kinds = {part.schema["x"].kind for part in parts} - {"null"}
        assert len({name for name, _ in picks}) > 1 and kinds and "'x'" in error.message
        return
    assert agree(*[PANDAS.empty(schema)] * 2) == schema
    assert Schema.from_bytes(schema.to_bytes()).digest() == schema.digest()
    for part in parts:
        try:
            cast = PANDAS.cast(part, schema)
        except SchemaMismatch as error:
            assert "'x'" in error.message and "represent" in error.message  # int64 and uint64, ints above 2**53
            continue
        assert cast.schema == schema and cast.rows == part.rows
        before, after = values_of(PANDAS, part), values_of(PANDAS, cast)
        assert list(map(str, before)) == list(map(str, after)) or before == after


def test_schemas_that_were_found_equal_are_compared_at_once_from_then_on() -> None:
    one, other = (columns(PANDAS, [1.5]).schema for _ in range(2))
    unlike = columns(PANDAS, [1]).schema
    assert one.columns is not other.columns
    assert one == other and one.columns is other.columns
    assert one != unlike and unlike != other and other.columns is not unlike.columns
