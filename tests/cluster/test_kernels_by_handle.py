"""Kernels of one's own that are defined in the notebook, or in a %px cell, on a cluster."""

from __future__ import annotations

import linecache

import pandas as pd
import pytest

import gcylon_lab as gl

pytestmark = pytest.mark.mpi

CELL = """
import math
RATE = 0.25
def taxed(price):
    # branches, and uses what stands beside it
    if price > 2:
        return math.floor(price) * (1 + RATE)
    return price
"""


def test_one_defined_in_a_cell_travels_by_its_source(lab: gl.Cluster) -> None:
    # As a cell of a notebook is kept: in no file, but where tracebacks find its lines.
    name, names = "<cell of a notebook>", {"__name__": "__main__"}
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(True), name)
    exec(compile(CELL, name, "exec"), names)
    taxed = gl.kernel(names["taxed"])
    frame = pd.DataFrame({"price": [1.5, 2.5, 4.0, 0.5]})
    table = lab.from_pandas(frame)
    made = table.assign(y=taxed("price") + 1, z=gl.kernel("price * 2")("price"))
    assert made.to_pandas()["y"].tolist() == [2.5, 3.5, 6.0, 1.5]
    assert "kernel taxed: on the CPU, as this is a CPU engine" in made.explain()
    assert table.filter(taxed("price") > 2).to_pandas()["price"].tolist() == [2.5, 4.0]
    assert table.map_parts(lambda frame, taxed=taxed: frame.assign(y=taxed(frame["price"]))).num_rows == 4

    table.bind("prices")
    lab.view.execute("@gl.kernel\ndef less(a):\n    return a / 2 if a > 1 else a", silent=False)
    lab.view.execute("halved = prices.assign(y=less('price'))", silent=False)
    assert lab.table("halved").to_pandas()["y"].tolist() == [0.75, 1.25, 2.0, 0.5]
