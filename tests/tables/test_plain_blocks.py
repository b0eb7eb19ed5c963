"""Blocks that are read into room used again hold the lines that other blocks hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcylon_lab.errors import ReadError
from gcylon_lab.formats.filesystems import Storage
from gcylon_lab.formats.io import plan_csv, read_csv_chunks
from gcylon_lab.formats.read_plans import BytePiece
from gcylon_lab.formats.text import blocks as module
from gcylon_lab.formats.text.blocks import blocks, plain_blocks

LINES = st.lists(
    st.sampled_from(["1,x", "", "22,yy yy", "3," + "z" * 60, '4,"q"', '5,"a\nb"', '6,10" pipe']), max_size=60
)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEGMENT_BYTES", 17)


@settings(max_examples=150)
@given(lines=LINES, plain=st.booleans(), ends=st.booleans(), size=st.integers(1, 3), block_bytes=st.integers(8, 200))
def test_the_lines_are_those_of_other_blocks(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], plain: bool, ends: bool, size: int, block_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("text") / "x.csv"
    text = "\n".join(line.replace('"', "'") if plain else line for line in lines) + "\n" * ends
    path.write_text(text, newline="")
    total = path.stat().st_size
    for delimiter in (b",", None):
        for rank in range(size):
            piece = BytePiece(str(path), total * rank // size, total * (rank + 1) // size)
            wanted = b"".join(block for _, block in blocks(piece, Storage(), 0, block_bytes, delimiter))
            got = [
                (place.offset, bytes(block))
                for place, block in plain_blocks(piece, Storage(), 0, block_bytes, delimiter)
            ]
            assert b"".join(block for _, block in got) == wanted
            assert all(path.read_bytes()[at : at + len(block)] == block for at, block in got)


@pytest.mark.parametrize("read", [plain_blocks, blocks])
def test_a_file_that_becomes_shorter_is_told(tmp_path: Path, read: Any) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1,x\n" * 50)
    piece = BytePiece(str(path), 0, 400)  # as it was when it was planned
    with pytest.raises(ReadError, match="ends after 200 bytes, and had at least 400"):
        list(read(piece, Storage(), 0, 64, b","))


def test_a_file_that_becomes_shorter_while_it_is_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1,x\n" * 50)
    lines = plain_blocks(BytePiece(str(path), 0, 200), Storage(), 0, 64, b",")
    next(lines)
    os.truncate(path, 100)
    with pytest.raises(ReadError, match="and had at least 200 when it was shared out"):
        list(lines)


def test_what_a_reader_leaves_is_read_here(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f"{n},x{n}\n" for n in range(4_000)))
    (plan,) = plan_csv(path, 1)
    whole = [piece.rows for piece in read_csv_chunks(plan)]
    seen: list[int] = []

    def decode(block: object, names: object) -> None:
        seen.append(len(bytes(block)))  # type: ignore[call-overload]

    assert sum(piece.rows for piece in read_csv_chunks(plan, max_bytes=32_768, decode=decode)) == sum(whole) == 4_000
    assert len(seen) > 3 and sum(seen) == path.stat().st_size - 4
