"""Frames of what ranks hold: numbers to compute with, shown with units."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pandas as pd

from ...units import format_bytes

_UNKNOWN = "–"
_SHARES = ("fragmentation", "hit_rate")


class ByteFrame(pd.DataFrame):
    """A frame whose columns of bytes and of shares are shown with units; their values are numbers."""

    @property
    def _constructor(self) -> Callable[..., ByteFrame]:
        return ByteFrame

    def __repr__(self) -> str:
        with pd.option_context("display.max_columns", None, "display.width", 120):
            return repr(self._with_units())

    def _repr_html_(self) -> str:
        html: str = self._with_units()._repr_html_()  # type: ignore[operator]
        # Names may be broken where a page is too narrow for them.
        return re.sub(r"(?<=<th>)\w+(?=</th>)", lambda name: name[0].replace("_", "_<wbr>"), html)

    def _with_units(self) -> pd.DataFrame:
        columns = {place: self.iloc[:, place].map(_shown(str(name))) for place, name in enumerate(self.columns)}
        shown = pd.DataFrame(columns, index=self.index)
        shown.columns = self.columns
        return shown


def _shown(name: str) -> Callable[[Any], Any]:
    def show(value: Any) -> Any:
        if value is None or value != value:
            return _UNKNOWN
        if name in _SHARES:
            return f"{value:.0%}"
        return format_bytes(int(value)) if name.endswith("bytes") and isinstance(value, (int, float)) else value

    return show
