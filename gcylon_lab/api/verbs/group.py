"""group-by: `GroupBy`, and the verb behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from numbers import Real
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar

from ...backends.protocol.aggregation import FUNCTIONS, Aggregation, by_name
from ...backends.protocol.expressions import Expression, col, lit
from ...backends.protocol.methods.signatures import in_own_words
from ...backends.protocol.scalars import check_flags, check_own_expression, shown
from ...backends.protocol.schema import Label, shown_labels
from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions, check_labels, listed
from ...engine.plan.plan import Plan
from ...errors import ArgumentError, GcylonError
from ...operators.group.groupby import groupby as _groupby
from ...operators.group.groupby import groupby_in_order
from ..frames.group_keys import key_labels, listed_keys, own_name, span_of_time, with_origins
from ..frames.group_windows import GroupWindows, Make
from .arguments import checked
from .base import Verbs
from .brackets import plain_label, with_keys
from .pandas_hints import no_function, no_loop

T = TypeVar("T")

Keys = Any  # a label, an expression, pandas' Grouper, or a list of them

_ARGUMENTS = {"quantile": 0.5, "var": 1.0, "std": 1.0}


@in_own_words
class GroupBy(GroupWindows, Generic[T]):
    """Rows of a table to be put together by keys; `agg` does it. Made by ``table.groupby``.

    Parameters
    ----------
    table : Table or DistTable
    by : list of labels and expressions
        Key columns, or what is computed of columns.
    dropna : bool
        Whether rows with a missing key are left out.
    sort : bool
        Whether groups come in the order of their keys.
    as_index : bool
        There is no index: must be False.

    Raises
    ------
    ArgumentError
        If ``as_index`` or ``sort`` is what it cannot be.
    """

    def __init__(
        self,
        table: Any,
        by: Sequence[Label | Expression],
        *,
        dropna: bool,
        sort: bool = False,
        as_index: bool = False,
    ) -> None:
        if as_index is not False:
            raise ArgumentError(
                f"as_index={as_index!r} is invalid: keys are columns of the result, as tables have no index.",
                advice=f"Leave it out, or give as_index=False; to_pandas().set_index({list(by)!r}) makes an index.",
            )
        check_flags(sort=sort, dropna=dropna)
        self._source = table
        self._given = list(by)
        self._ready: list[Label | Expression] | None = None
        self._by = key_labels(by, table.columns if any(isinstance(one, Expression) for one in by) else ())
        self._with_keys: Any = None
        self._dropna = dropna
        self._sort = sort

    @property
    def _keys(self) -> list[Label | Expression]:
        """The keys; where spans of time begin to count is asked when they are first needed."""
        if self._ready is None:
            self._ready = with_origins(self._source, self._given)
        return self._ready

    @property
    def _table(self) -> Any:
        """The table with its keys as columns; made when it is first asked for."""
        made = self._computed(self._keys)
        if not made:
            return self._source
        if self._with_keys is None:
            self._with_keys = self._source.assign(made)
        return self._with_keys

    def _named(self, result: Any) -> Any:
        """A result whose computed keys are called as the columns that they are computed of, where no other is."""
        wanted = {
            label: own_name(key)
            for label, key in zip(self._by, self._given, strict=True)
            if isinstance(key, Expression) and label != own_name(key)
        }
        free = {label: name for label, name in wanted.items() if name not in result.columns}
        return with_keys(result.rename(free) if free and len(set(free.values())) == len(free) else result)

    @property
    def _table_kind(self) -> type:
        kind: type = self._source._table_kind
        return kind

    def _refuse(self, verb: str, error: GcylonError) -> Never:
        self._source._refuse(verb, error)
        raise error

    @checked
    def agg(
        self,
        spec: Mapping[Label, Any] | Sequence[Any] | str | None = None,
        *,
        deterministic: bool = False,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
        **named: Any,
    ) -> T:
        """Collective: all ranks call it. Aggregate each group: a table of the keys, then one column a function.

        Parameters
        ----------
        spec : mapping, optional
            A function for each column, or a list of them: ``{"x": "sum", "y": ["min", "max"]}``. One function
            keeps the column's name, several give ``y_min`` and ``y_max``. A function is a name, or a name and its
            argument, as ``("quantile", 0.9)`` or ``("var", 0)`` (ddof). One name alone, or a list
            of them, is for all columns but the keys.
        deterministic : bool, default False
            Refuse what may give other bits in another run. On CPU engines nothing does.
        strategy, config, timeout_s
            As for `shuffle`.
        **named
            Columns by their new names: ``total=("x", "sum"), p90=("x", "quantile", 0.9)``.

        Returns
        -------
        Table
            In no particular order, unless ``groupby(sort=True)`` asked for that of the keys. Sums of ints are 64 bits
            wide, functions of decimals but for sum, min and max are float64; otherwise dtypes are those of pandas.

        Raises
        ------
        ColumnMissing
            If a column is none.
        UnsupportedDtype
            If a key cannot be hashed, or a column has not the function.
        BudgetExceeded
            If the rows of one key do not fit, and a list of them is wanted.
        """
        result: T = self._table.group_agg(
            self._by, self._wanted(spec, named), dropna=self._dropna, sort=self._sort, deterministic=deterministic,
            strategy=strategy, config=config, timeout_s=timeout_s,
        )  # fmt: skip
        made: T = self._named(result)
        return made

    @checked
    def size(self, *, strategy: str = "auto", config: GcylonConfig | None = None, timeout_s: float | None = None) -> T:
        """Collective: all ranks call it. Count the rows of each group, in a column ``size``."""
        result: T = self._table.group_agg(
            self._by, [Aggregation("size", "size")], dropna=self._dropna, sort=self._sort, strategy=strategy,
            config=config, timeout_s=timeout_s,
        )  # fmt: skip
        made: T = self._named(result)
        return made

    @checked
    def plan(
        self,
        spec: Mapping[Label, Any] | Sequence[Any] | str | None = None,
        *,
        deterministic: bool = False,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
        **named: Any,
    ) -> Plan:
        """Collective: all ranks call it. Show how `agg` would run, with ``sort=True`` in two steps; no data is read.

        Parameters
        ----------
        spec, **named
            As for `agg`, if the plan shall say what these functions need.
        deterministic, strategy, config, timeout_s
            As for `agg`.
        """
        wanted = [] if spec is None and not named else self._wanted(spec, named)
        return self._planned(wanted, deterministic=deterministic, strategy=strategy, config=config, timeout_s=timeout_s)

    def _planned(self, wanted: Sequence[Aggregation], **how: Any) -> Plan:
        computed = {name: list(key.columns()) for name, key in self._computed(self._given).items()}
        if computed and self._with_keys is None:  # no row is read for a plan
            how.pop("deterministic", None)
            arguments = {"by": self._by, "wanted": list(wanted), "sort": self._sort, "computed": computed}
            made: Plan = self._source._plan("groupby", [], RunOptions(**how), arguments)
            return made
        plan: Plan = self._table.plan.group_agg(self._by, wanted, dropna=self._dropna, sort=self._sort, **how)
        return plan

    def _computed(self, keys: Sequence[Label | Expression]) -> dict[Label, Expression]:
        return {label: key for label, key in zip(self._by, keys, strict=True) if isinstance(key, Expression)}

    def _wanted(
        self, spec: Mapping[Label, Any] | Sequence[Any] | str | None, named: Mapping[str, Any]
    ) -> list[Aggregation]:
        spec = by_name(spec)
        if isinstance(spec, str) and spec in FUNCTIONS and not named:
            spec = dict.fromkeys(self._others(), spec)
        if isinstance(spec, list) and spec and all(by_name(one) in FUNCTIONS for one in spec) and not named:
            spec = dict.fromkeys(self._others(), spec)
        return aggregations(spec, named)  # type: ignore[arg-type] # text is refused there

    def __getitem__(self, columns: Label | Sequence[Label]) -> GroupedColumns[T]:
        """Some columns of the groups: ``t.groupby("a")["x"].mean()``."""
        return GroupedColumns(self, listed(plain_label(columns)))

    def _of_each(
        self, function: str, argument: float | None, numeric_only: bool, columns: Sequence[Label] | None = None
    ) -> T:
        """One function of each column, which keeps its name."""
        names = self._others() if columns is None else columns
        if numeric_only:
            check_flags(numeric_only=numeric_only)
            schema = self._table.schema
            names = [name for name in names if schema[name].kind in ("bool", "int", "float", "decimal")]
        wanted = function if argument is None else (function, argument)
        return self.agg(dict.fromkeys(names, wanted))

    def _others(self) -> list[Label]:
        """The columns that are no keys."""
        return [name for name in self._source.columns if name not in self._by]

    # ---- for each row

    def _over(self, make: Make) -> Any:
        names = self._others()
        return self._source.assign({name: self._of_group(make, self._source[name]) for name in names}).select(names)

    def _of_group(self, make: Make, value: Any) -> Any:
        keys = [one if isinstance(one, Expression) else col(one) for one in self._keys]
        return make(value)._among(keys, self._dropna)

    def _counted(self, *, reverse: bool = False) -> Any:
        one = self._source._column_of(lit(1))
        return self._of_group(lambda value: value._window("cumsum", reverse=reverse) - 1, one)

    def cumcount(self, *, ascending: bool = True) -> Any:
        """The number of each row in its group, from 0; from its end with ``ascending=False``. A column of the table."""
        return self._counted(reverse=not ascending)

    def ngroup(self) -> Any:
        """The number of the group of each row, from 0, in the order of the keys. A column of the table."""
        return self._of_group(lambda value: value._window("ngroup"), self._source._column_of(lit(1)))

    @property
    def ngroups(self) -> int:
        """How many groups there are. All ranks count them."""
        groups = self._table.unique(self._by)
        return int((groups.dropna() if self._dropna else groups).count_rows())

    def head(self, n: int = 5) -> T:
        """Collective: all ranks call it. The first rows of each group, in the order of the table."""
        found: T = self._source.filter(self._counted() < n)
        return found

    def tail(self, n: int = 5) -> T:
        """Collective: all ranks call it. The last rows of each group, in the order of the table."""
        found: T = self._source.filter(self._counted(reverse=True) < n)
        return found

    def nth(self, n: int) -> T:
        """Collective: all ranks call it. One row of each group by its number, or a negative one from its end."""
        found: T = self._source.filter(self._counted(reverse=n < 0) == (n if n >= 0 else -n - 1))
        return found

    def get_group(self, key: Any) -> T:
        """Collective: all ranks call it. The rows of one group, in the order of the table."""
        keys = key if isinstance(key, (list, tuple)) else [key]
        if len(keys) != len(self._by):
            raise ArgumentError(f"get_group({key!r}) does not fit {len(self._by)} keys.", advice="Give one for each.")
        pairs = zip(self._keys, keys, strict=True)
        conditions = [(one if isinstance(one, Expression) else col(one)) == value for one, value in pairs]
        found: T = self._source.filter(reduce(lambda a, b: a & b, conditions))
        return found

    # ---- one function of all columns

    def sum(self, *, numeric_only: bool = False) -> T:
        """Collective: all ranks call it. Add up each column but the keys; ``numeric_only`` leaves others out."""
        return self._of_each("sum", None, numeric_only)

    def mean(self, *, numeric_only: bool = False) -> T:
        """Collective: all ranks call it. The mean of each column; see `sum`."""
        return self._of_each("mean", None, numeric_only)

    def min(self, *, numeric_only: bool = False) -> T:
        """Collective: all ranks call it. The least value of each column; see `sum`."""
        return self._of_each("min", None, numeric_only)

    def max(self, *, numeric_only: bool = False) -> T:
        """Collective: all ranks call it. The greatest value of each column; see `sum`."""
        return self._of_each("max", None, numeric_only)

    def count(self) -> T:
        """Collective: all ranks call it. How many values each column has, without missing ones."""
        return self._of_each("count", None, False)

    def nunique(self) -> T:
        """Collective: all ranks call it. How many different values each column has."""
        return self._of_each("nunique", None, False)

    def var(self, *, ddof: int = 1, numeric_only: bool = False) -> T:
        """Collective: all ranks call it. The variance of each column; see `sum`."""
        return self._of_each("var", ddof, numeric_only)

    def std(self, *, ddof: int = 1, numeric_only: bool = False) -> T:
        """Collective: all ranks call it. The square root of `var`; see `sum`."""
        return self._of_each("std", ddof, numeric_only)

    def median(self, *, numeric_only: bool = False) -> T:
        """Collective: all ranks call it. The median of each column; see `sum`."""
        return self._of_each("median", None, numeric_only)

    def quantile(self, q: float = 0.5, *, numeric_only: bool = False) -> T:
        """Collective: all ranks call it. A quantile of each column; see `sum`."""
        return self._of_each("quantile", q, numeric_only)

    def first(self) -> T:
        """Collective: all ranks call it. The first value of each column that is there, in global order."""
        return self._of_each("first", None, False)

    def last(self) -> T:
        """Collective: all ranks call it. The last value of each column that is there, in global order."""
        return self._of_each("last", None, False)

    def any(self) -> T:
        """Collective: all ranks call it. Whether any value of each column is true."""
        return self._of_each("any", None, False)

    def all(self) -> T:
        """Collective: all ranks call it. Whether all values of each column are true."""
        return self._of_each("all", None, False)

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and name in self._source.columns:
                return self[name]
            raise no_function(self, name)

        def __iter__(self) -> Any:
            raise no_loop(self)

    def __repr__(self) -> str:
        return f"<GroupBy {shown_labels(self._by)} of {self._source!r}; agg() does it>"


@in_own_words
class GroupedColumns(GroupWindows, Generic[T]):
    """Some columns of a `GroupBy`, which has the functions for them; made by ``t.groupby(keys)[columns]``.

    Parameters
    ----------
    groups : GroupBy
    columns : list of labels
    """

    def __init__(self, groups: GroupBy[T], columns: list[Label]) -> None:
        check_labels(columns, groups._source.columns)
        self._groups = groups
        self._columns = columns

    def agg(self, spec: Any = None, **named: Any) -> T:
        """Collective: all ranks call it. See `GroupBy.agg`; a function or a list of them is for each of the columns.

        Parameters
        ----------
        spec : str, tuple, list or mapping, optional
            ``"mean"``, ``["min", "max"]``, ``{"x": "sum"}``.
        **named
            Of one column also ``total="sum"``.
        """
        if len(self._columns) == 1:
            named = {
                new: (self._columns[0], given) if isinstance(given, str) else given for new, given in named.items()
            }
        if len(self._columns) == 1 and isinstance(spec, (list, tuple)) and all(one in FUNCTIONS for one in spec):
            named = {one: (self._columns[0], one) for one in spec} | named  # as pandas names them
            spec = None
        if spec is not None and not isinstance(spec, Mapping):
            spec = dict.fromkeys(self._columns, spec)
        return self._groups.agg(spec, **named)

    def describe(self) -> T:
        """Collective: all ranks call it. Count, mean, std, min, quartiles and max of one column of each group."""
        if len(self._columns) != 1:
            raise ArgumentError(
                f"describe of groups takes one column, got {self._columns!r}.", advice="Give one after the other."
            )
        name = self._columns[0]
        functions = [("count",), ("mean",), ("std",), ("min",), ("quantile", 0.25), ("median",), ("quantile", 0.75)]
        labels = ["count", "mean", "std", "min", "25%", "50%", "75%"]
        wanted: dict[str, Any] = {label: (name, *one) for label, one in zip(labels, functions, strict=True)}
        return self._groups.agg(**wanted, max=(name, "max"))

    def value_counts(self) -> T:
        """Collective: all ranks call it. How often each value is in each group."""
        groups = self._groups
        table = groups._table if groups._dropna else groups._table.dropna(subset=self._columns)
        made: T = groups._named(table.value_counts([*groups._by, *self._columns], dropna=groups._dropna))
        return made

    def _over(self, make: Make) -> Any:
        groups, source = self._groups, self._groups._source
        made = {name: groups._of_group(make, source[name]) for name in self._columns}
        return made[self._columns[0]] if len(made) == 1 else source.assign(made).select(self._columns)

    def size(self) -> T:
        """Collective: all ranks call it. Count the rows of each group."""
        return self._groups.size()

    if not TYPE_CHECKING:  # the functions of `GroupBy`

        def __getattr__(self, name: str) -> Any:
            if name not in FUNCTIONS:
                raise no_function(self, name)

            def of_columns(q: float | None = None, *, ddof: int | None = None) -> T:
                return self._groups._of_each(name, ddof if q is None else q, False, self._columns)

            return of_columns

        def __iter__(self) -> Any:
            raise no_loop(self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *FUNCTIONS})

    def __repr__(self) -> str:
        return f"<columns {shown_labels(self._columns)} of {self._groups!r}>"


def groupby(self: Any, by: Keys, *, dropna: bool = True, sort: bool = False, as_index: bool = False) -> GroupBy[Any]:
    """Name the keys of a group-by; `GroupBy.agg` of what comes back does it.

    Parameters
    ----------
    by : label, Expression, pandas.Grouper, or list of them
        Key columns, or what is computed of columns. All missing values of a key are one.
    dropna : bool, default True
        Leave out rows with a missing key.
    sort : bool, default False
        Bring the groups into the order of their keys, over all ranks, missing ones last. It costs a sort of the groups.
    as_index : bool, default False
        Only False: keys are columns of the result.

    Returns
    -------
    GroupBy
    """
    return GroupBy(self, listed_keys("by", by), dropna=dropna, sort=sort, as_index=as_index)


def resample(self: Any, rule: Any, *, on: Label) -> GroupBy[Any]:
    """Name spans of time as the keys of a group-by, in their order: ``t.resample("MS", on="time")["x"].mean()``.

    Parameters
    ----------
    rule : str
        "D", "h", "min", "s" or "ms", "W" or "W-WED" for its last day, "MS", "QS" or "YS", or "ME", "QE" or "YE"; also
        with a number. Spans count from midnight of the first day of the whole table, or from its week, month, quarter
        or year, and are named by where they begin, weeks and those with E by their last day, as in pandas.
    on : label
        A column of times.

    Returns
    -------
    GroupBy
        Spans without rows are left out, which pandas has too, with missing values or zeros. Where the last day of a
        week or month has no midnight, as clocks change then, pandas counts the hour after that day too.
    """
    groups: GroupBy[Any] = self.groupby(span_of_time(on, rule), sort=True)
    return groups


class GroupingVerbs(Verbs):
    """groupby, and what it comes to: group_agg."""

    groupby = groupby
    resample = resample

    def group_agg(
        self,
        by: Sequence[Label],
        wanted: Sequence[Aggregation],
        *,
        dropna: bool = True,
        sort: bool = False,
        deterministic: bool = False,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. What ``groupby(by).agg(...)`` calls; see there."""
        part, plan = (groupby_in_order if sort else _groupby)(
            self._workspace, self._live(), listed(by), wanted, dropna=dropna, deterministic=deterministic,
            options=RunOptions(strategy, config, timeout_s),
        )  # fmt: skip
        return self._made(part, plan)


def aggregations(spec: Mapping[Label, Any] | None, named: Mapping[str, Any]) -> list[Aggregation]:
    """The columns that ``agg`` was asked for.

    Raises
    ------
    ArgumentError
        If a function is none, or nothing is asked for.
    """
    for one in (spec, *named.values()):
        check_own_expression(one)
    if spec is not None and not isinstance(spec, Mapping):
        raise ArgumentError(
            f"{shown(spec)} does not say of which columns.",
            advice="Give for example {'x': 'sum'}, or total=('x', 'sum').",
        )
    wanted: list[Aggregation] = []
    for column, functions in (spec or {}).items():
        several = isinstance(functions, list)
        for function in functions if several else [functions]:
            name, argument = _function(function)
            called = f"{name}_{argument:g}" if name == "quantile" else name
            wanted.append(Aggregation(f"{column}_{called}" if several else column, name, column, argument))
    for new, given in named.items():
        if hasattr(given, "aggfunc") and not getattr(given, "args", ()) and not getattr(given, "kwargs", {}):
            given = (given.column, given.aggfunc)  # pandas' NamedAgg
        if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
            raise ArgumentError(
                f"Expected a column and a function for {new}, got {given!r}.",
                advice=f"Give for example {new}=('x', 'sum').",
            )
        name, argument = _function(tuple(given[1:]) if len(given) == 3 else given[1])
        wanted.append(Aggregation(new, name, given[0], argument))
    if not wanted:
        raise ArgumentError("agg() asks for nothing.", advice="Give for example {'x': 'sum'}, or total=('x', 'sum').")
    return wanted


def _function(given: Any) -> tuple[str, float]:
    name, argument = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    name = "list" if name is list else by_name(name)
    if not isinstance(name, str) or name not in FUNCTIONS:
        called = getattr(name, "__name__", "")
        advice = f"Give its name, {called!r}." if called in FUNCTIONS else f"There are {', '.join(FUNCTIONS)}."
        if callable(name) and called not in FUNCTIONS:
            advice += " One of your own runs in shuffle(by).map_parts(f): there a rank has all rows of its groups."
        raise ArgumentError(f"Expected a function of groups, got {shown(given)}.", advice=advice)
    if argument is not None and name not in _ARGUMENTS:
        raise ArgumentError(f"{name} takes no argument, but was given {argument!r}.", advice="Give its name alone.")
    if argument is not None and (isinstance(argument, bool) or not isinstance(argument, Real)):
        raise ArgumentError(f"Expected a number for {name}, got {shown(argument)}.", advice=f"Give ({name!r}, 0.5).")
    value = float(_ARGUMENTS.get(name, 0.0) if argument is None else argument)
    if name == "quantile" and not 0 <= value <= 1:
        raise ArgumentError(f"quantile={value} is out of range [0, 1].")
    return name, value
