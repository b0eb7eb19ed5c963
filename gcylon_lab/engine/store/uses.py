"""Who holds how much of a budget."""

from __future__ import annotations

from collections.abc import Iterable

from ...memory.budget import MemoryBudget
from .aliasing import Holder, claims_of

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
