"""concat in both orders, equals, and value_counts, as pandas has them on whole tables."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from exchanges import held, more_held
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joins import LAYOUTS, frames, plain_values, whole
from relations import FEW, PLANS, THREADS, TIGHT
from sets import set_verb, two
from worlds import World

import gcylon_lab as gl
from gcylon_lab.backends.arrow.tables import from_arrow
from gcylon_lab.backends.host.comparing import first_difference
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import (
    ArgumentError,
    DeadlineExceeded,
    GcylonError,
    SchemaMismatch,
    UnsupportedDtype,
)
from gcylon_lab.runtime.context import current


def concat(
    parts: list[list[pd.DataFrame]], how: dict[str, Any], config: GcylonConfig | None = None, staged: bool = False
) -> dict[str, Any]:
    """Put this rank's share of some tables together."""
    context = current()
    tables = [gl.from_local(frames_[context.rank]) for frames_ in parts]
    if staged:
        for table in tables:
            table._live().stage(context.workspace, 1 << 40, 4096)
    used = held(context)
    result = gl.concat(tables, **how, config=config)
    record = context.recorder.operations[-1]
    found = {
        "frame": result.local(),
        "head": result.to_pandas(3),
        "explained": result.explain(),
        "peak": record.measured_peak_bytes,
        "limit": context.workspace.limit_for(config or context.config),
        "sent": record.sent_bytes,
        "partitioning": result.partitioning,
    }
    result.release()
    found["left"] = 0 if config is not None else sum(more_held(context, used))
    return found


def expected(parts: list[list[pd.DataFrame]], join: str, order: str) -> list[pd.DataFrame]:
    """What pandas gives for the whole tables, or for each rank's."""
    if order == "local":
        return [pd.concat(list(of_rank), ignore_index=True, join=join) for of_rank in zip(*parts, strict=True)]
    every = pd.concat([frame for part in parts for frame in part], ignore_index=True, join=join)
    size = len(parts[0])
    edges = np.cumsum([0] + [len(every) // size + (rank < len(every) % size) for rank in range(size)])
    return [every.iloc[a:b].reset_index(drop=True) for a, b in zip(edges[:-1], edges[1:], strict=True)]


def row_list(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """All rows in order; pandas has objects where a column is missing, here it keeps its dtype."""
    return list(zip(*(plain_values(frame.iloc[:, place]) for place in range(frame.shape[1])), strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("world", THREADS, ids=str)
def test_rows_stand_in_the_order_asked_for(world: World, layout: str) -> None:
    left, right = frames(layout, world.size, 40)
    parts = [left, right, left]
    for i, (join, order) in enumerate((("outer", "global"), ("inner", "global"), ("outer", "local"))):
        wanted = expected(parts, join, order)
        # Of the plans every second in turn: each with each order, on one world or the other.
        for strategy, config in PLANS[(i + world.size // 2) % 2 :: 2] if layout == "even" else PLANS[:1]:
            results = world.run(concat, parts, {"join": join, "order": order, "strategy": strategy}, config)
            for result, frame in zip(results, wanted, strict=True):
                assert list(result["frame"].columns) == list(frame.columns)
                assert row_list(result["frame"]) == row_list(frame)
                assert result["peak"] <= result["limit"] and result["left"] == 0
                assert result["sent"] == 0 or order == "global"


@pytest.mark.parametrize("world", FEW[2:], ids=str)
def test_staged_inputs_on_mpi(world: World) -> None:
    left, right = frames("even", world.size, 200)
    for order in ("global", "local"):
        results = world.run(concat, [left, right], {"order": order}, TIGHT, True)
        for result, frame in zip(results, expected([left, right], "outer", order), strict=True):
            assert row_list(result["frame"]) == row_list(frame)
            assert result["peak"] <= result["limit"]


def dtypes() -> tuple[list[str], list[str]]:
    frame = pd.DataFrame({"i": [1], "b": [True], "s": ["x"], "t": pd.to_datetime(["2020"]).as_unit("us")})
    table = gl.from_local(frame)
    both = gl.concat([table, gl.from_local(pd.DataFrame({"q": np.array([7], np.int8)}))])
    wider = gl.concat([table.select("i"), gl.from_local(pd.DataFrame({"i": [0.5]}))], order="local")
    return [str(dtype) for dtype in both.local().dtypes], [str(dtype) for dtype in wider.local().dtypes]


def test_missing_columns_take_the_dtypes_of_pandas() -> None:
    for both, wider in World("threads", 2).run(dtypes):
        assert both == ["float64", "object", "str", "datetime64[us]", "float64"] and wider == ["float64"]


def refused() -> None:
    one = gl.from_local(pd.DataFrame({"k": [1, 2]}))
    text = gl.from_local(pd.DataFrame({"k": ["a"]}))
    large = gl.from_local(pd.DataFrame({"k": [2**53 + 1]}))
    for tables, how, error, words in (
        ([one, one, text], {}, SchemaMismatch, "'k' cannot be brought to one dtype: int64 in table 0, table 1; str in"),
        ([one, one], {"join": "left"}, ArgumentError, "join='left' is invalid. Expected 'outer' or 'inner'."),
        ([one, one], {"order": "any"}, ArgumentError, "order='any' is invalid. Expected 'global' or 'local'."),
        ([one, None], {}, ArgumentError, "Expected another table for concat, got a NoneType"),
        ([], {}, ArgumentError, "an empty list"),
        ([large, gl.from_local(pd.DataFrame({"k": [0.5]}))], {"order": "local"}, SchemaMismatch, "9007199254740993"),
        ([large, gl.from_local(pd.DataFrame({"j": [1]}))], {}, SchemaMismatch, "9007199254740993"),
    ):
        with pytest.raises(error, match=words):
            gl.concat(tables, **how)
    assert gl.concat([one, one]).count_rows() == 4 * current().size


def test_what_cannot_be_is_refused_on_all_ranks() -> None:
    World("threads", 2).run(refused)


def test_what_is_together_stays_so() -> None:
    left, right = frames("even", 3, 50)
    for result in World("threads", 3).run(shuffled_and_appended, left, right):
        assert result == (("k",), None)


def shuffled_and_appended(left: Any, right: Any) -> Any:
    one, other = two(left, right, before=("k", "k"))
    alike, unlike = (gl.concat([one, table], order="local") for table in (other, other.shuffle("s")))
    return alike.partitioning.keys, unlike.partitioning


# ---- equals


def reasons(lefts: Any, rights: Any, how: dict[str, Any]) -> tuple[bool, str]:
    left, right = two(lefts, rights)
    return left.equals(right, **how), left.why_not_equal(right, **how)


def said(left: pd.DataFrame, right: pd.DataFrame, **how: Any) -> str:
    """Why two frames are not equal, cut over ranks in two ways; the same on all ranks."""
    cut = len(left) // 3
    found = World("threads", 2).run(reasons, [left[:cut], left[cut:]], [right[: 2 * cut], right[2 * cut :]], how)
    assert found[0] == found[1] and found[0][0] == (found[0][1] == "")
    return found[0][1]


def every_kind(rows: int = 60) -> pd.DataFrame:
    frame = frames("even", 1, rows)[0][0]
    frame["l"] = [None if i % 7 == 0 else [i, None] for i in range(rows)]
    return frame


@pytest.mark.parametrize("name", ["k", "s", "f", "b", "m", "t", "c", "l", "w"])
def test_one_other_value_is_found(name: str) -> None:
    frame = every_kind()
    assert said(frame, frame) == ""
    changed = frame.copy()
    changed.at[41, name] = frame.at[40, name] if name != "b" else not frame.at[41, "b"]
    if name in ("l", "m"):
        changed.at[41, name] = None
    assert said(frame, changed).startswith(f"Row 41 differs: column {name!r} is ")
    if name != "l":
        assert "times here" in said(frame.drop(columns="l"), changed.drop(columns="l"), ordered=False)


def test_order_and_dtypes_matter_where_asked() -> None:
    frame = every_kind().drop(columns="l")
    turned = frame[::-1].reset_index(drop=True)
    assert said(frame, turned).startswith("Row 0 differs") and said(frame, turned, ordered=False) == ""
    doubled = pd.concat([frame[1:], frame[-1:]])
    assert "times here" in said(frame, doubled, ordered=False)
    assert said(frame, frame[:-1]) == "There are 60 rows here, 59 in the other table."
    assert "another order" in said(frame, frame[frame.columns[::-1]])
    assert "no column 'k', and an extra column 'q'" in said(frame, frame.rename(columns={"k": "q"}))
    wider = frame.astype({"k": "float64"})
    assert said(frame, wider) == "Column 'k' is int64 here, float64 in the other table."
    assert said(frame, wider, check_dtype=False) == said(frame, wider, check_dtype=False, ordered=False) == ""
    assert "cannot be brought" in said(frame, frame.assign(k="a"), check_dtype=False)
    large = pd.DataFrame({"k": [2**53 + 1, 1, 2]})
    assert "9007199254740993" in said(large, pd.DataFrame({"k": [2.0**53, 1, 2]}), check_dtype=False)
    other_labels = frame.assign(c=frame["c"].cat.reorder_categories(["hi", "mid", "lo"]))
    assert said(frame, other_labels) == ""
    zeros, nans = pd.DataFrame({"f": [0.0, np.nan, 1]}), pd.DataFrame({"f": [-0.0, None, 1]})
    assert said(zeros, nans) == said(zeros, nans, ordered=False) == ""


def lists_in_no_order() -> None:
    table = gl.from_local(pd.DataFrame({"l": [[1], [2]]}))
    with pytest.raises(UnsupportedDtype, match="'l'"):
        table.equals(table, ordered=False)
    with pytest.raises(ArgumentError, match="ordered='yes'"):
        table.equals(table, ordered="yes")
    assert table.equals(table)


VALUES = [[], [1.0, None], [1.0], [float("nan"), 1.0], [-0.0, 2.0], [0.0, 2.0], [1.0, 2.0], None]
NESTED = {
    "list": (pa.large_list(pa.float64()), lambda v: v),
    "fixed list": (pa.list_(pa.float64(), 2), lambda v: None if v is None else [*v, None, None][:2]),
    "struct": (pa.struct([("v", pa.list_(pa.float64()))]), lambda v: None if v == [] else {"v": v}),
    "map": (pa.map_(pa.string(), pa.float64()), lambda v: None if v is None else [("k", one) for one in v]),
    "lists of text": (pa.list_(pa.list_(pa.string())), lambda v: v and [["a" * (one == 1.0)] for one in v]),
}


@pytest.mark.parametrize("kind", NESTED)
def test_nested_values_are_equal_where_plain_python_says_so(kind: str) -> None:
    type_, nested = NESTED[kind]
    pairs = [(nested(a), nested(b)) for a in VALUES for b in VALUES]
    whole = [
        pa.table({"x": pa.array([None, *side, None], type_)}).slice(1, len(pairs)) for side in zip(*pairs, strict=True)
    ]
    for row in range(len(pairs)):
        one, other = (table.slice(row) for table in whole)
        pylists = (table["x"].to_pylist() for table in (one, other))
        unlike = [at for at, (a, b) in enumerate(zip(*pylists, strict=True)) if shown(a) != shown(b)]
        found = first_difference(*(from_arrow(table, nullable=True) for table in (one, other)))
        assert found == ((unlike[0], "x") if unlike else None)


def shown(value: Any) -> str:
    """A value as text that is equal where values are: NaN is missing, and -0.0 is 0.0."""
    return repr(value).replace("nan", "None").replace("-0.0", "0.0")


def test_lists_are_compared_as_arrays_and_not_one_by_one() -> None:
    lists = pa.table({"x": pa.array([[1, 2]] * 300_000, pa.large_list(pa.int64()))})
    columns = [from_arrow(lists, nullable=True) for _ in range(2)]
    begin = time.process_time()
    assert first_difference(*columns) is None
    assert time.process_time() - begin < 0.3  # in Python alone 0.9 s


def test_lists_are_compared_in_order_only() -> None:
    World("threads", 2).run(lists_in_no_order)


@pytest.mark.parametrize("world", [World("threads", 3), *FEW[2:]], ids=str)
def test_equals_keeps_to_the_budget(world: World) -> None:
    left, _ = frames("even", world.size, 2000)
    everything = whole(left)
    right = [everything[:0]] * (world.size - 1) + [everything]
    for ordered in (True, False):
        results = world.run(set_verb, left, right, "equals", {"ordered": ordered}, TIGHT, True)
        assert all(result["value"] is True and result["peak"] <= result["limit"] for result in results)


# ---- value_counts


def counts(frames_: list[pd.DataFrame], columns: Any, how: dict[str, Any]) -> pd.DataFrame:
    return gl.from_local(frames_[current().rank]).value_counts(columns, **how).to_pandas(None)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    values=st.lists(st.sampled_from(["a", "b", None, "c"]), max_size=30),
    size=st.integers(1, 3),
    how=st.fixed_dictionaries({name: st.booleans() for name in ("normalize", "sort", "ascending", "dropna")}),
)
def test_value_counts_are_those_of_pandas(values: Any, size: int, how: dict[str, bool]) -> None:
    frame = pd.DataFrame({"s": pd.Series(values, dtype="str"), "x": 1})
    cuts = [len(frame) * rank // size for rank in range(size + 1)]
    parts = [frame[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    ours = World("threads", size).run(counts, parts, "s", how)[0]
    theirs = frame[["s"]].value_counts(**how).reset_index()
    assert list(ours.columns) == list(theirs.columns)
    name = theirs.columns[-1]
    assert sorted(map(str, ours.itertuples(index=False))) == sorted(map(str, theirs.itertuples(index=False)))
    if how["sort"]:
        assert ours[name].tolist() == theirs[name].tolist()


def test_value_counts_refuses_what_is_not_clear() -> None:
    frame = pd.DataFrame({"count": [1, 1], "s": ["a", "a"]})
    for outcome in World("threads", 2).outcomes(counts, [frame] * 2, "count", {}):
        assert isinstance(outcome.error, ArgumentError) and "Rename it" in str(outcome.error)
    normalized = World("threads", 2).run(counts, [frame] * 2, "count", {"normalize": True})[0]
    assert normalized.to_dict("list") == {"count": [1], "proportion": [1.0]}


# ---- deadlines


def late(verb: str, args: tuple[Any, ...], how: dict[str, Any]) -> str:
    """Call a verb with a deadline, on rank 0 alone."""
    table = gl.from_local(pd.DataFrame({"x": [1.0, 2.0]}))
    if current().rank:
        return ""
    try:
        getattr(table, verb)(*args, **how, timeout_s=0.05)
    except GcylonError as error:
        return type(error).__name__
    return "nothing"


DEADLINES = [
    ("filter", (gl.col("x") > 1,), {}), ("assign", ({"y": 1},), {}), ("astype", ("float32",), {}),
    ("fillna", (0,), {}), ("dropna", (), {}), ("isin", ([1],), {}), ("select", ("x",), {}), ("drop", ("x",), {}),
    ("rename", ({"x": "y"},), {}), ("map_parts", (str,), {}), ("sample", (1,), {}), ("tail", (1,), {}),
    ("sum", (), {}), ("mean", (), {}), ("min", (), {}), ("max", (), {}), ("count", (), {}), ("any", (), {}),
    ("all", (), {}), ("var", (), {}), ("std", (), {}), ("median", (), {}), ("quantile", (0.5,), {}),
    ("nunique", (), {}), ("describe", (), {}), ("count_rows", (), {}), ("value_counts", (), {}),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "args", "how"), DEADLINES, ids=[one[0] for one in DEADLINES])
def test_every_verb_keeps_a_deadline(verb: str, args: Any, how: Any) -> None:
    assert World("threads", 2).run(late, verb, args, how)[0] == DeadlineExceeded.__name__
