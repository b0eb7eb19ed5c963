"""Operators of expressions by the names that pandas gives them."""

from __future__ import annotations

from typing import Any


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
