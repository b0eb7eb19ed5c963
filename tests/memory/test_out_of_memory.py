"""What libraries raise where device memory ends becomes BudgetExceeded, with numbers and what to change."""

from __future__ import annotations

import pytest

from gcylon_lab.errors import BudgetExceeded
from gcylon_lab.memory.budget import MemoryBudget
from gcylon_lab.memory.out_of_memory import as_budget_exceeded, is_out_of_memory, memory_errors
from gcylon_lab.units import MIB

RMM = "std::bad_alloc: out_of_memory: Exceeded memory limit 100; Allocated bytes 5; Requested bytes 67108864"
POOL = "std::bad_alloc: out_of_memory: Maximum pool size exceeded (failed to allocate 64.000000 MiB): not enough room"
CUPY = "Out of memory allocating 67,108,864 bytes (allocated so far: 0 bytes)."


@pytest.mark.parametrize("error", [MemoryError(RMM), MemoryError(POOL), MemoryError(CUPY)])
def test_the_numbers_come_from_the_text(error: MemoryError) -> None:
    budget = MemoryBudget(100 * MIB)
    with budget.reserve(50 * MIB, "a table"):
        made = as_budget_exceeded(error, budget, "Joining")
    assert made.numbers["needed_bytes"] == 64 * MIB
    assert made.numbers["used_bytes"] == 50 * MIB
    assert made.numbers["would_do"] == 178 * MIB  # as what follows may take as much
    assert made.numbers["knob"] == "gpu_memory_limit"
    assert str(made).startswith("Joining needs 64 MiB while 50 MiB of the 100 MiB budget are in use.")


def test_what_fits_but_is_in_pieces_says_so() -> None:
    made = as_budget_exceeded(MemoryError(), MemoryBudget(100 * MIB), "Sorting", needed_bytes=10 * MIB)
    assert "pieces that are too small" in str(made)
    assert made.numbers["would_do"] == 125 * MIB  # a few bytes more would be in pieces as well


def test_what_was_given_back_on_the_way_of_the_error_counts() -> None:
    """The allocator's text has what was in use when it refused, of a limit of its own that began later."""
    text = f"Exceeded memory limit {90 * MIB}; Allocated bytes {80 * MIB}; Requested bytes {20 * MIB}"
    made = as_budget_exceeded(MemoryError(text), MemoryBudget(100 * MIB), "Taking a frame in")
    assert (made.numbers["needed_bytes"], made.numbers["used_bytes"]) == (20 * MIB, 90 * MIB)
    assert made.numbers["would_do"] == 125 * MIB and "pieces" not in str(made)


def test_without_numbers_it_needs_more_than_is_free() -> None:
    made = as_budget_exceeded(MemoryError("std::bad_alloc"), MemoryBudget(1000), "Sorting")
    assert made.numbers["needed_bytes"] == 1001


def test_only_errors_of_memory_are_turned() -> None:
    budget = MemoryBudget(1000)
    with pytest.raises(BudgetExceeded, match="Sorting"), memory_errors(budget, "Sorting"):
        raise RuntimeError("CUDA error: cudaErrorMemoryAllocation out of memory")
    with pytest.raises(RuntimeError, match="an illegal address"), memory_errors(budget, "Sorting"):
        raise RuntimeError("an illegal address")
    first = as_budget_exceeded(MemoryError(), budget, "Joining")
    with pytest.raises(BudgetExceeded) as raised, memory_errors(budget, "Sorting"):
        raise first
    assert raised.value is first
    assert not is_out_of_memory(ValueError("out of memory"))
