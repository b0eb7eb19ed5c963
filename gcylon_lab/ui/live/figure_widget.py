"""A ``FigureWidget`` whose time axis belongs to whoever moved it last: a person by hand, or the clock.

An update and a hand may cross on their way. Only the page knows which came
first, so it decides there: what a person does to the time axis gets a number,
and until the kernel has heard that number, updates from it keep their hands off
the axis. They were made without knowing.

Updates tell what changed, and say nothing to a page that is not there yet: one
that is opened, or opened again, asks for the figure as it is, and draws that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import traitlets
from plotly import graph_objects
from plotly.serializers import custom_serializers

from ..figures import plotly_io
from .scripts import script

plotly_io.load()
FigureWidget = graph_objects.FigureWidget  # which would load it otherwise

SCRIPT = script("figure.js")


def _now(part: str) -> dict[str, Any]:
    """How a part of the figure is told to a page: plotly's own copy of it is that of the beginning."""

    def tell(at_first: Any, widget: Any) -> Any:
        with widget.lock:
            return custom_serializers["to_json"](widget.now.get(part, at_first), widget)

    return {**custom_serializers, "to_json": tell}


class HandFigureWidget(FigureWidget):  # type: ignore[misc, valid-type]
    """The widget. ``zoomed`` is whether a person has chosen a stretch of time.

    ``asked`` is what a page says that wants the figure, ``answered`` follows it
    when the figure has been sent. ``hand`` is what the page says of a person's last move of the time axis,
    ``heard`` the number of the last such move that was taken into account.
    Whoever changes the figure holds ``lock``: plotly's updates are made of parts,
    and the page's messages come on another thread.
    """

    # Text, not a file: anywidget keeps every widget alive whose script is a file.
    _esm = SCRIPT
    # Beside the widget's own script: that is to be read within two seconds, or anywidget gives the widget up.
    script: Any = traitlets.Unicode(str(FigureWidget._esm)).tag(sync=True)
    _widget_data: Any = traitlets.List().tag(sync=True, **_now("data"))
    _widget_layout: Any = traitlets.Dict().tag(sync=True, **_now("layout"))
    asked: Any = traitlets.Unicode("").tag(sync=True)
    answered: Any = traitlets.Unicode("").tag(sync=True)
    hand: Any = traitlets.Dict().tag(sync=True)
    heard: Any = traitlets.Unicode("").tag(sync=True)
    # The widget with plotly's script, where that is not here.
    lender: Any = traitlets.Unicode("").tag(sync=True)
    # Plotly looks at each number in it for what is no JSON.
    _py2js_update: Any = traitlets.Dict(allow_none=True).tag(sync=True)
    lock: Any = None
    zoomed = False
    on_hand: Callable[[list[float] | None], None] | None = None

    def __init__(self, figure: dict[str, Any]) -> None:
        self.lock = threading.RLock()
        super().__init__(figure)
        # A page that counts views tells of each that goes, also where the kernel has closed the widget: an error there.
        self._view_count = None

    @property
    def now(self) -> dict[str, Any]:
        """The figure's parts as they are now; none before it is made."""
        if not hasattr(self, "_layout_obj"):
            return {}
        return {"data": self._data, "layout": self._layout_obj._props}

    @traitlets.observe("asked")
    def _tell_all(self, change: Any) -> None:
        with self.lock:
            self.send_state(["_widget_data", "_widget_layout"])
            self.answered = change["new"]

    @traitlets.observe("hand")
    def _hand_moved(self, change: Any) -> None:
        with self.lock:
            self.zoomed = bool(change["new"].get("zoomed"))
            # After this the page takes the axis from here again.
            self.heard = str(change["new"].get("said", ""))
        if self.on_hand is not None:
            stretch = [float(end) for end in change["new"].get("range") or ()]
            self.on_hand(stretch if self.zoomed and len(stretch) == 2 else None)

    def tell(self, update: dict[str, Any]) -> None:
        """Send the page what changed, as it is: in one message, where plotly's own way takes four."""
        self._py2js_update = update

    def plotly_relayout(self, relayout_data: dict[str, Any], **kwargs: Any) -> None:
        """Take what a person did on the page, not in the middle of an update."""
        with self.lock:
            super().plotly_relayout(relayout_data, **kwargs)


class BorrowingFigureWidget(HandFigureWidget):
    """One that uses the copy of plotly's script that another on the same page has: it is 5 MB.

    Parameters
    ----------
    figure : dict
    lender : HandFigureWidget
    """

    script: Any = traitlets.Unicode("").tag(sync=True)

    def __init__(self, figure: dict[str, Any], lender: HandFigureWidget) -> None:
        super().__init__(figure)
        self.lender = lender.model_id
