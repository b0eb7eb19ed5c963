"""Tables of numbers on the page, of which a row can be chosen."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from .scripts import script


class ChosenTable(anywidget.AnyWidget):
    """Tables as HTML. ``chosen`` is the number of the operation whose row was clicked last; -1 is none."""

    _esm = script("table.js")
    html: Any = traitlets.Unicode("").tag(sync=True)
    chosen: Any = traitlets.Int(-1).tag(sync=True)

    @property
    def operation(self) -> int | None:
        """The operation that was chosen."""
        return None if self.chosen < 0 else int(self.chosen)
