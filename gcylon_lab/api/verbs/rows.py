"""Verbs that look at each row alone: choosing columns and rows, and making columns anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import zip_longest
from typing import Any, Self

from ...backends.protocol.expressions import Expression, col, lit
from ...backends.protocol.schema import Label, Schema
from ...config import GcylonConfig
from ...engine.exec.invocation import AUTO, RunOptions, check_keys, listed
from ...operators.rowwise import rowwise
from ...operators.rowwise.chain import Assign, Filter, Relabel
from ...operators.window.steps import chosen
from ...operators.window.windows import has_windows, with_windows
from .base import Verbs


class RowVerbs(Verbs):
    """select, drop, rename, filter, assign, astype, fillna, dropna, isin, map_parts."""

    def select(self, columns: Label | Sequence[Label], *more: Label, timeout_s: float | None = None) -> Self:
        """Collective: all ranks call it. Keep only some columns, in the order given; nothing is copied.

        Parameters
        ----------
        columns : label or sequence of labels
        *more : label
            Further ones.
        timeout_s : float, optional
            Seconds until `DeadlineExceeded`.

        Returns
        -------
        Table

        Raises
        ------
        ColumnMissing
            If one is no column.
        """
        names = [*listed(columns), *listed(more)]

        def chosen(schema: Schema) -> Mapping[Label, Label]:
            check_keys(schema, names, "columns")
            return {name: name for name in names}

        return self._relabelled("select", {"columns": names}, chosen, RunOptions(timeout_s=timeout_s))

    def drop(self, columns: Label | Sequence[Label], *, timeout_s: float | None = None) -> Self:
        """Collective: all ranks call it. Leave out some columns; nothing is copied.

        Parameters
        ----------
        columns : label or sequence of labels
        timeout_s : float, optional
            Seconds until `DeadlineExceeded`.

        Returns
        -------
        Table
        """
        names = listed(columns)

        def chosen(schema: Schema) -> Mapping[Label, Label]:
            check_keys(schema, names, "columns")
            return {name: name for name in schema.names if name not in names}

        return self._relabelled("drop", {"columns": names}, chosen, RunOptions(timeout_s=timeout_s))

    def rename(self, columns: Mapping[Label, Label], *, timeout_s: float | None = None) -> Self:
        """Collective: all ranks call it. Give columns other names; nothing is copied.

        Parameters
        ----------
        columns : mapping of label to label, or callable
            Old names and new ones; the other columns keep theirs. A function gives each column's new name.
        timeout_s : float, optional
            Seconds until `DeadlineExceeded`.

        Returns
        -------
        Table

        Raises
        ------
        ArgumentError
            If it is neither a mapping nor a function.
        DuplicateColumns
            If two columns would have one name.
        """
        names = dict(columns)

        def chosen(schema: Schema) -> Mapping[Label, Label]:
            check_keys(schema, list(names), "columns")
            return {name: names.get(name, name) for name in schema.names}

        return self._relabelled("rename", {"columns": names}, chosen, RunOptions(timeout_s=timeout_s))

    def filter(
        self,
        condition: Expression,
        *also: Expression,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Keep the rows of which a condition holds, in order, where they are.

        Parameters
        ----------
        condition : Expression
            Such as ``(gl.col("x") > 3) & gl.col("s").notna()``. Where it is missing, it does not hold.
        *also : Expression
            Further ones; all must hold.
        strategy : {"auto", "direct", "staged"}
            Whether the result is held on the device tier; ``auto`` does as long as a part of the budget is free.
        config : GcylonConfig, optional
            The same on all ranks.
        timeout_s : float, optional
            Seconds until `DeadlineExceeded`.

        Returns
        -------
        Table

        Raises
        ------
        ColumnMissing
            If it names what is no column.
        ArgumentError
            If it is no condition, or cannot be computed of these dtypes.
        """
        options = RunOptions(strategy, config, timeout_s)
        condition = reduce(lambda a, b: a & b, also, condition)
        later = self._later(lambda schema: Filter(condition)) if options == AUTO else None
        if later is not None:
            return later
        if not has_windows([condition]):
            return self._made(*rowwise.filtered(self._workspace, self._live(), condition, options))
        how, names = replace(options, strategy="auto"), {name: name for name in self.schema.names}
        with with_windows(self._workspace, self._live(), [condition], how) as (part, (plain,)):
            found, plan = rowwise.filtered(self._workspace, part, plain, options)
            return self._made(chosen(self._workspace, found, names, how), plan)

    def assign(
        self,
        columns: Mapping[Label, Any] | None = None,
        /,
        *,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
        **named: Any,
    ) -> Self:
        """Collective: all ranks call it. Add columns, or make them anew, of expressions; the others are not copied.

        Parameters
        ----------
        columns : mapping of label to Expression or value, optional
            For labels that are no names.
        strategy, config, timeout_s
            As for `filter`.
        **named
            Columns by name: ``total=gl.col("price") * gl.col("count")`` sees the columns as they were; a function,
            as in ``half=lambda t: t.total / 2``, those that stand before it in the same call too, as in pandas.

        Returns
        -------
        Table
            With dtypes as pandas gives them.
        """
        wanted = [*(columns or {}).items(), *named.items()]
        expressions = [(name, one if isinstance(one, Expression) else lit(one)) for name, one in wanted]
        return self._assigned("assign", expressions, RunOptions(strategy, config, timeout_s))

    def astype(
        self, dtype: Any, *, strategy: str = "auto", config: GcylonConfig | None = None, timeout_s: float | None = None
    ) -> Self:
        """Collective: all ranks call it. Convert columns.

        Parameters
        ----------
        dtype : dtype or mapping of label to dtype
            For all columns, or for some.
        strategy, config, timeout_s
            As for `filter`.

        Returns
        -------
        Table

        Raises
        ------
        ArgumentError
            If a value cannot be converted.
        """
        wanted = dtype if isinstance(dtype, Mapping) else dict.fromkeys(self.schema.names, dtype)
        made = [(name, col(name).astype(one)) for name, one in wanted.items()]
        return self._assigned("astype", made, RunOptions(strategy, config, timeout_s))

    def fillna(
        self, value: Any, *, strategy: str = "auto", config: GcylonConfig | None = None, timeout_s: float | None = None
    ) -> Self:
        """Collective: all ranks call it. Put values where there are none.

        Parameters
        ----------
        value : scalar or mapping of label to scalar
            For all columns, or for some.
        strategy, config, timeout_s
            As for `filter`.

        Returns
        -------
        Table

        Raises
        ------
        ArgumentError
            If a column cannot hold the value.
        """
        wanted = value if isinstance(value, Mapping) else dict.fromkeys(self.schema.names, value)
        made = [(name, col(name).fillna(one)) for name, one in wanted.items()]
        return self._assigned("fillna", made, RunOptions(strategy, config, timeout_s))

    def dropna(
        self,
        subset: Label | Sequence[Label] | None = None,
        *,
        how: str = "any",
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Leave out rows with missing values.

        Parameters
        ----------
        subset : label or sequence of labels, optional
            The columns that matter; all by default.
        how : {"any", "all"}
            Whether one missing value is enough.
        strategy, config, timeout_s
            As for `filter`.

        Returns
        -------
        Table
        """
        names = list(self.schema.names) if subset is None else listed(subset)
        there = [col(name).notna() for name in names] or [lit(True)]
        while len(there) > 1:  # in pairs: of many columns one after the other would be nested too deeply
            pairs = zip_longest(there[::2], there[1::2])
            there = [a if b is None else a & b if how == "any" else a | b for a, b in pairs]
        return self.filter(there[0], strategy=strategy, config=config, timeout_s=timeout_s)

    def isin(
        self,
        values: Iterable[Any] | Mapping[Label, Iterable[Any]],
        *,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Say of each value whether it is among some: a table of bools.

        Parameters
        ----------
        values : iterable, or mapping of label to iterable
            For all columns, or for each; a column without an entry has none of them.
        strategy, config, timeout_s
            As for `filter`.

        Returns
        -------
        Table
        """
        names = self.schema.names
        if isinstance(values, Mapping):
            given = {name: list(values.get(name, ())) for name in names}
        else:
            given = dict.fromkeys(names, list(values))
        made = [(name, col(name).isin(given[name])) for name in names]
        return self._assigned("isin", made, RunOptions(strategy, config, timeout_s))

    def map_parts(
        self,
        f: Callable[[Any], Any],
        *,
        by_chunk: bool = False,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Make a table of what a function makes of each rank's rows.

        Parameters
        ----------
        f : callable
            Takes a frame of the rank's library (pandas or cuDF) and returns one. What it needs beside these two is
            outside the budget. In a notebook, modules that it uses are imported on the ranks; other names of the
            notebook are not known there.
        by_chunk : bool, default False
            Call it with one chunk after the other, instead of all rows at once: for tables larger than the budget.
        config, timeout_s
            As for `filter`.

        Returns
        -------
        Table
            Its dtypes are brought to one over the ranks.

        Raises
        ------
        RankError
            What the function raised, on all ranks.
        BudgetExceeded
            If all rows of a rank do not fit at once; ``by_chunk=True`` needs room for one chunk.
        """
        options = RunOptions("auto", config, timeout_s)
        return self._made(rowwise.mapped(self._workspace, self._live(), f, by_chunk=by_chunk, options=options))

    def _relabelled(
        self,
        verb: str,
        arguments: dict[str, Any],
        chosen: Callable[[Schema], Mapping[Label, Label]],
        options: RunOptions,
    ) -> Self:
        later = None
        if options == AUTO:
            later = self._later(lambda schema: Relabel(verb, arguments, tuple(chosen(schema).items())))
        if later is not None:
            return later
        return self._made(rowwise.relabelled(self._workspace, self._live(), verb, arguments, chosen, options))

    def _assigned(
        self,
        verb: str,
        expressions: Sequence[tuple[Label, Expression]],
        options: RunOptions,
    ) -> Self:
        later = None
        if options == AUTO:
            later = self._later(lambda schema: Assign(verb, tuple(expressions)))
        if later is not None:
            return later
        workspace, part = self._workspace, self._live()
        names, given = [name for name, _ in expressions], [one for _, one in expressions]
        if not has_windows(given):
            return self._made(*rowwise.assigned(workspace, part, verb, expressions, options))
        how, kept = replace(options, strategy="auto"), dict.fromkeys((*part.schema.names, *names))
        with with_windows(workspace, part, given, how) as (more, plain):
            pairs = list(zip(names, plain, strict=True))
            made, plan = rowwise.assigned(workspace, more, verb, pairs, options)
            return self._made(chosen(workspace, made, {name: name for name in kept}, how), plan)
