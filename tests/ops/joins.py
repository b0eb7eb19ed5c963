"""Bodies of the join tests, run on every rank of a world; the frames that they join, and what pandas says."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from exchanges import held
from same_frames import assert_frames_equal
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.runtime.context import current

HOWS = ("inner", "left", "right", "outer", "semi", "anti")
LAYOUTS = ("even", "one rank empty", "left empty", "right empty", "all empty", "one key", "all on the last rank")
TIGHT = GcylonConfig(gpu_memory_limit="200 KiB", chunk_size_bytes=4096, min_chunk_rows=1)
PLANS = [("auto", None), ("direct", None), ("chunked", None), ("staged", TIGHT)]
IDS = ["auto", "direct", "chunked", "staged"]
TWO = World("threads", 2)


def frames(layout: str, size: int, rows: int = 120) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Both sides of a join, one frame a rank: every kind of column, keys missing on both sides."""
    left = _side(size, 0 if layout in ("left empty", "all empty") else rows, 7919, 61, layout)
    right = _side(size, 0 if layout in ("right empty", "all empty") else rows // 2, 104729, 83, layout)
    keep = ["k", "s", "f", "b", "m", "t", "c", "w"]
    return left, [frame[[*keep[:3], "w", "b", "t"]].rename(columns={"w": "u"}) for frame in right]


def _side(size: int, rows: int, step: int, keys: int, layout: str) -> list[pd.DataFrame]:
    made, first = [], 0
    for rank in range(size):
        n = rows + 3 * rank * (rows > 0)
        if layout == "one rank empty" and rank == size // 2 and size > 1:
            n = 0
        if layout == "all on the last rank":
            n = rows * size if rank == size - 1 else 0
        g = np.arange(first, first + n)
        first += n
        k = (g * step) % keys
        if layout == "one key":
            k = np.where(g % 10 < 9, 5, k)
        made.append(
            pd.DataFrame(
                {
                    "k": k,
                    "s": pd.Series([None if i % 7 == 0 else f"kéy{i % 4}" for i in k.tolist()], dtype="str"),
                    "f": np.where(k % 5 == 0, np.nan, np.where(k % 3 == 0, -0.0, k / 4)),
                    "w": g,
                    "b": g % 3 == 0,
                    "m": pd.Series([None if i % 9 == 0 else Decimal(i).scaleb(-1) for i in g.tolist()], dtype=object),
                    "t": pd.DatetimeIndex(g * 10**12).tz_localize("UTC").tz_convert("US/Central"),
                    "c": pd.Categorical.from_codes(g % 3 - (g % 17 == 0), ["lo", "mid", "hi"]),
                }
            )
        )
    return made


def numbers(rng: np.random.Generator, n: int, keys: int) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    def side(names: list[str]) -> list[pd.DataFrame]:
        made = [
            pd.DataFrame({"k": rng.integers(0, keys, n)} | {name: rng.random(n) for name in names}) for _ in range(2)
        ]
        return made

    return side(["x", "y"]), side(["z"])


def join(
    lefts: list[pd.DataFrame],
    rights: list[pd.DataFrame],
    arguments: dict[str, Any],
    strategy: str = "auto",
    config: GcylonConfig | None = None,
    staged: bool = False,
    before: tuple[list[str] | None, list[str] | None] = (None, None),
) -> dict[str, Any]:
    """Join this rank's frames; return what the tests check."""
    context = current()
    left, right = gl.from_local(lefts[context.rank]), gl.from_local(rights[context.rank])
    left = left if before[0] is None else left.shuffle(before[0])
    right = right if before[1] is None else right.shuffle(before[1])
    if staged:
        for table in (left, right):
            table._live().stage(context.workspace, 1 << 40, 4096)
    inputs = left.local(), right.local()
    used = held(context)
    result = left.join(right, **arguments, strategy=strategy, config=config)
    record = context.recorder.operations[-1]
    found = {
        "frame": result.local(),
        "tiers": result.tiers,
        "record": {n: getattr(record, n) for n in ("verb", "strategy", "measured_peak_bytes", "predicted_peak_bytes")},
        "limit": context.workspace.limit_for(config or context.config),
        "explain": result.explain(),
        "partitioning": result.partitioning,
        "sent": record.sent_bytes,
    }
    result.release()
    after = held(context)
    # Inputs may have been staged for the join: what is in use and what is spilled changes then, but not their sum.
    found["left"] = (sum(used), sum(after)) if strategy == "auto" and config is None else (0, 0)
    for table, frame in ((left, inputs[0]), (right, inputs[1])):
        assert_frames_equal(table.local(), frame)
    return found


def failing(
    lefts: list[pd.DataFrame], rights: list[pd.DataFrame], arguments: dict[str, Any], config: GcylonConfig
) -> tuple[Any, Any, Any, str]:
    """Join with an error; give it, what was in use before and after it, and what a join after it says."""
    context = current()
    left, right = gl.from_local(lefts[context.rank]), gl.from_local(rights[context.rank])
    used = context.budget.used_bytes + context.spill.used_bytes
    error: BaseException | None = None
    try:
        left.join(right, **arguments, config=config)
    except gl.GcylonError as caught:
        error = caught.with_traceback(None)
    after = context.budget.used_bytes + context.spill.used_bytes
    again = left.join(right, how="inner", on="k")
    return type(error), used, after, again.explain()


def whole(parts: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def answer(lefts: list[pd.DataFrame], rights: list[pd.DataFrame], **arguments: Any) -> pd.DataFrame:
    """What pandas gives for the whole tables."""
    left, right = whole(lefts), whole(rights)
    how = arguments["how"]
    if how not in ("semi", "anti"):
        return left.merge(right, **arguments)
    keys = {name: arguments[name] for name in ("on", "left_on", "right_on") if name in arguments}
    of_right = keys.get("right_on", keys.get("on"))
    of_right = [of_right] if isinstance(of_right, str) else of_right
    marked = left.merge(right[of_right].drop_duplicates(), how="left", indicator="_found", **keys)
    chosen = left[(marked["_found"] == "both").to_numpy() == (how == "semi")]
    return chosen.reset_index(drop=True)


def plain(value: Any) -> Any:
    """One value in a form that compares whatever its dtype."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else value.normalize()
    if isinstance(value, (float, np.floating)):
        return None if math.isnan(value) else int(value) if float(value).is_integer() else float(value)
    if isinstance(value, (pd.Timestamp, np.datetime64, dt.datetime)):
        stamp = pd.Timestamp(value)
        return ("time", stamp.tz is not None, stamp.as_unit("ns").value)
    if isinstance(value, (pd.Timedelta, np.timedelta64, dt.timedelta)):
        return ("duration", pd.Timedelta(value).as_unit("ns").value)
    return value


def rows(frame: pd.DataFrame) -> Counter:
    """All rows, in no order."""
    return Counter(zip(*(plain_values(frame.iloc[:, place]) for place in range(frame.shape[1])), strict=True))


def plain_values(column: pd.Series) -> list[Any]:
    """A column's values as `plain` gives them; it asks once for each different one, since results are long."""
    try:
        codes, different = pd.factorize(column)
    except TypeError:  # lists have no hash
        return [plain(value) for value in column.tolist()]
    values = [*map(plain, different.tolist()), None]  # a missing one has code -1
    return [values[code] for code in codes.tolist()]


def check(results: list[dict[str, Any]], expected: pd.DataFrame, *, dtypes: bool = True) -> None:
    """All ranks' rows are those expected, of the dtypes expected; peaks kept within the limit, nothing left."""
    for result in results:
        assert list(result["frame"].columns) == list(expected.columns)
        assert list(result["frame"].dtypes) == list(results[0]["frame"].dtypes)
        assert result["record"]["measured_peak_bytes"] <= result["limit"]
        assert result["left"][0] == result["left"][1]
        if dtypes:
            assert list(map(str, result["frame"].dtypes)) == list(map(str, expected.dtypes))
    assert rows(whole([result["frame"] for result in results])) == rows(expected)
