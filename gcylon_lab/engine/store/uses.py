"""Who holds how much of a budget."""

from __future__ import annotations

from collections.abc import Iterable

from ...memory.budget import MemoryBudget
from .aliasing import Holder, claimed_bytes, claims_of

TABLES, UNCLAIMED = "tables", "not claimed"


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
        "tables" for all that tables hold, what the claims of others are for, and on GPUs "not claimed" for what was
        allocated beside.
    """
    parts = list(parts)
    held, tables = claimed_bytes(parts), {one for part in parts for one in claims_of(part)}
    found: dict[str, int] = {TABLES: held} if held else {}
    for claim in budget.claims():
        if claim.nbytes and id(claim) not in tables:
            found[claim.what] = found.get(claim.what, 0) + claim.nbytes
    beside = budget.used_bytes - sum(found.values())
    if beside > 0:
        found[UNCLAIMED] = beside
    return dict(sorted(found.items(), key=lambda one: -one[1]))
