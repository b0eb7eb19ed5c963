"""What a panel is: plain traces and annotations that any axes can take, made without loading plotly.

Each panel answers one question. Its traces carry a ``meta`` key that stays the
same from one update to the next, so that a figure on the screen is updated in
place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..series import Floats, few_of
from ..theme import Theme

Trace = dict[str, Any]

# Where all traces are replaced, plotly forgets an axis' type and guesses it: text that looks like a number is text.
CATEGORIES = {"type": "category", "autotypenumbers": "strict"}


def rank_names(ranks: Sequence[Any], most: int = 8) -> dict[str, Any]:
    """Return what an axis of ranks by name has for ticks: some, where there are many."""
    return {"tickmode": "array", "tickvals": [str(ranks[i]) for i in few_of(len(ranks), most)]}


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel's content, in terms of its own axes ``x`` and ``y``.

    Shapes and annotations name the axes ``x``, ``y``, ``x domain`` and ``y
    domain``; `figures` puts the real ones in.
    """

    key: str
    title: str
    traces: list[Trace]
    xaxis: dict[str, Any]
    yaxis: dict[str, Any]
    right_axis: dict[str, Any] | None = None
    shapes: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    # What the panel comes to in a few words; stands where it covers nothing.
    note: str = ""
    # The same where a legend would be, under the title.
    lead: str = ""
    # Of a panel that has nothing to show: what will appear, and how to make it. Among others it folds.
    empty: str = ""
    nothing: str = "nothing yet"  # what stands beside its title then


def line(
    key: str, name: str, xy: tuple[Floats, Floats], *, unit: float = 1.0, legend: bool = True, **style: Any
) -> Trace:
    """Return a line trace; ``unit`` divides the values."""
    return {
        "type": "scatter",
        "mode": "lines",
        "meta": key,
        "name": name,
        "x": rounded(xy[0]),
        "y": rounded(xy[1] / unit),
        "showlegend": legend,
        **style,
    }


def rounded(values: Floats | Sequence[float], digits: int = 4) -> list[float]:
    """Return plain floats with the digits that can be seen."""
    return [round(float(value), digits) for value in values]


def host_lines(starts: Sequence[int], theme: Theme, *, upright: bool = False) -> list[dict[str, Any]]:
    """Return lines between the ranks of one host and those of the next, on an axis of ranks."""
    along, across = ("y", "x") if upright else ("x", "y")
    return [
        {
            "type": "line",
            f"{along}ref": f"{along} domain", f"{along}0": 0, f"{along}1": 1,
            f"{across}ref": across, f"{across}0": start - 0.5, f"{across}1": start - 0.5,
            "line": {"width": 1, "color": theme.text, "dash": "dot"},
        }
        for start in starts
    ]  # fmt: skip


def empty_note(text: str, theme: Theme) -> dict[str, Any]:
    """Return the annotation that says what an empty panel will show, and how to make it."""
    return {
        "text": text,
        "xref": "x domain",
        "yref": "y domain",
        "x": 0.5,
        "y": 0.5,
        "xanchor": "center",
        "yanchor": "middle",
        "showarrow": False,
        "font": {"size": 12, "color": theme.faint},
        "align": "center",
    }


def corner_note(text: str, theme: Theme, *, colour: str | None = None, y: float = 1.0) -> dict[str, Any]:
    """Return a short text within the panel, at its right, above unless told."""
    return {
        "text": text,
        "xref": "x domain",
        "yref": "y domain",
        "x": 1.0,
        "y": y,
        "xanchor": "right",
        "yanchor": "top" if y > 0.5 else "bottom",
        "showarrow": False,
        "font": {"size": 11, "color": colour or theme.faint},
        "bgcolor": theme.veil,
    }
