"""Arrow data of every dtype: the dtypes are those that files give, on all ranks, and come out as they went in."""

from __future__ import annotations

import io

import pyarrow as pa
from every_dtype import EVERY_DTYPE

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import from_frame
from gcylon_lab.formats.ipc_writer import arrow_table
from gcylon_lab.runtime.context import current, run_threads

NO_ARROW_TYPE = ("period", "complex128")


def dtypes_both_ways(names: list[str]) -> None:
    context = current()
    for name in names:
        frame = EVERY_DTYPE[name].to_frame("x")
        table = arrow_table(from_frame(frame))  # pandas itself cannot hand over all of them
        mine = gl.from_arrow(table if context.rank != 1 else table.slice(0, 0))  # one rank has no rows
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        read = gl.read_ipc(sink.getvalue())
        assert mine.dtypes == read.dtypes, name
        want = pa.table(mine)
        again = gl.from_arrow(want)
        assert again.dtypes == mine.dtypes and pa.table(again) == want, name
        assert again.equals(mine)


def test_dtypes_are_those_that_files_give() -> None:
    run_threads(2, dtypes_both_ways, [name for name in EVERY_DTYPE if name not in NO_ARROW_TYPE])
