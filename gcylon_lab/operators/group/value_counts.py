"""How often values stand in a table: a group-by, and where that is asked for its parts of the whole, and a sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...backends.protocol.aggregation import Aggregation
from ...backends.protocol.expressions import col
from ...backends.protocol.schema import Label
from ...engine.exec.align_schemas import new_label
from ...engine.exec.invocation import RunOptions
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError
from ..rowwise.rowwise import assigned, relabelled
from ..sort.sort import sort_values
from .groupby import groupby
from .reduce import reduce_columns


def value_counts(
    workspace: Workspace,
    part: Part,
    keys: Sequence[Label],
    *,
    normalize: bool,
    sort: bool,
    ascending: bool,
    dropna: bool,
    options: RunOptions,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Count how often each key stands in a table.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    keys : sequence of labels
    normalize, sort, ascending, dropna : bool
        See `gcylon_lab.api.verbs.distinct.DistinctVerbs.value_counts`.
    options : RunOptions
        Of every step.

    Returns
    -------
    Part, Plan
    """
    flags = {"normalize": normalize, "sort": sort, "ascending": ascending, "dropna": dropna}
    name = "proportion" if normalize else "count"
    wanted = Aggregation(new_label(keys, "count") if normalize else name, "size")
    counted, plan = groupby(
        workspace, part, keys, [wanted], dropna=dropna, options=options, check=lambda: _check(flags, keys, name)
    )
    grouped = plan
    try:
        if normalize:
            counted, plan = _replaced(counted, _shares(workspace, counted, keys, wanted.name, name, options))
        if sort:
            counted, plan = _replaced(
                counted, sort_values(workspace, counted, name, ascending=ascending, options=options)
            )
    except BaseException:
        counted.release()  # an error that is kept would hold it
        raise
    if plan is not grouped:  # most of the work was done before what the plan is of
        plan = replace(plan, notes=(*(f"counting: {note}" for note in grouped.notes), *plan.notes))
    return counted, plan


def _check(flags: dict[str, Any], keys: Sequence[Label], name: str) -> None:
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise ArgumentError(f"{flag}={value!r} is invalid.", advice="Expected True or False.")
    if name in keys:
        raise ArgumentError(
            f"A column is called {name!r}, as what is counted.", advice="Rename it before, or count other columns."
        )


def _shares(
    workspace: Workspace, counted: Part, keys: Sequence[Label], count: Label, name: str, options: RunOptions
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. The parts of the whole instead of numbers of rows."""
    sums = reduce_columns(workspace, counted, "sum", [count], None, [("sum", 0.0)], options)
    share = (name, col(count) / max(int(sums["sum", 0.0][count]), 1))
    both, plan = assigned(workspace, counted, "assign", [share], options)
    names = {label: label for label in (*keys, name)}
    try:
        return relabelled(workspace, both, "select", {"columns": list(names)}, lambda schema: names, options), plan
    except BaseException:
        both.release()
        raise


def _replaced(before: Part, made: tuple[Part, Plan]) -> tuple[Part, Plan]:
    before.release()
    return made
