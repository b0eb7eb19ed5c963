"""Expressions over columns: a tree that says what to compute row by row, and knows no dataframe library.

``gl.col("x") > 3`` is one; ``& | ~`` combine conditions. It is computed with the series of the rank's library, which
have the methods of pandas, so that dtypes and missing values are those of pandas.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError
from .methods.accessors import TextMethods, TimeFields
from .methods.named_operators import NamedOperators, instead_of
from .methods.rolling import Expanding, Rolling
from .methods.signatures import in_own_words
from .scalars import check_choice, check_flags, check_single_values, is_missing, listed_values, whole_number
from .schema import Label

SYMBOLS = {
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
_METHODS_OF_NUMPY = {
    "round": "round", "around": "round", "clip": "clip", "isin": "isin", "cumsum": "cumsum", "cumprod": "cumprod",
}  # fmt: skip
_INSTEAD_OF_NUMPY = {
    "append": "gl.concat([t, u])",
    "argmax": "t.nlargest(1, 'x')",
    "argmin": "t.nsmallest(1, 'x')",
    "argsort": "t.sort_values('x')",
    "bincount": "t.x.value_counts()",
    "concatenate": "gl.concat([t, u])",
    "corrcoef": "t.x.corr(t.y)",
    "count_nonzero": "(t.x != 0).sum()",
    "cov": "t.x.cov(t.y)",
    "diff": "t.x.diff()",
    "digitize": "gl.cut(t.x, bins, labels=False)",
    "histogram2d": "gl.crosstab(gl.cut(t.x, 10), gl.cut(t.y, 10))",
    "nan_to_num": "t.x.fillna(0)",
    "prod": "np.exp(np.log(t.x).sum())",
    "ptp": "t.x.max() - t.x.min()",
    "searchsorted": "gl.cut(t.x, bins, labels=False)",
    "sort": "t.x.sort_values()",
    "unique": "t.x.unique()",
}
_OF_WHOLE_COLUMNS = (
    "sum", "mean", "min", "max", "count", "std", "var", "median", "quantile", "nunique", "any", "all",
)  # fmt: skip
_OF_STRUCTURE = ("col", "astype", "round", "map")  # what these are given is no value of anybody's rows


@in_own_words
class Expression(NamedOperators):
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

    def __divmod__(self, other: Any) -> tuple[Expression, Expression]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Expression, Expression]:
        return other // self, other % self

    def __pow__(self, other: Any) -> Expression:
        return self._of_values("pow", self, other)

    def __rpow__(self, other: Any) -> Expression:
        return self._of_values("pow", other, self)

    def __abs__(self) -> Expression:
        return self.abs()

    def __round__(self, decimals: int | None = None) -> Expression:
        return self.round(decimals or 0)

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

    def __rxor__(self, other: Any) -> Expression:
        return self._of_values("xor", other, self)

    def __array_ufunc__(self, ufunc: Any, method: builtin_str, *inputs: Any, **options: Any) -> Expression:
        """``np.log(gl.col("x"))``, and operators whose left side is a number of numpy's."""
        name = ufunc.__name__
        if name in ("maximum", "minimum") and method == "__call__" and not options:
            first, second = inputs if isinstance(inputs[0], Expression) else inputs[::-1]
            chosen: Expression = first >= second if name == "maximum" else first <= second
            return self._of_values("where", first, chosen | first.isna(), second)
        if method != "__call__" or options or name not in (*_OF_NUMPY, *_NUMPY_OPERATORS):
            raise ArgumentError(
                f"np.{name} of {inputs[0]!r} is not computed on the ranks.",
                advice=f"There are {', '.join(_OF_NUMPY)} and the operators; any other function of rows can be a "
                "gl.kernel, or runs in map_parts.",
            )
        # Of an array without an axis its one value, in the dtype that numpy gave it: nanoseconds would become ints.
        given = [one[()] if getattr(one, "ndim", None) == 0 else one for one in inputs]
        return self._of_values(f"np.{name}" if name in _OF_NUMPY else _NUMPY_OPERATORS[name], *given)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        """``np.where(condition, a, b)``, ``np.select``, and what is a method by the same name; others are refused."""
        name = function.__name__
        if name == "where" and len(args) == 3 and not options:
            return self._chosen([args[0]], [args[1]], args[2])
        if name == "select":
            return self._chosen(*inspect.signature(function).bind(*args, **options).args)
        if name in _METHODS_OF_NUMPY and args and args[0] is self:
            return getattr(self, _METHODS_OF_NUMPY[name])(*args[1:], **options)
        advice = "Give it to_pandas(limit) or to_numpy(limit) of a column, or run it in map_parts."
        if name in _INSTEAD_OF_NUMPY:
            advice = f"Use {_INSTEAD_OF_NUMPY[name]}, or give it to_pandas(limit)."
        raise ArgumentError(f"np.{name} of {self!r} is not computed on the ranks.", advice=advice)

    def _chosen(self, conditions: Sequence[Any], values: Sequence[Any], otherwise: Any = 0) -> Expression:
        """The value of the first condition that holds."""
        if len(conditions) != len(values):
            raise ArgumentError(f"There are {len(conditions)} conditions, and {len(values)} values.")
        made = otherwise
        for condition, value in reversed(list(zip(conditions, values, strict=True))):
            made = (value if isinstance(value, Expression) else lit(value)).where(condition, made)
        return self._made(made.operation, *made.arguments)

    def __invert__(self) -> Expression:
        return self._made("invert", self)

    def __neg__(self) -> Expression:
        return self._made("neg", self)

    def _made(self, operation: builtin_str, *arguments: Any) -> Expression:
        """What an operator or a method gives; a column of a table gives one of that table."""
        return Expression(operation, *arguments)

    def _of_values(self, operation: builtin_str, *arguments: Any) -> Expression:
        """The same, if each of its values is one for all rows; see `check_single_values`."""
        check_single_values(one for one in arguments if not isinstance(one, Expression))
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

    def where(self, condition: Expression, other: Any = None) -> Expression:
        """The value where a condition holds, otherwise another, or none."""
        return self._of_values("where", self, condition, other)

    def replace(self, values: Any, new: Any = None) -> Expression:
        """The value, or what a mapping has in its place; ``replace(old, new)`` is of one value."""
        if new is not None:
            values = {values: new}
        if not isinstance(values, Mapping):
            advice = "Give a mapping, as in replace({'old': 'new'}); of pieces of strings there is .str.replace."
            raise ArgumentError(f"replace got {values!r}.", advice=advice)
        made = self
        for old, new in values.items():
            if isinstance(old, Expression):
                raise ArgumentError(f"replace looks for {old!r}.", advice="Give values; of columns there is where.")
            if is_missing(old):
                made = made.where(self.notna(), new)
            else:
                made = made.where(self.isna() | (self != old), new)
        return made

    def map(self, values: Mapping[Any, Any]) -> Expression:
        """What a mapping has for the value; missing where it has nothing."""
        if not isinstance(values, Mapping):
            raise ArgumentError(
                "map takes a mapping here, and no function, which would be called for each row.",
                advice="Give map({'old': 'new'}), compute with columns, or run a function of frames in t.map_parts(f).",
            )
        return self._made("map", self, dict(values))

    def mask(self, condition: Expression, other: Any = None) -> Expression:
        """The value where a condition does not hold, otherwise another, or none."""
        return self._of_values("mask", self, condition, other)

    def cast(self, dtype: Any) -> Expression:
        """The value in another dtype; see `astype`."""
        return self.astype(dtype)

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
        """Methods of text, as pandas has them: lower, strip, startswith, contains, replace, split, extract, cat, ..."""
        return TextMethods(self)

    @property
    def dt(self) -> TimeFields:
        """Fields of times: year, month, day, hour, weekday, quarter, week, ...; floor(unit), strftime(form), and
        total_seconds() of durations."""
        return TimeFields(self)

    # ---- of other rows too, in the order of the whole table, or of those of its group with `over`

    def cumsum(self) -> Expression:
        """The sum of the values up to and with this row; missing ones are skipped, here and below."""
        return self._window("cumsum")

    def cumprod(self) -> Expression:
        """The product of the values up to and with this row."""
        return self._window("cumprod")

    def cummax(self) -> Expression:
        """The greatest value up to and with this row."""
        return self._window("cummax")

    def cummin(self) -> Expression:
        """The least value up to and with this row."""
        return self._window("cummin")

    def ffill(self) -> Expression:
        """The value, or where it is missing the last one before it."""
        return self._window("ffill")

    def bfill(self) -> Expression:
        """The value, or where it is missing the first one after it."""
        return self._window("bfill")

    def shift(self, periods: int = 1) -> Expression:
        """The value so many rows before, or with a negative number after; missing where there is no such row."""
        return self._window("shift", periods=whole_number("periods", periods))

    def diff(self, periods: int = 1) -> Expression:
        """The value less that of so many rows before."""
        return self - self.shift(periods)

    def pct_change(self, periods: int = 1) -> Expression:
        """The value divided by that of so many rows before, less 1."""
        return self / self.shift(periods) - 1

    def rank(self, method: builtin_str = "average", *, ascending: bool = True, pct: bool = False) -> Expression:
        """The place of the value in the order of all values, from 1; missing ones have none.

        Parameters
        ----------
        method : {"average", "min", "max", "first", "dense"}
            What equal values get.
        ascending : bool, default True
        pct : bool, default False
            The place as a part of the number of all.
        """
        check_choice("method", method, ("average", "min", "max", "first", "dense"))
        check_flags(ascending=ascending, pct=pct)
        return self._window("rank", method=method, ascending=bool(ascending), pct=bool(pct))

    def rolling(self, window: int, min_periods: int | None = None) -> Rolling:
        """The last rows, this one among them: ``rolling(3).mean()``.

        Parameters
        ----------
        window : int
            How many rows.
        min_periods : int, optional
            How many values are enough for an answer; all of them by default.
        """
        return Rolling(self, window, min_periods)

    def expanding(self, min_periods: int = 1) -> Expanding:
        """All rows up to and with this one: ``expanding().mean()``."""
        return Expanding(self, min_periods)

    def over(self, keys: Any, *, dropna: bool = False) -> Expression:
        """The same among the rows with equal keys alone: ``col("x").cumsum().over("k")``.

        Parameters
        ----------
        keys : label, Expression, or list of them
        dropna : bool, default False
            Whether rows with a missing key have no answer.

        Raises
        ------
        ArgumentError
            If nothing in it looks at other rows.
        """
        given = keys if isinstance(keys, (list, tuple)) else [keys]
        names = [one if isinstance(one, Expression) else col(one) for one in given]
        if not names or not any(part.operation == "window" for part in self.parts()):
            raise ArgumentError(
                f"{self!r} looks at no other rows: over has nothing to do, or no keys.",
                advice='Give for example col("x").cumsum().over("k"), or t.groupby("k")["x"].transform("mean").',
            )
        return self._among(names, dropna)

    def _among(self, keys: Sequence[Expression], dropna: bool) -> Expression:
        made = [one._among(keys, dropna) if isinstance(one, Expression) else one for one in self.arguments]
        if self.operation == "window" and len(made) == 3:
            return self._made("window", made[0], made[1] | {"dropna": dropna}, made[2], *keys)
        return self._made(self.operation, *made)

    def _window(self, called: builtin_str, **how: Any) -> Expression:
        return self._made("window", called, how, self)

    # ---- what it is made of

    def columns(self) -> dict[Label, None]:
        """The columns that it reads, in order."""
        if self.operation == "col":
            return {self.arguments[0]: None}
        return {name: None for part in self._parts() for name in part.columns()}

    def steps(self) -> int:
        """How many steps it has."""
        return 1 + sum(part.steps() for part in self._parts())

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
        if self.operation == "window":
            return self._window_text(literals=literals)
        plain = literals or self.operation in _OF_STRUCTURE or self.operation.startswith("dt.")
        parts = [
            part.text(literals=literals) if isinstance(part, Expression)
            else _named(part) if isinstance(part, dict)
            else repr(part) if plain else "…"
            for part in self.arguments
        ]  # fmt: skip
        if self.operation in SYMBOLS:
            return f"({parts[0]} {SYMBOLS[self.operation]} {parts[1]})"
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

    def _window_text(self, *, literals: bool) -> builtin_str:
        function, how, *given = self.arguments
        value, *keys = (one.text(literals=literals) for one in given)
        made = f"{value}.{function}({_named({name: one for name, one in how.items() if name != 'dropna'})})"
        dropna = f", dropna={how['dropna']}" if how.get("dropna") else ""
        return f"{made}.over([{', '.join(keys)}]{dropna})" if keys else made

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: builtin_str) -> Any:
            said = f"an expression has no attribute {name!r}"
            if name not in _OF_WHOLE_COLUMNS:
                said += instead_of(name, dir(type(self)))
            if name in _OF_WHOLE_COLUMNS:
                column = self.arguments[0] if self.operation == "col" else "x"
                said += (
                    f": of a whole column it is a verb of the table, as t.{name}({column!r}); of groups write "
                    f"t.groupby(k).agg(y=({column!r}, {name!r})), or for every row "
                    f"t.groupby(k)[{column!r}].transform({name!r})"
                )
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
            check_single_values(one for one in (made,) if not isinstance(one, Expression))
            made = condition._made("where", first, condition, made)
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
