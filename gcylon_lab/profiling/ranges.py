"""NVTX ranges, where the nvtx package is there and a tool is listening.

Without a tool the package hands out a domain that does nothing; then spans do
not call it at all.
"""

from __future__ import annotations

import importlib
from typing import Any

from .events import categories

_DOMAIN_NAME = "gcylon_lab"


def open_domain() -> Any:
    """The NVTX domain of this package, or None where ranges would go nowhere."""
    try:
        nvtx = importlib.import_module("nvtx")
        domain = nvtx.get_domain(_DOMAIN_NAME)
    except (ImportError, OSError, AttributeError):
        return None
    return None if type(domain).__name__ == "DummyDomain" else domain


class Ranges:
    """A domain with its attribute objects, made once a name and category."""

    __slots__ = ("_attributes", "domain")

    def __init__(self, domain: Any) -> None:
        self.domain = domain
        self._attributes: dict[tuple[str, str], Any] = {}

    def _of(self, name: str, category: str) -> Any:
        attributes = self._attributes.get((name, category))
        if attributes is None:
            color = categories().get(category, 0x999999)
            attributes = self.domain.get_event_attributes(message=name, color=0xFF000000 | color, category=category)
            # Names are few; a caller who forms them from data must not fill the memory.
            if len(self._attributes) < 4096:
                self._attributes[name, category] = attributes
        return attributes

    def push(self, name: str, category: str) -> None:
        """Begin a nested range."""
        self.domain.push_range(self._of(name, category))

    def pop(self) -> None:
        """End the innermost range of this thread."""
        self.domain.pop_range()

    def start(self, name: str, category: str) -> Any:
        """Begin a range that may end anywhere; returns its id."""
        return self.domain.start_range(self._of(name, category))

    def end(self, range_id: Any) -> None:
        """End a started range."""
        self.domain.end_range(range_id)

    def mark(self, name: str, category: str) -> None:
        """Show an instant."""
        self.domain.mark(self._of(name, category))
