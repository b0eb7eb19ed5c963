"""csv and JSON lines: every line once and in order on any number of ranks, types that do not depend on their number."""

import gzip
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import backend, read_all

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, DuplicateColumns, GcylonError, ReadError
from gcylon_lab.formats.io import plan_csv, plan_json, read_csv_chunks, read_json_chunks
from gcylon_lab.runtime.context import run_threads

SIZES = pytest.mark.parametrize("size", [1, 2, 3, 8])
ROWS = 1000
FRAME = pd.DataFrame(
    {
        "i": range(ROWS),
        "f": np.arange(ROWS) / 8,
        "s": [f"text {i}" if i % 5 else None for i in range(ROWS)],
        "day": ["2020-01-01"] * ROWS,
        "late_null": pd.array([i if i < 950 else None for i in range(ROWS)], dtype="Int64"),
        "b": [i % 2 == 0 for i in range(ROWS)],
    }
)


def csv(paths: object, size: int, *, max_bytes: int = 32_000, columns: object = None, **how: object) -> pd.DataFrame:
    return read_all(plan_csv(paths, size, **how), read_csv_chunks, max_bytes=max_bytes, columns=columns)


def jsonl(paths: object, size: int, *, max_bytes: int = 32_000, **how: object) -> pd.DataFrame:
    return read_all(plan_json(paths, size, **how), read_json_chunks, max_bytes=max_bytes)


@SIZES
def test_csv_files_and_compressed_ones(tmp_path: Path, size: int) -> None:
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    FRAME.to_csv(tmp_path / "b.csv.gz", index=False)
    pd.testing.assert_frame_equal(csv(tmp_path, size), pd.concat([FRAME, FRAME], ignore_index=True))
    got = csv(tmp_path / "a.csv", size, columns=["s", "i"])
    pd.testing.assert_frame_equal(got, FRAME[["s", "i"]])


@SIZES
def test_json_lines(tmp_path: Path, size: int) -> None:
    FRAME.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    with gzip.open(tmp_path / "b.jsonl.gz", "wb") as file:
        file.write((tmp_path / "a.jsonl").read_bytes())
    pd.testing.assert_frame_equal(jsonl(tmp_path, size), pd.concat([FRAME, FRAME], ignore_index=True))


@given(lines=st.lists(st.text("ab,0 \r", max_size=6), max_size=30), size=st.integers(1, 6), ended=st.booleans())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cut_reads_each_line_once(tmp_path: Path, lines: list[str], size: int, ended: bool) -> None:
    rows = [{"n": i, "s": line} for i, line in enumerate(lines)]
    text = "\n".join(json.dumps(row) for row in rows) + ("\n" if ended and rows else "")
    (tmp_path / "x.jsonl").write_text(text)
    got = jsonl(tmp_path / "x.jsonl", size, dtype={"n": "int64", "s": "str"})
    assert got["n"].tolist() == list(range(len(lines))) and got["s"].tolist() == lines


@SIZES
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_line_ends(tmp_path: Path, size: int, ending: str) -> None:
    (tmp_path / "x.csv").write_bytes(ending.join(["a,b", "1,x", "2,y", "3,z"]).encode())
    got = csv(tmp_path / "x.csv", size)
    assert got["a"].tolist() == [1, 2, 3] and got["b"].tolist() == ["x", "y", "z"]


@SIZES
def test_a_line_longer_than_a_block(tmp_path: Path, size: int) -> None:
    texts = ["x" * 100_000, "short", "y" * 50_000]
    pd.DataFrame({"s": texts}).to_csv(tmp_path / "x.csv", index=False)
    assert csv(tmp_path / "x.csv", size, max_bytes=1000)["s"].tolist() == texts


def test_pieces_are_bounded(tmp_path: Path) -> None:
    pd.DataFrame({"a": np.zeros(100_000, "int8")}).to_csv(tmp_path / "x.csv", index=False)
    (plan,) = plan_csv(tmp_path, 1)
    assert max(piece.nbytes for piece in read_csv_chunks(plan, max_bytes=50_000)) <= 50_000
    assert max(piece.rows for piece in read_csv_chunks(plan, max_rows=99)) <= 99


@SIZES
def test_quoted_line_ends(tmp_path: Path, size: int) -> None:
    texts = [f'line {i}\nand "more", of it' for i in range(500)]
    pd.DataFrame({"n": range(500), "s": texts}).to_csv(tmp_path / "x.csv", index=False)
    for newlines_in_values in (False, True):
        got = csv(tmp_path / "x.csv", size, newlines_in_values=newlines_in_values)
        assert got["s"].tolist() == texts and got["n"].tolist() == list(range(500))


@SIZES
def test_quotes_as_plain_characters(tmp_path: Path, size: int) -> None:
    (tmp_path / "x.csv").write_text("n,s\n" + "".join(f'{i},a {i}" disk\n' for i in range(501)))
    for quotes in (False, True):  # they open nothing where a value does not begin
        got = csv(tmp_path / "x.csv", size, quotes=quotes)
        assert got["s"].tolist() == [f'a {i}" disk' for i in range(501)]


def test_each_file_has_its_own_header(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("a,b\n1,x\n")
    (tmp_path / "1.csv").write_text("b,a\ny,2\n")
    assert csv(tmp_path, 2)["a"].tolist() == [1, 2]
    (tmp_path / "2.csv").write_text("a,c\n1,x\n")
    with pytest.raises(ReadError, match=r"2\.csv has the columns 'a', 'c', but the first file has 'a', 'b'"):
        csv(tmp_path, 2)


def test_options(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("1\t007\t2020-01-01\n2\t\t2020-01-02 03:04:05\n")
    got = csv(tmp_path, 2, delimiter="\t", header=False, dtype={"1": "str"}, parse_dates=["2"])
    assert got.dtypes.astype(str).tolist() == ["int64", "str", "datetime64[us]"]
    assert got["1"].tolist()[0] == "007" and got["1"].isna().tolist() == [False, True]
    assert got["2"].tolist()[1] == pd.Timestamp("2020-01-02 03:04:05")


def test_the_words_for_null_are_those_of_pandas(tmp_path: Path) -> None:
    words = ["", "NA", "NaN", "null", "None", "n/a", "#N/A", '""']
    (tmp_path / "x.csv").write_text("a,b\n1,x\n" + "\n".join(f"2,{word}" for word in words) + "\n")
    assert csv(tmp_path, 1)["b"].isna().tolist() == pd.read_csv(tmp_path / "x.csv")["b"].isna().tolist()


@SIZES
def test_ints_that_become_floats_later(tmp_path: Path, size: int) -> None:
    (tmp_path / "x.csv").write_text("a\n" + "1\n" * 1_000_000 + "0.5\n" * 1_500_000)  # beyond the first block
    got = csv(tmp_path, size, max_bytes=8_000_000)["a"]
    assert got.dtype == np.float64 and got.sum() == 1_750_000


def test_text_after_ints_is_told_with_what_to_pass(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n" + "1\n" * 2_200_000 + "abc\n")
    with pytest.raises(ReadError, match=r"column 'a' begins as int64.*dtype=\{'a': 'str'\}"):
        csv(tmp_path, 2, max_bytes=8_000_000)
    assert csv(tmp_path, 2, dtype={"a": "str"}, max_bytes=8_000_000)["a"].iloc[-1] == "abc"


def test_columns_that_begin_empty(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,d\n" + ",\n" * 2_200_000 + "7,2020-01-01\n")
    got = csv(tmp_path, 2, max_bytes=8_000_000)
    assert got["a"].dropna().tolist() == [7] and got["d"].dropna().tolist() == ["2020-01-01"]


def test_json_values_of_every_kind(tmp_path: Path) -> None:
    rows = [
        {"n": 1, "s": "x", "l": [1, 2], "d": {"a": 1, "t": "2020-01-01"}, "t": "2020-01-01T00:00:00", "b": True},
        {"n": 2.5, "l": [], "d": None, "b": None, "late": "only here"},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    got = jsonl(tmp_path, 2)
    assert got.dtypes.astype(str).to_dict() == {
        "n": "float64", "s": "str", "l": "object", "d": "object", "t": "str", "b": "boolean", "late": "str",
    }  # fmt: skip
    assert got["d"].tolist()[0] == {"a": 1, "t": "2020-01-01"} and got["l"].tolist() == [[1, 2], []]
    times = jsonl(tmp_path, 1, parse_dates=["t"])["t"]
    assert times.dtype == "datetime64[us]" and times.isna().tolist() == [False, True]


def test_an_unknown_json_column_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n' * 500_000 + '{"a": 1, "late": "x"}\n')
    with pytest.raises(ReadError, match=r"column 'late'.*dtype=\{'late': 'str'\}"):
        jsonl(tmp_path, 2, max_bytes=8_000_000)
    assert jsonl(tmp_path, 2, dtype={"late": "str"}, max_bytes=8_000_000)["late"].dropna().tolist() == ["x"]


@pytest.mark.parametrize("text, reason", [
    ("", "is empty"), ("a,b\n1\n", "cannot be read.*columns"), ('a\n"1\n2\n', "not closed.*quotes=False"),
])  # fmt: skip
def test_bad_csv_is_named(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ReadError, match=rf"x\.csv.*({reason})"):
        csv(tmp_path / "x.csv", 2)


def test_bad_json_and_compressed_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('[{"a": 1}]')
    with pytest.raises(ReadError, match=r"x\.jsonl cannot be read.*one JSON object"):
        jsonl(tmp_path / "x.jsonl", 2)
    (tmp_path / "x.csv.gz").write_bytes(b"not compressed")
    with pytest.raises(ReadError, match=r"x\.csv\.gz cannot be read"):
        csv(tmp_path / "x.csv.gz", 2)
    with pytest.raises(ReadError, match="there is no file"):
        csv(tmp_path / "none.csv", 2)


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,a\n1,2\n")
    with pytest.raises(DuplicateColumns, match="'a'"):
        csv(tmp_path, 1)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ReadError, match="no column 'c'"):
        csv(tmp_path, 1, dtype={"c": "str"})
    with pytest.raises(ReadError, match="no column 'c'"):
        csv(tmp_path, 1, columns=["c"])
    with pytest.raises(ArgumentError, match="dtype 'tensor' of column 'a'"):
        csv(tmp_path, 1, dtype={"a": "tensor"})


@SIZES
def test_only_a_header(tmp_path: Path, size: int) -> None:
    (tmp_path / "x.csv").write_text("a,b\n")
    got = csv(tmp_path, size)
    assert got.columns.tolist() == ["a", "b"] and len(got) == 0
    (tmp_path / "x.jsonl").write_text("")
    assert jsonl(tmp_path / "x.jsonl", size).shape == (0, 0)


def test_types_do_not_depend_on_the_ranks(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "x.csv", index=False)
    schemas = set()
    for size in (1, 2, 5):
        got = csv(tmp_path, size)
        schemas.add(backend.from_frame(got).schema)
    assert len(schemas) == 1


BIG, BETWEEN = 2**64 - 1, 2**53 + 1


@SIZES
def test_ints_of_csv_keep_all_digits(tmp_path: Path, size: int) -> None:
    ids = [str(10**24 + i) for i in range(50)]
    lines = [f"{BIG - i},{id_},{i / 2},{i}e300" for i, id_ in enumerate(ids)]
    (tmp_path / "x.csv").write_text("\n".join(["u,id,f,g", *lines]))
    got = csv(tmp_path / "x.csv", size, max_bytes=4096)
    assert got["u"].dtype == "uint64" and got["u"].tolist() == [BIG - i for i in range(50)]
    assert got["id"].tolist() == ids and got["f"].tolist() == [i / 2 for i in range(50)]
    assert got["g"].tolist() == [float(f"{i}e300") for i in range(50)]


@SIZES
def test_ints_of_json_keep_all_digits(tmp_path: Path, size: int) -> None:
    (tmp_path / "x.jsonl").write_text("\n".join(f'{{"u": {n}, "f": {n}.5}}' for n in (BIG, BETWEEN, 1)))
    got = jsonl(tmp_path / "x.jsonl", size)
    assert got["u"].dtype == "uint64" and got["u"].tolist() == [BIG, BETWEEN, 1]
    assert got["f"].dtype == "float64"


def test_an_int_that_a_float_column_would_change_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"a,b\n0.5,1\n{BETWEEN},2\n")
    (tmp_path / "x.jsonl").write_text(f'{{"a": 0.5}}\n{{"a": {BETWEEN}}}\n')
    (tmp_path / "in.jsonl").write_text(f'{{"a": {{"b": [0.5]}}}}\n{{"a": {{"b": [{BETWEEN}]}}}}\n')
    for read, file in ((csv, "x.csv"), (jsonl, "x.jsonl"), (jsonl, "in.jsonl")):
        with pytest.raises(ReadError, match=f"'a' .*{BETWEEN}") as caught:
            read(tmp_path / file, 2)
        assert "'float64'" in caught.value.advice
    for read, file in ((csv, "x.csv"), (jsonl, "x.jsonl")):
        assert read(tmp_path / file, 1, dtype={"a": "float64"})["a"].tolist() == [0.5, 2.0**53]
    assert csv(tmp_path / "x.csv", 1, dtype={"a": "str"})["a"].tolist() == ["0.5", str(BETWEEN)]
    assert csv(tmp_path / "x.csv", 1, columns=["b"])["b"].tolist() == [1, 2]


def test_a_large_int_after_smaller_ones_is_named(tmp_path: Path) -> None:
    rows = range(500_000)
    (tmp_path / "x.csv").write_text("a\n" + "\n".join(f"{10_000_000 + i}" for i in rows) + f"\n{BIG}\n")
    (tmp_path / "x.jsonl").write_text("\n".join(f'{{"a":{i}}}' for i in rows) + f'\n{{"a":{BIG}}}\n')
    for read, file in ((csv, "x.csv"), (jsonl, "x.jsonl")):
        with pytest.raises(ReadError, match=f"'a' .*{BIG}"):
            read(tmp_path / file, 1)


@pytest.mark.parametrize(("magic", "reader"), [(b"PAR1\x15\r\x02", "read_parquet"), (b"ARROW1\0\0\xff", "read_ipc")])
def test_a_file_of_another_format_names_its_reader(tmp_path: Path, magic: bytes, reader: str) -> None:
    (tmp_path / "x.csv").write_bytes(magic)
    with pytest.raises(ReadError, match=reader):
        csv(tmp_path / "x.csv", 1)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_told_with_a_mark_or_without(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("key,x\nfoo,1\nbar,2\n".encode(encoding))
    with pytest.raises(ReadError, match=r"a\.csv is written in UTF-16"):
        plan_csv([str(path)], 1)


def test_very_many_columns_are_refused_and_many_take_time_in_proportion(tmp_path: Path) -> None:
    def many(columns: int) -> Path:
        path = tmp_path / f"{columns}.csv"
        path.write_text("".join(",".join(f"{kind}{i}" for i in range(columns)) + "\n" for kind in ("c", 9 * 10**17)))
        return path

    seconds = []
    with gl.initialize(engine="cpu", sample_hz=0):
        with pytest.raises(ReadError, match="has 100,001 columns; at most 100,000 are read"):
            gl.read_csv(many(100_001))
        for columns in (1000, 4000):  # of ints that are looked at once more, as text
            path, taken = many(columns), []
            for _ in range(3):  # the least: a collection of all that other tests have made may fall into one
                start = time.process_time()
                assert len(gl.read_csv(path).columns) == columns
                taken.append(time.process_time() - start)
            seconds.append(min(taken))
    assert seconds[1] < 8 * seconds[0]


def test_carriage_returns_alone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\r1,x\r2,y\r")
    with pytest.raises(ReadError, match="carriage return") as caught:
        csv(tmp_path / "x.csv", 2)
    assert "tr " in caught.value.advice
    (tmp_path / "y.csv").write_bytes(b'"a\rb",c\r\n1,x\r\n')
    assert csv(tmp_path / "y.csv", 1).columns[1] == "c"


@SIZES
def test_ones_and_zeros_are_bools_only_where_asked_for(tmp_path: Path, size: int) -> None:
    (tmp_path / "x.csv").write_text("a,b,c\n" + "true,True,1\n1,FALSE,0\n0,true,1\n" * 10)
    got = csv(tmp_path / "x.csv", size)
    assert got["a"].tolist() == ["true", "1", "0"] * 10
    assert got["b"].tolist() == [True, False, True] * 10 and got["c"].tolist() == [1, 0, 1] * 10
    assert csv(tmp_path / "x.csv", size, dtype={"a": "bool"})["a"].tolist() == [True, True, False] * 10


@SIZES
def test_ints_in_hexadecimal_are_text_unless_ints_are_asked_for(tmp_path: Path, size: int) -> None:
    (tmp_path / "x.csv").write_text("a,b,c,0x\n" + '0x10,1,0x1g,"0XAB"\n7,2,3,0\n' * 10)
    got = csv(tmp_path / "x.csv", size)
    pd.testing.assert_frame_equal(got, pd.read_csv(tmp_path / "x.csv"))
    assert csv(tmp_path / "x.csv", size, dtype={"a": "int64"})["a"].tolist() == [16, 7] * 10


def test_a_later_int_in_hexadecimal_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.csv").write_text("a\n0x10\n")
    with pytest.raises(ReadError, match="b.csv: column 'a' begins as int64 .* hexadecimal") as caught:
        csv(tmp_path, 1)
    assert caught.value.advice == "Pass dtype={'a': 'str'}, or the dtype that all of it has."


@SIZES
def test_files_without_names_may_be_empty_but_not_all(tmp_path: Path, size: int) -> None:
    for name, text in (("a", ""), ("b", "\n"), ("c", "1,x\n"), ("d", ""), ("e", "2,y\n")):
        (tmp_path / f"{name}.csv").write_text(text)
    assert csv(tmp_path, size, header=False).to_dict("list") == {"0": [1, 2], "1": ["x", "y"]}
    with pytest.raises(ReadError, match=r"a.csv is empty: it has no line that shows its columns"):
        csv([tmp_path / "a.csv", tmp_path / "b.csv"], size, header=False)


OFFSETS = ["2024-03-01T09:30:00-04:00", "2024-03-01T09:30:00+06", None, "2024-03-01T09:30:00Z"]
INSTANTS = ["2024-03-01 13:30", "2024-03-01 03:30", None, "2024-03-01 09:30"]


def written_times(folder: Path, texts: list[str | None]) -> list[tuple[object, Path]]:
    frame = pd.DataFrame({"i": range(len(texts)), "t": texts})
    frame.to_csv(folder / "x.csv", index=False)
    frame.to_json(folder / "x.jsonl", orient="records", lines=True)
    return [(csv, folder / "x.csv"), (jsonl, folder / "x.jsonl")]


@SIZES
def test_times_keep_their_offsets(tmp_path: Path, size: int) -> None:
    want = pd.Series(pd.to_datetime(INSTANTS, utc=True).as_unit("us"), name="t")
    for read, path in written_times(tmp_path, OFFSETS):
        pd.testing.assert_series_equal(read(path, size, parse_dates=["t"])["t"], want)
        pd.testing.assert_series_equal(read(path, size, dtype={"t": "datetime64[us, UTC]"})["t"], want)
        madrid = read(path, size, dtype={"t": "datetime64[ns, Europe/Madrid]"})["t"]
        assert str(madrid.dtype) == "datetime64[ns, Europe/Madrid]" and (madrid == want)[want.notna()].all()
        assert read(path, size)["t"].fillna("").tolist() == [text or "" for text in OFFSETS]


@pytest.mark.parametrize("offset", ["", "Z", "+05:30"])
def test_nanoseconds_of_dates_are_read(tmp_path: Path, offset: str) -> None:
    texts = [f"2024-03-01 09:30:00{offset}", None, f"1969-12-31 23:59:59.000000001{offset}"]
    want = pd.Series(pd.to_datetime(texts, format="ISO8601", utc=bool(offset)).as_unit("ns"), name="t")
    for read, path in written_times(tmp_path, texts):
        pd.testing.assert_series_equal(read(path, 2, parse_dates=["t"])["t"], want)


@pytest.mark.parametrize(
    ("texts", "options", "words"),
    [
        (["2024-01-01T10:00:00", "2024-01-01T10:00:00+02:00"], {"parse_dates": ["t"]}, "'datetime64[us, UTC]'"),
        (["2024-01-01T10:00:00+02:00", "2024-01-01T10:00:00"], {"parse_dates": ["t"]}, "'datetime64[us]'"),
        (["2024-01-01T10:00:00", "9999-12-31"], {"dtype": {"t": "datetime64[ns]"}}, "'datetime64[us]'"),
        (
            ["2024-01-01T10:00:00", "2024-01-01T10:00:00.123456789"],
            {"dtype": {"t": "datetime64[us]"}},
            "'datetime64[ns]'",
        ),
        (["2024-01-01T10:00:00", "31/12/2020", "30/12/2020", "29/12/2020"], {"parse_dates": ["t"]}, "of parse_dates"),
    ],
)
def test_times_that_do_not_go_together_are_told_with_their_line(
    tmp_path: Path, texts: list[str | None], options: dict[str, object], words: str
) -> None:
    for (read, path), line in zip(written_times(tmp_path, texts), (3, 2), strict=True):
        with pytest.raises(ReadError, match=rf"{path.name} cannot be read at line {line}") as caught:
            read(path, 1, **options)
        assert words in caught.value.advice and str(texts[1]) in str(caught.value)


def test_a_later_time_with_an_offset_is_an_error(tmp_path: Path) -> None:
    for read, path in written_times(tmp_path, ["2024-01-01T10:00:00"] * 5000 + ["2024-01-01T10:00:00+02:00"]):
        with pytest.raises(ReadError, match=r"line 500[12].*'datetime64\[us, UTC\]'"):
            read(path, 2, parse_dates=["t"], max_bytes=20_000)


def test_texts_in_objects_never_become_times(tmp_path: Path) -> None:
    text = "2024-01-01T10:00:00+02:00"
    rows = [{"n": {"x": 1}, "l": [{"x": 1}]}] * 2000 + [{"n": {"x": 1, "t": text}, "l": [{"t": text}]}]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    got = jsonl(tmp_path / "x.jsonl", 1, max_bytes=20_000).iloc[-1]
    assert got["n"]["t"] == text and got["l"][0]["t"] == text


@SIZES
def test_numbers_are_read_as_their_texts_where_text_is_asked_for(tmp_path: Path, size: int) -> None:
    values = ["7", "1.50", "1e3", "12345678901234567890123", "true", '"x"', '"1"', "null", '{"a": [1]}', "-0"] * 60
    (tmp_path / "x.jsonl").write_text("\n".join(f'{{"i": {i}, "v": {v}, "f": 0.1}}' for i, v in enumerate(values)))
    for size_ in (size, 1):
        with pytest.raises(ReadError, match=r"dtype=\{'v': 'str'\}"):
            jsonl(tmp_path / "x.jsonl", size_, max_bytes=16_384)
    got = jsonl(tmp_path / "x.jsonl", size, max_bytes=16_384, dtype={"v": "str"})
    want = [None if v == "null" else v.strip('"') for v in values]
    assert got["v"].fillna("none").tolist() == [v or "none" for v in want]
    assert got["i"].tolist() == list(range(len(values))) and set(got["f"]) == {0.1}


@pytest.mark.parametrize(
    "text", ['{\n "a": 1\n}\n', '[\n {"a": 1}\n]\n', '{"a": 1}\n{"a":\n2}\n', '{"a": 1}{"a": 2}\n']
)
def test_objects_over_several_lines_are_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "pretty.json").write_text(text)
    for size in (1, 3):
        with pytest.raises(ReadError, match=r"pretty\.json cannot be read at line \d.*one JSON object"):
            jsonl(tmp_path / "pretty.json", size)


@SIZES
def test_json_lines_longer_than_the_first_block(tmp_path: Path, size: int) -> None:
    frame = pd.DataFrame({"k": range(3), "s": ["x" * 5_000_000, "y" * 6_000_000, "z"]})
    frame.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    pd.testing.assert_frame_equal(jsonl(tmp_path / "x.jsonl", size), frame)
    frame.to_csv(tmp_path / "x.csv", index=False)
    pd.testing.assert_frame_equal(csv(tmp_path / "x.csv", size), frame)


def test_other_encodings_are_told_with_file_and_line(tmp_path: Path) -> None:
    for name, line in (("head.csv", 1), ("row.csv", 3), ("key.jsonl", 1), ("row.jsonl", 2)):
        text = {"head.csv": "Имя,b\n1,2\n", "row.csv": "a,b\n1,2\nИмя,2\n", "key.jsonl": '{"Имя": 1}\n'}
        text |= {"row.jsonl": '{"a": "b"}\n{"a": "Имя"}\n'}
        (tmp_path / name).write_bytes(text[name].encode("cp1251"))
        read = csv if name.endswith("csv") else jsonl
        with pytest.raises(ReadError, match=rf"{name} cannot be read.*UTF-8") as caught:
            read(tmp_path / name, 2)
        assert caught.value.numbers.get("line", 1) == line


def test_columns_that_do_not_go_together_are_told_with_what_to_pass(tmp_path: Path) -> None:
    texts = ["k,v\n1,\n", "k,v\n3,7\n", "k,v\n5,seven\n"], ["k,v\n1,1\n", "k,v\n3,9007199254740993\n4,0.5\n"]
    for place, files in enumerate(texts):
        (tmp_path / str(place)).mkdir()
        for number, text in enumerate(files):
            (tmp_path / str(place) / f"{number}.csv").write_text(text)
    for place, want in ((0, ["", "7", "seven"]), (1, ["1", "9007199254740993", "0.5"])):
        folder = str(tmp_path / str(place))
        with pytest.raises(GcylonError, match=r"dtype=\{'v': 'str'\}"):
            run_threads(3, lambda folder=folder: gl.read_csv(folder))
        got = run_threads(3, lambda folder=folder: gl.read_csv(folder, dtype={"v": "str"}).to_pandas())[0]
        assert got["v"].fillna("").tolist() == want


def test_a_name_twice_is_told_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,a\n1,2\n")
    with pytest.raises(DuplicateColumns, match=r"x\.csv: the label 'a' names 2 columns"):
        csv(tmp_path, 1)


def test_json_lines_with_few_of_the_columns_take_memory_in_bounds(tmp_path: Path) -> None:
    """Each column takes some in every line, also where that does not name it."""
    first = json.dumps({f"c{i}": i if i % 2 else "x" for i in range(60)})
    (tmp_path / "x.jsonl").write_text(f"{first}\n" + '{"c1": 1}\n{}\n' * 100_000)
    own, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(own)
    try:
        (plan,) = plan_json(tmp_path, 1)
        assert own.max_memory() < 40 * 2**20
        own = pa.proxy_memory_pool(before)
        pa.set_memory_pool(own)
        rows = sum(piece.rows for piece in read_json_chunks(plan, max_bytes=16 * 2**20))
    finally:
        pa.set_memory_pool(before)
    assert rows == 200_001 and own.max_memory() < 24 * 2**20


@SIZES
@pytest.mark.parametrize("left", [0, 600])
def test_a_file_that_becomes_shorter_is_told(tmp_path: Path, size: int, left: int) -> None:
    for kind, plan, chunks in (("csv", plan_csv, read_csv_chunks), ("jsonl", plan_json, read_json_chunks)):
        path = tmp_path / f"x.{kind}"
        path.write_text(("a\n" + "12345\n" * 999) if kind == "csv" else '{"a": 1}\n' * 1000)
        plans = plan(path, size)
        path.write_bytes(path.read_bytes()[: left + 2])
        with pytest.raises(ReadError, match=rf"x.{kind} ends after {left + 2} bytes, and had at least"):
            read_all(plans, chunks, max_bytes=32_000)


def test_json_with_blank_lines_and_keys_twice(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": "x", "b": 1}\n\n' * 300)
    for size in (1, 3):
        got = jsonl(tmp_path / "x.jsonl", size, dtype={"b": "str"})
        assert got["a"].tolist() == ["x"] * 300 and got["b"].tolist() == ["1"] * 300
    (tmp_path / "x.jsonl").write_text('{"a": 1, "a": 2}\n')
    with pytest.raises(ReadError, match=r"x\.jsonl cannot be read at line 1.*twice") as caught:
        jsonl(tmp_path / "x.jsonl", 1)
    assert "dtype" not in caught.value.advice
