"""The bench of many ranks: what it counts is what MPI is given, and what it says of it."""

from __future__ import annotations

import pytest

from gcylon_lab.bench.scale import format_scale, run


def test_agreeing_in_two_levels_takes_fewer_messages_and_as_much_memory() -> None:
    report = run([4, 24], verbs=("shuffle",), rows=50)
    few, levels, direct = report["lines"]
    assert [line["direct"] for line in report["lines"]] == [True, False, True]
    agreements = direct["agreements"]
    assert few["agreements"] == levels["agreements"] == agreements
    assert direct["agreement_messages"] == 23 * agreements
    assert levels["agreement_messages"] == (2 + 7) * agreements, "to two other hosts, and to seven ranks of its own"
    assert levels["metadata_held_bytes"] == direct["metadata_held_bytes"] == 8 * 24 * (19 + 2 * 24)
    assert levels["row_messages"] == direct["row_messages"] and levels["row_bytes"] == direct["row_bytes"] > 0
    assert 0 < levels["seconds"] < direct["seconds"]
    text = format_scale(report)
    assert "in two levels" in text and "ranks are threads, in the model 8 a host" in text


@pytest.mark.mpi
def test_what_is_counted_is_what_mpi_is_given() -> None:
    report = run([4], mpi=True, rows=50, per_host=2)
    assert [line["verb"] for line in report["lines"]] == ["shuffle", "sort", "groupby"]
    for line in report["lines"]:
        parts = ("agreement_messages", "shared_messages", "row_messages")
        assert line["mpi_messages"] == sum(line[part] for part in parts) > 20
