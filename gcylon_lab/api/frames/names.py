"""What frames of pandas and polars have by other names, or in one step: each is made of verbs."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...backends.protocol.aggregation import by_name
from ...backends.protocol.expressions import Expression, col, lit
from ...backends.protocol.methods.signatures import in_own_words
from ...backends.protocol.scalars import check_own_expression, shown
from ...backends.protocol.schema import Label
from ...engine.exec.invocation import listed
from ...errors import ArgumentError
from ...operators.rowwise.head_tail import checked_rows
from ..query_text import expression_of
from ..verbs.brackets import MOST_ROWS, WHOLE_COLUMNS, plain_label, with_keys
from .located import Located, Placed
from .merge_asof import merge_asof
from .reshaping import crosstab, melt, pivot_table

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = ("int", "float", "decimal")
_KINDS: dict[str, tuple[str, ...]] = {
    "number": (*_NUMBERS, "timedelta"),
    "int": ("int",),
    "integer": ("int",),
    "float": ("float",),
    "floating": ("float",),
    "bool": ("bool",),
    "boolean": ("bool",),
    "object": ("str", "date", "decimal", "time", "bytes"),
    "str": ("str",),
    "string": ("str",),
    "category": ("category",),
    "datetime": ("datetime",),
    "datetime64": ("datetime",),
    "timedelta": ("timedelta",),
}


def _kinds_of(values: Sequence[Any]) -> tuple[str, ...]:
    """Of columns that can hold values: none can hold those of several kinds."""
    if all(isinstance(one, str) for one in values):
        return ("str", "category")
    if all(isinstance(one, (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)) for one in values):
        return ("date", "datetime", "timedelta")
    return ("bool",) if any(isinstance(one, (bool, np.bool_)) for one in values) else _NUMBERS


@in_own_words
class Frames:
    """where, mask, isna, round, eval, agg, top_k, loc, iloc and the like, of tables and handles."""

    # ---- rows and columns

    @property
    def loc(self) -> Located:
        """Rows of a condition, and columns by their labels: ``t.loc[t.x > 3, ["x", "y"]]``."""
        return Located(self)

    @property
    def iloc(self) -> Placed:
        """The first or last rows, in pandas: ``t.iloc[:5]``."""
        return Placed(self)

    @property
    def size(self) -> int:
        """How many values there are: rows times columns."""
        rows, columns = _of(self).shape
        return int(rows * columns)

    @property
    def ndim(self) -> int:
        """2, as of every frame."""
        return 2

    @property
    def empty(self) -> bool:
        """Whether there are no rows, or no columns."""
        return self.size == 0

    def get(self, key: Any, default: Any = None) -> Any:
        """A column, or some as a table; what is given as a default where it is not there."""
        table = _of(self)
        return table[key] if all(name in table.columns for name in listed(key)) else default

    def top_k(self, k: int, by: Label | Sequence[Label]) -> pd.DataFrame:
        """Collective: all ranks call it. The ``k`` rows with the largest values; see `nlargest`."""
        found: pd.DataFrame = _of(self).nlargest(checked_rows(k, "k"), by)
        return found

    def select_dtypes(self, include: Any = None, exclude: Any = None) -> Self:
        """Collective: all ranks call it. Keep columns by what they hold.

        Parameters
        ----------
        include, exclude : str, type, or list of them
            Such as "number", "float", "str", "bool", "datetime", "category"; those of the dtypes, or all but these.

        Returns
        -------
        Table
        """
        table = _of(self)
        if include is None and exclude is None:
            raise ArgumentError("select_dtypes got no dtypes.", advice="Give include='number', for example.")
        kinds = {name: table.schema[name].kind for name in table.columns}
        wanted, other = _kinds(include), _kinds(exclude)
        names = [name for name, kind in kinds.items() if (include is None or kind in wanted) and kind not in other]
        if not names:
            raise ArgumentError(
                f"No column is of include={include!r}, exclude={exclude!r}.", advice=f"The columns are {table.dtypes}."
            )
        found: Self = table.select(names)
        return found

    # ---- every value

    def isna(self) -> Self:
        """Collective: all ranks call it. Say of each value whether it is missing: a table of bools."""
        return self._each(Expression.isna)

    def notna(self) -> Self:
        """Collective: all ranks call it. Say of each value whether it is there: a table of bools."""
        return self._each(Expression.notna)

    def isnull(self) -> Self:
        """Collective: all ranks call it. See `isna`."""
        return self.isna()

    def notnull(self) -> Self:
        """Collective: all ranks call it. See `notna`."""
        return self.notna()

    def where(self, condition: Expression, other: Any = None) -> Self:
        """Collective: all ranks call it. Keep values where a condition holds; others are replaced, or missing."""
        return self._each(lambda value: value.where(condition, other))

    def mask(self, condition: Expression, other: Any = None) -> Self:
        """Collective: all ranks call it. Replace values where a condition holds, or let them be missing."""
        return self._each(lambda value: value.mask(condition, other))

    def replace(self, values: Any, new: Any = None) -> Self:
        """Collective: all ranks call it. Put values in the place of others.

        Parameters
        ----------
        values : mapping
            ``{"column": {old: new}}`` for some columns, or ``{old: new}`` for all that can hold the old values.
        new : scalar, optional
            In the place of one value: ``replace(old, new)``.

        Returns
        -------
        Table
        """
        if isinstance(values, Mapping) and values and all(isinstance(one, Mapping) for one in values.values()):
            return self._with({name: col(name).replace(one) for name, one in values.items()})
        given = {values: new} if new is not None else values
        if not isinstance(given, Mapping):
            raise ArgumentError(f"replace got {shown(values)}.", advice="Give {'column': {old: new}}, or {old: new}.")
        table = _of(self)
        old = [one for one in given if one is not None and one == one]
        kinds = _kinds_of(old or list(given.values()))  # of missing ones the new
        names = [name for name in table.columns if table.schema[name].kind in kinds]
        return self._with({name: col(name).replace(given) for name in names})

    def round(self, decimals: int = 0) -> Self:
        """Collective: all ranks call it. Round all columns of numbers."""
        return self._each(lambda value: value.round(decimals), numbers=True)

    def abs(self) -> Self:
        """Collective: all ranks call it. The absolute values of all columns of numbers."""
        return self._each(Expression.abs, numbers=True)

    def clip(self, lower: Any = None, upper: Any = None) -> Self:
        """Collective: all ranks call it. Keep the values of all columns of numbers between two."""
        return self._each(lambda value: value.clip(lower, upper), numbers=True)

    # ---- in the order of rows, over all ranks

    def cumsum(self) -> Self:
        """Collective: all ranks call it. The sums of all columns, up to and with each row."""
        return self._each(Expression.cumsum)

    def cumprod(self) -> Self:
        """Collective: all ranks call it. The products of all columns, up to and with each row."""
        return self._each(Expression.cumprod)

    def cummax(self) -> Self:
        """Collective: all ranks call it. The greatest values of all columns, up to and with each row."""
        return self._each(Expression.cummax)

    def cummin(self) -> Self:
        """Collective: all ranks call it. The least values of all columns, up to and with each row."""
        return self._each(Expression.cummin)

    def shift(self, periods: int = 1) -> Self:
        """Collective: all ranks call it. The values so many rows before, or after."""
        return self._each(lambda value: value.shift(periods))

    def diff(self, periods: int = 1) -> Self:
        """Collective: all ranks call it. The values less those of so many rows before."""
        return self._each(lambda value: value.diff(periods))

    def pct_change(self, periods: int = 1) -> Self:
        """Collective: all ranks call it. The values divided by those of so many rows before, less 1."""
        return self._each(lambda value: value.pct_change(periods))

    def rank(self, method: str = "average", *, ascending: bool = True, pct: bool = False) -> Self:
        """Collective: all ranks call it. The place of each value in the order of its column."""
        return self._each(lambda value: value.rank(method, ascending=ascending, pct=pct))

    def ffill(self) -> Self:
        """Collective: all ranks call it. In the place of missing values the last one before."""
        return self._each(Expression.ffill)

    def bfill(self) -> Self:
        """Collective: all ranks call it. In the place of missing values the first one after."""
        return self._each(Expression.bfill)

    def duplicated(self, subset: Label | Sequence[Label] | None = None, *, keep: str | bool = "first") -> Any:
        """A column that says of each row whether it equals an earlier one (or a later one, or any other).

        Parameters
        ----------
        subset : label or sequence of labels, optional
            The columns that must be equal; all by default.
        keep : {"first", "last", False}
            Which of equal rows is none.
        """
        table = _of(self)
        names = list(table.columns) if subset is None else listed(subset)
        groups = table.groupby(names, dropna=False)
        if keep is False:
            return groups[names[0]].transform("size") > 1
        return groups.cumcount(ascending=keep != "last") > 0

    # ---- rows to columns and back, and rows beside others by time

    def pivot_table(
        self,
        values: Label | Sequence[Label] | None = None,
        index: Any = None,
        columns: Any = None,
        aggfunc: str = "mean",
        fill_value: Any = None,
    ) -> Self:
        """Collective: all ranks call it. A row for each value of some columns, and a column for each value of others.

        Parameters
        ----------
        values : label or sequence of labels, optional
            What is aggregated; all columns of numbers by default.
        index : label, Expression, or list of them
            Whose values are rows: columns of the result, which is sorted by them.
        columns : label, Expression, or list of them, optional
            Whose values are columns, at most 1,000, called as these where they are text or ints, otherwise by their
            text, as "True"; with several ``values`` ``value_column``.
        aggfunc : str, default "mean"
            As `GroupBy.agg` takes it.
        fill_value : scalar, optional
            For pairs that no row has; they are missing otherwise, and ints are floats then, as in pandas.

        Returns
        -------
        Table

        Raises
        ------
        ArgumentError
            If there would be more columns.
        """
        made: Self = with_keys(pivot_table(_of(self), values, index, columns, aggfunc, fill_value))
        return made

    def crosstab(self, index: Any, columns: Any) -> Self:
        """Collective: all ranks call it. How often each pair of values is there: a row for each value of one column, a
        column for each of another; see `pivot_table`."""
        made: Self = crosstab(_of(self), index, columns)
        return made

    def melt(
        self,
        id_vars: Label | Sequence[Label] | None = None,
        value_vars: Label | Sequence[Label] | None = None,
        var_name: str = "variable",
        value_name: str = "value",
    ) -> Self:
        """Collective: all ranks call it. A row for each value of some columns, one column after the other.

        Parameters
        ----------
        id_vars : label or sequence of labels, optional
            Columns that stay beside each value.
        value_vars : label or sequence of labels, optional
            Columns whose values become rows; all others by default.
        var_name, value_name : str
            What the columns of their labels and values are called.

        Returns
        -------
        Table
            In pandas' order; rows are cut evenly over the ranks.
        """
        made: Self = melt(_of(self), id_vars, value_vars, var_name, value_name)
        return made

    def merge_asof(
        self,
        right: Any,
        on: Label,
        by: Label | Sequence[Label] | None = None,
        *,
        direction: str = "backward",
        tolerance: Any = None,
        allow_exact_matches: bool = True,
        suffixes: Sequence[str | None] = ("_x", "_y"),
    ) -> Self:
        """Collective: all ranks call it. Put beside each row the last row of another table that is not after it.

        Parameters
        ----------
        right : Table
            The other table. Neither has to be sorted.
        on : label
            A column of times or numbers that both have.
        by : label or sequence of labels, optional
            Columns that must be equal.
        direction : {"backward", "forward"}
            Whether the last row before is wanted, or the first one after.
        tolerance : scalar, optional
            How far away it may be.
        allow_exact_matches : bool, default True
            Whether a row with the same value is one of them.
        suffixes : pair of str or None, default ("_x", "_y")
            For other columns whose name both sides have.

        Returns
        -------
        Table
            The rows of this table in their order, cut anew over the ranks.
        """
        made: Self = merge_asof(
            _of(self), right, on, by, direction, tolerance, allow_exact_matches, suffixes
        )  # fmt: skip
        return made

    # ---- columns by other names

    def eval(self, text: str, **variables: Any) -> Any:
        """Compute what a text says: ``"x + y"`` is a column, ``"z = x + y"`` a table with one more column.

        Parameters
        ----------
        text : str
            As `query` takes it.
        **variables
            What ``@name`` stands for.
        """
        table = _of(self)
        if not isinstance(text, str):
            raise ArgumentError(f"eval got {shown(text)}.", advice='Give text, as "z = x + y".')
        name, equals, rest = text.partition("=")
        new = name.strip()
        if equals and new.isidentifier() and not rest.startswith("="):
            return self._with({new: expression_of(rest, table.columns, variables)})
        return table._column_of(expression_of(text, table.columns, variables))

    def with_columns(self, *columns: Any, **named: Any) -> Self:
        """Collective: all ranks call it. Add columns; see `assign`."""
        if columns:
            check_own_expression(columns[0])
            raise ArgumentError(
                f"with_columns got {shown(columns[0])} without a name.", advice="Give names, as total=gl.col('x') * 2."
            )
        return self._with({name: one for name, one in named.items()})

    def add_prefix(self, prefix: str) -> Self:
        """Collective: all ranks call it. Put a text before the labels of all columns."""
        return self._renamed(lambda name: f"{prefix}{name}")

    def add_suffix(self, suffix: str) -> Self:
        """Collective: all ranks call it. Put a text behind the labels of all columns."""
        return self._renamed(lambda name: f"{name}{suffix}")

    def cast(self, dtype: Any) -> Self:
        """Collective: all ranks call it. See `astype`."""
        made: Self = _of(self).astype(dtype)
        return made

    def reset_index(self, *, drop: bool = False, name: Label | None = None) -> Self:
        """Collective: all ranks call it. Add a column ``index`` of row numbers, as tables have no index.

        Parameters
        ----------
        drop : bool, default False
            Whether it is not wanted.
        name : label, optional
            What the last column is called, where groups were counted; nothing is added then.

        Returns
        -------
        Table
            The table itself where rows are groups, whose keys are columns already.
        """
        table = _of(self)
        if name is not None:
            renamed: Self = table.rename({table.columns[-1]: name})
            return renamed
        if drop or table._has_keys:
            return self
        numbered = table.assign({"index": lit(1)._window("cumsum") - 1})
        made: Self = numbered.select(["index", *table.columns])
        return made

    def copy(self) -> Self:
        """The table itself: no verb changes it."""
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def pipe(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What a function makes of the table: ``t.pipe(f, 3)`` is ``f(t, 3)``."""
        return function(self, *args, **kwargs)

    def group_by(self, *by: Any) -> Any:
        """See `groupby`."""
        return _of(self).groupby(list(by) if len(by) != 1 else by[0])

    def agg(self, spec: Any = None, **named: Any) -> Any:
        """Collective: all ranks call it. Functions of whole columns.

        Parameters
        ----------
        spec : str, list or mapping, optional
            A function for all columns, or a function for each column.
        **named
            Rows of the answer by their names, as ``total=("x", "sum")``.

        Returns
        -------
        pandas.Series or pandas.DataFrame
            As pandas' own; with several functions a frame with a row for each.
        """
        import pandas as pd

        table = _of(self)
        if named and spec is not None:
            raise TypeError(f"agg() got functions, and {', '.join(named)}: give either")
        if named:
            rows = {name: _column_and_function(name, one) for name, one in named.items()}
            names = list(dict.fromkeys(label for label, _ in rows.values()))
            values = {name: {label: _function(table, one)(label)} for name, (label, one) in rows.items()}
            return pd.DataFrame.from_dict(values, orient="index").reindex(index=list(rows), columns=names)
        if isinstance(spec, Mapping):
            spec = {label: by_name(one) for label, one in spec.items()}
        if isinstance(spec, str) or callable(spec):
            return _function(table, by_name(spec))()
        if isinstance(spec, Mapping) and all(isinstance(one, str) for one in spec.values()):
            return pd.Series({name: _function(table, one)(name) for name, one in spec.items()})
        if isinstance(spec, Mapping) and all(isinstance(one, (str, list, tuple)) for one in spec.values()):
            spec = {label: [some] if isinstance(some, str) else some for label, some in spec.items()}
            names = list(dict.fromkeys(one for several in spec.values() for one in several))
            columns = {label: {one: _function(table, one)(label) for one in some} for label, some in spec.items()}
            return pd.DataFrame(columns).reindex(names)
        if isinstance(spec, (list, tuple)):
            spec = [by_name(one) for one in spec]
        if isinstance(spec, list) and all(isinstance(one, str) for one in spec):
            return pd.DataFrame({one: _function(table, one)() for one in spec}).T
        raise ArgumentError(
            f"agg got {shown(spec)}." if spec is not None else "agg() asks for nothing.",
            advice="Give names of functions, as 'mean', ['min', 'max'] or {'x': 'sum'}, or total=('x', 'sum').",
        )

    # ---- to other libraries and files

    def to_numpy(self, limit: int | None = 10_000) -> Any:
        """Collective: all ranks call it. The first rows as an array of numpy's; None for all."""
        return _of(self).to_pandas(limit).to_numpy()

    def toPandas(self) -> Any:  # noqa: N802 (Spark's name, by which plotly express asks)
        """Collective: all ranks call it. All rows as a frame of pandas; refused for more than 10,000."""
        table = _of(self)
        if (rows := table._all_rows()) > MOST_ROWS:
            raise ArgumentError(
                f"{table!r} has {rows:,} rows, of which at most {MOST_ROWS:,} come by themselves.",
                advice="Ask for them: to_pandas(limit=None) for all, or head(n).",
            )
        return table.to_pandas(None)

    def to_polars(self, limit: int | None = 10_000) -> Any:
        """Collective: all ranks call it. The first rows as a frame of polars; None for all."""
        import polars

        return polars.from_arrow(_of(self).to_arrow(limit))

    def to_dict(self, orient: Any = "dict", limit: int | None = 10_000) -> Any:
        """Collective: all ranks call it. The first rows as pandas' ``to_dict`` has them; None for all."""
        return _of(self).to_pandas(limit).to_dict(orient)

    def to_csv(self, path: Any = None, *, index: bool = False, **how: Any) -> Any:
        """Collective: all ranks call it. See `write_csv`; without a folder the text of the first 10,000 rows."""
        if path is None:
            return _of(self).to_pandas().to_csv(index=index, **how)
        _no_index(index)
        return _of(self).write_csv(path, **how)

    def to_parquet(self, path: Any, *, index: bool = False, **how: Any) -> Any:
        """Collective: all ranks call it. See `write_parquet`."""
        _no_index(index)
        return _of(self).write_parquet(path, **how)

    def to_feather(self, path: Any, **how: Any) -> Any:
        """Collective: all ranks call it. See `write_ipc`."""
        return _of(self).write_ipc(path, **how)

    def to_json(self, path: Any = None, **how: Any) -> Any:
        """Collective: all ranks call it. See `write_json`; without a folder the text of the first 10,000 rows."""
        if path is None:
            return _of(self).to_pandas().to_json(**how)
        return _of(self).write_json(path, **how)

    # ---- inside

    def _with(self, columns: Mapping[Label, Any]) -> Self:
        made: Self = _of(self).assign(dict(columns))
        return made

    def _each(self, function: Callable[[Expression], Any], *, numbers: bool = False) -> Self:
        table = _of(self)
        names = [name for name in table.columns if not numbers or table.schema[name].kind in (*_NUMBERS, "timedelta")]
        return self._with({name: function(table[name]) for name in names})

    def _renamed(self, function: Callable[[Label], str]) -> Self:
        table = _of(self)
        made: Self = table.rename({name: function(name) for name in table.columns})
        return made


def _of(table: Any) -> Any:
    """A table or handle, whose verbs these are made of."""
    return table


def _kinds(given: Any) -> set[str]:
    kinds: set[str] = set()
    for one in given if isinstance(given, (list, tuple, set)) else [] if given is None else [given]:
        name = one if isinstance(one, str) else getattr(one, "__name__", str(one))
        plain = name.rstrip("0123456789").removeprefix("np.") if name not in _KINDS else name
        if plain not in _KINDS:
            raise ArgumentError(f"{one!r} is no kind of columns.", advice=f"Expected one of {', '.join(_KINDS)}.")
        kinds.update(_KINDS[plain])
    return kinds


def _column_and_function(name: str, given: Any) -> tuple[Label, str]:
    """What a row of `Frames.agg` is: of which column, and which function."""
    if hasattr(given, "aggfunc"):  # pandas' NamedAgg
        given = (given.column, given.aggfunc)
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ArgumentError(
            f"Expected a column and a function for {name}, got {shown(given)}.",
            advice=f"Give for example {name}=('x', 'sum').",
        )
    return plain_label(given[0]), by_name(given[1])


def _function(table: Any, name: Any) -> Callable[..., Any]:
    if name not in WHOLE_COLUMNS[:-1]:
        raise ArgumentError(f"agg has no function {shown(name)}.", advice=f"There are {', '.join(WHOLE_COLUMNS[:-1])}.")
    found: Callable[..., Any] = getattr(table, name)
    return found


def _no_index(index: Any) -> None:
    if index is not False and index is not None:
        raise ArgumentError(f"index={index!r}: tables have no index.", advice="Leave it out, or give index=False.")
