"""The limit that an operation which does not fit is advised to have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...config import GcylonConfig
from ...errors import BudgetExceeded
from ...memory.budget import STAGE_IT, advised
from .costs import all_staged, costs_of, expected_results
from .table_stats import TableStats, wished_rows

_TRIES = 50
_LEEWAY = 4
_PADDING, _DEVICE_PADDING = 64, 256
_DEVICE_BUFFERS = 16  # of a column: of pieces that are read, copied, packed and received, and of tables beside them
# Rows of unlike lengths even out in chunks of so many, or of so many bytes.
_EVEN_ROWS = 64
_EVEN_BYTES = 64 * 1024


def minimum_limit(
    stats: TableStats,
    config: GcylonConfig,
    strategy: str,
    results: tuple[int, ...],
    *,
    may_stage: bool,
    least: bool = False,
) -> int:
    """A limit under which an operation works at the first try: surely with fixed columns, nearly always with text.

    Parameters
    ----------
    stats : TableStats
        Sizes under the limit that was too small, once everything had given way that could.
    config : GcylonConfig
        The settings of the operation.
    strategy : str
        direct, chunked or staged.
    results : tuple of int
        Bytes of every rank's result, as far as they are known.
    may_stage : bool
        Whether inputs may be evicted.
    least : bool, default False
        Whether it shall do in chunks of few rows, or of so many as are worth it.

    Returns
    -------
    int
    """
    varied = stats.variable_row_bytes > 0
    # What has been staged meanwhile counts as it lies on disk, where each buffer is padded.
    stats = replace(stats, nbytes=tuple(map(max, stats.nbytes, stats.staged_bytes)))
    results = tuple(map(max, results, expected_results(stats)))
    if stats.verb in ("shuffle", "sort_values") and stats.size > 1:
        results = _with_uneven_keys(stats, results)
    limit = 1
    for _ in range(_TRIES):
        limited = replace(stats, limits=(limit,) * stats.size)
        needed = _needed(limited, config, strategy, results, varied=varied, may_stage=may_stage, least=least)
        if needed <= limit:
            break
        limit = needed  # under a larger limit, chunks are larger, and so are the slices that inputs are staged in
    if stats.on_gpu:  # each buffer takes whole steps of the allocator, and there are some of each chunk in a round
        limit += _DEVICE_BUFFERS * stats.columns * _DEVICE_PADDING
        # The longest row is packed to be staged, and partitioned, beside itself.
        limit += 3 * max(stats.widest_bytes, default=0)
    return limit + limit // 8 if varied or max(stats.largest_staged_bytes) else limit


def advise(error: BudgetExceeded, enough: int, *, stages: bool, at_least: int = 0) -> None:
    """Let an error advise a limit that is enough for all of an operation, not only for the step that did not fit.

    Parameters
    ----------
    error : BudgetExceeded
    enough : int
        As far as it is known what the operation needs; 0 where nobody has reckoned that: of work that takes its
        pieces as shares of the limit, the one that did not fit takes more of a larger one too.
    stages : bool
        Whether whatever may be evicted for the operation is staged: then that is no advice.
    at_least : int, default 0
        What is needed whatever one step is thought to need.
    """
    numbers = error.numbers
    if numbers.get("would_do") is None or not error.advice.startswith("gpu_memory_limit"):
        return  # there is other advice
    limit, did = numbers["limit_bytes"], numbers["would_do"]
    alone = numbers["needed_bytes"], 2 * numbers["needed_bytes"]  # twice where a library's own memory did not fit
    if did - numbers["used_bytes"] in alone:  # what does not fit is no part of what is reckoned
        did = enough if enough > did else max(did, limit + limit // _LEEWAY)
    if did <= limit:  # it was thought to be enough, and was not
        did = limit + limit // _LEEWAY
    numbers["would_do"] = did = max(did, at_least)
    error.advice = advised(limit, did, staged=STAGE_IT not in error.advice, evicted=stages)


def _with_uneven_keys(stats: TableStats, results: tuple[int, ...]) -> tuple[int, ...]:
    """What each rank may get, the longest row among it."""
    total, row, longest = sum(stats.nbytes), stats.bytes_per_row, max(stats.widest_bytes, default=0)
    return tuple(min(likely_most(n, row, total) + longest, max(n, total)) for n in results)


def likely_most(nbytes: int, row_bytes: float, total: int) -> int:
    """What a rank gets at the most, where it would get so many bytes of rows if keys were spread evenly.

    They rarely are, and the less so the fewer rows there are; all on one rank is the most.
    """
    return max(nbytes, min(nbytes + nbytes // 4 + int(3 * (nbytes * row_bytes) ** 0.5), total))


def _needed(
    stats: TableStats,
    config: GcylonConfig,
    strategy: str,
    results: tuple[int, ...],
    *,
    varied: bool,
    may_stage: bool,
    least: bool,
) -> int:
    rows = wished_rows(stats, config)
    if strategy != "direct":
        even = max(1, min(_EVEN_ROWS, int(_EVEN_BYTES / stats.bytes_per_row))) if varied else 1
        rows = min(rows, even if least else max(config.min_chunk_rows, even))
    if varied:
        stats = _with_longer_rows(stats, rows)
    kept = np.zeros(stats.size) if strategy == "staged" else np.array(results, dtype=np.float64)
    forms = [stats, _padded(all_staged(stats))] if may_stage else [stats]
    return max(
        int((kept + costs.kept + stats.used + costs.room_for(rows)).max())
        for costs in (costs_of(form, strategy, results) for form in forms)
    )


def _padded(stats: TableStats) -> TableStats:
    """Staged chunks as they lie below the device tier, where each buffer of them is padded."""
    padding = stats.columns * (_DEVICE_PADDING if stats.on_gpu else _PADDING)
    largest = tuple(n + padding if n else 0 for n in stats.largest_staged_bytes)
    nbytes = tuple(
        max(n, m + c * padding) for n, m, c in zip(stats.nbytes, stats.staged_bytes, stats.chunks, strict=True)
    )
    return replace(stats, nbytes=nbytes, largest_staged_bytes=largest)


def _with_longer_rows(stats: TableStats, rows: int) -> TableStats:
    """Rows of a chunk may be longer than the mean: the more so, the fewer they are."""
    factor = 1.25 + 3 / rows**0.5
    more = stats.variable_row_bytes * (factor - 1)
    return replace(
        stats, nbytes=tuple(int(n + more * count) for n, count in zip(stats.nbytes, stats.rows, strict=True))
    )
