"""JavaScript and style sheets, each in a file beside this one."""

from __future__ import annotations

from pathlib import Path

from ..figures.theme import DARK


def script(name: str) -> str:
    """Return the text of a file: anywidget keeps every widget alive whose script is a file itself."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


# The arrow of ipywidgets' dropdowns is black on every page.
_SVG = (
    "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E%3Cpath "
    f"fill='{DARK.text.replace('#', '%23')}' d='M5.2,5.9L9,9.7l3.8-3.8l1.2,1.2l-4.9,5l-4.9-5z'/%3E%3C/svg%3E"
)
_ARROW = f'--jp-widgets-dropdown-arrow: url("data:image/svg+xml,{_SVG}");'


def _sheet(name: str) -> str:
    # JupyterLab's own red for errors is too dark on its dark pages.
    return f"\n<style>\n{script(name).replace('DARK_RED', DARK.budget).replace('DARK_ARROW', _ARROW)}</style>\n"


CSS = _sheet("dashboard.css")
CONTROLS_CSS = _sheet("controls.css")
