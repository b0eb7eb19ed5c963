"""Parts that hold the same memory, as views of one another do: it is free once all of them have given way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from ...memory.budget import MemoryBudget, Reservation


class HeldChunk(Protocol):
    """A chunk, as far as its memory matters."""

    @property
    def tier(self) -> str: ...

    @property
    def claim(self) -> object: ...


class Holder(Protocol):
    """A part, as far as its memory matters."""

    @property
    def chunks(self) -> Sequence[HeldChunk]: ...

    @property
    def last_used(self) -> int: ...


H = TypeVar("H", bound=Holder)


def claims_of(part: Holder) -> dict[int, Reservation]:
    """Claims of a part's chunks on the device tier, each once, by identity."""
    claims: dict[int, Reservation] = {}
    waiting: list[object] = [chunk.claim for chunk in part.chunks if chunk.tier == "device"]
    while waiting:
        claim = waiting.pop()
        if isinstance(claim, tuple):
            waiting.extend(claim)
        elif isinstance(claim, Reservation):
            claims[id(claim)] = claim
    return claims


def claimed_bytes(parts: Iterable[Holder]) -> int:
    """Bytes of the budget that are free once all chunks of some parts have left the device tier.

    What several chunks share counts once.
    """
    claims: dict[int, Reservation] = {}
    for part in parts:
        claims |= claims_of(part)
    return sum(claim.nbytes for claim in claims.values())


def aliasing_parts(parts: Iterable[H], alive: Iterable[H], *, with_views: bool) -> list[list[H]]:
    """Parts that free memory when they are evicted, those together that hold it together; longest unused first.

    Parameters
    ----------
    parts : iterable of Holder
        Those that may be evicted.
    alive : iterable of Holder
        All that there are.
    with_views : bool
        Whether the others that share memory with them may be evicted too.
    """
    may = {id(part): part for part in parts}
    held = {id(part): (part, claims_of(part)) for part in [*alive, *may.values()]}
    found = []
    for members in _sharing([set(claims) for _, claims in held.values()]):
        unit = [list(held.values())[place] for place in members]
        if not any(id(part) in may for part, _ in unit):
            continue
        stays = {one for part, claims in unit if not with_views and id(part) not in may for one in claims}
        giving = [part for part, claims in unit if (with_views or id(part) in may) and claims.keys() - stays]
        found.append(sorted(giving, key=lambda part: part.last_used))
    return sorted((unit for unit in found if unit), key=lambda unit: unit[-1].last_used)


def _sharing(claims: list[set[int]]) -> list[list[int]]:
    """Places of sets that have a member in common, directly or by way of others."""
    groups: list[tuple[set[int], list[int]]] = []
    for place, mine in enumerate(claims):
        together, places = set(mine), [place]
        apart = []
        for other in groups:
            if other[0].isdisjoint(mine):
                apart.append(other)
            else:
                together |= other[0]
                places += other[1]
        groups = [*apart, (together, places)]
    return [places for _, places in groups]


TABLES, EXTERNAL, UNCLAIMED = "tables", "external", "not claimed"


def by_use(budget: MemoryBudget, parts: Iterable[Holder]) -> dict[str, int]:
    """Bytes in use by what they are for, the largest first; their sum is `MemoryBudget.used_bytes`.

    Parameters
    ----------
    budget : MemoryBudget
    parts : iterable of Holder
        Those of all tables.

    Returns
    -------
    dict of str to int
        "tables" for all that tables hold, but "external" for what of it is in memory that other libraries have handed
        over, what the claims of others are for, and on GPUs "not claimed" for what was allocated beside.
    """
    found = budget.by_use()
    claims = {key: claim for part in list(parts) for key, claim in claims_of(part).items()}
    for claim in claims.values():
        found[claim.what] = found.get(claim.what, 0) - claim.nbytes
    for claim in claims.values():
        use = EXTERNAL if claim.what == EXTERNAL else TABLES
        found[use] = found.get(use, 0) + claim.nbytes
    found = {what: nbytes for what, nbytes in found.items() if nbytes > 0}
    beside = budget.used_bytes - sum(found.values())
    if beside > 0:
        found[UNCLAIMED] = beside
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def external_bytes(part: Holder) -> int:
    """Bytes of a part on the device tier that are in memory that another library has handed over."""
    return sum(claim.nbytes for claim in claims_of(part).values() if claim.what == EXTERNAL)
