"""Figures of a replayed run, and what is looked up in them."""

from __future__ import annotations

from typing import Any

from replay import Replay

from gcylon_lab.ui.figures.figures import figure_dict
from gcylon_lab.ui.figures.theme import LIGHT
from gcylon_lab.ui.figures.view import make_view

Figure = dict[str, Any]


def draw(ranks: int = 4, at_s: float = 12.0, **more: Any) -> Figure:
    return figure_dict(make_view(Replay(ranks, **more).at(at_s)), LIGHT)


def trace(figure: Figure, key: str) -> dict[str, Any]:
    return next(t for t in figure["data"] if t["meta"] == key)


def keys(figure: Figure) -> list[str]:
    return [t["meta"] for t in figure["data"]]


def texts(figure: Figure) -> str:
    return "\n".join(a["text"] for a in figure["layout"]["annotations"])
