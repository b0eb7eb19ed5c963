"""What the page tells: light or dark, whether anybody sees the dashboard, whether a pointer is at work on it."""

from __future__ import annotations

import time
from typing import Any

import anywidget
import traitlets

from .scripts import script

# A page that does not answer for so long may be gone, or may have lost a message.
_PATIENCE_S = 3.0
# One on its way while one is drawn.
_MOST_UNDER_WAY = 2


class PageWatcher(anywidget.AnyWidget):
    """An invisible widget that reports on the page around it.

    ``theme`` is "" until the page has said "light" or "dark"; ``visible`` is
    whether the dashboard is on the screen; ``busy`` is whether a pointer moves
    or is pressed over a plot; ``width`` is about how many
    pixels there are, 0 before it is known; ``tock`` follows ``tick`` once the page has taken all that was sent before;
    ``ended`` is told to the page before it is closed.
    """

    _esm = script("page.js")
    theme: Any = traitlets.Unicode("").tag(sync=True)
    visible: Any = traitlets.Bool(True).tag(sync=True)
    busy: Any = traitlets.Bool(False).tag(sync=True)
    width: Any = traitlets.Int(0).tag(sync=True)
    tick: Any = traitlets.Int(0).tag(sync=True)
    tock: Any = traitlets.Int(0).tag(sync=True)
    ended: Any = traitlets.Bool(False).tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0.0

    def close(self) -> None:
        """Take it off the page, which says nothing more."""
        self.ended = True
        super().close()

    def ask(self) -> None:
        """Have the page say, by ``tock``, when it has taken what was sent up to now."""
        self._asked = time.monotonic()
        self.tick += 1

    @property
    def behind(self) -> bool:
        """Whether a page is there that has more than one update yet to take."""
        waiting = bool(self.theme) and self.tick - self.tock >= _MOST_UNDER_WAY
        return waiting and time.monotonic() - self._asked < _PATIENCE_S
