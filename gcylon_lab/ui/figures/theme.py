"""Colours, dashes and patterns: one meaning each, in every panel, never colour alone.

Ranks have the Okabe-Ito colours and each its own dash and symbol; phases have a
second fixed set and each its own pattern and place in the lane; the budget is
always the same red dash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .plotly_io import load

# Okabe-Ito, in an order whose first four stay apart on white and on black; its
# black is replaced by a grey that is seen on both.
RANK_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A900", "#808080")
RANK_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "5px,2px", "9px,3px,2px,3px,2px,3px")
# The same in text.
_DASH_SIGNS = ("━━", "╍╍", "┅┅", "━┅", "━╍", "━╸", "┉┉", "━·")
RANK_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down", "star")

BUDGET_COLOUR = "#E5252A"
BUDGET_DASH = "dash"
WARNING_COLOUR = "#C77700"


@dataclass(frozen=True, slots=True)
class PhaseStyle:
    """How a phase is drawn: its colour, its pattern, and its row within a rank's lane (0 is the upper one)."""

    colour: str
    pattern: str
    row: int


# Paul Tol's muted set. Rows show what overlaps: computing above, moving between
# ranks and between tiers in the middle, waiting at the bottom.
PHASES: dict[str, PhaseStyle] = {
    "partition": PhaseStyle("#44AA99", "", 0),
    "sort": PhaseStyle("#D9A62E", "", 0),
    "merge": PhaseStyle("#A87414", "/", 0),
    "group": PhaseStyle("#3B9A3B", "|", 0),
    "match": PhaseStyle("#9467BD", "", 0),
    "gather": PhaseStyle("#C79FE0", "\\", 0),
    "compute": PhaseStyle("#AA4499", "+", 0),
    "exchange": PhaseStyle("#6A7FDB", "/", 1),
    "read": PhaseStyle("#5FA8C9", "", 2),
    "write": PhaseStyle("#2E7391", "/", 2),
    "stage": PhaseStyle("#CC6677", "\\", 2),
    "unstage": PhaseStyle("#999933", "x", 2),
    "waiting": PhaseStyle("#9A9A9A", ".", 3),
}
# What ranks record under other names: steps of these, and by their category whatever has no name here.
_STEPS = {"sample": "sort", "select": "sort", "index": "match", "pick": "gather"}
_KINDS = {"algorithm": "compute", "kernel": "compute", "memory": "compute", "transfer": "exchange", "sync": "waiting"}
OTHER_PHASE = PhaseStyle("#A0743C", "-", 0)

# What holds the budget: tables, what other libraries have handed over, what nobody claimed, and claims of others.
USE_STYLES = {
    "tables": ("#4477AA", ""), "external": ("#EE8866", "/"), "not claimed": ("#9A9A9A", "."),
    "use 0": ("#AA4499", "\\"), "use 1": ("#44AA99", "x"), "more": ("#A0743C", "-"),
}  # fmt: skip
POOL_COLOURS = {"scratch": "#44AA99", "pinned": "#6699CC", "device": "#CC79A7"}

TIER_COLOURS = {"pinned": "#6699CC", "disk": "#997700"}
TIER_DASHES = {"pinned": "dot", "disk": "solid"}


def rank_style(rank: int) -> tuple[str, str, str]:
    """Return a rank's colour, dash and symbol; they repeat every eight ranks."""
    place = rank % len(RANK_COLOURS)
    return RANK_COLOURS[place], RANK_DASHES[place], RANK_SYMBOLS[place]


def rank_sign(rank: int) -> str:
    """Return a rank's line as text, for a key in one row where a legend would take several."""
    place = rank % len(RANK_COLOURS)
    return f'<span style="color:{RANK_COLOURS[place]}">{_DASH_SIGNS[place]}</span>'


def phase_of(name: str, category: str) -> str:
    """Return the phase that a span is drawn as; "" for what a user named, which has no style of its own."""
    return name if name in PHASES else _STEPS.get(name) or _KINDS.get(category, "")


def phase_style(name: str) -> PhaseStyle:
    """Return how a phase is drawn; a name outside the fixed set gets the style of the user's own spans."""
    return PHASES.get(name, OTHER_PHASE)


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours that depend on the page behind the figure.

    Backgrounds are always transparent, so a figure sits on whatever the page
    has; only text, grid and shading must be told.
    """

    name: str
    text: str
    faint: str
    grid: str
    shade: tuple[str, str]
    hover: str
    bar: str
    # Behind a text that lies over lines.
    veil: str
    # Text about the budget: its line's red, where that can be read.
    budget: str

    def layout(self) -> dict[str, Any]:
        """Return the layout settings that follow from the theme."""
        return {
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {
                "color": self.text,
                "size": 12,
                "family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif",
            },
            "hoverlabel": {"bgcolor": self.hover, "font": {"color": self.text, "size": 12}},
        }

    def axis(self) -> dict[str, Any]:
        """Return the settings of any axis that follow from the theme."""
        return {
            "gridcolor": self.grid,
            "linecolor": self.faint,
            "tickcolor": self.faint,
            "zerolinecolor": self.grid,
            "tickfont": {"color": self.text, "size": 11},
            # Looking for labels that stick out is a tenth of the time of an update.
            "ticklabeloverflow": "allow",
        }


LIGHT = Theme(
    name="light",
    text="#222222",
    faint="#5f5f5f",
    grid="rgba(120,120,120,0.25)",
    shade=("rgba(90,110,140,0.10)", "rgba(90,110,140,0.20)"),
    hover="#ffffff",
    bar="#b5b5b5",
    veil="rgba(255,255,255,0.7)",
    budget="#D01F24",
)
DARK = Theme(
    name="dark",
    text="#e6e6e6",
    faint="#a8a8a8",
    grid="rgba(160,160,160,0.25)",
    shade=("rgba(160,185,220,0.12)", "rgba(160,185,220,0.24)"),
    hover="#222222",
    bar="#5a5a5a",
    veil="rgba(17,17,17,0.7)",
    budget="#FF7B72",
)
# Before the page has said which it is: a grey that can be read on both.
NEUTRAL = Theme(
    name="neutral",
    text="#777777",
    faint="#777777",
    grid="rgba(128,128,128,0.25)",
    shade=("rgba(128,128,128,0.12)", "rgba(128,128,128,0.22)"),
    hover="#cccccc",
    bar="rgba(128,128,128,0.45)",
    veil="rgba(0,0,0,0)",
    budget=BUDGET_COLOUR,
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK, NEUTRAL)}


def plot_template() -> dict[str, Any]:
    """Return a plotly template for figures of your own: clear, so that light and dark pages show through, and readable.

    Lines and bars take the colours that ranks have in the dashboard.

    Examples
    --------
    >>> import plotly.express as px
    >>> px.defaults.template = plot_template()                       # doctest: +SKIP
    """
    load()
    axis = NEUTRAL.axis() | {"automargin": True, "title": {"standoff": 8}}
    return {"layout": NEUTRAL.layout() | {"colorway": list(RANK_COLOURS), "xaxis": axis, "yaxis": axis}}
