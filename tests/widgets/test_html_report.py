"""The HTML report: one file, nothing loaded from elsewhere, numbers as text."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import pytest
from replay import Replay, ReplaySource

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.ui import html_report
from gcylon_lab.ui.report import headline
from gcylon_lab.units import MIB


class Loads(HTMLParser):
    """Everything that an HTML page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.scripts = 0
        self._skip = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self._skip = tag in ("script", "style")
        loading = ("src", "href", "data", "srcset", "action")
        self.found += [(tag, value or "") for name, value in attrs if name in loading]

    def handle_endtag(self, tag: str) -> None:
        self._skip = False

    def handle_data(self, data: str) -> None:
        if not self._skip:
            self.text.append(data)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return html_report(
        tmp_path / "r.html", Replay(4).at(16.0), title="run <1>", notes=["on a laptop"],
        tables={"Mine": (["what", "how much"], [["a", "b"]])},
    )  # fmt: skip


def test_it_loads_nothing_and_carries_plotly_once(report: Path) -> None:
    html = report.read_text()
    loads = Loads()
    loads.feed(html)
    assert loads.found == []
    assert loads.scripts == 3
    packed = re.search(r'<script id="plotly" type="text/plain">(.*?)</script>', html)
    assert packed is not None and b"plotly.js (cartesian" in gzip.decompress(b64decode(packed[1]))[:200]
    assert len(html) < 1_500_000, "small enough to be sent"
    css = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert css is not None and "url(" not in css[1] and "@import" not in css[1]


def test_its_numbers_stand_as_text(report: Path) -> None:
    loads = Loads()
    loads.feed(report.read_text())
    text = " ".join(loads.text)
    record = Replay(4).at(16.0)[0]["operations"][-1]
    for part in ("run <1>", "on a laptop", "4 ranks on h1", "budget 64 MiB", "Mine", "#5 repartition", "128 MiB"):
        assert part in text
    assert f"{record['predicted_peak_bytes'] / MIB:.3g} MiB" in text
    assert "Each rank (20 lines)" in text
    hot = sum(s["operations"][2]["sent_to"][1] for s in Replay(4).at(16.0))
    assert "Traffic: who sent what to whom" in text and f"rank 1, {hot / MIB:.3g} MiB {hot / MIB / 24:.2f} ×" in text
    assert "#5 repartition: from to 0 to 1 to 2 to 3" in " ".join(text.split())
    assert "What each rank staged (4 lines)" in text and "1.90 GB/s" in text


def test_its_figures_are_the_dashboards_in_light_and_dark(report: Path) -> None:
    found = re.search(r'<script id="figures" type="application/json">(.*?)</script>', report.read_text(), re.DOTALL)
    assert found is not None
    figures = json.loads(found[1])
    assert set(figures) == {"light", "dark", "light narrow", "dark narrow"}
    assert figures["light narrow"]["layout"]["height"] > 1.5 * figures["light"]["layout"]["height"]
    assert [t["meta"] for t in figures["light"]["data"]][:4] == ["rank0", "rank1", "rank2", "rank3"]
    assert figures["light"]["layout"]["font"] != figures["dark"]["layout"]["font"]


def test_no_tool_bar_covers_a_title(report: Path) -> None:
    assert "displayModeBar: false" in report.read_text()


def test_one_rank_is_no_ranks(tmp_path: Path) -> None:
    assert "1 rank on h1" in html_report(tmp_path / "r.html", Replay(1).at(16.0)).read_text()


def test_a_name_cannot_end_the_script_early(tmp_path: Path) -> None:
    snapshots = Replay(1).at(16.0)
    for record in snapshots[0]["operations"]:
        record["verb"] = "</script><script>alert(1)</script>"
    html = html_report(tmp_path / "r.html", snapshots).read_text()
    assert "<script>alert" not in html


def test_of_a_cluster_and_of_nothing(tmp_path: Path) -> None:
    source = ReplaySource()
    source.at_s = 6.0
    assert "#1 shuffle" in html_report(tmp_path / "a.html", source).read_text()
    assert "None was recorded." in html_report(tmp_path / "b.html", []).read_text()
    assert html_report(str(tmp_path / "b.html"), []).is_absolute()


def test_it_begins_with_the_highest_peak_what_was_exceeded_and_how_long_it_took() -> None:
    snapshots = Replay(4).at(16.0)
    text = headline(snapshots)
    assert re.fullmatch(
        r"5 operations in .* · highest peak .* of 64 MiB \(\d+%\), in #\d \w+ · no budget was exceeded", text
    )
    snapshots[2]["operations"][2] |= {"measured_peak_bytes": 65 * MIB, "error": "RankLost: gone"}
    text = headline(snapshots)
    assert "highest peak 65 MiB of 64 MiB (102%), in #3 allgather · over budget: #3 allgather · failed: #3" in text
    assert headline([]) == "Nothing has run."


def test_it_says_settings_tables_calls_and_versions(tmp_path: Path) -> None:
    source = ReplaySource()
    source.at_s = 16.0
    source.config = GcylonConfig(chunk_size_bytes="4MiB")
    text = " ".join(said(html_report(tmp_path / "r.html", source)).split())
    assert "chunk_size_bytes 4 MiB changed" in text and "spill_dir automatic" in text
    assert "Tables now" in text and next(iter(source.tables())) in text
    assert "Calls operation call why so #1 " in text
    assert f"gcylon_lab {gl.__version__}" in text and "pandas 3" in text


def said(path: Path) -> str:
    loads = Loads()
    loads.feed(path.read_text())
    return " ".join(loads.text)


def test_on_gpus_it_says_what_the_driver_tells_once_a_gpu(tmp_path: Path) -> None:
    text = said(html_report(tmp_path / "r.html", Replay(4, gpus=2).at(16.0)))
    assert text.count("NVIDIA H100 80GB HBM3 0f2a91c0") == 1 and "outside the budgets" in text
    assert "Transfers hidden: of the time in which transfers were under way" in text and "66%" in text
    assert "pinned: now" in text


def test_on_cpus_it_has_plain_dashes_and_no_section_for_gpus(report: Path) -> None:
    text = said(report)
    assert "GPUs" not in text and "Transfers hidden" not in text and "pinned" not in text
    assert "transfers hidden" not in text and "–" in text and "disk: now" in text
