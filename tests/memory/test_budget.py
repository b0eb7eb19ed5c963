"""The budget: never past its limit, and nothing lost or counted twice, whatever the order of calls."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gcylon_lab.errors import BudgetExceeded, from_message, to_message
from gcylon_lab.memory.budget import MemoryBudget, Reservation

CEILING = 1000
SIZES = st.integers(0, 600)


class BudgetMachine(RuleBasedStateMachine):
    """Every call in any order, beside a model that adds up what is held."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = MemoryBudget(CEILING)
        self.held: list[Reservation] = []
        self.sizes: list[int] = []
        self.limits: list[tuple[int, Any]] = []
        self.peak = self.window = self.count = 0

    @property
    def limit(self) -> int:
        return self.limits[-1][0] if self.limits else CEILING

    def claim(self, more: int, call: Callable[[], None]) -> bool:
        """Make a call that claims ``more``; whether it was granted, which the model knows beforehand."""
        fits = more == 0 or sum(self.sizes) + more <= self.limit
        if fits:
            call()
            self.count += 1
            return True
        try:
            call()
        except BudgetExceeded as error:  # not kept: its traceback would hold the reservation
            assert error.numbers["would_do"] == sum(self.sizes) + more
            assert error.numbers["limit_bytes"] == self.limit
            return False
        raise AssertionError(f"{more} bytes were granted past the limit")

    @rule(nbytes=SIZES)
    def reserve(self, nbytes: int) -> None:
        got: list[Reservation] = []
        if self.claim(nbytes, lambda: got.append(self.budget.reserve(nbytes, "A thing"))):
            self.held.append(got[0])
            self.sizes.append(nbytes)

    @precondition(lambda self: self.held)
    @rule(nbytes=SIZES, which=st.integers(0, 99))
    def resize(self, nbytes: int, which: int) -> None:
        i = which % len(self.held)
        if nbytes <= self.sizes[i]:
            self.held[i].resize(nbytes)
            self.sizes[i] = nbytes
        elif self.claim(nbytes - self.sizes[i], lambda: self.held[i].resize(nbytes)):
            self.sizes[i] = nbytes
        assert self.held[i].nbytes == self.sizes[i]

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99), how=st.sampled_from(["release", "twice", "with", "drop"]))
    def give_back(self, which: int, how: str) -> None:
        i = which % len(self.held)
        reservation = self.held.pop(i)
        self.sizes.pop(i)
        if how == "with":
            with reservation:
                pass
        elif how != "drop":
            reservation.release()
        if how == "twice":
            reservation.release()
            with pytest.raises(ValueError, match="released"):
                reservation.resize(1)

    @rule(limit=st.integers(1, CEILING))
    def lower(self, limit: int) -> None:
        context = self.budget.limited(limit)
        context.__enter__()
        self.limits.append((limit, context))

    @precondition(lambda self: self.limits)
    @rule()
    def lift(self) -> None:
        self.limits.pop()[1].__exit__(None, None, None)

    @rule()
    def reset(self) -> None:
        self.budget.reset_peak()
        self.budget.reset_allocation_count()
        self.peak = self.count = 0

    @rule()
    def start_window(self) -> None:
        self.budget.start_window()
        self.window = 0

    @invariant()
    def adds_up(self) -> None:
        used, budget = sum(self.sizes), self.budget
        self.peak, self.window = max(self.peak, used), max(self.window, used)
        assert budget.used_bytes == used <= budget.ceiling_bytes == CEILING
        assert budget.limit_bytes == self.limit
        assert budget.remaining_bytes == max(0, self.limit - used)
        assert budget.peak_bytes == self.peak <= CEILING
        assert budget.window_peak_bytes == self.window
        assert budget.allocation_count == self.count


TestBudgetMachine = BudgetMachine.TestCase
TestBudgetMachine.settings = settings(max_examples=60, stateful_step_count=40)


def test_error_has_the_numbers_the_knob_and_what_would_do() -> None:
    budget = MemoryBudget(1000)
    held = budget.reserve(700, "A table")
    with pytest.raises(BudgetExceeded) as caught:
        budget.reserve(500, "Partitioning a chunk")
    error = caught.value
    assert error.numbers == {
        "needed_bytes": 500, "used_bytes": 700, "limit_bytes": 1000, "knob": "gpu_memory_limit", "would_do": 1200
    }  # fmt: skip
    text = str(error)
    assert "Partitioning a chunk needs 500" in text
    assert "gpu_memory_limit is 1,000 B now; 1.17 KiB (1200) is enough" in text
    assert isinstance(error, MemoryError)
    assert from_message(to_message(error)).numbers == error.numbers
    assert budget.used_bytes == held.nbytes == 700


def test_a_limit_that_would_do_does() -> None:
    budget = MemoryBudget(1000)
    held = budget.reserve(700, "A table")
    with pytest.raises(BudgetExceeded) as caught:
        budget.reserve(500, "More")
    wider = MemoryBudget(caught.value.numbers["would_do"])
    assert wider.reserve(held.nbytes, "A table").nbytes + wider.reserve(500, "More").nbytes == wider.used_bytes


def test_released_when_collected_also_in_a_cycle() -> None:
    budget = MemoryBudget(100)
    cycle = [budget.reserve(60, "A thing")]
    cycle.append(cycle)
    assert budget.used_bytes == 60
    del cycle
    gc.collect()
    assert budget.used_bytes == 0


def test_released_when_the_block_fails() -> None:
    budget = MemoryBudget(100)
    with pytest.raises(RuntimeError, match="inside"), budget.reserve(60, "A thing"):
        raise RuntimeError("inside")
    assert budget.used_bytes == 0


def test_limit_comes_back_after_an_error_and_cannot_be_raised() -> None:
    budget = MemoryBudget(100)
    with pytest.raises(RuntimeError), budget.limited(10):
        with pytest.raises(BudgetExceeded):
            budget.reserve(11, "A thing")
        raise RuntimeError
    assert budget.limit_bytes == 100
    with pytest.raises(ValueError, match="above the ceiling"), budget.limited(101):
        pass
    assert budget.reserve(100, "A thing").nbytes == 100


def test_tables_of_before_may_exceed_a_lowered_limit() -> None:
    budget = MemoryBudget(100)
    held = budget.reserve(80, "A table")
    with budget.limited(50):
        assert budget.remaining_bytes == 0
        assert budget.reserve(0, "Nothing").nbytes == 0
        with pytest.raises(BudgetExceeded):
            budget.reserve(1, "A byte")
        held.resize(40)
        assert budget.remaining_bytes == 10


@pytest.mark.parametrize("limit", [0, -1])
def test_a_budget_of_nothing_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        MemoryBudget(limit)


def test_negative_sizes_are_refused() -> None:
    budget = MemoryBudget(100)
    with pytest.raises(ValueError, match="-1"):
        budget.reserve(-1, "A thing")
    held = budget.reserve(10, "A thing")
    with pytest.raises(ValueError, match="-5"):
        held.resize(-5)
    assert budget.used_bytes == held.nbytes == 10


def test_threads_never_pass_the_limit_together() -> None:
    budget = MemoryBudget(1000)
    refused = []

    def work(seed: int) -> None:
        for i in range(400):
            try:
                with budget.reserve((seed * 97 + i * 31) % 400, "A thing") as held:
                    held.resize(held.nbytes // 2)
            except BudgetExceeded:
                refused.append(i)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.used_bytes == 0
    assert 0 < budget.peak_bytes <= 1000


def test_what_an_interrupt_has_lost_is_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    budget, other = MemoryBudget(1000), MemoryBudget(1000)
    held, others = budget.reserve(100, "A thing"), other.reserve(7, "A thing of another rank")

    def interrupted(nbytes: int, what: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(budget, "_give", interrupted)
        with pytest.raises(KeyboardInterrupt):
            budget.reserve(40, "A thing").release()
    assert budget.used_bytes == 140 == budget.by_use()["A thing"]
    budget.recount()
    assert budget.used_bytes == held.nbytes == 100 == budget.by_use()["A thing"] and other.used_bytes == others.nbytes
    held.release()
    assert budget.used_bytes == 0 and budget.by_use() == {}


def test_at_the_end_of_the_process_nothing_is_given_back_any_more() -> None:
    code = """
import builtins, os
from gcylon_lab.memory.budget import MemoryBudget
budget = MemoryBudget(1 << 20)
builtins.claim = budget.reserve(1, "rows")  # which Python clears last
budget._give = lambda *_, write=os.write: write(1, b"given back")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout + done.stderr == ""
