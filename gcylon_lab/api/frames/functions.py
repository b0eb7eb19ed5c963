"""Functions of tables and columns, as pandas has them beside its frames: ``gl.cut``, ``gl.merge``, ``gl.crosstab``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ...backends.protocol.expressions import Expression
from ...backends.protocol.scalars import shown, whole_number
from ...errors import ArgumentError
from ...operators.group.reduce import as_float
from ..verbs.arguments import fitted
from ..verbs.brackets import Column, check_own

_WIDER = 0.001  # than the values: as pandas has it, of bins that are only counted


@fitted
def cut(
    column: Expression,
    bins: int | Sequence[float],
    labels: Sequence[Any] | bool | None = None,
    *,
    right: bool = True,
    include_lowest: bool = False,
) -> Expression:
    """Say between which edges each value lies.

    Parameters
    ----------
    column : Expression
        A column of a table, ``t.x``, or ``gl.col("x")``.
    bins : int or sequence of float
        The edges; or how many even bins there are between the least and the greatest value, which all ranks look for.
    labels : sequence or False, optional
        What the bins are called, as ``["low", "high"]``; intervals such as ``(0, 10]`` by default, and with False their
        numbers from 0.
    right : bool, default True
        Whether the upper edge is in a bin, and not the lower one.
    include_lowest : bool, default False
        Whether the lowest edge is in the first bin too.

    Returns
    -------
    Expression
        Text, or numbers; missing outside of all bins. (pandas has categories.)

    Raises
    ------
    ArgumentError
        If there are no edges, or not as many labels as bins.
    """
    if not isinstance(column, Expression):
        raise ArgumentError(f"cut got {shown(column)}.", advice="Give a column, as gl.cut(t.x, [0, 10, 100]).")
    edges = _even(column, bins, right=right) if isinstance(bins, int) else _edges(bins)
    count = len(edges) - 1
    codes = column._made("bins", column, edges, {"right": right, "include_lowest": include_lowest})
    if labels is False:
        return codes
    names = _intervals(edges, right=right) if labels is None else labels
    if isinstance(names, (str, bool)) or not isinstance(names, Iterable) or len(names := list(names)) != count:
        raise ArgumentError(
            f"labels={shown(labels)} does not fit {count} bins.", advice="Give one for each, or False for numbers."
        )
    return codes.map({float(i): name for i, name in enumerate(names)})


def _edges(given: Any) -> list[float]:
    try:
        edges = [float(one) for one in given]
    except (TypeError, ValueError):
        edges = []
    if len(edges) < 2 or any(not low < high for low, high in zip(edges, edges[1:], strict=False)):
        raise ArgumentError(f"bins={shown(given)} are no edges.", advice="Give two or more numbers, in their order.")
    return edges


def _even(column: Expression, bins: int, *, right: bool) -> list[float]:
    whole_number("bins", bins, least=1)
    if not isinstance(column, Column):
        raise ArgumentError(
            f"cut of {column!r} with bins={bins} needs the least and greatest value, and this is no column of a table.",
            advice="Give a table's column, as t.x, or edges.",
        )
    low, high = (as_float(one) for one in (column.min(), column.max()))
    if not math.isfinite(high - low):
        raise ArgumentError(
            f"cut of {column!r} with bins={bins} has no even ones between {low:g} and {high:g}.",
            advice="Give edges, as gl.cut(t.x, [0, 10, 100]).",
        )
    if low == high:  # as pandas: one of the bins has it
        wider = _WIDER * abs(low) or _WIDER
        return [low - wider + 2 * wider * i / bins for i in range(bins + 1)]
    step = (high - low) / bins
    edges = [low + step * i for i in range(bins)] + [high]
    wider = (high - low) * _WIDER
    return [edges[0] - wider, *edges[1:]] if right else [*edges[:-1], edges[-1] + wider]


def _intervals(edges: Sequence[float], *, right: bool) -> list[str]:
    texts = [f"{one:g}" for one in edges]
    pairs = zip(texts, texts[1:], strict=False)
    return [f"({low}, {high}]" if right else f"[{low}, {high})" for low, high in pairs]


def merge(left: Any, right: Any, *args: Any, **kwargs: Any) -> Any:
    """Put rows of two tables with equal keys beside each other: ``left.merge(right, ...)``.

    Parameters
    ----------
    left, right : Table, or DistTable
    *args, **kwargs
        As for `Table.join`.

    Returns
    -------
    Table or DistTable
    """
    return _table("merge", left).merge(right, *args, **kwargs)


def merge_asof(left: Any, right: Any, on: Any, by: Any = None, **how: Any) -> Any:
    """Put beside each row the last row of another table that is not after it: ``left.merge_asof(right, on)``.

    Parameters
    ----------
    left, right : Table, or DistTable
    on, by, **how
        As for `Table.merge_asof`.

    Returns
    -------
    Table or DistTable
    """
    return _table("merge_asof", left).merge_asof(right, on, by, **how)


@fitted
def crosstab(index: Any, columns: Any) -> Any:
    """Count how often each pair of values of two columns of a table is there: ``t.crosstab("a", "b")``.

    Parameters
    ----------
    index, columns : Column
        Of one table, as ``t.a`` and ``t.b``.

    Returns
    -------
    Table or DistTable
    """
    for one in (index, columns):
        if not isinstance(one, Column):
            raise ArgumentError(f"crosstab got {shown(one)}.", advice="Give two columns of a table, as t.a and t.b.")
    check_own(columns, index._table)
    return index._table.crosstab(index, columns)


def _table(function: str, given: Any) -> Any:
    if not hasattr(given, "merge_asof"):
        raise ArgumentError(
            f"Expected a table for {function}, got {shown(given)}.",
            advice="Make one of it before: of a frame of the notebook lab.from_pandas(frame).",
        )
    return given
