"""The plan of a verb from what is known of a table already: no data is read and no rank asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

from ..config import GcylonConfig
from ..errors import ArgumentError, BudgetExceeded, ColumnMissing
from ..tables.aggregation import OF_ALL_ROWS
from ..tables.schema import Label
from .costs import all_staged, never_fits, room_wanted
from .giving_way import giving_way_notes
from .plan import Plan, check_strategy, make_plan
from .shapes import FAST_CHUNK_BYTES, KEPT_FREE_IN_LIMIT, VERBS, Shapes, after_cutting, stage_slice_bytes

_AS_ROWS = "assuming as many groups as rows, each as wide as one"


def foresee(
    verb: str,
    infos: Sequence[Mapping[str, Any]],
    config: GcylonConfig,
    *,
    strategy: str = "auto",
    on: Sequence[str] = (),
    root: int = 0,
    rows_per_rank: Sequence[int] | None = None,
    beside: Sequence[int] = (),
    in_order: bool = False,
    asked: Sequence[tuple[str, Label | None]] = (),
) -> Plan:
    """Plan a verb from every rank's ``Table.info()``.

    Parameters
    ----------
    verb : str
        shuffle, allgather, gather, broadcast, repartition, sort_values or groupby.
    infos : sequence of mapping
        One a rank, in rank order.
    config : GcylonConfig
        The settings it would run with.
    strategy : str, default "auto"
    on : sequence of str
        Keys of a shuffle, a sort or a group-by.
    root : int
        Of gather and broadcast.
    rows_per_rank : sequence of int, optional
        Of repartition.
    beside : sequence of int, optional
        Bytes in use on each rank that do not give way, beside the table's own: none by default.
    in_order : bool, default False
        Whether the groups of a group-by are sorted then.
    asked : sequence of (str, label or None)
        Functions of a group-by, each with its column; none if they are not known yet.

    Returns
    -------
    Plan
        With ``assumption`` set where keys decide: they are not read.

    Raises
    ------
    GcylonError
        As the verb itself would: a missing column, a root out of range, a budget that is too small.
    """
    if verb == "groupby":
        plan = _grouped(infos, config, strategy, on, asked)
        return _then_sorted(plan, infos, config, strategy, on) if in_order else plan
    if verb not in VERBS:
        raise ArgumentError(f"verb={verb!r} is none.", advice=f"It is one of {', '.join(VERBS)}.")
    check_strategy(strategy)
    _check(infos, on, root)
    more: dict[str, Any] = {"limits": tuple(_limits(infos, config)), "root": root}
    if verb == "repartition":
        more["target_rows"] = tuple(target_rows([i["rows"] for i in infos], rows_per_rank))
    shapes = Shapes.from_infos(verb, infos, **more)
    chunks = [i.get("device_chunk_bytes", [i["tiers"]["device"]]) for i in infos]
    pinned_tier = bool(infos[0].get("pinned_tier", False))
    before = shapes
    if config.may_stage(pinned_tier=pinned_tier):
        shapes = _after_making_room(shapes, chunks, config, strategy, beside or (0,) * shapes.size)
    plan = make_plan(shapes, config, strategy, pinned_tier=pinned_tier)
    return replace(plan, notes=_what_gives_way(before, shapes))


def _grouped(
    infos: Sequence[Mapping[str, Any]],
    config: GcylonConfig,
    strategy: str,
    on: Sequence[str],
    asked: Sequence[tuple[str, Label | None]],
) -> Plan:
    """A group-by shuffles by its keys, unless rows with equal keys are on one rank already."""
    check_strategy(strategy)
    _check(infos, [*on, *(column for _, column in asked if column is not None)], 0)
    limits = _limits(infos, config)
    if not _are_together(infos, on):
        plan = foresee("shuffle", infos, config, strategy=strategy, on=on)
        rows, sizes = _spread_evenly(infos)
        # What is too much to be grouped at once is grouped in parts, which take no more than the shuffle did.
        peaks = tuple(
            peak if work > limit else max(peak, work)
            for peak, work, limit in zip(
                plan.predicted_peaks, _grouping_bytes(infos, rows, sizes, sizes), limits, strict=True
            )
        )
        notes = (*_what_is_sent(infos[0]["columns"], on, asked), *plan.notes)
        return replace(plan, verb="groupby", notes=notes, predicted_peaks=peaks, predicted_peak_bytes=max(peaks))
    rows, sizes = [i["rows"] for i in infos], [i["nbytes"] for i in infos]
    below = [i["nbytes"] - i["tiers"]["device"] for i in infos]
    peaks = tuple(map(min, _grouping_bytes(infos, rows, sizes, below), limits))
    fits = _held_bytes(infos, sizes, config, strategy) == sizes
    return Plan(
        verb="groupby", strategy="direct" if fits else "staged", rounds=0, chunk_rows=0, round_bytes=0,
        result_bytes=max(sizes), predicted_peak_bytes=max(peaks), budget_bytes=min(limits),
        reason="because rows with equal keys are on one rank already",
        assumption="assuming a result no larger than the table", predicted_peaks=peaks,
    )  # fmt: skip


def _what_is_sent(columns: Sequence[Label], on: Sequence[str], asked: Sequence[tuple[str, Label | None]]) -> list[str]:
    """What a group-by of these functions sends, which may be less than the shuffle that its plan counts."""
    whole = sorted({function for function, _ in asked if function in OF_ALL_ROWS})
    if whole:
        need = "needs" if len(whole) == 1 else "need"
        notes = [f"{' and '.join(whole)} {need} all rows of a key on one rank: no partial results are sent"]
    else:
        notes = ["where few keys stand in many rows, each rank sends partial results instead, which are fewer"]
    needed = {*on, *(column for function, column in asked if column is not None and function != "size")}
    if asked and len(needed) < len(columns):
        notes.append(f"the plan counts all {len(columns)} columns; only those needed are sent, which are {len(needed)}")
    return notes


def _are_together(infos: Sequence[Mapping[str, Any]], on: Sequence[str]) -> bool:
    spread = infos[0]["partitioning"]
    return len(infos) == 1 or (spread is not None and spread["size"] == len(infos) and set(spread["keys"]) <= set(on))


def _limits(infos: Sequence[Mapping[str, Any]], config: GcylonConfig) -> list[int]:
    return [config.limit_bytes(i["ceiling_bytes"], i["free_at_start_bytes"]) for i in infos]


def _spread_evenly(infos: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[int]]:
    """Rows and bytes of each rank after a shuffle."""
    rows = target_rows([i["rows"] for i in infos], None)
    total, nbytes = sum(rows), sum(i["nbytes"] for i in infos)
    return rows, [nbytes * count // max(total, 1) for count in rows]


def _grouping_bytes(
    infos: Sequence[Mapping[str, Any]], rows: Sequence[int], sizes: Sequence[int], more: Sequence[int]
) -> list[int]:
    """What is in use on each rank while its rows are grouped at once, each being a group; ``more`` holds them."""
    return [
        info["used_bytes"] + beside + 2 * own + count * info.get("grouping_row_bytes", 0)
        for info, count, own, beside in zip(infos, rows, sizes, more, strict=True)
    ]


def _held_bytes(
    infos: Sequence[Mapping[str, Any]], sizes: Sequence[int], config: GcylonConfig, strategy: str
) -> list[int]:
    """How much each rank holds of a result that it makes by itself; the rest is staged."""
    if strategy == "staged":
        return [0] * len(infos)
    if strategy != "auto" or not config.may_stage(pinned_tier=bool(infos[0].get("pinned_tier", False))):
        return list(sizes)
    return [
        max(0, min(own, limit - limit // KEPT_FREE_IN_LIMIT - info["used_bytes"]))
        for info, own, limit in zip(infos, sizes, _limits(infos, config), strict=True)
    ]


def _then_sorted(
    plan: Plan, infos: Sequence[Mapping[str, Any]], config: GcylonConfig, strategy: str, on: Sequence[str]
) -> Plan:
    """A group-by whose groups are sorted, in an operation of its own: how many there are is not known, so as many as
    there may be."""
    note = f"the groups are then sorted by {', '.join(map(str, on))}"
    try:
        then = foresee("sort_values", _groups(infos, config, strategy, on), config, strategy=strategy, on=on)
    except BudgetExceeded as error:  # there may be far fewer
        note += f"; were they as many as the rows, and each as wide as one: {error.message}"
        return replace(plan, notes=(*plan.notes, note))
    own = {"the table itself is": "of the groups themselves some are", "and is read": "and are read"}
    gives_way = then.notes
    for said, meant in own.items():
        gives_way = tuple(text.replace(said, meant) for text in gives_way)
    return replace(plan, notes=(*plan.notes, note), then=replace(then, assumption=_AS_ROWS, notes=gives_way))


def _groups(
    infos: Sequence[Mapping[str, Any]], config: GcylonConfig, strategy: str, on: Sequence[str]
) -> list[dict[str, Any]]:
    """What every rank would tell of the groups, were each row one."""
    rows, sizes = [i["rows"] for i in infos], [i["nbytes"] for i in infos]
    if not _are_together(infos, on):
        rows, sizes = _spread_evenly(infos)
    groups = []
    of_ranks = zip(infos, rows, sizes, _held_bytes(infos, sizes, config, strategy), _limits(infos, config), strict=True)
    for info, count, own, held, limit in of_ranks:
        large = "fast_chunk_bytes" in info.get("exchange", {}) and own <= count * info["row_bytes"]
        slices = -(-(own - held) // stage_slice_bytes(limit, large=large))
        made = {
            "rows": count,
            "nbytes": own,
            "tiers": {"device": held, "disk": own - held},
            "chunks": int(held > 0) + slices,
            "device_chunk_bytes": [held] if held else [],
            "largest_staged_bytes": -(-(own - held) // max(slices, 1)),
            "used_bytes": info["used_bytes"] + held,
        }
        groups.append({**info, **made})
    return groups


def _check(infos: Sequence[Mapping[str, Any]], on: Sequence[Label], root: int) -> None:
    for key in on:
        if key not in infos[0]["columns"]:
            names = ", ".join(map(repr, infos[0]["columns"]))
            raise ColumnMissing(f"There is no column {key!r}.", advice=f"The columns are {names}.", column=str(key))
    check_root(root, len(infos))


def check_root(root: int, size: int) -> None:
    """Refuse a root that is no rank.

    Raises
    ------
    ArgumentError
        With the range.
    """
    if isinstance(root, bool) or not isinstance(root, int) or not 0 <= root < size:
        raise ArgumentError(f"root={root!r} is no rank.", advice=f"It lies in [0, {size}).")


def target_rows(rows: Sequence[int], wanted: Sequence[int] | None) -> list[int]:
    """How many rows each rank will hold; where the rows do not divide, the first ranks hold one more.

    Raises
    ------
    ArgumentError
        If the wanted numbers do not sum up to the rows there are.
    """
    total, size = sum(rows), len(rows)
    if wanted is None:
        return [total // size + (rank < total % size) for rank in range(size)]
    wanted = listed_rows(wanted)
    assert wanted is not None
    check_rows_per_rank(wanted, size)
    if sum(wanted) != total:
        raise ArgumentError(
            f"rows_per_rank asks for {sum(wanted)} rows, the table holds {total}.",
            advice="Let the numbers sum up to the rows there are; nothing was moved.",
            rows_held=total,
            rows_asked=sum(wanted),
        )
    return list(wanted)


def listed_rows(wanted: Sequence[int] | None) -> list[int] | None:
    """The numbers asked of a repartition as plain ints.

    Raises
    ------
    ArgumentError
        If they are no whole numbers, one for each rank.
    """
    if wanted is None:
        return None
    if not isinstance(wanted, Iterable) or not all(isinstance(n, Integral) for n in wanted):
        raise ArgumentError(
            f"rows_per_rank={wanted!r} is no list of numbers of rows.",
            advice="Give one number of at least 0 a rank, for example [100, 200] on 2 ranks; None cuts evenly.",
        )
    return [int(n) for n in wanted]


def check_rows_per_rank(wanted: Sequence[int] | None, size: int) -> None:
    """Refuse a list of another length than the world size, and negative numbers.

    Raises
    ------
    ArgumentError
        With both lengths.
    """
    if wanted is not None and (len(wanted) != size or min(wanted, default=0) < 0):
        raise ArgumentError(
            f"rows_per_rank={list(wanted)!r} does not fit {size} ranks.", advice="Give one number of at least 0 a rank."
        )


def _what_gives_way(before: Shapes, after: Shapes) -> tuple[str, ...]:
    """What is staged before the first round."""
    own = [now - then for then, now in zip(before.staged_bytes, after.staged_bytes, strict=True)]
    others = [u - now - mine for u, now, mine in zip(before.used, after.used, own, strict=True)]
    return giving_way_notes(max(0, *own), max(0, *others))


def _after_making_room(
    shapes: Shapes, chunks: Sequence[Sequence[int]], config: GcylonConfig, strategy: str, beside: Sequence[int]
) -> Shapes:
    """What will be in use once the opening has staged what it may: ``chunks`` are the input's on the device tier."""
    shapes = after_cutting(shapes)
    if never_fits(shapes, strategy).any():
        return replace(all_staged(replace(shapes, used=(0,) * shapes.size)), in_vain=True)
    wanted = room_wanted(shapes, config, strategy)
    used, staged, largest = list(shapes.used), list(shapes.staged_bytes), list(shapes.largest_staged_bytes)
    count = list(shapes.chunks)
    large = shapes.fast_chunk_bytes > FAST_CHUNK_BYTES and not shapes.variable_row_bytes
    for rank, (own, limit, room) in enumerate(zip(chunks, shapes.limits, wanted, strict=True)):
        # Other tables first; the input's own chunks go only if there is no other way, and one by one.
        used[rank] = max(min(used[rank], sum(own) + beside[rank]), min(used[rank], limit - room.all))
        for nbytes in own if used[rank] > limit - room.here else ():
            if used[rank] <= limit - room.least:
                break
            used[rank] -= nbytes
            staged[rank] += nbytes
            slices = max(1, -(-nbytes // stage_slice_bytes(limit, large=large)))
            largest[rank] = max(largest[rank], -(-nbytes // slices))
            count[rank] += slices - 1
    return replace(
        shapes,
        used=tuple(used),
        staged_bytes=tuple(staged),
        largest_staged_bytes=tuple(largest),
        chunks=tuple(count),
    )
