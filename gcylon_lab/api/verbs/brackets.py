"""Columns of a table by brackets and by name: ``t["x"]``, ``t.x``, ``t[["a", "b"]]``, ``t[t.x > 3]``."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...backends.protocol.aggregation import by_name
from ...backends.protocol.expressions import Expression
from ...backends.protocol.methods.signatures import in_own_words
from ...backends.protocol.scalars import has_columns, shown
from ...backends.protocol.schema import Label, shown_labels
from ...engine.exec.invocation import check_labels, listed
from ...errors import ArgumentError, ColumnMissing, GcylonError
from ...operators.rowwise.head_tail import checked_rows
from ..frames.located import Placed, some_rows
from ..query_text import condition_of
from .pandas_hints import OF_COLUMNS, no_attribute, no_item, no_new_item, no_operator, no_such_column, refuse_in_pandas

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 10_000  # that other libraries are given without being asked for by a number
WHOLE_COLUMNS = (
    "sum", "mean", "min", "max", "count", "nunique", "any", "all", "var", "std", "median", "quantile", "sem",
)  # fmt: skip
_COMPUTED = "value"  # the name of what is computed of several columns


@in_own_words
class Column(Expression):
    """A column of a table, or what is computed of its columns row by row; made by ``t["x"]``, ``t.x`` and operators.

    It is an expression (`gl.col`) that knows its table: ``t[t.x > 3]`` and ``t.assign(y=t.x * 2)`` take it, and
    ``t.x.mean()`` is an answer. Nothing is computed until then.

    Parameters
    ----------
    table : Table or DistTable
    operation, *arguments
        As for `Expression`.

    Raises
    ------
    ArgumentError
        If it is computed of columns of two tables, whose rows have no common order.
    """

    __slots__ = ("_table",)

    def __init__(self, table: Any, operation: str, *arguments: Any) -> None:
        check_own(arguments, table)
        super().__init__(operation, *arguments)
        self._table = table

    def _made(self, operation: str, *arguments: Any) -> Expression:
        return Column(self._table, operation, *arguments)

    @property
    def name(self) -> Label:
        """Its label; of what is computed that of the column it is computed of, or "value" where these are several."""
        names = list(_computed_of(self))
        return names[0] if len(names) == 1 else _COMPUTED

    @property
    def dtype(self) -> str:
        """Its dtype, in words. Of what is computed all ranks compute it."""
        dtypes = self._table.dtypes if self.operation == "col" else self.to_table().dtypes
        return str(dtypes[self.name])

    def isin(self, values: Iterable[Any]) -> Expression:
        """Whether a value is among some, of a list; of another table's column at most 10,000 are fetched."""
        if isinstance(values, Column) and (rows := values._table._all_rows()) > MOST_ROWS:
            raise ArgumentError(
                f"isin got a column of {rows:,} rows, of which at most {MOST_ROWS:,} come by themselves.",
                advice=f"Bring the tables together: t.join(other, on={values.name!r}, how='semi') keeps the rows whose "
                "value is there, how='anti' the others (left_on= and right_on= where the names differ).",
            )
        return super().isin(values)

    # ---- one value for the whole column

    def sum(self) -> Any:
        """Collective: all ranks call it. Add up its values; missing ones are skipped, here and below."""
        return self._reduced("sum")

    def mean(self) -> Any:
        """Collective: all ranks call it. The mean of its values."""
        return self._reduced("mean")

    def min(self) -> Any:
        """Collective: all ranks call it. Its least value."""
        return self._reduced("min")

    def max(self) -> Any:
        """Collective: all ranks call it. Its greatest value."""
        return self._reduced("max")

    def count(self) -> int:
        """Collective: all ranks call it. How many values are there."""
        return int(self._reduced("count"))

    def nunique(self) -> int:
        """Collective: all ranks call it. How many different values there are."""
        return int(self._reduced("nunique"))

    def any(self) -> bool:
        """Collective: all ranks call it. Whether any value is true."""
        return bool(self._reduced("any"))

    def all(self) -> bool:
        """Collective: all ranks call it. Whether all values are true."""
        return bool(self._reduced("all"))

    def var(self, *, ddof: int = 1) -> Any:
        """Collective: all ranks call it. The variance of its values, divided by their count less ``ddof``."""
        return self._reduced("var", ddof=ddof)

    def std(self, *, ddof: int = 1) -> Any:
        """Collective: all ranks call it. The square root of `var`."""
        return self._reduced("std", ddof=ddof)

    def median(self) -> Any:
        """Collective: all ranks call it. The median of its values."""
        return self._reduced("median")

    def quantile(self, q: float | Sequence[float] = 0.5) -> Any:
        """Collective: all ranks call it. Quantiles of its values; several give a pandas Series."""
        table, name = self._alone()
        return table.quantile(q, name)

    def describe(self) -> pd.Series[Any]:
        """Collective: all ranks call it. Count, mean, spread and quantiles, as pandas' ``describe`` has them; of texts
        and the like count, unique, top and freq."""
        table, name = self._alone()
        found: pd.Series[Any] = table.select([name]).describe(include="all")[name]
        return found.dropna().infer_objects() if len(found) > 4 else found

    def sem(self) -> Any:
        """Collective: all ranks call it. The standard error of the mean."""
        return self._reduced("std") / self._reduced("count") ** 0.5

    def mode(self) -> pd.Series[Any]:
        """Collective: all ranks call it. The most frequent values, in their order, as a pandas Series."""
        table, name = self._alone()
        counts = table.value_counts(name)
        most = counts.filter(Expression("eq", Expression("col", "count"), counts.max("count")))
        found: pd.Series[Any] = most.sort_values(name).to_pandas(None)[name]
        return found

    def agg(self, functions: str | Sequence[str]) -> Any:
        """Collective: all ranks call it. One function by its name, or several as a pandas Series."""
        import pandas as pd

        if isinstance(functions, str) or callable(functions):
            return self._by_name(functions)()
        return pd.Series({by_name(name): self._by_name(name)() for name in functions}, name=self.name)

    def corr(self, other: Expression) -> float:
        """Collective: all ranks call it. The correlation with another column of the table."""
        return float(self._with(other).corr().iloc[0, 1])

    def cov(self, other: Expression) -> float:
        """Collective: all ranks call it. The covariance with another column of the table."""
        return float(self._with(other).cov().iloc[0, 1])

    def dot(self, other: Expression) -> Any:
        """Collective: all ranks call it. The sum of products with another column; missing where one of them is."""
        products: Any = self * other
        return math.nan if products.hasnans else products.sum()

    __matmul__ = dot

    def histogram(self, bins: int | Sequence[float] = 10) -> Any:
        """Collective: all ranks call it. How many values lie between edges, and the edges; see `Table.histogram`."""
        table, name = self._alone()
        return table.histogram(name, bins)

    def __getitem__(self, key: Any) -> Any:
        """Values of a condition as a column, or few ones by their numbers from the beginning or the end, in pandas."""
        if not isinstance(key, Expression):
            return some_rows(self, key)
        if self.operation != "col":
            raise ArgumentError(f"{self!r} has no rows.", advice="Name it before: t.assign(y=t.x * 2)[condition]['y'].")
        return self._table.filter(key)[self.name]

    @property
    def is_unique(self) -> bool:
        """Whether no two values are equal. All ranks count them."""
        missing = self._table._all_rows() - self.count()
        return bool(self.nunique() + min(missing, 1) == self._table._all_rows())

    @property
    def hasnans(self) -> bool:
        """Whether a value is missing. All ranks look."""
        return bool(self.count() < self._table._all_rows())

    @property
    def shape(self) -> tuple[int]:
        """How many rows there are."""
        return (len(self),)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self)

    @property
    def empty(self) -> bool:
        """Whether there are no rows."""
        return not len(self)

    @property
    def ndim(self) -> int:
        """1, as of every column."""
        return 1

    @property
    def iloc(self) -> Placed:
        """The first or last values, in pandas: ``t.x.iloc[:5]``."""
        return Placed(self)

    def __len__(self) -> int:
        return len(self._table)

    # ---- tables, and rows in pandas

    def to_table(self) -> Any:
        """Collective: all ranks call it. A table of this column alone."""
        name = self.name
        if self.operation == "col":
            return self._table.select([name])
        return self._table.select(list(self.columns())).assign({name: free(self)}).select([name])

    def unique(self) -> Any:
        """Collective: all ranks call it. A table of its different values, in no particular order."""
        table, name = self._alone()
        return table.unique(name)

    def dropna(self) -> Any:
        """Collective: all ranks call it. A table of the values that are there."""
        table, name = self._alone()
        return table.select([name]).dropna()

    def drop_duplicates(self) -> Any:
        """Collective: all ranks call it. A table of its different values; see `unique`."""
        return self.unique()

    def sort_values(self, *, ascending: bool = True) -> Any:
        """Collective: all ranks call it. A table of its values in their order."""
        table, name = self._alone()
        return table.select([name]).sort_values(name, ascending=ascending)

    def nlargest(self, n: int = 5) -> pd.Series[Any]:
        """Collective: all ranks call it. The largest values, as a pandas Series."""
        table, name = self._alone()
        found: pd.Series[Any] = table.select([name]).nlargest(n, name)[name]
        return found

    def nsmallest(self, n: int = 5) -> pd.Series[Any]:
        """Collective: all ranks call it. The smallest values, as a pandas Series."""
        table, name = self._alone()
        found: pd.Series[Any] = table.select([name]).nsmallest(n, name)[name]
        return found

    def tail(self, n: int = 5) -> pd.Series[Any]:
        """Collective: all ranks call it. The last values in global order, as a pandas Series."""
        found: pd.Series[Any] = self.to_table().tail(n)[self.name]
        return found

    def value_counts(
        self, *, normalize: bool = False, sort: bool = True, ascending: bool = False, dropna: bool = True
    ) -> Any:
        """Collective: all ranks call it. A table of its different values and how often each is there."""
        table, name = self._alone()
        return with_keys(table.value_counts(name, normalize=normalize, sort=sort, ascending=ascending, dropna=dropna))

    def head(self, n: int = 5) -> pd.Series[Any]:
        """Collective: all ranks call it. The first values in global order, as a pandas Series."""
        found: pd.Series[Any] = self.to_table().head(n)[self.name]
        return found

    def to_pandas(self, limit: int | None = 10_000) -> pd.Series[Any]:
        """Collective: all ranks call it. The first values in global order, as a pandas Series; None for all."""
        found: pd.Series[Any] = self.to_table().to_pandas(limit)[self.name]
        return found

    def tolist(self, limit: int | None = 10_000) -> list[Any]:
        """Collective: all ranks call it. The first values in global order, as a list; None for all."""
        return list(self.to_pandas(limit))

    def to_numpy(self, limit: int | None = 10_000) -> Any:
        """Collective: all ranks call it. The first values in global order, as an array of numpy's; None for all."""
        return self.to_pandas(limit).to_numpy()

    @property
    def values(self) -> Any:
        """All values as an array of numpy's; refused for more than 10,000."""
        return self._few().to_numpy()

    def _few(self) -> pd.Series[Any]:
        """All values, where they are few enough to be fetched without being asked for by a number."""
        if (rows := self._table._all_rows()) > MOST_ROWS:
            raise ArgumentError(
                f"{self!r} has {rows:,} rows, of which at most {MOST_ROWS:,} come by themselves.",
                advice="Ask for them: to_numpy(limit=None), to_pandas(limit), tolist(limit), or compute on the ranks "
                "(gl.cut(t.x, bins), t.map_parts(f)).",
            )
        return self.to_pandas(None)

    def _by_name(self, function: Any) -> Any:
        function = by_name(function)
        if function not in WHOLE_COLUMNS:
            raise ArgumentError(
                f"agg has no function {shown(function)}.", advice=f"There are {', '.join(WHOLE_COLUMNS)}."
            )
        return getattr(self, function)

    def _with(self, other: Expression) -> Any:
        """A table of this column and another."""
        check_own(other, self._table)
        return self._table.assign({"_x": free(self), "_y": free(other)}).select(["_x", "_y"])

    def _alone(self) -> tuple[Any, Label]:
        """A table that has it, and its label there."""
        return (self._table if self.operation == "col" else self.to_table()), self.name

    def _reduced(self, function: str, **arguments: Any) -> Any:
        table, name = self._alone()
        return getattr(table, function)(name, **arguments)

    def __repr__(self) -> str:
        if self.operation == "col":
            return f"<Column {self.name!r} of {self._table!r}>"
        return f"<Column {self.text()} of {self._table!r}, not computed yet>"

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: str) -> Any:
            if name == "_typ":
                refuse_in_pandas()
            raise no_attribute(self, name, OF_COLUMNS)

        def __iter__(self) -> Any:
            return iter(self._few().tolist())

        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            refuse_in_pandas()
            return np.asarray(self._few(), *args, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        """``np.mean(t.x)``, ``np.histogram(t.x)`` and the like are computed on the ranks; see `Expression`."""
        name = function.__name__
        if args and args[0] is self and name in _REDUCED_BY_NUMPY and not set(options) - _OF_REDUCED:
            given = {one: value for one, value in options.items() if one != "axis" or value not in (0, None)}
            return _REDUCED_BY_NUMPY[name](self, *args[1:], **given)
        return super().__array_function__(function, types, args, options)


def _skipping(function: str) -> Any:
    return lambda column: getattr(column, function)()


def _spread(function: str) -> Any:
    return lambda column, *, ddof=0: getattr(column, function)(ddof=ddof)


def _placed(column: Column, q: Any = 0.5, *, scale: int = 1, skip: bool = False) -> Any:
    """Quantiles as numpy has them: of a missing value there is none, unless it is skipped."""
    parts = np.asarray(q) / scale
    if not skip and column.hasnans:
        return np.full(parts.shape, np.nan)[()]
    return column.quantile(float(parts)) if parts.ndim == 0 else np.asarray(column.quantile(parts.tolist()))


def _histogram(column: Column, bins: Any = 10, range: Any = None) -> Any:  # noqa: A002 (numpy's name)
    if range is not None and isinstance(bins, int):
        low, high = range
        bins = np.linspace(low, high, bins + 1).tolist()
    return column.histogram(bins)


_OF_REDUCED = {"axis", "bins", "ddof", "q", "range"}
# By the names of numpy's functions; of missing values as they are for a Series of pandas.
_REDUCED_BY_NUMPY: dict[str, Any] = {
    **{name: _skipping(name) for name in ("sum", "mean", "min", "max", "any", "all")},
    **{f"nan{name}": _skipping(name) for name in ("sum", "mean", "min", "max", "median")},
    **{"amin": _skipping("min"), "amax": _skipping("max"), "std": _spread("std"), "var": _spread("var")},
    **{"nanstd": _spread("std"), "nanvar": _spread("var"), "histogram": _histogram},
    "median": lambda column: _placed(column),
    "quantile": _placed,
    "nanquantile": partial(_placed, skip=True),
    "percentile": partial(_placed, scale=100),
    "nanpercentile": partial(_placed, scale=100, skip=True),
}


def _refusing(sign: str) -> Any:
    return lambda table, other: no_operator(table, sign)


@in_own_words
class Brackets:
    """``t["x"]`` and ``t.x`` are a `Column`, ``t[["a", "b"]]`` is `select`, and ``t[condition]`` is `filter`."""

    _has_keys = False  # whether rows are groups, whose keys are an index in pandas

    def __getitem__(self, key: Any) -> Any:
        table: Any = self
        key = key(table) if callable(key) and not isinstance(key, Expression) else key  # t[lambda t: t.x > 3]
        if isinstance(key, Expression):
            return table.filter(key)
        if isinstance(key, (str, int)):
            try:
                check_labels([key], table.columns)
            except ColumnMissing as error:
                raise no_such_column(error, key, table.columns) from None
            return Column(table, "col", key)
        if isinstance(key, slice):
            return some_rows(table, key)
        if isinstance(key, tuple) or str(getattr(key, "dtype", "")) == "bool" or _are_bools(key):
            raise no_item(self, key)
        return table.select(key)

    def query(self, text: str, **variables: Any) -> Self:
        """Collective: all ranks call it. Keep the rows of which a condition holds, which is written as text.

        Parameters
        ----------
        text : str
            As pandas takes it: ``"x > 3 and s in ['a', 'b']"``; names in backticks where they are no Python names.
        **variables
            What ``@name`` stands for; otherwise the caller's variables are looked at.

        Returns
        -------
        Table

        Raises
        ------
        ArgumentError, ColumnMissing
            If it is no condition on columns of this table.
        """
        table: Any = self
        caller = sys._getframe(1)
        try:
            condition = condition_of(text, table.columns, caller.f_globals | caller.f_locals | variables)
        except GcylonError as error:
            table._refuse("query", error)
            raise
        made: Self = table.filter(condition)
        return made

    def _all_rows(self) -> int:
        """How many rows all ranks have; a handle knows it, and ranks ask each other."""
        raise NotImplementedError

    def _column_of(self, expression: Expression) -> Column:
        """What is computed of any table's columns, of this one's."""
        return Column(self, expression.operation, *expression.arguments)

    def nlargest(self, n: int, columns: Label | Sequence[Label]) -> pd.DataFrame:
        """Collective: all ranks call it. The ``n`` rows with the largest values, the largest first, in pandas.

        Missing values come last, and of equal rows the first. Nothing is sorted but ``n`` rows of each rank.
        """
        return self._leading(checked_rows(n, "n"), listed(plain_label(columns)), ascending=False)

    def nsmallest(self, n: int, columns: Label | Sequence[Label]) -> pd.DataFrame:
        """Collective: all ranks call it. The ``n`` rows with the smallest values, the smallest first, in pandas.

        Missing values come last, and of equal rows the first. Nothing is sorted but ``n`` rows of each rank.
        """
        return self._leading(checked_rows(n, "n"), listed(plain_label(columns)), ascending=True)

    def _leading(self, n: int, by: list[Label], *, ascending: bool) -> pd.DataFrame:
        raise NotImplementedError  # a table finds them, a handle asks for them

    def __contains__(self, name: object) -> bool:
        table: Any = self
        return name in table.columns

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: str) -> Any:
            if name == "_typ":
                refuse_in_pandas()
            if not name.startswith("_") and not hasattr(type(self), name) and not self.released:
                if name in self.columns:
                    return Column(self, "col", name)
            if (plan := self.plan._of_old_name(name)) is not None:
                return plan
            raise no_attribute(self, name)

        def __iter__(self) -> Any:
            raise no_item(self)

        def __setitem__(self, key: Any, value: Any) -> None:
            raise no_new_item(self)

        def __delitem__(self, key: Any) -> None:
            raise no_new_item(self)

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_"):
                raise no_new_item(self, name)
            object.__setattr__(self, name, value)

        def __eq__(self, other: Any) -> Any:
            # Other libraries compare objects with what they look for, so that only what is meant as values is refused.
            return no_operator(self, "==") if other is not self and _are_values(other) else NotImplemented

        def __ne__(self, other: Any) -> Any:
            return no_operator(self, "!=") if other is not self and _are_values(other) else NotImplemented

        __add__ = __radd__ = _refusing("+")
        __sub__ = __rsub__ = _refusing("-")
        __mul__ = __rmul__ = _refusing("*")
        __truediv__ = __rtruediv__ = _refusing("/")
        __lt__, __gt__, __le__, __ge__ = map(_refusing, ("<", ">", "<=", ">="))

    __hash__ = object.__hash__

    def __dir__(self) -> list[str]:
        table: Any = self
        names = [] if table.released else [one for one in table.columns if isinstance(one, str) and one.isidentifier()]
        return sorted({*super().__dir__(), *names})


def _are_values(given: Any) -> bool:
    """Whether something is a table, a frame, an array or a number."""
    return isinstance(given, (Brackets, int, float, np.generic, np.ndarray)) or has_columns(given)


def _computed_of(given: Any) -> dict[Label, None]:
    """The columns that a value is computed of, without the keys of groups in which it looks at other rows."""
    if given.operation == "col":
        return {given.arguments[0]: None}
    parts = given.arguments[2:3] if given.operation == "window" else given.arguments
    return {name: None for part in parts if isinstance(part, Expression) for name in _computed_of(part)}


def free(given: Any) -> Any:
    """An argument in which columns of a table are expressions of any table that has such columns."""
    if isinstance(given, Expression):
        return Expression(given.operation, *map(free, given.arguments)) if _has_columns(given) else given
    if isinstance(given, dict):
        return {name: free(one) for name, one in given.items()}
    if type(given) in (list, tuple) and any(map(_has_columns, given)):
        return type(given)(map(free, given))
    return given


def _has_columns(given: Any) -> bool:
    return isinstance(given, Expression) and any(isinstance(one, Column) for one in given.parts())


def check_own(given: Any, table: Any) -> None:
    """Refuse columns of another table among an argument: their rows lie elsewhere, in another order.

    Raises
    ------
    ArgumentError
    """
    for part in _expressions(given):
        for one in part.parts():
            if isinstance(one, Column) and one._table is not table:
                names = list(one.columns())
                raise ArgumentError(
                    f"The column {shown_labels(names)} is of another table, whose rows lie in another order.",
                    advice="Bring the tables together by a key, as in t.join(other, on='key'); if this table's own "
                    f"column is meant, write gl.col({names[0] if names else 'x'!r}).",
                )


def with_keys(table: Any) -> Any:
    """A table whose rows are groups: ``reset_index()`` has nothing to add to it."""
    table._has_keys = True
    return table


# Rows stay groups in these, whose results have the index of groups in pandas.
_OF_GROUPS = frozenset(("filter", "assign", "astype", "drop", "dropna", "fillna", "rename", "sort_values"))


def of_groups(verb: str, table: Any, made: Any) -> Any:
    """What a verb gives; rows of groups stay such where the verb leaves them so."""
    return with_keys(made) if verb in _OF_GROUPS and getattr(table, "_has_keys", False) else made


def plain_label(given: Any) -> Any:
    """A column where a label is wanted, ``t.x`` or ``gl.col("x")``, as its label; several as a list of labels."""
    if isinstance(given, Expression) and given.operation == "col":
        return given.arguments[0]
    if isinstance(given, (list, tuple)) and any(isinstance(one, Expression) for one in given):
        return [plain_label(one) for one in given]
    return given


def _expressions(given: Any) -> list[Expression]:
    if isinstance(given, Expression):
        return [given]
    if isinstance(given, dict):
        given = list(given.values())
    return [part for one in given for part in _expressions(one)] if isinstance(given, (list, tuple)) else []


def _are_bools(key: Any) -> bool:
    return isinstance(key, list) and bool(key) and all(isinstance(one, bool) for one in key)
