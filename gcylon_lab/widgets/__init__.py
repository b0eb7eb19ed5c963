"""What a person sees: figures, the tuner, the dashboard, the HTML report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Dashboard": ".dashboard",
    "Panel": ".panel_widget",
    "dashboard_figure": ".figures",
    "html_report": ".report",
    "panel_figure": ".figures",
}

if TYPE_CHECKING:
    from .dashboard import Dashboard
    from .figures import dashboard_figure, panel_figure
    from .panel_widget import Panel
    from .report import html_report

__all__ = ["Dashboard", "Panel", "dashboard_figure", "html_report", "panel_figure"]


def __getattr__(name: str) -> Any:
    # Looked up when first used: figures alone need no ipywidgets.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value
