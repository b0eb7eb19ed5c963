"""Joins of two handles, called from the notebook."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, ColumnMissing

pytestmark = pytest.mark.mpi


@pytest.fixture
def sides() -> tuple[pd.DataFrame, pd.DataFrame]:
    k = np.arange(400) % 37
    left = pd.DataFrame({"k": k, "x": np.arange(400) / 4})
    return left, pd.DataFrame({"k": np.arange(20, 60), "y": pd.Series([f"t{i}" for i in range(40)], dtype="str")})


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values(list(frame.columns), ignore_index=True)


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_handles_join(lab: gl.Cluster, sides: tuple[pd.DataFrame, pd.DataFrame], how: str) -> None:
    left, right = map(lab.from_pandas, sides)
    joined = left.join(right, how, "k", indicator=True)
    expected = sides[0].merge(sides[1], how, "k", indicator=True)
    pd.testing.assert_frame_equal(in_order(joined.to_pandas(limit=None)), in_order(expected), check_categorical=False)
    assert joined.explain().startswith("join: ")
    assert left.plan_join(right, how, "k").notes[0] == joined.last_plan.notes[0]
    assert left.merge(right, how, "k").num_rows == len(expected)


def test_a_small_frame_is_sent_by_itself(lab: gl.Cluster, sides: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    left, right = map(lab.from_pandas, sides)
    held = lab.memory().shape
    sent = left.merge(sides[1], on="k")
    assert sent.num_rows == left.join(right, on="k").num_rows == left.join(right=sides[1], on="k").num_rows > 0
    sent.release()
    assert lab.memory().shape == held


def test_errors_name_what_is_wrong(lab: gl.Cluster, sides: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    left, right = map(lab.from_pandas, sides)
    with pytest.raises(ColumnMissing, match="nowhere"):
        left.join(right, on="nowhere")
    with pytest.raises(ArgumentError, match="Expected another table for join"):
        left.join("right", on="k")
    large = pd.DataFrame({"k": np.zeros(3_000_000)})
    with pytest.raises(ArgumentError, match=r"a frame of 22.9 MiB, .* as other = lab.from_pandas\(frame\)"):
        left.join(large, on="k")
    with pytest.raises(ArgumentError, match="how='k' is invalid. .*To join by columns, give on='k'."):
        left.join(right, "k")
    with pytest.raises(ArgumentError, match="how='inside' is invalid") as wrong:
        left.join(right, "inside", "k")
    assert "give on=" not in str(wrong.value)
    with pytest.raises(ArgumentError, match="rows of the left side repeat a key"):
        left.join(right, on="k", validate="1:1")
    assert left.join(right, on="k").num_rows  # the ranks go on
