"""Plans of distinct rows from what is known of the table already: no data is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import ge
from typing import Any

from ...backends.protocol.aggregation import require_keys
from ...backends.protocol.schema import Label, Schema
from ...config import GcylonConfig
from ...engine.exec.invocation import listed, require_columns
from ...engine.plan.estimate import PlannedVerb, as_used, estimate_exchange, limits_of, require_known
from ...engine.plan.part_stats import Parts, PartStats, some_columns
from ...engine.plan.plan import Plan
from ...engine.plan.table_stats import KEPT_FREE_IN_LIMIT
from ..group.estimate import (
    LOCAL,
    Made,
    Making,
    are_together,
    estimate_together,
    made_here,
    opened,
)
from .distinct import check_keep
from .late_materialization import (
    HELD_IN_LIMIT,
    NOTE,
    PIECE_IN_LIMIT,
    PLACE_BYTES,
    POSITION_BYTES,
    worth_finding_first,
)

_COUNT_BYTES = 8
_VARIABLE_BYTES = 8  # of what is made of a variable column, as grouping counts

PARTIAL = "where few different rows stand in many, each rank sends each of its own once instead, which are fewer"


def _drop_duplicates(
    tables: Sequence[Parts],
    config: GcylonConfig,
    strategy: str,
    *,
    subset: Label | Sequence[Label] | None = None,
    keep: str | bool = "first",
) -> Plan:
    check_keep(keep)
    infos, there, on = _looked_at(tables, config, subset)
    if isinstance(keep, str) and _materializes_late(infos, config, strategy, on):
        return _late("drop_duplicates", there, config, strategy, on)
    return _grouped("drop_duplicates", infos, there, config, strategy, on, counts=keep is False)


def _unique(
    tables: Sequence[Parts],
    config: GcylonConfig,
    strategy: str,
    *,
    columns: Label | Sequence[Label] | None = None,
) -> Plan:
    infos, there, on = _looked_at(tables, config, columns)
    return _grouped("unique", infos, some_columns(there, on), config, strategy, on)


def _looked_at(
    tables: Sequence[Parts], config: GcylonConfig, keys: Label | Sequence[Label] | None
) -> tuple[Parts, Parts, list[Label]]:
    """A table as it is told and as the verb opens it, and the columns that must be equal: all where none is named."""
    (infos,) = as_used(tables, config)
    on = list(infos[0].columns) if keys is None else listed(keys)
    require_known(infos, on)
    return infos, opened(infos, config), on


def _grouped(
    verb: str,
    infos: Parts,
    used: Parts,
    config: GcylonConfig,
    strategy: str,
    on: Sequence[Label],
    *,
    counts: bool = False,
) -> Plan:
    plan, _ = estimate_together(verb, infos, used, config, strategy, on, _making(used[0], on, counts=counts))
    return plan if are_together(infos, on) else replace(plan, notes=(PARTIAL, *plan.notes))


def _making(info: PartStats, on: Sequence[Label], *, counts: bool) -> Making:
    """Whole rows are kept, and where it matters how often each key stands there, counted."""
    wide, more = info.nbytes / max(info.rows, 1), _COUNT_BYTES * counts
    made = wide
    if info.column_row_bytes:
        fixed = dict(zip(info.columns, info.fixed_column_bytes, strict=True))
        wide = sum(info.column_row_bytes)
        made = sum(size or _VARIABLE_BYTES for name, size in fixed.items() if name not in on)
    return Making(made + more, made + more, wide + more, wide + more, info.grouping_row_bytes)


def _materializes_late(infos: Parts, config: GcylonConfig, strategy: str, on: Sequence[Label]) -> bool:
    known = all(info.column_row_bytes for info in infos)
    if infos[0].on_gpu or not known or not infos[0].may_stage(config):
        return False
    answers = [
        worth_finding_first(strategy, keys.rows, info.nbytes, sum(keys.column_row_bytes), limit)
        for info, keys, limit in zip(infos, some_columns(infos, on), limits_of(infos, config), strict=True)
    ]
    return any(answer[0] for answer in answers) and all(answer[1] and answer[2] for answer in answers)


def _late(verb: str, infos: Parts, config: GcylonConfig, strategy: str, on: Sequence[Label]) -> Plan:
    """Keys and positions are grouped, then the rows that stay are copied and sent: all, as far as it is known."""
    limits, rows = limits_of(infos, config), [i.rows for i in infos]
    held = [Made(max(0, limit // HELD_IN_LIMIT - i.used_bytes), 1) for i, limit in zip(infos, limits, strict=True)]
    keys = [_with_position(info) for info in some_columns(infos, on)]
    sizes = [i.nbytes for i in keys]
    narrow = made_here(keys, rows, sizes, held, config)
    making = _making(keys[0], on, counts=False)
    found, _ = estimate_together(verb, narrow, narrow, config, strategy, on, making)
    peaks = [
        max(peak, _piece_peak(info, limit, 2 * making.partial + making.scratch), _piece_peak(info, limit, None))
        for peak, info, limit in zip(found.predicted_peaks, infos, limits, strict=True)
    ]
    sizes = [i.nbytes for i in infos]
    if are_together(infos, on):
        most = [limit - limit // KEPT_FREE_IN_LIMIT - i.used_bytes for i, limit in zip(infos, limits, strict=True)]
        if strategy == "auto":
            strategy = "direct" if all(map(ge, most, sizes)) else "staged"
        plan = replace(found, strategy=strategy, result_bytes=max(sizes), reason=LOCAL)
    else:
        plan = estimate_exchange(
            "shuffle",
            made_here(infos, rows, sizes, held, config),
            config,
            strategy=strategy,
            on=on,
        )
    peaks = list(map(max, peaks, plan.predicted_peaks))
    return replace(plan, verb=verb, notes=(NOTE, *plan.notes), predicted_peaks=tuple(peaks))


def _with_position(info: PartStats) -> PartStats:
    widths = (*info.column_row_bytes, POSITION_BYTES)
    return replace(
        info, columns=(*info.columns, "position"), nbytes=int(info.rows * sum(widths)),
        row_bytes=info.row_bytes + POSITION_BYTES, column_row_bytes=widths,
        fixed_column_bytes=(*info.fixed_column_bytes, POSITION_BYTES),
    )  # fmt: skip


def _piece_peak(info: PartStats, limit: int, work_row_bytes: float | None) -> int:
    """What is in use while rows are gone through in pieces; by default they are copied."""
    row = info.nbytes / max(info.rows, 1)
    work = row + PLACE_BYTES if work_row_bytes is None else work_row_bytes
    piece = min(info.rows, limit / PIECE_IN_LIMIT / (row + work))
    read = max(info.largest_staged_bytes, row * piece if info.largest_staged_bytes else 0)
    return int(min(limit, info.used_bytes + read + piece * work))


def _refuse(
    schemas: Sequence[Schema],
    rows: Sequence[int],
    *,
    subset: Label | Sequence[Label] | None = None,
    columns: Label | Sequence[Label] | None = None,
    **how: Any,
) -> None:
    require_columns(schemas[0])
    keys = columns if subset is None else subset
    require_keys(schemas[0], schemas[0].names if keys is None else listed(keys))


PLANNED = (
    PlannedVerb("drop_duplicates", _drop_duplicates, keys="subset", all_by_default=True, refuse=_refuse),
    PlannedVerb("unique", _unique, keys="columns", all_by_default=True, refuse=_refuse),
)
