"""The examples of docstrings about memory give what they say."""

from __future__ import annotations

import doctest
import sys
from typing import Any

import pytest
from worlds import World

from gcylon_lab.api.estimate import estimate
from gcylon_lab.api.table import Table
from gcylon_lab.runtime.context import Context
from gcylon_lab.runtime.device_status import device_status
from gcylon_lab.runtime.user_budget import UserBudget

EXAMPLES: list[Any] = [
    device_status,
    Context.memory_info,
    Context.pools,
    Context.trim,
    UserBudget,
    estimate,
    Table.max_rows,
]


def failures(place: int) -> tuple[int, int]:
    thing = EXAMPLES[place]
    runner = doctest.DocTestRunner(verbose=False)
    found = doctest.DocTestFinder(recurse=True).find(thing, thing.__qualname__, globs={})
    results = [runner.run(one, out=sys.stderr.write) for one in found]
    return sum(one.failed for one in results), sum(one.attempted for one in results)


@pytest.mark.parametrize("place", range(len(EXAMPLES)), ids=lambda place: EXAMPLES[place].__qualname__)
def test_examples(place: int) -> None:
    [(failed, attempted)] = World("single", 1).run(failures, place)
    assert attempted > 0 == failed
