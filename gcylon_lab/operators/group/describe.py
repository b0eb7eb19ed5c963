"""What columns of numbers and times look like, as pandas describes them: count, mean, std, min, percentiles, max."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.arrow.interop import to_frame as pandas_frame
from ...backends.protocol.data import empty_columns
from ...backends.protocol.expressions import col
from ...backends.protocol.schema import Column, Label, Schema
from ...engine.exec.invocation import AUTO, Request, RunOptions, check_labels
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError, UnsupportedDtype
from .groupby import shared_checks
from .reduce import as_float, reduced

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = ("int", "float", "decimal", "null")
_TIMES = ("datetime", "timedelta")
DESCRIBED = (*_NUMBERS, *_TIMES)  # kinds of columns that `describe` takes
_AS_PANDAS = ("number", "datetime")  # what it describes where nothing is asked for; timedeltas are numbers there
_MOST_TIES = 10_000
_QUARTILES = (0.25, 0.5, 0.75)
_OTHERS = "nunique('s') and value_counts('s') say of others how many values they have, and which most often."


def describe(
    workspace: Workspace,
    part: Part,
    columns: Sequence[Label] | None,
    percentiles: Any = None,
    include: Any = None,
    exclude: Any = None,
    options: RunOptions = AUTO,
) -> pd.DataFrame:
    """Collective: all ranks call it. Describe columns; see `gcylon_lab.api.verbs.reductions.ReductionVerbs.describe`.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    columns, percentiles, include, exclude
        As they were given.
    options : RunOptions
        Without a strategy.

    Returns
    -------
    pandas.DataFrame
        The same on every rank.
    """
    found: list[pd.DataFrame] = []
    asked = _plain(percentiles)

    def check() -> None:
        check_labels(columns or (), part.schema.names)
        _labels(asked)

    def body(operation: Operation) -> Part:
        with shared_checks():
            schema = operation.schema if columns is None else operation.schema.select(columns)
            chosen = _chosen(schema, include, exclude, named=columns is not None)
        quantiles = [("quantile", q) for q in sorted(asked)]
        functions = [("count", 0.0), ("mean", 0.0), ("std", 1.0), ("min", 0.0), *quantiles, ("max", 0.0)]
        values = reduced(operation, part, chosen.names, functions)
        names = ["count", "mean", "std", "min", *_labels(asked), "max"]
        found.append(_together(chosen, {name: values[one] for name, one in zip(names, functions, strict=True)}))
        return part

    arguments = {"columns": columns, "percentiles": asked, "include": include, "exclude": exclude}
    run_verb(workspace, Request("describe", arguments, part, options, check), body)
    return found[0]


def most_frequent(table: Any, name: Label, how: dict[str, Any]) -> tuple[Any, Any]:
    """Collective: all ranks call it. The most frequent value of a table's column, the first of those that are equally
    frequent, and how often it is there; NaN twice where there is none."""
    counts = table.value_counts(name, sort=False, **how)
    if not counts.count_rows():
        return np.nan, np.nan
    most = counts.max("count")
    values = counts.filter(col("count") == most).to_pandas(_MOST_TIES)[name]
    if len(values) > 1:
        values = table.filter(col(name).isin(list(values))).head(1)[name]
    return values.iloc[0], int(most)


def together(frames: Sequence[pd.DataFrame], schema: Schema, columns: Sequence[Label]) -> pd.DataFrame:
    """What was said of columns of several kinds as one frame, with the rows in pandas' order."""
    import pandas as pd

    described: dict[Any, pd.Series[Any]] = {name: frame[name] for frame in frames for name in frame.columns}
    for name in described:
        if schema[name].kind == "datetime":
            described[name] = described[name].drop("std", errors="ignore")
    rows = list(dict.fromkeys(row for one in sorted(described.values(), key=len) for row in one.index))
    return pd.DataFrame({name: described[name].reindex(rows) for name in columns})


def _plain(percentiles: Any) -> Any:
    """Percentiles as floats; what is none stays what it is, and is refused by all ranks together."""
    try:
        return list(_QUARTILES) if percentiles is None else [float(one) for one in percentiles]
    except (TypeError, ValueError):
        return percentiles


def _labels(percentiles: Any) -> list[str]:
    """What pandas calls percentiles, in its order.

    Raises
    ------
    ArgumentError
        If they are none.
    """
    import pandas as pd

    advice = "Give different ones in [0, 1], as [0.1, 0.5, 0.9]."
    if not isinstance(percentiles, list):
        raise ArgumentError(f"Expected a list of numbers for percentiles, got {percentiles!r}.", advice=advice)
    try:
        return list(pd.Series([], dtype="float64").describe(percentiles=percentiles).index[4:-1])
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"percentiles={percentiles!r} is invalid: {error}.", advice=advice) from None


def _chosen(schema: Schema, include: Any, exclude: Any, *, named: bool) -> Schema:
    """The columns to describe.

    Raises
    ------
    ArgumentError
        If there are none, or dtypes are asked for that pandas does not know.
    UnsupportedDtype
        If one that was asked for holds neither numbers nor times.
    """
    by_default = include is None and exclude is None and not named
    if by_default:
        plain = _of_dtypes(schema, _AS_PANDAS, None)
        described = [c for c in schema if c.kind in (*_NUMBERS, *_TIMES) and c.kind != "null"]
        # Decimals are objects to pandas. It takes times of a time zone only where there is nothing else.
        names = [c.name for c in described if c.kind == "decimal" or c.name in plain] or [c.name for c in described]
    elif (isinstance(include, str) and include == "all" and exclude is None) or (include is None and exclude is None):
        names = list(schema.names)
    else:
        names = _of_dtypes(schema, include, exclude)
    if not names:
        raise ArgumentError("There are no columns of numbers or times to describe.", advice=_OTHERS)
    for name in names:
        if schema[name].kind not in (*_NUMBERS, *_TIMES):
            is_date = schema[name].kind == "date"
            raise UnsupportedDtype(
                f"describe takes columns of numbers and times, but {name!r} is {schema[name].describe()}",
                advice="Leave it out: name the columns to describe. "
                + (f"assign({name}=gl.col({name!r}).astype('datetime64[s]')) makes times of it." * is_date or _OTHERS),
                column=str(name),
            )
    return schema.select(names)


def _of_dtypes(schema: Schema, include: Any, exclude: Any) -> list[Label]:
    try:
        return list(pandas_frame(empty_columns(schema)).select_dtypes(include=include, exclude=exclude).columns)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"include={include!r}, exclude={exclude!r} choose no columns: {error}.",
            advice="Give dtypes, as include=['number', 'datetimetz'], or name the columns.",
        ) from None


def _together(schema: Schema, values: dict[str, dict[Label, Any]]) -> pd.DataFrame:
    """Columns beside each other, each in the dtype that pandas gives it."""
    import pandas as pd

    empty = pandas_frame(empty_columns(schema))
    kinds = empty.dtypes.tolist()
    dtypes: dict[Any, Any] = {}  # of each kind of column once: pandas takes long to say it
    # Columns of one dtype and with the same rows make a frame: of each by itself pandas takes long, too.
    alike: dict[Any, dict[int, Any]] = {}
    for place, column in enumerate(schema):
        own = {name: of[column.name] for name, of in values.items() if column.name in of}
        kind = column.kind, kinds[place]
        if kind not in dtypes:
            dtypes[kind] = _dtype(column, empty[column.name])
        dtype = dtypes[kind]
        series = dtype is None or not isinstance(dtype, np.dtype)
        one: Any = [as_float(value) if column.kind == "decimal" else value for value in own.values()]
        made = pd.Series(one, index=list(own), dtype=dtype) if series else np.array(one, dtype)
        alike.setdefault((tuple(own), place if series else dtype), {})[place] = made
    # Those with fewest rows come first, so that std follows max where the times of a column have none.
    names = dict.fromkeys(name for rows, _ in sorted(alike, key=lambda one: len(one[0])) for name in rows)
    frames = [pd.DataFrame(some, index=list(rows)) for (rows, _), some in alike.items()]
    frame: pd.DataFrame = pd.concat(frames, axis=1, sort=False).reindex(list(names))[list(range(len(schema)))]
    frame.columns = empty.columns
    return frame


def _dtype(column: Column, empty: pd.Series[Any]) -> Any:
    if column.kind in _TIMES:
        return None
    return np.dtype("float64") if column.kind in ("decimal", "null") else empty.describe().dtype
