"""The plan of a group-by from what is known of the table already: of the columns that its functions need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...backends.protocol.aggregation import FLOATS_PARTIAL_BYTES, OF_ALL_ROWS, Aggregation, plan_aggregations
from ...backends.protocol.schema import Label, Schema, shown_labels
from ...config import GcylonConfig
from ...engine.exec.invocation import listed
from ...engine.plan.estimate import PlannedVerb, as_used, estimate_exchange, require_known
from ...engine.plan.part_stats import Parts, PartStats, some_columns
from ...engine.plan.plan import Plan
from ...errors import BudgetExceeded
from ..sort import costs  # noqa: F401  of the sort of groups
from .estimate import (
    Made,
    Making,
    are_together,
    as_wide,
    estimate_together,
    made_here,
    opened,
    spread_evenly,
)

Asked = Sequence[tuple[str, Label | None]]

_AS_ROWS = "assuming as many groups as rows, each as wide as one"
_AS_GROUPS = "assuming as many groups as rows"
_NUMBER_BYTES = 8
# Of those of which partial results are more or less than a number; and of results.
_PARTIAL_BYTES = FLOATS_PARTIAL_BYTES | {"any": 1, "all": 1}
_RESULT_BYTES = {"any": 1, "all": 1}
_AS_WIDE_AS_IT_IS = ("min", "max", "first", "last", "list")
_ORDERING = ("median", "quantile")


def _groupby(
    tables: Sequence[Parts],
    config: GcylonConfig,
    strategy: str,
    *,
    by: Label | Sequence[Label],
    wanted: Sequence[Aggregation] = (),
    sort: bool = False,
    computed: Mapping[Label, Sequence[Label]] | None = None,
) -> Plan:
    (infos,) = as_used(tables, config)
    if computed:
        require_known(infos, [name for names in computed.values() for name in names])
        infos = [_with_computed(info, computed) for info in infos]
    on, asked = listed(by), list(dict.fromkeys((one.function, one.column) for one in wanted))
    require_known(infos, [*on, *(column for _, column in asked if column is not None)])
    known = bool(asked) and all(info.column_row_bytes for info in infos)
    needed = {*on, *(column for function, column in asked if column is not None and function != "size")}
    there = opened(infos, config)
    used = some_columns(there, needed) if known else there
    making = _making(infos, on, asked) if known else as_wide(infos, on)
    plan, made = estimate_together("groupby", infos, used, config, strategy, on, making)
    if not are_together(infos, on):
        plan = replace(plan, notes=(*_what_is_sent(infos[0].columns, needed, asked), *plan.notes))
    if not sort:
        return plan
    groups = (
        [_of_groups(*both, making, asked) for both in zip(infos, some_columns(infos, on), strict=True)]
        if known
        else infos
    )
    return _then_sorted(plan, groups, made, config, strategy, on, _AS_GROUPS if known else _AS_ROWS)


def _with_computed(info: PartStats, keys: Collection[Label]) -> PartStats:
    """What a rank would tell once keys that are computed are columns in memory: counted as numbers."""
    widths, more = (_NUMBER_BYTES,) * len(keys), info.rows * _NUMBER_BYTES * len(keys)
    return replace(
        info,
        columns=(*info.columns, *keys),
        dtypes=(*info.dtypes, *("float64" for _ in keys)),
        nbytes=info.nbytes + more,
        device_bytes=info.device_bytes + more,
        device_chunk_bytes=(*info.device_chunk_bytes, more),
        used_bytes=info.used_bytes + more,
        row_bytes=info.row_bytes + sum(widths),
        column_row_bytes=info.column_row_bytes and (*info.column_row_bytes, *widths),
        fixed_column_bytes=info.fixed_column_bytes and (*info.fixed_column_bytes, *widths),
    )


def _made_row_bytes(info: PartStats, asked: Asked, numbers: Mapping[str, int]) -> list[tuple[float, float]]:
    """Bytes a row of what each function gives: in fixed columns and in all, where numbers take so many."""
    of_columns = info.column_row_bytes, info.fixed_column_bytes
    means, fixed = (dict(zip(info.columns, widths, strict=True)) for widths in of_columns)
    made = []
    for function, column in asked:
        if function in _AS_WIDE_AS_IT_IS and column is not None:
            made.append((0 if function == "list" else fixed[column], means[column]))
        else:
            made.append((numbers.get(function, _NUMBER_BYTES),) * 2)
    return made


def _making(infos: Parts, on: Sequence[Label], asked: Asked) -> Making:
    info = infos[0]
    keys = sum(some_columns(infos, on)[0].column_row_bytes)
    partial, result = (_made_row_bytes(info, asked, numbers) for numbers in (_PARTIAL_BYTES, _RESULT_BYTES))
    kernels, last = (sum(fixed or _NUMBER_BYTES for fixed, _ in made) for made in (partial, result))
    before, after = (keys + sum(mean for _, mean in made) for made in (partial, result))
    scratch = info.grouping_row_bytes
    orders = any(function in _ORDERING for function, _ in asked)
    return Making(kernels, last, before, after, (info.ordering_row_bytes or scratch) if orders else scratch)


def _of_groups(info: PartStats, keys: PartStats, making: Making, asked: Asked) -> PartStats:
    """What a rank would tell of its groups, were each row one."""
    made = [f"{function} of {column}" for function, column in asked]
    fixed = sum(of_fixed for of_fixed, _ in _made_row_bytes(info, asked, _RESULT_BYTES))
    return replace(
        keys,
        columns=(*keys.columns, *made),
        nbytes=int(keys.rows * making.result),
        row_bytes=int(keys.row_bytes + fixed),
    )


def _what_is_sent(columns: Sequence[Label], needed: set[Label], asked: Asked) -> list[str]:
    """What a group-by of these functions sends, which may be less than the shuffle that its plan counts."""
    whole = sorted({function for function, _ in asked if function in OF_ALL_ROWS})
    if whole:
        need = "needs" if len(whole) == 1 else "need"
        notes = [f"{' and '.join(whole)} {need} all rows of a key on one rank: no partial results are sent"]
    else:
        notes = ["where few keys stand in many rows, each rank sends partial results instead, which are fewer"]
    if asked and len(needed) < len(columns):
        notes.append(f"of {len(columns)} columns only those needed are sent, which are {len(needed)}")
    return notes


def _then_sorted(
    plan: Plan,
    infos: Parts,
    made: Sequence[Made],
    config: GcylonConfig,
    strategy: str,
    on: Sequence[Label],
    assumption: str,
) -> Plan:
    """A group-by whose groups are sorted, in an operation of its own: how many there are is not known, so as many as
    there may be."""
    note = f"the groups are then sorted by {shown_labels(on)}"
    rows, sizes = [i.rows for i in infos], [i.nbytes for i in infos]
    if not are_together(infos, on):
        rows, sizes = spread_evenly(infos)
    groups = made_here(infos, rows, sizes, made, config)
    try:
        then = estimate_exchange("sort_values", groups, config, strategy=strategy, on=on)
    except BudgetExceeded as error:  # there may be far fewer
        wide = ", and each as wide as one" if assumption == _AS_ROWS else ""
        note += f"; were they as many as the rows{wide}: {error.message}"
        return replace(plan, notes=(*plan.notes, note))
    own = {"the table itself is": "of the groups themselves some are", "and is read": "and are read"}
    evicts = then.notes
    for said, meant in own.items():
        evicts = tuple(text.replace(said, meant) for text in evicts)
    return replace(plan, notes=(*plan.notes, note), then=replace(then, assumption=assumption, notes=evicts))


def _refuse(
    schemas: Sequence[Schema],
    rows: Sequence[int],
    *,
    by: Label | Sequence[Label],
    wanted: Sequence[Aggregation] = (),
    **how: Any,
) -> None:
    plan_aggregations(schemas[0], [key for key in listed(by) if key in schemas[0]], wanted)


PLANNED = (PlannedVerb("groupby", _groupby, method="group_agg", keys="by", refuse=_refuse),)
