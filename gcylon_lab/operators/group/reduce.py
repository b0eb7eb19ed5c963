"""Reductions: one value of a whole column, on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.arrow.interop import to_frame as pandas_frame
from ...backends.host.sorting import value_at
from ...backends.host.take import as_column
from ...backends.protocol.aggregation import (
    Aggregation,
    plan_aggregations,
    result_column,
    whole_rows,
)
from ...backends.protocol.data import Columns, empty_columns, select_columns
from ...backends.protocol.schema import Column, Label, Schema
from ...engine.exchange.exchange import Step, exchange_table
from ...engine.exchange.routes import RangeRoute
from ...engine.exec.agreement import AgreementKind
from ...engine.exec.invocation import AUTO, Request, RunOptions, check_labels
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.part import Part
from ...engine.store.views import view_of
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError, UnsupportedDtype
from .groupby import group_rows, shared_checks
from .hash_aggregate import HashAggregate
from .order_statistics import quantile_positions, select_words

_WITHOUT_NUMERIC_ONLY = ("any", "all", "nunique")


def reduce_columns(
    workspace: Workspace,
    part: Part,
    verb: str,
    columns: Sequence[Label] | None,
    kinds: Sequence[str] | None,
    functions: Sequence[tuple[str, float]],
    options: RunOptions = AUTO,
) -> dict[tuple[str, float], dict[Label, Any]]:
    """Collective: all ranks call it. Values of functions of columns, the same on every rank.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    verb : str
    columns : sequence of labels, optional
        All by default.
    kinds : sequence of str, optional
        The kinds of columns that are looked at; the others are left out.
    functions : sequence of (str, float)
        Functions of `gcylon_lab.backends.protocol.aggregation.FUNCTIONS`, each with its argument.
    options : RunOptions
        Without a strategy.

    Returns
    -------
    dict
        By function, then by column, as pandas has the value.

    Raises
    ------
    ColumnMissing, UnsupportedDtype
        If a column is none, or has not the function.
    """
    found: dict[tuple[str, float], dict[Label, Any]] = {}

    def check() -> None:
        check_labels(columns or (), part.schema.names)
        if not functions:
            raise ArgumentError("There is no quantile in q.", advice="Give for example [0.1, 0.9].")
        for function, argument in functions:
            if function == "quantile" and not isinstance(argument, float):
                raise ArgumentError(f"Expected a quantile in [0, 1] for q, got {argument!r}.")
            if function == "quantile" and not 0 <= argument <= 1:
                raise ArgumentError(f"q={argument!r} is out of range [0, 1].")

    def body(operation: Operation) -> Part:
        schema = operation.schema
        names = [
            name for name in (schema.names if columns is None else columns)
            if kinds is None or schema[name].kind in kinds
        ]  # fmt: skip
        with shared_checks():
            _check_functions(schema, names, functions, all_columns=columns is None and kinds is None)
        found.update(reduced(operation, part, names, functions))
        return part

    arguments = {"columns": columns, "kinds": kinds, "functions": list(functions)}
    run_verb(workspace, Request(verb, arguments, part, options, check), body)
    return found


def count_rows(workspace: Workspace, part: Part, options: RunOptions = AUTO) -> int:
    """Collective: all ranks call it. How many rows all ranks hold together."""
    counts: list[int] = []

    def body(operation: Operation) -> Part:
        counts.append(sum(operation.rows))
        return part

    run_verb(workspace, Request("count_rows", {}, part, options), body, quiet=True)
    return counts[0]


def _check_functions(
    schema: Schema, names: Sequence[Label], functions: Sequence[tuple[str, float]], *, all_columns: bool
) -> None:
    for name in names:
        for function, _ in functions:
            try:
                result_column(schema[name], _named(function, schema[name]), name)
            except UnsupportedDtype as error:
                if all_columns and function not in _WITHOUT_NUMERIC_ONLY:
                    error.advice += f" {function}(numeric_only=True) takes the columns of numbers."
                raise


def reduced(
    operation: Operation, part: Part, names: Sequence[Label], functions: Sequence[tuple[str, float]]
) -> dict[tuple[str, float], dict[Label, Any]]:
    """Collective: all ranks call it. Values of functions of columns as `reduce_columns` gives them, inside an
    operation; datetimes, which have no std, are left out of it."""
    schema = operation.schema
    having = {one: [name for name in names if one[0] != "std" or schema[name].kind != "datetime"] for one in functions}
    if not sum(operation.rows):
        return {one: _of_nothing(schema, having[one], one) for one in functions}
    made: dict[tuple[str, float], dict[Label, Any]] = {}
    simple = [one for one in functions if one[0] not in ("median", "quantile", "nunique")]
    if simple:
        wanted = [
            Aggregation(f"{i} {name}", _named(function, schema[name]), name, argument)
            for i, (function, argument) in enumerate(simple)
            for name in having[function, argument]
        ]
        row = _one_row(operation, part, wanted)
        for i, one in enumerate(simple):
            made[one] = {name: row[f"{i} {name}"] for name in having[one]}
            if one[0] == "std":
                made[one] |= {n: _timedelta(schema[n], made[one][n]) for n in having[one] if _in_ticks(schema[n])}
    work = LocalExecutor(operation, "Looking for quantiles")
    if not simple:
        work.make_room(0.0, 0)
    quantiles = {one: one[1] if one[0] == "quantile" else 0.5 for one in functions if one[0] in ("quantile", "median")}
    made |= {one: {} for one in quantiles}
    founds = select_words(work, part, names, list(quantiles.values())) if quantiles else []
    for name, found in zip(names, founds, strict=bool(quantiles)):
        for one, q in quantiles.items():
            column = operation.schema[name]
            low, high, further = quantile_positions(found.count, q) if found.count else (0, 0, 0.0)
            words = found.words.get(low), found.words.get(high)
            made[one][name] = value_at(column, result_column(column, one[0], name), *words, further)
    for one in functions:
        if one[0] == "nunique":
            made[one] = {name: _distinct(operation, part, name) for name in names}
    return made


def as_float(value: Any) -> float:
    """A number as `reduced` gives it as a float; NaN where there is none."""
    import pandas as pd

    return float("nan") if pd.isna(value) else float(value)


def _in_ticks(column: Column) -> bool:
    """Whether a column's std is computed in ticks."""
    return column.kind == "timedelta"


def _named(function: str, column: Column) -> str:
    """What a function is called where values are computed of a column."""
    return "std_ticks" if function == "std" and _in_ticks(column) else function


def _timedelta(column: Column, ticks: float) -> Any:
    """A number of ticks as pandas has it in a column of timedeltas, cut to whole ones as pandas does."""
    valid = ticks == ticks
    array = as_column(column, np.array([int(ticks) if valid else 0]), np.array([valid]))
    return pandas_frame(Columns(Schema([column]), 1, (array,))).iloc[0, 0]


def _of_nothing(schema: Schema, names: Sequence[Label], one: tuple[str, float]) -> dict[Label, Any]:
    """What pandas says of columns without rows."""
    frame = pandas_frame(empty_columns(schema.select(names)))
    function, argument = one
    if function in ("any", "all"):  # which pandas has not of all dtypes
        return dict.fromkeys(names, function == "all")
    options: dict[str, dict[str, Any]] = {
        "var": {"ddof": int(argument)},
        "std": {"ddof": int(argument)},
        "quantile": {"q": argument},
    }
    return {name: getattr(frame[name], function)(**options.get(function, {})) for name in names}


def _one_row(operation: Operation, part: Part, wanted: Sequence[Aggregation]) -> dict[Label, Any]:
    """Collective: all ranks call it. Aggregate all rows: partial results of all ranks are brought together in rank
    order by each of them. The values of the row, as pandas has them."""
    work = LocalExecutor(operation, "Reducing columns")
    steps = plan_aggregations(operation.schema, [], wanted)
    grouping = HashAggregate(work, steps, operation.schema, dropna=False)
    work.make_room(0.0, 0)
    rows = view_of(operation.workspace, part, steps.needed) if steps.needed else part
    partial, _ = grouping.fold(rows, 1.0, using_up=False)
    step = Step(operation, partial, "allgather")
    stats = step.stats()
    to_all = RangeRoute.whole(step.rows, operation.rank, stats.variable_row_bytes)
    everyone = exchange_table(step, partial, to_all, stats)
    work.forget(partial)
    merge = steps.merge if steps.merge is not None else steps.partial
    result = work.new_part(grouping.result_schema)
    grouping.whole(everyone, merge, result, using_up=True)
    with result.chunks[0].load(operation.workspace) as row:
        return _values(operation.workspace.backend.to_host(row))


def _values(row: Columns) -> dict[Label, Any]:
    """The values of one row. Of many columns pandas takes longest to make each of them: numbers are as they are."""
    plain = [c.name for c in row.schema if c.dtype is not None and c.kind in ("bool", "int", "float")]
    others = set(row.schema.names).difference(plain)
    frame = pandas_frame(select_columns(row, [name for name in row.schema.names if name in others]))
    found = {label: column.array[0] for label, column in frame.items()} if others else {}
    return {name: found[name] if name in others else row.array(name)[0] for name in row.schema.names}


def _distinct(operation: Operation, part: Part, name: Label) -> int:
    """Collective: all ranks call it. How many different values a column has; a missing one is none."""
    steps = whole_rows(operation.schema.select([name]), [name], "first")
    rows = group_rows(operation, part, steps, dropna=True).rows
    answers = operation.agree(AgreementKind.COUNT, (rows,))
    return int(answers[:, 0].sum())
