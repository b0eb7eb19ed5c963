"""The clusters that this process started or attached, by name: known below them too, to those who read beside them."""

from __future__ import annotations

from typing import Any

clusters: dict[str, Any] = {}
