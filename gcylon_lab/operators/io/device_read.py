"""Reading files on GPU engines: by libcudf where it makes of them what CPU engines make, else through host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from ...backends.protocol.backend import Backend, DelimitedText
from ...backends.protocol.data import Columns, Data
from ...backends.protocol.expressions import Expression
from ...backends.protocol.schema import Schema
from ...engine.store.workspace import Workspace
from ...formats.parquet.plans import ParquetPlan, reading_parquet
from ...formats.parquet.reader import read_parquet_chunks
from ...formats.parquet.row_groups import FileShare, file_shares
from ...formats.row_filters import filtered
from ...formats.text.blocks import Block
from ...formats.text.csv_reader import NULLS, CsvPlan, read_csv_chunks
from ...memory.device import current_device
from ...memory.out_of_memory import is_out_of_memory
from ...units import format_bytes

# Of a limit: what is read and decompressed at a time. libcudf takes up to half as much again, and keeps it while a
# chunk, which is half as large, is taken in or staged; a quarter of the limit is free for that.
_PASSES_IN_LIMIT = 10
_TAKING_IN_LIMIT = 20  # of a limit: what taking a chunk in may need beside it
# Text is read in blocks of a quarter of this: what is made of one takes some times as much at the same time.
_MOST_TEXT_BYTES = 64 * 1024**2
_READ = (pa.types.is_int64, pa.types.is_float64, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
_LINES_BY_HOST = "some lines by way of host memory, as of values that are not plain ones of their types"


def _read_by_host(plan: CsvPlan) -> str:
    """Why all lines are read in host memory, or ""."""
    if len(plan.delimiter.encode()) > 1:
        return "the delimiter is no single byte"
    for name in plan.names:
        type_ = plan.types.get(name)
        if type_ is None:
            return f"column {name!r} has no value at the beginning"
        if not any(test(type_) for test in _READ) and not (pa.types.is_timestamp(type_) and type_.tz is None):
            return f"column {name!r} is {type_}"
    return ""


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """How a rank of a GPU engine reads its share of parquet or csv files.

    Parameters
    ----------
    workspace : Workspace
    limit_bytes : int
        The operation's.
    notes : list of str
        Is told which way the rows took, and why, in words.
    """

    workspace: Workspace
    limit_bytes: int
    notes: list[str]

    @property
    def pass_bytes(self) -> int:
        """What is read and decompressed at a time."""
        return max(1, self.limit_bytes // _PASSES_IN_LIMIT)

    def pieces(self, plan: ParquetPlan, columns: Sequence[str] | None, max_bytes: int) -> Iterator[Data]:
        """This rank's rows, piece by piece; ``max_bytes`` is the size of those that come through host memory."""
        return gathered(self.workspace.backend, self._pieces(plan, columns, max_bytes), max_bytes // 2)

    def lines(self, plan: CsvPlan, columns: Sequence[str] | None) -> Iterator[Data]:
        """This rank's rows of csv files, piece by piece."""
        backend, most = self.workspace.backend, max(1, min(_MOST_TEXT_BYTES, self.pass_bytes // 2))
        wanted, why = tuple(plan.names if columns is None else columns), _read_by_host(plan)
        reader = partial(read_csv_chunks, plan, columns=columns, max_bytes=most)
        if why:
            self._tell(f"by way of host memory, as {why}")
            yield from map(self._on_device, reader())
            return

        ones = any(map(pa.types.is_boolean, plan.asked.values()))

        def decode(block: Block, names: Sequence[str]) -> Data | None:
            types = {name: plan.types[name] for name in names}  # in the order of this file
            work = DelimitedText(
                types, wanted, plan.delimiter, tuple(NULLS), frozenset(plan.asked), plan.quotes, ones
            )  # fmt: skip
            made = self._with_room(lambda: backend.read_delimited(block, work))
            self._tell("read on the GPU" if made is not None else _LINES_BY_HOST)
            return made

        for piece in reader(decode=decode):
            yield self._on_device(piece)
            del piece

    def _on_device(self, piece: Data) -> Data:
        return self.workspace.backend.from_host(piece) if isinstance(piece, Columns) else piece

    def _with_room(self, make: Callable[[], Data | None]) -> Data | None:
        """What is made, or None where the device has no room for it."""
        try:
            return make()
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        return None

    def _pieces(self, plan: ParquetPlan, columns: Sequence[str] | None, max_bytes: int) -> Iterator[Data]:
        backend, any_file = self.workspace.backend, False
        for share in file_shares(plan, columns):
            any_file = True
            if share.by_host:
                self._tell(f"by way of host memory, as {share.by_host}")
                yield from _through_host(backend, share.plan, columns, max_bytes)
            else:
                yield from self._decoded_pieces(share, max_bytes)
        if not any_file:
            yield from _through_host(backend, plan, columns, max_bytes)

    def _decoded_pieces(self, share: FileShare, max_bytes: int) -> Iterator[Data]:
        backend = self.workspace.backend
        folder_row: Data | None = None
        if len(share.groups.types) < len(share.columns):
            folder_row = backend.from_host(share.folder_row())
        device = current_device()
        with nullcontext() if device is None else device.one_limit():
            yield from self._passes(share, max_bytes, folder_row)

    def _passes(self, share: FileShare, max_bytes: int, folder_row: Data | None) -> Iterator[Data]:
        backend, done = self.workspace.backend, 0
        pieces = backend.read_row_groups(share.groups, self.pass_bytes)
        self._tell(f"decoded on the GPU, about {format_bytes(self.pass_bytes)} at a time")
        while True:
            data, full = _next(share.groups.path, pieces)
            if full or (data is not None and self._is_tight(data.schema, max_bytes // 2)):
                # Pieces of the host are smaller, and nothing is decompressed on the device. A reader holds a page of
                # each column, however small a pass is.
                del data, pieces
                self._tell("the rest by way of host memory, as the GPU had no room to decompress it")
                yield from _through_host(backend, share.rest(done), share.columns, max_bytes)
                return
            if data is None:
                return
            done += data.rows
            if folder_row is not None:
                data = _with_folder(backend, share, data, folder_row)
            yield data
            del data  # before the next is decoded

    def _is_tight(self, schema: Schema, gathered_bytes: int) -> bool:
        """Whether what is decoded could not be taken in, or staged, beside what a reader holds."""
        budget, least = self.workspace.budget, self.limit_bytes // _TAKING_IN_LIMIT
        if schema.variable:  # texts are packed to leave, with what packing takes, and pieces put together before
            slices = 2 * self.workspace.slice_bytes(self.limit_bytes)
            least = max(least, slices + gathered_bytes)
        if budget.remaining_bytes < least:
            self.workspace.spill.flush()  # what is on its way below may have been the reason
        return budget.remaining_bytes < least

    def _tell(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def gathered(backend: Backend, pieces: Iterator[Data], most_bytes: int) -> Iterator[Data]:
    """Pieces of which small ones, as of many small files, are put together while they are of so many bytes at most."""
    small: list[Data] = []
    nbytes = 0
    for piece in pieces:
        if small and (piece.schema != small[0].schema or nbytes + piece.nbytes > most_bytes):
            yield _together(backend, small)
            nbytes = 0
        if piece.nbytes > most_bytes:
            yield piece  # at once: it would be in memory beside the next
        else:
            small.append(piece)
            nbytes += piece.nbytes
        del piece
    if small:
        yield _together(backend, small)


def _together(backend: Backend, small: list[Data]) -> Data:
    """One piece of several, which are let go of."""
    made = small[0] if len(small) == 1 else backend.concat(small)
    small.clear()
    return made


def _next(path: str, pieces: Iterator[Data]) -> tuple[Data | None, bool]:
    """The next piece, None after the last one; and whether the device had no room for it."""
    with reading_parquet(path):
        try:
            return next(pieces, None), False
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
    return None, True


def _through_host(backend: Backend, plan: ParquetPlan, columns: Sequence[str] | None, max_bytes: int) -> Iterator[Data]:
    return map(backend.from_host, read_parquet_chunks(plan, columns=columns, max_bytes=max_bytes))


def _with_folder(backend: Backend, share: FileShare, data: Data, row: Data) -> Data:
    same = backend.take(row, np.zeros(data.rows, np.int32))
    beside = backend.beside([data, same], Schema([*data.schema, *same.schema]))
    return backend.select(beside, share.columns)


def kept(
    backend: Backend, pieces: Iterator[Data], condition: Expression | None, columns: Sequence[str] | None
) -> Iterator[Data]:
    """The rows of pieces of which a condition holds, as `gcylon_lab.formats.row_filters.filtered`.

    What cuDF cannot compute is computed in host memory, where every condition can be.
    """
    if condition is None:
        yield from pieces
        return
    for piece in pieces:
        try:
            some = backend.filter(piece, condition)
        except MemoryError:
            raise
        except Exception:
            yield from map(backend.from_host, filtered(iter([backend.to_host(piece)]), condition, columns))
        else:
            yield some if columns is None else backend.select(some, columns)
            del some
        del piece  # before the next is decoded
