"""Rows of a table for a person: the first or the last in global order, or all of one rank, on the host."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from ...backends.host.backend import PandasBackend
from ...backends.protocol.data import Columns
from ...backends.protocol.scalars import shown
from ...engine.exec.invocation import AUTO, Request, RunOptions
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.chunk import Chunk, hold
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError
from ..exchange.redistribution import collect


def checked_rows(given: Any, name: str, *, or_all: bool = False) -> int:
    """How many rows a person asks for, as a plain int.

    Parameters
    ----------
    given : int
        What was given.
    name : str
        Of the argument.
    or_all : bool, default False
        Whether None may be given, of which the error tells.

    Raises
    ------
    ArgumentError
        If it is no number of rows.
    """
    if isinstance(given, bool) or not isinstance(given, Integral) or given < 0:
        instead = "Give one of at least 0, or None for all." if or_all else "Give one of at least 0."
        raise ArgumentError(f"Expected a number of rows for {name}, got {shown(given)}.", advice=instead)
    return int(given)


def take_head(workspace: Workspace, part: Part, limit: int | None) -> Part:
    """Collective: all ranks call it. Give this rank's share of the first ``limit`` rows.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    limit : int or None
        Rows in all; None gives the part itself.

    Returns
    -------
    Part
        Views where the rows are on the device tier: their bytes stay with ``part``.
    """
    if limit is None:
        return part

    def body(operation: Operation) -> Part:
        return _cut(workspace, part, max(0, limit - sum(operation.rows[: operation.rank])))

    return run_verb(workspace, Request("head", {"n": limit}, part), body, quiet=True)[0]


def take_tail(workspace: Workspace, part: Part, limit: int, options: RunOptions = AUTO) -> Part:
    """Collective: all ranks call it. Give this rank's share of the last ``limit`` rows; see `take_head`."""

    def check() -> None:
        checked_rows(limit, "n")

    def body(operation: Operation) -> Part:
        wanted = max(0, limit - sum(operation.rows[operation.rank + 1 :]))
        return _cut(workspace, part, wanted, skip=max(0, part.rows - wanted))

    return run_verb(workspace, Request("tail", {"n": limit}, part, options, check), body, quiet=True)[0]


def first_rows(workspace: Workspace, part: Part, limit: int | None, *, quiet: bool = False) -> Columns:
    """Collective: all ranks call it. Give the first rows in global order to every rank; see `_gathered`."""
    return _gathered(workspace, part, take_head(workspace, part, limit), AUTO, quiet=quiet)


def last_rows(workspace: Workspace, part: Part, limit: int, options: RunOptions) -> Columns:
    """Collective: all ranks call it. Give the last rows in global order to every rank; see `_gathered`."""
    return _gathered(workspace, part, take_tail(workspace, part, limit, options), options, quiet=True)


def _gathered(workspace: Workspace, part: Part, some: Part, options: RunOptions, *, quiet: bool) -> Columns:
    """Collective: all ranks call it. Rows of a part, from all ranks, in host memory outside the budget.

    They leave a GPU chunk by chunk, so that a staged part need not fit there.
    """
    try:
        gathered = collect(workspace, some, "allgather", options=options, quiet=quiet)[0]
    finally:
        if some is not part:
            some.release()  # an error that is kept would hold it
    backend, host = workspace.backend, PandasBackend()
    try:
        with workspace.memory_named("A frame of a table's rows", staged=True):
            pieces: list[Columns] = []
            while gathered.chunks:  # without a name for a chunk: an error that is kept would hold it
                pieces.append(backend.to_host(backend.cast(gathered.chunks.pop(0).read(workspace), part.schema)))
            return pieces[0] if len(pieces) == 1 else host.concat(pieces) if pieces else host.empty(part.schema)
    finally:
        gathered.release()


def _cut(workspace: Workspace, part: Part, rows: int, skip: int = 0) -> Part:
    left = min(part.rows - skip, rows)
    chunks: list[Chunk] = []
    for chunk in part.chunks:
        if left == 0:
            break
        if skip >= chunk.rows:
            skip -= chunk.rows
            continue
        start, skip = skip, 0
        take = min(left, chunk.rows - start)
        left -= take
        with chunk.load(workspace) as data:
            piece = workspace.backend.slice(data, start, start + take)
            if chunk.tier == "device":
                chunks.append(Chunk(piece.schema, take, piece.nbytes, data=piece))
            else:
                chunks.append(hold(workspace, workspace.backend.concat([piece]), "Some rows"))
    return Part(workspace, part.schema, chunks)
