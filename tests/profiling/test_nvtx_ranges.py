"""NVTX: what a listening tool is told, and that nothing is done without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gcylon_lab.profiling import Recorder, mark, operation, ranges, recording, span, spans

SCRIPT = """
from gcylon_lab.profiling import Recorder, add_category, mark, operation, recording, span
add_category("mine", 0x123456)
with span("unrecorded"): pass
with recording(Recorder()), operation("shuffle", 1):
    with span("partition", "algorithm"):
        with span("hash", "mine"):
            mark("spill", "memory")
    first = span("copy", "transfer", overlapping=True).__enter__()
    second = span("copy", "transfer", overlapping=True).__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
"""


def test_a_real_tool_hears_ranges_marks_and_categories(tmp_path: Path) -> None:
    pytest.importorskip("nvtx")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler to build the smallest NVTX tool")
    library = tmp_path / "listener.so"
    source = Path(__file__).with_name("nvtx_listener.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    environment = os.environ | {"NVTX_INJECTION64_PATH": str(library)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "domain gcylon_lab",
        "category 1 algorithm",
        "push shuffle 1 ff56b4e9",
        "push partition 1 ff56b4e9",
        "category 2 mine",
        "push hash 2 ff123456",
        "category 3 memory",
        "mark spill 3 ffe69f00",
        "pop",
        "pop",
        "category 4 transfer",
        "start copy 4 ff0072b2",
        "start copy 4 ff0072b2",
        "end 1",
        "end 2",
        "pop",
    ]


def test_without_a_tool_there_is_no_domain() -> None:
    pytest.importorskip("nvtx")
    assert "NVTX_INJECTION64_PATH" not in os.environ
    assert ranges.open_domain() is None


def test_without_the_package_there_is_no_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    assert ranges.open_domain() is None


class ListeningDomain:
    """The calls that a `nvtx.Domain` gets, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def get_event_attributes(self, *, message: str, color: int, category: str) -> tuple[str, str]:
        self.calls.append(("attributes", message))
        return message, category

    def push_range(self, attributes: tuple[str, str]) -> None:
        self.calls.append(("push", *attributes))

    def pop_range(self) -> None:
        self.calls.append(("pop",))

    def start_range(self, attributes: tuple[str, str]) -> str:
        self.calls.append(("start", *attributes))
        return f"id of {attributes[0]}"

    def end_range(self, range_id: str) -> None:
        self.calls.append(("end", range_id))

    def mark(self, attributes: tuple[str, str]) -> None:
        self.calls.append(("mark", *attributes))


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> ListeningDomain:
    listening = ListeningDomain()
    monkeypatch.setattr(spans, "open_domain", lambda: listening)
    for name in ("_ranges", "_ranges_looked_for", "_span_class"):
        monkeypatch.setattr(spans, name, getattr(spans, name))
    spans._ranges_looked_for = False
    return listening


def test_spans_record_the_same_with_a_domain(domain: ListeningDomain) -> None:
    recorder = Recorder()
    with recording(recorder), operation("shuffle", 1) as record:
        with span("exchange", "transfer", bytes=5), span("waiting", "sync"):
            mark("spill", "memory")
    assert [event.name for event in recorder.events()] == ["spill", "waiting", "exchange"]
    assert set(record.phases) == {"exchange", "waiting"}
    assert [call for call in domain.calls if call[0] != "attributes"] == [
        ("push", "shuffle", "algorithm"),
        ("push", "exchange", "transfer"),
        ("push", "waiting", "sync"),
        ("mark", "spill", "memory"),
        ("pop",),
        ("pop",),
        ("pop",),
    ]


def test_overlapping_spans_are_start_and_end_ranges(domain: ListeningDomain) -> None:
    with recording(Recorder()):
        first = span("a", overlapping=True).__enter__()
        second = span("b", overlapping=True).__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
    assert [call for call in domain.calls if call[0] != "attributes"] == [
        ("start", "a", "user"),
        ("start", "b", "user"),
        ("end", "id of a"),
        ("end", "id of b"),
    ]


def test_attributes_are_made_once_a_name(domain: ListeningDomain) -> None:
    with recording(Recorder()):
        for _ in range(10):
            with span("exchange", "transfer"):
                pass
    assert domain.calls.count(("attributes", "exchange")) == 1
    assert domain.calls.count(("pop",)) == 10


def test_ranges_are_balanced_when_blocks_raise(domain: ListeningDomain) -> None:
    with recording(Recorder()), pytest.raises(ValueError), operation("shuffle", 1), span("exchange"), span("waiting"):
        raise ValueError
    kinds = [call[0] for call in domain.calls]
    assert kinds.count("push") == kinds.count("pop") == 3


def test_names_made_from_data_do_not_fill_the_memory(domain: ListeningDomain) -> None:
    with recording(Recorder(capacity=1)):
        for i in range(5000):
            mark(f"row {i}")
    assert spans._ranges is not None
    assert len(spans._ranges._attributes) == 4096
