"""The plan of an exchange from what is known of a table already: no data is read and no rank asked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

from ...backends.protocol.scalars import shown
from ...backends.protocol.schema import Label, instead_of
from ...config import GcylonConfig
from ...errors import ArgumentError, ColumnMissing
from .costs import all_staged, never_fits, room_wanted
from .part_stats import Parts, PartStats, table_stats
from .plan import Plan, check_strategy, eviction_notes, make_plan
from .table_stats import VERBS, TableStats, after_cutting, stage_slice_bytes


def estimate_exchange(
    verb: str,
    parts: Parts,
    config: GcylonConfig,
    *,
    strategy: str = "auto",
    on: Sequence[Label] = (),
    root: int = 0,
    rows_per_rank: Sequence[int] | None = None,
    beside: Sequence[int] = (),
) -> Plan:
    """Plan an exchange, one of `VERBS`, from what is known of every rank's part.

    Parameters
    ----------
    verb : str
    parts : sequence of PartStats
    config, strategy, on, root, rows_per_rank
        As the verb's.
    beside : sequence of int, optional
        Bytes in use on each rank that are not evicted, beside the table's own: none by default.

    Returns
    -------
    Plan
        With ``assumption`` set where keys decide: they are not read.

    Raises
    ------
    GcylonError
        As the verb itself would: a missing column, a root out of range, a budget that is too small.
    """
    (parts,) = as_used([parts], config)
    if verb not in VERBS:
        raise ArgumentError(f"verb={verb!r} is invalid.", advice=f"Expected one of {', '.join(VERBS)}.")
    check_strategy(strategy)
    require_known(parts, on)
    check_root(root, len(parts))
    more: dict[str, Any] = {"root": root}
    if verb == "repartition":
        more["target_rows"] = tuple(target_rows([part.rows for part in parts], rows_per_rank))
    before, stats = stats_ahead(verb, parts, config, strategy, beside, **more)
    plan = make_plan(stats, config, strategy, pinned_tier=parts[0].pinned_tier)
    return replace(plan, notes=what_is_evicted(before, stats))


def stats_ahead(
    verb: str,
    parts: Parts,
    config: GcylonConfig,
    strategy: str,
    beside: Sequence[int] = (),
    **more: Any,
) -> tuple[TableStats, TableStats]:
    """The sizes that a plan sees: before anything has given way, and once it has."""
    stats = table_stats(verb, parts, limits_of(parts, config), **more)
    if not parts[0].may_stage(config):
        return stats, stats
    chunks = [part.device_chunk_bytes for part in parts]
    return stats, _after_making_room(stats, chunks, config, strategy, beside or (0,) * stats.size)


def limits_of(parts: Parts, config: GcylonConfig) -> list[int]:
    """The limit of each rank."""
    return [part.limit_bytes(config) for part in parts]


def as_used(tables: Sequence[Parts], config: GcylonConfig) -> list[Parts]:
    """What is known of some tables, as it will be once an operation uses them: what was staged for another one's own
    limit has come back, as far as there is room."""
    if not any(part.evicted for parts in tables for part in parts):
        return list(tables)
    limits = limits_of(tables[0], config)
    used = [max(parts[rank].used_bytes for parts in tables) for rank in range(len(limits))]
    found: list[list[PartStats]] = [[] for _ in tables]
    for rank, limit in enumerate(limits):
        for place, parts in enumerate(tables):
            part, back, chunks, held = parts[rank], 0, parts[rank].chunks, parts[rank].device_chunk_bytes
            for low, nbytes, slices in part.evicted:
                if low < limit and used[rank] + back + nbytes <= limit:
                    back += nbytes
                    chunks -= slices - 1
                    held = (*held, nbytes)
            below = max(0, part.staged_bytes - back)
            found[place].append(
                replace(
                    part, evicted=(), chunks=chunks, device_chunk_bytes=held, device_bytes=part.device_bytes + back,
                    staged_bytes=below, largest_staged_bytes=min(part.largest_staged_bytes, below),
                )
            )  # fmt: skip
            used[rank] += back
    return [[replace(part, used_bytes=n) for part, n in zip(parts, used, strict=True)] for parts in found]


def require_known(parts: Parts, on: Sequence[Label]) -> None:
    """Refuse columns that there are not.

    Raises
    ------
    ColumnMissing
        Naming the columns.
    """
    for key in on:
        if key not in parts[0].columns:
            advice = instead_of(key, parts[0].columns)
            raise ColumnMissing(f"There is no column {key!r}.", advice=advice, column=str(key))


def check_root(root: int, size: int) -> None:
    """Refuse a root that is no rank.

    Raises
    ------
    ArgumentError
        With the range.
    """
    given: Any = root
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise ArgumentError(f"Expected a rank in [0, {size}) for root, got {shown(root)}.")
    if not 0 <= root < size:
        raise ArgumentError(f"root={shown(root)} is out of range [0, {size}).")


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
    given: Any = wanted
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, Set))
    if not several or not all(isinstance(n, Integral) and not isinstance(n, bool) for n in given):
        raise ArgumentError(
            f"Expected a list of numbers of rows for rows_per_rank, got {shown(wanted)}.",
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


def what_is_evicted(before: TableStats, after: TableStats) -> tuple[str, ...]:
    """What is staged before the first round, in words."""
    own = [now - then for then, now in zip(before.staged_bytes, after.staged_bytes, strict=True)]
    others = [u - now - mine for u, now, mine in zip(before.used, after.used, own, strict=True)]
    return eviction_notes(max(0, *own), max(0, *others))


def _after_making_room(
    stats: TableStats, chunks: Sequence[Sequence[int]], config: GcylonConfig, strategy: str, beside: Sequence[int]
) -> TableStats:
    """What will be in use once the opening has staged what it may: ``chunks`` are the input's on the device tier."""
    stats = after_cutting(stats)
    if never_fits(stats, strategy).any():
        return replace(all_staged(replace(stats, used=(0,) * stats.size)), in_vain=True)
    wanted = room_wanted(stats, config, strategy)
    used, staged, largest = list(stats.used), list(stats.staged_bytes), list(stats.largest_staged_bytes)
    count = list(stats.chunks)
    for rank, (own, limit, room) in enumerate(zip(chunks, stats.limits, wanted, strict=True)):
        # Other tables first; the input's own chunks go only if there is no other way, and one by one.
        used[rank] = max(min(used[rank], sum(own) + beside[rank]), min(used[rank], limit - room.all))
        for nbytes in own if used[rank] > limit - room.here else ():
            if used[rank] <= limit - room.least:
                break
            used[rank] -= nbytes
            staged[rank] += nbytes
            slices = max(1, -(-nbytes // stage_slice_bytes(limit, on_gpu=stats.on_gpu)))
            largest[rank] = max(largest[rank], -(-nbytes // slices))
            count[rank] += slices - 1
    return replace(
        stats,
        used=tuple(used),
        staged_bytes=tuple(staged),
        largest_staged_bytes=tuple(largest),
        chunks=tuple(count),
    )


@dataclass(frozen=True)
class PlannedVerb:
    """A verb whose plan is known before it runs, from what ranks tell of its tables.

    Attributes
    ----------
    verb : str
        What its operation is called.
    estimate : callable
        Makes the plan. Takes the `Parts` of each table, a config, a strategy, and by their names those of the verb's
        arguments on which the plan depends, or that it refuses as the verb does. Reads no rows.
    method : str
        The method of tables, where it has another name.
    keys : str
        Which argument names key columns; empty where there is none.
    all_by_default : bool
        Whether without keys all columns are meant.
    tables : str
        Which argument is another table, or a list of them; empty where there is none.
    refuse : callable, optional
        Raises what the verb does for dtypes that it cannot take. Takes the schema of each table, how many rows each
        has, and what `estimate` takes by name.
    """

    verb: str
    estimate: Callable[..., Plan]
    method: str = ""
    keys: str = ""
    all_by_default: bool = False
    tables: str = ""
    refuse: Callable[..., None] | None = None

    @cached_property
    def takes(self) -> frozenset[str]:
        """The arguments of the verb that `estimate` takes."""
        return frozenset(list(inspect.signature(self.estimate).parameters)[3:])

    def chosen(self, keys: Sequence[Label], **more: Any) -> dict[str, Any]:
        """Return what `estimate` is given where keys are chosen, and of others those that it takes."""
        asks = self.keys and (keys or not self.all_by_default)
        return ({self.keys: list(keys)} if asks else {}) | {n: value for n, value in more.items() if n in self.takes}
