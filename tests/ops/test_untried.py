"""On GPU engines verbs that were never compared with pandas there are refused by all ranks alike, unless asked for."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.context import current
from gcylon_lab.errors import ArgumentError
from gcylon_lab.ops.untried import UNTRIED_VARIABLE
from gcylon_lab.tables.pandas_backend import PandasBackend


class OnGpu(PandasBackend):
    on_gpu = True


def verbs() -> list[str]:
    current().workspace.backend = OnGpu()
    table = gl.from_local(pd.DataFrame({"k": [1, 2, 2], "v": [1.0, 2.0, 3.0]}))
    asked: dict[str, Any] = {
        "groupby": lambda: table.groupby("k").agg({"v": "sum"}),
        "join": lambda: table.join(table, on="k"),
        "sort_values": lambda: table.sort_values("k"),
        "filter": lambda: table.filter(gl.col("v") > 1),
        "drop_duplicates": lambda: table.drop_duplicates(),
        "fillna": lambda: table.fillna({"v": 0.0}),
        "describe": lambda: table.describe(),
        "shuffle": lambda: table.shuffle("k"),
        "select": lambda: table.select(["v"]),
    }
    done = []
    for name, call in asked.items():
        try:
            call()
            done.append(name)
        except ArgumentError as error:
            assert error.message.startswith(f"{name} has not been seen") and UNTRIED_VARIABLE in error.advice
    return done


@pytest.mark.parametrize("size", [1, 3])
def test_they_are_refused_unless_asked_for(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = ["groupby", "join", "sort_values", "filter", "drop_duplicates", "shuffle", "select"]
    monkeypatch.delenv(UNTRIED_VARIABLE, raising=False)
    assert World("threads", size).run(verbs) == [tried] * size
    monkeypatch.setenv(UNTRIED_VARIABLE, "1")
    everything = [*tried[:5], "fillna", "describe", *tried[5:]]
    assert World("threads", size).run(verbs) == [everything] * size
