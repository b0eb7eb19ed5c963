"""Groups in the order of their keys: a group-by, then a sort of its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...backends.protocol.aggregation import Aggregation
from ...backends.protocol.schema import Label
from ...engine.exec.invocation import AUTO, RunOptions
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ..sort.sort import sort_values
from .groupby import groupby


def groupby_in_order(
    workspace: Workspace,
    part: Part,
    by: Sequence[Label],
    aggregations: Sequence[Aggregation],
    *,
    dropna: bool = True,
    deterministic: bool = False,
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Aggregate rows with equal keys, and sort the groups by them over all ranks.

    Missing keys come last. Arguments are those of `groupby`; each of the two steps has its own plan, budget and
    deadline.

    Returns
    -------
    Part, Plan
        The plan is that of the grouping, and in its ``then`` that of the sort.
    """
    grouped, grouping = groupby(
        workspace, part, by, aggregations, dropna=dropna, deterministic=deterministic, options=options
    )
    try:
        made, plan = sort_values(workspace, grouped, by, options=options)
    finally:
        grouped.release()  # an error that is kept would hold it
    return made, replace(grouping, then=plan)
