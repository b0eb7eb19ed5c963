"""A widget in a panel of JupyterLab beside the notebook."""

from __future__ import annotations

from typing import Any

from ..backends.protocol.scalars import check_choice
from ..errors import GcylonError

PLACES = {
    "right": "split-right", "left": "split-left", "top": "split-top", "bottom": "split-bottom", "sidebar": "right",
}  # fmt: skip
TITLE = "gcylon_lab"


def dock(shown: Any, where: str, before: Any = None) -> Any:
    """Show a live widget in a panel, and return the panel; one that it stood in before is closed."""
    check_choice("where", where, tuple(PLACES))
    try:
        from sidecar import Sidecar
    except ImportError:
        raise GcylonError(
            "sidecar, which docks widgets in JupyterLab, is not installed.",
            advice="pip install 'gcylon-lab[dock]' where JupyterLab runs, and load its page again; or show the widget "
            "in a cell, click its output with the right button, and choose Create New View for Output.",
        ) from None
    from IPython.display import display

    if before is not None:
        before.close()
    panel = Sidecar(title=TITLE, anchor=PLACES[where])
    bundle = shown._repr_mimebundle_()
    # As state of the panel: a page that is loaded again finds it there.
    panel.outputs = ({"output_type": "display_data", "data": bundle, "metadata": {}},)
    display(panel)  # type: ignore[no-untyped-call]
    return panel
