"""Whether two frames are equal, as pandas' own test says, in less time."""

from __future__ import annotations

from typing import Any

import pandas as pd


def assert_frames_equal(ours: pd.DataFrame, theirs: pd.DataFrame, **how: Any) -> None:
    """As `pandas.testing.assert_frame_equal`, which takes each row of a categorical column apart.

    Three quarters of its time went there, of thousands of calls. Here categories are compared whole, and then their
    codes as one column more.
    """
    both = [
        name for name in theirs.columns
        if all(name in frame and isinstance(frame[name].dtype, pd.CategoricalDtype) for frame in (ours, theirs))
    ]  # fmt: skip
    for name in both:
        one, other = ours[name].cat, theirs[name].cat
        pd.testing.assert_index_equal(one.categories, other.categories, obj=f"categories of {name!r}")
        assert one.ordered == other.ordered, name
    plain = [frame.copy(deep=False) for frame in (ours, theirs)]
    for frame in plain:
        for name in both:
            frame[name] = frame[name].cat.codes
    pd.testing.assert_frame_equal(*plain, **how)
