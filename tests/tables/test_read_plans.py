"""Who reads what: everything once, in order, evenly."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcylon_lab.errors import ReadError
from gcylon_lab.formats.read_plans import expand_paths, spread_bytes, spread_rows

GROUPS = st.lists(st.integers(0, 1000), max_size=12)
SIZES = st.integers(1, 9)


@given(GROUPS, SIZES)
def test_every_row_is_read_once_in_order(rows: list[int], size: int) -> None:
    groups = [(f"file{i // 3}", i % 3, count, size * count) for i, count in enumerate(rows)]
    shares = spread_rows(groups, size)
    assert len(shares) == size
    pieces = [piece for share in shares for piece in share]
    read = [(piece.path, piece.group, row) for piece in pieces for row in range(piece.start, piece.stop)]
    assert read == [(path, group, row) for path, group, count, _ in groups for row in range(count)]


@given(GROUPS, SIZES)
def test_rows_are_even(rows: list[int], size: int) -> None:
    shares = spread_rows([("file", i, count, 8 * count) for i, count in enumerate(rows)], size)
    share = sum(rows) / size
    for pieces in shares:
        assert abs(sum(piece.stop - piece.start for piece in pieces) - share) <= share / 2 + 1


def test_boundaries_move_to_the_edges_of_small_groups() -> None:
    shares = spread_rows([("file", i, 10, 80) for i in range(99)], 4)
    assert all(piece.start == 0 and piece.stop == 10 for pieces in shares for piece in pieces)
    assert [len(pieces) for pieces in shares] in ([25, 25, 24, 25], [25, 24, 25, 25], [25, 25, 25, 24])


def test_one_large_group_is_cut() -> None:
    shares = spread_rows([("file", 0, 1000, 9)], 4)
    cuts = [(p.start, p.stop) for pieces in shares for p in pieces]
    assert cuts == [(0, 222), (222, 444), (444, 666), (666, 1000)], "of nine bytes, two are a quarter"
    shares = spread_rows([("file", 0, 1000, 1 << 20)], 4)
    assert [(p.start, p.stop) for pieces in shares for p in pieces] == [(0, 250), (250, 500), (500, 750), (750, 1000)]


def test_bytes_count_not_rows() -> None:
    shares = spread_rows([("narrow", 0, 1000, 1000), ("wide", 0, 10, 1000)], 2)
    assert [[piece.path for piece in share] for share in shares] == [["narrow"], ["wide"]]


@given(st.lists(st.tuples(st.integers(0, 1000), st.booleans()), max_size=10), SIZES)
def test_every_byte_is_read_once_in_order(files: list[tuple[int, bool]], size: int) -> None:
    listed = [(f"file{i}", count, cuttable) for i, (count, cuttable) in enumerate(files)]
    shares = spread_bytes(listed, size)
    assert len(shares) == size
    pieces = [piece for share in shares for piece in share]
    read = [(piece.path, byte) for piece in pieces for byte in range(piece.start, piece.stop)]
    assert read == [(path, byte) for path, count, _ in listed for byte in range(count)]
    whole = {piece.path for piece in pieces if piece.whole}
    assert whole == {path for path, _, cuttable in listed if not cuttable}


def test_paths_folders_and_patterns(tmp_path: Path) -> None:
    hidden = ("_SUCCESS", ".hidden.parquet", "_log/d.parquet")
    for name in ("b.parquet", "a.parquet", "note.txt", "sub/c.parquet", *hidden):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def names(paths: object) -> list[str]:
        return [str(Path(path).relative_to(tmp_path)) for path in expand_paths(paths, (".parquet",))]

    assert names(tmp_path) == ["a.parquet", "b.parquet", "sub/c.parquet"]
    assert names(str(tmp_path / "*.parquet")) == ["a.parquet", "b.parquet"]
    assert names(tmp_path / "note.txt") == ["note.txt"]
    assert names([tmp_path / "b.parquet", str(tmp_path / "a*")]) == ["b.parquet", "a.parquet"]


@pytest.mark.parametrize("path, reason", [
    ("nothing.parquet", "there is no file"), ("*.none", "no file matches"), ("memory://none/x", "there is no file"),
])  # fmt: skip
def test_what_is_not_there_is_named(path: str, reason: str) -> None:
    with pytest.raises(ReadError, match=reason) as caught:
        expand_paths(path, (".parquet",))
    assert caught.value.numbers["path"] == path


def test_an_empty_folder_and_no_paths(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="holds no .parquet file"):
        expand_paths(tmp_path, (".parquet",))
    with pytest.raises(ReadError, match="no paths"):
        expand_paths([], (".parquet",))
