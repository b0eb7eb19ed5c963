"""Filters: the rows are those of pandas, and what is skipped holds none of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.expressions import Expression
from gcylon_lab.errors import ArgumentError
from gcylon_lab.formats.io import plan_parquet, read_parquet_chunks
from gcylon_lab.formats.parquet.row_choice import RowChoice
from gcylon_lab.formats.row_filters import condition_of, filtered, read_columns
from gcylon_lab.runtime.context import run_threads

backend = PandasBackend()
GROUP = 4


def write(path: Path, columns: dict[str, Any]) -> None:
    table = pa.table({name: pa.array(values, type_) for name, (values, type_) in columns.items()})
    pq.write_table(table, path, row_group_size=GROUP)


def read(path: Path, condition: Expression | None, columns: list[str] | None = None) -> tuple[pd.DataFrame, int]:
    """The rows of which a condition holds, and how many row groups were not read."""
    wanted = read_columns(columns, condition)
    (plan,) = plan_parquet(path, 1, columns=wanted, condition=condition)
    pieces = list(filtered(read_parquet_chunks(plan, columns=wanted), condition, columns))
    if condition is not None:  # chosen while they are read they are the same rows, of the same dtypes
        choice = RowChoice(condition, columns)
        chosen = list(read_parquet_chunks(plan, columns=wanted, choice=choice))
        rows = sum(piece.stop - piece.start for piece in plan.pieces)
        assert choice.looked_at == rows
        pd.testing.assert_frame_equal(to_frame(backend.concat(chosen)), to_frame(backend.concat(pieces)))
    files = [path] if path.is_file() else path.rglob("*.parquet")
    groups = sum(pq.ParquetFile(file).num_row_groups for file in files)
    return to_frame(backend.concat(pieces)), groups - len(plan.pieces)


DAYS = [dt.datetime(2024, 1, day, 5) for day in range(1, 13)]
COLUMNS: dict[str, Any] = {
    "i": ([*range(8), None, 9, 10, 11], pa.int32()),
    "f": ([0.5, float("nan"), 2, 3, None, None, None, None, 8, 9, 10, 11], pa.float64()),
    "f32": ([n / 10 for n in range(12)], pa.float32()),
    "s": (list("abcdefgh") + [None] * 4, pa.string()),
    "t": (DAYS, pa.timestamp("us")),
    "z": (DAYS, pa.timestamp("ns", "Europe/Berlin")),
    "d": ([day.date() for day in DAYS], pa.date32()),
    "m": ([Decimal(n) / 4 for n in range(12)], pa.decimal128(9, 2)),
    "b": ([True] * 4 + [False] * 4 + [None] * 4, pa.bool_()),
    "u": ([2**64 - 1 - n for n in range(12)], pa.uint64()),
}
ZONED = pd.Timestamp("2024-01-09 05:00", tz="UTC")
c = gl.col


@pytest.mark.parametrize(
    ("condition", "skipped"),
    [
        (c("i") > 8, 2), (8 < c("i"), 2), (c("i") <= 3, 2), (c("i") == 5, 2), (c("i") != 5, 0), (c("i").isna(), 2),
        (c("i").isin([1, 2]), 2), (c("i").between(2, 5), 1), (~(c("i") < 4), 1), (c("i") > 2.5, 0), (c("i") >= 4.5, 1),
        ((c("i") > 8) | (c("s") == "a"), 1), ((c("i") > 8) & (c("s") == "a"), 3), ((c("i") > 8) & (c("s") != "a"), 2),
        (c("f") >= 8, 2), (c("f").isna(), 0), (c("f") != 3, 0), (c("f").notna(), 1),
        (~(c("f") >= 0), 0), (~c("f").isna(), 1),
        (c("f32") == 0.1, 2), (c("f32") > 0.7, 1), (c("s") >= "e", 2), (c("s").isin(["zz", "b"]), 2),
        (c("t") > "2024-01-09", 2), (c("t") == DAYS[5], 2), (c("t") < pd.Timestamp(2023, 1, 1), 3),
        (c("z") >= ZONED, 2), (c("d") <= dt.date(2024, 1, 4), 2), (c("m") > Decimal("2.25"), 2), (c("b").isna(), 2),
        (c("b").isin([True]), 2), (c("u") > 2**64 - 4, 2), (c("s").str.upper() == "A", 0), (c("i") + 1 > 9, 0),
        (c("i") > c("u"), 0), (gl.lit(8) < c("i"), 2),
    ],
    ids=repr,
)  # fmt: skip
def test_rows_are_those_of_a_filter_and_groups_are_skipped(tmp_path: Path, condition: Expression, skipped: int) -> None:
    path = tmp_path / "x.parquet"
    write(path, COLUMNS)
    whole, _ = read(path, None)
    want = to_frame(backend.filter(backend.from_frame(whole), condition))
    got, left_out = read(path, condition)
    pd.testing.assert_frame_equal(got, want)
    assert left_out == skipped


VALUES = st.one_of(st.none(), st.integers(-3, 3))
COMPARISONS = st.builds(
    lambda name, op, value, flip: getattr(gl.lit(value) if flip else c(name), f"__{op}__")(c(name) if flip else value),
    st.sampled_from("xyw"), st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]),
    st.one_of(st.integers(-4, 4), st.sampled_from([-0.5, 1.5])), st.booleans(),
)  # fmt: skip
OTHERS = st.one_of(
    st.sampled_from([c("x").isna(), c("y").notna(), c("w").isin([1, 2]), c("x").between(-1, 1), c("y").isin([None, 3])])
)
CONDITIONS = st.recursive(
    COMPARISONS | OTHERS,
    lambda some: st.one_of(
        st.builds(lambda a, b: a & b, some, some), st.builds(lambda a, b: a | b, some, some), some.map(lambda a: ~a)
    ),
    max_leaves=5,
)  # fmt: skip


@given(rows=st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=16), condition=CONDITIONS)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_no_row_is_lost_by_skipping(tmp_path: Path, rows: list[tuple[Any, ...]], condition: Expression) -> None:
    path = tmp_path / "x.parquet"
    x, y, w = zip(*rows, strict=True)
    floats = [float("nan") if value == 2 else value for value in y]
    write(path, {"x": (x, pa.int64()), "y": (floats, pa.float64()), "w": (w, pa.int8())})
    whole, _ = read(path, None)
    want = to_frame(backend.filter(backend.from_frame(whole), condition))
    pd.testing.assert_frame_equal(read(path, condition)[0], want)


@pytest.mark.parametrize(
    "filters",
    [
        [("x", ">", 3)], [("x", ">", 1), ("s", "==", "b")], [[("x", "<", 2)], [("s", "!=", "a")]],
        [("x", "in", {1, 2})], [("x", "not in", [1, 2])], [("s", "=", "a")], [["x", "<=", 2]], [("x", ">=", 2)],
    ],
    ids=repr,
)  # fmt: skip
def test_tuples_mean_what_they_mean_to_pandas(tmp_path: Path, filters: Any) -> None:
    path = tmp_path / "x.parquet"
    frame = pd.DataFrame({"x": [1, 2, 3, 4, 5], "s": ["a", "b", None, "b", "c"]})
    frame.to_parquet(path)
    plain = [tuple(item) if not isinstance(item[0], tuple) else item for item in filters]
    pd.testing.assert_frame_equal(read(path, condition_of(filters))[0], pd.read_parquet(path, filters=plain))


def test_only_the_columns_asked_for_come(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write(path, COLUMNS)
    assert read(path, c("i") > 8, ["s", "u"])[0].columns.tolist() == ["s", "u"]


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ([], r"condition for filters, got \[\]"), (3, "condition for filters, got 3"),
        ([("x", 3)], "Expected .column, operator, value. in filters"),
        ([("x", "~", 3)], "Operator '~' of .* is invalid"), ([("x", "in", "abc")], "a list of values .* got 'abc'"),
        (gl.lit(True), "no column"),
    ],
)  # fmt: skip
def test_what_is_no_filter(filters: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        condition_of(filters)


def test_what_cannot_be_compared_is_told(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", COLUMNS)
    with pytest.raises(ArgumentError, match=r"\(col\('s'\) > 3\) compares column 's' \(str\) with 3"):
        read(tmp_path / "x.parquet", c("s") > 3)


def test_folders_are_columns_and_prune_files(tmp_path: Path) -> None:
    days = ["2024-01-01"] * 4 + ["2024-01-02"] * 4
    frame = pd.DataFrame({"x": range(8), "k": [1, 2] * 4, "day": days, "w": list("ab") * 4})
    frame.to_parquet(tmp_path, partition_cols=["k", "day", "w"])
    got, _ = read(tmp_path, None)
    assert got.dtypes.astype(str).to_dict() == {"x": "int64", "k": "int64", "day": "datetime64[us]", "w": "str"}
    want = frame.assign(day=pd.to_datetime(frame["day"]).astype("datetime64[us]"))
    pd.testing.assert_frame_equal(got.sort_values("x", ignore_index=True), want)
    got, skipped = read(tmp_path, (c("k") == 2) & (c("day") >= "2024-01-02") & (c("x") < 99))
    assert got["x"].tolist() == [5, 7] and skipped == 3
    assert read(tmp_path, c("w") == "a", ["k"])[0]["k"].tolist() == [1] * 4


def months(folder: Path, names: list[str]) -> str:
    for place, name in enumerate(names):
        where = folder / f"month={name}"
        where.mkdir(parents=True)
        pd.DataFrame({"v": [place]}).to_parquet(where / "part.parquet")
    return str(folder)


@pytest.mark.parametrize(
    "item",
    [
        ("month", "==", 6), ("month", "in", [6, 7]), ("month", "not in", [6, 99]), ("month", ">", 6),
        ("month", ">=", 6.5),
        ("month", "<", 6), ("month", "<=", 6), ("month", "!=", 6), ("month", "==", 99), ("month", "==", np.int8(6)),
    ],
)  # fmt: skip
def test_folders_with_zeros_in_front_are_compared_by_number(tmp_path: Path, item: tuple[str, str, Any]) -> None:
    folder = months(tmp_path, [f"{month:02}" for month in range(1, 13)])
    want = pd.read_parquet(folder, filters=[item])["v"].tolist()
    for size in (1, 3):
        got = run_threads(size, lambda: gl.read_parquet(folder, filters=[item]).to_pandas())[0]
        assert got["v"].tolist() == want and got["month"].tolist() == [f"{v + 1:02}" for v in want]


def test_expressions_of_such_folders(tmp_path: Path) -> None:
    folder = months(tmp_path, ["00", "01", "09", "10", "__HIVE_DEFAULT_PARTITION__"])
    month = gl.col("month")
    for condition, want in (
        (month == 9, [2]), (9 < month, [3]), (month.between(1, 9), [1, 2]), (~(month == 9), [0, 1, 3, 4]),
        ((month == 9) | (month == "10"), [2, 3]), ((month == gl.lit(9)) & (gl.col("v") < 2), []), (month == "09", [2]),
    ):  # fmt: skip
        (got,) = run_threads(
            1, lambda condition=condition: gl.read_parquet(folder, ["v"], filters=condition).to_pandas()
        )
        assert sorted(got["v"]) == want, condition
    explained = run_threads(1, lambda: gl.read_parquet(folder, filters=[("month", ">", 6)]).explain())[0]
    assert "3 of 5 row groups skipped" in explained


TEXTS = pd.DataFrame(
    {
        "s": ["06", "x", None], "i": [1, 2, 3], "c": pd.Categorical(["a", "b", None]), "b": [True, False, True],
        "t": pd.to_datetime(["2024-01-01"] * 3),
    }
)  # fmt: skip


@pytest.mark.parametrize(
    "condition",
    [
        gl.col("s") == 6, gl.col("s") != 6, gl.col("s") > 6, 6 == gl.col("s"), gl.col("s").isin([6, "x"]),
        gl.col("s") == 1.5,
        gl.col("s").between(1, 2), gl.col("c") == 1, gl.col("i") == "1", gl.col("i").isin(["1"]), gl.col("b") == "True",
        gl.col("t") == 5, gl.col("i") == pd.Timestamp("2024-01-01"), gl.col("s") == gl.col("i"),
        (gl.col("i") > 0) & ~(gl.col("s") == np.int64(6)),
    ],
    ids=str,
)  # fmt: skip
def test_text_and_numbers_are_never_compared_silently(tmp_path: Path, condition: Any) -> None:
    TEXTS.to_parquet(tmp_path / "x.parquet")
    for read in (
        lambda: gl.from_local(TEXTS).filter(condition),
        lambda: gl.from_local(TEXTS).assign(found=condition),
        lambda: gl.read_parquet(str(tmp_path / "x.parquet"), filters=condition),
    ):
        with pytest.raises(ArgumentError, match="compares column") as caught:
            run_threads(1, read)
        assert "Compare with" in caught.value.advice or "astype" in caught.value.advice


def test_what_that_advises_works(tmp_path: Path) -> None:
    folder = months(tmp_path, ["06", "07"])

    def found() -> list[list[str]]:
        table = gl.read_parquet(folder)
        by_text, by_number = gl.col("month") == "6", gl.col("month").astype("float64") == 6
        return [table.filter(condition).to_pandas()["month"].tolist() for condition in (by_text, by_number)]

    assert run_threads(1, found) == [[[], ["06"]]]
    for condition, want in ((gl.col("s") == np.nan, []), (gl.col("s").isin([None, "x"]), ["x", None])):
        (got,) = run_threads(1, lambda condition=condition: gl.from_local(TEXTS).filter(condition).to_pandas())
        assert got["s"].fillna("none").tolist() == [text or "none" for text in want]


@pytest.mark.parametrize("missing", [False, True])
def test_few_texts_that_many_rows_refer_to_are_asked_once(tmp_path, missing):
    texts = [None if missing and n % 7 == 0 else ("RAIL", "AIR", "SHIP")[n % 3] for n in range(200)]
    days = [dt.date(2024, 1, 1) + dt.timedelta(n % 50) for n in range(200)]
    table = pa.table({"s": pa.array(texts, pa.string_view()), "d": days, "n": range(200), "k": list("xy") * 100})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=100)
    condition = c("s").isin(["AIR", "SHIP"]) & (c("d") < dt.date(2024, 2, 1)) & (c("n") > 20) & (c("k") == "x")
    frame, skipped = read(tmp_path / "x.parquet", condition, ["n", "s"])
    kept = [n for n in range(200) if texts[n] in ("AIR", "SHIP") and n % 50 < 31 and n > 20 and n % 2 == 0]
    assert frame["n"].tolist() == kept and frame["s"].tolist() == [texts[n] for n in kept] and not skipped


SHORT_AND_LONG = ["", "a", "b", "é", "ab", "cd", "AIR", "RAIL", "SHIP", "12345678", "é234567", "MAIL MAIL", None]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    groups=st.lists(st.lists(st.sampled_from(SHORT_AND_LONG), min_size=1, max_size=3), min_size=1, max_size=4),
    asked=st.sampled_from([
        c("s") == "a", c("s") != "RAIL", c("s").isin(["é", "12345678", ""]), c("s") < "b", c("s").isna(),
        c("s").str.contains("A"), (c("s") >= "a") & (c("n") > 5), ~(c("s") == "a") | (c("n") < 20),
    ]),
)  # fmt: skip
def test_texts_that_row_groups_refer_to_are_chosen_and_spelled_out_as_others_are(
    tmp_path: Path, groups: list[list[Any]], asked: Expression
) -> None:
    texts = [text for group in groups for text in group * 12]
    path = tmp_path / "texts.parquet"
    with pq.ParquetWriter(path, pa.schema([("s", pa.string()), ("n", pa.int64())])) as writer:
        first = 0
        for group in groups:
            rows = range(first, first + 12 * len(group))
            writer.write_table(pa.table({"s": pa.array(group * 12, pa.string()), "n": pa.array(rows, pa.int64())}))
            first = rows.stop
    frame, _ = read(path, asked, ["n", "s"])
    known = pd.Series(texts, dtype="str")
    assert [known[n] if isinstance(known[n], str) else None for n in frame["n"]] == [
        text if isinstance(text, str) else None for text in frame["s"]
    ]
    whole, _ = read(path, None)
    assert [text if isinstance(text, str) else None for text in whole["s"]] == texts
