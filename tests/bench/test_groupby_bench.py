"""``bench groupby`` runs, small, beside dask and pandas, and refuses results that differ."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gcylon_lab.bench.verbs.groupby import GroupbyCase, compare, summed
from gcylon_lab.cli.main import main
from gcylon_lab.errors import ClusterError


@pytest.mark.mpi
@pytest.mark.slow
def test_groupby_beside_dask_and_pandas(tmp_path, capsys):
    pytest.importorskip("dask", reason="dask is in the bench extra")
    file = tmp_path / "groupby.json"
    sizes = ["--rows", "20000", "--keys", "300", "--repeats", "2", "--warmup", "0"]
    assert main(["bench", "groupby", *sizes, "--json", str(file)]) == 0
    text, report = capsys.readouterr().out, json.loads(file.read_text())
    assert "with 300 values" in text and "x the best of pandas" in text
    assert set(report["ratios"]) == {"dask", "pandas"} and all(ratio > 0 for ratio in report["ratios"].values())
    assert [c["name"] for c in report["contenders"]] == ["ours", "dask", "dask", "pandas"]


def test_groups_that_differ_are_found():
    groups = GroupbyCase(rows=100, keys=1 << 40).columns(0, 0)
    halves = [{name: values[half] for name, values in groups.items()} for half in (np.s_[60:], np.s_[:60])]
    whole = ("ours", "auto", [{"summed": summed(groups)}])
    compare([whole, ("dask", "split", [{"summed": summed(half)} for half in halves])])
    with pytest.raises(ClusterError, match="the groups differ: ours"):
        compare([whole, ("dask", "one", [{"summed": summed(halves[0])}])])
    groups["v0"][:2] = groups["v0"][1::-1]
    with pytest.raises(ClusterError, match="the groups differ"):
        compare([whole, ("pandas", "sum", [{"summed": summed(groups)}])])
