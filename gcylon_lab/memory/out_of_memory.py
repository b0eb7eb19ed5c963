"""Turning what GPU libraries raise where memory ends into the project's own error."""

from __future__ import annotations

import re

from ..errors import BudgetExceeded, raised_as
from ..units import parse_bytes
from .budget import MemoryBudget, exceeded
from .device import current_device

# RMM's limit and pool, and CuPy.
_ASKED = (
    re.compile(r"requested bytes ([0-9]+)", re.IGNORECASE),
    re.compile(r"failed to allocate ([0-9.]+ ?[KMGT]?i?B)", re.IGNORECASE),
    re.compile(r"allocating ([0-9,]+) bytes"),
)
_REFUSED = re.compile(r"memory limit ([0-9]+); Allocated bytes ([0-9]+)", re.IGNORECASE)
_LEEWAY = 4  # such a part more of a limit: how much is lost to pieces nobody knows
_SIGNS = ("out of memory", "out_of_memory", "bad_alloc", "cudaErrorMemoryAllocation")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a library says that device memory ended: RMM and libcudf (MemoryError), CuPy and CUDA (by their text)."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def as_budget_exceeded(
    error: BaseException,
    budget: MemoryBudget,
    what: str,
    needed_bytes: int = 0,
    limit_bytes: int = 0,
    *,
    staged: bool = False,
) -> BudgetExceeded:
    """Make the error with numbers and the option to change out of a library's.

    Parameters
    ----------
    error : BaseException
        What was raised; one that is a `BudgetExceeded` already is returned as it is.
    budget : MemoryBudget
        Whose limit holds.
    what : str
        What the memory was for, in words that stand in the error.
    needed_bytes : int, optional
        What was asked for, where known; what the library's text says otherwise.
    limit_bytes : int, optional
        The limit that held, where that is not the budget's own of now.
    staged : bool, default False
        Whether staging would not help.
    """
    if isinstance(error, BudgetExceeded):
        return error
    device, limit = current_device(), limit_bytes or budget.limit_bytes
    used = budget.used_bytes if device is None else device.used_bytes
    needed = needed_bytes or _asked_bytes(str(error)) or max(1, limit - used + 1)
    if used + needed > limit:
        # In the midst of a library's work: what it makes next may take as much, as a message that it has packed.
        return exceeded(what, needed, used, limit, would_do=used + 2 * needed, staged=staged)
    enough = limit + max(needed, limit // _LEEWAY)
    if refused := _REFUSED.search(str(error)):  # what was in use then, in whole 256 bytes, and is given back by now
        used = max(used, limit - max(0, int(refused[1]) - int(refused[2])))
        return exceeded(what, needed, used, limit, would_do=enough, staged=staged)
    # Within the limit, so the slab has that much, but in pieces; or the GPU has it no longer.
    made = exceeded(what, needed, used, limit, would_do=enough, staged=staged)
    made.message += " What is free is in pieces that are too small."
    return made


def memory_errors(budget: MemoryBudget, what: str, needed_bytes: int = 0, *, staged: bool = False) -> raised_as:
    """Let a block raise `BudgetExceeded` where a library in it runs out of device memory.

    Raises
    ------
    BudgetExceeded
        See `as_budget_exceeded`.
    """

    def other(error: Exception) -> Exception | None:
        if isinstance(error, BudgetExceeded) or not is_out_of_memory(error):
            return None
        made = as_budget_exceeded(error, budget, what, needed_bytes, staged=staged)
        made.__cause__ = error
        return made

    return raised_as(other)


def _asked_bytes(text: str) -> int:
    for pattern in _ASKED:
        if found := pattern.search(text):
            return parse_bytes(found[1].replace(",", ""))
    return 0
