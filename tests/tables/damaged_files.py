"""Damaged files of every format, each read in a process of its own: rows, or an error of ours, and little memory.

::

    python tests/tables/damaged_files.py FORMAT START COUNT    # seeds START to START + COUNT, or "all" formats
    python tests/tables/damaged_files.py bombs                 # small files that say that they are large

A line for each seed that ended otherwise, and the counts of each format as JSON.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from thrift_trees import Reader, Value, mutate, written

import gcylon_lab as gl
from gcylon_lab.errors import GcylonError, RankError
from gcylon_lab.runtime.context import run_threads

ROWS = 200
BUDGET_MIB = 64
MOST_MIB = BUDGET_MIB + 100  # beside what a process of ours takes
MOST_ASKED_MIB = 1024  # of address space, which arenas of threads take too
MOST_S = 10  # of work; for a hang without any the clock gives more, on machines that are busy
PATIENCE_S = 60


def tables() -> Iterator[pa.Table]:
    """Tables of every kind of column."""
    words = [f"text {i}" if i % 5 else None for i in range(ROWS)]
    yield pa.table({"i": pa.array(range(ROWS)), "s": pa.array(words), "f": pa.array(np.arange(ROWS) / 3)})
    yield pa.table(
        {
            "d": pa.array(["a", "b", None, "c"] * 50).dictionary_encode(),
            "l": pa.array([[1, 2], None, [], [3]] * 50),
            "st": pa.array([{"u": 1, "v": "x"}, None] * 100),
        }
    )
    views = pa.array([f"a text that is too long for a view {i}" for i in range(ROWS)]).cast(pa.string_view())
    yield pa.table(
        {
            "dec": pa.array([Decimal("1.25"), None] * 100, pa.decimal128(12, 2)),
            "b": pa.array([True, None] * 100),
            "t": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
            "ls": pa.array(["x" * i for i in range(ROWS)], pa.large_string()),
            "by": pa.array([b"ab"] * ROWS),
            "sv": views,
        }
    )
    numbers = pd.array([1, None] * 50, dtype="Int64")
    yield pa.Table.from_pandas(pd.DataFrame({"a": pd.Categorical(["x", "y"] * 50), "n": numbers, "o": [1, 2] * 50}))


def _ipc(kind: Callable[..., pa.RecordBatchFileWriter]) -> Iterator[bytes]:
    for table in tables():
        for compression in (None, "lz4", "zstd"):
            sink = pa.BufferOutputStream()
            with kind(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
                for batch in table.to_batches(max_chunksize=64):
                    writer.write(batch)
            yield sink.getvalue().to_pybytes()


def _parquet() -> Iterator[bytes]:
    for table in tables():
        for compression in ("none", "snappy", "zstd"):
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression=compression, row_group_size=64)
            yield sink.getvalue().to_pybytes()


def _read_parquet(path: str) -> gl.Table:
    """Read all of it, and then what its statistics let through."""
    table = gl.read_parquet(path)
    for name in table.columns:
        gl.read_parquet(path, [name], filters=gl.col(name).isna())
    return table


def _csv() -> Iterator[bytes]:
    for table in (next(tables()), pa.table({"q": ['a "quoted" one', "two\nlines", "three, four", ""] * 50})):
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(table, sink)
        yield sink.getvalue().to_pybytes()


def _json() -> Iterator[bytes]:
    for table in list(tables())[:2]:
        yield "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
    yield b'{"deep": ' + b"[" * 40 + b"]" * 40 + b"}\n"


def _zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)  # type: ignore[no-any-return]


# The files that are damaged, by how a folder calls them, and how they are read.
FORMATS: dict[str, tuple[Callable[[], Iterator[bytes]], str, Callable[[str], object]]] = {
    "ipc": (lambda: _ipc(pa.ipc.new_file), ".arrow", lambda path: gl.read_ipc(path)),
    "ipc-stream": (lambda: _ipc(pa.ipc.new_stream), ".arrows", lambda path: gl.read_ipc(path)),
    "parquet": (_parquet, ".parquet", lambda path: gl.read_parquet(path)),
    "parquet-footer": (_parquet, ".parquet", _read_parquet),
    "parquet-pages": (_parquet, ".parquet", _read_parquet),
    "csv": (_csv, ".csv", lambda path: gl.read_csv(path)),
    "csv-gz": (lambda: map(gzip.compress, _csv()), ".csv.gz", lambda path: gl.read_csv(path)),
    "csv-zst": (lambda: map(_zstd, _csv()), ".csv.zst", lambda path: gl.read_csv(path)),
    "json": (_json, ".jsonl", lambda path: gl.read_json(path)),
    "json-gz": (lambda: map(gzip.compress, _json()), ".jsonl.gz", lambda path: gl.read_json(path)),
    "json-zst": (lambda: map(_zstd, _json()), ".jsonl.zst", lambda path: gl.read_json(path)),
}


def _line(begin: bytes, end: bytes) -> bytes:
    return _zstd(begin + b"x" * (100 << 20) + end)


def _long_views() -> pa.Table:
    view = pa.array(["x" * (1 << 20)], pa.string_view()).buffers()
    shown = pa.py_buffer(view[1].to_pybytes()[:16] * 300)
    return pa.table({"v": pa.Array.from_buffers(pa.string_view(), 300, [None, shown, *view[2:]])})


def _one_batch(table: pa.Table, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _long_codes() -> bytes:
    codes = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int16()), pa.array(["x" * (1 << 20)]))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"p": codes}), sink, compression="zstd", store_schema=False)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _page_that_says(field: int, value: int) -> bytes:
    """A parquet file with a page whose header has another size: 2 unpacked, 3 packed."""

    def change(header: Value, _: random.Random) -> None:
        dict(header[1])[field][1] = value

    return damaged_page(next(_parquet()), random.Random(0), change)


# Whole files of a few KiB to a MiB in which little stands for hundreds of MiB: how each is made, and how it ends.
BOMBS: dict[str, tuple[Callable[[], bytes], str, Callable[[str], object], str]] = {
    "a csv line": (lambda: _line(b"a,b\n1,", b"\n"), ".csv.zst", gl.read_csv, "told"),
    "a csv header": (lambda: _line(b"a", b"\n"), ".csv.zst", gl.read_csv, "told"),
    "csv lines": (lambda: _zstd(b"\n" * (64 << 20)), ".csv.zst", gl.read_csv, "told"),
    "csv quotes": (lambda: _zstd(b'a\n"' + b'"' * (15 << 20)), ".csv.zst", gl.read_csv, "told"),
    "csv values": (lambda: _zstd(b"a\n" + b'"",' * (5 << 20)), ".csv.zst", gl.read_csv, "told"),
    "json brackets": (lambda: _zstd(b'{"a": ' + b"[" * (15 << 20)), ".jsonl.zst", gl.read_json, "told"),
    "csv rows": (lambda: _zstd(b"a\n" + b"1\n" * (5 << 20)), ".csv.zst", gl.read_csv, "rows"),
    "a json line": (lambda: _line(b'{"a": "', b'"}\n'), ".jsonl.zst", gl.read_json, "told"),
    "json names": (
        lambda: b"".join(b'{"k%d":1}\n' % i for i in range(50_000)), ".jsonl", gl.read_json, "told",
    ),
    "json columns": (
        lambda: json.dumps(dict.fromkeys(map(str, range(500)), 1.5)).encode() + b"\n{}" * 25_000, ".jsonl",
        gl.read_json, "rows",
    ),
    "zeros": (lambda: _one_batch(pa.table({"z": np.zeros(32 << 20)}), "zstd"), ".arrow", gl.read_ipc, "told"),
    "no values": (lambda: _one_batch(pa.table({"z": pa.nulls(1 << 28)}), None), ".arrow", gl.read_ipc, "rows"),
    "views": (lambda: _one_batch(_long_views(), None), ".arrow", gl.read_ipc, "rows"),
    "a message": (lambda: b"\xff" * 4 + b"\xff\xff\xff\x7f" + bytes(99), ".arrows", gl.read_ipc, "told"),
    "codes": (_long_codes, ".parquet", gl.read_parquet, "rows"),
    "a page": (lambda: _page_that_says(3, 2**31 - 1), ".parquet", gl.read_parquet, "told"),
    "a page, unpacked": (lambda: _page_that_says(2, 2**31 - 1), ".parquet", gl.read_parquet, "told"),
}  # fmt: skip


def damaged(whole: bytes, rng: random.Random) -> bytes:
    """Some bytes, words or all that follows changed."""
    data = bytearray(whole)
    for _ in range(rng.choice([1, 1, 2, 4])):
        how, at = rng.random(), rng.randrange(len(data))
        if how < 0.4:
            data[at] = rng.randrange(256)
        elif how < 0.6:
            data[at] ^= 1 << rng.randrange(8)
        elif how < 0.8:
            value = rng.choice([0, 1, 2**31 - 1, 2**32 - 1, 2**31, rng.randrange(2**31)])
            data[at & ~3 : (at & ~3) + 4] = value.to_bytes(4, "little")
        elif how < 0.9:
            value = rng.choice([0, 2**63 - 1, 2**64 - 1, 2**40, 2**34, rng.randrange(2**63)])
            data[at & ~7 : (at & ~7) + 8] = value.to_bytes(8, "little")
        elif how < 0.95:
            del data[at:]
        else:
            del data[at : at + rng.randrange(1, 64)]
        if not data:
            return b""
    return bytes(data)


def footer_tree(whole: bytes) -> tuple[int, Value]:
    """Where that of a parquet file begins, and its tree."""
    at = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    return at, Reader(whole, at).value()


def with_footer(rows: bytes, tree: Value) -> bytes:
    footer = written(tree)
    return rows + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def damaged_footer(whole: bytes, rng: random.Random) -> bytes:
    """Some values of a parquet file's footer changed, which stays well formed but for kinds of items."""
    at, tree = footer_tree(whole)
    for _ in range(rng.choice([1, 1, 2, 4])):
        mutate(tree, rng)
    return with_footer(whole[:at], tree)


def damaged_page(whole: bytes, rng: random.Random, change: Callable[[Value, random.Random], None] = mutate) -> bytes:
    """Some values of a page's header changed; the footer fits the bytes that are more or less."""
    end, footer = footer_tree(whole)
    groups = dict(footer[1])[4][1][1]
    chunks = [dict(dict(chunk[1])[3][1]) for group in groups for chunk in dict(group[1])[1][1][1]]
    chunk = rng.choice(chunks)
    begin = min(chunk[field][1] for field in (9, 11) if field in chunk)
    reader, pages = Reader(whole, begin), []
    while reader.at < begin + chunk[7][1]:
        at = reader.at
        header = reader.value()
        pages.append((at, reader.at, header))
        reader.at += dict(header[1])[3][1]
    start, stop, header = rng.choice(pages)
    for _ in range(rng.choice([1, 1, 2])):
        change(header, rng)
    new = written(header)
    more = len(new) - (stop - start)
    for other in chunks:
        for field in (9, 11):
            if field in other and other[field][1] > start:
                other[field][1] += more
    for field in (6, 7):
        chunk[field][1] += more
    return with_footer(whole[:start] + new + whole[stop:end], footer)


# How the files of a format are damaged, where not as any.
DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "parquet-footer": damaged_footer,
    "parquet-pages": damaged_page,
}


def _peaks_mib() -> list[int]:
    """The most memory that this process had, and the most that it asked for."""
    status = Path("/proc/self/status").read_text().split()
    return [int(status[status.index(name) + 1]) >> 10 for name in ("VmHWM:", "VmPeak:")]


def _read(read: Callable[[str], object], path: str, out: int, *, use: bool) -> None:
    """In the child: read, use every value, and say how it ended."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    signal.alarm(PATIENCE_S)
    before = _peaks_mib()
    try:
        table: gl.Table = read(path)  # type: ignore[assignment]
        if use:
            table.local().to_dict("list")
        said = "rows"
    except RankError as error:
        said = f"unforeseen: {error}"
    except GcylonError as error:
        said = "told" if Path(path).name in str(error) else f"names no file: {error}"
    except BaseException as error:  # noqa: B902
        said = f"{type(error).__name__}: {error}"
    had, asked = (after - first for after, first in zip(_peaks_mib(), before, strict=True))
    if had > MOST_MIB or asked > MOST_ASKED_MIB:
        said = f"took {had} MiB, and asked for {asked} ({said})"
    os.write(out, said.encode()[:300])
    os._exit(0)


def outcome(read: Callable[[str], object], path: str, *, use: bool = True) -> str:
    """How reading a file ends, and using each of its values: "rows", "told", or what is wrong."""
    into, out = os.pipe()
    child = os.fork()
    if not child:
        _read(read, path, out, use=use)
    os.close(out)
    with os.fdopen(into, "rb") as said:
        text = said.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else text


@contextmanager
def _file(suffix: str, whole: bytes, read: Callable[[str], object]) -> Iterator[Path]:
    """A file of a format, once this process has imported all that reading one takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        path.write_bytes(whole)
        run_threads(1, lambda: read(str(path)).local())  # type: ignore[attr-defined]
        assert threading.active_count() == 1, "a lock that a thread holds is held for ever in a child"
        yield path


def bombs() -> None:
    """Read each file of few bytes that says that it has many."""
    for name, (make, suffix, read, end) in BOMBS.items():
        whole = next(whole for make_it, own, reads in FORMATS.values() if own == suffix for whole in make_it())
        with _file(suffix, whole, read) as path:
            child = os.fork()
            if not child:  # its memory is none of this process
                path.write_bytes(make())
                os._exit(0)
            os.waitpid(child, 0)
            said = outcome(read, str(path), use=False)
            if said != end:
                print(name, said, flush=True)


def main(name: str, start: int, count: int) -> None:
    """Damage and read as many files."""
    make, suffix, read = FORMATS[name]
    whole, ended = list(make()), Counter[str]()
    with _file(suffix, whole[0], read) as path:
        for seed in range(start, start + count):
            rng = random.Random(f"{name} {seed}")
            path.write_bytes(DAMAGE.get(name, damaged)(rng.choice(whole), rng))
            said = outcome(read, str(path))
            if said not in ("rows", "told"):
                print(name, seed, said, flush=True)
            ended[said if said in ("rows", "told") else "wrong"] += 1
    print(json.dumps(ended))


if __name__ == "__main__":
    os.environ["GCYLON_GPU_MEMORY_LIMIT"] = str(BUDGET_MIB << 20)
    if sys.argv[1] == "bombs":
        bombs()
        sys.exit()
    for one in sorted(FORMATS) if sys.argv[1] == "all" else [sys.argv[1]]:
        main(one, int(sys.argv[2]), int(sys.argv[3]))
