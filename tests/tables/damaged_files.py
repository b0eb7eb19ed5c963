"""Damaged files of every format, each read in a process of its own: rows, or an error of ours, and little memory.

::

    python tests/tables/damaged_files.py FORMAT START COUNT    # seeds START to START + COUNT

A line for each seed that ended otherwise, and the counts as JSON last.
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
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import gcylon_lab as gl
from gcylon_lab.errors import GcylonError, RankError
from gcylon_lab.runtime.context import run_threads

ROWS = 200
MOST_MIB = 150  # beside what a process of ours takes
PATIENCE_S = 30


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


def _csv() -> Iterator[bytes]:
    for table in (next(tables()), pa.table({"q": ['a "quoted" one', "two\nlines", "three, four", ""] * 50})):
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(table, sink)
        yield sink.getvalue().to_pybytes()


def _json() -> Iterator[bytes]:
    for table in list(tables())[:2]:
        yield "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
    yield b'{"deep": ' + b"[" * 40 + b"]" * 40 + b"}\n"


# The files that are damaged, by how a folder calls them, and how they are read.
FORMATS: dict[str, tuple[Callable[[], Iterator[bytes]], str, Callable[[str], object]]] = {
    "ipc": (lambda: _ipc(pa.ipc.new_file), ".arrow", lambda path: gl.read_ipc(path)),
    "ipc-stream": (lambda: _ipc(pa.ipc.new_stream), ".arrows", lambda path: gl.read_ipc(path)),
    "parquet": (_parquet, ".parquet", lambda path: gl.read_parquet(path)),
    "csv": (_csv, ".csv", lambda path: gl.read_csv(path)),
    "csv-gz": (lambda: map(gzip.compress, _csv()), ".csv.gz", lambda path: gl.read_csv(path)),
    "json": (_json, ".jsonl", lambda path: gl.read_json(path)),
    "json-zst": (
        lambda: (pa.compress(b, "zstd", asbytes=True) for b in _json()),
        ".jsonl.zst",
        lambda path: gl.read_json(path),
    ),
}


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


def _peak_mib() -> int:
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) >> 10


def _read(read: Callable[[str], object], path: str, out: int) -> None:
    """In the child: read, use every value, and say how it ended."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.alarm(PATIENCE_S)
    before = _peak_mib()
    try:
        read(path).local().to_dict("list")  # type: ignore[attr-defined]
        said = "rows"
    except RankError as error:
        said = f"unforeseen: {error}"
    except GcylonError:
        said = "told"
    except BaseException as error:  # noqa: B902
        said = f"{type(error).__name__}: {error}"
    grew = _peak_mib() - before
    os.write(out, (f"took {grew} MiB ({said})" if grew > MOST_MIB else said).encode()[:300])
    os._exit(0)


def outcome(read: Callable[[str], object], path: str) -> str:
    """How reading a file ends: "rows", "told", or what is wrong."""
    into, out = os.pipe()
    child = os.fork()
    if not child:
        _read(read, path, out)
    os.close(out)
    with os.fdopen(into, "rb") as said:
        text = said.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else text


def main(name: str, start: int, count: int) -> None:
    """Damage and read as many files."""
    make, suffix, read = FORMATS[name]
    whole, ended = list(make()), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        path.write_bytes(whole[0])
        run_threads(1, lambda: read(str(path)).local())  # type: ignore[attr-defined]  # imports all that children need
        assert threading.active_count() == 1, "a lock that a thread holds is held for ever in a child"
        for seed in range(start, start + count):
            rng = random.Random(f"{name} {seed}")
            path.write_bytes(damaged(rng.choice(whole), rng))
            said = outcome(read, str(path))
            if said not in ("rows", "told"):
                print(seed, said, flush=True)
            ended[said if said in ("rows", "told") else "wrong"] += 1
    print(json.dumps(ended))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
