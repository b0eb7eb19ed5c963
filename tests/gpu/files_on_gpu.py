"""A program that runs on GPU ranks: parquet files decoded by libcudf give what pyarrow's reader gives CPU engines."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from programs import failures, share, tell

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.data import Columns, concat_columns
from gcylon_lab.backends.protocol.promotion import agree_schemas
from gcylon_lab.errors import ReadError
from gcylon_lab.formats import io
from gcylon_lab.runtime.context import current

ROWS = 20_000
DECODED, BY_HOST = "decoded on the GPU", "by way of host memory"


def plain_table(nulls: bool, rows: int = ROWS) -> pa.Table:
    """Every type that is decoded on the device."""
    draws = np.random.default_rng(5)
    missing = draws.random(rows) < 0.1 if nulls else np.zeros(rows, np.bool_)
    numbers = draws.integers(0, 100, rows)
    texts = [f"text {n} é→🎈"[: n % 11] for n in numbers]
    when = [dt.datetime(1995, 1, 1) + dt.timedelta(seconds=int(n), microseconds=int(n)) for n in numbers]

    def made(values: Any, type_: Any) -> pa.Array:
        return pa.array(values, type_, mask=missing)

    arrays = {
        f"{kind}{bits}": made(numbers.astype(f"{kind}{bits}"), None)
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    }
    arrays |= {f"f{bits}": made((numbers / 7).astype(f"float{bits}"), None) for bits in (32, 64)}
    arrays |= {"big": made(numbers.astype(np.int64) + 2**60, None), "b": made(numbers % 2 == 0, None)}
    arrays |= {"s": made(texts, pa.string()), "large": made(texts, pa.large_string())}
    arrays |= {f"t_{unit}": made(when, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")}
    arrays |= {
        "zoned": made(when, pa.timestamp("us", "Europe/Berlin")),
        "d": made([w.date() for w in when], pa.date32()),
    }
    for digits in (7, 15, 38):
        arrays[f"dec{digits}"] = made([Decimal(int(n)) / 100 for n in numbers], pa.decimal128(digits, 2))
    return pa.table(arrays)


def expected(path: str, columns: list[str] | None) -> Columns:
    """What CPU engines would hold of this rank's rows."""
    context, host = current(), PandasBackend()
    plans = io.plan_parquet(path, context.size, columns=columns)
    pieces = [list(io.read_parquet_chunks(plan, columns=columns)) for plan in plans]
    schema = agree_schemas([p.schema for of in pieces for p in of], [p.rows for of in pieces for p in of])
    return concat_columns([host.cast(piece, schema) for piece in pieces[context.rank]])


def read_as_on_cpus(path: str, way: str, columns: list[str] | None = None, config: Any = None) -> None:
    """A read by GPU ranks gives dtypes and rows of CPU ranks, the way it should have gone."""
    table = gl.read_parquet(path, columns=columns, config=config)
    assert way in table.explain(), table.explain()
    wanted, got = expected(path, columns), current().workspace.backend.to_host(table._whole())
    assert got.schema == wanted.schema, f"{got.schema} != {wanted.schema}"
    pd.testing.assert_frame_equal(to_frame(got), to_frame(wanted))


def write(folder: Path, name: str, table: pa.Table, **how: Any) -> str:
    """A file that rank 0 has written."""
    path = folder / f"{name}.parquet"
    if current().rank == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, **how)
    share(0)
    return str(path)


def kinds(folder: Path) -> list[tuple[str, Callable[[], None]]]:
    """Files of all kinds, and which way they go."""
    made: list[tuple[str, Callable[[], None]]] = []

    def check(name: str, table: pa.Table, way: str = DECODED, columns: list[str] | None = None, **how: Any) -> None:
        made.append((name, lambda: read_as_on_cpus(write(folder, name, table, **how), way, columns)))

    for nulls in (False, True):
        for codec in ("snappy", "zstd", "none", "gzip"):
            check(f"{codec} {nulls}", plain_table(nulls), compression=codec, row_group_size=1_000)
        check(f"one group {nulls}", plain_table(nulls))
        check(f"no statistics {nulls}", plain_table(nulls), write_statistics=False, row_group_size=3_000)
        check(f"pages {nulls}", plain_table(nulls), data_page_version="2.0", data_page_size=512, use_dictionary=False)
        check(f"some columns {nulls}", plain_table(nulls), columns=["s", "int16", "dec15"])
    frame = plain_table(True, 500).select(["int64", "b", "s", "f64"]).to_pandas()
    frame = frame.assign(int64=frame["int64"].astype("Int64"), b=frame["b"].astype("boolean"))
    frame = frame.assign(arrow=frame["int64"].astype("int32[pyarrow]"), s2=frame["s"].astype("string[pyarrow]"))
    check("dtypes of pandas", pa.Table.from_pandas(frame))
    check("an index of pandas", pa.Table.from_pandas(frame.set_index("f64")))
    check("no rows", plain_table(False).slice(0, 0), "")
    check("few rows", plain_table(True, 3))
    check("categories", pa.table({"c": pa.array(["a", "b", None] * 50).dictionary_encode()}), BY_HOST)
    check("lists", pa.table({"l": [[1, 2], None, []] * 50, "x": range(150)}), BY_HOST)
    check("a dot", pa.table({"a.b": range(150)}), BY_HOST)
    when = pa.table({"t": pa.array([dt.datetime(2020, 1, n % 28 + 1) for n in range(150)], pa.timestamp("ns"))})
    check("int96", when, BY_HOST, use_deprecated_int96_timestamps=True)
    return made


def folders(root: Path) -> None:
    for month in ("01", "02", "12"):
        write(
            root / "hive" / f"month={month}", "part", plain_table(True, 700).select(["s", "int32"]), row_group_size=99
        )
    read_as_on_cpus(str(root / "hive"), DECODED)
    read_as_on_cpus(str(root / "hive"), DECODED, ["month", "s"])


def written(root: Path) -> None:
    """What GPU ranks encode is read by pandas as what CPU ranks hold, and by GPU ranks."""
    for name, table in (
        ("all", plain_table(True)),
        ("none missing", plain_table(False)),
        ("no rows", plain_table(False).slice(0, 0)),
    ):
        times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        table = table.drop_columns(times)
        source = write(root, f"source {name}", table)
        for compression in ("snappy", "zstd", "none"):
            target = root / f"written {name} {compression}"
            gl.read_parquet(source).write_parquet(str(target), compression=compression)
            share(0)
            read = pd.read_parquet(target)
            wanted = pd.concat(map(to_frame, share(expected(source, None))), ignore_index=True)
            given = pd.read_parquet(source)
            pd.testing.assert_frame_equal(read.astype(given.dtypes), given)
            again = gl.read_parquet(str(target))
            got = pd.concat(share(to_frame(current().workspace.backend.to_host(again._whole()))), ignore_index=True)
            pd.testing.assert_frame_equal(got, wanted)
            schema = pq.read_schema(next(target.glob("part-*.parquet")))
            for field in table.schema:
                if pa.types.is_integer(field.type) and table[field.name].null_count:
                    continue  # float64 in the table, as pandas has it
                kept = schema.field(field.name).type
                assert kept == field.type or "string" in str(kept) and "string" in str(field.type), field
    for column in ("zoned", "t_s", "t_us"):  # by way of host memory
        source = write(root, f"one {column}", plain_table(True).select([column]))
        gl.read_parquet(source).write_parquet(str(root / f"one written {column}"))
        share(0)
        pd.testing.assert_frame_equal(pd.read_parquet(root / f"one written {column}"), pd.read_parquet(source))


def conditions(folder: Path) -> None:
    path = write(folder, "conditions", plain_table(True), row_group_size=1_000)
    frame = pq.read_table(path).to_pandas()
    for condition, holds in (
        (gl.col("int32") < 10, frame["int32"] < 10),
        (
            (gl.col("d") > dt.date(1995, 1, 1)) | (gl.col("s") == ""),
            (frame["d"] > dt.date(1995, 1, 1)) | (frame["s"] == ""),
        ),
        (gl.col("dec15") >= Decimal("0.5"), frame["dec15"].map(lambda n: n is not None and n >= Decimal("0.5"))),
    ):
        table = gl.read_parquet(path, columns=["s", "f64"], filters=condition)
        assert sum(share(table.num_rows)) == int(holds.sum()), repr(condition)
        assert DECODED in table.explain()


def small_budgets(folder: Path) -> None:
    """Less than the table: it is read all the same, and the peak stays in the limit."""
    table = pa.concat_tables([plain_table(True)] * 20)
    path, context = write(folder, "large", table, row_group_size=20_000), current()
    share_bytes = table.nbytes // context.size
    for part in (2.0, 0.5, 0.25):
        limit = max(16 << 20, int(share_bytes * part))
        context.budget.reset_peak()
        read = gl.read_parquet(path, config=gl.GcylonConfig(gpu_memory_limit=limit))
        assert context.budget.peak_bytes <= limit, (part, context.budget.peak_bytes, limit)
        assert sum(share(read.num_rows)) == table.num_rows, part
        assert read.sum("int64") == pc.sum(table["int64"]).as_py(), part
        read.release()


def damaged_texts(folder: Path) -> None:
    for name, value in (
        ("cut", b"abc\xe2\x82"),
        ("alone", b"\x80"),
        ("long", b"\xc0\xaf"),
        ("half", b"\xed\xa0\x80"),
        ("high", b"\xf5\x80\x80\x80"),
    ):
        good = pa.array([b"good", "né→🎈".encode(), b""] * 99)
        texts = pa.concat_arrays([good, pa.array([value]), good])
        bad = pa.StringArray.from_buffers(len(texts), *texts.buffers()[1:])
        try:
            gl.read_parquet(write(folder, name, pa.table({"s": bad})))
        except ReadError as error:
            assert "UTF" in str(error) and f"{name}.parquet" in str(error), error
        else:
            raise AssertionError(f"{value!r} was taken")


if __name__ == "__main__":
    gl.initialize(sample_hz=0)
    with tempfile.TemporaryDirectory() as mine:
        root = Path(share(mine)[0])
        checks = [
            *kinds(root),
            ("folders", lambda: folders(root)),
            ("written", lambda: written(root)),
            ("conditions", lambda: conditions(root)),
            ("small budgets", lambda: small_budgets(root)),
            ("damaged texts", lambda: damaged_texts(root)),
        ]
        tell(failures(checks))
        share(0)
