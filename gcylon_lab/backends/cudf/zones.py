"""Times of zones on GPU ranks: what their clocks show, and back, without cuDF's own tables; see `expressions.zones`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cudf
import cupy
import numpy as np
import pylibcudf as plc

from ..expressions import zones
from ..expressions.computing import ROUNDED, of_times
from ..protocol.schema import Column
from .columns.data import as_array, as_column, current_stream
from .frames import _zoned, with_missing


def of_zone(name: str, times: Any, zone: str, *arguments: Any) -> Any:
    """A field of times of a zone, or what a method of them gives, by the zone's own clock.

    Parameters
    ----------
    name : str
        As `gcylon_lab.backends.expressions.computing.of_times` takes it.
    times : cudf.Series
    zone : str
    *arguments
    """
    if name == "strftime" and any(one in arguments[0] for one in ("%z", "%Z")):
        return of_times(name, times, *arguments)  # which cuDF lets pandas do
    # "D", "W-WED", "2MS": units of whole days are the ones in capital letters
    by_days = name not in (*ROUNDED, "span") or str(arguments[0]).lstrip("0123456789")[:1].isupper()
    if name == "span" and not by_days:
        return of_times(name, times, *arguments)
    local = _moved(times, lambda ticks, unit: zones.on_clocks(ticks, unit, zone, cupy))
    made = of_times(name, local, *arguments)
    if name in ("date", "tz_localize") or getattr(made.dtype, "kind", "") != "M":
        return made
    placed = _moved(made, lambda ticks, unit: zones.instants(ticks, unit, zone, cupy))
    if not by_days:  # an hour that clocks show twice stays what it is
        beside = _moved(times, lambda ticks, _: ticks) + (made - local)
        shown = _moved(beside, lambda ticks, unit: zones.on_clocks(ticks, unit, zone, cupy))
        placed = beside.where(shown == made, placed)
    return _zoned(placed, zone)


def _moved(times: Any, move: Callable[[Any, str], Any]) -> Any:
    """Times without a zone, made of the ticks of some; missing ones stay so."""
    unit = getattr(times.dtype, "unit", None) or np.datetime_data(times.dtype)[0]
    cupy.cuda.Stream.null.synchronize()  # cuDF has made them on its own stream
    plain = times.to_pylibcudf()[0]
    dtype = np.dtype(f"datetime64[{unit}]")
    moved = as_column(Column("", "datetime", dtype.name, dtype=dtype), move(as_array(plain, np.int64), unit))
    if plain.null_count():
        moved = with_missing(moved, as_array(plc.unary.is_valid(plain, stream=current_stream()), np.bool_))
    cupy.cuda.get_current_stream().synchronize()
    return cudf.Series.from_pylibcudf(moved)
