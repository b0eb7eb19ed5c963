"""What a person sees: figures, the cluster card, the tuner, the dashboard, comparisons, the HTML report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "App": ".application",
    "ClusterCard": ".controls.cluster_box",
    "Dashboard": ".dashboard",
    "Panel": ".panel_widget",
    "Tuner": ".controls.tuner",
    "app": ".application",
    "compare": ".controls.comparison",
    "dashboard_figure": ".figures.figures",
    "html_report": ".report",
    "panel_figure": ".figures.figures",
    "plot_template": ".figures.theme",
}

if TYPE_CHECKING:
    from .application import App, app
    from .controls.cluster_box import ClusterCard
    from .controls.comparison import compare
    from .controls.tuner import Tuner
    from .dashboard import Dashboard
    from .figures.figures import dashboard_figure, panel_figure
    from .figures.theme import plot_template
    from .panel_widget import Panel
    from .report import html_report

__all__ = [
    "App",
    "ClusterCard",
    "Dashboard",
    "Panel",
    "Tuner",
    "app",
    "compare",
    "dashboard_figure",
    "html_report",
    "panel_figure",
    "plot_template",
]


def __getattr__(name: str) -> Any:
    # Looked up when first used: figures alone need no ipywidgets.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value
