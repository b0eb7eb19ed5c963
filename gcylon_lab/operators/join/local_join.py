"""Joining the rows of one rank inside the budget: one side indexed, the other looked up in it piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from ...backends.protocol.data import Data
from ...backends.protocol.join_columns import JoinColumns, Output
from ...backends.protocol.joining import KeyIndex, Matches
from ...backends.protocol.key_forms import key_form
from ...backends.protocol.schema import Label, Schema
from ...engine.exchange.buckets import split_in_buckets
from ...engine.exec.local_executor import LocalExecutor
from ...engine.store.chunk import fill_together
from ...engine.store.part import Part
from ...memory.budget import Reservation
from ...profiling import span
from .passes import (
    BUILD_SHARE,
    PIECE_SHARE,
    JoinCosts,
    join_costs,
    looking_up_bytes,
    worth_scattering,
)

_ONLY = {"left": 0, "right": 1}
_BOTH = 2
# Of what is free an index may take one part in so many, to be faster.
_FREE_FOR_FASTER = 16
_PIECE_OF_BUCKET = 0.4


@dataclass(frozen=True, slots=True)
class ProbeBatch:
    """A piece of one side that was looked up: how many rows, how many pairs, or rows of a filter, they make, and in how
    many rows of the other side."""

    rows: int
    pairs: int
    indexed: int = 0


@dataclass(frozen=True, slots=True)
class _Side:
    """Rows of one side for a block of the result; without ``data`` all are missing."""

    data: Data | None
    rows: Any
    lacking: bool = False


class LocalJoin:
    """The join of what one rank has.

    Parameters
    ----------
    work : LocalExecutor
    columns : JoinColumns
    build : str
        The side that is indexed.
    schemas : dict of str to Schema
        Of each side, agreed.
    """

    def __init__(self, work: LocalExecutor, columns: JoinColumns, build: str, schemas: dict[str, Schema]) -> None:
        self.work, self.columns, self.spec = work, columns, columns.spec
        self.build, self.probe = build, "left" if build == "right" else "right"
        self.keys: dict[str, tuple[Label, ...]] = {"left": self.spec.left_on, "right": self.spec.right_on}
        self.key_schemas = {side: schemas[side].select(self.keys[side]) for side in schemas}
        self.schemas = schemas
        self.missing = {"left": False, "right": False}
        self.result = work.new_result(columns.schema(False, False))
        # Rows of dtypes that have room for what is missing are wider; but for what is then a variable column.
        self._fixed_row_bytes = max(columns.schema(lacks, lacks).row_bytes for lacks in (False, True))
        self._layout = cache(lambda lacking: _layout(columns, dict(lacking)))  # of each kind of block one
        self._room, self._out_row_bytes, self._looked, self._index_bytes = work.room(), 1.0, False, 0
        self._in_buckets = False
        self._counting = False  # rows are looked up, and none is made
        self.coming_bytes = 0  # of the result, which are left free for it
        self.apart = work.operation.size  # into how many the hash of keys has told rows apart before
        keeps = {"left": ("left",), "right": ("right",), "outer": ("left", "right")}.get(self.spec.how, ())
        self._keep_probe, self._keep_build = self.probe in keeps, self.build in keeps

    # ---- sizes

    def build_bytes(self, part: Part) -> int:
        """What it takes to index a part: the index, and its rows where they have to be read or joined."""
        return int(part.rows * self._build_row_bytes(part))

    def _build_row_bytes(self, part: Part) -> float:
        return max(1.0, self.work.backend.index_row_bytes(self.key_schemas[self.build]) + _loading(part))

    def out_row_bytes(self, left: Part, right: Part) -> float:
        """About the bytes of a row of the result."""
        sides = {"left": left, "right": right}
        shown = [sides[side] for side in self.columns.variable_sides]
        return self._fixed_row_bytes + sum(max(0.0, _row_bytes(part) - part.schema.row_bytes) for part in shown)

    def costs(self, left_bytes: int, left_rows: int, right_bytes: int, right_rows: int, limit: int) -> JoinCosts:
        """What all ranks take the work for, where both sides have so many bytes and rows on all of them."""
        backend, config = self.work.backend, self.work.operation.config
        row = {"left": left_bytes / max(left_rows, 1), "right": right_bytes / max(right_rows, 1)}
        variable = {side: max(0.0, n - self.schemas[side].row_bytes) for side, n in row.items()}
        out = self._fixed_row_bytes + sum(variable[side] for side in self.columns.variable_sides)
        index = 0.0
        if self.spec.how != "cross":
            keys = self.key_schemas[self.build]
            index = backend.index_row_bytes(keys) + 2 * variable[self.build] * bool(keys.variable)
            if variable[self.build] and backend.on_gpu:
                index += row[self.build]  # they come as several chunks, which are joined
        match, fast = backend.match_row_bytes(self.key_schemas[self.probe]), self.work.fast_chunk_bytes
        scatters = self.work.workspace.scatters and not any(schema.variable for schema in self.schemas.values())
        sides = ((left_bytes, left_rows), (right_bytes, right_rows))
        scatters = scatters and worth_scattering(self.work.operation.size, sides)
        return join_costs(index, match, backend.pair_bytes(), out, config, fast, limit, scatters=scatters)

    # ---- the join

    def run(self, left: Part, right: Part, buckets: int) -> Iterator[ProbeBatch]:
        """Join two parts into `result`; gives how many pairs each piece makes before they are made.

        Where there are several buckets, both sides are split by the hash of their keys first.
        """
        self._out_row_bytes = self.out_row_bytes(left, right)
        if buckets == 1:
            yield from self._join(left, right)
            return
        self._in_buckets = True
        pairs = self.split(left, right, buckets)
        while pairs:
            one, other = pairs.pop(0)
            yield from self._join(one, other)
            self.work.forget(one)
            self.work.forget(other)

    def count(self, left: Part, right: Part) -> int:
        """How many rows the result of two parts has, which are not made; exactly, but for rows of an indexed side that
        nobody looks up: of these all are counted."""
        self._counting, rows = True, 0
        try:
            for looked in self._join(left, right):
                rows += looked.pairs
        finally:
            self._counting = False
        build, probe = (left, right) if self.build == "left" else (right, left)
        if self.spec.filters:
            return min(left.rows, rows if self._filters_probe else left.rows)
        return rows + build.rows * self._keep_build + probe.rows * self._keep_probe

    def enough(self, left: Part, right: Part, result_bytes: int, rows: int, used_bytes: int) -> int:
        """A limit under which a result of so many bytes and rows is held, with so much in use beside both sides."""
        build, probe = (left, right) if self.build == "left" else (right, left)
        looking_up = probe.rows * (self.work.backend.match_row_bytes(self.key_schemas[self.probe]) + _loading(probe))
        held = 0 if self.spec.filters or self.spec.how == "cross" else rows * self.work.backend.held_pair_bytes()
        fixed = used_bytes + self.build_bytes(build) + result_bytes + self.block_bytes(rows) + held
        longest = left.widest_row_bytes(self.work.workspace) + right.widest_row_bytes(self.work.workspace)
        return int(fixed + min(looking_up, fixed / (PIECE_SHARE - 1)) + 2 * longest) + 1

    def split(self, left: Part, right: Part, buckets: int) -> list[tuple[Part, Part]]:
        """Both sides in buckets of equal keys."""
        made = self.work.made
        halves = [
            split_in_buckets(
                self.work, part, self.keys[side], buckets, apart=self.apart, using_up=any(part is one for one in made)
            )
            for side, part in (("left", left), ("right", right))
        ]
        return list(zip(*halves, strict=True))

    def _join(self, left: Part, right: Part) -> Iterator[ProbeBatch]:
        build, probe = (left, right) if self.build == "left" else (right, left)
        self._room, self._index_bytes = max(1, self.work.room() - self.coming_bytes), 0
        blocks = 0
        found: Any = None
        with self.work.claim(0) as masks:
            for block in self._blocks(build, probe):
                whole, blocks = block.rows == build.rows, blocks + 1
                if not whole and found is None and (self._keep_probe or self._filters_probe):
                    masks.resize(probe.rows)
                    found = self.work.backend.no_places(probe.rows)
                yield from self._with_block(block, probe, found, whole=whole)
            if (found is not None or not blocks) and (self._keep_probe or self._filters_probe):
                self._finish_probe(probe, found)

    @property
    def _filters_probe(self) -> bool:
        return self.spec.filters and self.probe == "left"

    def _blocks(self, build: Part, probe: Part) -> Iterator[Data]:
        # Beside an index the largest chunk of either side is read back, and looked up.
        left = self._room - build.largest_staged_bytes - probe.largest_staged_bytes
        room = min(self._room / BUILD_SHARE, left - left / PIECE_SHARE)
        return self.work.pieces(build, build.schema, max(1, int(room / self._build_row_bytes(build))))

    def _with_block(self, block: Data, probe: Part, found: Any, *, whole: bool) -> Iterator[ProbeBatch]:
        """Join the other side with some rows of the indexed one: of all its rows, where they fit."""
        backend, first = self.work.backend, 0
        with self.work.claim(0) as held:
            index = self._index(block, probe.rows, held)
            rows = self._piece_rows(probe, anew=index is None or not index.hashed_once)
            for piece in self.work.pieces(probe, probe.schema, rows):
                waiting = [piece]
                del piece
                while waiting:
                    some = waiting.pop()
                    try:
                        matches, claim = self._looked_up(index, block, some, keep=whole and self._keep_probe)
                    except self.work.workspace.out_of_memory:
                        if some.rows <= 1:
                            if not self.work.evict_all():
                                raise
                            waiting.append(some)
                            continue
                        half = some.rows // 2
                        waiting += [backend.slice(some, half, some.rows), backend.slice(some, 0, half)]
                        continue
                    with claim:
                        yield ProbeBatch(some.rows, self._rows_made(matches, index, block), block.rows)
                        self._looked = True
                        if found is not None:
                            found[first : first + some.rows] |= matches.found
                        if not self.spec.filters:
                            self._emit_pairs(matches, some, block)
                        elif self._filters_probe and whole:
                            self._emit_filtered(some, matches.found)
                    first += some.rows
                    del some, matches
            if index is not None and (self._keep_build or self.spec.filters and self.build == "left"):
                self._emit_build(index, block)

    def _looked_up(self, index: KeyIndex | None, block: Data, some: Data, *, keep: bool) -> tuple[Matches, Reservation]:
        """The pairs of some rows, and a claim on what they take: nobody knows before how many there are."""
        need = int(some.rows * self.work.backend.match_row_bytes(self.key_schemas[self.probe]))
        claim = self.work.claim(need + self._emitted_bytes(1))  # else it leaves no room for a row of the result
        claim.resize(need)
        try:
            matches = self._match(index, block, some, keep=keep)
            held = int(getattr(matches, "held_bytes", 0))
            if held > self.work.workspace.budget.remaining_bytes:
                self.work.evict(held)
            claim.resize(claim.nbytes + held)
        except self.work.workspace.out_of_memory:
            claim.release()
            raise
        return matches, claim

    def _rows_made(self, matches: Matches, index: KeyIndex | None, block: Data) -> int:
        """How many rows of the result a piece stands for: its pairs, or of a filter the rows that it says are kept."""
        if not self.spec.filters:
            return matches.pairs
        if self._filters_probe:
            found = int(matches.found.sum())
            return found if self.spec.how == "semi" else len(matches.found) - found
        if self._looked or index is None:
            return 0  # only what the first piece says is asked for
        unseen = len(index.unseen())
        return block.rows - unseen if self.spec.how == "semi" else unseen

    def _index(self, block: Data, looked_up: int, held: Any) -> KeyIndex | None:
        if self.spec.how == "cross":
            return None
        backend = self.work.backend
        keys = backend.select(block, self.keys[self.build])
        need = backend.index_bytes(keys)
        if need > self.work.workspace.budget.remaining_bytes:
            self.work.evict(need)
        more = backend.faster_index_bytes(keys, looked_up)
        if (need + more) * _FREE_FOR_FASTER > self.work.workspace.budget.remaining_bytes:
            more = 0
        held.resize(need + more)
        self._index_bytes = need + more
        with span("index", "algorithm", bytes=keys.nbytes):
            return backend.key_index(keys, self.columns.forms, more)

    def _match(self, index: KeyIndex | None, block: Data, piece: Data, *, keep: bool) -> Matches:
        backend = self.work.backend
        if index is None:
            return backend.crossing(piece.rows, block.rows)
        keys = backend.select(piece, self.keys[self.probe])
        mark = self._keep_build or (self.spec.filters and self.build == "left")
        with span("match", "algorithm", bytes=keys.nbytes):
            return index.match(keys, keep=keep, mark=mark)

    def _piece_rows(self, probe: Part, *, anew: bool = True) -> int:
        # As many as fit, if each piece goes through the whole index; if not, chunks are not joined.
        backend, loading = self.work.backend, _loading(probe)
        most = looking_up_bytes(self._room, self._index_bytes, hashes_anew=backend.on_gpu)
        if self._in_buckets and not backend.on_gpu:  # of small indexes: beside a piece stands the block that it makes
            most = max(most, (self._room - self._index_bytes) * _PIECE_OF_BUCKET)
        rows = most / (backend.match_row_bytes(self.key_schemas[self.probe]) + loading)
        if loading and not anew and (backend.on_gpu or not self._in_buckets):
            rows = min(rows, self.work.fast_chunk_bytes / loading)
        return max(1, int(rows))

    # ---- rows of the result

    def _emit_pairs(self, matches: Matches, piece: Data, block: Data) -> None:
        def some(start: int, stop: int) -> Data:
            probe, build = matches.rows(start, stop)
            return self._assembled({self.probe: _Side(piece, probe), self.build: _Side(block, build, matches.lacking)})

        self._emit(matches.pairs, some)

    def _emit_filtered(self, piece: Data, found: Any) -> None:
        """Rows of the left side that have a partner, or none."""
        places = self.work.backend.places(found if self.spec.how == "semi" else ~found)
        self._emit_alone(self.probe, piece, places)

    def _emit_build(self, index: KeyIndex, block: Data) -> None:
        """Rows of the indexed side that nobody has looked up; of a semi join the others."""
        backend, rows = self.work.backend, index.unseen()
        if self.spec.how == "semi":
            seen = ~backend.no_places(block.rows)
            seen[rows] = False
            rows = backend.places(seen)
        self._emit_alone(self.build, block, rows)

    def _finish_probe(self, probe: Part, found: Any) -> None:
        """Rows that were looked up in several blocks, or for which there was none."""
        first, backend = 0, self.work.backend
        for piece in self.work.pieces(probe, probe.schema, self._piece_rows(probe)):
            mask = backend.no_places(piece.rows) if found is None else found[first : first + piece.rows]
            first += piece.rows
            if self.spec.filters:
                self._emit_filtered(piece, mask)
            else:
                self._emit_alone(self.probe, piece, backend.places(~mask))
            del piece  # before the next one is read back

    def _emit_alone(self, side: str, data: Data, rows: Any) -> None:
        other = "left" if side == "right" else "right"

        def some(start: int, stop: int) -> Data:
            chosen = rows[start:stop]
            sides = {side: _Side(data, chosen)}
            if not self.spec.filters:
                sides[other] = _Side(None, chosen, lacking=True)
            return self._assembled(sides)

        self._emit(len(rows), some)

    def _emit(self, count: int, some: Callable[[int, int], Data]) -> None:
        """Make rows of the result block by block; where one does not fit, its halves."""
        if self._counting:
            return
        step = self._block_rows()
        waiting = [(start, min(start + step, count)) for start in range(0, count, step)][::-1]
        while waiting:
            start, stop = waiting.pop()
            if not self._emitted(start, stop, some):
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]

    def _emitted(self, start: int, stop: int, some: Callable[[int, int], Data]) -> bool:
        claim = None
        try:
            claim = self.work.claim(self._emitted_bytes(stop - start))
            with span("gather", "algorithm") as making:
                data = some(start, stop)
                making.bytes = data.nbytes
            self.work.keep(self.result, data, claim)
        except self.work.workspace.out_of_memory:
            if claim is not None:
                claim.release()
            if stop - start <= 1 and not self.work.evict_all():
                raise
            return False
        return True

    def _emitted_bytes(self, rows: int) -> int:
        return int(rows * (self.work.backend.pair_bytes() + 2 * self._out_row_bytes))

    def block_bytes(self, pairs: int, *, held: bool = True) -> int:
        """What a block of the result takes: beside what is held of it, or with its own rows where nothing is."""
        return int(min(pairs, self._block_rows()) * (self.work.backend.pair_bytes() + self._out_row_bytes * (2 - held)))

    def _block_rows(self) -> int:
        wished = 2 * self.work.piece_rows(self._out_row_bytes, 0)
        return max(1, min(wished, int(self._room / PIECE_SHARE / max(self._emitted_bytes(1), 1))))

    def _assembled(self, sides: dict[str, _Side]) -> Data:
        """One block: rows of both sides beside each other."""
        backend = self.work.backend
        layout = self._layout(tuple((side, one.lacking) for side, one in sides.items()))
        complete = layout.complete
        rows = sides[complete].rows
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        parts: list[Data] = []
        for side, one in sides.items():
            self.missing[side] |= one.lacking
            names, wanted = layout.taken[side]
            if one.data is None:
                parts.append(backend.lacking(wanted, count))
            elif names:
                parts.append(backend.gather(one.data, names, one.rows, wanted, complete=not one.lacking))
        if self.spec.indicator:
            parts.append(self._indicated(sides, complete, count))
        if not parts:
            parts.append(backend.lacking(Schema(()), count))  # two tables without columns: only rows to count
        return backend.beside(parts, layout.schema)

    def _indicated(self, sides: dict[str, _Side], complete: str, count: int) -> Data:
        column = self.columns.outputs[-1].column
        other = next(one for side, one in sides.items() if side != complete)
        if other.data is None:
            return self.work.backend.constant(column, _ONLY[complete], count)
        if not other.lacking:
            return self.work.backend.constant(column, _BOTH, count)
        return self.work.backend.by_presence(column, other.rows, _BOTH, _ONLY[complete])

    # ---- keys that must be distinct

    def duplicates(self, part: Part, side: str) -> int:
        """Rows of a part whose key another row has too; at least so many, where the part does not fit at once."""
        backend, names, schema = self.work.backend, self.keys[side], self.key_schemas[side]
        forms = tuple(key_form(column, column) for column in schema)
        row_bytes = backend.index_row_bytes(schema) + backend.match_row_bytes(schema) + _loading(part)
        rows = max(1, int(self.work.room() / BUILD_SHARE / row_bytes))
        first = 0
        for block in self.work.pieces(part, part.schema, rows):
            first += block.rows
            with self.work.claim(block.rows * (backend.index_row_bytes(schema) + backend.match_row_bytes(schema))):
                index = backend.key_index(backend.select(block, names), forms)
                found = index.duplicates or self._repeated_later(index, part, names, first, rows)
            if found:
                return found
        return 0

    def _repeated_later(self, index: KeyIndex, part: Part, names: tuple[Label, ...], after: int, rows: int) -> int:
        """Rows from ``after`` on whose key an index has."""
        backend, first = self.work.backend, 0
        for piece in self.work.pieces(part, part.schema, rows) if after < part.rows else ():
            first += piece.rows
            if first > after:
                rest = backend.slice(piece, max(0, piece.rows - (first - after)), piece.rows)
                matches = index.match(backend.select(rest, names), keep=False, mark=False)
                if matches.pairs:
                    return matches.pairs
                del rest, matches
            del piece  # before the next one is read back
        return 0


def _row_bytes(part: Part) -> float:
    return part.nbytes / max(part.rows, 1)


def _loading(part: Part) -> float:
    """Bytes a row to have a part's rows at hand: nothing where they are one chunk in memory."""
    alone = len(part.chunks) == 1 and part.chunks[0].tier == "device" and part.chunks[0].schema == part.schema
    if alone:
        return 0.0
    filled = bool(part.chunks) and fill_together(part.chunks, part.schema.names)
    return _row_bytes(part) * (2 if part.staged_bytes and not filled else 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a block.

    Attributes
    ----------
    schema : Schema
    complete : str
        A side of which no row is missing: keys are of that.
    taken : dict of str to (list of label, Schema)
        What is taken from each side, and as which columns.
    """

    schema: Schema
    complete: str
    taken: dict[str, tuple[list[Label], Schema]]


def _layout(columns: JoinColumns, lacking: Mapping[str, bool]) -> Layout:
    """The layout of a block of these sides, where rows of some may be missing."""
    schema = columns.schema(lacking.get("left", False), lacking.get("right", False))
    order = ("right", "left") if columns.spec.how == "right" else ("left", "right")
    complete = next(side for side in order if side in lacking and not lacking[side])
    taken: dict[str, tuple[list[Label], Schema]] = {}
    for side in lacking:
        outputs = [o for o in columns.outputs if o.side == side or (o.side == "key" and side == complete)]
        taken[side] = [_source(o, side) for o in outputs], Schema([schema[o.column.name] for o in outputs])
    return Layout(schema, complete, taken)


def _source(output: Output, side: str) -> Label:
    return cast(Label, output.left if side == "left" else output.right)
