"""What pandas and dask call otherwise: errors that name the verb to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...backends.protocol.aggregation import FUNCTIONS
from ...config import nearest

_NEIGHBOURS = "to_pandas(limit), as no verb here looks from row to row"
_NO_INDEX = "a column: tables have no index"
_PIVOTED = "groupby([rows, columns]).agg(x=('x', 'sum')).to_pandas().pivot(...)"
_TO_DISK = "to_pandas(limit), or write_parquet(folder), write_csv(folder)"

_HERE = {
    "abs": "assign(x=gl.col('x').abs())",
    "add_prefix": "rename({'x': 'a_x'})",
    "add_suffix": "rename({'x': 'x_a'})",
    "agg": "sum('x'), mean('x') and the like, or groupby(by).agg(...)",
    "aggregate": "sum('x'), mean('x') and the like, or groupby(by).agg(...)",
    "append": "concat(others)",
    "apply": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "applymap": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "at": "filter(gl.col('x') > 0) and select(columns)",
    "axes": "columns: tables have no index",
    "bfill": _NEIGHBOURS,
    "cast": "astype({'x': 'float64'})",
    "clip": "assign(x=gl.col('x').clip(0, 1))",
    "combine_first": "join(other, on=keys, how='outer') and assign(x=gl.col('x_x').fillna(gl.col('x_y')))",
    "compare": "why_not_equal(other)",
    "compute": "to_pandas(); verbs run at once, and nothing waits to be computed",
    "copy": "the table itself: no verb changes it",
    "corr": "to_pandas(limit), or sums and means of assign(xy=gl.col('x') * gl.col('y'))",
    "cov": "to_pandas(limit), or sums and means of assign(xy=gl.col('x') * gl.col('y'))",
    "crosstab": _PIVOTED,
    "cumcount": _NEIGHBOURS,
    "cummax": _NEIGHBOURS,
    "cummin": _NEIGHBOURS,
    "cumprod": _NEIGHBOURS,
    "cumsum": _NEIGHBOURS,
    "diff": _NEIGHBOURS,
    "distinct": "drop_duplicates() or unique(columns)",
    "duplicated": "drop_duplicates(subset, keep=False) for rows that stand there once, or value_counts(subset)",
    "empty": "count_rows() == 0",
    "eval": "assign(y=gl.col('x') * 2)",
    "ewm": _NEIGHBOURS,
    "expanding": _NEIGHBOURS,
    "explode": "map_parts(lambda part: part.explode('x'))",
    "ffill": _NEIGHBOURS,
    "first": "head(n)",
    "get": "select(columns)",
    "hist": "to_pandas(limit).hist, or value_counts('x')",
    "iat": "head(n), tail(n) or filter(gl.col('x') > 0)",
    "idxmax": "filter(gl.col('x') == t.max('x')): tables have no index",
    "idxmin": "filter(gl.col('x') == t.min('x')): tables have no index",
    "iloc": "head(n), tail(n) or filter(gl.col('x') > 0)",
    "index": _NO_INDEX,
    "insert": "assign(y=gl.col('x') * 2), and select(columns) for their order",
    "interpolate": _NEIGHBOURS,
    "isna": "gl.col('x').isna() in filter or assign, or count(), which counts what is not missing",
    "isnull": "gl.col('x').isna() in filter or assign, or count(), which counts what is not missing",
    "items": "columns, and select(column) for each",
    "iterrows": "map_parts(f), or to_pandas(limit)",
    "itertuples": "map_parts(f), or to_pandas(limit)",
    "keys": "columns",
    "last": "tail(n)",
    "limit": "head(n)",
    "loc": "filter(gl.col('x') > 0) and select(columns)",
    "map": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "map_partitions": "map_parts(f)",
    "mask": "assign(x=gl.col('x').where(condition, other)), which keeps x where the condition holds",
    "melt": "map_parts(lambda part: part.melt(...))",
    "memory_usage": "nbytes, tiers, or info()",
    "mode": "value_counts('x').head(1)",
    "ndim": "shape",
    "notna": "gl.col('x').notna() in filter or assign, or count(), which counts what is not missing",
    "notnull": "gl.col('x').notna() in filter or assign, or count(), which counts what is not missing",
    "npartitions": "info(): a table has one part on each rank, of some chunks",
    "order_by": "sort_values(by)",
    "partitions": "map_parts(f), which takes the part of each rank",
    "pct_change": _NEIGHBOURS,
    "persist": "the table itself: verbs run at once, and their results stay on the ranks",
    "pipe": "f(t): a verb gives a table",
    "pivot": _PIVOTED,
    "pivot_table": _PIVOTED,
    "plot": "to_pandas(limit).plot",
    "pop": "select(column) and drop(column)",
    "rank": _NEIGHBOURS,
    "reindex": "select(columns): tables have no index",
    "replace": "assign(x=gl.col('x').where(gl.col('x') != 1, 2)), or gl.col('s').str.replace('a', 'b')",
    "resample": "assign(day=gl.col('t').dt.floor('D')) and groupby('day')",
    "reset_index": _NO_INDEX,
    "rolling": _NEIGHBOURS,
    "round": "assign(x=gl.col('x').round(2))",
    "select_dtypes": "select(columns); dtypes has them",
    "sem": "std('x') / count('x') ** 0.5",
    "set_index": "shuffle(on) or sort_values(by): tables have no index",
    "shift": _NEIGHBOURS,
    "show": "head(n)",
    "size": "count_rows(), or shape",
    "sort": "sort_values(by)",
    "sort_index": "sort_values(by): tables have no index",
    "stack": "map_parts(lambda part: part.melt(...))",
    "str": "gl.col('s').str in filter or assign",
    "style": "to_pandas(limit).style",
    "take": "head(n), tail(n) or filter(gl.col('x') > 0)",
    "iter_batches": "to_batches(rows)",
    "to_csv": "write_csv(folder)",
    "to_dict": "to_pandas(limit).to_dict()",
    "to_excel": _TO_DISK,
    "to_feather": "write_ipc(folder)",
    "to_json": "write_json(folder)",
    "to_numpy": "to_pandas(limit).to_numpy()",
    "to_polars": "to_arrow(limit), which polars takes",
    "to_parquet": "write_parquet(folder)",
    "to_pickle": _TO_DISK,
    "to_records": "to_pandas(limit).to_records()",
    "to_sql": _TO_DISK,
    "to_string": "to_pandas(limit).to_string()",
    "transform": "assign(y=gl.col('x') * 2), or map_parts(f)",
    "unstack": _PIVOTED,
    "update": "join(other, on=keys, how='left') and assign(x=gl.col('x_y').fillna(gl.col('x_x')))",
    "values": "to_pandas(limit).to_numpy()",
    "where": "assign(x=gl.col('x').where(condition, other)), or filter(condition)",
    "withColumn": "assign(y=gl.col('x') * 2)",
    "with_columns": "assign(y=gl.col('x') * 2)",
}

_IN_ORDER = "shuffle(by, keep_order=True).map_parts(f): there a rank has all rows of its groups, in their order"

_OF_GROUPS = {
    "aggregate": "agg({'x': 'sum'})",
    "apply": "agg({'x': 'sum'}), or shuffle(by).map_parts(f): there a rank has all rows of its groups",
    "cumcount": _IN_ORDER,
    "cumsum": _IN_ORDER,
    "describe": "agg({'x': ['count', 'mean', 'std', 'min', 'median', 'max']})",
    "diff": _IN_ORDER,
    "filter": "agg(n=('x', 'size')), filter(gl.col('n') > 1), and join of the table with that, how='semi'",
    "get_group": "filter(gl.col('k') == 1) of the table",
    "head": "drop_duplicates(by) of the table for one row of each group, or " + _IN_ORDER,
    "ngroups": "unique(by).count_rows() of the table",
    "nth": _IN_ORDER,
    "rank": _IN_ORDER,
    "shift": _IN_ORDER,
    "tail": "drop_duplicates(by, keep='last') of the table for one row of each group, or " + _IN_ORDER,
    "transform": "agg(total=('x', 'sum')), and join of the table with that, on its keys",
    "value_counts": "value_counts(by, ...) of the table",
}

OF_COLUMNS = {
    "agg": "t.sum('x'), t.mean('x') and the like",
    "apply": "t.map_parts(f), or what is computed of columns, as t.x * 2",
    "corr": "to_pandas(limit)",
    "cumsum": _NEIGHBOURS,
    "diff": _NEIGHBOURS,
    "drop_duplicates": "unique()",
    "dropna": "t.dropna(columns), or t[t.x.notna()]",
    "groupby": "t.groupby(keys)",
    "hist": "to_pandas(limit).hist()",
    "iloc": "head(n) or tolist(limit)",
    "isnull": "isna()",
    "loc": "t[condition]['x'], or head(n)",
    "map": "replace({old: new}), gl.when(condition).then(x).otherwise(y), or t.map_parts(f)",
    "mode": "value_counts().head(1)",
    "nlargest": "t.nlargest(n, 'x')",
    "notnull": "notna()",
    "nsmallest": "t.nsmallest(n, 'x')",
    "plot": "to_pandas(limit).plot()",
    "rank": _NEIGHBOURS,
    "rolling": _NEIGHBOURS,
    "shape": "t.shape",
    "shift": _NEIGHBOURS,
    "sort_values": "t.sort_values('x')",
    "tail": "t.tail(n)",
    "to_list": "tolist(limit)",
    "to_numpy": "to_pandas(limit).to_numpy(), or t.tensor('x')",
    "values": "to_pandas(limit).to_numpy(), or t.tensor('x')",
}

# Arguments that verbs of pandas have and these have not.
_ARGUMENTS = {
    "axis": "verbs go down columns: leave it out; along rows gl.col('x') + gl.col('y') goes",
    "errors": "what cannot be done is an error: leave it out",
    "ignore_index": "tables have no index: leave it out",
    "inplace": "tables are never changed: leave it out, and take the result, as in t = t.{verb}(...)",
    "interpolation": "quantiles lie on a line between two values: leave it out",
    "items": "select(columns) chooses columns",
    "key": "make a column of it with assign, and give its name",
    "left_index": "tables have no index: give on=, or left_on= and right_on=",
    "like": "select(columns) chooses columns",
    "method": "to_pandas(limit).ffill() does that: no verb here looks from row to row",
    "npartitions": "a table has one part on each rank: rows_per_rank= says how many rows each gets",
    "random_state": "give seed=",
    "regex": "select(columns) chooses columns",
    "replace": "each row is taken at most once: leave it out",
    "right_index": "tables have no index: give on=, or left_on= and right_on=",
    "skipna": "missing values are always skipped: leave it out",
    "subset": "give columns=",
}


def no_attribute(table: Any, name: str, instead: Mapping[str, str] = _HERE) -> AttributeError:
    """Make the error for a name that a table has not; a private name is asked for by programs, and gets no advice."""
    said = f"{type(table).__name__!r} object has no attribute {name!r}"
    if name in instead:
        said += f": use {instead[name]}"
    elif meant := nearest_verb(table, name):
        # Without the object, so that Python does not say the same once more where it shows it; IPython never does.
        return AttributeError(f"{said}: did you mean {meant!r}?")
    return AttributeError(said, name=name, obj=table)


def nearest_verb(table: Any, name: str) -> str:
    """Return the public name that a mistyped one was probably meant to be; "" where none is near."""
    later = "_asy" in name
    known = [own for own in dir(type(table)) if not own.startswith("_") and (later or not own.endswith("_async"))]
    return "" if name.startswith("_") else nearest(name, known)


def no_item(table: Any, key: Any = None) -> TypeError:
    """Make the error for brackets that hold what is no column and no condition, and for a loop over a table."""
    said = f"{type(table).__name__!r} object has no rows in brackets, and no loop goes over them: "
    if isinstance(key, tuple):
        said += "use t[condition][['a', 'b']], or "
    return TypeError(
        f"{said}use head(n), to_pandas(limit) or to_batches(rows) for rows, t[t.x > 0] for those of a condition, "
        "and columns for the labels"
    )


def no_array(table: Any) -> TypeError:
    """Make the error for ``np.asarray(t)``, and for libraries that ask for an array of a table."""
    return TypeError(
        f"{type(table).__name__!r} object is no array: use to_pandas(limit).to_numpy(), tensor(columns) for numbers of "
        "each rank, or a frame of its rows, by to_pandas(limit) or pd.DataFrame.from_arrow(t)"
    )


def no_new_item(table: Any) -> TypeError:
    """Make the error for ``t["x"] = ...`` and ``del t["x"]``."""
    return TypeError(
        f"{type(table).__name__!r} object is never changed: make another table, as t = t.assign(y=gl.col('x') * 2) "
        "or t = t.drop('x')"
    )


def no_loop(groups: Any) -> TypeError:
    """Make the error for a loop over a group-by."""
    return TypeError(
        f"{type(groups).__name__!r} object is not iterable: use agg({{'x': 'sum'}}), "
        "or filter(gl.col('k') == 1) of the table for one group"
    )


def no_function(groups: Any, name: str) -> AttributeError:
    """Make the error for a name that a group-by has not."""
    said = f"{type(groups).__name__!r} object has no attribute {name!r}"
    if name in FUNCTIONS:
        said += f": use agg({{'x': {name!r}}}), or agg(new=('x', {name!r}))"
    elif name in _OF_GROUPS:
        said += f": use {_OF_GROUPS[name]}"
    return AttributeError(said, name=name, obj=groups)


def other_argument(verb: str, name: str) -> str:
    """What to do instead of giving an argument that verbs of pandas have; "" where nothing is known."""
    return _ARGUMENTS.get(name, "").format(verb=verb)
