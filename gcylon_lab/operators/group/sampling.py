"""Rows taken by chance: the same ones however the table is cut over ranks and chunks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...backends.protocol.data import Words
from ...engine.exchange.exchange import local_plan
from ...engine.exec.invocation import Request, RunOptions
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError
from .groupby import shared_checks
from .order_statistics import find_words

_BLOCK_ROWS = 65536
_STEP = 0x9E3779B97F4A7C15


def sample(
    workspace: Workspace,
    part: Part,
    n: int | None,
    frac: float | None,
    seed: int,
    options: RunOptions,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Take rows by chance, each at most once; they stay in order, where they are.

    Every row has a number by chance, of the seed and its place in the whole table; those with the least are taken.

    Raises
    ------
    ArgumentError
        If neither or both of n and frac are given, or more rows are asked for than there are.
    """

    def check() -> None:
        if (n is None) == (frac is None):
            raise ArgumentError(f"Expected exactly one of n and frac, got n={n!r} and frac={frac!r}.")
        if frac is not None and not 0 <= frac <= 1:
            raise ArgumentError(f"frac={frac!r} is out of range [0, 1].")

    def body(operation: Operation) -> Part:
        total = sum(operation.rows)
        wanted = int(n) if n is not None else round((frac or 0.0) * total)
        with shared_checks():
            if not 0 <= wanted <= total:
                raise ArgumentError(
                    f"n={n} rows are asked for, and there are {total}.", advice="Ask for no more than there are."
                )
        first = sum(operation.rows[: operation.rank])

        def words_here() -> Iterator[Words]:
            for start in range(first, first + part.rows, _BLOCK_ROWS):
                yield chance_words(seed, start, min(start + _BLOCK_ROWS, first + part.rows))

        found = find_words(operation, words_here, lambda count: {max(wanted - 1, 0)})
        last = found.words[wanted - 1] if wanted else -1
        result = _taken(operation, part, first, seed, last)
        operation.plan = local_plan(operation, part, result, "because each rank works on its own rows")
        return result

    request = Request("sample", {"n": n, "frac": frac, "seed": seed}, part, options, check)
    return run_operation(workspace, request, body)


def chance_words(seed: int, start: int, stop: int) -> Words:
    """Numbers by chance of rows [start, stop) of a table: each row's own, and different for all (splitmix64)."""
    with np.errstate(over="ignore"):
        words = np.arange(start, stop, dtype=np.uint64) + np.uint64((seed * _STEP) % 2**64)
        words = (words + np.uint64(1)) * np.uint64(_STEP)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))


def _taken(operation: Operation, part: Part, first: int, seed: int, last: int) -> Part:
    """The rows whose number is at most ``last``."""
    work, backend = LocalExecutor(operation, "Taking rows"), operation.workspace.backend
    work.make_room(0.0, 0)
    result = work.new_result(operation.schema)
    result.partitioning = part.partitioning
    if last < 0:
        return result
    row_bytes = part.nbytes / max(part.rows, 1)
    rows = work.piece_rows(row_bytes, 2 * row_bytes + 48)
    work.expect(min(rows, part.rows) * (3 * row_bytes + 48) + part.largest_staged_bytes)
    ids = backend.new_ids(0, 2).dtype

    with work.holding(part, part.nbytes):
        for piece in work.pieces(part, operation.schema, rows):
            left = chance_words(seed, first, first + piece.rows) > np.uint64(last)
            first += piece.rows
            needed = 2 * piece.nbytes + backend.partition_scratch_bytes(piece.rows, 2) + 48 * piece.rows
            claim = work.claim(needed)
            data, offsets = backend.partition(piece, left.astype(ids), 2)
            work.keep(result, backend.concat([backend.slice(data, 0, int(offsets[1]))]), claim)
            del piece, data  # before the next one is read back
    return result
