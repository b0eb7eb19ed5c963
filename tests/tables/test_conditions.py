"""Conditions where values are missing: on every backend what pandas answers, also inside ``~ & |``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gcylon_lab import col

FRAME = pd.DataFrame(
    {
        "s": pd.array(["a", None, "b", "ab", None, "", "a", "b"], dtype="str"),
        "q": pd.array(["a", "a", None, "c", None, "b", "", "a"], dtype="string"),
        "n": pd.array([1, None, 3, 4, None, 6, 7, 8], dtype="Int64"),
        "f": [0.5, np.nan, 1.5, np.nan, 2.5, 3.5, -1.0, 0.0],
        "b": [True, False, True, False, True, False, True, False],
        "m": pd.array([True, None, False, None, True, False, None, True], dtype="boolean"),
        "o": pd.array([None, None, True, False, None, True, False, True], dtype="boolean"),
        "t": pd.to_datetime(["2020-01-01", None, "2020-01-03", "2020-01-04", None, "2020-01-06", "2020-01-07", None]),
        "c": pd.Categorical(["x", None, "y", "x", "y", None, "x", "y"]),
    }
)
DAY = pd.Timestamp("2020-01-03")
CONDITIONS: dict[str, Callable[[Any], Any]] = {
    "text is not": lambda c: ~(c("s") == "a"),
    "text differs": lambda c: c("s") != "a",
    "nullable text differs": lambda c: c("q") != "a",
    "nullable text is not": lambda c: ~(c("q") == "a"),
    "text less, or a flag": lambda c: (c("s") < "b") | ~c("b"),
    "text begins not so": lambda c: ~c("s").str.startswith("a"),
    "text is not among": lambda c: ~c("s").isin(["a", ""]),
    "number or flag": lambda c: (c("n") % 2 == 0) | ~c("b"),
    "number and flag": lambda c: (c("n") > 3) & c("b"),
    "not number and flag": lambda c: ~((c("n") > 3) & c("b")),
    "number, there, or flag": lambda c: (c("n") % 2 == 0) & c("s").notna() | ~c("b"),
    "two that are open, and": lambda c: c("m") & c("o"),
    "two that are open, or": lambda c: c("m") | c("o"),
    "two that are open, xor": lambda c: c("m") ^ c("o"),
    "open, turned round": lambda c: ~(c("m") & c("o")) | ~c("m"),
    "time is not": lambda c: ~(c("t") > DAY),
    "time differs": lambda c: c("t") != DAY,
    "time between": lambda c: ~c("t").between(DAY, pd.Timestamp("2020-01-06")),
    "label is not": lambda c: ~(c("c") == "x"),
    "label differs": lambda c: c("c") != "x",
    "float is not": lambda c: ~(c("f") > 1) & c("f").notna(),
    "float differs, open": lambda c: (c("f") != 0.5) & c("m"),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_what_is_missing_is_answered_as_by_pandas(backend: Any, name: str) -> None:
    condition, expected = CONDITIONS[name](col), CONDITIONS[name](FRAME.__getitem__)
    data = backend.from_frame(FRAME.assign(row=np.arange(len(FRAME))))
    made = backend.to_frame(backend.evaluate(data, [("y", condition)]))["y"]
    assert made.dtype == expected.dtype
    assert made.astype(object).where(made.notna(), None).tolist() == (
        expected.astype(object).where(expected.notna(), None).tolist()
    )
    rows = backend.to_frame(backend.filter(data, condition))["row"].tolist()
    assert rows == np.flatnonzero(expected.fillna(False).to_numpy(dtype=bool)).tolist()
