"""The frame of every verb: open together, keep one config, tell errors, close together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...backends.host.column_buffers import can_write
from ...backends.protocol.data import Data
from ...backends.protocol.promotion import agree_schemas
from ...backends.protocol.schema import Schema
from ...config import GcylonConfig
from ...errors import BudgetExceeded, ConfigError, GcylonError, RanksDisagree
from ...memory.budget import Reservation
from ...profiling import OperationRecord
from ...urls import without_secrets
from ..plan.costs import Pieces, all_staged, costs_of, expected_results, never_fits, room_wanted, surely_enough
from ..plan.minimum_limit import advise, minimum_limit
from ..plan.plan import Plan, make_plan
from ..plan.table_stats import VERBS, TableStats, after_cutting
from ..store.aliasing import claimed_bytes
from ..store.views import ShownPart
from ..store.workspace import Evictable, Workspace
from .agreement import AgreementKind, Agreements, agreed
from .invocation import Request, digest
from .remote_write import has_missing, null_columns

Int64s = npt.NDArray[np.int64]

# Verbs, beside those of `TableStats`, of which whole rows travel, or what is as wide.
SHUFFLING = ("drop_duplicates", "groupby", "join")
_TOLD = 10  # numbers of `Operation._told`


class Operation:
    """A running verb on this rank."""

    def __init__(self, workspace: Workspace, request: Request, record: OperationRecord) -> None:
        self.workspace = workspace
        self.request = request
        self.record = record
        self.verb, self.options = request.verb, request.options
        self.rank = workspace.transport.rank
        self.size = workspace.transport.size
        self.rounds_left = 0
        self.exchanged = False  # whether the last agreement of an exchange is made, so that none tells its errors
        self._agreements = Agreements(workspace.transport, record.number, request.text)
        self.schema: Schema = request.part.schema
        self.config: GcylonConfig = workspace.config
        self.limits: tuple[int, ...] = ()
        self._sizes: Int64s = np.zeros((self.size, 5), dtype=np.int64)
        self._widest: tuple[int, ...] = (0,) * self.size
        self._memory: Int64s = np.zeros((self.size, 4), dtype=np.int64)
        self._ready = self._writable = False  # whether chunks have the dtypes they are sent in, and kernels write them
        self._null_columns = 0  # that lack values, as far as kernels write them
        self.lacking: list[bool] | None = None  # see `has_missing`
        self._held: tuple[int, ...] = ()  # bytes of each rank's input that a larger limit would let stay in memory
        self._in_vain = False  # whether nothing was staged, as the plan will be refused whatever is evicted
        self._opened, self._memory_told = 0, np.zeros((self.size, 2), np.int64)  # agreements by then; limits and use
        self.other: tuple[Schema, Int64s] | None = None  # of the next input: its schema, and each rank's rows and bytes
        self.plan: Plan | None = None
        self._planned: TableStats | None = None
        self._results: tuple[int, ...] = ()
        self._pieces: Pieces | None = None
        self._rounds_before = 0  # this exchange
        self._most_coming = -1  # that an agreement has told of a round; -1 before the first
        self.largest_piece_percent = 100  # of the first piece of this rank's rows
        self.at_least = 0  # a limit that the operation needs, as far as that is known: the same on all ranks
        self._before_peak = 0  # that was predicted of steps before the exchange
        # Exchanges as they were planned last: each has a key of its own, and no more of it is kept.
        self.exchanges: dict[int, tuple[TableStats, str, tuple[int, ...]]] = {}
        self._exchange = 0
        # What a plan says beside its numbers: steps taken, or left out. The same on all ranks.
        self.notes: list[str] = []
        # Claims on what the last round sent, where an exchange goes on after it has returned.
        self.in_flight: list[Reservation] = []

    @property
    def overlaps(self) -> bool:
        """Whether a round is complete only after the next agreement."""
        return self.workspace.transport.completes_in_finish

    @property
    def may_stage(self) -> bool:
        """Whether the agreed config lets chunks leave the device tier."""
        return self.config.may_stage(pinned_tier=self.workspace.has_pinned_tier)

    @property
    def is_ready(self) -> bool:
        """Whether all ranks' rows are in memory as they will be sent, so that chunks need not be joined for it."""
        return self._ready and not self._sizes[:, 2].any() and not self._memory[:, 1].any()

    @property
    def writes_variable(self) -> bool:
        """Whether kernels write the variable columns of the exchange that was planned, as far as it was known then."""
        stats = self._planned
        return stats is not None and stats.scatters_rows and stats.writable and bool(self.schema.variable)

    def agree(self, kind: AgreementKind, numbers: Sequence[int] | Int64s = (), *, completes: bool = True) -> Int64s:
        """Collective: all ranks call it. See `Agreements.cast`."""
        return self._agreements.agree(kind, numbers, completes=completes)

    def release_when_sent(self, reservation: Reservation) -> None:
        """Release the claim on what a round sends, as soon as that may be changed."""
        if self.overlaps:
            self.in_flight.append(reservation)
        else:
            reservation.release()

    def settle(self) -> None:
        """Wait until what this rank has sent may be changed, and release the claims on it."""
        self.workspace.transport.drain()
        self.release_sent()

    def release_sent(self) -> None:
        """Release the claims on what the last round sent: sent, or failed, whoever still refers to this operation."""
        for reservation in self.in_flight:
            reservation.release()
        self.in_flight.clear()

    def open(self) -> None:
        """Collective: all ranks call it. Agree on verb, arguments, config and schema, and learn all sizes.

        Raises
        ------
        RanksDisagree
            If arguments differ, showing each rank's.
        SchemaMismatch, ColumnMissing
            If the parts cannot be brought to one schema.
        ConfigError
            If the config asks for more than the ceiling.
        """
        part, workspace = self.request.part, self.workspace
        self.options.check()
        workspace.transport.set_deadline(self.options.timeout_s)
        if self.request.check is not None:
            self.request.check()
        local = self.options.config or workspace.config
        self._return_evicted(local)
        other = self.request.others[0] if self.request.others else None
        second = () if other is None else (other.schema.digest(), other.rows, other.nbytes)
        answers = self.agree(
            AgreementKind.OPENING,
            (digest(self.request.text()), digest(local.as_code()), part.schema.digest(), *self._told(local), *second),
        )
        self._agree_arguments(answers[:, 0])
        self._agree_config(answers[:, 1], local)
        workspace.spill.follow(self.config)
        self._learn(answers[:, 2 : 3 + _TOLD])
        self._held = tuple((self._sizes[:, 1] - self._sizes[:, 2]).tolist())
        if (answers[:, 1] != answers[0, 1]).any():  # limits are not those of the config that holds
            self._opened = -1
        if other is not None:
            more = answers[:, 3 + _TOLD :]
            self.other = self._agree_schema(other.schema, more[:, 0], more[:, 1]), more[:, 1:3]

    def _told(self, config: GcylonConfig) -> tuple[int, ...]:
        """What this rank tells of its rows, and of its limit and what is in use: -1 where only `make_room` can tell."""
        part, workspace, nulls, ready = self.request.part, self.workspace, -1, False
        if self.verb == "shuffle" and workspace.scatters:  # else chunks are not looked at
            self.lacking, ready = has_missing(workspace, part), part.is_ready(part.schema)
            nulls = null_columns(self.lacking)
        try:
            limit = workspace.limit_for(config)
            used = -1 if workspace.spill.poll() or part.evictions else workspace.budget.used_bytes
        except ConfigError:
            limit, used = 0, -1
        return (
            part.rows, part.nbytes, part.staged_bytes, part.largest_staged_bytes, len(part.chunks),
            nulls, ready,
            part.widest_row_bytes(workspace) if self.verb in VERBS or self.verb in SHUFFLING else 0,
            limit, used,
        )  # fmt: skip

    def _learn(self, answers: Int64s) -> None:
        """Bring schemas to one, and keep what ranks have told: the digest of their schema, and `_told`."""
        digests, told = answers[:, 0], answers[:, 1:]
        self.schema = self._agree_schema(self.request.part.schema, digests, told[:, 0])
        self._sizes, self._widest = told[:, :5], tuple(told[:, 7].tolist())
        self._opened, self._memory_told = self._agreements.count, told[:, 8:10]
        rows_there = told[:, 0] > 0
        nulls, ready = told[rows_there, 5], told[rows_there, 6]
        # What a rank without rows holds may have changed what was agreed, such as labels.
        self._ready = bool(ready.all()) and bool((digests[rows_there] == self.schema.digest()).all())
        self._writable = self._ready and can_write(self.schema) and bool((nulls >= 0).all())
        self._null_columns = int(nulls.max(initial=0)) if self._writable else 0

    def _return_evicted(self, config: GcylonConfig) -> None:
        """Before sizes are told: what another operation's own limit has staged of the inputs comes back."""
        if self.verb.startswith("plan_"):
            return  # nothing changes by a plan
        parts = [part for part in (self.request.part, *self.request.others) if part.evictions]
        if not parts:
            return
        try:
            limit = self.workspace.limit_for(config)
        except ConfigError:
            return  # `make_room` tells it
        for part in parts:
            part.return_evicted(self.workspace, limit)
        self.workspace.budget.start_window()  # of which this is no part

    def make_room(self, **more: Any) -> None:
        """Collective: all ranks call it. Stage what is not in use, if the plan needs its memory; learn what is free.

        Parameters
        ----------
        **more
            What `TableStats` needs for this verb: root, target_rows.

        Raises
        ------
        ConfigError
            If the config asks for more than this rank's ceiling.
        SpillError
            If staging fails.
        """
        workspace, part = self.workspace, self.request.part
        limit, used = workspace.limit_for(self.config), 0
        if self._has_room(more):
            workspace.budget.start_window()
            workspace.budget.renew_limit()
            self.record.used_before_bytes = workspace.budget.used_bytes
            return
        if self.may_stage:
            stats = after_cutting(self._stats((0,) * self.size, (limit,) * self.size, more))
            self._in_vain = self._never_fits(stats)
            if self._in_vain:
                used -= claimed_bytes(self.is_evictable())  # what the advice counts with
            else:
                self._evict(stats, limit)
                part.cut(workspace)
            workspace.budget.start_window()  # tables of before may have been in the way until now
        workspace.spill.flush()  # of operations before, what nobody waited for
        workspace.budget.renew_limit()
        self.record.used_before_bytes = workspace.budget.used_bytes
        used = max(0, used + workspace.budget.used_bytes)
        # Ceilings may differ from rank to rank, and so does what could be staged.
        chunks = (part.staged_bytes, part.largest_staged_bytes, len(part.chunks))
        held = part.device_bytes + sum(chunk.nbytes for slices in part.evictions.values() for chunk in slices)
        answers = self.agree(AgreementKind.OPENING, (limit, used, *chunks, held))
        self.limits = tuple(answers[:, 0].tolist())
        self._memory, self._held = answers[:, 1:5], tuple(answers[:, 5].tolist())

    def _has_room(self, more: dict[str, Any]) -> bool:
        """Whether no rank has to stage anything, as all know since the opening: then there is nothing to agree on."""
        told = self._memory_told
        if self._opened != self._agreements.count or self._sizes[:, 2].any() or (told[:, 1] < 0).any():
            return False
        limits, used = (tuple(column) for column in told.T.tolist())
        enough = surely_enough(self._stats(used, limits, more))
        if any(in_use + enough > limit for limit, in_use in zip(limits, used, strict=True)):
            return False
        self.limits, self._held = limits, tuple(self._sizes[:, 1].tolist())
        self._memory = np.column_stack((told[:, 1], self._sizes[:, 2:5]))
        return True

    def _never_fits(self, stats: TableStats) -> bool:
        """Collective: all ranks call it. Whether some rank would refuse, whatever gave way: then nothing does."""
        if self.options.strategy not in ("direct", "chunked"):
            return False
        never = never_fits(stats, self.options.strategy)
        return bool(self.agree(AgreementKind.OPENING, (int(never[self.rank]),))[:, 0].any())

    def _evict(self, stats: TableStats, limit: int) -> None:
        """Stage what is not in use, and the input where there is no other way."""
        workspace = self.workspace
        if not any(stats.staged_bytes) and workspace.budget.used_bytes + surely_enough(stats) <= limit:
            return
        wanted = room_wanted(stats, self.config, self.options.strategy)[self.rank]
        workspace.make_room(wanted.all, limit, self.not_in_use())
        if workspace.budget.used_bytes + wanted.here > limit:
            workspace.make_room(wanted.least, limit, [self.request.part], with_views=True)

    def is_evictable(self) -> list[Evictable]:
        """Parts on this rank that could be staged to make room: the input, and what is no input."""
        part = self.request.part
        return [*self.not_in_use(), *(part.behind if isinstance(part, ShownPart) else (part,))]

    def not_in_use(self) -> list[Evictable]:
        """Parts on this rank that are no input of this operation."""
        used = (self.request.part, *self.request.others)
        return [part for part in self.workspace.parts if not any(part is one for one in used)]

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the input on each rank."""
        return tuple(int(n) for n in self._sizes[:, 0])

    @property
    def input_sizes(self) -> Int64s:
        """Rows and bytes of the input on each rank; shape (size, 2)."""
        return self._sizes[:, :2]

    @property
    def evicted_bytes(self) -> int:
        """Bytes of the input that were staged since this was opened: under a larger limit they may stay."""
        return max(0, self.request.part.staged_bytes - int(self._sizes[self.rank, 2]))

    def stats(self, **more: Any) -> TableStats:
        """Collective: all ranks call it. Make room, and return the sizes that all ranks know then."""
        self.make_room(**more)
        used, staged, largest, chunks = map(tuple, self._memory.T.tolist())
        stats = self._stats(used, self.limits, more)
        stats = replace(stats, staged_bytes=staged, largest_staged_bytes=largest, chunks=chunks)
        return replace(all_staged(stats), in_vain=True) if self._in_vain else stats

    def _stats(self, used: tuple[int, ...], limits: tuple[int, ...], more: dict[str, Any]) -> TableStats:
        rows, nbytes, staged, largest, chunks = map(tuple, self._sizes.T.tolist())
        row_bytes, texts = self.schema.row_bytes, len(self.schema.texts)
        known = self.workspace.exchange_shapes() | more | {"columns": len(self.schema.columns), "texts": texts}
        known |= {
            "writable": self._writable,
            "null_columns": self._null_columns,
            "ready": self._ready,
            "fixed": not self.schema.variable,
            "widest_bytes": self._widest,
        }
        known.setdefault("verb", self.verb)
        return TableStats(known.pop("verb"), rows, nbytes, staged, largest, chunks, used, limits, row_bytes, **known)

    def make_plan(
        self, stats: TableStats, counted: tuple[int, ...] | None = None, strategy: str | None = None, **how: Any
    ) -> Plan:
        """Plan, the same on all ranks; an error is raised by all alike and not told again."""
        try:
            strategy, pinned = strategy or self.options.strategy, self.workspace.has_pinned_tier
            plan = make_plan(stats, self.config, strategy, counted_results=counted, pinned_tier=pinned, **how)
        except GcylonError as error:
            if isinstance(error, BudgetExceeded):
                if counted is not None:
                    self.need_results(stats, counted)
                self.advise(error)
            raise agreed(error) from None
        self.plan, self._planned = plan, stats
        self._results = expected_results(stats) if counted is None else counted
        self.exchanges[self._exchange] = stats, plan.strategy, self._results
        record = self.record
        record.strategy, record.reason, record.rounds = plan.strategy, plan.reason, plan.rounds
        record.predict(plan.predicted_peaks[self.rank], before=self._before_peak)
        record.budget_bytes = self.limits[self.rank]
        return plan

    def see_pieces(self) -> None:
        """Predict again with the pieces in which this rank's rows will travel: rows may be of unlike lengths."""
        plan, part, stats, self._most_coming = self.plan, self.request.part, self._planned, -1
        if plan is None or stats is None:
            return
        alike = not self.schema.variable and not stats.staged_bytes[self.rank] and plan.strategy != "staged"
        if alike and len({chunk.rows for chunk in part.chunks}) <= 1:
            return  # each row takes the same, none is read back, what comes is held, chunks are alike: all is planned
        if any(chunk.schema != self.schema for chunk in part.chunks):
            return
        sizes = part.piece_sizes(self.workspace, plan.chunk_rows) if stats.sent_rows[self.rank] else ()
        self._pieces = Pieces(*np.array(list(sizes), np.float64).reshape(-1, 4).T)
        self.largest_piece_percent = self._pieces.largest_percent
        self._predict_pieces(None)

    def see_needs(self, needs: Int64s) -> None:
        """Predict again once an agreement has told what its round brings to each rank, where that is more than before:
        the first one, and where ranks send to one after the other, later ones."""
        coming, most = int(needs[self.rank]), self._most_coming
        first = self.record.rounds_done == self._rounds_before
        if self.plan is not None and self.plan.strategy == "staged" and (first or coming > most >= 0):
            self._most_coming = coming
            self._predict_pieces(float(coming))

    def _predict_pieces(self, incoming_bytes: float | None) -> None:
        plan, stats, rank = self.plan, self._planned, self.rank
        if plan is None or stats is None or self._pieces is None:
            return
        costs = costs_of(stats, plan.strategy, self._results)
        result = 0 if plan.strategy == "staged" else self._results[rank] + costs.kept[rank]
        peak = stats.used[rank] + result + costs.of_pieces(rank, self._pieces, plan.rounds, incoming_bytes)
        self.predict(min(peak, self.limits[rank]))

    @property
    def stages(self) -> bool:
        """Whether whatever may be evicted for the operation is staged for it."""
        return self.may_stage and self.options.strategy in ("auto", "staged")

    def advise(self, error: BudgetExceeded) -> None:
        """Let an error advise a limit under which all that is known of this operation works."""
        advise(error, self.enough(), stages=self.stages, at_least=self.at_least)

    def enough(self) -> int:
        """A limit under which exchanges work that were planned, or the one that is to come; 0 where there is none.

        It is the same on all ranks.
        """
        exchanges = list(self.exchanges.values())
        if (self.verb in SHUFFLING or not self.stages) and self._sizes.any():
            limits = (self.workspace.limit_for(self.config),) * self.size
            used = (0,) * self.size if self.stages else self._held
            stats = self._stats(used, limits, {"verb": "shuffle"})
            exchanges.append((stats, "staged" if self.stages else "direct", expected_results(stats)))
        how = {"may_stage": self.may_stage, "least": self.stages}
        enough = (minimum_limit(stats, self.config, kind, sizes, **how) for stats, kind, sizes in exchanges)
        return max(enough, default=0)

    def need(self, limit: int) -> None:
        """Note a limit that the operation needs at least: the same on all ranks."""
        self.at_least = max(self.at_least, limit)

    def need_results(self, stats: TableStats, results: tuple[int, ...]) -> None:
        """Note the limit that results of an exchange need which are held, however large they were expected: what is
        evicted is decided before rows are counted, and an input may stay where it was expected that all fits."""
        if self.stages:
            return
        strategy, config = "direct" if self.options.strategy == "direct" else "chunked", self.config
        enough = minimum_limit(stats, config, strategy, results, may_stage=self.may_stage)
        beside = self._stats(self._held, (enough,) * self.size, {"verb": stats.verb})
        rooms = zip(self._held, room_wanted(beside, config, strategy), strict=True)
        if any(held + room.here <= enough for held, room in rooms):
            enough = minimum_limit(beside, config, strategy, results, may_stage=False)
        self.need(enough)

    def predict(self, peak: int) -> None:
        """Note what this rank will have in use at the most."""
        self.record.predict(peak, before=self._before_peak)

    def expect_before(self, nbytes: int) -> None:
        """Predict that a step before the exchange takes so many bytes beside what is in use."""
        used = self.workspace.budget.used_bytes + nbytes
        self._before_peak = max(self._before_peak, min(used, self.limits[self.rank]))

    @contextmanager
    def cast(self, piece: Data) -> Iterator[Data]:
        """Bring a piece to the agreed schema; where that copies, the copy is reserved while in use.

        Raises
        ------
        SchemaMismatch
            If a value cannot be represented.
        """
        if piece.schema == self.schema:
            yield piece
            return
        data = self.workspace.backend.cast(piece, self.schema)
        with self.workspace.budget.reserve(data.nbytes, "Bringing a chunk to the agreed dtypes"):
            yield data

    def casts(self, piece: Data) -> Iterator[Data]:
        """As `cast`; where the copy does not fit, its halves one after the other."""
        if piece.schema == self.schema:
            yield piece
            return
        with ExitStack() as held:
            data = self._cast_or_none(piece, held)
            if data is not None:
                del piece
                yield data
                return
        half, backend = piece.rows // 2, self.workspace.backend
        yield from self.casts(backend.slice(piece, 0, half))
        yield from self.casts(backend.slice(piece, half, piece.rows))

    def _cast_or_none(self, piece: Data, held: ExitStack) -> Data | None:
        """A piece of the agreed schema; None where its halves may fit, but it does not."""
        try:
            return held.enter_context(self.cast(piece))
        except self.workspace.out_of_memory:
            if piece.rows <= 1:
                raise
            return None

    def count_round(self) -> None:
        """Note that a round is done."""
        self.record.rounds_done += 1
        self.record.rounds = max(self.record.rounds, self.record.rounds_done + self.rounds_left)

    def count_bytes(self, sent_to: Int64s, received: int) -> None:
        """Note what a round moved, in bytes: to each rank, and to this one."""
        self.record.add_sent(sent_to)
        self.record.received_bytes += received

    def tell(self, error: Exception) -> GcylonError:
        """Collective: all ranks call it. Tell an error of this rank in the next agreement; return what all raise."""
        return self._agreements.fail(error)

    def _agree_arguments(self, digests: Int64s) -> None:
        if (digests == digests[0]).all():
            return
        texts = self.workspace.transport.share(self.request.text().encode())
        calls = [without_secrets(text.decode()) for text in texts]
        asked = "; ".join(f"rank {rank}: {call}" for rank, call in enumerate(calls))
        verbs = {call.partition("(")[0] for call in calls}
        what = f"{self.verb} with different arguments" if len(verbs) == 1 else "different verbs"
        advice = "Let every rank make the same calls, in the same order, with the same arguments."
        raise agreed(RanksDisagree(f"Ranks called {what}: {asked}.", advice=advice, calls=calls))

    def _agree_config(self, digests: Int64s, local: GcylonConfig) -> None:
        self.config = local
        if (digests == digests[0]).all():
            return
        # Only live configs can differ here: explicit ones are among the arguments. Rank 0's holds.
        texts = self.workspace.transport.share(json.dumps(local.as_dict()).encode())
        self.config = GcylonConfig(**json.loads(texts[0]))

    def agree_result_schema(self, schema: Schema, rows: int, *, only: int | None = None) -> Schema:
        """Collective: all ranks call it. Bring the schemas of what ranks have made, each for itself, to one.

        Where ``only`` names a rank, its schema holds for all.
        """
        answers = self.agree(AgreementKind.COUNT, (schema.digest(), rows))
        if only is None:
            return self._agree_schema(schema, answers[:, 0], answers[:, 1])
        return Schema.from_bytes(self.workspace.transport.share(schema.to_bytes())[only])

    def _agree_schema(self, schema: Schema, digests: Int64s, rows: Int64s) -> Schema:
        if (digests == digests[0]).all():
            return schema
        texts = self.workspace.transport.share(schema.to_bytes())
        try:
            return agree_schemas([Schema.from_bytes(text) for text in texts], [int(n) for n in rows])
        except GcylonError as error:
            raise agreed(error) from None
