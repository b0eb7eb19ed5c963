"""A program that runs on GPU ranks: csv files read on the device give what Arrow's reader gives CPU engines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from programs import failures, share, tell

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.data import Columns, concat_columns
from gcylon_lab.backends.protocol.promotion import agree_schemas
from gcylon_lab.errors import GcylonError
from gcylon_lab.formats import io
from gcylon_lab.runtime.context import current

READ, BY_HOST = "read on the GPU", "by way of host memory"


def many(rows: int) -> str:
    """Lines of every kind of value, some of them missing."""
    random = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "i": random.integers(-(10**18), 10**18, rows),
            "n": pd.array(random.integers(0, 99, rows), dtype="Int64"),
            "f": random.random(rows),
            "e": random.random(rows) * 10.0 ** random.integers(-4, 9, rows),
            "p": (random.random(rows) * 1e5).round(2),
            "b": random.random(rows) < 0.5,
            "s": [f"text {n} é→🎈"[: n % 13] for n in random.integers(0, 100, rows)],
            "t": pd.Timestamp("1999-12-31 23:59:58") + pd.to_timedelta(random.integers(0, 10**9, rows), unit="s"),
        }
    )
    for name in ("n", "f", "s"):
        frame.loc[random.random(rows) < 0.1, name] = None
    return frame.to_csv(index=False)


# Texts, options, and the way they go.
TEXTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "many": (many(20_000), {"parse_dates": ["t"]}, READ),
    "many as text": (many(3_000), {}, READ),
    "named types": (many(3_000), {"dtype": {"n": "float64", "p": "str", "b": "str"}}, READ),
    "no line end": ("a,b\n1,2\n3,4", {}, READ),
    "one column": ("a\n1\n2\n", {}, READ),
    "one column of texts": ("a\nx\nyy\n", {}, READ),
    "missing texts": ("a,s\n1,\n2,NA\n3,null\n4,x\n5,None\n6,nulls\n", {}, READ),
    "missing numbers": ("a,x\n1,\n2,NaN\n,1.#QNAN\n4,-nan\n5,2.5\n", {}, READ),
    "bools": ("a,b\n1,true\n2,False\n3,\n4,TRUE\n", {}, READ),
    "ones": ("a,b\n1,1\n2,0\n", {"dtype": {"b": "bool"}}, READ),
    "other delimiter": ("a;b\n1;x,y\n2;z\n", {"delimiter": ";"}, READ),
    "no header": ("1,x\n2,y\n", {"header": False}, READ),
    "plain quotes": ('a,b\n1,10" pipe\n2,"\n', {"quotes": False}, READ),
    "largest ints": ("a,b\n9223372036854775807,1\n-9223372036854775808,2\n", {}, READ),
    "dates": (
        "a,t\n1,2020-02-29\n2,0001-01-01 00:00\n3,9999-12-31T23:59:59.999999\n4,\n5,1969-12-31 23:59:59.5\n",
        {"parse_dates": ["t"]},
        READ,
    ),
    "hard floats": (
        "x,y\n0.1,9007199254740991\n-0.0,1e5\n.5,5.\n1e-22,123456789.123456789\n8.5e12,-7.0000000000000009\n",
        {},
        READ,
    ),
    "finer floats": ("x,y\n1e-300,1\n0.1234567890123456789012,2\n", {}, READ),
    "infinite": ("x,y\ninf,1\n1.5,2\n-Infinity,3\n", {}, READ),
    "quotes": ('a,b\n1,"x,y"\n2,"z ""q"""\n3,"two\nlines"\n"4",""\n5,""""\n6,"NA"\n', {}, READ),
    "quotes further on": ("a,b\n" + "1,x\n" * 5_000 + '2,"y, ""and""\n more\r\n"\n' * 3_000, {}, READ),
    "quotes around all": ('"a","b"\n' + '"1","x"\n"-2","y,y"\n' * 4_000, {}, READ),
    "quotes inside": ('a,b\n1,10" pipe\n2,x "y" z\n', {}, BY_HOST),
    "returns": ("a,b\r\n1,x\r\n2,y\r\n", {}, BY_HOST),
    "blank lines": ("a,b\n1,x\n\n2,y\n", {}, BY_HOST),
    "a blank line of one column": ("a\n1\n\n2\n", {}, BY_HOST),
    "blanks around": ("a,b\n 1 ,x\n2, y \n", {}, BY_HOST),
    "fractions further on": ("a,b\n" + "1,x\n" * 1_200_000 + "2.5,y\n", {}, BY_HOST),
    "nothing at first": ("a,b\n,x\n,y\n", {}, BY_HOST),
    "zones": ("a,t\n1,2020-01-01 00:00:00+02:00\n", {"parse_dates": ["t"]}, BY_HOST),
    "small ints": ("a,b\n1,2\n", {"dtype": {"a": "int8"}}, BY_HOST),
    "large floats": ("a,x\n1,1.5\n2,9007199254740994.0\n", {}, BY_HOST),
    "header alone": ("a,b\n", {}, ""),
}
# What CPU engines refuse.
WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "too few": ("a,b\n1,2\n3\n", {}),
    "too many": ("a,b\n1,2\n3,4,5\n", {}),
    "another type": ("a,b\n" + "1,2\n" * 1_200_000 + "x,2\n", {}),
    "another type that nobody asked for": ("a,b\n" + "1,2\n" * 1_200_000 + "1,x\n", {"columns": ["a"]}),
    "no such day": ("a,t\n1,2020-02-29\n2,2021-02-29\n", {"dtype": {"t": "datetime64[us]"}}),
    "too large": ("a,b\n9223372036854775808,1\n1,2\n", {"dtype": {"a": "int64"}}),
    "rounded": ("a,x\n1,1.5\n2,9007199254740993\n", {}),
}


def expected(path: str, options: dict[str, Any]) -> Columns:
    """What CPU engines would hold of this rank's rows."""
    context, host = current(), PandasBackend()
    plans = io.plan_csv(path, context.size, **options)
    pieces: list[list[Any]] = [list(io.read_csv_chunks(plan)) for plan in plans]
    schema = agree_schemas([p.schema for of in pieces for p in of], [p.rows for of in pieces for p in of])
    return concat_columns([host.cast(piece, schema) for piece in pieces[context.rank]])


def write(folder: Path, name: str, text: str) -> str:
    """A file that rank 0 has written."""
    path = folder / f"{name}.csv"
    if current().rank == 0:
        path.write_text(text, newline="")
    share(0)
    return str(path)


def check(folder: Path, name: str) -> None:
    text, options, way = TEXTS[name]
    path, read = write(folder, name, text), []
    for limit in (None, 24 << 20):
        table = gl.read_csv(path, **options, config=limit and gl.GcylonConfig(gpu_memory_limit=limit))
        said = share(table.explain())
        read.append((said, current().workspace.backend.to_host(table._whole())))
        table.release()
    wanted = expected(path, options)
    for said, got in read:  # now that all ranks have read all: one that leaves here would be waited for
        assert any(way in text for text in said), said
        assert got.schema == wanted.schema, f"{got.schema} != {wanted.schema}"
        pd.testing.assert_frame_equal(to_frame(got), to_frame(wanted), check_exact=True)


def refused(folder: Path, name: str) -> None:
    text, options = WRONG[name]
    path = write(folder, name, text)
    try:
        gl.read_csv(path, **options)
    except GcylonError as error:
        assert name in str(error), error
    else:
        raise AssertionError("it was taken")


def small_budgets(folder: Path) -> None:
    """Less than the table: it is read all the same, and the peak stays in the limit."""
    text, context, seen = many(400_000), current(), []
    path = write(folder, "large", text)
    for limit in (64 << 20, 16 << 20):
        context.budget.reset_peak()
        read = gl.read_csv(path, columns=["i", "s"], config=gl.GcylonConfig(gpu_memory_limit=limit))
        seen.append((context.budget.peak_bytes, limit, sum(share(read.num_rows)), read.explain()))
        read.release()
    kept = sum(share(gl.read_csv(path, columns=["i"], filters=gl.col("n") > 50).num_rows))
    assert kept == int((pd.read_csv(path)["n"] > 50).sum())
    for peak, limit, rows, said in seen:
        assert peak <= limit and rows == 400_000 and READ in said, (peak, limit, rows, said)


if __name__ == "__main__":
    gl.initialize(sample_hz=0)
    with tempfile.TemporaryDirectory() as mine:
        root = Path(share(mine)[0])
        checks: list[tuple[str, Callable[[], None]]] = [(name, lambda name=name: check(root, name)) for name in TEXTS]
        checks += [(f"wrong: {name}", lambda name=name: refused(root, name)) for name in WRONG]
        checks.append(("small budgets", lambda: small_budgets(root)))
        tell(failures(checks))
        share(0)
