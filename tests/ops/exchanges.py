"""Bodies of the exchange tests, run on every rank of a world, and the frames that they work on."""

from __future__ import annotations

import datetime as dt
import gc
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.runtime.context import current

RECORDED = ("strategy", "rounds", "rounds_done", "measured_peak_bytes")
LAYOUTS = ("even", "one rank empty", "all empty", "one row", "all on the last rank", "one key")


def rows_on(layout: str, rank: int, size: int, rows: int) -> int:
    if layout == "all empty":
        return 0
    if layout == "one row":
        return int(rank == size - 1)
    if layout == "all on the last rank":
        return rows * size if rank == size - 1 else 0
    if layout == "one rank empty":
        return 0 if rank == size // 2 and size > 1 else rows
    return rows + 7 * rank


def make_frame(layout: str, rank: int, size: int, rows: int = 300) -> pd.DataFrame:
    """A frame of every kind of column; ``g`` is the row's number in global order."""
    return _made(layout, rank, size, rows).copy()


@cache
def _made(layout: str, rank: int, size: int, rows: int) -> pd.DataFrame:
    """Made once: thousands of tests ask for the same few frames."""
    n = rows_on(layout, rank, size, rows)
    first = sum(rows_on(layout, r, size, rows) for r in range(rank))
    g = np.arange(first, first + n)
    k = np.full(n, 7) if layout == "one key" else (g * 7919) % 97
    texts = [None if i % 11 == 0 else "päß"[: i % 4] * (i % 5) for i in g.tolist()]
    return pd.DataFrame(
        {
            "g": g,
            "k": k.astype("int32"),
            "x": np.where(g % 13 == 0, np.nan, g / 8),
            "b": g % 3 == 0,
            "s": pd.Series(texts, dtype="str"),
            "c": pd.Categorical.from_codes(g % 3 - (g % 17 == 0), ["lo", "mid", "hi"]),
            "n": pd.array([None if i % 5 == 0 else i for i in g.tolist()], dtype="Int64"),
            "t": pd.DatetimeIndex(g * 10**12).tz_localize("UTC").tz_convert("US/Central"),
            "d": pd.to_timedelta(g, unit="s"),
            "m": pd.Series([None if i % 9 == 0 else Decimal(25 * i).scaleb(-2) for i in g.tolist()], dtype=object),
            "l": pd.Series([None if i % 6 == 0 else list(range(i % 4)) for i in g.tolist()], dtype=object),
            "o": pd.Series([dt.date(2000, 1, 1 + i % 28) for i in g.tolist()], dtype=object),
        }
    )


def whole(layout: str, size: int) -> pd.DataFrame:
    return _together(layout, size).copy()


@cache
def _together(layout: str, size: int) -> pd.DataFrame:
    frames = [make_frame(layout, rank, size) for rank in range(size)]
    return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)


KEPT_BY_CUDF = 20 * 1024


def held(context: Any) -> tuple[int, int]:
    """Bytes in use and staged; on a GPU rank all that is allocated, once nobody refers to what a test has looked at."""
    if context.workspace.backend.on_gpu:
        gc.collect()
        context.spill.flush()  # copies on their way keep what they read
        context.budget.start_window()
    return context.budget.used_bytes, context.spill.used_bytes


def more_held(context: Any, before: tuple[int, int], kept: int = KEPT_BY_CUDF) -> tuple[int, int]:
    """How much more is in use and staged than before; on a GPU rank without what cuDF keeps for later: scalars, and of
    a time zone the table of its transitions."""
    used, staged = (now - then for now, then in zip(held(context), before, strict=True))
    return 0 if context.workspace.backend.on_gpu and 0 < used <= kept else used, staged


def exchange(verb: str, layout: str, arguments: dict[str, Any], strategy: str, config: GcylonConfig | None) -> Any:
    """Run a verb; return what the test checks."""
    context = current()
    table = gl.from_local(make_frame(layout, context.rank, context.size))
    before = held(context)
    result = getattr(table, verb)(**arguments, strategy=strategy, config=config)
    record = context.recorder.operations[-1]
    frame = result.local()
    tiers, dtypes, explained = result.tiers, result.dtypes, result.explain()
    result.release()
    after = held(context)
    return {
        "frame": frame,
        "tiers": tiers,
        "dtypes": dtypes,
        "record": {name: getattr(record, name) for name in RECORDED},
        "limit": context.workspace.limit_for(config or context.config),
        "left": (before, after),
        "input": table.local(),
        "explain": explained,
    }


def failing(verb: str, arguments: dict[str, Any], frame_columns: dict[int, list[str]] | None = None) -> None:
    """Run a verb that must fail, then one that must work; returns normally only if the first failed."""
    context = current()
    frame = make_frame("even", context.rank, context.size)
    if frame_columns and context.rank in frame_columns:
        frame = frame[frame_columns[context.rank]]
    table = gl.from_local(frame)
    getattr(table, verb)(**arguments)


def rows_of(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Rows as plain values that sort and compare, missing values alike."""
    plain = frame.astype(object).where(frame.notna(), None) if len(frame.columns) else frame
    return sorted(tuple(map(str, row)) for row in plain.itertuples(index=False, name=None))


@cache
def rows_of_whole(layout: str, size: int) -> list[tuple[Any, ...]]:
    """Those of all ranks' frames together, made once: many tests compare with them."""
    return rows_of(whole(layout, size))
