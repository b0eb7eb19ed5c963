"""Times that a condition says as text are compared as pandas compares datetimes with it, in columns of every kind."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gcylon_lab.backends.expressions.object_columns import objects_made
from gcylon_lab.backends.expressions.time_strings import with_times
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.expressions import col, lit

TEXTS = ["2020-01-01", "2019-12-31", None, "2020-01-02", "1969-07-20"]
TIMES = pd.Series(pd.to_datetime(TEXTS)).astype("datetime64[us]")
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
COLUMNS: dict[str, pd.Series[Any]] = {
    "datetime": TIMES,
    "aware": TIMES.dt.tz_localize("Europe/Berlin"),
    "date": pd.Series([None if pd.isna(t) else t.date() for t in TIMES], dtype=object),
    "arrow date": TIMES.astype(pd.ArrowDtype(pa.date32())),
    "arrow datetime": TIMES.astype(pd.ArrowDtype(pa.timestamp("us"))),
}


def held(column: pd.Series[Any], condition: Any) -> list[int]:
    """The rows of which a condition on column t holds."""
    backend = PandasBackend()
    data = backend.from_frame(pd.DataFrame({"t": column, "row": np.arange(len(column))}))
    return backend.to_frame(backend.filter(data, condition))["row"].tolist()


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("text", ["2020-01-01", "2020-01-01 00:00:00", "2019-12-31"])
def test_comparisons(kind: str, text: str) -> None:
    for name in COMPARED:
        compare = getattr(operator, name)
        right = compare(TIMES, pd.Timestamp(text))
        if kind.startswith("arrow"):
            right &= TIMES.notna()  # pandas leaves open whether a missing one is another
        wanted = np.flatnonzero(right).tolist()
        assert wanted
        for condition in (compare(col("t"), text), compare(col("t"), lit(text)), ~~compare(col("t"), text)):
            assert held(COLUMNS[kind], condition) == wanted, condition
    assert (
        held(COLUMNS[kind], (col("t").between("2019-12-31", text) & (col("row") >= 0)))
        == np.flatnonzero(TIMES.between("2019-12-31", text)).tolist()
    )
    assert held(COLUMNS[kind], text < col("t")) == np.flatnonzero(TIMES > text).tolist()


def test_an_hour_and_a_zone_count() -> None:
    assert held(COLUMNS["date"], col("t") < "2020-01-01 12:00") == [0, 1, 4]
    assert held(COLUMNS["aware"], col("t") == "2019-12-31T23:00Z") == [0]
    lengths = pd.Series(pd.to_timedelta(["1h", "3h", None]))
    assert held(lengths, col("t") > "2 hours") == [1]


def test_what_is_no_time_stays_text() -> None:
    for kind in ("datetime", "date"):
        assert held(COLUMNS[kind], col("t") == "soon") == []
        with pytest.raises(TypeError):
            held(COLUMNS[kind], col("t") < "soon")
    condition = (col("s") == "2020-01-01") & (col("s").str.len() > 2)
    schema = PandasBackend().from_frame(pd.DataFrame({"s": ["2020-01-01", "x"]})).schema
    assert with_times(condition, schema) is condition  # a column of texts


def test_dates_are_compared_without_objects() -> None:
    schema = PandasBackend().from_frame(pd.DataFrame({"t": COLUMNS["date"]})).schema
    assert not list(objects_made(with_times(col("t") >= "2020-01-01", schema), schema))
