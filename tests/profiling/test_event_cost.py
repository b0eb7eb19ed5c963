"""What a span costs."""

from __future__ import annotations

import timeit

from gcylon_lab.profiling import cost, current_recorder, event_cost_ns, measure_event_cost


class EmptyBlock:
    """The least that a ``with`` block with the arguments of a span can do."""

    def __init__(self, name: str, category: str, *, bytes: int, tier: str) -> None:
        self.name, self.category, self.bytes, self.tier = name, category, bytes, tier

    def __enter__(self) -> EmptyBlock:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def empty_block() -> None:
    with EmptyBlock("compute", "algorithm", bytes=1, tier="device"):
        pass


def test_a_span_costs_at_most_a_few_empty_blocks() -> None:
    # Against work of the same kind, not against a time: machines differ, and are busy.
    empty_ns = min(timeit.repeat(empty_block, number=500, repeat=40)) / 500 * 1e9
    span_ns = min(cost._one_batch(500) for _ in range(12))
    with_recorder = min(measure_event_cost(batches=3) for _ in range(12))
    assert span_ns < 500 * 3 * empty_ns, "without a recorder"
    assert with_recorder < 4 * empty_ns
    assert 100 < with_recorder < 20_000


def test_measuring_leaves_no_trace() -> None:
    before = current_recorder()
    assert measure_event_cost(batches=1, spans=10) > 0
    assert current_recorder() is before


def test_the_cost_is_measured_once() -> None:
    assert event_cost_ns() == event_cost_ns()
    assert event_cost_ns.cache_info().misses == 1
