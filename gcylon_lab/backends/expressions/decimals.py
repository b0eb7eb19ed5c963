"""Decimals in expressions: computed exactly by Arrow, in all digits that their types can need, without Python objects.

A sum has one digit more than the longer side, a product those of both and one more, as in Arrow and cuDF. A comparison
with a missing value does not hold, but ``!=`` does, as pandas has it for columns of objects.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..protocol.data import Columns
from ..protocol.expressions import Expression
from ..protocol.schema import Column, Label, Schema

_ARITHMETIC = {"add": pc.add, "sub": pc.subtract, "mul": pc.multiply}
_COMPARED = {
    "eq": pc.equal, "ne": pc.not_equal, "lt": pc.less, "le": pc.less_equal, "gt": pc.greater, "ge": pc.greater_equal,
}  # fmt: skip
_OF_INTS = {name: getattr(operator, name) for name in _COMPARED}
_LITTLE = sys.byteorder == "little"
_INT_DIGITS = 18  # that every int64 of so many holds
MOST_DIGITS = 38  # of decimal128, the widest that GPU engines have
_WIDEST = 76  # of decimal256

Truth = Callable[[Any], Any]
"""Gives the mask of a condition: numpy bools, one a row."""


class Digits(NamedTuple):
    """How many digits a decimal has, and how many of them after its point."""

    precision: int
    scale: int

    @property
    def before(self) -> int:
        """Digits before the point."""
        return self.precision - self.scale


def digits_of(expression: Any, schema: Schema) -> Digits | None:
    """The digits of what an expression gives; None where it gives no decimals, or some that are not computed here."""
    if not isinstance(expression, Expression):
        return None
    operation, arguments = expression.operation, expression.arguments
    if operation == "col":
        column = schema[arguments[0]] if arguments[0] in schema else None
        if column is None or column.fixed or column.kind != "decimal" or column.pandas != "object":
            return None
        return Digits(column.arrow.precision, column.arrow.scale) if column.arrow.scale >= 0 else None
    if operation in ("neg", "abs"):
        return digits_of(arguments[0], schema)
    if operation == "round":
        return _rounded(digits_of(arguments[0], schema), arguments[1])
    sides = (arguments[0], arguments[2]) if operation == "where" else arguments
    if operation not in (*_ARITHMETIC, "fillna", "where") or len(sides) != 2:
        return None
    left, right = (digits_of(side, schema) or _of_whole(side, schema) for side in sides)
    decimals = [digits_of(side, schema) is not None for side in sides]
    if left is None or right is None or not any(decimals) or (operation == "fillna" and not decimals[0]):
        return None
    return _limited(_joined(operation, left, right))


def _joined(operation: str, left: Digits, right: Digits) -> Digits:
    if operation == "mul":
        return Digits(left.precision + right.precision + 1, left.scale + right.scale)
    scale = max(left.scale, right.scale)
    return Digits(max(left.before, right.before) + scale + (operation in _ARITHMETIC), scale)


def _rounded(digits: Digits | None, decimals: Any) -> Digits | None:
    if digits is None or not isinstance(decimals, int) or decimals < 0:
        return None
    return _limited(Digits(digits.before + decimals + 1, decimals)) if decimals < digits.scale else digits


def _limited(digits: Digits) -> Digits | None:
    return digits if digits.precision <= _WIDEST else None


def _of_whole(value: Any, schema: Schema) -> Digits | None:
    """The digits of a value, or of a column of ints."""
    if isinstance(value, Expression):
        if value.operation == "lit":
            return _of_whole(value.arguments[0], schema)
        column = schema[value.arguments[0]] if value.operation == "col" and value.arguments[0] in schema else None
        return Digits(20, 0) if column is not None and column.fixed and column.kind == "int" else None
    if isinstance(value, (bool, np.bool_, np.timedelta64)):  # to numpy, a timedelta64 is an integer
        return None
    if isinstance(value, (int, np.integer)):
        return _limited(Digits(len(str(abs(int(value)))), 0))
    if isinstance(value, Decimal) and value.is_finite():
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        scale = max(0, -exponent)
        return _limited(Digits(max(len(digits) + max(0, exponent), scale, 1), scale))
    return None


def is_computed(expression: Expression, schema: Schema) -> bool:
    """Whether `computed` gives a step of an expression: arithmetic of decimals, or a question about them."""
    operation, arguments = expression.operation, expression.arguments
    if operation in ("col", "lit"):
        return False
    if digits_of(expression, schema) is not None:
        return True
    if operation in ("isna", "notna"):
        return digits_of(arguments[0], schema) is not None
    if operation == "astype":
        return digits_of(arguments[0], schema) is not None and (arguments[1] is float or str(arguments[1]) == "float64")
    if operation == "isin":
        return digits_of(arguments[0], schema) is not None and _are_comparable([arguments[0], *arguments[1]], schema)
    if operation not in (*_COMPARED, "between"):
        return False
    return any(digits_of(one, schema) is not None for one in arguments) and _are_comparable(arguments, schema)


def _are_comparable(values: Sequence[Any], schema: Schema) -> bool:
    """Whether the first of some values and each other have a type that holds both."""
    first, *others = (digits_of(one, schema) or _of_whole(one, schema) for one in values)
    return first is not None and all(
        one is not None and _limited(_joined("where", first, one)) is not None for one in others
    )


def row_bytes(expression: Expression, schema: Schema) -> int:
    """Bytes a row that a step of decimals may take beyond 16: those of 256 bits take 32."""
    found = [digits_of(part, schema) for part in expression.parts()]
    return 16 * expression.steps() if any(one is not None and one.precision > MOST_DIGITS for one in found) else 0


def computed(expression: Expression, data: Columns, truth: Truth) -> pd.Series[Any]:
    """Compute a step for which `is_computed` holds."""
    schema, operation, arguments = data.schema, expression.operation, expression.arguments
    if digits_of(expression, schema) is not None:
        found: pd.Series[Any] = _array(expression, data, truth).to_pandas()
        return found
    if operation in (*_COMPARED, "between"):
        ints = as_ints(arguments, data)
        if ints is not None:
            return pd.Series(compared(operation, *ints), copy=False)
    if operation == "between":
        low, high = (Expression(name, arguments[0], one) for name, one in zip(("ge", "le"), arguments[1:], strict=True))
        return computed(low, data, truth) & computed(high, data, truth)
    if operation in _COMPARED:
        sides = [_side(one, data, truth) for one in arguments]
        found = _COMPARED[operation](*_alike(*sides)).fill_null(operation == "ne")
        return pd.Series(found.to_numpy(zero_copy_only=False), copy=False)
    if operation == "astype":
        return pd.Series(_floats(arguments[0], data, truth), copy=False)
    values = _array(arguments[0], data, truth)
    if operation == "isin":
        any_of = np.zeros(len(values), np.bool_)
        for one in arguments[1]:
            found = pc.equal(*_alike(values, _side(one, data, truth))).fill_null(False)
            any_of |= found.to_numpy(zero_copy_only=False)
        return pd.Series(any_of, copy=False)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    return pd.Series(missing if operation == "isna" else ~missing)


def compared(operation: str, first: Any, *others: Any) -> npt.NDArray[np.bool_]:
    """A comparison of numbers, none of which is missing."""
    found: npt.NDArray[np.bool_]
    if operation == "between":
        low, high = others
        found = np.logical_and(first >= low, first <= high)
    else:
        found = _OF_INTS[operation](first, *others)
    return found


def _floats(expression: Expression, data: Columns, truth: Truth) -> npt.NDArray[np.float64]:
    array = data.array(expression.arguments[0]) if expression.operation == "col" else _array(expression, data, truth)
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    floats, at = np.empty(len(array), np.float64), 0
    for chunk in chunks:  # one by one, as each is joined with others only to be read once
        floats[at : at + len(chunk)] = chunk.cast("float64").to_numpy(zero_copy_only=False)
        at += len(chunk)
    return floats


def as_ints(sides: Sequence[Any], data: Columns) -> list[Any] | None:
    """Columns of decimals without missing values, and values, in units of one scale: int64, which is compared in a
    tenth of the time. None where another side is among them, or one that an int64 does not hold."""
    if not isinstance(sides[0], Expression) or sides[0].operation != "col":
        return None
    known = []
    for side in sides:
        plain = side.arguments[0] if isinstance(side, Expression) and side.operation == "lit" else side
        digits = _of_whole(plain, data.schema) if not isinstance(plain, Expression) else digits_of(plain, data.schema)
        if digits is None or (isinstance(plain, Expression) and plain.operation != "col"):
            return None
        known.append((plain, digits))
    scale = max(digits.scale for _, digits in known)
    if any(digits.before + scale > _INT_DIGITS for _, digits in known):
        return None
    found: list[Any] = []
    for plain, digits in known:
        if not isinstance(plain, Expression):
            found.append(int((plain if isinstance(plain, Decimal) else Decimal(int(plain))).scaleb(scale)))
            continue
        array = data.array(plain.arguments[0])
        if array.null_count or not pa.types.is_decimal128(array.type):
            return None
        ints = scaled_ints(array)
        found.append(ints if digits.scale == scale else ints * 10 ** (scale - digits.scale))
    return found


def scaled_ints(array: Any) -> npt.NDArray[np.int64]:
    """Decimals of at most 18 digits as ints of their scale; those of missing ones are any."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    ints, at = np.empty(len(array), np.int64), 0
    for chunk in chunks:
        if len(chunk):
            words = np.frombuffer(chunk.buffers()[1], np.int64, 2 * len(chunk), 16 * chunk.offset)
            ints[at : at + len(chunk)] = words[0 if _LITTLE else 1 :: 2]
            at += len(chunk)
    return ints


def column_of(name: Label, expression: Expression, data: Columns, truth: Truth) -> tuple[Column, Any] | None:
    """The column of an expression that gives decimals; None of another, and of a column as it is."""
    digits = digits_of(expression, data.schema)
    if digits is None or expression.operation == "col":
        return None
    array = _array(expression, data, truth)
    if digits.precision > MOST_DIGITS:  # as its values are: few products need all digits that they could have
        try:
            array = array.cast(pa.decimal128(MOST_DIGITS, min(digits.scale, MOST_DIGITS)))
        except pa.ArrowInvalid:
            pass
    return Column(name, "decimal", "object", arrow=array.type), pa.chunked_array([array])


def _array(expression: Expression, data: Columns, truth: Truth) -> Any:
    """What an expression with digits gives, as an Arrow array of its digits."""
    operation, arguments = expression.operation, expression.arguments
    digits = digits_of(expression, data.schema)
    assert digits is not None
    if operation == "col":
        array = data.array(arguments[0])
        return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    values = _side(arguments[0], data, truth)
    if operation == "neg":
        return pc.negate(values)
    if operation == "abs":
        return pc.abs(values)
    if operation == "round":
        made = pc.round(values.cast(_wider(values.type)), ndigits=arguments[1], round_mode="half_to_even")
        return made.cast(_type(digits))
    other = _side(arguments[-1], data, truth)
    if operation in _ARITHMETIC:
        if digits.precision > MOST_DIGITS:
            values, other = (side.cast(pa.decimal256(side.type.precision, side.type.scale)) for side in (values, other))
        return _ARITHMETIC[operation](values, other)
    values, other = values.cast(_type(digits)), other.cast(_type(digits))
    if operation == "fillna":
        return pc.coalesce(values, other)
    return pc.if_else(pa.array(truth(arguments[1])), values, other)


def _side(value: Any, data: Columns, truth: Truth) -> Any:
    """A side of a step: an array of decimals, or one value as a scalar."""
    if isinstance(value, Expression) and digits_of(value, data.schema) is not None:
        return _array(value, data, truth)
    if isinstance(value, Expression) and value.operation == "col":
        return pa.array(data.array(value.arguments[0])).cast(pa.decimal128(20, 0))
    digits = _of_whole(value, data.schema)
    assert digits is not None
    plain = value.arguments[0] if isinstance(value, Expression) else value
    return pa.scalar(plain if isinstance(plain, Decimal) else Decimal(int(plain)), _type(digits))


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Two sides in one type, which holds both exactly."""
    digits = _joined("where", *(Digits(side.type.precision, side.type.scale) for side in (left, right)))
    wanted = _type(digits)
    return left.cast(wanted), right.cast(wanted)


def _type(digits: Digits) -> Any:
    return (pa.decimal128 if digits.precision <= MOST_DIGITS else pa.decimal256)(*digits)


def _wider(type_: Any) -> Any:
    """With place for the digit that rounding up may add."""
    return _type(Digits(min(type_.precision + 1, _WIDEST), type_.scale))
