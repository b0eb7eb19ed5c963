"""What each argument of a verb may be, in one table: tables, handles, plans and ``_async`` verbs are checked by it."""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Set
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from ...backends.protocol.aggregation import Aggregation
from ...backends.protocol.expressions import Expression
from ...backends.protocol.join_columns import check_validate
from ...backends.protocol.methods.signatures import fit
from ...backends.protocol.scalars import check_choice, check_flags, listed_values, shown
from ...engine.exec.invocation import RunOptions, check_each_once, listed
from ...engine.plan.estimate import listed_rows
from ...errors import ArgumentError, GcylonError
from ...operators.distinct.distinct import check_keep
from ...operators.estimate import OF_ONE_TABLE
from ...operators.rowwise.head_tail import checked_rows
from ...operators.rowwise.rowwise import check_called, check_condition
from ..frames.group_keys import listed_keys
from .brackets import check_own, free, of_groups, plain_label

F = TypeVar("F", bound=Callable[..., Any])

Rule = Callable[[str, Any], Any]
"""Takes an argument's name and what was given for it; returns it in one form, or raises."""


def _checked(check: Callable[[Any], Any]) -> Rule:
    """What is given, once it was looked at."""

    def rule(name: str, given: Any) -> Any:
        check(given)
        return given

    return rule


def _expected(
    is_right: Callable[[Any], bool], said: str, advice: str, kind: Callable[[Any], Any] = lambda it: it
) -> Rule:
    """What is given, as another kind perhaps; what is not right is refused, and both texts may name it."""

    def rule(name: str, given: Any) -> Any:
        if not is_right(given):
            raise ArgumentError(said.format(name=name, given=shown(given)), advice=advice.format(name=name))
        return kind(given)

    return rule


def _option(name: str, given: Any) -> Any:
    RunOptions(**{name: given}).check()
    return given


def _flag(name: str, given: Any) -> bool:
    check_flags(**{name: given})
    return bool(given)


def _one_of(*choices: Any) -> Rule:
    def rule(name: str, given: Any) -> Any:
        check_choice(name, given, choices)
        return given

    return rule


def _is_whole(given: Any) -> bool:
    return not isinstance(given, bool) and isinstance(given, Integral)


def _is_number(given: Any) -> bool:
    return not isinstance(given, bool) and isinstance(given, Real) and math.isfinite(given)


def _is_function(given: Any) -> bool:
    return callable(given) and not isinstance(given, Expression)


def _are_suffixes(given: Any) -> bool:
    two = isinstance(given, (tuple, list)) and len(given) == 2
    return two and all(one is None or isinstance(one, str) for one in given)


def _are_aggregations(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and all(isinstance(one, Aggregation) for one in given)


_whole = _expected(
    _is_whole, "Expected a whole number for {name}, got {given}.", "Give one, for example {name}=1.", int
)
_number = _expected(
    _is_number, "Expected a finite number for {name}, got {given}.", "Give one, for example {name}=0.5.", float
)


def _several(given: Any) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, Set))


def _bins(name: str, given: Any) -> Any:
    return [_number(name, one) for one in given] if _several(given) else _whole(name, given)


def _labels(name: str, given: Any) -> Any:
    """One label stays one, as a value is the answer to it then, and a Series or a frame to a list."""
    names = listed(given, name)
    return names[0] if isinstance(given, (str, Integral)) else names


def _keys(name: str, given: Any) -> Any:
    check_each_once(listed(given, name), name)
    return _labels(name, given)


def _described(name: str, given: Any) -> Any:
    if isinstance(given, (list, tuple)) and given and isinstance(given[0], float):
        raise ArgumentError(f"Expected columns, got {list(given)!r}.", advice=f"Give percentiles={list(given)!r}.")
    return _labels(name, given)


def _or_none(rule: Rule) -> Rule:
    return lambda name, given: None if given is None else rule(name, given)


def _rows(name: str, given: Any) -> int:
    return checked_rows(given, name)


def _some_rows(name: str, given: Any) -> int:
    rows = checked_rows(given, name)
    if not rows:
        raise ArgumentError(f"{name}=0 gives no batches.", advice="Give at least 1.")
    return rows


def _quantiles(name: str, given: Any) -> Any:
    if not _several(given) or getattr(given, "ndim", 1) != 1:
        return _quantile(name, given)
    return [_quantile(name, one) for one in given]


def _quantile(name: str, given: Any) -> Any:
    try:
        return _number(name, given)
    except ArgumentError:
        raise ArgumentError(f"Expected a quantile in [0, 1] for {name}, got {shown(given)}.") from None


def _percentiles(name: str, given: Any) -> Any:
    try:
        if _several(given):
            return [_number(name, one) for one in given]
    except ArgumentError:
        pass
    advice = "Give different ones in [0, 1], as [0.1, 0.5, 0.9]."
    raise ArgumentError(f"Expected a list of numbers for {name}, got {shown(given)}.", advice=advice)


def _no_functions(values: Iterable[Any]) -> None:
    # A function among the columns of a handle's call arrives in the place of `columns`.
    values = list(values)
    for one in values:
        check_called(one)
    if any(callable(one) and not isinstance(one, Expression) for one in values):
        raise ArgumentError(
            "assign makes columns of expressions, not of functions.",
            advice="Give for example y=gl.col('x') * 2, or call map_parts(f) with a function of frames.",
        )


def _new_columns(name: str, given: Any) -> Any:
    _no_functions([given])
    if given is None or isinstance(given, Mapping):
        _no_functions((given or {}).values())
        return given
    raise ArgumentError(
        f"assign was given {shown(given)}, which does not say how new columns are called.",
        advice="Give for example {'y': gl.col('x') * 2}, or y=gl.col('x') * 2.",
    )


def _named_columns(name: str, given: Any) -> Any:
    _no_functions(given.values())
    return given


def _values(name: str, given: Any) -> Any:
    if isinstance(given, Mapping):
        return {label: listed_values(f"{name}[{label!r}]", some) for label, some in given.items()}
    return listed_values(name, given)


def _conditions(name: str, given: tuple[Any, ...]) -> Any:
    for one in given:
        check_condition(one)
    return given


def _directions(name: str, given: Any) -> Any:
    try:
        return [_flag(name, one) for one in given] if _several(given) else _flag(name, given)
    except ArgumentError as error:
        error.advice = "Expected True or False, or a list with one of them for each key."
        raise


_FLAGS = (
    "all", "by_chunk", "check_dtype", "deterministic", "dropna", "keep_order", "normalize", "numeric_only", "ordered",
    "sort", "ascending", "overwrite", "header", "stream",
)  # fmt: skip

RULES: dict[str, Rule] = {
    **dict.fromkeys(("strategy", "config", "timeout_s"), _option),
    "on": _keys,
    "by": _keys,
    "subset": _or_none(_labels),
    "columns": _or_none(_labels),
    "left_on": _or_none(_labels),
    "right_on": _or_none(_labels),
    "root": _expected(
        _is_whole, "Expected a rank for {name}, got {given}.", "Give the number of one; they begin with 0.", int
    ),
    "rows_per_rank": _or_none(lambda name, given: listed_rows(given)),
    "n": _rows,
    "limit": _or_none(lambda name, given: checked_rows(given, name, or_all=True)),
    "ddof": _number,
    "min_periods": _whole,
    "seed": _whole,
    "frac": _or_none(_number),
    "q": _quantiles,
    "percentiles": _or_none(_percentiles),
    "keep": _checked(check_keep),
    "na_position": _one_of("first", "last"),
    "order": _one_of("global", "local"),
    "join": _one_of("outer", "inner"),
    "validate": _checked(check_validate),
    "suffixes": _expected(
        _are_suffixes, "{name}={given} must be a pair.", "Give two, for example ('_left', '_right')."
    ),
    "indicator": _expected(
        lambda given: isinstance(given, (bool, str)),
        "{name}={given} is invalid.",
        "Expected True, False or a name for the column.",
    ),
    "condition": _checked(check_condition),
    "f": _expected(_is_function, "Expected a function, got {given}.", "Give one that takes a frame and returns one."),
    "wanted": _expected(
        _are_aggregations,
        "Expected a list of aggregations for {name}, got {given}.",
        "Call groupby(by).agg({{'x': 'sum'}}), which makes it.",
    ),
    "path": _expected(
        lambda given: isinstance(given, (str, os.PathLike)) and bool(os.fspath(given)),
        "Expected a folder for {name}, got {given}.",
        "Give its path, for example 'out/orders'.",
    ),
    **dict.fromkeys(_FLAGS, _flag),
}
"""By the argument's name; where a verb means something else by it, the next table says so."""

RULES_OF: dict[tuple[str, str], Rule] = {
    ("join", "on"): _or_none(_labels),
    ("groupby", "by"): listed_keys,
    ("resample", "on"): _keys,
    ("histogram", "column"): _labels,
    ("histogram", "bins"): _bins,
    ("max_rows", "on"): _or_none(_keys),
    ("max_rows", "verb"): _one_of(*OF_ONE_TABLE),
    ("select", "columns"): _keys,
    ("drop", "columns"): _keys,
    ("unique", "columns"): _or_none(_keys),
    ("value_counts", "columns"): _or_none(_keys),
    ("drop_duplicates", "subset"): _or_none(_keys),
    ("describe", "columns"): _or_none(_described),
    ("filter", "also"): _conditions,
    ("rename", "columns"): _expected(
        lambda given: isinstance(given, Mapping),
        "Expected a dict of new names, got {given}.",
        "Give old and new ones, as {{'x': 'y'}}, or a function of names, as str.upper.",
    ),
    ("assign", "columns"): _new_columns,
    ("assign", "named"): _named_columns,
    ("fillna", "value"): _expected(
        lambda given: given is not None,
        "value=None fills nothing.",
        "Give a value, or one for each column, as {{'x': 0}}.",
    ),
    ("isin", "values"): _values,
    ("dropna", "how"): _one_of("any", "all"),
    ("sample", "n"): _or_none(_rows),
    ("to_batches", "rows"): _or_none(_some_rows),
    ("sort_values", "ascending"): _directions,
    ("bind", "name"): _expected(
        lambda given: isinstance(given, str) and given.isidentifier(),
        "{given} cannot be a variable's name.",
        "Give one such as 'orders'.",
    ),
}

_TABLES = ("right", "other", "others")
_OF_LABELS = ("on", "by", "more", "column", "columns", "subset", "left_on", "right_on")


def bind(name: str, signature: inspect.Signature, /, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
    """Fit arguments to a verb's, and bring each to one form: what cannot be is said here, before anything runs.

    Parameters
    ----------
    name : str
        The verb.
    signature : inspect.Signature
    *args, **kwargs
        As called, with the table first.

    Raises
    ------
    TypeError
        If they do not fit; it says of which verb, and what to write.
    ArgumentError, ConfigError
        If one is what it cannot be; with its name, what was given, and what is allowed.
    """
    bound = fit(name, signature, args, kwargs)
    verb = "join" if name == "merge" else name
    kind: type | None = getattr(args[0], "_table_kind", None)
    new: dict[Any, Any] = {}  # columns of an assign, as far as they are known
    for place, given in list(bound.arguments.items())[1:]:
        if kind is not None and place in _TABLES:
            for table in given if place == "others" and isinstance(given, (list, tuple)) else [given]:
                check_table(verb, table, kind)
            continue
        if kind is not None and isinstance(given, kind):
            raise ArgumentError(f"{place}= of {verb} takes no table.", advice="Leave it out, or give a plain value.")
        if verb == "assign" and place in ("columns", "named") and isinstance(given, Mapping):
            given = _in_turn(given, args[0], new)
        if verb == "fillna" and place == "value" and type(given).__name__ == "Series":
            given = given.to_dict() if set(given.index) <= set(args[0].columns) else given  # as means of columns are
        if verb == "rename" and place == "columns" and callable(given) and not isinstance(given, Expression):
            given = {label: given(label) for label in args[0].columns}
        check_own(given, args[0])
        bound.arguments[place] = given = free(plain_label(given) if place in _OF_LABELS else given)
        rule = RULES_OF.get((verb, place)) or RULES.get(place)
        if rule is not None:
            bound.arguments[place] = rule(place, given)
    return bound


class _WithNew:
    """A table as a function of ``assign`` sees it: columns of the same call that stand before it are there already."""

    def __init__(self, table: Any, new: Mapping[Any, Any]) -> None:
        self._table, self._new = table, new

    def __getattr__(self, name: str) -> Any:
        return self._new[name] if name in self._new else getattr(self._table, name)

    def __getitem__(self, key: Any) -> Any:
        return self._new[key] if isinstance(key, (str, int)) and key in self._new else self._table[key]

    def __len__(self) -> int:
        return len(self._table)


def _in_turn(given: Mapping[Any, Any], table: Any, new: dict[Any, Any]) -> dict[Any, Any]:
    """Columns of an assign, one after the other, as pandas makes them; each is put into `new`."""
    made = {}
    for label, one in given.items():
        made[label] = new[label] = _of_table(one, _WithNew(table, new))
    return made


def _of_table(given: Any, table: Any) -> Any:
    """What a function makes of a table, as pandas' ``assign`` calls it; other values as they are."""
    if not inspect.isfunction(given) or len(inspect.signature(given).parameters) != 1:
        return given
    made = given(table)
    return made if isinstance(made, Expression) or not hasattr(type(made), "__len__") else given


def fitted(function: F) -> F:
    """A function that says of a mistyped argument which one was probably meant."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = fit(function.__name__, signature, args, kwargs)
        return function(*bound.args, **bound.kwargs)

    return cast(F, call)


def check_table(verb: str, given: Any, kind: type) -> None:
    """Refuse what is no other table.

    Parameters
    ----------
    verb : str
    given : object
    kind : type
        Of tables on ranks, or of handles.

    Raises
    ------
    ArgumentError
        With what it is.
    """
    if not isinstance(given, kind):
        raise ArgumentError(
            f"Expected another table for {verb}, got a {type(given).__name__}.",
            advice="Make one of it before: of a frame of the notebook lab.from_pandas(frame), on the ranks "
            "gl.from_pandas(frame).",
        )


def checked(method: F) -> F:
    """A verb whose arguments are checked before it runs; where one rank alone was given others, all ranks are told."""
    signature = inspect.signature(method)
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = bind(name, signature, self, *args, **kwargs)
        except GcylonError as error:
            self._refuse(name, error)
            raise
        return of_groups(name, self, method(*bound.args, **bound.kwargs))

    return cast(F, call)
