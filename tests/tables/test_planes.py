"""Which columns kernels can write, and as which planes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.host.column_buffers import (
    can_write,
    held_row_bytes,
    planes_of,
)
from gcylon_lab.backends.protocol.scattering import Plane
from gcylon_lab.backends.protocol.schema import Schema


def schema_of(**columns: object) -> Schema:
    return PandasBackend().from_frame(pd.DataFrame(columns)).schema


MIXED = schema_of(
    k=np.arange(2, dtype="int32"),
    s=pd.Series(["a", None], dtype="str"),
    n=pd.array([1, None], "Int16"),
    yes=pd.array([True, None], "boolean"),
    m=pd.Series([Decimal("1.25"), None], dtype=object),
    o=pd.Series([dt.date(2000, 1, 1)] * 2, dtype=object),
    t=pd.to_datetime([0, 1]),
    c=pd.Categorical(["x", "y"]),
)


def test_planes_are_items_then_texts_and_bytes_where_values_are_missing() -> None:
    nulls = [False, True, True, False, True, False, False, False]
    assert can_write(MIXED)
    assert planes_of(MIXED, nulls) == (
        Plane(0, "items", 4), Plane(1, "valid", 1), Plane(2, "items", 2), Plane(2, "valid", 1), Plane(3, "items", 1),
        Plane(4, "items", 16), Plane(4, "valid", 1), Plane(5, "items", 4), Plane(6, "items", 8), Plane(7, "items", 1),
        Plane(1, "text", 4),
    )  # fmt: skip
    assert MIXED.texts == (1,)
    assert held_row_bytes(MIXED, nulls) == 4 + 2 + 1 + 16 + 4 + 8 + 1 + 4 + 3 / 8


def test_what_has_no_width_is_packed() -> None:
    assert not can_write(schema_of(k=[1, 2], l=pd.Series([[1], None], dtype=object)))
    assert not can_write(schema_of(k=[1, 2], d=pd.Series([{"a": 1}, None], dtype=object)))
    assert not can_write(schema_of(k=[1, 2], e=pd.Series([None, None], dtype=object)))
    assert can_write(schema_of(k=[1, 2])) and can_write(Schema(()))
