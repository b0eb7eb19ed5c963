"""A failed operation holds no memory, even while its traceback is kept, as IPython keeps the last one."""

from __future__ import annotations

import sys

import pytest
from exchanges import make_frame
from worlds import World

import gcylon_lab as gl
from gcylon_lab.context import current
from gcylon_lab.errors import RankError


def fail_in_a_round(strategy: str) -> tuple[int, int, int, int]:
    context = current()
    table = gl.from_local(make_frame("even", context.rank, context.size))
    before = (context.budget.used_bytes, context.spill.used_bytes)
    backend = context.workspace.backend
    calls = iter(range(100))
    pack = backend.pack_variable

    def breaking(*args):  # type: ignore[no-untyped-def]
        if next(calls) > 3 and context.rank == 1:
            raise RuntimeError("a fault of this test")
        return pack(*args)

    backend.pack_variable = breaking  # type: ignore[method-assign]
    config = gl.GcylonConfig(chunk_size_bytes=4096, min_chunk_rows=1)
    with pytest.raises(RankError, match=r"\[rank 1\] RuntimeError: a fault of this test") as caught:
        table.shuffle("k", strategy=strategy, config=config)
    sys.last_value = caught.value
    after = (context.budget.used_bytes, context.spill.used_bytes)
    backend.pack_variable = pack  # type: ignore[method-assign]
    assert caught.value.__traceback__ is not None
    return (*before, *after)


@pytest.mark.parametrize("strategy", ["direct", "staged"])
def test_memory_goes_although_the_error_is_kept(strategy: str) -> None:
    for used, spilled, used_after, spilled_after in World("threads", 3).run(fail_in_a_round, strategy):
        assert (used_after, spilled_after) == (used, spilled)
