"""Kernels of the tests, bodies that run on every rank of a world, and what pandas and plain Python say of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from exchanges import held, make_frame, more_held

import gcylon_lab as gl
from gcylon_lab.backends.kernels import compiled
from gcylon_lab.config import GcylonConfig
from gcylon_lab.profiling import categories
from gcylon_lab.runtime.context import current

LIMIT = 3
NUMBA = compiled.numba_or_why()[0] is not None
WAYS = [False, True] if NUMBA else [False]

net = gl.kernel("a * (1 - b)")
within = gl.kernel("not (0 < a and b <= a) or a // 2 == min(a, b)")


@gl.kernel
def branched(a, b):
    """Branches, and calls math: it has a form for whole columns."""
    if a > b:
        return math.sqrt(a - b)
    return a % 3 if a != LIMIT else -1


@gl.kernel
def looped(a, b):
    """Loops: without a compiler it runs row by row."""
    total = 0
    for _ in range(3):
        if total < 10:
            total += a
    return total + b


KERNELS = {"net": net, "within": within, "branched": branched, "looped": looped}


def plain(name: str, a: Any, b: Any) -> Any:
    """What a kernel gives for one row, said again in other words."""
    if name == "net":
        return a * (1 - b)
    if name == "within":
        return bool(not a > 0 or not b <= a or a // 2 == np.minimum(a, b))
    if name == "branched":
        if a > b:
            return np.sqrt(a - b)
        return -1 if a == LIMIT else a % np.int64(3)
    total = np.int64(0) if not isinstance(a, np.floating) else np.float64(0)
    for _ in range(3):
        total = total + a if total < 10 else total
    return total + b


def wide(series: pd.Series) -> list[Any]:
    """The values of a column as a kernel sees them; None where one is missing."""
    dtype: Any = series.dtype
    if dtype.kind in "mM" and not isinstance(dtype, pd.ArrowDtype):
        plain = series if getattr(dtype, "tz", None) is None else series.dt.tz_convert(None)
        counts = plain.to_numpy().astype("int64")
        return [None if gone else np.int64(value) for value, gone in zip(counts, series.isna(), strict=True)]
    if dtype.kind == "M":
        return [None if value is pd.NA else np.int64(value.value // 10**6) for value in series.tolist()]
    kind = {"b": bool, "f": np.float64}.get(dtype.kind, np.int64)
    nullable = not isinstance(dtype, np.dtype)
    return [None if nullable and (value is None or value is pd.NA) else kind(value) for value in series.tolist()]


def expected(name: str, *columns: pd.Series) -> list[Any]:
    with np.errstate(all="ignore"):
        rows = zip(*map(wide, columns), strict=True)
        return [None if any(value is None for value in row) else plain(name, *row) for row in rows]


def assert_answers(made: pd.Series, wanted: list[Any]) -> None:
    """Compare a column with answers. In nullable columns NaN is missing, to pandas."""
    nullable = not isinstance(made.dtype, np.dtype)
    ours = [math.nan if value is None or value is pd.NA else float(value) for value in made.tolist()]
    assert nullable or None not in wanted
    np.testing.assert_array_equal(ours, [math.nan if value is None else float(value) for value in wanted])


@contextmanager
def way(numba: bool) -> Iterator[None]:
    """Kernels as with numba, or as where it is not installed."""
    if numba:
        yield
        return
    with mock.patch.object(compiled, "numba_or_why", lambda: (None, "numba is not installed")):
        yield


def on_a_rank(layout: str, config: GcylonConfig | None = None, rows: int = 300) -> dict[str, Any]:
    """Use kernels in `assign`, `filter` and `map_parts`; return what the test checks."""
    context = current()
    frame = make_frame(layout, context.rank, context.size, rows)
    table = gl.from_local(frame)
    if config is not None:
        table._part.stage(context.workspace, 2**40, 4096)
    before = held(context)
    made = table.assign(
        net=net("x", "n"), yes=within(gl.col("k") - 40, "k"), far=branched("d", gl.col("g") * 10**9),
        loop=looped("n", 2), small=gl.kernel("a / 2", dtype="float32")("k"), later=_later("d"), config=config,
    )  # fmt: skip
    records = [context.recorder.operations[-1]]
    chosen = made.filter(within("k", "n"), config=config)
    records.append(context.recorder.operations[-1])
    mapped = table.map_parts(_mapped, by_chunk=True, config=config)
    spans = {(event.name, event.category) for event in context.recorder.events() if event.category == "kernel"}
    seen = {
        "input": frame,
        "frame": made.local(),
        "chosen": chosen.local(),
        "mapped": mapped.local(),
        "explained": made.explain(),
        "spans": spans,
        "peaks": [(one.measured_peak_bytes, one.budget_bytes) for one in records],
        "arguments": records[0].arguments,
        "phases": records[1].phases,
    }
    for one in (made, chosen, mapped):
        one.release()
    seen["left"] = more_held(context, before)
    assert "kernel" in categories()
    return seen


def in_way(numba: bool, layout: str) -> dict[str, Any]:
    """The same where each rank is a process, which is told itself whether it has numba."""
    with way(numba):
        return on_a_rank(layout)


_later = gl.kernel("t + 1", dtype="timedelta64[s]", name="later")


def _mapped(frame: Any) -> Any:
    return frame[["g"]].assign(z=net(frame["x"], 0.5))


def another_source_on_rank_1() -> None:
    scale = current().rank == 1
    made = gl.kernel("g * 2", name="scaled") if scale else gl.kernel("g * 3", name="scaled")
    gl.from_local(pd.DataFrame({"g": [1, 2]})).assign(y=made("g"))


def answers_that_were_not_expected() -> None:
    gl.from_local(pd.DataFrame({"g": [1, 10**9 if current().rank == 1 else 2]})).assign(y=_rare("g"))


@gl.kernel
def _rare(a):
    for _ in range(1):
        if a // 10 == 10**8:
            return 0.5
    return 1


def row_by_row_math() -> list[float]:
    return gl.from_local(pd.DataFrame({"x": [4.0, -1.0, np.nan]})).assign(y=_rooted("x")).local()["y"].tolist()


@gl.kernel
def _rooted(x):
    for _ in range(2):
        x = math.sqrt(x)
    return x
