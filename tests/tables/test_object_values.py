"""Values of object columns come back as they are, or are refused by name: none is cut or converted on the way."""

import datetime as dt
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.errors import UnsupportedDtype

BERLIN, UTC = zoneinfo.ZoneInfo("Europe/Berlin"), dt.UTC
FINE = pd.Timestamp("2020-01-01 00:00:00.000000001")


def there_and_back(values: list[Any]) -> list[Any]:
    objects = np.empty(len(values), object)
    for place, value in enumerate(values):
        objects[place] = value  # all at once, numpy would look into lists
    backend = PandasBackend()
    frame = pd.DataFrame({"c": pd.Series(objects, dtype=object)})
    return backend.to_frame(backend.from_frame(frame))["c"].tolist()


@pytest.mark.parametrize(
    "values",
    [
        [[FINE], None, [pd.Timestamp("2021-01-01")]],
        [{"t": FINE}, {"t": None}],
        [[pd.Timedelta(1, "ns")]],
        [[[FINE]], [[]]],
        [[{"t": [pd.Timedelta(1, "ns")]}]],
        [[dt.datetime(2020, 1, 1, 12, tzinfo=BERLIN)], [dt.datetime(2021, 7, 1, tzinfo=BERLIN)]],
        [[FINE.tz_localize(BERLIN)]],
        [[dt.date(2020, 1, 1)], [dt.date(2021, 1, 1), None]],
        [[dt.time(1, 2, 3, 4)]],
        [["a"], ["b", None]],
        [[b"a", b"\xff"]],
        [[1, 2], [], [None]],
        [{"a": 1, "b": [True]}, {"a": 2, "b": None}],
    ],
)
def test_nested_values_are_kept(values: list[Any]) -> None:
    assert there_and_back(values) == values


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([dt.time(1, tzinfo=UTC)], "zone"),
        ([[dt.time(1, tzinfo=UTC)]], "zone"),
        ([[dt.datetime(2020, 1, 1, tzinfo=BERLIN)], [dt.datetime(2020, 1, 1, tzinfo=UTC)]], "zones"),
        ([[dt.datetime(2020, 1, 1, tzinfo=BERLIN), dt.datetime(2020, 1, 1)]], "zones"),
        ([{"t": dt.datetime(2020, 1, 1, tzinfo=BERLIN)}, {"t": dt.datetime(2020, 1, 1)}], "zones"),
        ([[FINE], [dt.datetime(1, 1, 1)]], "."),
        ([[dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 5)]], "date and datetime"),
        ([["a", b"b"]], "bytes and str"),
        ([["a"], [b"b"]], "bytes and str"),
        ([{"a": "x"}, {"a": b"y"}], "bytes and str"),
        ([np.array([True]), [1]], "bool array and int"),
        ([[1.5, True]], "bool and float"),
        ([[1.5, np.longdouble(1)]], "longdouble"),
        ([np.array([1], "m8[s]"), np.array([1], "m8[ns]")], "numpy dtypes"),
        ([[np.timedelta64(1, "s"), np.timedelta64(1, "ns")]], "duration"),
        ([[np.timedelta64(1, "s"), 5]], "list"),
        ([np.timedelta64(1, "s"), 5], "int"),
        ([np.timedelta64(1, "M")], "units"),
        ([np.timedelta64(2**62, "s"), np.timedelta64(1, "ns")], "too large"),
        ([np.longdouble(1)], "longdouble"),
        ([{b"a": 1}], "keys"),
    ],
)
def test_nested_values_that_no_type_keeps_are_refused(values: list[Any], why: str) -> None:
    with pytest.raises(UnsupportedDtype, match=f"(?s)'c'.*{why}"):
        there_and_back(values)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([np.timedelta64(1, "ns"), None], [pd.Timedelta(1, "ns"), None]),
        ([np.timedelta64(1, "D"), np.timedelta64(2, "s")], [dt.timedelta(1), dt.timedelta(seconds=2)]),
        ([np.timedelta64(1, "ms"), np.timedelta64("NaT")], [dt.timedelta(milliseconds=1), None]),
    ],
)
def test_timedeltas_of_numpy_stay_timedeltas(values: list[Any], want: list[Any]) -> None:
    assert there_and_back(values) == want


def test_arrays_inside_are_kept() -> None:
    ints, times = there_and_back([np.array([1, 2], "int8"), np.array([300])]), np.array([FINE.asm8], "M8[ns]")
    assert ints == [[1, 2], [300]]
    assert there_and_back([times, np.array([], "M8[ns]")]) == [[FINE], []]
