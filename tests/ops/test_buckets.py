"""Rows that are split in many buckets by a small budget: few chunks, all rows, inside the budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from joins import answer, check, join
from worlds import World

from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.store.runs import Runs

KIB = 1024


def sides(rows: int, hot: float, *, text: bool) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Both sides on two ranks; each key once but for one that ``hot`` of the left side's rows have."""
    lefts, rights = [], []
    for rank in range(2):
        rng = np.random.default_rng(rank)
        keys = rng.permutation(rows) * 2 + rank
        hots = np.where(rng.random(rows) < hot, 7, keys)
        lefts.append(pd.DataFrame({"k": hots, "x": rng.random(rows)}))
        rights.append(pd.DataFrame({"k": rng.permutation(keys), "y": rng.random(rows)}))
        if text:
            lefts[-1]["s"] = pd.Series(["t" * (i % 41) for i in range(rows)], dtype="str")
    return lefts, rights


@pytest.mark.parametrize(("hot", "text"), [(0.0, False), (0.9, False), (0.5, True)], ids=["even", "hot", "text"])
def test_pieces_are_written_once_for_all_buckets(hot: float, text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Runs.add
    put: list[int] = []

    def counted(self: Any, data: Any, offsets: Any) -> None:
        put.append(data.rows)
        add(self, data, offsets)

    monkeypatch.setattr(Runs, "add", counted)
    tables = sides(6000, hot, text=text)
    config = GcylonConfig(gpu_memory_limit=(160 if text else 96) * KIB)
    results = World("threads", 2).run(join, *tables, {"how": "outer", "on": "k"}, "auto", config)
    check(results, answer(*tables, how="outer", on="k"))
    assert "buckets" in results[0]["explain"]
    assert sum(put) == 24_000  # both sides, on both ranks
    assert len(put) < 400  # of slices put down one by one there are 2500 and more
