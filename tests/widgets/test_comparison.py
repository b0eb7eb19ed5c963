"""A comparison as text and HTML: the best of each column, what failed, what was not alike."""

from __future__ import annotations

from typing import Any

import pytest

from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError
from gcylon_lab.ui.controls.comparison import Comparison, variants
from gcylon_lab.units import MIB


def row(name: str, **more: Any) -> dict[str, Any]:
    known = {"name": name, "strategy": "direct", "rounds": 4, "predicted_peak_bytes": 32 * MIB, "error": "", "runs": 1}
    known |= {"measured_peak_bytes": 30 * MIB, "budget_bytes": 64 * MIB, "seconds": 0.5, "gb_per_s": 0.25}
    return known | {"staged_bytes": 0, "input_staged_bytes": 0} | more


def failed(name: str, error: str) -> dict[str, Any]:
    return dict.fromkeys(row("")) | {"name": name, "strategy": "direct", "error": error}


def cells(found: Comparison, name: str) -> list[str]:
    line = next(line for line in repr(found).splitlines() if line.startswith(name))
    return [cell for cell in line.split("  ") if cell.strip()]


def test_the_best_of_each_column_is_marked_and_what_is_alike_is_not() -> None:
    slow = row("slow", seconds=2.0, gb_per_s=0.0625, measured_peak_bytes=8 * MIB, staged_bytes=24 * MIB)
    found = Comparison("shuffle(on='k')", [row("fast"), slow])
    fast, slow = ([cell.strip() for cell in cells(found, name)] for name in ("fast", "slow"))
    assert fast == ["fast", "direct", "4", "32 MiB", "30 MiB", "47% of 64 MiB", "★ 500 ms", "★ 0.25 GB/s", "★ nothing"]
    assert slow == ["slow", "direct", "4", "32 MiB", "★ 8 MiB", "12% of 64 MiB", "2 s", "62.5 MB/s", "24 MiB"]
    assert found._repr_html_().count("<b>★ ") == 4


def test_what_failed_is_a_row_with_the_reason_and_never_the_best() -> None:
    found = Comparison("x", [row("fine"), failed("<bad>", "BudgetExceeded: 9 < 12 bytes")])
    assert "★" not in repr(found)
    assert repr(found).splitlines()[-1] == "<bad>    direct  ✖ BudgetExceeded: 9 < 12 bytes"
    assert "&lt;bad&gt;" in found._repr_html_() and "9 &lt; 12 bytes" in found._repr_html_()
    assert list(found.frame.error) == ["", "BudgetExceeded: 9 < 12 bytes"]


def test_what_was_not_alike_is_said() -> None:
    found = Comparison("x", [row("one"), row("two", input_staged_bytes=3 * MIB, runs=3)])
    assert "so much was staged already and had to be read back: one 0 B, two 3 MiB" in repr(found)
    assert "the fastest of 3 runs" in found._repr_html_()
    assert len(repr(Comparison("x", [row("one"), row("two")])).splitlines()) == 4


def test_the_ways_are_strategies_or_configs_or_both() -> None:
    tight = GcylonConfig(gpu_memory_limit=MIB)
    assert [v.name for v in variants(None, None)] == ["direct", "chunked", "staged"]
    assert [(v.name, v.strategy, v.config) for v in variants({"tight": tight}, None)] == [("tight", "auto", tight)]
    both = variants({"tight": tight, "own": GcylonConfig()}, ["direct", "staged"])
    assert [v.name for v in both] == ["tight, direct", "tight, staged", "own, direct", "own, staged"]
    with pytest.raises(ArgumentError, match="Expected a GcylonConfig for configs"):
        variants({"tight": "1 MiB"}, None)  # type: ignore[dict-item]
