"""Window functions among the rows of groups: rows are brought together by their keys, in their order, and back.

Where they fit, rows of one group are brought to one rank. Otherwise they are sorted by their keys, which keeps rows of
one group together however many there are, and needs no rank to hold a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...backends.protocol.aggregation import Aggregation
from ...backends.protocol.expressions import Expression, col, lit
from ...backends.protocol.join_columns import join_spec
from ...backends.protocol.schema import Label
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
_NEAR = ("shift", "rolling")


class Windows:
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
        self._what = what
        self._workspace, self._part, self._keys = workspace, part, list(keys)
        self._dropna, self._options = dropna, options
        self._made: list[Part] = []

    def column(self, function: str, settings: Mapping[str, Any]) -> Part:
        """Collective: all ranks call it. A part of one column, `VALUE`, for the rows of the narrow part."""
        try:
            return self._column(function, dict(settings))
        finally:
            for part in self._made:
                part.release()  # an error that is kept would hold it

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
        return made and self._keep(beside(workspace, self._select(together, [ROW]), self._keep(made), options))

    def _sorted_window(self, part: Part, function: str, settings: Mapping[str, Any], *, reverse: bool) -> Part:
        """`ROW` and what a function gives, by groups."""
        by, ascending = list(self._keys), [True] * len(self._keys)
        if reverse:
            by, ascending = [*by, ROW], [*ascending, False]
        ordered = self._keep(sort_values(self._workspace, part, by, ascending=ascending, options=self._options)[0])
        narrow = self._select(ordered, [*self._keys, VALUE])
        made = self._keep(self._in_order(narrow, function, settings))
        return self._keep(beside(self._workspace, self._select(ordered, [ROW]), made, self._options))

    def _back(self, part: Part, rows: Sequence[int]) -> Part:
        """The column `VALUE` of a part, in the order of `ROW`, on the ranks where the rows are."""
        workspace, there = self._workspace, part
        if not rows_in_place(workspace, part, ROW, rows, self._options):  # as where groups were sent to all ranks
            ordered = self._keep(sort_values(workspace, part, [ROW], options=self._options)[0])
            there = self._keep(repartition(workspace, ordered, list(rows), options=self._options)[0])
        return self._made.pop(self._made.index(self._select(there, [VALUE])))

    # ---- functions that have one answer for a key

    def _of_groups(self, groups: Part, on: Sequence[Label] = ()) -> Part:
        """The column `VALUE` of one row a key, for each row that has the key."""
        part, rows = self._numbered()
        keys = list(on or self._keys)
        asked = self._select(part, [*keys, ROW])
        names = list(asked.schema.names), list(groups.schema.names)
        joined = join(
            self._workspace, asked, groups, {"how": "left", "on": keys},
            lambda: join_spec(*names, "left", keys), options=self._options,
        )[0]  # fmt: skip
        return self._back(self._keep(joined), rows)

    def _grouped(self, part: Part, keys: Sequence[Label], wanted: Aggregation, *, dropna: bool) -> Part:
        return self._keep(groupby(self._workspace, part, keys, [wanted], dropna=dropna, options=self._options)[0])

    def _aggregated(self, function: str, argument: float | None) -> Part:
        column = None if function == "size" else VALUE
        usual = {"quantile": 0.5, "var": 1.0, "std": 1.0}.get(function, 0.0)
        wanted = Aggregation(VALUE, function, column, usual if argument is None else float(argument))
        return self._grouped(self._part, self._keys, wanted, dropna=self._dropna)

    def _group_numbers(self) -> Part:
        sizes = self._grouped(self._part, self._keys, Aggregation("rows", "size"), dropna=self._dropna)
        ordered = self._keep(sort_values(self._workspace, sizes, self._keys, options=self._options)[0])
        return self._keep(numbered(self._workspace, self._select(ordered, self._keys), VALUE, self._options)[0])

    def _rank(self, method: str, *, ascending: bool, pct: bool) -> Part:
        """Ranks of equal values are found once, of a table of the different ones."""
        workspace, keys, options = self._workspace, self._keys, self._options
        there = self._keep(filtered(workspace, self._part, col(VALUE).notna(), options)[0])
        if method == "first":
            return self._first_ranks(ascending=ascending, pct=pct)
        counted = self._grouped(there, [*keys, VALUE], Aggregation("rows", "size"), dropna=self._dropna)
        up = [True] * len(keys) + [ascending]
        ordered = self._keep(sort_values(workspace, counted, [*keys, VALUE], ascending=up, options=options)[0])
        steps = self._assigned(ordered, {"rows": lit(1) if method == "dense" else col("rows")})
        upto = self._running(steps)
        both = self._keep(beside(workspace, steps, self._renamed(upto, {"rows": "upto"}), options))
        last = col("upto").astype("float64")
        rank: Expression = {
            "average": last - (col("rows") - 1) / 2, "min": last - col("rows") + 1, "max": last, "dense": last,
        }[method]  # fmt: skip
        if pct:
            both, total = self._with_total(both)
            rank = rank / total
        ranks = self._assigned(both, {"rank": rank})
        named = {name: name for name in keys} | {VALUE: "ranked", "rank": VALUE}
        groups = self._keep(chosen(workspace, ranks, named, options))
        asked = self._keep(chosen(workspace, self._part, {name: name for name in keys} | {VALUE: "ranked"}, options))
        windows = Windows(workspace, asked, keys, dropna=self._dropna, options=options, what=self._what)
        return windows._ranked(groups, [*keys, "ranked"])

    def _ranked(self, groups: Part, on: Sequence[Label]) -> Part:
        try:
            return self._of_groups(groups, on)
        finally:
            for part in self._made:
                part.release()

    def _with_total(self, part: Part) -> tuple[Part, Expression]:
        """The greatest `upto` of each group, as a column beside."""
        workspace, keys = self._workspace, self._keys
        with_key = keys or ["all"]
        part = part if keys else self._assigned(part, {"all": lit(0)})
        wanted = Aggregation("total", "max", "upto")
        totals = self._grouped(part, with_key, wanted, dropna=self._dropna)
        names = list(part.schema.names), list(totals.schema.names)
        joined = join(
            workspace, part, totals, {"how": "left", "on": with_key},
            lambda: join_spec(*names, "left", with_key), options=self._options,
        )[0]  # fmt: skip
        return self._keep(joined), col("total")

    def _first_ranks(self, *, ascending: bool, pct: bool) -> Part:
        """Equal values have ranks in the order of their rows."""
        workspace, keys, options = self._workspace, self._keys, self._options
        part, rows = self._numbered()
        up = [True] * len(keys) + [ascending]
        ordered = self._keep(sort_values(workspace, part, [*keys, VALUE], ascending=up, options=options)[0])
        steps = self._assigned(ordered, {"rows": col(VALUE).notna().astype("int64")})
        both = self._keep(beside(workspace, steps, self._renamed(self._running(steps), {"rows": "upto"}), options))
        rank: Expression = col("upto").astype("float64")
        if pct:
            both, total = self._with_total(both)
            rank = rank / total
        made = self._assigned(both, {VALUE: rank.where(col("rows") == 1, None)})
        return self._back(self._select(made, [ROW, VALUE]), rows)

    def _running(self, part: Part) -> Part:
        """The sums of `rows` up to each row, by groups."""
        narrow, keys, options = self._select(part, [*self._keys, "rows"]), self._keys, self._options
        return self._keep(scan(self._workspace, narrow, keys, "rows", "cumsum", dropna=self._dropna, options=options))

    # ---- parts that were made

    def _numbered(self) -> tuple[Part, list[int]]:
        part, rows, _ = numbered(self._workspace, self._part, ROW, self._options)
        return self._keep(part), rows

    def _assigned(self, part: Part, columns: Mapping[Label, Expression]) -> Part:
        return self._keep(assigned(self._workspace, part, "assign", list(columns.items()), self._options)[0])

    def _select(self, part: Part, names: Sequence[Label]) -> Part:
        return self._renamed(part, {name: name for name in names})

    def _renamed(self, part: Part, names: Mapping[Label, Label]) -> Part:
        return self._keep(chosen(self._workspace, part, dict(names), self._options))

    def _keep(self, part: Part) -> Part:
        """Release a part at the end."""
        self._made.append(part)
        return part
