"""Bodies of the tests of verbs on two tables as sets, run on every rank of a world, and what is right."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd
from exchanges import held, more_held
from joins import rows, whole
from same_frames import assert_frames_equal

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.runtime.context import current

VERBS = ("union", "intersect", "difference")


def two(
    lefts: list[pd.DataFrame],
    rights: list[pd.DataFrame],
    staged: bool = False,
    before: tuple[Any, Any] = (None, None),
) -> tuple[gl.Table, gl.Table]:
    """This rank's tables, perhaps shuffled and staged before."""
    context, made = current(), []
    for frames, keys in zip((lefts, rights), before, strict=True):
        table = gl.from_local(frames[context.rank])
        table = table if keys is None else table.shuffle(keys)
        if staged:
            table._live().stage(context.workspace, 1 << 40, 4096)
        made.append(table)
    return made[0], made[1]


def set_verb(
    lefts: list[pd.DataFrame],
    rights: list[pd.DataFrame],
    verb: str,
    how: dict[str, Any],
    config: GcylonConfig | None = None,
    staged: bool = False,
    before: tuple[Any, Any] = (None, None),
) -> dict[str, Any]:
    """Call a verb on two tables; return what the tests check."""
    context = current()
    left, right = two(lefts, rights, staged, before)
    inputs = left.local(), right.local()
    used = held(context)
    result = getattr(left, verb)(right, **how, config=config)
    record = context.recorder.operations[-1]
    found = {
        "verb": record.verb,
        "peak": record.measured_peak_bytes,
        "predicted": record.predicted_peak_bytes,
        "limit": context.workspace.limit_for(config or context.config),
        "sent": record.sent_bytes,
    }
    if isinstance(result, gl.Table):
        found |= {
            "frame": result.local(),
            "tiers": result.tiers,
            "explained": result.explain(),
            "partitioning": result.partitioning,
        }
        result.release()
    else:
        found["value"] = result
    for table, frame in zip((left, right), inputs, strict=True):
        assert_frames_equal(table.local(), frame)
    # What gave way for room takes other bytes below.
    found["left"] = 0 if staged or config is not None else sum(more_held(context, used))
    return found


def counted(verb: str, every: bool, lefts: list[pd.DataFrame], rights: list[pd.DataFrame]) -> Counter[Any]:
    """How often each row stands in the result, as SQL says it."""
    here, there = rows(whole(lefts)), rows(whole(rights)[list(lefts[0].columns)])
    if not every:
        here, there = Counter(dict.fromkeys(here, 1)), Counter(dict.fromkeys(there, 1))
    if verb == "union":
        return here + there if every else here | there
    return here & there if verb == "intersect" else here - there


def check_sets(results: list[dict[str, Any]], expected: Counter[Any]) -> None:
    """All ranks' rows are those expected; peaks kept within the limit, nothing is left."""
    for result in results:
        assert result["peak"] <= result["limit"]
        assert result["left"] == 0
        assert list(result["frame"].dtypes) == list(results[0]["frame"].dtypes)
    assert rows(whole([result["frame"] for result in results])) == expected
