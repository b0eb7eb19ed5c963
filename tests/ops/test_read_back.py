"""Rows that were read back are let go of before more are read back: claims end in time, and an allocator counts what is
there."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mapped import Mapped, ScatteringPandas
from worlds import run_over

import gcylon_lab as gl
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.data import Columns
from gcylon_lab.runtime.context import current

ROWS, SLICES = 6000, 6
VERBS: dict[str, Any] = {
    "shuffle": lambda table, config: table.shuffle("k", config=config),
    "keep_order": lambda table, config: table.shuffle("k", keep_order=True, config=config),
    "broadcast": lambda table, config: table.broadcast(1, config=config),
    "repartition": lambda table, config: table.repartition([ROWS // 2, ROWS + ROWS // 2], config=config),
    "allgather": lambda table, config: table.allgather(strategy="staged", config=config),
    "sort_values": lambda table, config: table.sort_values("k", config=config),
    "map_parts": lambda table, config: table.map_parts(lambda frame: frame[["b"]], by_chunk=True, config=config),
    "sample": lambda table, config: table.sample(frac=0.5, seed=1, config=config),
    "median": lambda table, config: table.groupby("k").agg({"a": "median"}, config=config),
    "drop_duplicates": lambda table, config: table.drop_duplicates(["k", "a"], config=config),
    "equals": lambda table, config: table.equals(gl.from_local(frame_of("s" in table.dtypes)), config=config),
    "cut": lambda table, config: table.shuffle("k", config=gl.GcylonConfig(gpu_memory_limit=table.nbytes // 5)),
}


class Watching:
    """A backend that refuses to read rows back while any that it gave before are there."""

    def unpack(self, schema: Any, rows: int, buffers: Any) -> Any:
        given = vars(self).setdefault("given", [])
        assert all(one() is None for one in given), "rows that were read back before are still there"
        data = super().unpack(schema, rows, buffers)  # type: ignore[misc]
        owners = [np.array(array) for array in data.arrays if isinstance(array, np.ndarray)]
        given += map(weakref.ref, owners)
        views = iter([owner[:] for owner in owners])
        return Columns(
            data.schema,
            rows,
            tuple([next(views) if isinstance(array, np.ndarray) else array for array in data.arrays]),
        )


class WatchingPandas(Watching, PandasBackend):
    pass


class WatchingScattering(Watching, ScatteringPandas):
    pass


def frame_of(text: bool) -> pd.DataFrame:
    random = np.random.default_rng(current().rank)
    frame = pd.DataFrame({"k": random.integers(0, 500, ROWS), "a": random.random(ROWS), "b": 1.0})
    return frame.assign(s=[f"text {i % 37}" for i in range(ROWS)]) if text else frame


def used(verb: str, text: bool) -> None:
    table = gl.from_local(frame_of(text))
    nbytes = table.nbytes
    table._live().stage(current().workspace, 1 << 40, nbytes // SLICES)
    VERBS[verb](
        table, gl.GcylonConfig(gpu_memory_limit=4 * nbytes, chunk_size_bytes=nbytes // SLICES, min_chunk_rows=1)
    )


JOINED = ("median", "cut")  # with texts, small chunks are joined there, for which several are read back


@pytest.mark.parametrize("verb", VERBS)
def test_rows_that_were_read_back_go_before_the_next(verb: str) -> None:
    for text in [False] if verb in JOINED else [False, True]:
        run_over(2, lambda base: base, used, verb, text, backend=WatchingPandas)
        run_over(2, Mapped, used, verb, text, backend=WatchingScattering)
