"""Rows to columns and back, made of verbs: pivot_table, crosstab, melt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backends.protocol.aggregation import by_name
from ...backends.protocol.expressions import Expression, col, lit
from ...backends.protocol.scalars import shown
from ...backends.protocol.schema import Label
from ...engine.exec.align_schemas import new_label
from ...engine.exec.invocation import check_labels, listed
from ...errors import ArgumentError
from ..verbs.brackets import plain_label
from .group_keys import key_labels, listed_keys, own_name, with_origins

MOST_COLUMNS = 1000
_ZEROS: dict[str, tuple[Any, str]] = {"int": (0, "sum"), "bool": (False, "any")}


def pivot_table(
    table: Any,
    values: Label | Sequence[Label] | None,
    index: Any,
    columns: Any,
    aggfunc: str,
    fill_value: Any,
) -> Any:
    """A table of one row for each value of the index, and one column for each value of the columns; see
    `gcylon_lab.api.frames.names.Frames.pivot_table`."""
    aggfunc = by_name(aggfunc)
    if not isinstance(aggfunc, str):
        raise ArgumentError(f"pivot_table got aggfunc={shown(aggfunc)}.", advice="Give one function's name, as 'mean'.")
    if index is None:
        raise ArgumentError("pivot_table has no index.", advice="Give the columns whose values are to be rows.")
    table, rows = _with_keys(table, index)
    table, across = (table, []) if columns is None else _with_keys(table, columns)
    names = listed(plain_label(values)) if values is not None else _numbers(table, [*rows, *across])
    check_labels(names, table.columns)
    groups = table.groupby([*rows, *across], sort=not across).agg(dict.fromkeys(names, aggfunc))
    return groups if not across else widened(groups, rows, across, names, fill_value)


def widened(groups: Any, rows: list[Label], across: list[Label], names: list[Label], fill_value: Any) -> Any:
    """Groups of rows and columns, one row each, with a column for each value of the columns; sorted by the rows."""
    found = groups.unique(across).sort_values(across).to_pandas(MOST_COLUMNS + 1)
    if len(found) > MOST_COLUMNS:
        raise ArgumentError(
            f"{across!r} has more than {MOST_COLUMNS} values, each of which would be a column.",
            advice="Choose fewer rows before, group them, as by gl.cut or dt.floor, or take groupby(...).agg(...).",
        )
    made: dict[Label, Expression] = {}
    functions: dict[Label, str] = {}
    dtypes: dict[Label, str] = {}
    is_whole: bool | None = None
    for name in names:
        held = groups.schema[name]
        counts = held.fixed and held.kind == "int"
        if is_whole is None and held.fixed and held.kind in _ZEROS:  # as pandas: one missing pair makes all floats
            is_whole = int(groups.count_rows()) == int(groups.unique(rows).count_rows()) * len(found)
        # Of each row and column there is one value at most, which zeros beside it leave exactly as it is.
        exact = held.fixed and held.kind in _ZEROS and (is_whole or (counts and fill_value == 0))
        other, function = _ZEROS[held.kind] if exact else (None, "first")
        for given in found.itertuples(index=False):
            condition = col(across[0]) == given[0]
            for key, value in zip(across[1:], given[1:], strict=True):
                condition = condition & (col(key) == value)
            label = _label(given) if len(names) == 1 else f"{name}_{_label(given)}"
            label = new_label([*rows, *made], str(label)) if label in rows else label
            made[label] = col(name).where(condition, other)
            functions[label] = function
            if exact or (counts and type(fill_value) is int):
                dtypes[label] = str(held.dtype)
    if not made:
        return groups.select(rows)  # without rows: each would have given a column
    wide = groups.select([*rows, *across, *names]).assign(made).select([*rows, *made])
    wide = wide.groupby(rows, sort=True).agg(functions)
    if fill_value is not None:
        wide = wide.fillna(dict.fromkeys(made, fill_value))
    return wide.astype(dtypes) if dtypes else wide


def crosstab(table: Any, index: Any, columns: Any) -> Any:
    """How often each pair of values is there: a row for each value of one column, and a column for each of another."""
    table, rows = _with_keys(table, index)
    table, across = _with_keys(table, columns)
    counts = table.groupby([*rows, *across]).size()
    size = counts.columns[-1]
    return widened(counts, rows, across, [size], 0)


def melt(table: Any, id_vars: Any, value_vars: Any, var_name: str, value_name: str) -> Any:
    """A row for each value of some columns; see `gcylon_lab.api.frames.names.Frames.melt`."""
    kept = [] if id_vars is None else listed(plain_label(id_vars))
    others = [name for name in table.columns if name not in kept]
    names = others if value_vars is None else listed(plain_label(value_vars))
    check_labels([*kept, *names], table.columns)
    if not names:
        raise ArgumentError("melt has no columns whose values are to be rows.", advice="Give value_vars.")
    taken = [name for name in (var_name, value_name) if name in kept]
    if taken or var_name == value_name:
        raise ArgumentError(
            f"melt would make two columns called {(taken or [var_name])[0]!r}.", advice="Give var_name and value_name."
        )
    pieces = []
    for name in names:
        piece = table.select([*kept, name]).rename({name: value_name}).assign({var_name: lit(str(name))})
        pieces.append(piece.select([*kept, var_name, value_name]))
    return pieces[0].concat(pieces[1:]) if len(pieces) > 1 else pieces[0]


def _with_keys(table: Any, given: Any) -> tuple[Any, list[Label]]:
    """A table that has keys as columns, and what they are called there."""
    keys = with_origins(table, listed_keys("keys", given))
    labels = key_labels(keys, table.columns)
    made = {label: one for label, one in zip(labels, keys, strict=True) if isinstance(one, Expression)}
    check_labels([one for one in keys if not isinstance(one, Expression)], table.columns)
    if not made:
        return table, labels
    renamed = {label: name for label, one in made.items() if (name := own_name(one)) not in table.columns}
    table = table.assign(made)
    return table.rename(renamed) if renamed else table, [renamed.get(label, label) for label in labels]


def _numbers(table: Any, keys: Sequence[Label]) -> list[Label]:
    kinds = ("int", "float", "decimal", "bool")
    return [name for name in table.columns if name not in keys and table.schema[name].kind in kinds]


def _label(values: Sequence[Any]) -> Label:
    """What the column of a value is called."""
    if len(values) == 1:
        one = values[0].item() if hasattr(values[0], "item") else values[0]
        return one if isinstance(one, int) and not isinstance(one, bool) else str(one)
    return "_".join(map(str, values))
