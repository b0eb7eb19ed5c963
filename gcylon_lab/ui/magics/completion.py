"""Completion of ``%lab``: subcommands, options, settings and their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from .clusters import UP_OPTIONS, is_open
from .settings import FIELDS, PRESETS

SUBCOMMANDS = ("up", "status", "config", "profile", "restart", "down")
_NAME = "gcylon_lab.ui.magics"


def add_completion(shell: Any) -> None:
    """Let a shell complete ``%lab``; again does no harm."""
    remove_completion(shell)
    shell.Completer.custom_matchers.append(_matcher(shell.user_ns))


def remove_completion(shell: Any) -> None:
    """Take it away."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", "") != _NAME]


def _matcher(namespace: dict[str, Any]) -> Callable[[CompletionContext], SimpleMatcherResult]:
    def match(context: CompletionContext) -> SimpleMatcherResult:
        text = context.text_until_cursor.lstrip()
        token = context.token
        found = [word for word in _candidates(text, namespace) if word.startswith(token)]
        # Where nothing is ours, whatever else knows something may say it.
        return {
            "completions": [SimpleCompletion(text=word) for word in found],
            "suppress": bool(found),
            "ordered": True,
        }

    marked: Callable[[CompletionContext], SimpleMatcherResult] = context_matcher(identifier=_NAME)(match)
    return marked


def _candidates(text: str, namespace: dict[str, Any]) -> Sequence[str]:
    """What may stand at the end of a line that begins so."""
    words = text.split()
    if not words or words[0] != "%lab" or text == "%lab":
        return ()
    if len(words) == 1 or (len(words) == 2 and not text[-1].isspace()):
        return SUBCOMMANDS
    last = "" if text[-1].isspace() else words[-1]
    if words[1] == "profile":
        return ("on", "off")
    if words[1] not in ("config", "up"):
        return sorted(name for name, value in namespace.items() if is_open(value) and not name.startswith("_"))
    name, equals, _ = last.partition("=")
    if equals:
        return ("true", "false", "default") if FIELDS.get(name) == "bool" else ("default",)
    return [*(f"{field}=" for field in FIELDS), *(UP_OPTIONS if words[1] == "up" else PRESETS)]
