"""Spans, marks and operation records, the memory sampler, and reports made of them."""

from __future__ import annotations

from .cost import event_cost_ns, measure_event_cost
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
from .gpus import GpuProbe, GpuSample, GpuSeries, gpus_of
from .report import by_span, format_summary, phase_order, summary
from .sampler import Sample, Sampler, read_rss_bytes
from .snapshot import RankSnapshot, merge, record_as_dict, take_snapshot
from .spans import Span, current_operation, current_recorder, mark, operation, recording, set_recorder, span
from .trace import chrome_trace, write_chrome_trace

__all__ = [
    "NO_OPERATION",
    "PHASES",
    "Event",
    "GpuProbe",
    "GpuSample",
    "GpuSeries",
    "OperationRecord",
    "Progress",
    "RankSnapshot",
    "Recorder",
    "Sample",
    "Sampler",
    "Span",
    "add_category",
    "by_span",
    "categories",
    "chrome_trace",
    "current_operation",
    "current_recorder",
    "event_cost_ns",
    "format_summary",
    "gpus_of",
    "mark",
    "measure_event_cost",
    "merge",
    "operation",
    "phase_order",
    "read_rss_bytes",
    "record_as_dict",
    "recording",
    "set_recorder",
    "span",
    "summary",
    "take_snapshot",
    "write_chrome_trace",
]
