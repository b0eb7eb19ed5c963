"""Rows of Arrow files that are read in parts: nested ones, and many columns at once, are what the whole file has."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcylon_lab.backends.arrow.tables import from_arrow, to_arrow
from gcylon_lab.backends.protocol.data import select_columns, slice_columns
from gcylon_lab.formats import ipc_reader
from gcylon_lab.formats.io import plan_parquet
from gcylon_lab.formats.ipc_reader import plan_ipc, read_ipc_chunks, require_sound
from gcylon_lab.formats.parquet import reader


def written(table: Any, path: Path, rows: int) -> str:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return str(path)


def read(path: str, ranks: int, max_bytes: int, columns: list[str] | None = None) -> tuple[list[dict[str, Any]], int]:
    pieces = [p for plan in plan_ipc(path, ranks) for p in read_ipc_chunks(plan, columns=columns, max_bytes=max_bytes)]
    return [row for piece in pieces for row in to_arrow(piece).to_pylist()], len(pieces)


INNER = st.none() | st.fixed_dictionaries({"s": st.none() | st.text(max_size=3), "n": st.none() | st.integers(0, 99)})
TYPE = pa.list_(pa.struct([("s", pa.string()), ("n", pa.int16())]))


@settings(max_examples=60)
@given(
    values=st.lists(st.none() | st.lists(INNER, max_size=3), min_size=1, max_size=40),
    rows=st.integers(1, 40), ranks=st.integers(1, 3), max_bytes=st.sampled_from([16, 256, 1 << 20]),
)  # fmt: skip
def test_lists_of_structs(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], rows: int, ranks: int, max_bytes: int
) -> None:
    table = pa.table({"v": pa.array(values, TYPE), "i": np.arange(len(values))})
    path = written(table, tmp_path_factory.mktemp("cut") / "t.arrow", rows)
    assert read(path, ranks, max_bytes)[0] == table.to_pylist()


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
def test_many_columns(tmp_path: Path, missing: bool, ranks: int) -> None:
    random = np.random.default_rng(1)
    columns: dict[str, Any] = {f"f{i}": random.random(1000) for i in range(70)}
    columns |= {f"i{i}": random.integers(-9, 9, 1000) for i in range(5)}
    if missing:
        columns["f3"] = pa.array([None, *range(999)], pa.float64())
    table = pa.table(columns | {"t": np.arange(1000).astype("datetime64[us]")})
    path = written(table, tmp_path / "t.arrow", 300)
    rows, pieces = read(path, ranks, 100_000)
    assert rows == table.to_pylist() and pieces > 4
    some = ["i2", *(f"f{i}" for i in range(69, 3, -1)), "t"]
    assert read(path, ranks, 1 << 20, some)[0] == table.select(some).to_pylist()


@pytest.mark.parametrize("dtypes", ["f8", "f8 f4", "f8 i8", "f8 M8[us]"])
def test_many_columns_of_several_pieces_in_memory(dtypes: str) -> None:
    random = np.random.default_rng(3)
    kinds = dtypes.split()
    columns = {f"c{i}": random.integers(-9, 9, 50).astype(kinds[i % len(kinds)]) for i in range(70)}
    table = pa.concat_tables([pa.table(columns).slice(3, 20), pa.table(columns).slice(0, 0), pa.table(columns)])
    assert to_arrow(from_arrow(table)).equals(table)
    for missing in ("c1", "c68"):
        place = table.schema.get_field_index(missing)
        holes = pa.array([None if i % 7 == 2 else i for i in range(70)]).cast(table.schema.types[place])
        holed = table.set_column(place, missing, holes)
        back = to_arrow(from_arrow(holed))
        assert back.column(missing).to_pylist() == holes.to_pylist()
        assert back.drop_columns(missing).equals(table.drop_columns(missing))


def test_nan_of_many_columns_is_null_in_files() -> None:
    random = np.random.default_rng(3)
    columns = {f"c{i}": random.random(40).astype("f4" if i % 5 == 0 else "f8") for i in range(70)}
    for name in ("c0", "c7", "c69"):
        columns[name][11] = np.nan
    columns["c8"][5] = np.inf
    held = from_arrow(pa.table(columns))
    assert held.planes is not None
    for data in (held, select_columns(held, [f"c{i}" for i in range(69, -1, -1)]), slice_columns(held, 10, 12)):
        back = to_arrow(data)
        holed = {name for name in back.column_names if back.column(name).null_count}
        assert holed == {"c0", "c7", "c69"}


@pytest.mark.parametrize("kind", ["ipc", "parquet"])
def test_a_piece_is_let_go_before_the_next_one_is_read(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"f": np.arange(40_000.0), "s": ["text"] * 40_000})
    module = ipc_reader if kind == "ipc" else reader
    given: list[Any] = []

    def made(*arguments: Any, **how: Any) -> Any:
        assert [ref for ref in given if ref() is not None] == []
        return from_arrow(*arguments, **how)

    monkeypatch.setattr(module, "from_arrow", made)
    if kind == "ipc":
        path = written(table, tmp_path / "t.arrow", 10_000)
        pieces = read_ipc_chunks(plan_ipc(path, 1)[0], max_bytes=1 << 17)
    else:
        path = str(tmp_path / "t.parquet")
        pq.write_table(table, path, row_group_size=10_000)
        pieces = reader.read_parquet_chunks(plan_parquet(path, 1)[0], max_bytes=1 << 17)
    for piece in pieces:
        given.append(weakref.ref(piece))
        del piece
    assert len(given) > 4


def test_many_columns_that_end_before_they_should(tmp_path: Path) -> None:
    table = pa.table({f"f{i}": np.arange(64.0) for i in range(64)})
    path = Path(written(table, tmp_path / "t.arrow", 64))
    data = path.read_bytes()
    # The length of a buffer, 512, is said in the header of the record batch: the last one's shall be less.
    at = data.rindex((512).to_bytes(8, "little"), 0, data.index(np.arange(64.0).tobytes()))
    path.write_bytes(data[:at] + (256).to_bytes(8, "little") + data[at + 8 :])
    with pytest.raises(Exception, match=r"buffer ends before row|whole Arrow IPC"):
        read(str(path), 1, 1 << 20)


@settings(max_examples=100)
@given(
    texts=st.lists(st.none() | st.text(max_size=3), max_size=6), start=st.integers(0, 3), type_=st.sampled_from(
        [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]),
    damage=st.none() | st.tuples(st.integers(0, 6), st.integers(-3, 30)), byte=st.none() | st.integers(0, 255),
)  # fmt: skip
def test_texts_are_sound_where_arrow_finds_them_so(
    texts: list[Any], start: int, type_: Any, damage: tuple[int, int] | None, byte: int | None
) -> None:
    array = pa.array(texts, pa.string()).cast(type_)
    valid, ends, chars = array.buffers()
    offsets = np.frombuffer(ends, np.int64 if "large" in str(type_) else np.int32)[: len(array) + 1].copy()
    if damage is not None and damage[0] < len(offsets):
        offsets[damage[0]] = damage[1]
    held = bytearray(chars.to_pybytes() if chars is not None else b"")
    if byte is not None and held:
        held[-1] = byte
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(bytes(held))]
    try:
        made = pa.Array.from_buffers(type_, len(array), buffers).slice(min(start, len(array)))
    except pa.ArrowInvalid:
        return  # the first offset or the last
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        with pytest.raises(pa.ArrowInvalid):
            require_sound(made)
    else:
        require_sound(made)
