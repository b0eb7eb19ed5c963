"""Writing a table: one file a rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..tables import io
from .operation import Operation, Request
from .part import Part
from .running import run_verb
from .workspace import Workspace


def write_parquet(workspace: Workspace, part: Part, path: str, *, overwrite: bool) -> list[str]:
    """Collective: all ranks call it. Write this rank's rows, chunk by chunk, into a file of its own in a folder.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    path : str
        The folder, the same on all ranks.
    overwrite : bool
        Whether parquet files that stand there are replaced.

    Returns
    -------
    list of str
        The file that this rank wrote.

    Raises
    ------
    WriteError
        On all ranks, if one could not write.
    """
    written: list[str] = []
    rank, size = workspace.transport.rank, workspace.transport.size

    def body(operation: Operation) -> Part:
        # Looked at by all before anyone writes, so that no rank sees another's new file as one of before.
        io.prepare_folder(path, overwrite=overwrite)
        operation.agree_result_schema(operation.schema, part.rows)
        if overwrite and rank == 0:
            io.remove_leftovers(path, size)

        def pieces() -> Iterator[Any]:
            for chunk in part.chunks:
                with chunk.load(workspace) as data, operation.cast(data) as cast:
                    yield workspace.backend.to_host(cast)

        written.append(io.write_parquet(path, rank, operation.schema, pieces()))
        return part

    run_verb(workspace, Request("write_parquet", {"path": str(path), "overwrite": overwrite}, part), body)
    return written
