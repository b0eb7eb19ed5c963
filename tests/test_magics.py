"""Magics without a cluster: what they read, what they refuse and how, what they complete, what a profile holds."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ConfigError
from gcylon_lab.ui.magics.plans import planned
from gcylon_lab.ui.magics.profiles import profile, since
from gcylon_lab.ui.magics.settings import changed, describe, split_words, taken_back


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """A shell with the magics."""
    shell = InteractiveShell.instance(colors="nocolor")
    shell.run_line_magic("load_ext", "gcylon_lab")
    yield shell
    shell.run_line_magic("unload_ext", "gcylon_lab")
    InteractiveShell.clear_instance()


def set_by(line: str) -> GcylonConfig:
    return changed(GcylonConfig(), split_words(line))


def test_settings_are_read_as_people_write_them() -> None:
    config = set_by("gpu_memory_limit = 64MiB min_chunk_rows=2048 allow_disk_spill=no spill_dir='/tmp/a b'")
    assert config == GcylonConfig(
        gpu_memory_limit=64 * 2**20, min_chunk_rows=2048, allow_disk_spill=False, spill_dir="/tmp/a b"
    )
    assert (
        set_by("low_memory gpu_memory_fraction=0.25").as_dict()
        == GcylonConfig.low_memory().with_values(gpu_memory_fraction=0.25).as_dict()
    )
    assert changed(config, ["gpu_memory_limit=default"]).gpu_memory_limit == 0
    assert changed(config, ["default"]) == GcylonConfig()


def test_a_preset_that_lifts_a_limit_says_so_and_how_to_keep_it() -> None:
    before = set_by("gpu_memory_limit=64MiB allow_disk_spill=no chunk_size_bytes=1MiB")
    said = taken_back(before, ["low_memory"])
    assert "what was set before is gone: gpu_memory_limit=64MiB allow_disk_spill=false." in said
    kept = changed(before, split_words(said.partition("%lab config ")[2]))
    assert kept == GcylonConfig.low_memory().with_values(gpu_memory_limit=64 * 2**20, allow_disk_spill=False)
    asked = ["low_memory", "gpu_memory_limit=default", "allow_disk_spill=default"]
    for words in (asked, ["low_memory", "gpu_memory_limit=8MiB", "allow_disk_spill=no"], asked[1:]):
        assert taken_back(before, words) == "", "what was asked for by its name is no news"
    assert taken_back(GcylonConfig(), ["low_memory"]) == ""


@pytest.mark.parametrize(
    "line, said",
    [
        ("gpu_memory_fraction=2.5", r"gpu_memory_fraction=2.5 is out of range \(0, 1\]"),
        ("gpu_memory_fraction=much", r"gpu_memory_fraction='much' is out of range"),
        ("min_chunk_rows=x", r"is out of range \[1, 2147483647\] \(rows\)"),
        ("chunk_size_bytes=10", r"is out of range \[1024, "),
        ("gpu_memory_limit=abc", "write for example 64MiB"),
        ("gpu_memory_limt=3", "Did you mean gpu_memory_limit"),
        ("allow_disk_spill=maybe", "true or false"),
        ("low_memry", "Did you mean low_memory"),
        ("spill_dir='a", "quotes"),
    ],
)
def test_what_cannot_be_set_is_said_with_its_range(line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        set_by(line)


def test_settings_show_what_was_changed() -> None:
    shown = describe(set_by("chunk_size_bytes=4MiB"))
    line = next(line for line in repr(shown).splitlines() if line.startswith("chunk_size_bytes"))
    assert "4 MiB" in line and "changed" in line
    assert "gl.GcylonConfig(chunk_size_bytes='4MiB')" in repr(shown)
    assert "<td>4 MiB</td>" in shown._repr_html_()


@pytest.mark.parametrize(
    "line, said",
    [
        ("%lab status", "There is no cluster"),
        ("%lab config", "There is no cluster"),
        ("%lab down", "There is no cluster"),
        ("%lab restat", "Did you mean restart"),
        ("%lab up 2 3", "one number of ranks"),
        ("%lab up 2 --nme other", "unrecognized arguments"),
        ("%lab up --name 3x", "variable's name"),
        ("%lab up --name taken", "taken is a int already"),
        ("%lab up 2 gpu_memory_limit=oops", "ConfigError: gpu_memory_limit"),
        ("%lab_plan", "Expected a call of a verb after %lab_plan"),
        ("%lab_plan t.shuffle(", "cannot read"),
        ("%lab_plan taken.shuffle('k')", "not of a int"),
        ("%lab_plan unknown.shuffle('k')", "name 'unknown' is not defined"),
        ("%lab_plan 1 + 2", "Expected a call of a verb, got '1 + 2'"),
        ("%%lab_profile\n  ", "has none"),
        ("%%lab_profile --nix x\n1", "unrecognized arguments"),
    ],
)
def test_what_is_refused_is_one_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    shell.user_ns["taken"] = 3
    assert not shell.run_cell(line).success
    out, err = capsys.readouterr()
    assert said in out + err and "Traceback" not in out + err
    assert len((out + err).strip().splitlines()) == 1


def test_a_name_that_is_missing_is_no_work_for_ranks() -> None:
    with pytest.raises(UsageError, match="name 't' is not defined"):
        planned("t.shuffle('k')", {})


def test_help_and_completion(shell: InteractiveShell) -> None:
    def completed(line: str) -> list[str]:
        with provisionalcompleter():
            return [found.text for found in shell.Completer.completions(line, len(line))]

    assert completed("%lab ") == ["up", "status", "config", "profile", "restart", "down"]
    assert completed("%lab st") == ["status"]
    assert completed("%lab config gpu") == ["gpu_memory_limit=", "gpu_memory_fraction="]
    assert completed("%lab config allow_disk_spill=") == ["true", "false", "default"]
    assert completed("%lab profile o") == ["on", "off"] and "--name" in completed("%lab up 2 --")
    assert "%%lab_profile" in completed("%%lab_p")
    for magic in ("%lab", "%lab_plan", "%%lab_profile"):
        assert "::" in shell.object_inspect(magic)["docstring"]


def test_unloaded_magics_are_gone(shell: InteractiveShell) -> None:
    shell.run_line_magic("unload_ext", "gcylon_lab")
    assert shell.find_line_magic("lab") is None
    assert shell.find_cell_magic("lab_profile") is None
    assert not shell.Completer.custom_matchers
    shell.run_line_magic("load_ext", "gcylon_lab")
    assert shell.find_line_magic("lab_plan") is not None


def test_a_profile_without_a_cluster_says_so(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_cell("%%lab_profile\nseven = 7\nseven").success
    assert shell.user_ns["seven"] == 7
    assert "no operation ran on the ranks.\nThere is no cluster." in capsys.readouterr().out


def test_a_cell_that_fails_under_a_profile_fails(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    result = shell.run_cell("%%lab_profile\n1 / 0")
    assert type(result.error_in_exec).__name__ == "CellFailed"
    shown = capsys.readouterr().out
    assert shown.count("Traceback") == 1 and "%%lab_profile: the cell ended in ZeroDivisionError" in shown


def record(number: int, start_ns: int) -> dict[str, Any]:
    sizes = dict.fromkeys(
        ("rows_in", "rows_out", "bytes_out", "sent_bytes", "received_bytes", "unstaged_bytes", "budget_bytes"), 10
    )
    return {
        "number": number, "verb": "shuffle", "strategy": "staged", "start_ns": start_ns, "end_ns": start_ns + 10**9,
        "rounds": 4, "rounds_done": 4, "bytes_in": 2 * 10**9, "staged_bytes": 3 * 2**20, "error": "",
        "predicted_peak_bytes": 5 * 2**20, "measured_peak_bytes": 4 * 2**20, "phases": {"waiting": 25 * 10**7},
        "phase_bytes": {}, **sizes,
    }  # fmt: skip


def snapshot(rank: int) -> dict[str, Any]:
    return {
        "rank": rank, "host": "here", "pid": rank, "now_ns": 900, "dropped_events": 0, "limit_bytes": 64, "gpu": None,
        "samples": {"t_ns": [100, 400, 600], "used_bytes": [1, 2, 3]},
        "operations": [record(1, 200), record(2, 500)],
        "spans": [["a", "io", 100, 300, 1, 0, ""], ["b", "io", 550, 700, 2, 0, ""]], "span_threads": [0, 1],
        "threads": ["main", "other"], "marks": [["m", "io", 450, 1, 0, ""], ["n", "io", 650, 2, 0, ""]],
    }  # fmt: skip


def test_a_profile_holds_what_came_after_its_begin() -> None:
    whole = [snapshot(0), snapshot(1)]
    before = copy.deepcopy(whole)
    cut = since(whole, {0: 450})
    assert [row["number"] for row in cut[0]["operations"]] == [2]
    assert [span[0] for span in cut[0]["spans"]] == ["b"] and cut[0]["span_threads"] == [1]
    assert [mark[0] for mark in cut[0]["marks"]] == ["m", "n"]
    assert cut[0]["samples"] == {"t_ns": [400, 600], "used_bytes": [2, 3]}, "and the sample before it"
    assert [row["number"] for row in cut[1]["operations"]] == [1, 2], "a rank that was not there is kept whole"
    assert whole == before, "the feed's own are not changed"


def test_a_profile_shows_operations_and_how_evenly_ranks_worked() -> None:
    slow = snapshot(1)
    slow["operations"][1]["phases"] = {"waiting": 75 * 10**7}
    shown = profile(since([snapshot(0), slow], {0: 450, 1: 450}), 2.5, ["Report: x.html"])
    text = repr(shown)
    assert text.startswith("The cell took 2.50 s; 1 operation took 1 s of it.")
    for part in ("2 shuffle", "staged", "2 GB/s", "4 MiB", "5 MiB", "6 MiB", "rank 0", "1.50", "Report: x.html"):
        assert part in text, part
    html = shown._repr_html_()
    assert "busy 750 ms" in html and "busy 250 ms" in html and "width:180.0px" in html
