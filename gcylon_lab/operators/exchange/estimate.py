"""Plans of verbs that only exchange, from what is known of the table already: no data is read."""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.protocol.aggregation import require_keys
from ...backends.protocol.schema import Label, Schema
from ...config import GcylonConfig
from ...engine.exec.invocation import listed
from ...engine.plan.estimate import PlannedVerb, estimate_exchange
from ...engine.plan.part_stats import Parts
from ...engine.plan.plan import Plan

Tables = Sequence[Parts]


def _shuffle(tables: Tables, config: GcylonConfig, strategy: str, *, on: Label | Sequence[Label]) -> Plan:
    return estimate_exchange("shuffle", tables[0], config, strategy=strategy, on=listed(on))


def _refuse_keys(schemas: Sequence[Schema], rows: Sequence[int], *, on: Label | Sequence[Label]) -> None:
    require_keys(schemas[0], listed(on))


def _allgather(tables: Tables, config: GcylonConfig, strategy: str) -> Plan:
    return estimate_exchange("allgather", tables[0], config, strategy=strategy)


def _gather(tables: Tables, config: GcylonConfig, strategy: str, *, root: int = 0) -> Plan:
    return estimate_exchange("gather", tables[0], config, strategy=strategy, root=root)


def _broadcast(tables: Tables, config: GcylonConfig, strategy: str, *, root: int = 0) -> Plan:
    return estimate_exchange("broadcast", tables[0], config, strategy=strategy, root=root)


def _repartition(
    tables: Tables, config: GcylonConfig, strategy: str, *, rows_per_rank: Sequence[int] | None = None
) -> Plan:
    return estimate_exchange("repartition", tables[0], config, strategy=strategy, rows_per_rank=rows_per_rank)


PLANNED = (
    PlannedVerb("shuffle", _shuffle, keys="on", refuse=_refuse_keys),
    PlannedVerb("allgather", _allgather),
    PlannedVerb("gather", _gather),
    PlannedVerb("broadcast", _broadcast),
    PlannedVerb("repartition", _repartition),
)
