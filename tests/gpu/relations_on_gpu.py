"""A program for ranks with GPUs: relational verbs by every strategy, compared with pandas on the whole table.

    mpiexec --with-ft ulfm -n 2 python tests/gpu/relations_on_gpu.py

Prints, on rank 0, a line of JSON: the equipment, and what was wrong. With GCYLON_ENGINE=cpu it runs on CPU engines.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from exchanges_on_gpu import frame_of
from programs import failures, share, tell

import gcylon_lab as gl
from gcylon_lab import col
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.runtime.context import current

ROWS = 6_000
KEYS = (["c"], ["small", "yes"], ["s"], ["n"], ["k", "s"], ["position"])
PARTIAL = {
    "rows": ("f", "size"), "sf": ("f", "sum"), "mf": ("f", "mean"), "vf": ("f", "var"), "sp": ("position", "sum"),
    "mn": ("when", "min"), "mx": ("n", "max"), "fs": ("s", "first"), "lc": ("c", "last"), "cn": ("n", "count"),
    "anyy": ("yes", "any"), "ally": ("yes", "all"), "ms": ("s", "max"),
}  # fmt: skip
WHOLE = PARTIAL | {
    "med": ("f", "median"),
    "q": ("f", "quantile", 0.3),
    "nu": ("s", "nunique"),
    "li": ("position", "list"),
}
CONDITIONS = {
    "numbers": (col("f") > 0.5, lambda f: f["f"] > 0.5),
    "several": (
        (col("n") % 2 == 0) & col("s").notna() | ~col("yes"),
        lambda f: (f["n"] % 2 == 0).fillna(False) & f["s"].notna() | ~f["yes"],
    ),
    "text": (col("s").str.startswith("text 1"), lambda f: f["s"].str.startswith("text 1").fillna(False)),
    "found": (
        col("s").str.contains("TEXT 1É", case=False, na=True),
        lambda f: f["s"].str.contains("TEXT 1É", case=False, na=True, regex=False),
    ),
    "matched": (
        ~col("s").str.contains("^TEXT [12]", case=False, regex=True, na=True),
        lambda f: ~f["s"].str.contains("^TEXT [12]", case=False, na=True),
    ),
    "label": (col("c") == "label 2", lambda f: f["c"] == "label 2"),
    "time": (col("when").dt.day.isin([1, 5]), lambda f: f["when"].dt.day.isin([1, 5])),
}


def everyone(table: gl.Table) -> pd.DataFrame:
    """All ranks' rows, as pandas."""
    context = current()
    frames = share(to_frame(context.workspace.backend.to_host(table._whole())))
    return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)


_answers: dict[tuple[Any, ...], pd.DataFrame] = {}  # of pandas, which takes longer for them than what is checked


def answer(key: tuple[Any, ...], make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """What pandas gives, the same for every strategy and size of chunks."""
    if key not in _answers:
        _answers[key] = make()
    return _answers[key]


def ordered(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Rows in the order of some columns' texts, and labels as texts."""
    frame = frame.copy()
    for name in frame:
        if isinstance(frame[name].dtype, pd.CategoricalDtype):
            frame[name] = frame[name].astype("str")
    texts = [tuple(map(str, row)) for row in frame[keys].itertuples(index=False, name=None)]
    return frame.iloc[sorted(range(len(frame)), key=texts.__getitem__)].reset_index(drop=True)


def same(ours: pd.DataFrame, theirs: pd.DataFrame, keys: list[str]) -> None:
    pd.testing.assert_frame_equal(
        ordered(ours, keys), theirs, check_column_type=False, check_index_type=False, check_exact=False, rtol=1e-9
    )


def by_pandas(whole: pd.DataFrame, by: list[str], named: dict[str, Any], dropna: bool) -> pd.DataFrame:
    groups = whole.groupby(by, dropna=dropna, observed=True, sort=False)
    theirs = {}
    for new, (column, function, *argument) in named.items():
        series = groups[column]
        theirs[new] = series.agg(list) if function == "list" else getattr(series, function)(*argument)
    return pd.DataFrame(theirs).reset_index()


def grouped(table: gl.Table, whole: pd.DataFrame, by: list[str], named: dict[str, Any], strategy: str) -> None:
    named = {new: one for new, one in named.items() if one[0] not in by}
    for dropna in (True, False):
        result = table.groupby(by, dropna=dropna).agg(strategy=strategy, **named)
        known = (len(whole), *by, dropna, len(named))
        theirs = answer(known, lambda drops=dropna: ordered(by_pandas(whole, by, named, drops), by))
        same(everyone(result), theirs, by)
        assert strategy != "staged" or not result.tiers["device"]


def distinct(table: gl.Table, whole: pd.DataFrame, by: list[str], strategy: str) -> None:
    for keep in ("first", "last", False):
        result = table.drop_duplicates(by, keep=keep, strategy=strategy)
        known = (len(whole), *by, keep)
        theirs = answer(known, lambda kept=keep: ordered(whole.drop_duplicates(by, keep=kept), ["position"]))
        same(everyone(result), theirs, ["position"])


def chosen(table: gl.Table, whole: pd.DataFrame, name: str, strategy: str) -> None:
    condition, pandas = CONDITIONS[name]
    result = everyone(table.filter(condition, strategy="auto" if strategy == "chunked" else strategy))
    pd.testing.assert_frame_equal(result, whole[pandas(whole)].reset_index(drop=True), check_column_type=False)


def made(table: gl.Table, whole: pd.DataFrame, strategy: str) -> None:
    result = table.assign(
        y=col("f") * 2 + col("position"), z=col("n").fillna(-1), u=col("s").str.upper(), w=col("small") // 7,
        v=col("s") == "text 1é", strategy="auto" if strategy == "chunked" else strategy,
    )  # fmt: skip
    expected = whole.assign(
        y=whole["f"] * 2 + whole["position"], z=whole["n"].fillna(-1), u=whole["s"].str.upper(), w=whole["small"] // 7,
        v=whole["s"] == "text 1é",
    )  # fmt: skip
    pd.testing.assert_frame_equal(everyone(result), expected, check_column_type=False)


def reduced(table: gl.Table, whole: pd.DataFrame) -> None:
    numbers = ["k", "f", "n"]
    for name in ("sum", "mean", "std", "min", "max", "count", "median", "nunique"):
        ours, theirs = getattr(table, name)(numbers), getattr(whole[numbers], name)()
        assert np.allclose(ours.astype(float), theirs.astype(float), rtol=1e-9, equal_nan=True), name
    assert table.quantile(0.3, "f") == whole["f"].quantile(0.3)


def looked(table: gl.Table, whole: pd.DataFrame) -> None:
    """The verbs that make little of much, and those for whole columns."""
    kinds = {"check_column_type": False, "check_index_type": False}
    numbers = whole[["k", "f", "position"]]
    some = table.select(["k", "f", "position"])
    assert sorted(everyone(table.unique("k"))["k"]) == sorted(whole["k"].unique())
    pd.testing.assert_frame_equal(everyone(some.astype({"k": "float64"})), numbers.astype({"k": "float64"}), **kinds)
    filled = everyone(table.select(["n", "s"]).fillna({"n": -5, "s": "none"}))
    pd.testing.assert_frame_equal(filled, whole[["n", "s"]].fillna({"n": -5, "s": "none"}), **kinds)
    kept = everyone(table.dropna(["n", "s"]))["position"]
    assert kept.tolist() == whole.dropna(subset=["n", "s"])["position"].tolist()
    assert everyone(table.filter(col("k").isin([1, 2, 3])))["position"].tolist() == (
        whole[whole["k"].isin([1, 2, 3])]["position"].tolist()
    )
    among = everyone(some.isin({"k": [1, 2, 3], "f": []}))
    pd.testing.assert_frame_equal(among, numbers.isin({"k": [1, 2, 3], "f": []}), **kinds)
    assert table.tail(7)["position"].tolist() == whole["position"].tail(7).tolist()
    assert table.head(7)["position"].tolist() == whole["position"].head(7).tolist()
    drawn = everyone(table.sample(100, seed=3))["position"]
    assert len(set(drawn) & set(whole["position"])) == min(100, len(whole))
    assert np.allclose(table.var(["k", "f"]).astype(float), whole[["k", "f"]].var(), rtol=1e-9)
    assert bool(table.any(["yes"]).iloc[0]) and not bool(table.all(["yes"]).iloc[0])
    ours, theirs = some.describe(), numbers.describe()
    assert np.allclose(ours.loc[theirs.index, theirs.columns].astype(float), theirs, rtol=1e-9)
    doubled = some.map_parts(lambda part: part.assign(twice=part["f"] * 2))
    pd.testing.assert_frame_equal(everyone(doubled), numbers.assign(twice=numbers["f"] * 2), **kinds)


def came_back(table: gl.Table, whole: pd.DataFrame) -> None:
    """Below the device tier and back again: the table, and some of its columns alone."""
    staged = table.repartition(strategy="staged")
    below = staged.nbytes
    some = staged.select(["s", "position"]).unstage()
    assert some.tiers["device"] == some.nbytes <= below and not staged.tiers["device"], (some.tiers, staged.tiers)
    pd.testing.assert_frame_equal(everyone(some), whole[["s", "position"]], check_column_type=False)
    some.release()
    assert staged.unstage().tiers["device"] == staged.nbytes, staged.tiers
    assert current().recorder.operations[-1].unstaged_bytes == below
    same(everyone(staged), ordered(whole, ["position"]), ["position"])


def checks(table: gl.Table, whole: pd.DataFrame) -> list[tuple[str, Callable[[], None]]]:
    found: list[tuple[str, Callable[[gl.Table, pd.DataFrame], None]]] = []
    for strategy in ("direct", "chunked", "staged"):
        for by in KEYS:
            for kind, named in (("partial", PARTIAL), ("whole", WHOLE)):
                found.append(
                    (f"groupby {by} {kind} {strategy}", lambda t, w, b=by, n=named, s=strategy: grouped(t, w, b, n, s))
                )
            found.append((f"drop_duplicates {by} {strategy}", lambda t, w, b=by, s=strategy: distinct(t, w, b, s)))
        for name in CONDITIONS:
            found.append((f"filter {name} {strategy}", lambda t, w, n=name, s=strategy: chosen(t, w, n, s)))
        found.append((f"assign {strategy}", lambda t, w, s=strategy: made(t, w, s)))
    found += [("reductions", reduced), ("looks", looked), ("unstage", came_back)]
    return [(what, partial(check, table, whole)) for what, check in found]


def main() -> None:
    context = gl.initialize(engine=os.environ.get("GCYLON_ENGINE", "gpu"), sample_hz=0)
    rank, size = context.rank, context.size
    wrong: list[str] = []
    # Each run of all checks takes half a minute, and with ranks that share a GPU more.
    for shape, chunk in (("full", 0), ("full" if size == 1 else "one empty", 64 * 1024)):
        frame = frame_of(rank, ROWS if shape == "full" or rank != size - 1 else 0)
        whole = pd.concat(share(frame), ignore_index=True)
        whole["c"] = whole["c"].astype("category")
        table = gl.from_local(frame)
        context.workspace.config = gl.GcylonConfig(chunk_size_bytes=chunk)
        wrong += failures(checks(table, whole), f" {shape} chunk {chunk}")
        table.release()
    tell(wrong)
    context.close()


if __name__ == "__main__":
    main()
