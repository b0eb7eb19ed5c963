"""The plan of a verb from what is known of a table already: no data is read and no rank asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..backends.protocol.schema import Label
from ..config import GcylonConfig
from ..engine.plan.estimate import as_used, estimate_exchange
from ..engine.plan.plan import Plan
from ..engine.plan.table_stats import VERBS
from .distinct.estimate import estimate_distinct
from .group.groupby_estimate import estimate_groupby
from .sort import costs  # noqa: F401  of a sort

DISTINCT = ("drop_duplicates", "unique")
SIZED = (*VERBS, "groupby", *DISTINCT)


def estimate_verb(
    verb: str,
    infos: Sequence[Mapping[str, Any]],
    config: GcylonConfig,
    *,
    strategy: str = "auto",
    on: Sequence[Label] | None = (),
    root: int = 0,
    rows_per_rank: Sequence[int] | None = None,
    beside: Sequence[int] = (),
    in_order: bool = False,
    asked: Sequence[tuple[str, Label | None]] = (),
    keep: str | bool = "first",
) -> Plan:
    """Plan a verb from every rank's ``Table.info()``.

    Parameters
    ----------
    verb : str
        shuffle, allgather, gather, broadcast, repartition, sort_values, groupby, drop_duplicates or unique.
    infos : sequence of mapping
        One a rank, in rank order.
    config : GcylonConfig
        The settings it would run with.
    strategy : str, default "auto"
    on : sequence of labels, or None
        Keys of a shuffle, a sort or a group-by; columns whose values are distinct then, all of them where it is None.
    root : int
        Of gather and broadcast.
    rows_per_rank : sequence of int, optional
        Of repartition.
    beside : sequence of int, optional
        Bytes in use on each rank that are not evicted, beside the table's own: none by default.
    in_order : bool, default False
        Whether the groups of a group-by are sorted then.
    asked : sequence of (str, label or None)
        Functions of a group-by, each with its column; none if they are not known yet.
    keep : {"first", "last", False}
        Of drop_duplicates.

    Returns
    -------
    Plan
        With ``assumption`` set where keys decide: they are not read.

    Raises
    ------
    GcylonError
        As the verb itself would: a missing column, a root out of range, a budget that is too small.
    """
    (infos,) = as_used([infos], config)
    if verb == "groupby":
        return estimate_groupby(infos, config, strategy, on or (), in_order=in_order, asked=asked)
    if verb in DISTINCT:
        return estimate_distinct(verb, infos, config, strategy, on, keep)
    return estimate_exchange(
        verb, infos, config, strategy=strategy, on=on or (), root=root, rows_per_rank=rows_per_rank, beside=beside
    )
