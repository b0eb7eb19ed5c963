"""Expressions over columns: a tree that says what to compute row by row, and knows no dataframe library.

``gl.col("x") > 3`` is one; ``& | ~`` combine conditions. It is computed with the series of the rank's library, which
have the methods of pandas, so that dtypes and missing values are those of pandas.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError
from .column import Label
from .scalars import check_single_values, listed_values

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and_": "&", "or_": "|", "xor": "^",
}  # fmt: skip

# Functions of numpy that give floats, computed row by row.
_OF_NUMPY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "arcsin", "arccos",
    "arctan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc",
)  # fmt: skip
_NUMPY_OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "true_divide": "truediv",
    "floor_divide": "floordiv", "remainder": "mod", "power": "pow", "equal": "eq", "not_equal": "ne", "less": "lt",
    "less_equal": "le", "greater": "gt", "greater_equal": "ge", "bitwise_and": "and_", "logical_and": "and_",
    "bitwise_or": "or_", "logical_or": "or_", "bitwise_xor": "xor", "invert": "invert", "logical_not": "invert",
    "negative": "neg", "absolute": "abs", "isnan": "isna",
}  # fmt: skip
_TEXT_METHODS = ("len", "lower", "upper", "strip", "startswith", "endswith", "contains", "slice", "replace")
_TIME_FIELDS = ("year", "month", "day", "hour", "minute", "second", "weekday", "quarter", "dayofyear")
_SINCE_3_1 = {"weekday": "day_of_week", "dayofyear": "day_of_year"}
_OF_WHOLE_COLUMNS = (
    "sum", "mean", "min", "max", "count", "std", "var", "median", "quantile", "nunique", "any", "all",
)  # fmt: skip
# A text without these is found alike by itself and as a regular expression (but for the dot, which finds itself too).
_OF_REGULAR_EXPRESSIONS = frozenset("\\^$*+?{}[]|()")
_OF_STRUCTURE = ("col", "astype", "round")  # what these are given is no value of anybody's rows
_CONTAINS: dict[str, bool | None] = {"case": True, "na": None, "regex": False}


class Expression:
    """What to compute for each row. Made by `col`, `lit`, operators and methods; never changed.

    Parameters
    ----------
    operation : str
        ``col``, ``lit``, an operator, or a method.
    arguments : tuple
        Expressions, and plain values; a dict are values by name.
    """

    __slots__ = ("arguments", "operation")

    def __init__(self, operation: str, *arguments: Any) -> None:
        self.operation = operation
        self.arguments = arguments

    # ---- operators

    def __add__(self, other: Any) -> Expression:
        return self._of_values("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return self._of_values("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return self._of_values("sub", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return self._of_values("sub", other, self)

    def __mul__(self, other: Any) -> Expression:
        return self._of_values("mul", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return self._of_values("mul", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return self._of_values("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self._of_values("truediv", other, self)

    def __floordiv__(self, other: Any) -> Expression:
        return self._of_values("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return self._of_values("floordiv", other, self)

    def __mod__(self, other: Any) -> Expression:
        return self._of_values("mod", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return self._of_values("mod", other, self)

    def __pow__(self, other: Any) -> Expression:
        return self._of_values("pow", self, other)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._of_values("eq", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._of_values("ne", self, other)

    def __lt__(self, other: Any) -> Expression:
        return self._of_values("lt", self, other)

    def __le__(self, other: Any) -> Expression:
        return self._of_values("le", self, other)

    def __gt__(self, other: Any) -> Expression:
        return self._of_values("gt", self, other)

    def __ge__(self, other: Any) -> Expression:
        return self._of_values("ge", self, other)

    def __and__(self, other: Any) -> Expression:
        return self._of_values("and_", self, other)

    def __rand__(self, other: Any) -> Expression:
        return self._of_values("and_", other, self)

    def __or__(self, other: Any) -> Expression:
        return self._of_values("or_", self, other)

    def __ror__(self, other: Any) -> Expression:
        return self._of_values("or_", other, self)

    def __xor__(self, other: Any) -> Expression:
        return self._of_values("xor", self, other)

    def __array_ufunc__(self, ufunc: Any, method: builtin_str, *inputs: Any, **options: Any) -> Expression:
        """``np.log(gl.col("x"))``, and operators whose left side is a number of numpy's."""
        name = ufunc.__name__
        if method != "__call__" or options or name not in (*_OF_NUMPY, *_NUMPY_OPERATORS):
            raise ArgumentError(
                f"np.{name} of {inputs[0]!r} is not computed on the ranks.",
                advice=f"There are {', '.join(_OF_NUMPY)} and the operators; any other function of rows can be a "
                "gl.kernel, or runs in map_parts.",
            )
        given = [one.item() if getattr(one, "ndim", None) == 0 else one for one in inputs]
        return self._of_values(f"np.{name}" if name in _OF_NUMPY else _NUMPY_OPERATORS[name], *given)

    def __invert__(self) -> Expression:
        return self._made("invert", self)

    def __neg__(self) -> Expression:
        return self._made("neg", self)

    def _made(self, operation: builtin_str, *arguments: Any) -> Expression:
        """What an operator or a method gives; a column of a table gives one of that table."""
        return Expression(operation, *arguments)

    def _of_values(self, operation: builtin_str, *arguments: Any) -> Expression:
        """The same, if each of its values is one for all rows; see `check_single_values`."""
        check_single_values(arguments)
        return self._made(operation, *arguments)

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth of its own: combine conditions with & | ~, each in parentheses")

    __hash__ = object.__hash__

    # ---- methods, as a pandas Series has them

    def isna(self) -> Expression:
        """Whether a value is missing."""
        return self._made("isna", self)

    def notna(self) -> Expression:
        """Whether a value is there."""
        return self._made("notna", self)

    def isin(self, values: Iterable[Any]) -> Expression:
        """Whether a value is among some, of a list; text is one value, and an error."""
        return self._made("isin", self, listed_values("values", values))

    def between(self, left: Any, right: Any) -> Expression:
        """Whether a value is in [left, right]."""
        return self._of_values("between", self, left, right)

    def fillna(self, value: Any) -> Expression:
        """The value, or another where it is missing."""
        return self._of_values("fillna", self, value)

    def astype(self, dtype: Any) -> Expression:
        """The value in another dtype; a timedelta as a float is how many of its unit it is."""
        return self._made("astype", self, dtype)

    def where(self, condition: Expression, other: Any) -> Expression:
        """The value where a condition holds, otherwise another."""
        return self._of_values("where", self, condition, other)

    def replace(self, values: Any) -> Expression:
        """The value, or what a mapping has in its place."""
        if not isinstance(values, Mapping):
            advice = "Give a mapping, as in replace({'old': 'new'}); of pieces of strings there is .str.replace."
            raise ArgumentError(f"replace got {values!r}.", advice=advice)
        made = self
        for old, new in values.items():
            made = made.where(self.isna() | (self != old), new)
        return made

    def abs(self) -> Expression:
        """The absolute value."""
        return self._made("abs", self)

    def round(self, decimals: int = 0) -> Expression:
        """The value, rounded."""
        return self._made("round", self, decimals)

    def clip(self, lower: Any = None, upper: Any = None) -> Expression:
        """The value, not below one and not above another."""
        return self._of_values("clip", self, lower, upper)

    @property
    def str(self) -> TextMethods:
        """Methods of text: len, lower, upper, strip, startswith, endswith, contains, slice, replace, split, extract."""
        return TextMethods(self)

    @property
    def dt(self) -> TimeFields:
        """Fields of times: year, month, day, hour, minute, second, weekday, quarter, dayofyear; floor(unit), and
        total_seconds() of durations."""
        return TimeFields(self)

    # ---- what it is made of

    def columns(self) -> dict[Label, None]:
        """The columns that it reads, in order."""
        if self.operation == "col":
            return {self.arguments[0]: None}
        return {name: None for part in self._parts() for name in part.columns()}

    def size(self) -> int:
        """How many steps it has."""
        return 1 + sum(part.size() for part in self._parts())

    def parts(self) -> Iterator[Expression]:
        """It and all that it is made of."""
        yield self
        for part in self._parts():
            yield from part.parts()

    def _parts(self) -> Iterator[Expression]:
        return (part for part in self.arguments if isinstance(part, Expression))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Expression, (self.operation, *self.arguments))

    def __repr__(self) -> builtin_str:
        return self.text()

    def text(self, *, literals: bool = True) -> builtin_str:
        """How it is written.

        Parameters
        ----------
        literals : bool, default True
            Whether values stand in it that are compared, filled in or looked for, or ``…`` in place of each.

        Returns
        -------
        str
        """
        if self.operation == "kernel":
            called, *given = self.arguments
            shown = [
                one.text(literals=literals) if isinstance(one, Expression) else repr(one) if literals else "…"
                for one in given
            ]
            return f"{called.label(literals=literals)}({', '.join(shown)})"
        plain = literals or self.operation in _OF_STRUCTURE or self.operation.startswith("dt.")
        parts = [
            part.text(literals=literals) if isinstance(part, Expression)
            else _named(part) if isinstance(part, dict)
            else repr(part) if plain else "…"
            for part in self.arguments
        ]  # fmt: skip
        if self.operation in _SYMBOLS:
            return f"({parts[0]} {_SYMBOLS[self.operation]} {parts[1]})"
        if self.operation in ("col", "lit"):
            return f"{self.operation}({parts[0]})"
        if self.operation in ("invert", "neg"):
            return f"{'~' if self.operation == 'invert' else '-'}{parts[0]}"
        if self.operation.startswith("np."):
            return f"{self.operation}({parts[0]})"
        if self.operation.startswith("dt.") and not parts[1:]:
            return f"{parts[0]}.{self.operation}{'()' * (self.operation == 'dt.total_seconds')}"
        if self.operation == "str.split":
            return f"{parts[0]}.str.split({parts[1]})[{parts[2]}]"
        return f"{parts[0]}.{self.operation}({', '.join(parts[1:])})"

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: builtin_str) -> Any:
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _OF_WHOLE_COLUMNS:
                said += f": of a whole column it is a verb of the table, as t.{name}('x'), of groups an argument of agg"
            raise AttributeError(said)


builtin_str = str


def without_literals(value: Any) -> builtin_str:
    """The ``repr`` of an argument, in which expressions do not show values; those in lists and mappings too."""
    if isinstance(value, Expression):
        return value.text(literals=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {without_literals(one)}" for name, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        texts = ", ".join(map(without_literals, value))
        return f"[{texts}]" if isinstance(value, list) else f"({texts}{',' * (len(value) == 1)})"
    return repr(value)


def _named(values: dict[builtin_str, Any]) -> builtin_str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


class TextMethods:
    """Methods of text, reached by ``.str``."""

    def __init__(self, of: Expression) -> None:
        self._of = of

    def contains(
        self, pattern: builtin_str, *, case: bool = True, na: bool | None = None, regex: bool | None = None
    ) -> Expression:
        """Whether a text is in the value, or with ``regex=True`` whether a regular expression matches in it.

        Parameters
        ----------
        pattern : str
        case : bool, default True
            Whether upper and lower case differ. On GPU engines a regular expression may know only those of ASCII.
        na : bool, optional
            What holds of missing values; by default what pandas says of the column's dtype, which is no or missing.
        regex : bool, optional
            Must be given where it makes a difference, that is, where a sign of regular expressions is in the pattern.

        Raises
        ------
        ArgumentError
            If it is not given there, or another one is not what it can be.
        """
        if not isinstance(case, bool):
            raise ArgumentError(f"case={case!r} is invalid.", advice="Expected True or False.")
        if na is not None and not isinstance(na, bool):
            raise ArgumentError(f"na={na!r} is invalid.", advice="Expected True, False or None.")
        if regex is None and _OF_REGULAR_EXPRESSIONS & set(pattern):
            raise ArgumentError(
                f"contains({pattern!r}) may mean a plain string or a regular expression.",
                advice="Give regex=True, which is what pandas takes by default, or regex=False.",
            )
        given = {"case": case, "na": na, "regex": bool(regex)}
        other = {name: value for name, value in given.items() if value != _CONTAINS[name]}
        return self._of._made("str.contains", self._of, pattern, *([other] if other else []))

    def split(self, separator: builtin_str) -> Split:
        """What is between separators, of which one piece is taken: ``col("s").str.split("-")[0]``."""
        if not isinstance(separator, str) or not separator:
            raise ArgumentError(f"split got {separator!r}.", advice="Give a separator, as in .str.split('-')[0].")
        return Split(self._of, separator)

    def extract(self, pattern: builtin_str) -> Expression:
        """What the one group of a regular expression matches first; missing where it matches nowhere."""
        try:
            groups = re.compile(pattern).groups
        except (re.error, TypeError) as error:
            raise ArgumentError(f"extract({pattern!r}): {error}.", advice="Give a regular expression.") from None
        if groups != 1:
            raise ArgumentError(
                f"extract({pattern!r}) has {groups} groups.", advice="Give one, in parentheses, for each new column."
            )
        return self._of._made("str.extract", self._of, pattern)

    def __getattr__(self, name: builtin_str) -> Callable[..., Expression]:
        if name not in _TEXT_METHODS:
            known = (*_TEXT_METHODS, "split", "extract")
            raise AttributeError(f"there is no .str.{name}; there are {', '.join(known)}")
        return lambda *arguments: self._of._made(f"str.{name}", self._of, *arguments)


class Split:
    """Pieces of strings, of which one is taken by its number; negative ones count from the end.

    Parameters
    ----------
    of : Expression
    separator : str
    """

    def __init__(self, of: Expression, separator: builtin_str) -> None:
        self._of, self._separator = of, separator

    @property
    def str(self) -> Split:
        """As pandas writes it: ``.str.split("-").str[0]``."""
        return self

    def __getitem__(self, place: int) -> Expression:
        return self.get(place)

    def get(self, place: int) -> Expression:
        """One piece; missing where there are not so many."""
        if not isinstance(place, int) or isinstance(place, bool):
            raise ArgumentError(f"A piece of a split string is taken by its number, not by {place!r}.")
        return self._of._made("str.split", self._of, self._separator, place)

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __iter__(self) -> Any:
            raise TypeError("pieces of a split string are taken one by one: .str.split('-')[0]")


class TimeFields:
    """Fields of times, reached by ``.dt``."""

    def __init__(self, of: Expression) -> None:
        self._of = of

    def floor(self, unit: builtin_str) -> Expression:
        """The time at which its day ("D"), hour ("h"), minute ("min") or the like began, by its own clock."""
        return self._of._made("dt.floor", self._of, unit)

    def total_seconds(self) -> Expression:
        """How many seconds a duration is, as a float."""
        return self._of._made("dt.total_seconds", self._of)

    def __getattr__(self, name: builtin_str) -> Expression:
        if name not in _TIME_FIELDS:
            day = ", and floor('D') for the day as a time" if name in ("date", "normalize") else ", and floor(unit)"
            raise AttributeError(f"there is no .dt.{name}; there are {', '.join(_TIME_FIELDS)}{day}")
        return self._of._made(f"dt.{name}", self._of)


def col(name: Label) -> Expression:
    """A column, to compute with: ``gl.col("x") > 3``.

    Parameters
    ----------
    name : str or int
        Its label.

    Returns
    -------
    Expression
    """
    return Expression("col", name)


def lit(value: Any) -> Expression:
    """A value for every row.

    Parameters
    ----------
    value : scalar

    Returns
    -------
    Expression

    Raises
    ------
    ArgumentError
        If it is several values.
    """
    return of_single_values("lit", value)


class When:
    """``gl.when(condition).then(value)``, to which ``.when(...)``, or ``.otherwise(value)`` at the end, is added.

    Parameters
    ----------
    condition : Expression
    """

    def __init__(self, condition: Expression, before: Sequence[tuple[Expression, Any]] = ()) -> None:
        if not isinstance(condition, Expression):
            raise ArgumentError(f"when got {condition!r}.", advice="Give a condition, such as gl.col('x') > 0.")
        self._condition, self._before = condition, tuple(before)

    def then(self, value: Any) -> Then:
        """The value where the condition holds, and none before it did.

        Parameters
        ----------
        value : Expression or scalar

        Returns
        -------
        Then
        """
        return Then((*self._before, (self._condition, value)))


class Then:
    """Values for rows of which conditions hold; `otherwise` makes an expression of them.

    Parameters
    ----------
    cases : sequence of (Expression, value)
    """

    def __init__(self, cases: Sequence[tuple[Expression, Any]]) -> None:
        self._cases = tuple(cases)

    def when(self, condition: Expression) -> When:
        """Go on with rows of which no condition before held."""
        return When(condition, self._cases)

    def otherwise(self, value: Any) -> Expression:
        """The value of all other rows, also of those of which a condition is missing."""
        made: Any = value
        for condition, chosen in reversed(self._cases):
            first = chosen if isinstance(chosen, Expression) else lit(chosen)
            made = first.where(condition, made)
        expression: Expression = made
        return expression

    def __repr__(self) -> builtin_str:
        return f"<{len(self._cases)} cases without an end: add .otherwise(value)>"


def when(condition: Expression) -> When:
    """Begin to choose values by conditions: ``gl.when(gl.col("x") > 0).then("plus").otherwise("minus")``.

    Parameters
    ----------
    condition : Expression
        A missing one does not hold.

    Returns
    -------
    When

    Examples
    --------
    >>> size = when(col("x") > 100).then("large").when(col("x") > 10).then("middle").otherwise("small")
    >>> size
    lit('large').where((col('x') > 100), lit('middle').where((col('x') > 10), 'small'))
    """
    return When(condition)


def of_single_values(operation: str, *arguments: Any) -> Expression:
    """An expression, if each of its values is one for all rows; see `check_single_values`."""
    check_single_values(arguments)
    return Expression(operation, *arguments)


def compute(
    expression: Any, column: Callable[[Label], Any], shortcut: Callable[[Expression], Any] = lambda step: None
) -> Any:
    """Compute an expression with the series of a library; a value, where no column is in it.

    Parameters
    ----------
    expression : Expression or value
    column : callable
        Gives the series of a column.
    shortcut : callable, optional
        Gives the series of a step where there is a better way than that of the library, else None.
    """
    if not isinstance(expression, Expression):
        return expression
    made = shortcut(expression)
    if made is not None:
        return made
    operation, arguments = expression.operation, expression.arguments
    if operation == "col":
        return column(arguments[0])
    if operation == "lit":
        return arguments[0]
    values = [compute(argument, column, shortcut) for argument in arguments]
    if operation == "kernel":
        return values[0].run(values[1:])
    if operation in _SYMBOLS or operation in ("invert", "neg"):
        return getattr(operator, operation)(*values)
    if operation.startswith("dt."):
        times, name = values[0].dt, operation[3:]
        newer = _SINCE_3_1.get(name, name)  # the old names warn there
        name = newer if hasattr(times, newer) else name
        field = getattr(times, name)
        return field(*values[1:]) if callable(field) else field
    if operation == "str.contains":
        options = values[2] if len(values) > 2 else {}
        return values[0].str.contains(values[1], **{"regex": False, **options})
    if operation.startswith("np."):
        return _of_numpy(operation[3:], values[0])
    if operation == "str.split":
        return _piece(*values)
    if operation == "str.extract":
        return values[0].str.extract(values[1], expand=False)
    if operation == "where" and not hasattr(values[0], "where") and hasattr(values[1], "where"):
        values[0] = _repeated(values[0], values[1])
    if operation == "str.replace":
        return values[0].str.replace(*values[1:], regex=False)
    if operation.startswith("str."):
        return getattr(values[0].str, operation[4:])(*values[1:])
    if operation == "astype" and _are_timedeltas_to_floats(*values):
        return values[0].astype("int64").astype(values[1]).mask(values[0].isna())
    return getattr(values[0], operation)(*values[1:])


def _of_numpy(name: builtin_str, series: Any) -> Any:
    """A function of numpy of a series, or a value; decimals are converted before."""
    import numpy as np
    from pandas.api.types import is_numeric_dtype

    if hasattr(series, "dtype") and (not is_numeric_dtype(series.dtype) or "decimal" in str(series.dtype).lower()):
        series = series.astype("float64")
    with np.errstate(all="ignore"):  # of zeros and negative numbers: -inf and NaN, as libraries have them
        return getattr(np, name)(series)


def _piece(texts: Any, separator: builtin_str, place: int) -> Any:
    pieces = texts.str.split(separator, regex=False)
    if hasattr(pieces, "list"):  # cuDF
        return pieces.list.get(place, default=None)
    return pieces.str.get(place).astype(texts.dtype)


def _repeated(value: Any, like: Any) -> Any:
    """A series of one value, as long as another."""
    return type(like)([value]).repeat(len(like)).reset_index(drop=True)


def _are_timedeltas_to_floats(series: Any, dtype: Any) -> bool:
    """Whether libraries refuse, or do differently with NaT, what `Expression.astype` promises."""
    from pandas.api.types import is_float_dtype

    return getattr(getattr(series, "dtype", None), "kind", "") == "m" and is_float_dtype(dtype)
