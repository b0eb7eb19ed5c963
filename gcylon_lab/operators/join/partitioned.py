"""A join in passes: of both sides rows of some buckets of keys at a time, while the tables stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from ...backends.protocol.join_columns import JoinSpec
from ...backends.protocol.schema import Label
from ...engine.exchange.buckets import MASK_ROW_BYTES, BucketRoute
from ...engine.exchange.exchange import Counted, Step, exchange_counted, exchange_table
from ...engine.exchange.rounds import go_on
from ...engine.exec.agreement import AgreementKind
from ...engine.exec.operation import Int64s, Operation
from ...engine.store.part import Part
from ...errors import BudgetExceeded
from .distribution import kept_sides
from .local_join import LocalJoin
from .passes import (
    JoinCosts,
    JoinMemory,
    JoinSizes,
    Numbers,
    buckets_for,
    copy_row_bytes,
    peaks_of,
    plan_passes,
    sending_room,
)

SIDES = ("left", "right")


def make_room_for_passes(operation: Operation, memory: JoinMemory, sizes: Int64s) -> None:
    """Let tables that are not in use be evicted, if the plan needs their memory; ``sizes`` as in `join_memory`."""
    workspace = operation.workspace
    if memory.evicts:
        limit, used, beside = (int(n) for n in sizes[operation.rank, 4:7])
        needed = int(memory.peaks[operation.rank]) - (used - beside)
        workspace.make_room(needed, limit, operation.not_in_use())
        workspace.budget.start_window()
    workspace.spill.flush()
    workspace.budget.renew_limit()
    operation.record.used_before_bytes = workspace.budget.used_bytes


@dataclass
class _Side:
    """One side: its exchange, and the rows and bytes that all ranks send; of shape (source, buckets, rank)."""

    part: Part
    step: Step
    route: BucketRoute
    rows: Int64s
    nbytes: Int64s


class PartitionExchange:
    """Brings rows of some buckets of both sides to where they meet.

    Parameters
    ----------
    operation : Operation
        Opened.
    parts : mapping of str to Part
        Both sides, in memory on all ranks.
    keys : mapping of str to sequence of labels
        By which each side is spread.
    limits : ndarray of int64, shape (size,)
        The budget of each rank.
    scatters : bool
        Whether rows are written by their senders' kernels.
    """

    def __init__(
        self,
        operation: Operation,
        parts: Mapping[str, Part],
        keys: Mapping[str, Sequence[Label]],
        limits: Int64s,
        *,
        scatters: bool,
    ) -> None:
        self._operation, self._limits = operation, limits
        self.buckets = buckets_for(operation.size)
        self._sides: dict[str, _Side] = {}
        none = np.zeros((0, self.buckets, operation.size), np.int64)
        for name in SIDES:
            step = Step(operation, parts[name])
            step.limits = tuple(int(n) for n in limits)
            spread = cast("list[str]", list(keys[name]))
            route = BucketRoute(spread, operation.size, self.buckets, scatters=scatters)
            self._sides[name] = _Side(parts[name], step, route, none, none)

    def learn(self, chunk_bytes: int) -> bool:
        """Collective: all ranks call it. Count the rows of each bucket; False where a rank has no memory for that."""
        fits = True
        try:
            for side in self._sides.values():
                with self._operation.workspace.memory_named(self._operation.verb):
                    side.route.learn(side.step, side.part, max(1, _piece_rows(side.part, chunk_bytes)))
        except BudgetExceeded:
            fits = False
        if not self._operation.agree(AgreementKind.COUNT, (fits,))[:, 0].all():
            self.drop()
            return False
        for side in self._sides.values():
            counts = np.stack((side.route.rows, side.route.variable))
            texts = self._operation.workspace.transport.share(counts.tobytes())
            shape = (self._operation.size, *counts.shape)
            every = np.frombuffer(b"".join(texts), np.int64).reshape(shape)
            side.rows = every[:, 0]
            side.nbytes = side.rows * side.step.schema.row_bytes + every[:, 1]
        return True

    def sizes(self, spec: JoinSpec, build: str, result_bytes: float) -> JoinSizes:
        """What each rank gets of each bucket, with a result spread as the rows of the larger side are, or those that
        are filtered."""
        rows = {name: side.rows.sum(axis=0).astype(np.float64) for name, side in self._sides.items()}
        received: Numbers = np.sum([side.nbytes.sum(axis=0) for side in self._sides.values()], axis=0, dtype=np.float64)
        larger = rows["left"] if spec.filters else np.maximum(rows["left"], rows["right"])
        results = larger * (result_bytes / max(larger.sum(), 1.0))
        sides = [self._sides[name] for name in SIDES]
        sent = np.stack([side.rows.sum(axis=2).T for side in sides], axis=1).astype(np.float64)
        row_bytes = np.array([[side.nbytes.sum() / max(int(side.rows.sum()), 1)] for side in sides])
        probe = rows["left" if build == "right" else "right"]
        return JoinSizes(received, rows[build], probe, results, sent, row_bytes)

    def kept_rows(self, spec: JoinSpec) -> Numbers:
        """How many rows the result has of each bucket at least, on each rank."""
        rows = [self._sides[name].rows.sum(axis=0).astype(np.float64) for name in kept_sides(spec)]
        least: Numbers = np.max([np.zeros((self.buckets, self._operation.size)), *rows], axis=0)
        return least

    @property
    def last_step(self) -> Step:
        """The exchange that a pass ends with."""
        return self._sides[SIDES[-1]].step

    def receive(self, first: int, last: int, costs: JoinCosts, used: Numbers) -> dict[str, Part]:
        """Collective: all ranks call it. Bring rows of buckets [first, last) of both sides to where they meet.

        Parameters
        ----------
        first, last : int
        costs : JoinCosts
        used : ndarray, shape (size,)
            In use on each rank before the pass.

        Raises
        ------
        BudgetExceeded
            If they do not fit; `go_on` lets all ranks know.
        """
        counted = [self._counted(side, first, last, costs, used) for side in self._sides.values()]
        return dict(zip(self._sides, exchange_counted(counted), strict=True))

    def _counted(self, side: _Side, first: int, last: int, costs: JoinCosts, used: Numbers) -> Counted:
        rank = self._operation.rank
        side.route.choose(first, last)
        rows = _piece_rows(side.part, costs.chunk_bytes)
        if not costs.scatters:
            come = sum(int(one.nbytes[:, first:last, rank].sum()) for one in self._sides.values())
            row_bytes = side.part.nbytes / max(side.part.rows, 1)
            room = sending_room(costs, self._limits - used - come)[rank]
            share = side.rows[rank, first:last].sum() / max(int(side.rows[rank].sum()), 1)
            rows = int(room / (MASK_ROW_BYTES + share * copy_row_bytes(row_bytes)))
        chosen = side.rows[:, first:last].sum(axis=1)
        return Counted(side.step, side.part, side.route, chosen, max(1, rows))

    def rest(self, name: str, first: int) -> tuple[Part, str]:
        """Collective: all ranks call it. Bring what is left of a side, from a bucket on, to where rows meet, staged
        where it does not fit; the part and the strategy."""
        side = self._sides[name]
        side.route.choose(first, self.buckets)
        result = exchange_table(side.step, side.part, side.route, side.step.stats())
        return result, "staged" if side.step.plan is None else side.step.plan.strategy

    def drop(self) -> None:
        """Give back what was kept from counting."""
        for side in self._sides.values():
            side.route.drop()


class PartitionedJoin:
    """A join in passes, as far as it stays in memory.

    Parameters
    ----------
    local : LocalJoin
        Takes in the result.
    exchange : PartitionExchange
        Which has learned.
    sizes : JoinSizes
        What was counted, with the result as it is expected.
    costs : JoinCosts
    limits : ndarray of int64, shape (size,)
        The budget of each rank.

    Attributes
    ----------
    passes : int
        That are done, and are estimated.
    peaks, results : ndarray, shape (size,)
        Of each rank, as they are estimated.
    """

    def __init__(
        self, local: LocalJoin, exchange: PartitionExchange, sizes: JoinSizes, costs: JoinCosts, limits: Int64s
    ) -> None:
        self._local, self._work, self._operation = local, local.work, local.work.operation
        self._exchange, self._sizes, self._costs = exchange, sizes, costs
        self._least = exchange.kept_rows(local.spec) * costs.out_row_bytes
        self._limits = limits.astype(np.float64)
        self.done, self.passes = 0, 0
        self.peaks = self.results = np.zeros(len(limits))

    def predict(self, first: int) -> bool:
        """Collective: all ranks call it. Plan the passes from a bucket on; False where they do not all fit."""
        record, budget = self._operation.record, self._work.workspace.budget
        peak = max(record.measured_peak_bytes, budget.window_peak_bytes)
        answers = self._operation.agree(AgreementKind.COUNT, (budget.used_bytes, self._local.result.nbytes, peak))
        used, made, peaks = answers[:, :3].astype(np.float64).T
        expected = self._sizes.results[:first].sum(axis=0)
        factor = np.where(expected > 0, made / np.maximum(expected, 1.0), 1.0)
        sizes = replace(self._sizes, results=np.maximum(self._sizes.results * factor, self._least))
        passes = plan_passes(sizes, self._costs, used, self._limits, first)
        if passes is None:
            return False
        self._used, self._next = used, passes[0]
        self._coming = int(sizes.results[first : self._next.last, self._operation.rank].sum())
        if self.done < 2:  # the first pass has told how large the result is
            self.passes = self.done + len(passes)
            self.peaks = np.maximum(peaks, peaks_of(sizes, self._costs, self._limits, passes))
            self.results = made + sizes.results[first:].sum(axis=0)
        return True

    def step(self, first: int, check: Callable[[Mapping[str, Part]], None]) -> int:
        """Collective: all ranks call it. Do the pass that was estimated; the bucket at which the next one begins.

        Parameters
        ----------
        first : int
        check : callable
            Looks at both sides before they are joined; collective.

        Raises
        ------
        BudgetExceeded
            If it does not fit, and nothing may be staged.
        """
        parts = self._received(first)
        if parts is None:
            return first
        check(parts)
        work = self._work
        self._local.coming_bytes = self._coming
        for looked in self._local.run(parts["left"], parts["right"], 1):
            if looked.pairs * self._costs.out_row_bytes > work.room():
                work.kept_free_bytes = None  # far more than was estimated: staged like any other
        for part in parts.values():
            work.forget(part)
        self._local.coming_bytes = 0
        self.done += 1
        return self._next.last

    def _received(self, first: int) -> dict[str, Part] | None:
        try:
            with self._operation.workspace.memory_named(self._operation.verb):
                parts = self._exchange.receive(first, self._next.last, self._costs, self._used)
            return {name: self._work.adopt(part) for name, part in parts.items()}
        except BudgetExceeded as error:
            if self._operation.options.strategy != "auto" or not self._operation.may_stage:
                raise
            go_on(self._exchange.last_step, error)
        return None


def _piece_rows(part: Part, chunk_bytes: int) -> int:
    """Rows of a piece, of one chunk where these are not small: joining some is a copy."""
    largest = max((chunk.rows for chunk in part.chunks), default=0)
    wished = int(chunk_bytes * part.rows / max(part.nbytes, 1))
    return largest if wished / 4 <= largest < wished else wished
