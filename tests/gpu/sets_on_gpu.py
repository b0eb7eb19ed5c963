"""A program for ranks with GPUs: verbs on two tables as sets, and files of every format there and back.

    PYTHONPATH=.:tests/ops:tests mpiexec --with-ft ulfm -n 2 python tests/gpu/sets_on_gpu.py

Prints, on rank 0, a line of JSON: the equipment, and what was wrong. With GCYLON_ENGINE=cpu it runs on CPU engines.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pandas as pd
from exchanges_on_gpu import frame_of
from joins import LAYOUTS, frames, rows, whole
from programs import failures, share, tell
from sets import VERBS, counted

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.runtime.context import current

COLUMNS = ["k", "s", "f", "b"]
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "parquet": ("parquet", {}),
    "folders": ("parquet", {"partition_on": ["g"]}),
    "csv": ("csv", {}),
    "json": ("json", {"compression": "zstd"}),
    "ipc": ("ipc", {}),
    "ipc stream": ("ipc", {"stream": True, "compression": "lz4"}),
}
_KEPT = 64  # cuDF keeps some scalars
Check = Callable[[], None]


def everyone(table: gl.Table) -> pd.DataFrame:
    """All ranks' rows, as pandas."""
    parts = share(to_frame(current().workspace.backend.to_host(table._whole())))
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def two(layout: str) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Two tables in which rows stand several times; the second has another column order."""
    lefts, rights = frames(layout, current().size, 120)
    lefts, rights = (
        [pd.concat([frame] * times, ignore_index=True) if len(frame) else frame for frame in parts]
        for parts, times in ((lefts, 2), (rights, 3))
    )
    return [left[COLUMNS] for left in lefts], [right[COLUMNS[::-1]] for right in rights]


def check_set(layout: str, verb: str, every: bool, strategy: str, chunk: int) -> None:
    context = current()
    lefts, rights = two(layout)
    left, right = gl.from_local(lefts[context.rank]), gl.from_local(rights[context.rank])
    config = gl.GcylonConfig(chunk_size_bytes=chunk)
    result = getattr(left, verb)(right, all=every, strategy=strategy, config=config)
    found = rows(everyone(result))
    assert found == counted(verb, every, lefts, rights), f"{sum(found.values())} rows"
    for table in (result, left, right):
        table.release()


def check_equality(layout: str) -> None:
    context = current()
    lefts, _ = two(layout)
    table = gl.from_local(lefts[context.rank])
    moved = table.shuffle("k")
    other = table.filter(gl.col("k") != whole(lefts)["k"].dropna().iloc[0])
    assert table.equals(table)
    assert table.equals(moved, ordered=False)
    assert not table.equals(other, ordered=False) and table.why_not_equal(other)
    both = gl.concat([table, other])
    assert both.count_rows() == table.count_rows() + other.count_rows()
    counts = table.value_counts("s")
    assert everyone(counts)["count"].sum() == len(whole(lefts)["s"].dropna())
    for one in (counts, both, other, moved, table):
        one.release()


def check_file(folder: str, name: str) -> None:
    context = current()
    frame = frame_of(context.rank, 900)[["k", "f", "position", "yes", "s", "n"]]
    frame["g"] = frame["position"] % 3
    expected = pd.concat(share(frame), ignore_index=True)
    table = gl.from_local(frame)
    kind, how = FORMATS[name]
    getattr(table, f"write_{kind}")(f"{folder}/{name}", **how)
    again = getattr(gl, f"read_{kind}")(f"{folder}/{name}")
    got = everyone(again)[list(expected.columns)].sort_values("position", ignore_index=True)
    if name == "csv":  # a text without letters is no text there
        expected["s"], got["s"] = expected["s"].fillna(""), got["s"].fillna("")
    for column in expected:
        a, b = got[column], expected[column]
        assert (a.isna() == b.isna()).all(), f"nulls of {column!r}"
        assert (a[~b.isna()].astype(b.dtype) == b[~b.isna()]).all(), f"values of {column!r}"
    few = getattr(gl, f"read_{kind}")(f"{folder}/{name}", ["k", "g"], filters=[("position", ">=", 1_000_000)])
    assert few.count_rows() == int((expected["position"] >= 1_000_000).sum())
    for one in (few, again, table):
        one.release()


def checks(folder: str) -> list[tuple[str, Check]]:
    found: list[tuple[str, Check]] = []
    for layout in LAYOUTS:
        for verb in VERBS:
            for every in (False, True):
                for strategy, chunk in (("direct", 0), ("chunked", 1024), ("staged", 1024)):
                    arguments = (layout, verb, every, strategy, chunk)
                    found.append((" ".join(map(str, arguments)), lambda a=arguments: check_set(*a)))  # type: ignore[misc]
        if layout not in ("left empty", "all empty"):  # there, nothing differs
            found.append((f"equality {layout}", lambda a=layout: check_equality(a)))  # type: ignore[misc]
    return found + [(f"files {name}", lambda n=name: check_file(folder, n)) for name in FORMATS]  # type: ignore[misc]


def main() -> None:
    context = gl.initialize(engine=os.environ.get("GCYLON_ENGINE", "gpu"), sample_hz=0)
    folder = share(tempfile.mkdtemp() if context.rank == 0 else "")[0]
    context.budget.start_window()
    before = context.budget.used_bytes
    wrong = failures(checks(folder))
    context.budget.start_window()
    if not wrong and context.budget.used_bytes > before + _KEPT:
        wrong.append(f"{context.budget.used_bytes - before} bytes are left in use on rank {context.rank}")
    if context.rank == 0:
        shutil.rmtree(folder)
    tell(wrong)
    context.close()


if __name__ == "__main__":
    main()
