"""What an operation costs by itself, in calls: times differ from day to day."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(function: Callable[[], Any]) -> int:
    """How many calls this package's functions get and make, once it has been called before."""
    function()
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call") and "gcylon_lab/" in frame.f_code.co_filename:
            calls += 1

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls
