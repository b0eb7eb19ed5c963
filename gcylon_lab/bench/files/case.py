"""What ``bench files`` reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet

FORMATS = ("parquet", "csv", "json", "ipc")
KINDS = ("narrow", "wide", "strings", "nested")
ACTIONS = ("read", "write")
_COLUMNS = 200  # of a wide table
_GROUPS = 8  # row groups, or record batches, of a file


@dataclass(frozen=True, slots=True)
class FilesCase:
    """How large tables are, and how often each file is read and written.

    Attributes
    ----------
    megabytes : int
        Of each table in memory.
    ranks, repeats, warmup : int
    formats, kinds, actions : tuple of str
    """

    megabytes: int = 256
    ranks: int = 1
    repeats: int = 5
    warmup: int = 1
    formats: tuple[str, ...] = FORMATS
    kinds: tuple[str, ...] = KINDS
    actions: tuple[str, ...] = ACTIONS

    def steps(self) -> list[tuple[str, str, str]]:
        """Every action, format and kind that there is."""
        return [
            (action, format_, kind)
            for action in self.actions
            for format_ in self.formats
            for kind in self.kinds
            if can_hold(format_, kind)
        ]


def can_hold(format_: str, kind: str) -> bool:
    """Whether a format has a form for such a table: csv has nothing nested."""
    return (format_, kind) != ("csv", "nested")


def table_of(kind: str, nbytes: int) -> Any:
    """A table of a kind, of about so many bytes."""
    random = np.random.default_rng(5)
    if kind == "wide":
        rows = nbytes // (8 * _COLUMNS)
        return pa.table({f"c{i}": random.random(rows).round(6) for i in range(_COLUMNS)})
    if kind == "narrow":
        rows = nbytes // 24
        times = np.datetime64("2020-01-01", "us") + random.integers(0, 10**9, rows).astype("timedelta64[s]")
        values = {"k": random.integers(0, 10**6, rows), "v": (random.random(rows) * 1e5).round(2), "t": times}
        return pa.table(values)
    if kind == "strings":
        rows = nbytes // 64
        few = pa.array([f"label {n}" for n in range(20)]).take(pa.array(random.integers(0, 20, rows)))
        names = pa.array([f"name {n:08x}" for n in random.integers(0, 2**31, 4096)])
        words = pa.array([" ".join(["word"] * n) for n in range(1, 9)])
        return pa.table(
            {
                "label": few,
                "name": names.take(pa.array(random.integers(0, 4096, rows))),
                "note": words.take(pa.array(random.integers(0, 8, rows))),
            }
        )
    rows = nbytes // 64
    lengths = random.integers(0, 8, rows)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    listed = pa.ListArray.from_arrays(offsets, pa.array(random.integers(0, 1000, int(lengths.sum()))))
    struct = pa.StructArray.from_arrays(
        [pa.array(random.random(rows)), pa.array(random.integers(0, 9, rows))], ["x", "n"]
    )
    return pa.table({"k": np.arange(rows), "listed": listed, "struct": struct})


def write(table: Any, format_: str, path: Path) -> None:
    """Write a table as Arrow does, on one thread."""
    group = -(-table.num_rows // _GROUPS)
    if format_ == "parquet":
        pa.parquet.write_table(table, path, row_group_size=group)
    elif format_ == "csv":
        pa.csv.write_csv(table, path)
    elif format_ == "ipc":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=group)
    else:
        with path.open("w") as file:
            for batch in table.to_batches(max_chunksize=group):
                batch.to_pandas().to_json(file, orient="records", lines=True, date_format="iso")


# On one thread, as a rank has.
READERS: dict[str, Callable[[str], Any]] = {
    "parquet": lambda path: pa.parquet.read_table(path, use_threads=False),
    "csv": lambda path: pa.csv.read_csv(path, pa.csv.ReadOptions(use_threads=False)),
    "json": lambda path: pa.json.read_json(path, pa.json.ReadOptions(use_threads=False, block_size=16 << 20)),
    "ipc": lambda path: pa.ipc.open_file(pa.OSFile(path)).read_all(),
}
