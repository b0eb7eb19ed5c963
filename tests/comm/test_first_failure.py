"""All ranks learn of the first failure, and only then go another way."""

from __future__ import annotations

import pytest
from worlds import World

from gcylon_lab.comm.transport import first_failure
from gcylon_lab.runtime.context import current


def told(failing: list[int], words: str) -> str:
    context = current()
    mine = "" if context.rank not in failing else words.format(context.rank)
    return first_failure(context.transport, mine)


@pytest.mark.parametrize(
    ("failing", "words", "heard"),
    [
        ([], "no driver", ""),
        ([1], "no driver", "on rank 1 no driver"),
        ([1, 2], "no driver on {}", "on rank 1 no driver on 1"),
        ([0, 1, 2], "no driver", "no driver"),
    ],
)
def test_all_hear_the_same(failing: list[int], words: str, heard: str) -> None:
    assert World("threads", 3).run(told, failing, words) == [heard] * 3
