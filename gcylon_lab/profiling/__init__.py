"""Spans, marks and operation records, the memory sampler, and reports made of them."""

from __future__ import annotations

from .events import (
    NO_OPERATION,
    PHASES,
    Event,
    OperationRecord,
    Progress,
    Recorder,
    add_category,
    categories,
)
from .operations import operation
from .spans import Span, current_recorder, mark, recording, set_recorder, span

__all__ = [
    "NO_OPERATION",
    "PHASES",
    "Event",
    "OperationRecord",
    "Progress",
    "Recorder",
    "Span",
    "add_category",
    "categories",
    "current_recorder",
    "mark",
    "operation",
    "recording",
    "set_recorder",
    "span",
]
