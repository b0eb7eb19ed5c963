"""Which side of a join moves: a small one to all ranks, one that is spread by its keys nowhere."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from joins import HOWS, TWO, answer, check, frames, join, rows, whole
from worlds import World

from gcylon_lab.errors import ArgumentError
from gcylon_lab.operators.join import distribution


# ---- where rows meet
def test_a_small_side_goes_to_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "_EXCHANGE_BYTES", 0)  # both are so small that one exchange would be better
    lefts, rights = frames("even", 3, rows=400)
    rights = [frame[:5] for frame in rights]
    for how in ("inner", "left", "semi", "anti"):
        results = World("threads", 3).run(join, lefts, rights, {"how": how, "on": "k"})
        assert "broadcast join: the right side is small" in results[0]["explain"]
        check(results, answer(lefts, rights, how=how, on="k"))
    for how in ("right", "outer"):
        results = World("threads", 3).run(join, lefts, rights, {"how": how, "on": "k"})
        assert "shuffle join" in results[0]["explain"]
        check(results, answer(lefts, rights, how=how, on="k"))
    results = World("threads", 3).run(join, rights, lefts, {"how": "right", "on": "k"})
    assert "broadcast join: the left side is small" in results[0]["explain"]
    check(results, answer(rights, lefts, how="right", on="k"))


def test_validating_the_large_side_of_a_broadcast_shuffles() -> None:
    lefts, rights = frames("even", 2, rows=400)
    rights = [frame[:5].assign(k=[rank * 5 + i for i in range(5)]) for rank, frame in enumerate(rights)]
    for outcome in TWO.outcomes(join, lefts, rights, {"how": "left", "on": "k", "validate": "1:m"}):
        assert isinstance(outcome.error, ArgumentError)
    results = TWO.run(join, lefts, rights, {"how": "left", "on": "k", "validate": "m:1"})
    assert "broadcast" in results[0]["explain"]
    check(results, answer(lefts, rights, how="left", on="k"))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("before", "moved"),
    [
        ((["k"], ["k"]), "none is shuffled again"),
        ((["k"], None), "only the right side is shuffled"),
        ((None, ["s"]), "only the left side is shuffled"),
        ((["s", "k"], ["s", "k"]), "none is shuffled again"),
        ((["s", "k"], ["k", "s"]), "only the"),
        ((["f"], ["f"]), ""),
    ],
    ids=str,
)
def test_a_side_that_is_spread_by_the_keys_is_not_shuffled_again(how: str, before: Any, moved: str) -> None:
    lefts, rights = frames("even", 3)
    sides = lefts, [pd.concat([frame] * 3, ignore_index=True) for frame in rights]
    results = World("threads", 3).run(join, *sides, {"how": how, "on": ["k", "s"]}, "auto", None, False, before)
    if how not in ("semi", "anti") or None not in before:  # of their right side only the keys would move
        assert moved in results[0]["explain"]
    if moved.startswith("none"):
        assert all(result["sent"] == 0 for result in results)
    check(results, answer(*sides, how=how, on=["k", "s"]))


def chained(lefts: list[pd.DataFrame], rights: list[pd.DataFrame], how: str) -> tuple[Any, str, pd.DataFrame]:
    import gcylon_lab as gl
    from gcylon_lab.runtime.context import current

    rank = current().rank
    left, right = gl.from_local(lefts[rank]), gl.from_local(rights[rank])
    once = left.join(right, how, left_on="k", right_on="q")
    again = once.join(right, "inner", left_on="q" if how == "right" else "k", right_on="q", suffixes=("", "_again"))
    return once.partitioning, again.explain(), again.local()


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_the_result_remembers_how_it_is_spread(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "_EXCHANGE_BYTES", 0)  # so small sides would not be shuffled
    lefts, rights = frames("even", 3)
    lefts, rights = [f[["k", "w"]] for f in lefts], [f[["k", "u"]].rename(columns={"k": "q"}) for f in rights]
    results = World("threads", 3).run(chained, lefts, rights, how)
    once = whole(lefts).merge(whole(rights), how, left_on="k", right_on="q")
    again = once.merge(whole(rights), left_on="q" if how == "right" else "k", right_on="q", suffixes=("", "_again"))
    assert rows(whole([frame for *_, frame in results])) == rows(again)
    if how == "outer":  # rows without a left key are spread by the right one
        assert results[0][0] is None
    else:
        assert "none is shuffled again" not in results[0][1]
        assert "is partitioned by" in results[0][1]
