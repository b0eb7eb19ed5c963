"""Verbs on several handles as sets, called from the notebook."""

from __future__ import annotations

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, ColumnMissing

pytestmark = pytest.mark.mpi


def test_handles_as_sets(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    left, right = lab.from_pandas(frame[["k"]]), lab.from_pandas(frame[["k"]][:10])
    distinct = set(frame["k"]), set(frame["k"][:10])
    assert set(left.intersect(right).to_pandas(limit=None)["k"]) == distinct[1]
    assert set(left.difference(right).to_pandas(limit=None)["k"]) == distinct[0] - distinct[1]
    assert left.union(right, all=True).num_rows == 1010 and left.union(right).num_rows == len(distinct[0])
    for verb in ("union", "intersect", "difference", "concat"):
        assert getattr(left, f"plan_{verb}")(right).verb == verb
    assert left.plan_union(right, all=True).reason == left.union(right, all=True).last_plan.reason
    with pytest.raises(ArgumentError, match="Expected another table for"):
        left.plan_concat([right, "right"])
    with pytest.raises(ColumnMissing, match="no column 'k'"):
        left.union(right.rename({"k": "j"}))
    with pytest.raises(ArgumentError, match="Expected another table for"):
        left.intersect("right")


def test_handles_one_after_the_other(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    both = gl.concat([table, table, table])
    assert both.to_pandas(limit=None)["v"].tolist() == [*frame["v"]] * 3
    assert "3 tables are cut evenly" in both.explain()
    local = table.concat(table, order="local")
    assert local.why_not_equal(both).startswith("There are 2,000 rows here")
    assert table.concat(table).equals(local, ordered=False) and not table.concat(table).equals(local)
    top = table.value_counts("k", normalize=True).head(1)
    assert top["proportion"].tolist() == [frame["k"].value_counts(normalize=True).max()]
