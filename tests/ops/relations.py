"""Bodies of the tests of relational verbs, run on every rank of a world, and how results compare with pandas."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import held, make_frame, more_held
from same_frames import assert_frames_equal
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.runtime.context import current

# A few worlds for what every world runs alike; the rest is in tests of one verb on `several`.
FEW = [World("threads", 2), World("threads", 4), pytest.param(World("mpi", 2), marks=pytest.mark.mpi)]
THREADS = FEW[:2]
TIGHT = GcylonConfig(gpu_memory_limit="400 KiB", chunk_size_bytes=8192, min_chunk_rows=1)
PLANS = [("auto", None), ("direct", None), ("chunked", TIGHT), ("staged", TIGHT), ("auto", TIGHT)]
PLAN_IDS = ["auto", "direct", "chunked", "staged", "tight"]


def on_ranks(verb: Callable[[Any], Any], frames: Sequence[pd.DataFrame] | str, staged: bool = False) -> dict[str, Any]:
    """Run a verb on this rank's share of some frames (or of a layout); return what the test checks."""
    context = current()
    frame = make_frame(frames, context.rank, context.size) if isinstance(frames, str) else frames[context.rank]
    table = gl.from_local(frame)
    if staged:
        table._part.stage(context.workspace, 2**40, 4096)
    before = held(context)
    started = len(context.recorder.operations)
    result = verb(table)
    if isinstance(result, gl.Table):
        result._live()  # rows that are made when a collective needs them
    record = context.recorder.operations[-1]
    seen = {
        "records": len(context.recorder.operations) - started,
        "sent": record.sent_bytes,
        "peak": record.measured_peak_bytes,
        "predicted": record.predicted_peak_bytes,
        "limit": record.budget_bytes,
        "input": table.local(),
    }
    if isinstance(result, gl.Table):
        seen |= {
            "frame": result.local(),
            "explained": result.explain(),
            "tiers": result.tiers,
            "partitioning": result.partitioning,
        }
        result.release()
    else:
        seen["value"] = result
    # What was staged for room stays so; nothing new may be held.
    seen["left"] = more_held(context, before)
    return seen


def late(body: Callable[..., Any], *args: Any) -> Any:
    """Run a body after a while of its own."""
    time.sleep(random.random() / 50)
    return body(*args)


def together(results: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """All ranks' rows of a result."""
    frames = [result["frame"] for result in results]
    for frame in frames:
        assert list(frame.dtypes) == list(frames[0].dtypes)
    return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)


def sorted_by(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Rows in the order of their keys' texts, with one way to say that an object is missing."""
    frame = frame.copy()
    for name in frame.columns:
        if frame[name].dtype == object:
            values = [None if np.ndim(v) == 0 and pd.isna(v) else v for v in frame[name]]
            frame[name] = pd.Series(values, index=frame.index, dtype=object)
    texts = [tuple(str(value) for value in row) for row in frame[list(keys)].itertuples(index=False, name=None)]
    order = sorted(range(len(frame)), key=texts.__getitem__)
    return frame.iloc[order].reset_index(drop=True)


def assert_same_rows(ours: pd.DataFrame, theirs: pd.DataFrame, keys: Sequence[str], **how: Any) -> None:
    """Compare rows in any order, dtypes included where there are rows."""
    assert list(ours.columns) == list(theirs.columns) and len(ours) == len(theirs)
    if not len(ours):
        return
    assert_frames_equal(
        sorted_by(ours, keys), sorted_by(theirs, keys), check_column_type=False, check_index_type=False, **how
    )


def check_clean(results: Sequence[dict[str, Any]]) -> None:
    """The peak kept within the limit, and nothing is left but an input that gave way."""
    for result in results:
        assert result["peak"] <= result["limit"]
        assert result["left"][0] <= 0
