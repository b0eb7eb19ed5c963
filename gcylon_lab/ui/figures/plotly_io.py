"""Loads the part of plotly that shows figures, without nbformat.

Of nbformat that part asks the version, and only where somebody calls ``show``. But nbformat checks notebooks, and to
load what it checks addresses with takes two seconds, for which the first figure would wait.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """A module that is loaded when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        self.leave()
        return getattr(import_module(self.__name__), name)

    def leave(self) -> None:
        """Make room for the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


def load() -> None:
    """Load it, if that has not been done; other code finds nbformat as ever."""
    from plotly import io

    if "nbformat" in sys.modules:
        return
    later = sys.modules["nbformat"] = _Later("nbformat")
    try:
        io.renderers  # noqa: B018
    finally:
        later.leave()
