"""How many values of a column lie between edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.protocol.scalars import shown
from ...backends.protocol.schema import Label
from ...engine.exec.agreement import agreed
from ...engine.exec.invocation import Request, RunOptions, check_labels
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError, UnsupportedDtype
from ..group.reduce import as_float, reduced
from .pair_sums import Floats, summed, values_here

_MOST_BINS = 100_000
_COPIES = 4  # of the values of a piece as floats


def histogram(
    workspace: Workspace,
    part: Part,
    column: Label,
    bins: int | Sequence[float],
    options: RunOptions,
) -> tuple[Any, Floats]:
    """Collective: all ranks call it. Counts and edges, as `numpy.histogram` gives them of the values that are there."""
    found: list[tuple[Any, Floats]] = []

    def check() -> None:
        check_labels([column], part.schema.names)
        _check_bins(bins)

    def body(operation: Operation) -> Part:
        kind = operation.schema[column].kind
        if kind not in ("int", "float", "decimal"):
            raise agreed(
                UnsupportedDtype(
                    f"there is no histogram of column {column!r}, whose dtype is {operation.schema[column].describe()}",
                    advice="value_counts says how often each value is there; of times group by dt.floor('D').",
                    column=column,
                )
            )
        edges = _edges(operation, part, column, bins)
        counts = np.zeros(len(edges) - 1, np.int64)
        for values in values_here(operation, part, [column], "Counting values between edges", _COPIES):
            there = values[~np.isnan(values)]
            counts += np.histogram(there, edges if isinstance(bins, list) else bins, (edges[0], edges[-1]))[0]
        found.append((summed(operation, counts), edges))
        return part

    arguments = {"column": column, "bins": bins}
    run_verb(workspace, Request("histogram", arguments, part, options, check), body)
    return found[0]


def _check_bins(bins: Any) -> None:
    if isinstance(bins, list):
        if len(bins) < 2 or any(low >= high for low, high in zip(bins, bins[1:], strict=False)):
            raise ArgumentError(f"bins={shown(bins)} are no edges.", advice="Give two or more, in their order.")
    elif not 1 <= bins <= _MOST_BINS:
        raise ArgumentError(f"bins={bins!r} is invalid.", advice=f"Give a number in [1, {_MOST_BINS}], or edges.")


def _edges(operation: Operation, part: Part, column: Label, bins: int | Sequence[float]) -> Floats:
    """Collective: all ranks call it. The edges of the bins: given, or even ones from the least value to the largest."""
    if isinstance(bins, list):
        return np.array(bins, dtype="float64")
    values = reduced(operation, part, [column], [("min", 0.0), ("max", 0.0)])
    low, high = (as_float(values[one, 0.0][column]) for one in ("min", "max"))
    try:
        return np.histogram_bin_edges([], bins, (0.0, 1.0) if np.isnan([low, high]).any() else (low, high))
    except ValueError:
        raise agreed(
            ArgumentError(
                f"column {column!r} has values from {low:g} to {high:g}, between which there are no {bins} even bins.",
                advice="Give edges, as bins=[0, 10, 100].",
            )
        ) from None
