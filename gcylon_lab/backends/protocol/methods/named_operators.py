"""Operators of expressions by the names that pandas gives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....config import nearest


class NamedOperators:
    """add, sub, mul, div, floordiv, mod, pow; eq, ne, lt, le, gt, ge; isnull, notnull."""

    def add(self: Any, other: Any) -> Any:
        """The sum of the two."""
        return self + other

    def sub(self: Any, other: Any) -> Any:
        """The value less another."""
        return self - other

    def mul(self: Any, other: Any) -> Any:
        """The product of the two."""
        return self * other

    def div(self: Any, other: Any) -> Any:
        """The value divided by another."""
        return self / other

    truediv, divide, subtract, multiply = div, div, sub, mul

    def floordiv(self: Any, other: Any) -> Any:
        """How many times another is in the value."""
        return self // other

    def mod(self: Any, other: Any) -> Any:
        """What is left of the value, divided by another."""
        return self % other

    def pow(self: Any, other: Any) -> Any:
        """The value to the power of another."""
        return self**other

    def eq(self: Any, other: Any) -> Any:
        """Whether the two are equal."""
        return self == other

    def ne(self: Any, other: Any) -> Any:
        """Whether the two differ."""
        return self != other

    def lt(self: Any, other: Any) -> Any:
        """Whether the value is less than another."""
        return self < other

    def le(self: Any, other: Any) -> Any:
        """Whether the value is not greater than another."""
        return self <= other

    def gt(self: Any, other: Any) -> Any:
        """Whether the value is greater than another."""
        return self > other

    def ge(self: Any, other: Any) -> Any:
        """Whether the value is not less than another."""
        return self >= other

    def isnull(self: Any) -> Any:
        """Whether the value is missing; see `isna`."""
        return self.isna()

    def notnull(self: Any) -> Any:
        """Whether the value is there; see `notna`."""
        return self.notna()


OF_EXPRESSIONS = {
    "alias": "t.assign(y=t.x): a column has its name where it is made",
    "apply": "t.map_parts(f), or what is computed of columns, as t.x * 2",
    "arr": "t.map_parts(f)",
    "backward_fill": "bfill()",
    "case_when": "gl.when(t.x > 0).then('plus').otherwise('minus')",
    "cat": "astype('str') for labels as text; t.x.value_counts() counts them",
    "ceil": "np.ceil(t.x)",
    "combine_first": "fillna(t.y)",
    "cum_count": "gl.lit(1).cumsum()",
    "exp": "np.exp(t.x)",
    "explode": "t.map_parts(lambda part: part.explode('x'))",
    "fill_nan": "fillna(0)",
    "fill_null": "fillna(0)",
    "floor": "np.floor(t.x)",
    "forward_fill": "ffill()",
    "interpolate": "to_pandas(limit).interpolate(), or ffill() and bfill()",
    "is_between": "between(1, 5)",
    "is_duplicated": "t.duplicated('x', keep=False)",
    "is_finite": "notna()",
    "is_first_distinct": "~t.duplicated('x')",
    "is_in": "isin([1, 2])",
    "is_nan": "isna()",
    "is_not_nan": "notna()",
    "is_not_null": "notna()",
    "is_null": "isna()",
    "list": "t.map_parts(f)",
    "log": "np.log(t.x)",
    "log10": "np.log10(t.x)",
    "log1p": "np.log1p(t.x)",
    "map_batches": "t.map_parts(f)",
    "map_elements": "t.map_parts(f), or what is computed of columns, as t.x * 2",
    "not_": "~(t.x > 0)",
    "rename": "t.rename({'x': 'y'}), or t.assign(y=t.x)",
    "replace_strict": "replace({'old': 'new'}), or map({'old': 'new'})",
    "reverse": "t.sort_values(by, ascending=False)",
    "sign": "gl.when(t.x > 0).then(1).when(t.x < 0).then(-1).otherwise(t.x)",
    "sort_by": "t.sort_values(by)",
    "sqrt": "np.sqrt(t.x)",
    "struct": "t.map_parts(f)",
    "transform": "what is computed of columns, as t.x * 2, or t.map_parts(f)",
    "zip_with": "where(condition, t.y)",
} | {f"rolling_{name}": f"rolling(3).{name}()" for name in ("sum", "mean", "min", "max", "std", "var")}


def instead_of(name: str, own: Iterable[str]) -> str:
    """What to call in the place of a name that an expression has not, as the end of a sentence; "" where nothing is
    known.

    Parameters
    ----------
    name : str
    own : iterable of str
        The names that it has.
    """
    if name in OF_EXPRESSIONS:
        return f": use {OF_EXPRESSIONS[name]}"
    meant = "" if name.startswith("_") else nearest(name, (one for one in own if not one.startswith("_")))
    return f": did you mean {meant!r}?" if meant else ""
