"""Every bench runs, small, and refuses a contender that fails or is wrong."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from gcylon_lab.bench import cluster
from gcylon_lab.bench.harness.cases import ShuffleCase
from gcylon_lab.bench.harness.interleaved_runs import refuse_wrong
from gcylon_lab.bench.harness.sort_cases import SortCase, check_sorted, look_at
from gcylon_lab.bench.harness.worker_processes import Contender
from gcylon_lab.cli.main import main
from gcylon_lab.errors import ClusterError

pytestmark = pytest.mark.mpi
_SMALL = ["--rows", "20000", "--repeats", "2", "--warmup", "1"]


@pytest.mark.slow
def test_shuffle_beside_both_peers(tmp_path, capsys):
    pytest.importorskip("dask", reason="dask is in the bench extra")
    file = tmp_path / "shuffle.json"
    assert main(["bench", "shuffle", *_SMALL, "--json", str(file)]) == 0
    text, report = capsys.readouterr().out, json.loads(file.read_text())
    assert "ours is" in text and "x the best of dask" in text and "ours auto (rows=20,000, ranks=2)" in text
    assert set(report["ratios"]) == {"bare", "dask"} and all(ratio > 0 for ratio in report["ratios"].values())
    variants = [f"{c['name']} {c['variant'].split()[0]}" for c in report["contenders"]]
    assert variants == ["ours auto", "bare 1", "bare 16", "bare 32", "bare 64", "dask tasks", "dask p2p"]
    for contender in report["contenders"]:
        assert len(contender["times_s"]) == 2
        assert contender["bytes_per_s"] == pytest.approx(ShuffleCase(rows=20000).rank_bytes / contender["median_s"])


@pytest.mark.slow
def test_sort_beside_dask_and_pandas(tmp_path, capsys):
    pytest.importorskip("dask", reason="dask is in the bench extra")
    file = tmp_path / "sort.json"
    assert main(["bench", "sort", *_SMALL, "--json", str(file)]) == 0
    text, report = capsys.readouterr().out, json.loads(file.read_text())
    assert text.splitlines()[-1].startswith("ours is") and "sort, 2 ranks" in text
    assert set(report["ratios"]) == {"dask", "pandas"} and all(ratio > 0 for ratio in report["ratios"].values())
    assert [c["name"] for c in report["contenders"]] == ["ours", "dask", "dask", "pandas", "pandas"]


def test_a_sort_that_is_wrong_is_found():
    columns = [SortCase(rows=50).columns(rank, 0) for rank in range(2)]
    seen = [look_at(part) for part in columns]
    whole = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    order = np.argsort(whole["k"])
    parts = [{name: values[half] for name, values in whole.items()} for half in (order[:60], order[60:])]
    right = [look_at(part) for part in parts]
    assert check_sorted(seen, right) == ""
    assert check_sorted(seen, right[::-1]) == check_sorted(seen, seen) == "the keys do not ascend"
    parts[0]["v0"][:2] = parts[0]["v0"][1::-1]
    assert "checksums" in check_sorted(seen, [look_at(part) for part in parts])
    assert "rows went in" in check_sorted(seen, right[:1])


def test_profiling(tmp_path, capsys):
    file = tmp_path / "profiling.json"
    assert main(["bench", "profiling", *_SMALL, "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert f"recording costs {100 * report['share']:.2f}%" in capsys.readouterr().out
    assert report["events"] > 0 and 0 < report["event_cost_ns"] < 1e6 and 0 < report["share"] < 1


def test_a_baseline_that_was_faster_is_an_exit_status(tmp_path, capsys):
    small, file = ["bench", "profiling", "--rows", "2000", "--repeats", "3", "--warmup", "0"], tmp_path / "x.json"
    assert main([*small, "--format", "markdown", "--json", str(file)]) == 0
    assert "| operation (rows=2,000, ranks=2) | 6 |" in capsys.readouterr().out
    report = json.loads(file.read_text())
    operation = report["series"]["operation"]
    operation["times_s"] = [time / 100 for time in operation["times_s"]]
    file.write_text(json.dumps(report))
    assert main([*small, "--format", "json", "--baseline", str(file)]) == 1
    changes = {c["label"]: c["outcome"] for c in json.loads(capsys.readouterr().out)["comparison"]["changes"]}
    assert changes["operation (rows=2,000, ranks=2)"] == "regressed"
    file.write_text("{}")
    assert main([*small, "--baseline", str(file)]) == 1
    told = capsys.readouterr()
    assert told.out == "" and "x.json holds no measurements" in told.err


def test_peak_stays_in_the_budget(tmp_path, capsys):
    file = tmp_path / "peak.json"
    assert main(["bench", "peak", "--ranks", "2", "--part", "24MiB", "--budget", "8MiB", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert "all rows are there" in capsys.readouterr().out
    assert report["peak_bytes"] <= 8 * 2**20
    assert report["grown_bytes"] <= (8 + 64) * 2**20
    assert all(rank["staged_bytes"] > 16 * 2**20 for rank in report["ranks"])


@pytest.mark.slow
def test_cluster_beside_ipyparallel(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cluster, "_MOVES", 1)  # of four in all, three to warm up
    file = tmp_path / "cluster.json"
    assert main(["bench", "cluster", "--starts", "1", "--trips", "3", "--megabytes", "64", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    moves = {"push_own", "scatter", "pull_own", "collect"}
    assert set(report["series"]) == {"start_own", "start_ours", "trip_own", "trip_run", "trip_verb"} | moves
    assert max(report["grown_bytes"].values()) < 48e6
    assert "round trip, lab.run" in capsys.readouterr().out


def test_a_contender_that_dies_is_an_error_with_its_output():
    code = "import sys; print('no such luck'); sys.exit(3)"
    with pytest.raises(ClusterError, match="only 0 of 1 processes of the contender 'x' came up.*\n?.*no such luck"):
        Contender("x", [sys.executable, "-c", code], 1)


def test_a_contender_that_dies_in_a_step():
    code = "from gcylon_lab.bench.harness.worker_processes import serve\nserve(lambda n: 1 // n)"
    with Contender("x", [sys.executable, "-c", code], 1) as contender:
        assert contender.step(n=1) == [1]
        with pytest.raises(ClusterError, match="ended(.|\n)*ZeroDivisionError"):
            contender.step(n=0)


def test_one_that_never_comes_is_ended():
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(ClusterError, match="only 0 of 1"):
        Contender("x", command, 1, start_s=1.0)


def test_a_wrong_result_is_refused():
    refuse_wrong("ours", "auto", [{"wrong": ""}, {"wrong": ""}])
    with pytest.raises(ClusterError, match=r"bare \(16\) gave a wrong result: 3 keys"):
        refuse_wrong("bare", 16, [{"wrong": ""}, {"wrong": "3 keys ended on more than one rank"}])
