"""The verbs that have a plan before they run, of all families; and their plans: no data is read and no rank asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backends.protocol.scalars import check_choice
from ..backends.protocol.schema import Schema
from ..config import GcylonConfig
from ..engine.plan.estimate import PlannedVerb
from ..engine.plan.part_stats import Infos, Parts, parts_of
from ..engine.plan.plan import Plan, check_strategy
from .distinct import estimate as distinct
from .exchange import estimate as exchange
from .group import groupby_estimate
from .join import estimate as join
from .sets import estimate as sets
from .sort import estimate as sort

_FAMILIES = (exchange, join, groupby_estimate, sort, distinct, sets)

PLANNED: dict[str, PlannedVerb] = {one.verb: one for family in _FAMILIES for one in family.PLANNED}
"""By their names."""

OF_ONE_TABLE = tuple(name for name, one in PLANNED.items() if not one.tables)


def estimate_verb(
    verb: str,
    tables: Sequence[Infos],
    config: GcylonConfig,
    *,
    strategy: str = "auto",
    schemas: Sequence[Schema] = (),
    **arguments: Any,
) -> Plan:
    """Plan a verb from what every rank tells of its tables.

    Parameters
    ----------
    verb : str
        One of `PLANNED`.
    tables : sequence of sequence of mapping
        For each table, in the order in which the verb takes them, every rank's ``Table.info()``.
    config : GcylonConfig
        The settings it would run with.
    strategy : str, default "auto"
    schemas : sequence of Schema, optional
        Of each table, where they are known: dtypes that the verb cannot take are refused.
    **arguments
        The verb's own, but for tables: those that its `PlannedVerb` takes.

    Returns
    -------
    Plan
        With ``assumption`` set where keys decide: they are not read.

    Raises
    ------
    GcylonError
        As the verb itself would: a missing column, a root out of range, a budget that is too small.
    """
    return estimate_parts(verb, list(map(parts_of, tables)), config, strategy=strategy, schemas=schemas, **arguments)


def estimate_parts(
    verb: str,
    tables: Sequence[Parts],
    config: GcylonConfig,
    *,
    strategy: str = "auto",
    schemas: Sequence[Schema] = (),
    **arguments: Any,
) -> Plan:
    """As `estimate_verb`, from `PartStats` of each table."""
    check_choice("verb", verb, tuple(PLANNED))
    check_strategy(strategy)
    one = PLANNED[verb]
    plan = one.estimate(tables, config, strategy, **arguments)
    if schemas and one.refuse is not None:
        one.refuse(schemas, [sum(part.rows for part in parts) for parts in tables], **arguments)
    return plan
