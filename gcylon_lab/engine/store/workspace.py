"""What an operation may use on its rank, put together by whoever starts the rank."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...backends.protocol.backend import Backend
from ...backends.protocol.scattering import Scatters, Writes
from ...backends.protocol.schema import Schema
from ...comm.device_overlay import ByHostTransport
from ...comm.transport import Transport, WritableWindows
from ...config import GcylonConfig
from ...errors import BudgetExceeded, ConfigError
from ...memory.budget import MemoryBudget
from ...memory.out_of_memory import memory_errors
from ...memory.tiers.staging_tier import StagingTiers
from ...profiling import Recorder
from ..plan.table_stats import DEVICE_CHUNK_BYTES, stage_slice_bytes
from .aliasing import Holder, aliasing_parts


class Evictable(Holder, Protocol):
    """A part, as a workspace knows it: what may be staged to make room."""

    @property
    def schema(self) -> Schema: ...

    @property
    def nbytes(self) -> int:
        """Bytes in all tiers."""
        ...

    @property
    def staged_bytes(self) -> int:
        """Bytes below the device tier."""
        ...

    @property
    def evicted_bytes(self) -> int:
        """Bytes that have ever left the device tier."""
        ...

    def stage(self, workspace: Workspace, wanted_bytes: int, slice_bytes: int, *, one_limit: int | None = None) -> int:
        """Move chunks from the device tier down until so many bytes are free; returns how many were."""
        ...

    def release(self) -> None:
        """Drop all chunks."""
        ...


@dataclass
class Workspace:
    """One rank's means: transport, dataframe library, budget, the tiers below, recorder, live config.

    Attributes
    ----------
    free_at_start_bytes : int
        What ``gpu_memory_fraction`` is a fraction of.
    parts : WeakSet of Evictable
        Every part alive on this rank, so that one that is not in use can be staged.
    """

    transport: Transport
    backend: Backend
    budget: MemoryBudget
    spill: StagingTiers
    recorder: Recorder
    config: GcylonConfig
    free_at_start_bytes: int
    operation_number: int = 0
    parts: weakref.WeakSet[Evictable] = field(default_factory=weakref.WeakSet)
    uses: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _scattering: tuple[Transport, Backend, bool] | None = field(default=None, init=False, repr=False)

    @property
    def out_of_memory(self) -> tuple[type[Exception], ...]:
        """What says that a piece does not fit the budget: on GPUs the allocator does too."""
        return (BudgetExceeded, MemoryError) if self.backend.on_gpu else (BudgetExceeded,)

    def memory_named(self, what: str, *, staged: bool = False) -> AbstractContextManager[None]:
        """Around work of which on GPUs the allocator says what does not fit; elsewhere a MemoryError is the machine's,
        not the budget's. ``staged``: whether staging would not help."""
        return memory_errors(self.budget, what, staged=staged) if self.backend.on_gpu else nullcontext()

    def count_unstaged(self, nbytes: int) -> None:
        """Count bytes that are read back for the operation that runs, if one does."""
        record = self.recorder.active
        if record is not None:
            record.unstaged_bytes += nbytes

    @property
    def scatters(self) -> bool:
        """Whether kernels of this rank can write rows straight into the results of other ranks."""
        known = self._scattering
        if known is None or known[0] is not self.transport or known[1] is not self.backend:
            # Asked for many times in an operation, and looking for a protocol's methods takes long.
            scatters = isinstance(self.transport, WritableWindows) and isinstance(self.backend, Scatters)
            known = self._scattering = (self.transport, self.backend, scatters)
        return known[2]

    @property
    def writes(self) -> bool:
        """Whether they can write texts and missing values too."""
        return self.scatters and isinstance(self.backend, Writes)

    @property
    def has_pinned_tier(self) -> bool:
        """Whether host memory is a tier below the device: on GPUs, of which all ranks have one or none has."""
        return self.backend.on_gpu

    @property
    def route(self) -> str:
        """How rows travel, where that is not the same for all pairs of ranks."""
        return self.transport.name if isinstance(self.transport, ByHostTransport) else ""

    def exchange_shapes(self) -> dict[str, Any]:
        """What `TableStats` needs to know of the way this world exchanges: the same on all ranks."""
        shapes: dict[str, Any] = {"fast_chunk_bytes": DEVICE_CHUNK_BYTES} if self.backend.on_gpu else {}
        if self.transport.completes_in_finish:
            shapes["overlaps"] = True
        if self.scatters:
            shapes["scatters"] = True
        if self.route:
            shapes["route"] = self.route
        return shapes

    def limit_for(self, config: GcylonConfig) -> int:
        """Return the device limit in bytes that a config asks for.

        Raises
        ------
        ConfigError
            If it is above the ceiling that was fixed at start.
        """
        return config.limit_bytes(self.budget.ceiling_bytes, self.free_at_start_bytes)

    @property
    def live_limit_bytes(self) -> int:
        """The device limit of operations that have no config of their own."""
        try:
            return self.limit_for(self.config)
        except ConfigError:  # it asks for more than this rank has
            return self.budget.ceiling_bytes

    def stages_beside(self, schema: Schema) -> bool:
        """Whether rows of a schema leave the device tier beside what a rank does next: texts, which are packed for that
        in memory that nobody has claimed, are waited for."""
        return self.has_pinned_tier and not schema.variable

    def slice_bytes(self, limit_bytes: int) -> int:
        """Bytes of the slices in which rows are staged under a limit."""
        return stage_slice_bytes(limit_bytes, on_gpu=self.has_pinned_tier)

    def make_room(
        self, wanted_bytes: int, limit_bytes: int, parts: Iterable[Evictable], *, with_views: bool = False
    ) -> None:
        """Stage chunks, of parts used longest ago first, until so many bytes are free or none is left to stage.

        Parameters
        ----------
        wanted_bytes, limit_bytes : int
            What shall be free, of how much.
        parts : iterable of Evictable
            Those that may be evicted. One that shares all of its memory with a part that may not stays where it is:
            nothing would be free then.
        with_views : bool, default False
            Whether parts that share memory with them are evicted too.

        Raises
        ------
        SpillError
            If the disk is full or cannot be written.
        """
        if self._missing(wanted_bytes, limit_bytes) <= 0:
            return
        one_limit = limit_bytes if limit_bytes < self.live_limit_bytes else None
        for unit in aliasing_parts(parts, self.parts, with_views=with_views):
            for part in unit:
                missing = self._missing(wanted_bytes, limit_bytes)
                if missing <= 0:
                    return
                slice_bytes = self.slice_bytes(limit_bytes)
                # Texts are packed to leave, with what packing takes, and no allocation is granted past the limit.
                packing = 2 * slice_bytes if part.schema.variable else 0
                try:
                    with self.budget.lifted() if self._missing(packing, limit_bytes) > 0 else nullcontext():
                        part.stage(self, missing, slice_bytes, one_limit=one_limit)
                except self.out_of_memory:
                    if not self.backend.on_gpu:
                        raise
                    with self.budget.lifted():  # for a row that is longer than a slice
                        part.stage(self, missing, slice_bytes, one_limit=one_limit)

    def _missing(self, wanted_bytes: int, limit_bytes: int) -> int:
        return self.budget.used_bytes + wanted_bytes - limit_bytes
