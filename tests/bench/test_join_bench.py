"""``bench join`` runs, small, beside dask, and refuses results that differ."""

from __future__ import annotations

import json

import pytest

from gcylon_lab.bench.verbs.join import JoinCase, summed
from gcylon_lab.cli.main import main

pytestmark = pytest.mark.mpi


@pytest.mark.slow
def test_join_beside_dask(tmp_path, capsys):
    pytest.importorskip("dask", reason="dask is in the bench extra")
    file = tmp_path / "join.json"
    assert main(["bench", "join", "--rows", "20000", "--repeats", "2", "--warmup", "1", "--json", str(file)]) == 0
    text, report = capsys.readouterr().out, json.loads(file.read_text())
    assert "ours is" in text and "x dask" in text
    assert report["ratios"]["dask"] > 0
    for contender in report["contenders"]:
        assert contender["bytes_per_s"] == pytest.approx(JoinCase(rows=20000).rank_bytes / contender["median_s"])


def test_the_sum_tells_rows_apart_but_not_their_order():
    left, right = JoinCase(ranks=1, rows=100).columns(0, 0)
    joined = left | {"w": right["w"]}
    turned = {name: values[::-1].copy() for name, values in joined.items()}
    assert summed(joined) == summed(turned)
    turned["w"][[0, 1]] = turned["w"][[1, 0]]
    assert summed(joined) != summed(turned)
