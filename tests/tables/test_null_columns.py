"""Columns of nulls of every dtype, on every backend: beside rows without a partner, and cast from what has no dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from every_dtype import EVERY_DTYPE

from gcylon_lab.backends.protocol.schema import Schema
from gcylon_lab.errors import SchemaMismatch


def library(backend: Any) -> Any:
    """The backend itself, where it is seen from the host."""
    return getattr(backend, "device", backend)


@pytest.mark.parametrize("name", EVERY_DTYPE)
def test_rows_without_a_partner_have_nulls(backend: Any, name: str) -> None:
    schema = backend.from_frame(EVERY_DTYPE[name].to_frame("v")).schema
    if schema["v"].fixed and schema["v"].kind in ("int", "bool"):
        return  # it becomes another dtype
    for rows in (0, 3):
        made = library(backend).lacking(schema, rows)
        assert made.schema == schema and made.rows == rows
        frame = backend.to_frame(made)
        assert len(frame) == rows and frame["v"].isna().all()
        both = backend.concat([made, backend.from_frame(EVERY_DTYPE[name].to_frame("v")), made])
        assert backend.to_frame(both)["v"].isna().sum() == 2 * rows + EVERY_DTYPE[name].isna().sum()


@pytest.mark.parametrize("name", EVERY_DTYPE)
def test_what_has_no_dtype_takes_any(backend: Any, name: str) -> None:
    schema = backend.from_frame(EVERY_DTYPE[name].to_frame("v")).schema
    nulls = backend.from_frame(pd.DataFrame({"v": pd.Series([None, None], dtype=object)}))
    try:
        made = backend.cast(nulls, Schema([replace(schema["v"], name="v")]))
    except SchemaMismatch:
        assert schema["v"].fixed and schema["v"].kind in ("int", "bool")
        return
    assert made.schema == schema and backend.to_frame(made)["v"].isna().all()
