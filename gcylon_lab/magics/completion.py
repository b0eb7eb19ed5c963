"""Completion of ``%lab``: subcommands, options, settings and their values."""

from __future__ import annotations

from typing import Any

from .clusters import UP_OPTIONS, is_open
from .settings import FIELDS, PRESETS

SUBCOMMANDS = ("up", "status", "config", "restart", "down")


def complete(shell: Any, event: Any) -> list[str]:
    """IPython's hook: what may stand where the cursor is."""
    text = event.text_until_cursor if hasattr(event, "text_until_cursor") else event.line
    words = text.split()
    if len(words) < 2 or (len(words) == 2 and not text[-1:].isspace()):
        return list(SUBCOMMANDS)
    last = "" if text[-1:].isspace() else words[-1]
    if words[1] in ("config", "up"):
        others = UP_OPTIONS if words[1] == "up" else PRESETS
        return _settings(last) + ([] if "=" in last else list(others))
    return sorted(name for name, value in shell.user_ns.items() if is_open(value) and not name.startswith("_"))


def _settings(last: str) -> list[str]:
    name, equals, _ = last.partition("=")
    if equals and FIELDS.get(name) == "bool":
        return ["true", "false", "default"]
    if equals:
        return ["default"]
    return [f"{name}=" for name in FIELDS]
