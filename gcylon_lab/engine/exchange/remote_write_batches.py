"""A staged result whose texts are written by kernels: some rows in each turn, whole into memory and from there down.

Packing texts for each rank and round takes far longer than copying them to pinned memory. Where kernels can write all
columns, the rows of a turn travel as those of a result in memory do, and only what has come is packed, once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...backends.protocol.scattering import scatter_bytes
from ...errors import BudgetExceeded
from ...memory.tiers.staging_tier import StagingFile, StagingRegion
from ..exec.operation import Int64s, Operation
from ..exec.remote_write import RemoteWrite
from ..plan.table_stats import TableStats, id_bytes
from ..store.chunk import Chunk, stage
from ..store.part import Part
from ..store.workspace import Workspace
from .rounds import Route, count_rows, exchange_rounds, go_on, meet
from .routes import HashRoute
from .sinks import RemoteWriteSink, StagingSink

# What comes in a turn is there with what is packed of it, by libcudf and into a message, while the turn before leaves:
# of what is free so many times its bytes, where keys are spread evenly.
_COPIES = 3.5
# A turn takes about as long as so many rounds of what is packed.
_ROUNDS_A_TURN = 2


def turns_for(operation: Operation, route: Route, stats: TableStats, rounds: int) -> int:
    """In how many turns a staged result is written, the same on all ranks; 0 where it is not, or packing is as fast.

    Parameters
    ----------
    operation : Operation
    route : Route
    stats : TableStats
    rounds : int
        Of what would be packed.
    """
    may = type(route) is HashRoute and not route.keep_order and operation.schema.variable
    if not (may and operation.is_ready and stats.writable and stats.scatters_rows):
        return 0
    free = min(limit - used for limit, used in zip(stats.limits, stats.used, strict=True))
    evenly = sum(stats.nbytes) / stats.size
    turns = int(np.ceil(_COPIES * evenly / max(free, 1)))
    return turns if 0 < _ROUNDS_A_TURN * turns <= max(rounds, _ROUNDS_A_TURN) else 0


class WrittenTurns:
    """Writes rows and stages them, turn after turn.

    Parameters
    ----------
    operation : Operation
    part : Part
        In memory, of the agreed schema.
    route : HashRoute
    stats : TableStats
    chunk_rows : int
        Of a round, where rows have to be packed after all.
    """

    def __init__(self, operation: Operation, part: Part, route: HashRoute, stats: TableStats, chunk_rows: int) -> None:
        self._operation, self._part, self._route, self._chunk_rows = operation, part, route, chunk_rows
        self._stats = stats
        self._free = np.array(stats.limits) - np.array(stats.used)
        self._used = stats.used[operation.rank]
        self._file: StagingFile | None = None
        self._leaving: list[StagingRegion] = []
        self._chunks: list[Chunk] = []
        self._most = 0

    def run(self, turns: int) -> list[Chunk]:
        """Collective: all ranks call it. Stage all rows in so many turns, or more where keys are not spread evenly.

        Raises
        ------
        BudgetExceeded
            If a turn of one row of each rank does not fit, on all ranks.
        SpillError
            If there is no room below the device tier.
        """
        rows, operation = self._part.rows, self._operation
        for turn in range(turns):
            self._turn(rows * turn // turns, rows * (turn + 1) // turns)
            operation.record.rounds = max(operation.record.rounds_done, turns)
        self._settle()
        operation.workspace.spill.flush()
        if operation.plan is not None:
            rows, nbytes = -(-max(self._stats.rows) // turns), -(-max(self._stats.nbytes) // turns)
            done = operation.record.rounds_done
            operation.plan = replace(operation.plan, rounds=done, chunk_rows=rows, round_bytes=nbytes)
        return self._chunks

    def _turn(self, first: int, last: int) -> None:
        operation, some = self._operation, self._between(first, last)
        route, chunk_rows = self._route.again(), max(1, some.rows)
        rows, _ = count_rows(operation, some, route, chunk_rows)
        written = route.agree_on_writing(operation, some)
        if written is None:  # a rank has no memory for ids, or too many characters come to one
            self._pack(some, route)
            return
        needs, least = self._needs(rows, written), bool(rows.sum(axis=1).max() <= 1)
        sink = self._placed(rows, written) if least or (needs <= self._free).all() else None
        if isinstance(sink, RemoteWriteSink):
            self._predict(int(needs[operation.rank]))
            exchange_rounds(operation, some, route, sink, chunk_rows)
            route.forget()
            self._stage(sink)
            return
        route.forget()
        if sink is not None and least:
            raise sink
        del sink, some
        middle = (first + last) // 2
        self._turn(first, middle)
        self._turn(middle, last)

    def _placed(self, rows: Int64s, written: RemoteWrite) -> RemoteWriteSink | BudgetExceeded:
        """Collective: all ranks call it. Room for what comes, which all know of; the same error on all ranks where one
        has none."""
        operation, sink = self._operation, None
        self._settle()
        try:
            with operation.workspace.memory_named(operation.verb):
                sink = RemoteWriteSink(operation.workspace, operation.schema, rows, operation.rank, written)
            meet(operation, [sink])
            return sink
        except BudgetExceeded as error:
            sink = None  # the error has this frame, and would keep what it holds
            return go_on(operation, error)

    def _needs(self, rows: Int64s, written: RemoteWrite) -> Int64s:
        """What each rank takes: what it gets, with its ids and counts, or with what is packed of it."""
        operation, needs = self._operation, []
        counted = operation.size * (1 + written.chars.shape[2])
        for rank in range(operation.size):
            come, sent = int(rows[:, rank].sum()), int(rows[rank].sum())
            result = written.result_bytes(operation.schema, come, rank)
            ids = sent * id_bytes(operation.size) + scatter_bytes(sent, counted, len(self._part.chunks))
            packed = 2 * max(0, result - come * operation.schema.row_bytes)
            needs.append(result + max(ids, packed))
        return np.array(needs, np.int64)

    def _predict(self, needed: int) -> None:
        self._most = max(self._most, needed)
        self._operation.predict(self._used + self._most)

    def _settle(self) -> None:
        """Wait until what the turn before has brought is down."""
        for region in self._leaving:
            region.wait()
        self._leaving = []
        self._operation.workspace.spill.poll()

    def _stage(self, sink: RemoteWriteSink) -> None:
        workspace = self._operation.workspace
        with self._operation.workspace.memory_named(self._operation.verb):
            self._down(workspace, sink)

    def _down(self, workspace: Workspace, sink: RemoteWriteSink) -> None:
        (chunk,) = sink.finish()
        if not chunk.rows:
            return
        packed = 2 * max(0, chunk.nbytes - chunk.rows * chunk.schema.row_bytes)
        self._file = self._file or workspace.spill.new_file()
        with workspace.budget.reserve(packed, "Packing rows to be staged"):
            data, claim = chunk.give_up()
            staged = stage(workspace, self._file, data, claim)
        self._chunks.append(staged)
        self._leaving.append(staged.region)

    def _pack(self, some: Part, route: HashRoute) -> None:
        """Collective: all ranks call it. As where texts are not written."""
        operation = self._operation
        route.forget()
        route.pack()
        self._settle()
        sink = StagingSink(operation.workspace, operation.schema, keep_order=False)
        exchange_rounds(operation, some, route, sink, self._chunk_rows)
        self._chunks += sink.finish()

    def _between(self, first: int, last: int) -> Part:
        """Some of this rank's rows, in views of its chunks."""
        workspace, chunks, before = self._operation.workspace, [], 0
        for chunk in self._part.chunks:
            start, stop = max(first - before, 0), min(last - before, chunk.rows)
            before += chunk.rows
            if start < stop:
                data = workspace.backend.slice(chunk.data, start, stop)
                chunks.append(Chunk(chunk.schema, data.rows, chunk.nbytes * data.rows // chunk.rows, data=data))
        return Part(workspace, self._part.schema, chunks)
