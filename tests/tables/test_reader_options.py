"""What people pass to readers: taken where it is clear, refused in words where it is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, ReadError
from gcylon_lab.formats.reader_options import column_list, dtype_texts, other_delimiter
from gcylon_lab.runtime.context import run_threads

FRAME = pd.DataFrame({"price": [1, 2], "day": ["2024-01-01", "2024-01-02"]})


def written(folder: Path, kind: str) -> str:
    path = str(folder / f"a.{kind}")
    if kind == "parquet":
        FRAME.to_parquet(path)
    elif kind == "csv":
        FRAME.to_csv(path, index=False)
    else:
        FRAME.to_json(path, orient="records", lines=True)
    return path


def alone(function: Callable[[], Any]) -> Any:
    return run_threads(1, function)[0]


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_one_name_is_one_column(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    assert alone(lambda: getattr(gl, f"read_{kind}")(path, "price").columns) == ["price"]
    if kind != "parquet":
        types = alone(lambda: getattr(gl, f"read_{kind}")(path, parse_dates="day").dtypes)
        assert "datetime64" in types["day"]


def test_dtypes_of_python_and_numpy() -> None:
    given = {"a": int, "b": float, "c": str, "d": bool, "e": np.int8, "f": np.dtype("f4"), "g": "Int16"}
    assert list((dtype_texts(given) or {}).values()) == [
        "int64", "float64", "str", "bool", "int8", "float32", "Int16",
    ]  # fmt: skip


def test_they_arrive(tmp_path: Path) -> None:
    path = written(tmp_path, "csv")
    assert alone(lambda: gl.read_csv(path, dtype={"price": np.int8}).dtypes["price"]) == "int8"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parse_dates": True}, "Expected column names for parse_dates, got True"),
        ({"delimiter": ";;"}, "delimiter=';;' is invalid"),
        ({"header": 0}, "header=0 is invalid. Expected True or False"),
        ({"dtype": int}, "does not say for which columns"),
        *(
            ({"dtype": {"price": text}}, r"dtype '.*' of column 'price' cannot be read from text")
            for text in ("datetime64", "datetime64[D]", "decimal128(5,2)", "float16")
        ),
        ({"columns": 3}, "Expected column names for columns, got 3"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    path = written(tmp_path, "csv")
    with pytest.raises(ArgumentError, match=words):
        alone(lambda: gl.read_csv(path, **options))


def test_no_names_is_none_and_many_are_a_list() -> None:
    assert column_list("columns", None) is None
    assert column_list("columns", ("a", "b")) == ["a", "b"]


@pytest.mark.parametrize("rows", [3, [1.5], "ab"])
def test_rows_that_are_no_numbers(rows: Any) -> None:
    with pytest.raises(ArgumentError, match="Expected a list of numbers of rows"):
        alone(lambda: gl.from_local(FRAME).repartition(rows))


@pytest.mark.parametrize("value", [[1, 2], pd.Series([1]), "text", {"a": [1]}])
def test_what_is_no_frame(value: Any) -> None:
    for make in (gl.from_pandas, gl.from_local):
        with pytest.raises(ArgumentError, match="Expected a DataFrame of pandas, got a "):
            alone(lambda make=make: make(value))


def test_a_frame_of_another_library_is_named_with_it() -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(ArgumentError, match=r"got a polars\.DataFrame\. Pass it to from_arrow"):
        alone(lambda: gl.from_pandas(polars.DataFrame({"a": [1]})))


def test_another_delimiter_is_hinted_at(tmp_path: Path) -> None:
    path = str(tmp_path / "a.csv")
    FRAME.to_csv(path, index=False, sep=";")
    with pytest.warns(UserWarning, match="pass delimiter=';'"):
        alone(lambda: gl.read_csv(path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone(lambda: gl.read_csv(path, delimiter=";"))
    assert other_delimiter(["a", "b;c"], ",") == ""


@pytest.mark.parametrize(
    ("text", "options", "advice"),
    [
        ("a,b\n1,2\n3,x\n", {"dtype": {"b": "int64"}}, "Pass dtype={'b': 'str'}"),
        ("a,b\n1,2\n", {"parse_dates": ["a"]}, "Leave 'a' out of parse_dates"),
        ("a,b\n1,2\n1,2,3\n", {}, "right delimiter"),
        ('a,b\n1,"x\n1,2,3\n', {}, "quotes=False"),
        ('a,b\n1,x\n1,"2",3\n', {}, "quotes=False"),
    ],
)
def test_hints_fit_what_went_wrong_in_csv(tmp_path: Path, text: str, options: dict[str, Any], advice: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(ReadError) as caught:
        alone(lambda: gl.read_csv(str(path), **options))
    assert advice in caught.value.advice


def test_hints_fit_what_went_wrong_in_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(ReadError, match="leave it out of parse_dates"):
        alone(lambda: gl.read_json(str(path), parse_dates=["a"]))
    path.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(ReadError, match="one JSON object"):
        alone(lambda: gl.read_json(str(path)))
