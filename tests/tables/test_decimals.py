"""Arithmetic of decimals in expressions: Python's own, with all digits, and in one type whatever the values are."""

from __future__ import annotations

import decimal
import operator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.backends.arrow.tables import from_arrow
from gcylon_lab.backends.expressions.decimals import digits_of
from gcylon_lab.backends.expressions.object_columns import objects_made
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.expressions import Expression, col, lit

EXACT = decimal.Context(prec=200)
BACKEND = PandasBackend()

TABLE = pa.table(
    {
        "a": pa.array([Decimal("1.25"), None, Decimal("-99999.99"), Decimal(0), Decimal("2.5")], pa.decimal128(7, 2)),
        "b": pa.array([Decimal("3.5"), Decimal("-0.1"), None, Decimal("7.0"), Decimal("2.5")], pa.decimal128(30, 1)),
        "large": pa.array([Decimal(10**37), Decimal(-(10**37)), Decimal(1), None, Decimal(7)], pa.decimal128(38, 0)),
        "n": pa.array([3, -7, 0, 2**62, 2], pa.int64()),
    }
)
DATA = from_arrow(TABLE)
ROWS = TABLE.to_pylist()


def value(expression: Any, row: dict[str, Any]) -> Any:
    """One row's value, by Python."""
    if not isinstance(expression, Expression):
        return expression
    name, arguments = expression.operation, expression.arguments
    if name == "col":
        return row[arguments[0]]
    if name == "lit":
        return arguments[0]
    values = [value(one, row) for one in arguments]
    if name == "fillna":
        return values[1] if values[0] is None else values[0]
    if name == "where":
        return values[0] if values[1] else values[2]
    if None in values:
        return name == "ne" if name in ("eq", "ne", "lt", "le", "gt", "ge") else None
    values = [Decimal(int(one)) if isinstance(one, int) else one for one in values]
    if name == "round":
        return EXACT.quantize(values[0], Decimal(1).scaleb(-int(values[1])))
    if name in ("neg", "abs"):
        return {"neg": EXACT.minus, "abs": EXACT.abs}[name](values[0])
    if name in ("add", "sub", "mul"):
        return {"add": EXACT.add, "sub": EXACT.subtract, "mul": EXACT.multiply}[name](*values)
    return getattr(operator, name)(*values)


LEAVES = st.sampled_from([col("a"), col("b"), col("large")])
WHOLE = st.one_of(st.integers(-(10**6), 10**6), st.decimals(-1000, 1000, places=3), st.just(col("n")), st.just(lit(5)))


def _joined(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    both = st.tuples(st.sampled_from(["add", "sub", "mul"]), part, st.one_of(part, WHOLE))
    turned = st.tuples(st.sampled_from(["add", "sub", "mul"]), WHOLE, part)
    return st.one_of(
        both.map(lambda one: Expression(*one)),
        turned.map(lambda one: Expression(*one)),
        st.tuples(st.sampled_from(["neg", "abs"]), part).map(lambda one: Expression(*one)),
        st.tuples(part, st.integers(0, 3)).map(lambda one: one[0].round(one[1])),
        st.tuples(part, st.integers(-5, 5)).map(lambda one: one[0].fillna(one[1])),
        st.tuples(part, part).map(lambda one: one[0].where(one[0] > one[1], one[1])),
    )


TREES = st.recursive(LEAVES, _joined, max_leaves=4).filter(lambda one: one.operation != "col")


@settings(max_examples=150)
@given(TREES)
def test_arithmetic_is_that_of_python_with_all_digits(expression: Expression) -> None:
    if digits_of(expression, DATA.schema) is None:
        return  # more than 76 digits
    assert not list(objects_made(expression, DATA.schema))
    made = BACKEND.evaluate(DATA, [("y", expression)])
    expected = [value(expression, row) for row in ROWS]
    assert to_frame(made)["y"].tolist() == expected
    some = BACKEND.evaluate(from_arrow(TABLE.slice(1, 2)), [("y", expression)])
    digits = digits_of(expression, DATA.schema)
    assert digits is not None
    if digits.precision <= 38:  # the same on every rank
        assert some.schema["y"] == made.schema["y"] and made.schema["y"].arrow == pa.decimal128(*digits)


@settings(max_examples=100)
@given(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]), TREES, st.one_of(TREES, WHOLE))
@example("eq", 0 + col("a"), col("n"))
def test_comparisons_are_exact(name: str, left: Expression, right: Any) -> None:
    condition = Expression(name, left, right)
    if digits_of(left, DATA.schema) is None or (
        isinstance(right, Expression)
        and right.operation not in ("col", "lit")
        and digits_of(right, DATA.schema) is None
    ):
        return
    kept = to_frame(BACKEND.filter(DATA, condition))["n"].tolist()
    assert kept == [row["n"] for row in ROWS if value(condition, row)]


def test_what_else_is_asked_of_what_is_computed() -> None:
    product = col("a") * col("b")
    made = BACKEND.evaluate(
        DATA,
        [
            ("float", product.astype("float64")),
            ("gone", product.isna()),
            ("among", product.isin([Decimal("4.375"), 0])),
            ("within", product.between(0, 5)),
            ("half", product / 2),  # by Python's objects
        ],
    )
    frame = to_frame(made)
    assert frame["float"].tolist() == pytest.approx([4.375, np.nan, np.nan, 0, 6.25], nan_ok=True)
    assert frame["gone"].tolist() == [False, True, True, False, False]
    assert frame["among"].tolist() == [True, False, False, True, False]
    assert frame["within"].tolist() == [True, False, False, True, False]
    assert frame["half"].tolist() == [Decimal("2.1875"), None, None, Decimal("0.000"), Decimal("3.125")]


def test_more_digits_than_128_bits_have() -> None:
    made = BACKEND.evaluate(DATA, [("few", col("b") * col("large") * 0), ("many", col("large") * col("large"))])
    assert made.schema["few"].arrow == pa.decimal128(38, 1) and pa.types.is_decimal256(made.schema["many"].arrow)
    assert to_frame(made)["many"].tolist()[0] == Decimal(10**74)


def test_what_no_type_holds_together_is_compared_as_objects() -> None:
    tiny = lit(Decimal("1e-70"))
    condition = col("large") > tiny  # 38 digits before the point, and 70 after it
    kept = to_frame(BACKEND.filter(DATA, condition))["n"].tolist()
    assert kept == [row["n"] for row in ROWS if row["large"] is not None and row["large"] > Decimal("1e-70")]


def test_no_rows_have_the_types_of_some() -> None:
    expressions = [("y", col("a") * col("b") + 1), ("z", col("a").round(1)), ("c", col("a") * 2 > col("b"))]
    none, some = (BACKEND.evaluate(from_arrow(table), expressions) for table in (TABLE.slice(0, 0), TABLE))
    assert none.schema == some.schema and none.rows == 0


def test_a_frame_of_objects_agrees() -> None:
    frame = pd.DataFrame({"p": [Decimal("1.10"), Decimal("2.25")], "q": [Decimal("0.5"), Decimal("4")]})
    data = BACKEND.from_frame(frame)
    made = to_frame(BACKEND.evaluate(data, [("y", (1 - col("q")) * col("p") + 1)]))
    assert made["y"].tolist() == ((1 - frame["q"]) * frame["p"] + 1).tolist()
