"""Writing a table: one file a rank, seen only once all ranks have written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...engine.exec.agreement import AgreementKind
from ...engine.exec.invocation import Request
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...formats import io
from ...profiling import span
from .ingest import PIECES_IN_LIMIT, piece_bytes

_DEVICE_PIECE_BYTES = 1 << 30
_JOINED = 8  # times smaller than a piece may chunks be that are written one by one


def write_files(
    workspace: Workspace, request: Request, folder: str, form: io.Format, storage: io.Storage, *, overwrite: bool
) -> list[str]:
    """Collective: all ranks call it. Write this rank's rows, piece by piece, into files of its own in a folder.

    Parameters
    ----------
    workspace : Workspace
        This rank's means.
    request : Request
        The call; its part has the rows.
    folder : str
        The same on all ranks.
    form : Format
        How rows become files.
    storage : Storage
        How the folder is reached.
    overwrite : bool
        Whether a table of the same format that stands there is replaced.

    Returns
    -------
    list of str
        The files that this rank wrote.

    Raises
    ------
    WriteError
        On all ranks, if one could not write; nothing that stood there has changed then.
    """
    written: list[str] = []
    rank, size = workspace.transport.rank, workspace.transport.size

    files = io.PartFiles(folder, rank, size, form.ending, form.suffixes, storage)

    def body(operation: Operation) -> Part:
        storage.limit_bytes = workspace.budget.limit_bytes  # that of the operation, which runs by now
        files.look(overwrite=overwrite)
        # Looked at by all before anyone writes, so that no rank sees another's new file as one of before.
        files.new_folders = int(operation.agree(AgreementKind.COUNT, (files.new_folders,)).max())
        _write(operation, files, form)
        operation.agree(AgreementKind.COUNT)
        names = files.finish()
        operation.agree(AgreementKind.COUNT)
        files.settle()
        written.extend(names)
        return request.part

    try:
        run_verb(workspace, request, body)
    except BaseException:
        # Only now, as all ranks have told that they write no more: folders that one removes another would write into.
        files.discard()
        raise
    return written


def _write(operation: Operation, files: io.PartFiles, form: io.Format) -> None:
    backend, writer, why = operation.workspace.backend, None, ""
    if backend.on_gpu and form.by_device is not None:
        writer, why = form.by_device(files, operation.schema, backend)
        operation.notes.append(f"encoded {f'in host memory, as {why}' if why else 'on the GPU'}")
    on_host = writer is None
    writer = writer or form.open(files, operation.schema, not any(operation.rows))
    try:
        for piece in _pieces(operation, on_host=on_host, in_groups=form.in_groups):
            with span("write", "io", bytes=piece.nbytes):
                writer.write(piece)
            del piece
        writer.close()
    except BaseException:
        writer.abandon()
        raise


def _pieces(operation: Operation, *, on_host: bool, in_groups: bool) -> Iterator[Any]:
    """This rank's rows, in pieces that leave room for what a format makes of them."""
    workspace, part, record = operation.workspace, operation.request.part, operation.record
    budget = workspace.budget
    limit = budget.limit_bytes
    most_bytes = piece_bytes(limit) if on_host else max(1, min(_DEVICE_PIECE_BYTES, limit // PIECES_IN_LIMIT))
    rows = max(1, int(part.rows * most_bytes / max(1, part.nbytes)))
    usual = max(1, part.rows // max(1, len(part.chunks)))
    if on_host and not in_groups and rows <= _JOINED * usual:
        rows = min(rows, 2 * usual - 1)  # none are joined, which would copy them
    done, record.rounds = 0, 100  # percent, for those who watch
    try:
        for data in part.pieces(workspace, rows):
            with (
                operation.cast(data) as cast,
                budget.reserve(min(2 * cast.nbytes, budget.remaining_bytes), "Writing a piece"),
            ):
                yield workspace.backend.to_host(cast) if on_host else cast
            done += data.rows
            del data, cast  # before the next one is read back
            record.rounds_done = min(99, 100 * done // max(1, part.rows))
    finally:
        record.rounds = record.rounds_done = 0  # nothing was exchanged
