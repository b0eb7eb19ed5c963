"""Arrays of the user's own inside a budget: claimed before they are made, given back with them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .budget import MemoryBudget, Reservation
from .out_of_memory import memory_errors


def array_bytes(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """What an array takes."""
    nbytes = dtype.itemsize
    for length in shape:
        nbytes *= length
    return nbytes


def host_array(budget: MemoryBudget, shape: Sequence[int], dtype: np.dtype[Any], what: str) -> Any:
    """A numpy array, not filled; its claim is released once it and all its views are collected.

    Raises
    ------
    BudgetExceeded
        If it does not fit.
    """
    claim = budget.reserve(array_bytes(shape, dtype), what)
    with _given_back(claim):
        made = np.empty(shape, dtype)
    weakref.finalize(made, claim.release).atexit = False  # views refer to the array that they are of
    return made


@contextmanager
def _given_back(claim: Reservation) -> Iterator[None]:
    """A claim on what cannot be allocated ends at once, whoever keeps the error."""
    try:
        yield
    except BaseException:
        claim.release()
        raise


class _Claimed:
    """Device memory with its claim: kept by the arrays that are in it."""

    def __init__(self, memory: Any, claim: Reservation) -> None:
        self.memory, self.claim = memory, claim


def device_array(budget: MemoryBudget, shape: Sequence[int], dtype: np.dtype[Any], what: str) -> Any:
    """A cupy array of the rank's GPU; as `host_array`.

    Raises
    ------
    BudgetExceeded
        If it does not fit the budget, or the GPU has it in pieces only.
    """
    import cupy

    nbytes = array_bytes(shape, dtype)
    claim = budget.reserve(nbytes, what)
    with _given_back(claim), memory_errors(budget, what, nbytes):
        memory = cupy.cuda.alloc(max(nbytes, 1))
    owner = _Claimed(memory, claim)
    pointer = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(memory.ptr, max(nbytes, 1), owner), 0)
    return cupy.ndarray(shape, dtype, pointer)
