"""Random tables, cut at random over ranks, joined in every way: the rows that pandas gives for the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joins import HOWS, answer, check, join
from worlds import World

from gcylon_lab.config import GcylonConfig

TIGHT = GcylonConfig(gpu_memory_limit="64 KiB", chunk_size_bytes=1024, min_chunk_rows=1)
KINDS = ("int", "Int64", "float", "str", "category", "time")


def column(draw: Any, kind: str, rows: int) -> Any:
    """Values of few kinds, so that many are equal; some are missing."""
    picks = draw(st.lists(st.integers(0, 5), min_size=rows, max_size=rows))
    if kind == "int":
        return np.array([[-3, 0, 1, 2, 2**40, -(2**62)][p] for p in picks], np.int64)
    if kind == "Int64":
        return pd.array([[None, 0, 1, 2, 2**60 + 1, -7][p] for p in picks], "Int64")
    if kind == "float":
        return np.array([[np.nan, 0.0, -0.0, 1.5, np.inf, 1e300][p] for p in picks])
    if kind == "str":
        return pd.Series([[None, "", "a", "ä", "long " * 9, "b"][p] for p in picks], dtype="str")
    if kind == "category":
        return pd.Categorical.from_codes([p - 1 for p in picks], ["u", "v", "w", "x", "y"])
    return pd.DatetimeIndex([[None, "2020", "2021", "2022", "1800", "2023"][p] for p in picks]).as_unit("us")


@st.composite
def sides(draw: Any, size: int) -> tuple[list[pd.DataFrame], list[pd.DataFrame], list[str]]:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    names = [f"k{place}" for place in range(len(kinds))]
    made = []
    for value in ("x", "y"):
        rows = draw(st.integers(0, 40))
        frame = pd.DataFrame({name: column(draw, kind, rows) for name, kind in zip(names, kinds, strict=True)})
        frame[value] = np.arange(rows)
        cuts = sorted(draw(st.lists(st.integers(0, rows), min_size=size - 1, max_size=size - 1)))
        edges = [0, *cuts, rows]
        made.append([frame.iloc[a:b].reset_index(drop=True) for a, b in zip(edges[:-1], edges[1:], strict=True)])
    return made[0], made[1], names


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data(), size=st.sampled_from([1, 2, 3]), how=st.sampled_from(HOWS), tight=st.booleans())
def test_random_tables(data: Any, size: int, how: str, tight: bool) -> None:
    lefts, rights, on = data.draw(sides(size))
    # Under so small a limit pairs of all rows may not fit on the device.
    strategy = data.draw(st.sampled_from(["auto", "staged"] if tight else ["auto", "direct", "chunked", "staged"]))
    arguments = {"how": how, "on": on}
    results = World("threads", size).run(join, lefts, rights, arguments, strategy, TIGHT if tight else None, tight)
    check(results, answer(lefts, rights, **arguments))
