"""What a person sees: figures, the cluster card, the tuner, the dashboard, comparisons, the HTML report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "ClusterCard": ".cluster_card",
    "Dashboard": ".dashboard",
    "Panel": ".panel_widget",
    "Tuner": ".tuner",
    "compare": ".comparison",
    "dashboard_figure": ".figures",
    "html_report": ".report",
    "panel_figure": ".figures",
    "plot_template": ".theme",
}

if TYPE_CHECKING:
    from .cluster_card import ClusterCard
    from .comparison import compare
    from .dashboard import Dashboard
    from .figures import dashboard_figure, panel_figure
    from .panel_widget import Panel
    from .report import html_report
    from .theme import plot_template
    from .tuner import Tuner

__all__ = [
    "ClusterCard",
    "Dashboard",
    "Panel",
    "Tuner",
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
