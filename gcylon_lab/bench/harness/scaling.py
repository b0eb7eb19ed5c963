"""How times grow with rows or ranks: a power law through the medians."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ArgumentError
from .formats import FORMATS, Cells
from .measurement import Measurement

OVER = ("rows", "ranks")
_LEAST_SIZES = 3  # a line through two points always fits


@dataclass(frozen=True, slots=True)
class Fit:
    """``seconds = factor * size ** exponent``, by least squares of the logarithms."""

    label: str
    exponent: float
    r_squared: float
    factor: float
    sizes: tuple[int, ...]
    medians_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Scaling:
    """The fits of all names that were measured at several sizes, as `Benchmark.scaling` makes it."""

    over: str
    fits: tuple[Fit, ...]

    def figure(self) -> Any:
        """Medians and fitted lines on logarithmic axes, as a plotly figure."""
        from plotly import graph_objects

        from ...ui.figures.theme import RANK_COLOURS, RANK_SYMBOLS, plot_template

        figure = graph_objects.Figure(layout={"template": plot_template()})
        for place, fit in enumerate(self.fits):
            colour = RANK_COLOURS[place % len(RANK_COLOURS)]
            marker = {"color": colour, "symbol": RANK_SYMBOLS[place % len(RANK_SYMBOLS)]}
            figure.add_scatter(
                x=fit.sizes, y=fit.medians_s, mode="markers", name=fit.label, marker=marker, legendgroup=fit.label
            )
            figure.add_scatter(
                x=fit.sizes, y=[fit.factor * size**fit.exponent for size in fit.sizes], mode="lines",
                name=f"{self.over}^{fit.exponent:.2f}, R² {fit.r_squared:.3f}", line={"color": colour},
                legendgroup=fit.label, hoverinfo="skip",
            )  # fmt: skip
        figure.update_xaxes(type="log", title=self.over)
        figure.update_yaxes(type="log", title="median (s)")
        return figure

    def to(self, form: str) -> str:
        """As text, markdown, html or latex."""
        rows = [(fit.label, f"{len(fit.sizes)}", f"{fit.exponent:.3f}", f"{fit.r_squared:.4f}") for fit in self.fits]
        return FORMATS[form](Cells(f"time over {self.over}", ("what", "sizes", "exponent", "R²"), rows))

    def __repr__(self) -> str:
        return self.to("text")

    def _repr_html_(self) -> str:
        return self.to("html")


def scaling(measurements: Sequence[Measurement], over: str) -> Scaling:
    """Fit the times of each name and its other parameters over one size; see `Scaling`."""
    if over not in OVER:
        raise ArgumentError(f"over={over!r} is invalid. Expected 'rows' or 'ranks'.")
    groups: dict[tuple[Any, ...], dict[int, Measurement]] = {}
    for one in measurements:
        size = one.rows if over == "rows" else one.ranks
        other = one.ranks if over == "rows" else one.rows
        if size is not None and size > 0:
            groups.setdefault((one.name, other, one.key[-1]), {})[size] = one
    fits = [_fit(list(sizes), sizes, over) for sizes in groups.values() if len(sizes) >= _LEAST_SIZES]
    if not fits:
        most = max(map(len, groups.values()), default=0)
        raise ArgumentError(
            f"Expected a name measured at {_LEAST_SIZES} or more different {over}, got {most} at most.",
            advice=f'Give {over} to each run, for example b.run("shuffle", f, {over}=n) for several n.',
        )
    return Scaling(over, tuple(fits))


def _fit(sizes: list[int], by_size: dict[int, Measurement], over: str) -> Fit:
    sizes = sorted(sizes)
    medians = [by_size[size].median_s for size in sizes]
    x, y = np.log(sizes), np.log(medians)
    slope, intercept = np.polyfit(x, y, 1)
    left, all_of_it = float(((y - slope * x - intercept) ** 2).sum()), float(((y - y.mean()) ** 2).sum())
    one = by_size[sizes[0]]
    told = [f"{n}={v:,}" for n, v in (("rows", one.rows), ("ranks", one.ranks)) if n != over and v is not None]
    told += [f"{n}={v}" for n, v in one.parameters.items()]
    label = f"{one.name} ({', '.join(told)})" if told else one.name
    r_squared = 1 - left / all_of_it if all_of_it > 0 else 1.0
    return Fit(label, float(slope), r_squared, float(np.exp(intercept)), tuple(sizes), tuple(medians))
