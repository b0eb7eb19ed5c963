"""Groups in the order of their keys: a group-by, then a sort of its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..config import GcylonConfig
from ..tables.aggregation import Aggregation
from ..tables.schema import Label
from .groupby import groupby
from .part import Part
from .plan import Plan
from .sort import sort_values
from .workspace import Workspace


def groupby_in_order(
    workspace: Workspace,
    part: Part,
    by: Sequence[Label],
    aggregations: Sequence[Aggregation],
    *,
    dropna: bool = True,
    deterministic: bool = False,
    strategy: str = "auto",
    config: GcylonConfig | None = None,
    timeout_s: float | None = None,
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
        workspace, part, by, aggregations, dropna=dropna, deterministic=deterministic, strategy=strategy,
        config=config, timeout_s=timeout_s,
    )  # fmt: skip
    try:
        made, plan = sort_values(workspace, grouped, by, strategy=strategy, config=config, timeout_s=timeout_s)
    finally:
        grouped.release()  # an error that is kept would hold it
    return made, replace(grouping, then=plan)
