"""Bodies of the sort tests, run on every rank of a world, and the frames that they work on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import held

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import RankError
from gcylon_lab.memory.budget import exceeded
from gcylon_lab.runtime.context import current

KINDS = ("random", "all equal", "one key has 90%", "few keys", "sorted", "reversed", "text", "missing")


def keys_of(kind: str, rank: int, rows: int) -> Any:
    random, numbers = np.random.default_rng(rank), np.arange(rows) + rank * rows
    if kind == "random":
        return random.integers(0, 2**40, rows)
    if kind == "all equal":
        return np.full(rows, 5)
    if kind == "one key has 90%":
        return np.where(random.random(rows) < 0.9, 7, random.integers(0, 1000, rows))
    if kind == "few keys":
        return random.integers(0, 5, rows)
    if kind == "text":
        return pd.array([f"{value:x}" for value in random.integers(0, 2**20, rows)], dtype="str")
    if kind == "missing":
        return np.where(random.random(rows) < 0.7, np.nan, random.integers(0, 9, rows))
    return numbers if kind == "sorted" else -numbers


def frame_of(kind: str, rank: int, rows: int) -> pd.DataFrame:
    """Rows of one rank; ``g`` is the row's number in global order."""
    numbers = np.arange(rows) + rank * rows
    return pd.DataFrame({"k": keys_of(kind, rank, rows), "x": numbers / 8, "y": -numbers / 8, "g": numbers})


def expected(frames: list[pd.DataFrame], by: Any, **how: Any) -> pd.DataFrame:
    """The whole table, sorted by pandas."""
    whole = pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    return whole.sort_values(by, kind="stable", ignore_index=True, **how)


def sort(
    frame: pd.DataFrame, by: Any, how: dict[str, Any], strategy: str, config: GcylonConfig | None, staged: bool = False
) -> dict[str, Any]:
    """Sort a frame, staged before where that is asked for; return what a test checks."""
    context = current()
    table = gl.from_local(frame)
    if staged:
        table = table.repartition([len(f) for f in _all(frame)], strategy="staged", config=config)
    context.budget.start_window()  # on GPUs: with what is in use beyond what was claimed
    before = held(context)
    result = table.sort_values(by, **how, strategy=strategy, config=config)
    record = context.recorder.operations[-1]
    got = to_frame(context.workspace.backend.to_host(result._whole()))
    tiers, plan = result.tiers, result.last_plan
    result.release()
    context.budget.start_window()
    return {
        "frame": got,
        "tiers": tiers,
        "plan": plan,
        "peak": record.measured_peak_bytes,
        "predicted": record.predicted_peak_bytes,
        "limit": context.workspace.limit_for(config or context.config),
        "left": (before, held(context)),
    }


def _all(frame: pd.DataFrame) -> list[range]:
    """The lengths of all ranks' frames."""
    rows = current().transport.agree(np.array([len(frame)], dtype=np.int64))[:, 0]
    return [range(int(n)) for n in rows]


def sort_kind(kind: str, rows: int, strategy: str, limit: int, staged: bool) -> dict[str, Any]:
    config = current().config.with_values(gpu_memory_limit=limit)
    return sort(frame_of(kind, current().rank, rows), "k", {}, strategy, config, staged)


def sort_short_of_memory(kind: str, rows: int, limit: int, most: int) -> dict[str, Any]:
    """Sort below the device tier where sorting more than some rows takes more than there is; and how often it did."""
    backend, refused = current().workspace.backend, []
    original = backend.sort_order

    def sort_order(data: Any, keys: Any, **how: Any) -> Any:
        if data.rows > most:
            refused.append(data.rows)
            raise exceeded("sorting", data.nbytes, 0, 1)
        return original(data, keys, **how)

    backend.sort_order = sort_order  # type: ignore[method-assign]
    try:
        return sort_kind(kind, rows, "staged", limit, False) | {"refused": len(refused)}
    finally:
        del backend.sort_order


def sort_given(frames: list[pd.DataFrame], by: Any, how: dict[str, Any], strategy: str = "auto") -> dict[str, Any]:
    """Sort frames that are given, one a rank."""
    return sort(frames[current().rank], by, how, strategy, None)


def sort_columns(frames: list[pd.DataFrame], arguments: dict[str, Any]) -> None:
    gl.from_local(frames[current().rank]).sort_values(**arguments)


def sort_unsorted(
    frames: list[pd.DataFrame], by: Any, how: dict[str, Any], strategy: str, limit: int
) -> dict[str, Any]:
    """Sort with a backend that sorts once, where rows have arrived, as GPUs do."""
    context = current()
    backend: Any = context.workspace.backend
    backend.sorts_before_sending = False
    found = sort(frames[context.rank], by, how, strategy, context.config.with_values(gpu_memory_limit=limit))
    return found | {"scattered": getattr(context, "made", 0) > 0}


def failing_on_rank_1(frames: list[pd.DataFrame], method: str, strategy: str) -> list[int]:
    """Sort with a backend that fails once on rank 1; then sort again."""
    context = current()
    backend: Any = context.workspace.backend
    table = gl.from_local(frames[context.rank])
    before = context.budget.used_bytes
    if context.rank == 1:
        setattr(backend, method, _failing)
    try:
        with pytest.raises(RankError, match="on purpose") as caught:
            table.sort_values("k", strategy=strategy)
    finally:
        vars(backend).pop(method, None)
    assert caught.value.rank == 1
    assert context.budget.used_bytes == before
    return list(table.sort_values("k", strategy=strategy).local()["g"])


def _failing(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("on purpose")
