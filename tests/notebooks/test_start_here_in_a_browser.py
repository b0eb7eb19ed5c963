"""The first tutorial under JupyterLab in Chromium: cells run, a slider changes the next plan, the figure is live."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lab_page import LabPage
from test_notebooks import FIRST, FOLDER, check_outputs, code_cells

pytestmark = [pytest.mark.browser, pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(400)]

_CODE_CELLS = code_cells(FOLDER / f"{FIRST}.ipynb")
_NEXT = """
tuned = items.shuffle("l_orderkey")
print("TUNED", lab.config.gpu_memory_limit, tuned.last_plan.budget_bytes, tuned.last_plan.strategy)
tuned.release()
"""


def test_a_person_goes_through_it(jupyter: tuple[str, str], page: Any, tmp_path: Path):
    lab = LabPage(page, Path(os.environ.get("GCYLON_SCREENSHOTS", tmp_path / "screenshots")))
    lab.open(jupyter, f"{FIRST}.ipynb", cells=_CODE_CELLS)
    cells = lab.code_cells()
    shown = next(i for i, source in enumerate(lab.sources()) if "gl.Dashboard(" in source)
    for cell in cells[:shown]:
        lab.run(cell)
    lab.shoot("1 before the dashboard")
    lab.run(cells[shown])
    page.wait_for_selector(".gcylon-dashboard .js-plotly-plot")
    page.wait_for_selector(".gcylon-dashboard .gcylon-plan")
    lab.until(lambda: lab.points() > 0, "a figure with points")

    before = lab.points()
    lab.run(cells[shown + 1])
    lab.until(lambda: lab.points() > before, "the figure to gain points")
    page.locator(".gcylon-dashboard").scroll_into_view_if_needed()
    lab.shoot("2 dashboard after three shuffles")

    plan = lab.plan()
    lab.press_on_slider(0, "ArrowRight", 9)
    lab.until(lambda: lab.plan() != plan and "of 16 MiB" in lab.plan(), "a plan under the new limit")
    page.wait_for_selector("text=Set. The next operation will use it")
    lab.shoot("3 tuned")
    assert "TUNED 16777216 16777216 staged" in lab.add_and_run(cells[shown + 1], _NEXT)
    lab.shoot("4 the next operation used it")

    page.locator(".gcylon-dashboard .jupyter-button", has_text="reset").click()
    lab.until(lambda: "of 16 MiB" not in lab.plan(), "the settings from before")
    page.wait_for_selector("text=Set. The next operation will use it")
    cells = lab.code_cells()
    outputs = [lab.run(cell) for cell in cells[shown + 3 : -1]]
    assert any("the same rows on the same ranks: True" in output for output in outputs)
    page.locator(".gcylon-dashboard").scroll_into_view_if_needed()
    lab.shoot("5 at the end")
    lab.run(cells[-1])
    lab.shoot("6 closed")
    check_outputs(FIRST, lab.save(tmp_path / "tutorials" / f"{FIRST}.ipynb"), tmp_path / "tutorials")
