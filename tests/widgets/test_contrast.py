"""Text can be read on light and on dark pages: a contrast of 4.5 to 1, as WCAG 2 asks for (AA)."""

from __future__ import annotations

import re

import pytest
from replay import Replay

from gcylon_lab.ui.controls.status_bar import chips_html, rank_states
from gcylon_lab.ui.figures.figures import figure_dict, panel_dict
from gcylon_lab.ui.figures.theme import DARK, LIGHT, Theme
from gcylon_lab.ui.figures.view import make_view
from gcylon_lab.ui.live.scripts import CONTROLS_CSS, CSS

LEAST = 4.5
# JupyterLab's: of cells' outputs, and of panels beside the notebook.
PAGES = {"light": ("#ffffff", "#eeeeee"), "dark": ("#111111", "#212121")}


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_what_wcag_says() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_all_notes_of_all_panels_can_be_read(theme: Theme) -> None:
    full, tight = (Replay(4, gpus=2, budget=budget).at(16.0) for budget in (64 * 2**20, 2**20))
    for s in full:
        s["operations"][-1]["budget_bytes"] = 8 * 2**30
    figures = [figure_dict(make_view(each), theme) for each in (full, tight, [])]
    figures.append(panel_dict("peaks", make_view(full, operation=2), theme))
    notes = {a["font"]["color"]: a["text"] for f in figures for a in f["layout"]["annotations"] if "font" in a}
    assert theme.budget in notes and theme.text in notes and theme.faint in notes
    found = {(colour, page): contrast(colour, page) for colour in notes for page in PAGES[theme.name]}
    assert {pair: ratio for pair, ratio in found.items() if ratio < LEAST} == {}


def test_errors_are_a_lighter_red_on_dark_pages() -> None:
    rules = re.findall(r"([^{}]*)\.gcylon-error \{ color: ([^;]*);", CSS)
    dark = [colour for where, colour in rules if "false" in where or "dark" in where or ":not(" in where]
    assert len(rules) == 3 and len(dark) == 2
    assert min(contrast(colour, page) for colour in dark for page in PAGES["dark"]) > LEAST


def test_arrows_of_dropdowns_are_light_on_dark_pages() -> None:
    rules = re.findall(r"([^{}]*)\{ --jp-widgets-dropdown-arrow: url\([^)]*fill='%23(\w{6})'", CONTROLS_CSS)
    assert len(rules) == 2 and all("false" in where or "not([data-jp-theme-light])" in where for where, _ in rules)
    assert min(contrast(f"#{fill}", page) for _, fill in rules for page in PAGES["dark"]) > LEAST


def test_tiles_of_ranks_in_trouble_can_be_read() -> None:
    snapshots = Replay(20).at(10.5)
    for s in snapshots[:3]:
        s["progress"] |= {"phase": "waiting", "since_ns": s["now_ns"] - 10**10}
    html = chips_html(rank_states([], snapshots, [{"rank": 19, "exit": 1}]))
    pairs = set(re.findall(r"background:(#\w{6});color:(#\w{3});", html))
    assert len(pairs) == 2
    assert min(contrast(back, "#" + "".join(2 * c for c in ink[1:])) for back, ink in pairs) > LEAST
