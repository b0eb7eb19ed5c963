"""Expressions that look at other rows, of groups too: these are brought together by their keys, in order, and back.

Where they fit, rows of one group are brought to one rank. Otherwise they are sorted by their keys, which keeps rows of
one group together however many there are, and needs no rank to hold a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...backends.protocol.aggregation import Aggregation, result_column
from ...backends.protocol.expressions import Expression, col, lit
from ...backends.protocol.join_columns import join_spec
from ...backends.protocol.schema import Label
from ...engine.exec.align_schemas import new_label
from ...engine.exec.invocation import RunOptions
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ..exchange.redistribution import repartition, shuffle
from ..group.groupby import groupby
from ..join.join import join
from ..rowwise.rowwise import assigned, filtered
from ..sort.sort import sort_values
from .aligned import beside, numbered, rows_in_place
from .at_once import at_once, may_fit
from .neighbours import neighbours
from .scan import scan
from .steps import chosen

VALUE, ROW = "value", "row"
_REVERSED = {"bfill": "ffill"}
_SUMS = ("cumsum", "cumprod")
_NEAR = ("shift", "rolling")


class _Making:
    """Parts that are made on the way to a result, which are released at the end."""

    def __init__(self, workspace: Workspace, options: RunOptions) -> None:
        self._workspace, self._options = workspace, options
        self._made: list[Part] = []

    def _keep(self, part: Part) -> Part:
        """Release a part at the end."""
        self._made.append(part)
        return part

    def release(self) -> None:
        """Give up what was made."""
        for part in self._made:
            part.release()  # an error that is kept would hold it

    def _assigned(self, part: Part, columns: Mapping[Label, Expression]) -> Part:
        return self._keep(assigned(self._workspace, part, "assign", list(columns.items()), self._options)[0])

    def _select(self, part: Part, names: Sequence[Label]) -> Part:
        return self._renamed(part, {name: name for name in names})

    def _renamed(self, part: Part, names: Mapping[Label, Label]) -> Part:
        return self._keep(chosen(self._workspace, part, dict(names), self._options))

    def _beside(self, part: Part, other: Part) -> Part:
        return self._keep(beside(self._workspace, part, other, self._options))

    def _sorted(self, part: Part, by: Sequence[Label], ascending: bool | Sequence[bool] = True) -> Part:
        return self._keep(sort_values(self._workspace, part, by, ascending=ascending, options=self._options)[0])

    def _joined(self, left: Part, right: Part, on: Sequence[Label]) -> Part:
        """All rows of the left one."""
        names, keys = (list(left.schema.names), list(right.schema.names)), list(on)
        call, specify = {"how": "left", "on": keys}, lambda: join_spec(*names, "left", keys)
        return self._keep(join(self._workspace, left, right, call, specify, options=self._options)[0])


class Windows(_Making):
    """Window functions of a narrow part: keys, and the column `VALUE`.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    keys : sequence of labels
        Of groups; without any all rows are one.
    dropna : bool
        Whether rows with a missing key have no answer.
    options : RunOptions
    what : str
        What was asked for, in the words of an error.
    """

    def __init__(
        self, workspace: Workspace, part: Part, keys: Sequence[Label], *, dropna: bool, options: RunOptions, what: str
    ) -> None:
        super().__init__(workspace, options)
        self._what, self._part, self._keys, self._dropna = what, part, list(keys), dropna

    def column(self, function: str, settings: Mapping[str, Any]) -> Part:
        """Collective: all ranks call it. A part of one column, `VALUE`, for the rows of the narrow part."""
        try:
            return self._column(function, dict(settings))
        finally:
            self.release()

    def _column(self, function: str, settings: dict[str, Any]) -> Part:
        if function == "rank":
            return self._rank(**settings)
        if function == "transform":
            return self._of_groups(self._aggregated(**settings))
        if function == "ngroup":
            return self._of_groups(self._group_numbers())
        reverse = bool(settings.pop("reverse", False)) or function in _REVERSED
        plain = _REVERSED.get(function, function)
        if not self._keys and not reverse:
            return self._in_order(self._part, plain, settings)
        part, rows, fits = numbered(self._workspace, self._part, ROW, self._options, may_fit)
        self._keep(part)
        made = self._brought_together(part, plain, settings, reverse=reverse) if self._keys and fits else None
        return self._back(made or self._sorted_window(part, plain, settings, reverse=reverse), rows)

    def _in_order(self, part: Part, function: str, settings: Mapping[str, Any]) -> Part:
        """A column for rows that are in the order of their groups."""
        given = (self._workspace, part, self._keys, VALUE, function)
        if function in _NEAR:
            return neighbours(*given, settings, dropna=self._dropna, options=self._options, what=self._what)
        return scan(*given, dropna=self._dropna, options=self._options, what=self._what)

    def _brought_together(
        self, part: Part, function: str, settings: Mapping[str, Any], *, reverse: bool
    ) -> Part | None:
        """`ROW` and what a function gives, by groups of which each is on one rank; None where a rank's do not fit."""
        workspace, keys, options = self._workspace, self._keys, self._options
        together = self._keep(shuffle(workspace, part, keys, keep_order=True, options=options)[0])
        made = at_once(
            workspace, self._select(together, [*keys, VALUE]), keys, VALUE, function, settings, reverse=reverse,
            dropna=self._dropna, options=options, what=self._what,
        )  # fmt: skip
        return made and self._beside(self._select(together, [ROW]), self._keep(made))

    def _sorted_window(self, part: Part, function: str, settings: Mapping[str, Any], *, reverse: bool) -> Part:
        """`ROW` and what a function gives, by groups."""
        by, ascending = list(self._keys), [True] * len(self._keys)
        if reverse:
            by, ascending = [*by, ROW], [*ascending, False]
        ordered = self._sorted(part, by, ascending)
        narrow = self._select(ordered, [*self._keys, VALUE])
        made = self._keep(self._in_order(narrow, function, settings))
        return self._beside(self._select(ordered, [ROW]), made)

    def _back(self, part: Part, rows: Sequence[int]) -> Part:
        """The column `VALUE` of a part, in the order of `ROW`, on the ranks where the rows are."""
        workspace, there = self._workspace, part
        if not rows_in_place(workspace, part, ROW, rows, self._options):  # as where groups were sent to all ranks
            ordered = self._sorted(part, [ROW])
            there = self._keep(repartition(workspace, ordered, list(rows), options=self._options)[0])
        return self._made.pop(self._made.index(self._select(there, [VALUE])))

    # ---- functions that have one answer for a key

    def _of_groups(self, groups: Part, on: Sequence[Label] = (), part: Part | None = None) -> Part:
        """The column `VALUE` of one row a key, for each row that has the key."""
        numbers, rows = self._numbered(part or self._part)
        keys = list(on or self._keys)
        return self._back(self._joined(self._select(numbers, [*keys, ROW]), groups, keys), rows)

    def _grouped(self, part: Part, keys: Sequence[Label], wanted: Aggregation, *, dropna: bool) -> Part:
        return self._keep(groupby(self._workspace, part, keys, [wanted], dropna=dropna, options=self._options)[0])

    def _aggregated(self, function: str, argument: float | None) -> Part:
        column = None if function == "size" else VALUE
        usual = {"quantile": 0.5, "var": 1.0, "std": 1.0}.get(function, 0.0)
        wanted = Aggregation(VALUE, function, column, usual if argument is None else float(argument))
        return self._grouped(self._part, self._keys, wanted, dropna=self._dropna)

    def _group_numbers(self) -> Part:
        sizes = self._grouped(self._part, self._keys, Aggregation("rows", "size"), dropna=self._dropna)
        ordered = self._sorted(sizes, self._keys)
        return self._keep(numbered(self._workspace, self._select(ordered, self._keys), VALUE, self._options)[0])

    def _rank(self, method: str, *, ascending: bool, pct: bool) -> Part:
        """Ranks of equal values are found once, of a table of the different ones."""
        keys = self._keys
        there = self._keep(filtered(self._workspace, self._part, col(VALUE).notna(), self._options)[0])
        if method == "first":
            return self._first_ranks(ascending=ascending, pct=pct)
        counted = self._grouped(there, [*keys, VALUE], Aggregation("rows", "size"), dropna=self._dropna)
        up = [True] * len(keys) + [ascending]
        ordered = self._sorted(counted, [*keys, VALUE], up)
        steps = self._assigned(ordered, {"rows": lit(1) if method == "dense" else col("rows")})
        both = self._beside(steps, self._running(steps))
        last = col("upto").astype("float64")
        rank: Expression = {
            "average": last - (col("rows") - 1) / 2, "min": last - col("rows") + 1, "max": last, "dense": last,
        }[method]  # fmt: skip
        if pct:
            both, total = self._with_total(both)
            rank = rank / total
        ranks = self._assigned(both, {"rank": rank})
        named: dict[Label, Label] = {name: name for name in keys} | {VALUE: "ranked"}
        groups = self._renamed(ranks, named | {"rank": VALUE})
        return self._of_groups(groups, [*keys, "ranked"], self._renamed(self._part, named))

    def _with_total(self, part: Part) -> tuple[Part, Expression]:
        """The greatest `upto` of each group, as a column beside."""
        keys = self._keys or ["all"]
        part = part if self._keys else self._assigned(part, {"all": lit(0)})
        totals = self._grouped(part, keys, Aggregation("total", "max", "upto"), dropna=self._dropna)
        return self._joined(part, totals, keys), col("total")

    def _first_ranks(self, *, ascending: bool, pct: bool) -> Part:
        """Equal values have ranks in the order of their rows."""
        part, rows = self._numbered(self._part)
        ordered = self._sorted(part, [*self._keys, VALUE], [True] * len(self._keys) + [ascending])
        steps = self._assigned(ordered, {"rows": col(VALUE).notna().astype("int64")})
        both = self._beside(steps, self._running(steps))
        rank: Expression = col("upto").astype("float64")
        if pct:
            both, total = self._with_total(both)
            rank = rank / total
        made = self._assigned(both, {VALUE: rank.where(col("rows") == 1, None)})
        return self._back(self._select(made, [ROW, VALUE]), rows)

    def _running(self, part: Part) -> Part:
        """The sums `upto` of `rows` up to each row, by groups."""
        narrow, keys, options = self._select(part, [*self._keys, "rows"]), self._keys, self._options
        sums = scan(self._workspace, narrow, keys, "rows", "cumsum", dropna=self._dropna, options=options)
        return self._renamed(self._keep(sums), {"rows": "upto"})

    def _numbered(self, part: Part) -> tuple[Part, list[int]]:
        made, rows, _ = numbered(self._workspace, part, ROW, self._options)
        return self._keep(made), rows


# ---- expressions that look at other rows


def has_windows(expressions: Sequence[Any]) -> bool:
    """Whether an expression looks at other rows."""
    known = [one for one in expressions if isinstance(one, Expression)]
    return any(part.operation == "window" for one in known for part in one.parts())


@contextmanager
def with_windows(
    workspace: Workspace, part: Part, expressions: Sequence[Expression], options: RunOptions
) -> Iterator[tuple[Part, list[Expression]]]:
    """Collective: all ranks call it. A part with a column for each window function, and the expressions of these.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    expressions : sequence of Expression
    options : RunOptions
    """
    making = _Expressions(workspace, part, options)
    try:
        made = [making.resolved(one) for one in expressions]
        yield making.part, made
    finally:
        making.release()


class _Expressions(_Making):
    def __init__(self, workspace: Workspace, part: Part, options: RunOptions) -> None:
        super().__init__(workspace, options)
        self.part = part
        self._known: dict[str, Label] = {}

    def resolved(self, expression: Any) -> Any:
        """Collective: all ranks call it. An expression in which window functions are columns."""
        if not isinstance(expression, Expression) or not has_windows([expression]):
            return expression
        if expression.operation == "window":
            text = expression.text()
            if text not in self._known:
                self._known[text] = self._column(expression)
            return col(self._known[text])
        return Expression(expression.operation, *map(self.resolved, expression.arguments))

    def _column(self, window: Expression) -> Label:
        function, settings, *given = window.arguments
        value, *keys = map(self.resolved, given)
        names = [f"key{i}" for i in range(len(keys))]
        settings = dict(settings)
        dropna = bool(settings.pop("dropna", False))
        narrow = self._narrow([*zip(names, keys, strict=True), (VALUE, value)], function)
        windows = Windows(self._workspace, narrow, names, dropna=dropna, options=self._options, what=window.text())
        column = self._keep(windows.column(function, settings))
        label = new_label(self.part.schema.names, f"window{len(self._known)}")
        self.part = self._beside(self.part, self._renamed(column, {VALUE: label}))
        return label

    def _narrow(self, columns: Sequence[tuple[str, Expression]], function: str) -> Part:
        taken = list(self.part.schema.names)
        labels = {name: new_label(taken, name) for name, _ in columns}
        part = self._assigned(self.part, {labels[name]: expression for name, expression in columns})
        narrow = self._renamed(part, {label: name for name, label in labels.items()})
        column = narrow.schema[VALUE]
        if function in _SUMS and column.kind in ("bool", "int"):
            wide = result_column(column, "sum", VALUE).describe()
            if wide != column.describe():
                narrow = self._assigned(narrow, {VALUE: col(VALUE).astype(wide)})
        return narrow
