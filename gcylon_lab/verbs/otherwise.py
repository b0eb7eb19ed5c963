"""What pandas and dask call otherwise: errors that name the verb to use instead."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..config import nearest
from ..tables.aggregation import FUNCTIONS

_HERE = {
    "agg": "sum('x'), mean('x') and the like, or groupby(by).agg(...)",
    "aggregate": "sum('x'), mean('x') and the like, or groupby(by).agg(...)",
    "append": "concat(others)",
    "apply": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "compute": "to_pandas(); verbs run at once, and nothing waits to be computed",
    "copy": "the table itself: no verb changes it",
    "iloc": "head(n), tail(n) or filter(gl.col('x') > 0)",
    "index": "a column: tables have no index",
    "isna": "gl.col('x').isna() in filter or assign, or count(), which counts what is not missing",
    "isnull": "gl.col('x').isna() in filter or assign, or count(), which counts what is not missing",
    "iterrows": "map_parts(f), or to_pandas(limit)",
    "itertuples": "map_parts(f), or to_pandas(limit)",
    "loc": "filter(gl.col('x') > 0) and select(columns)",
    "map_partitions": "map_parts(f)",
    "nlargest": "sort_values(by, ascending=False).head(n)",
    "notna": "gl.col('x').notna() in filter or assign, or count(), which counts what is not missing",
    "nsmallest": "sort_values(by).head(n)",
    "persist": "the table itself: verbs run at once, and their results stay on the ranks",
    "pivot": "groupby([rows, columns]).agg(x=('x', 'sum')).to_pandas().pivot(...)",
    "pivot_table": "groupby([rows, columns]).agg(x=('x', 'sum')).to_pandas().pivot(...)",
    "plot": "to_pandas(limit).plot",
    "query": "filter(gl.col('x') > 0)",
    "reset_index": "a column: tables have no index",
    "set_index": "shuffle(on) or sort_values(by): tables have no index",
    "sort": "sort_values(by)",
    "sort_index": "sort_values(by): tables have no index",
    "to_csv": "write_csv(folder)",
    "to_feather": "write_ipc(folder)",
    "to_json": "write_json(folder)",
    "to_parquet": "write_parquet(folder)",
}


def no_attribute(table: Any, name: str, columns: Collection[Any]) -> AttributeError:
    """Make the error for a name that a table has not; a private name is asked for by programs, and gets no advice."""
    said = f"{type(table).__name__!r} object has no attribute {name!r}"
    if name in columns:
        said += f": name columns in verbs, as sum({name!r}), select({name!r}) or filter(gl.col({name!r}) > 0)"
    elif name in _HERE:
        said += f": use {_HERE[name]}"
    elif meant := nearest_verb(table, name):
        # Without the object, so that Python does not say the same once more where it shows it; IPython never does.
        return AttributeError(f"{said}: did you mean {meant!r}?")
    return AttributeError(said, name=name, obj=table)


def nearest_verb(table: Any, name: str) -> str:
    """Return the public name that a mistyped one was probably meant to be; "" where none is near."""
    return "" if name.startswith("_") else nearest(name, [own for own in dir(type(table)) if not own.startswith("_")])


def no_item(table: Any) -> TypeError:
    """Make the error for brackets, and for a loop over a table."""
    return TypeError(
        f"{type(table).__name__!r} object has no rows or columns in brackets: use select(columns), "
        "filter(gl.col('x') > 0), assign(y=gl.col('x') * 2), or head(n) and to_pandas(limit) for rows"
    )


def no_new_item(table: Any) -> TypeError:
    """Make the error for ``t["x"] = ...``."""
    return TypeError(
        f"{type(table).__name__!r} object is never changed: make another table, as t = t.assign(y=gl.col('x') * 2)"
    )


def no_column_of_groups(groups: Any, columns: Any) -> TypeError:
    """Make the error for ``groupby("a")["x"]``."""
    one = columns[0] if isinstance(columns, list) and columns else columns
    return TypeError(
        f"{type(groups).__name__!r} object has no columns in brackets: "
        f"use agg({{{one!r}: 'mean'}}), or agg(new=({one!r}, 'mean'))"
    )


def no_function(groups: Any, name: str) -> AttributeError:
    """Make the error for a name that a group-by has not."""
    said = f"{type(groups).__name__!r} object has no attribute {name!r}"
    if name in FUNCTIONS:
        said += f": use agg({{'x': {name!r}}}), or agg(new=('x', {name!r}))"
    return AttributeError(said, name=name, obj=groups)
