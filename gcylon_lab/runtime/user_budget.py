"""``gl.budget``: the budget of this rank, for code of the user's own."""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.store.aliasing import by_use
from ..errors import ArgumentError, BudgetExceeded
from ..memory.budget import STAGE_IT, MemoryBudget, Reservation
from ..memory.out_of_memory import memory_errors
from ..units import format_bytes, parse_bytes
from .context import current

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class UserBudget:
    """The budget of the rank that this code runs on, under ``%px``, in `Cluster.run` and under ``mpiexec``.

    What code of your own needs is claimed as the verbs claim theirs: tables that are not in use are not evicted for it,
    and a verb that runs meanwhile has that much less. Sizes are bytes, or text such as "64MiB". Nothing here is
    collective. ``gl.budget`` is the only one.

    Examples
    --------
    >>> import gcylon_lab as gl
    >>> with gl.budget.reserve("1MiB", "my buffer") as claim:
    ...     claim.nbytes, gl.budget.by_use()["my buffer"]
    (1048576, 1048576)
    >>> gl.budget.fits(gl.budget.limit_bytes + 1)
    False
    """

    @property
    def limit_bytes(self) -> int:
        """The limit of operations that have no config of their own; inside one, that of it."""
        return _own().limit_bytes

    @property
    def used_bytes(self) -> int:
        """What is claimed now."""
        return _own().used_bytes

    @property
    def allocated_bytes(self) -> int:
        """What is in use now as far as is known: on a GPU what its allocator has given, claimed or not."""
        return _own().allocated_bytes

    @property
    def remaining_bytes(self) -> int:
        """What can still be claimed."""
        return _own().remaining_bytes

    @property
    def peak_bytes(self) -> int:
        """The most that was in use since the last `reset_peak`."""
        return _own().peak_bytes

    @property
    def allocation_count(self) -> int:
        """Claims, or on a GPU allocations, since the last `reset_allocation_count`."""
        return _own().allocation_count

    def reset_peak(self) -> None:
        """Let the peak start again from what is in use now."""
        _own().reset_peak()

    def reset_allocation_count(self) -> None:
        """Let the count start again from 0."""
        _own().reset_allocation_count()

    def fits(self, nbytes: int | str) -> bool:
        """Whether so many bytes can be had now; nothing is claimed."""
        return _own().has_room(_size(nbytes))

    def reserve(self, nbytes: int | str, what: str = "code of the user") -> Reservation:
        """Claim bytes before they are allocated.

        Parameters
        ----------
        nbytes : int or str
            At least 0.
        what : str
            What for: it stands in errors, in `by_use` and in the log of allocations.

        Returns
        -------
        Reservation
            Released at the end of a ``with`` block, by ``release()``, or when it is collected; ``resize(nbytes)``
            changes it.

        Raises
        ------
        BudgetExceeded
            If they do not fit; nothing is claimed then.
        """
        with _unstaged():
            return _own().reserve(_size(nbytes), what)

    def array(self, shape: int | Sequence[int], dtype: DTypeLike = float, what: str = "an array of the user") -> Any:
        """Make an array inside the budget, not filled: of cupy on GPU engines, of numpy on CPU engines.

        Its bytes are claimed before it is made, and given back once it and all its views are collected.

        Parameters
        ----------
        shape : int or sequence of int
        dtype : dtype
            Of items of a fixed size.
        what : str
            As for `reserve`.

        Raises
        ------
        BudgetExceeded
            If it does not fit.
        ArgumentError
            If the shape or the dtype is none of such an array.

        Examples
        --------
        >>> import gcylon_lab as gl
        >>> before = gl.budget.used_bytes
        >>> scratch = gl.budget.array((1000, 4), "float32")
        >>> scratch.shape, gl.budget.used_bytes - before
        ((1000, 4), 16000)
        >>> del scratch
        >>> gl.budget.used_bytes == before
        True
        """
        lengths, kind = _shape(shape), _dtype(dtype)
        make = device_array if current().workspace.backend.on_gpu else host_array
        with _unstaged():
            return make(_own(), lengths, kind, what)

    def by_use(self) -> dict[str, int]:
        """Return who holds how much, in bytes, largest first; the sum is `used_bytes`.

        Returns
        -------
        dict of str to int
            "tables" for all that tables hold (`Cluster.memory` has each), but "external" for what of it is in memory
            that other libraries have handed over, what claims of others are for, and on GPUs "not claimed" for what
            was allocated beside, as frames of cuDF.
        """
        return by_use(_own(), current().workspace.parts)

    def __repr__(self) -> str:
        budget = _own()
        used, limit, peak = map(format_bytes, (budget.used_bytes, budget.limit_bytes, budget.peak_bytes))
        return f"<budget of rank {current().rank}: {used} of {limit} in use, {peak} at the most>"


budget = UserBudget()


def _own() -> MemoryBudget:
    return current().budget


@contextmanager
def _unstaged() -> Iterator[None]:
    """Inside, errors do not advise a strategy: none stages for code of the user's own."""
    try:
        yield
    except BudgetExceeded as error:
        error.advice = error.advice.replace(STAGE_IT, ".")
        raise


def _size(nbytes: int | str) -> int:
    try:
        size = parse_bytes(nbytes) if isinstance(nbytes, str) else operator.index(nbytes)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"nbytes={nbytes!r} is invalid: {error}.", advice='Give bytes, or text such as "64MiB".'
        ) from None
    if size < 0:
        raise ArgumentError(f"nbytes={nbytes!r} is negative.", advice="Give a size of at least 0.")
    return size


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    try:
        lengths = tuple(operator.index(one) for one in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    except TypeError:
        lengths = (-1,)
    if min(lengths, default=0) < 0 or math.prod(lengths) >= 2**62:
        raise ArgumentError(
            f"shape={shape!r} is invalid.", advice="Expected a length, or a tuple of lengths of at least 0."
        )
    return lengths


def _dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except TypeError as error:
        raise ArgumentError(f"dtype={dtype!r} is invalid: {error}.", advice='Give for example "float32".') from None
    if kind.hasobject or not kind.itemsize:
        raise ArgumentError(
            f"dtype={dtype!r} is invalid: its items have no size of their own.", advice='Give for example "float32".'
        )
    return kind


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
