"""Cards of tables and clusters: what is known already, escaped, and no question to a rank."""

from __future__ import annotations

import pickle
from typing import Any

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import from_frame
from gcylon_lab.cluster.engine.first_rows import first_rows
from gcylon_lab.cluster.handles.html_repr import cluster_card, first_frame, staged_html, table_card
from gcylon_lab.cluster.rank_info import RankRecord
from gcylon_lab.runtime.context import current, run_threads


def info(rows: int, **tiers: int) -> dict[str, Any]:
    return {
        "columns": ["k", "<b>"], "dtypes": ["int64", "str"], "rows": rows, "nbytes": sum(tiers.values()),
        "tiers": tiers, "partitioning": {"keys": ["k"], "size": 2},
    }  # fmt: skip


def test_a_table_shows_rows_bytes_and_tiers_of_each_rank() -> None:
    html = table_card("#1", [info(1000, device=8_000_000), info(1, device=0, disk=2_000_000)])
    assert "1,001 rows" in html and "2 columns" in html and "equal k on one rank" in html
    assert "1,000 rows" in html and "1 row<" in html
    assert "&lt;b&gt;" in html and "<b>k" not in html
    assert "width:240.0px" in html and "width:60.0px" in html  # the larger part fills the bar
    assert "device" in html and "disk" in html and "pinned" not in html
    assert "rank 0 holds 1.6 × the mean" in html


def test_a_table_that_is_spread_evenly_has_no_skew() -> None:
    assert "mean" not in table_card("#1", [info(10, device=100), info(10, device=110)])
    assert "mean" not in table_card("#1", [info(0, device=0), info(0, device=0)])


def pickled(*values: int, **columns: Any) -> bytes:
    data = from_frame(pd.DataFrame({"k": values, "<b>": [f"<i>{n}" for n in values]} | columns))
    return pickle.dumps([(data.schema, data.rows, data.arrays)])


def test_a_table_shows_its_first_rows_and_folds_what_each_rank_has() -> None:
    infos = [info(2, device=100), info(0, device=0), info(1000, device=300)]
    html = table_card("#1", infos, first=[pickled(1, 2), None, pickled(*range(3, 13))])
    assert [f"&lt;i&gt;{n}</td>" in html for n in range(1, 8)] == [True] * 5 + [False] * 2, "five, in global order"
    assert "997 more rows" in html and "<i>" not in html
    assert html.index("<details") < html.index("rank 0</td>") < html.index("</details>")
    assert "width:59.0px" in html and "width:179.0px" in html, "a strip of ranks"
    few = table_card("#1", [info(3, device=1), info(7, device=1)], first=[pickled(1, 2, 3), pickled(*range(4, 11))])
    assert all(f"&lt;i&gt;{n}<" in few for n in range(1, 11)) and "more rows" not in few, "all of ten"
    for first in ([None, None, pickled(3)], [pickled(1, 2), None, None], []):
        assert "<details" not in table_card("#1", infos, first=first), "rows that are staged are not shown"
    assert first_frame([info(0, device=0)], [pickled()]) is None, "columns alone are shown as they are"


def rows_at_hand() -> list[Any]:
    wide = gl.from_local(pd.DataFrame({f"c{n}": range(2000) for n in range(12)} | {"more": "x" * 100}))
    long = gl.from_local(pd.DataFrame({"s": ["x" * 20_000]}))
    few, much = (gl.from_local(pd.DataFrame({"k": range(rows)})) for rows in (20, 600_000))
    for staged in (few, much):
        staged._part.stage(current().workspace, 10**7, 10**7)
    labels = gl.from_local(pd.DataFrame({"c": pd.Categorical([f"label {n}" for n in range(5000)])}))
    return [first_rows(table) for table in (wide, few, long, labels, much)]


def test_rows_that_are_long_or_staged_among_many_do_not_go_with_a_reply() -> None:
    ((wide, few, *others),) = run_threads(1, rows_at_hand)
    assert first_frame([info(20, device=1)], [few])["k"].tolist() == list(range(5))
    assert len(wide) < 4096, "rows go without what they are a part of"
    frame = first_frame([info(10, device=1)], [wide])
    assert frame.shape == (10, 12) and frame["c11"].tolist() == list(range(10))
    assert others == [None, None, None]


def test_what_is_staged_says_since_when_what_it_costs_and_what_helps() -> None:
    infos = [info(10, device=100), info(10, device=0, disk=2**21) | {"staged_by": "shuffle #12"}]
    said = "2 MiB on disk since shuffle #12, read back by each operation that uses it. "
    assert staged_html(infos, "u") == f"{said}<code>u.unstage()</code> brings it back into the budget, where it fits."
    assert f"{said}<code>.unstage()</code> brings" in table_card("#1", infos, "join of #3 and #5")
    both = [info(10, device=5, pinned=1024, disk=2048)]  # what `%px` left, of which nothing is known
    assert staged_html(both).startswith("1 KiB in pinned memory and 2 KiB on disk, read back")
    kept = [info(10, device=2**21) | {"kept": {"disk": 2**21}}, infos[0]]
    assert staged_html(kept) == "Of the rows in the budget 2 MiB on disk too: staging them again writes nothing."
    assert staged_html([*infos, *kept]).endswith("staging them again writes nothing.")
    assert staged_html(infos[:1]) == "" and "read back" not in table_card("#1", infos[:1])


def test_many_ranks_and_columns_are_cut() -> None:
    wide = info(5, device=40) | {"columns": list(range(40)), "dtypes": ["int8"] * 40}
    html = table_card("wide", [wide] * 64)
    assert "and 28 more" in html and "and 48 more ranks" in html and "rank 15" in html and "rank 16" not in html
    empty = table_card("empty", [info(0, device=0)])
    assert "0 rows" in empty


def test_many_ranks_of_several_hosts_are_shown_host_by_host() -> None:
    hosts = [f"node{n // 8}" for n in range(64)]
    infos = [info(10 + (n == 9), device=100, disk=50 * (n // 8 == 1)) for n in range(64)]
    html = table_card("#1", infos, hosts=hosts)
    assert html.count("80 rows") == 7 and "81 rows" in html and "rank 15" not in html and "more ranks" not in html
    assert "node1: ranks 8-15" in html and "width:160.0px" in html and "width:80.0px" in html
    ranks = [RankRecord(n, host, 4711 + n, f"GPU {n % 8}", n) for n, host in enumerate(hosts)]
    html = cluster_card("x", ranks, "Open MPI", 1)
    assert "64 ranks on 8 hosts" in html and ">node7<" in html and ">ranks 56-63<" in html and "more" not in html
    assert "rank 8" in table_card("#1", infos[:16], hosts=hosts[:16]), "of few ranks each has its line"
    assert "and 48 more ranks" in table_card("#1", infos, hosts=["node0"] * 64)


def test_a_cluster_shows_its_ranks() -> None:
    chosen = {"engines": "CPU engines, because <none>", "route": "MPI, because of that"}
    ranks = [RankRecord(i, "node", 4711 + i, "cpu", i, **chosen) for i in range(2)]
    html = cluster_card("<x>", ranks, "Open MPI", 1, "", "Install <it>.")
    assert "Install &lt;it&gt;." in html
    assert "CPU engines, because &lt;none&gt;" in html and "rows travel by MPI, because of that" in html
    assert "&lt;x&gt;" in html and "2 ranks on 1 host" in html and "4712" in html and "1 table" in html


@pytest.mark.mpi
def test_handles_and_clusters_have_cards_without_asking(lab: gl.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lab.from_pandas(pd.DataFrame({"k": range(10)}))
    with monkeypatch.context() as patch:
        patch.setattr(lab._session, "call", lambda *args, **kwargs: pytest.fail("a rank was asked"))
        assert "10 rows" in table._repr_html_() and "<details" in table._repr_html_()
        assert table._repr_html_().count("<td style") >= 10, "all ten, of both ranks"
        assert "2 ranks on 1 host" in lab._repr_html_()
    table.release()
    assert "released" in table._repr_html_()
