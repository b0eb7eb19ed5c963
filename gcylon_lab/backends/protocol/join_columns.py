"""What a join compares and what it gives: keys brought to one form, and the columns of the result. Pure.

Names, their order and dtypes are those of ``pandas.merge``. It differs where that would change a value: keys of
unlike numbers are compared exactly, and a column of ints which gets missing values becomes float64 only if each of
its values is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import pyarrow as pa

from ...errors import ArgumentError, ColumnMissing, DuplicateColumns, SchemaMismatch
from .key_forms import KeyForm, key_form, labels_column, same_category
from .promotion import fixed_column, in_one_zone, promote
from .scalars import check_choice
from .schema import Column, Label, Schema, code_dtype, instead_of

HOWS = ("inner", "left", "right", "outer", "semi", "anti", "cross")
_VALIDATIONS = {
    "1:1": "one_to_one", "1:m": "one_to_many", "m:1": "many_to_one", "m:m": "many_to_many",
    "one_to_one": "one_to_one", "one_to_many": "one_to_many", "many_to_one": "many_to_one",
    "many_to_many": "many_to_many",
}  # fmt: skip
_INDICATED = ("left_only", "right_only", "both")


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """A join as it was asked for.

    Attributes
    ----------
    how : str
        One of `HOWS`.
    left_on, right_on : tuple of labels
        Keys of each side, in pairs; empty for cross.
    suffixes : tuple of str or None
        For names that both sides have.
    indicator : str
        Name of the column that says where a row comes from; empty for none.
    validate : str
        ``one_to_one``, ``one_to_many``, ``many_to_one``, or empty.
    """

    how: str
    left_on: tuple[Label, ...] = ()
    right_on: tuple[Label, ...] = ()
    suffixes: tuple[str | None, str | None] = ("_x", "_y")
    indicator: str = ""
    validate: str = ""

    @property
    def filters(self) -> bool:
        """Whether the result is rows of the left side, each at most once."""
        return self.how in ("semi", "anti")

    @property
    def unique_sides(self) -> tuple[str, ...]:
        """The sides whose keys must be distinct."""
        sides = {"one_to_one": ("left", "right"), "one_to_many": ("left",), "many_to_one": ("right",)}
        return sides.get(self.validate, ())

    def arguments(self) -> dict[str, Any]:
        """As plain values, for the digest that all ranks compare, without those that say nothing."""
        every: dict[str, Any] = {
            "how": self.how, "left_on": list(self.left_on), "right_on": list(self.right_on),
            "suffixes": list(self.suffixes), "indicator": self.indicator, "validate": self.validate,
        }  # fmt: skip
        if self.left_on == self.right_on:
            every = {"how": every.pop("how"), "on": every.pop("left_on")} | every
            del every["right_on"]
        return {name: value for name, value in every.items() if value and value != ["_x", "_y"]}


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the result.

    Attributes
    ----------
    side : str
        ``left``, ``right``, ``key`` (of whichever side has the row) or ``indicator``.
    left, right : label or None
        The columns it is taken from.
    column, missing : Column
        Of the result where all of its rows are there, and where some are missing.
    """

    side: str
    left: Label | None
    right: Label | None
    column: Column
    missing: Column


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """Keys and columns of a join of two schemas.

    Attributes
    ----------
    spec : JoinSpec
    forms : tuple of KeyForm
        How each pair of keys is compared.
    outputs : tuple of Output
        In order.
    """

    spec: JoinSpec
    forms: tuple[KeyForm, ...]
    outputs: tuple[Output, ...]

    def schema(self, left_missing: bool, right_missing: bool) -> Schema:
        """The result's schema, where rows of a side are missing somewhere or nowhere."""
        lacks = {"left": left_missing, "right": right_missing}
        return Schema([o.missing if lacks.get(o.side, False) else o.column for o in self.outputs])

    @property
    def variable_sides(self) -> tuple[str, ...]:
        """Sides whose variable columns rows of the result have: a key that it has once counts as the left side's."""
        sides = {"left" if o.side == "key" else o.side for o in self.outputs if not o.column.fixed}
        return tuple(side for side in ("left", "right") if side in sides)

    def needed(self, side: str) -> list[Label]:
        """The columns of a side that the result is made of."""
        return [name for o in self.outputs for name in [o.left if side == "left" else o.right] if name is not None]


def join_spec(
    left: Sequence[Label],
    right: Sequence[Label],
    how: str = "inner",
    on: Label | Iterable[Label] | None = None,
    left_on: Label | Iterable[Label] | None = None,
    right_on: Label | Iterable[Label] | None = None,
    suffixes: Sequence[str | None] = ("_x", "_y"),
    indicator: bool | str = False,
    validate: str | None = None,
) -> JoinSpec:
    """Check the arguments of a join against the column labels of both sides.

    Raises
    ------
    ArgumentError, ColumnMissing
        Saying what there is.
    """
    given: Any = how
    meant = given if isinstance(given, list) else [given]
    columns = all(isinstance(key, (str, int)) and key in left for key in meant)
    check_choice("how", how, HOWS, f" To join by columns, give on={how!r}." if columns else "")
    keys_left, keys_right = _keys(left, right, how, on, left_on, right_on)
    if not isinstance(suffixes, (tuple, list)) or len(suffixes) != 2:
        raise ArgumentError(
            f"suffixes={suffixes!r} must be a pair.", advice="Give two, for example ('_left', '_right')."
        )
    check_validate(validate)
    name = indicator if isinstance(indicator, str) else "_merge" if indicator else ""
    spec = JoinSpec(
        how, keys_left, keys_right, (suffixes[0], suffixes[1]), name,
        _VALIDATIONS[validate].replace("many_to_many", "") if validate else "",
    )  # fmt: skip
    if name and spec.filters:
        raise ArgumentError(f"A {how} join has no indicator: all of its rows are of the left side.")
    if spec.validate and how == "cross":
        raise ArgumentError("A cross join has no keys to validate.")
    return spec


def check_validate(validate: str | None) -> None:
    """Refuse what says nothing of how often keys may stand on a side.

    Raises
    ------
    ArgumentError
        Naming what there is.
    """
    check_choice("validate", validate, (*_VALIDATIONS, None))


def _keys(
    left: Sequence[Label],
    right: Sequence[Label],
    how: str,
    on: Label | Iterable[Label] | None,
    left_on: Label | Iterable[Label] | None,
    right_on: Label | Iterable[Label] | None,
) -> tuple[tuple[Label, ...], tuple[Label, ...]]:
    given = (on is not None, left_on is not None, right_on is not None)
    if how == "cross":
        if any(given):
            raise ArgumentError("A cross join has no keys.", advice="Leave on, left_on and right_on out.")
        return (), ()
    if given not in ((True, False, False), (False, True, True), (False, False, False)):
        raise ArgumentError("A join takes either on, or left_on together with right_on.")
    if given[0]:
        left_on = right_on = on
    elif not any(given):
        left_on = right_on = [name for name in left if name in set(right)]
    pair = _listed(left_on), _listed(right_on)
    if not any(given) and not pair[0]:
        raise ArgumentError(
            "No column stands on both sides to join on.",
            advice="Give left_on= and right_on=, or on= where both have the column; how='cross' takes no keys.",
        )
    if len(pair[0]) != len(pair[1]) or not pair[0]:
        raise ArgumentError(
            f"The keys {list(pair[0])} of the left side and {list(pair[1])} of the right side must form pairs.",
            advice="Give one or more keys, as many for each side.",
        )
    for side, names, keys in (("left", left, pair[0]), ("right", right, pair[1])):
        for key in keys:
            if key not in names:
                message = f"The {side} side has no column {key!r}."
                raise ColumnMissing(message, advice=instead_of(key, names, "Its"), column=str(key))
    if len(set(zip(*pair, strict=True))) != len(pair[0]):
        raise ArgumentError(f"The keys {list(zip(*pair, strict=True))} name a pair twice.", advice="Give each once.")
    return pair


def _listed(keys: Label | Iterable[Label] | None) -> tuple[Label, ...]:
    if isinstance(keys, (str, int, Integral)):
        return (keys if isinstance(keys, (str, int)) else int(keys),)
    if keys is not None and not isinstance(keys, Iterable):
        raise ArgumentError(f"Expected column labels, got {keys!r}.", advice="Give a label, or a list of labels.")
    return tuple(keys or ())


def join_columns(left: Schema, right: Schema, spec: JoinSpec) -> JoinColumns:
    """Bring keys to one form, and name the columns of the result.

    Raises
    ------
    SchemaMismatch
        If a pair of keys cannot be compared, naming both and their dtypes.
    UnsupportedDtype
        If a key cannot be hashed.
    DuplicateColumns, ArgumentError
        If two columns of the result have one name.
    """
    pairs = list(zip(spec.left_on, spec.right_on, strict=True))
    forms = tuple(key_form(left[a], right[b]) for a, b in pairs)
    if spec.filters:
        return JoinColumns(spec, forms, tuple(Output("left", c.name, None, c, c) for c in left))
    shared = [a for a, b in pairs if a == b]
    names = _names(left, right, shared, spec)
    partner = {("left", a): right[b] for a, b in pairs} | {("right", b): left[a] for a, b in pairs}
    outputs = [
        _key_output(column, right[column.name], spec.how)
        if side == "left" and column.name in shared
        else _output(side, _comparable(column, partner.get((side, column.name))), name)
        for side, column, name in names
    ]
    if spec.indicator:
        outputs.append(_indicator(spec.indicator, [o.column.name for o in outputs]))
    return JoinColumns(spec, forms, tuple(outputs))


def _names(left: Schema, right: Schema, shared: Sequence[Label], spec: JoinSpec) -> list[tuple[str, Column, Label]]:
    """Side, column and name of each column of the result."""
    kept = [column for column in right if column.name not in shared]
    both = {column.name for column in kept} & set(left.names) - set(shared)
    if both and not any(spec.suffixes):
        raise ArgumentError(
            f"Both sides have columns {sorted(map(str, both))}, and there are no suffixes.",
            advice="Give suffixes, for example ('_x', '_y').",
        )
    named = [("left", c, _suffixed(c.name, both, spec.suffixes[0])) for c in left]
    named += [("right", c, _suffixed(c.name, both, spec.suffixes[1])) for c in kept]
    labels = [name for _, _, name in named]
    twice = sorted({str(name) for name in labels if labels.count(name) > 1})
    if twice:
        raise DuplicateColumns(
            f"The result would have columns {twice} twice, once with a suffix of {spec.suffixes}.",
            advice="Choose other suffixes.",
            column=twice[0],
        )
    return named


def _suffixed(name: Label, both: set[Label], suffix: str | None) -> Label:
    return f"{name}{suffix}" if name in both and suffix is not None else name


def _output(side: str, column: Column, name: Label) -> Output:
    source = column.name
    named = replace(column, name=name)
    left, right = (source, None) if side == "left" else (None, source)
    return Output(side, left, right, named, with_missing(named))


def _comparable(column: Column, other: Column | None) -> Column:
    """A key as pandas gives it: a category that meets other labels becomes a column of its labels."""
    if other is None or column.kind != "category" or same_category(column, other):
        return column
    return labels_column(column)


def _key_output(left: Column, right: Column, how: str) -> Output:
    """A key that has one name on both sides, which the result has once."""
    name = left.name
    a, b = _comparable(left, right), _comparable(right, left)
    column = b if how == "right" else a
    if how == "outer":
        column = _common(left, right, a, b)
    elif how == "inner" and a.kind == b.kind and a != b:
        try:
            column = promote(in_one_zone([a, b]), [1, 1])
        except SchemaMismatch:
            column = a  # values that match are ones of either
    return Output("key", name, name, column, column)


def _common(left: Column, right: Column, a: Column, b: Column) -> Column:
    if a.kind == b.kind == "category":
        return a
    try:
        return promote(in_one_zone([a, b]), [1, 1])
    except SchemaMismatch:
        raise SchemaMismatch(
            f"No dtype holds all keys {left.name!r} of an outer join exactly: {left.describe()} on the left side, "
            f"{right.describe()} on the right side.",
            advice="Convert one of them before, or give the keys different names.",
            column=left.name,
        ) from None


def with_missing(column: Column) -> Column:
    """What a column becomes where some of its rows are missing: ints are floats then, bools are objects."""
    if column.fixed and column.kind == "int":
        return fixed_column(column.name, pa.float64())
    if column.fixed and column.kind == "bool":
        return Column(column.name, "bool", "object", arrow=pa.bool_())
    return column


def _indicator(name: str, others: Sequence[Label]) -> Output:
    if name in others:
        raise ArgumentError(f"indicator={name!r} is the name of a column of the result.", advice="Give another name.")
    labels = pa.array(_INDICATED, pa.large_string())
    column = Column(name, "category", "category", dtype=code_dtype(len(labels)), labels=labels, label_pandas="str")
    return Output("indicator", None, None, column, column)
