"""The plan of a sort from what is known of the table already: no data is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backends.protocol.schema import Label, Schema
from ...backends.protocol.sorting import SortKey, require_sortable
from ...config import GcylonConfig
from ...engine.exec.invocation import listed
from ...engine.plan.estimate import PlannedVerb, estimate_exchange
from ...engine.plan.part_stats import Parts
from ...engine.plan.plan import Plan
from .sort import check_directions, each_direction


def _sort_values(
    tables: Sequence[Parts],
    config: GcylonConfig,
    strategy: str,
    *,
    by: Label | Sequence[Label],
    ascending: bool | Sequence[bool] = True,
    na_position: str = "last",
) -> Plan:
    names = listed(by)
    check_directions(names, each_direction(names, ascending), na_position)
    return estimate_exchange("sort_values", tables[0], config, strategy=strategy, on=names)


def _refuse(schemas: Sequence[Schema], rows: Sequence[int], *, by: Label | Sequence[Label], **how: Any) -> None:
    require_sortable(schemas[0], [SortKey(name, True, False) for name in listed(by)])


PLANNED = (PlannedVerb("sort_values", _sort_values, keys="by", refuse=_refuse),)
