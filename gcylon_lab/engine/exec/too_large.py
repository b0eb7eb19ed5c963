"""Results that are larger than all that could hold them: refused once that is known, before they are made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...backends.host.column_buffers import OFFSET_BYTES
from ...backends.protocol.schema import Schema
from ...errors import SpillError
from ...memory.tiers.free_space import UNKNOWN
from ...units import format_bytes
from .agreement import AgreementKind, agreed
from .invocation import digest
from .operation import Int64s, Operation

# Of a result so many bytes are told at the most, which no disk has: more do not fit the numbers of an agreement.
MOST_BYTES = 1 << 60


def least_bytes(rows: int, schema: Schema) -> int:
    """Bytes that rows of a schema take at the least: of texts no more is counted than where each begins."""
    return min(MOST_BYTES, rows * (schema.row_bytes + OFFSET_BYTES * len(schema.texts)))


def crossed_bytes(moved: Sequence[str], sizes: Int64s, schema: Schema) -> list[int]:
    """Bytes of a cross join's result on each rank, at the least; what moves goes to all. Sizes as for `join_memory`."""
    left, right = ([int(n) for n in sizes[:, place]] for place in (1, 3))
    if "left" in moved:
        left = [sum(left)] * len(left)
    if "right" in moved:
        right = [sum(right)] * len(right)
    return [least_bytes(one * other, schema) for one, other in zip(left, right, strict=True)]


def refuse_too_large(operation: Operation, limits: Int64s, needed: Sequence[int]) -> None:
    """Collective: all ranks call it. Refuse a result that neither memory nor what is below it can hold, on any host.

    Ranks ask their disks only where the budgets alone cannot hold it. What is in use now is counted as if it were free.

    Parameters
    ----------
    operation : Operation
        Opened.
    limits : ndarray of int64, shape (size,)
        The budget of each rank.
    needed : sequence of int
        Bytes of the result on each rank at the least; the same numbers on all ranks.

    Raises
    ------
    SpillError
        On all ranks alike.
    """
    if not operation.may_stage or operation.options.strategy not in ("auto", "staged"):
        return  # nothing is written then
    if all(one <= limit for one, limit in zip(needed, limits.tolist(), strict=True)):
        return
    workspace = operation.workspace
    room = workspace.spill.room()
    below = room.pinned_bytes + workspace.spill.used_bytes  # each rank's own
    place = digest(f"{workspace.transport.host} {room.disk}")
    numbers = (workspace.budget.used_bytes, room.pinned_bytes, below, room.disk_bytes, room.most_bytes, place)
    answers = operation.agree(AgreementKind.COUNT, numbers)
    for shared in dict.fromkeys(answers[:, 5].tolist()):  # a disk, by the ranks of a host
        ranks = np.flatnonzero(answers[:, 5] == shared)
        results = [needed[rank] for rank in ranks.tolist()]
        here = answers[ranks]
        total, memory = sum(results), int(limits[ranks].sum())
        most = int(here[:, 4].max())
        if most < UNKNOWN and total > memory + int(here[:, 2].sum()) + most:
            free = int(np.maximum(limits[ranks] - here[:, 0], 0).sum())
            pinned, disk = int(here[:, 1].sum()), int(here[:, 3].min())
            raise agreed(_too_large(operation, ranks, total, max(results), memory, free, pinned, disk))


def _too_large(
    operation: Operation, ranks: Int64s, needed: int, largest: int, memory: int, free: int, pinned: int, disk: int
) -> SpillError:
    config, size = operation.config, operation.size
    where = f" on {len(ranks)} of {size} ranks" if len(ranks) < size else f" on {size} ranks" if size > 1 else ""
    locked = f", {format_bytes(pinned)} of page-locked memory" if operation.workspace.has_pinned_tier else ""
    folder = f"spill_dir={config.spill_dir!r}" if config.spill_dir else "spill_dir (the system's temporary folder)"
    message = (
        f"The result of this {operation.verb} takes {format_bytes(needed)} at the least{where}, where "
        f"{format_bytes(free)} of the {format_bytes(memory)} budget{locked} and {format_bytes(disk)} of the disk of "
        f"{folder} are free. Nothing of it was made."
    )
    room = "set spill_dir to a disk" if config.allow_disk_spill else "set allow_disk_spill, with spill_dir on a disk"
    advice = (
        f"Filter the tables before, so that fewer rows meet, or {room} with at least "
        f"{format_bytes(needed - memory)} free. "
        f"In memory alone it takes a gpu_memory_limit of more than {format_bytes(largest)}."
    )
    return SpillError(
        message, advice=advice, needed_bytes=needed, used_bytes=memory - free, limit_bytes=memory,
        free_disk_bytes=disk, knob="spill_dir", would_do=needed - memory,
    )  # fmt: skip
