"""Windows of transports whose ranks do not write into the memory of others: buffers, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .transport import Int64s, Window


class PlainWindows:
    """What a transport has of windows where nobody writes by address."""

    def expose(self, buffers: Sequence[Any]) -> Window:
        """Let others write into these buffers until the next `finish`."""
        return Window(tuple(buffers))

    def places(self, window: Window) -> Int64s:
        """Nothing."""
        return np.zeros(0, np.int64)

    def open_window(self, window: Window, places: Int64s) -> Window:
        """The same."""
        return window
