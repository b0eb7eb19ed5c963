"""The functions that ipyparallel carries to an engine. Whoever makes a process an engine puts its answers here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ClusterError
from .messages import Reply, Request

Serve = Callable[[Request, Callable[..., Any] | None, Any], Reply]
Probe = Callable[[str], Any]

_answers: tuple[Serve, Probe] | None = None


def answer_with(serve: Serve, probe: Probe) -> None:
    """Let this process answer: requests, and questions before it is known to work."""
    global _answers
    _answers = serve, probe


def deliver(request: Request, function: Callable[..., Any] | None = None, own: Any = None) -> Reply:
    """Run a request on this engine; this is what ipyparallel carries there. ``own`` is for this rank alone."""
    return _this_engine()[0](request, function, own)


def ask(what: str) -> Any:
    """Evaluate one of the engine's probes by name, outside any operation; used before an engine is known to work."""
    return _this_engine()[1](what)


def _this_engine() -> tuple[Serve, Probe]:
    if _answers is None:
        raise ClusterError("This process is no engine of gcylon_lab: it was not started as one.")
    return _answers
