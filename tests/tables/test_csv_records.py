"""csv is cut where its records end: the same rows as pandas reads, on any number of ranks and in blocks of any size."""

import random
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from reading import read_all

from gcylon_lab.errors import ReadError
from gcylon_lab.formats.io import plan_csv, read_csv_chunks
from gcylon_lab.formats.text import blocks, csv_reader, csv_records
from gcylon_lab.formats.text.csv_records import (
    opening_quote,
    record_ends,
    record_start,
    whole_records,
)


def automaton(data: bytes, delimiter: bytes) -> tuple[list[int], list[bool]]:
    """Where records end, and for each byte and the end whether it is inside quotes, as Arrow's parser has it."""
    ends, inside, state = [], [], "start"
    for place, byte in enumerate(data):
        inside.append(state == "quoted")
        if state == "start" and byte == ord('"') or state == "quote in quoted" and byte == ord('"'):
            state = "quoted"
        elif state == "quoted":
            state = "quote in quoted" if byte == ord('"') else state
        else:
            state = "start" if byte in b"\n\r" + delimiter else "plain"
            ends += [place + 1] if byte == ord("\n") else []
    return ends, [*inside, state == "quoted"]


@pytest.mark.parametrize("seed", range(4))
def test_records_end_where_a_parser_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    for _ in range(250):
        delimiter = rng.choice([b",", b";", b"\t"])
        data = bytes(rng.choices(b'"""\n\r,;\taa', k=rng.randrange(40)))
        ends, inside = automaton(data, delimiter)
        monkeypatch.setattr(csv_records, "_WINDOW", rng.choice([1, 3, 4096]))
        monkeypatch.setattr(csv_records, "_STEP", rng.choice([1, 2, 7, 65536]))
        found, open_ = record_ends(data, delimiter)
        assert found.tolist() == ends and open_ == inside[-1], data
        first = rng.choice([0, *ends])
        for at in range(len(data) + 1):
            if at == len(data) or at == 0 or data[at - 1] != ord('"'):
                assert (opening_quote(data, at, delimiter) >= 0) == inside[at], (data, at)
            whole = [end for end in ends if end <= at] or (ends[:1] if at < len(data) else []) or [0]
            assert whole_records(data, at, delimiter) == whole[-1], (data, at)
            start = first if at <= first else next((end for end in ends if end >= at), len(data))
            assert record_start(BytesIO(data), at, first, delimiter) == start, (data, at, first)


def random_csv(rng: random.Random, delimiter: str) -> str:
    """Rows of two to four values: plain ones with quotes in them, and quoted ones with all that quotes allow."""
    columns = rng.randrange(2, 5)

    def value() -> str:
        signs = ['"', "\n", delimiter, "x", " ", "y", "\r\n"]
        text = "".join(rng.choices(signs, [3, 1, 1, 4, 1, 4, 0.3], k=rng.randrange(8)))
        if rng.random() < 0.5:
            return '"' + text.replace('"', '""') + '"' + rng.choice(["", "", "tail", ' "a"'])
        plain = text.replace("\n", "").replace("\r", "").replace(delimiter, "")
        return "t" + plain if rng.random() < 0.8 else plain.strip('"')

    end = rng.choice(["\n", "\n", "\r\n"])
    lines = [delimiter.join(f"c{i}" for i in range(columns))]
    lines += [delimiter.join(["k", *(value() for _ in range(columns - 1))]) for _ in range(rng.randrange(1, 40))]
    return end.join(lines) + rng.choice(["", end])


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_those_of_pandas(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    delimiter = rng.choice([",", ";", "\t", "|"])
    path = tmp_path / "x.csv"
    path.write_text(random_csv(rng, delimiter), newline="")
    want = pd.read_csv(path, sep=delimiter, dtype=str, keep_default_na=False)
    monkeypatch.setattr(csv_reader, "NULLS", [])
    monkeypatch.setattr(csv_records, "_STEP", rng.choice([3, 65536]))
    for size in (1, 2, 3, 4):
        for newlines_in_values in (False, True):
            plans = plan_csv(
                path, size, delimiter=delimiter, dtype=dict.fromkeys(want.columns, "str"),
                newlines_in_values=newlines_in_values,
            )  # fmt: skip
            monkeypatch.setattr(csv_reader, "_LEAST_BLOCK_BYTES", 16)
            max_bytes = (1, 32_000)[(seed + size + newlines_in_values) % 2]  # the other one with the next file
            got = read_all(plans, read_csv_chunks, max_bytes=max_bytes)
            assert got.to_numpy().tolist() == want.to_numpy().tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_inch_signs_beside_quoted_line_ends(tmp_path: Path, size: int) -> None:
    lines = [f'{i},{i}" pipe' if i in (10, 2400, 2401) else f'{i},"line one\n{i},line two {i}"' for i in range(5000)]
    (tmp_path / "x.csv").write_text("\n".join(["id,text", *lines]) + "\n")
    want = pd.read_csv(tmp_path / "x.csv")
    for newlines_in_values in (False, True):
        plans = plan_csv(tmp_path / "x.csv", size, newlines_in_values=newlines_in_values)
        pd.testing.assert_frame_equal(read_all(plans, read_csv_chunks, max_bytes=8192), want)


def test_quotes_as_plain_characters_open_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('n,s\n1,"a\n2,b"\n3,"c"\n')
    got = read_all(plan_csv(tmp_path / "x.csv", 3, quotes=False), read_csv_chunks)
    assert got["n"].tolist() == [1, 2, 3] and got["s"].tolist() == ['"a', 'b"', '"c"']


@pytest.mark.parametrize("ahead", ["", "1,a\n" * 10])
def test_a_quote_that_is_not_closed_is_found(tmp_path: Path, ahead: str) -> None:
    line = 2 + ahead.count("\n")
    (tmp_path / "x.csv").write_text(f'n,s\n{ahead}1,"x\n' + "2,y\n" * 2000)
    for size in (1, 4):
        for options in ({}, {"newlines_in_values": True}):
            with pytest.raises(ReadError, match=rf"x\.csv.*at line {line} is not closed.*quotes=False") as caught:
                read_all(plan_csv(tmp_path / "x.csv", size, **options), read_csv_chunks, max_bytes=16384)
            assert "newlines_in_values" not in str(caught.value)
    assert len(read_all(plan_csv(tmp_path / "x.csv", 4, quotes=False), read_csv_chunks)) == 2001 + ahead.count("\n")


def test_a_value_too_long_for_a_look_back_is_an_error_whose_advice_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_records, "_STEP", 1024)
    monkeypatch.setattr(csv_records, "LOOK_BACK_BYTES", 4096)
    value = "\n".join(["1,a"] * 5000)
    (tmp_path / "x.csv").write_text("n,s\n" + "1,a\n" * 10 + f'2,"{value}"\n' + "3,b\n" * 10)
    plans = plan_csv(tmp_path / "x.csv", 3)
    with pytest.raises(ReadError, match=r"begins at line 12 is longer.*newlines_in_values=True"):
        list(read_csv_chunks(plans[0]))  # the first rank, whose error the others are told
    got = read_all(plan_csv(tmp_path / "x.csv", 3, newlines_in_values=True), read_csv_chunks)
    assert got["s"].tolist() == ["a"] * 10 + [value] + ["b"] * 10


def test_shorter_ones_are_right_wherever_a_cut_falls(tmp_path: Path) -> None:
    value = "\n".join(["1,a"] * 1000)
    (tmp_path / "x.csv").write_text("n,s\n" + "1,a\n" * 10 + f'2,"{value}"\n' + "3,b\n" * 10)
    for size in (2, 3, 7):
        assert len(read_all(plan_csv(tmp_path / "x.csv", size), read_csv_chunks)) == 21


def test_a_long_record_is_looked_at_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are small and the record large: looking at all of it for each would take its length squared."""
    (tmp_path / "x.csv").write_text('n,s\n1,"' + "a\n" * 500_000 + '"\n2,b\n3,c\n')
    looked: list[int] = []

    def counted(data: bytes, limit: int, delimiter: bytes | None) -> int:
        looked.append(len(data))
        return whole_records(data, limit, delimiter)

    monkeypatch.setattr(blocks, "whole_records", counted)
    pieces = [piece.rows for piece in read_csv_chunks(plan_csv(tmp_path / "x.csv", 1)[0], max_bytes=1)]
    assert sum(pieces) == 3 and pieces[0] == 1  # alone: what comes after is not read with it
    assert sum(looked) < 10_000_000


def test_names_with_line_ends(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('\ufeff"first\nname","b, ""c"""\r\n' + "1,2\r\n3,4\r\n" * 100)
    want = pd.read_csv(tmp_path / "x.csv")
    assert want.columns.tolist() == ["first\nname", 'b, "c"']
    for size in (1, 2, 4):
        for options in ({}, {"newlines_in_values": True}):
            got = read_all(plan_csv(tmp_path / "x.csv", size, **options), read_csv_chunks)
            pd.testing.assert_frame_equal(got, want)


def test_blank_lines_and_a_mark_in_front(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("\n\n" + 'a,b\n1,"x\ny"\n\n2,z\n')
    pd.testing.assert_frame_equal(
        read_all(plan_csv(tmp_path / "x.csv", 2), read_csv_chunks), pd.read_csv(tmp_path / "x.csv")
    )
    (tmp_path / "x.csv").write_bytes(b'\xef\xbb\xbf"x\ny",1\nz,2\n')
    for size in (1, 2):
        got = read_all(plan_csv(tmp_path / "x.csv", size, header=False), read_csv_chunks)
        assert got["0"].tolist() == ["x\ny", "z"] and got["1"].tolist() == [1, 2]


def test_a_first_line_longer_than_the_first_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "FIRST_BLOCK_BYTES", 4096)
    frame = pd.DataFrame({"n": np.arange(3), "s": ['"x\n' * 5000, "y" * 20_000, "z"]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    pd.testing.assert_frame_equal(read_all(plan_csv(tmp_path / "x.csv", 2), read_csv_chunks), frame)


def test_the_line_of_an_error_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a,b\n1,"x\ny"\n\n2,3" z\n' + '3,"u\nv\nw"\n4\n5,6\n')
    for size in (1, 3):
        with pytest.raises(ReadError, match=r"x\.csv cannot be read at line 9"):
            read_all(plan_csv(tmp_path / "x.csv", size), read_csv_chunks)
