"""Thinned spans: fewer, with the same time and bytes, whether they come at once or bit by bit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gcylon_lab.ui.figures.downsampling import Downsampler

SECOND = 1_000_000_000
ROUND = SECOND // 1000


def snapshot(spans: list[list[Any]], now_s: float) -> dict[str, Any]:
    return {"rank": 0, "spans": spans, "operations": [], "now_ns": int(now_s * SECOND)}


def rounds(count: int) -> list[list[Any]]:
    """Rounds of 1 ms: partition takes 0.2 of it, the exchange 0.5."""
    made = []
    for k in range(count):
        t = SECOND + k * ROUND
        made.append(["partition", "algorithm", t, t + ROUND // 5, 7, 10, "device"])
        made.append(["exchange", "transfer", t + ROUND // 5, t + 7 * ROUND // 10, 7, 100, "device"])
    return made


def sums(spans: list[list[Any]], place: Any) -> Counter[str]:
    counted: Counter[str] = Counter()
    for span in spans:
        counted[span[0]] += place(span)
    return counted


@pytest.mark.parametrize("window_s", [30.0, None])
def test_time_and_bytes_of_thousands_of_rounds_stay(window_s: float | None) -> None:
    spans = rounds(9000)
    thinned = Downsampler().thin([snapshot(spans, 10.0)], window_s)[0]["spans"]
    assert len(thinned) <= 2 * 501
    for place in (lambda s: s[3] - s[2], lambda s: s[5]):
        assert sums(thinned, place) == sums(spans, place)
    assert min(s[2] for s in thinned) == spans[0][2]
    assert {tuple(s[i] for i in (0, 1, 4, 6)) for s in thinned} == {tuple(s[i] for i in (0, 1, 4, 6)) for s in spans}


def test_bit_by_bit_gives_the_same_and_each_span_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gcylon_lab.ui.figures import downsampling

    looked: list[Any] = []
    add = downsampling._Rank._add
    monkeypatch.setattr(downsampling._Rank, "_add", lambda self, span: (looked.append(span), add(self, span)))
    spans, thinner = rounds(3000), Downsampler()
    for end in range(100, 6001, 100):
        thinned = thinner.thin([snapshot(spans[max(0, end - 2000) : end], 4.0)], 30.0)
    assert len(looked) == 6000
    assert thinned[0]["spans"] == Downsampler().thin([snapshot(spans, 4.0)], 30.0)[0]["spans"]


def test_what_is_long_stays_what_is_old_goes_and_another_clock_begins_anew() -> None:
    long = ["exchange", "transfer", SECOND, 3 * SECOND, 1, 5, "device"]
    thinner = Downsampler()
    assert thinner.thin([snapshot([long], 4.0)], 30.0)[0]["spans"] == [long]
    assert thinner.thin([snapshot([long], 34.0)], 30.0)[0]["spans"] == []
    moved = [*long[:2], long[2] + 50, long[3] + 50, *long[4:]]
    assert thinner.thin([snapshot([moved], 4.0)], 30.0)[0]["spans"] == [moved]


def test_what_a_window_has_left_behind_is_not_kept() -> None:
    from gcylon_lab.ui.figures import downsampling

    spans, thinner = rounds(60_000), Downsampler()
    for end in range(2000, 120_001, 2000):
        now_s = spans[end - 1][3] / SECOND
        thinned = thinner.thin([snapshot(spans[max(0, end - 4000) : end], now_s)], 2.0)
    (rank,) = thinner._ranks.values()
    assert len(rank._sums) == len(thinned[0]["spans"]) <= 2 * (downsampling._CELLS + 1)


def test_operations_that_ended_before_the_window_are_left_out() -> None:
    ends = [0, 1 * SECOND, 65 * SECOND, 90 * SECOND]  # the first still runs
    operations = [{"number": number, "end_ns": end} for number, end in enumerate(ends)]
    one = snapshot(rounds(1), 100.0) | {"operations": operations}
    kept = {w: [r["number"] for r in Downsampler().thin([one], w)[0]["operations"]] for w in (30.0, 120.0, None)}
    assert kept == {30.0: [0, 2, 3], 120.0: [0, 1, 2, 3], None: [0, 1, 2, 3]}
    assert one["operations"] == operations
