"""JavaScript and style sheets, each in a file beside this one."""

from __future__ import annotations

from pathlib import Path


def script(name: str) -> str:
    """Return the text of a file: anywidget keeps every widget alive whose script is a file itself."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
