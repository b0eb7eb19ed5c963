"""What pandas and dask call otherwise: errors that name the verb to use instead."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

from ...backends.protocol.aggregation import FUNCTIONS
from ...config import nearest
from ...errors import ColumnMissing

_NO_INDEX = "a column: tables have no index"
_PIVOTED = "pivot_table(values, index, columns, 'first')"
_TO_DISK = "to_pandas(limit), or write_parquet(folder), write_csv(folder)"

_COUNTS = frozenset(("count", "proportion", "size"))  # columns beside values, which pandas has as labels of rows

_DEEP = 12  # frames that pandas has between a function and its look at an argument

_HERE = {
    "T": "to_pandas(limit).T",
    "append": "concat(others)",
    "apply": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "applymap": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "at": "filter(gl.col('x') > 0) and select(columns)",
    "axes": "columns: tables have no index",
    "combine_first": "join(other, on=keys, how='outer') and assign(x=gl.col('x_x').fillna(gl.col('x_y')))",
    "compare": "why_not_equal(other)",
    "compute": "to_pandas(); verbs run at once, and nothing waits to be computed",
    "cumcount": "reset_index(), which numbers rows",
    "distinct": "drop_duplicates() or unique(columns)",
    "ewm": "to_pandas(limit).ewm(...)",
    "expanding": "assign(x=gl.col('x').expanding().mean()), and the like",
    "explode": "map_parts(lambda part: part.explode('x'))",
    "first": "head(n)",
    "hist": "to_pandas(limit).hist, or value_counts('x')",
    "iat": "head(n), tail(n) or filter(gl.col('x') > 0)",
    "idxmax": "filter(gl.col('x') == t.max('x')): tables have no index",
    "idxmin": "filter(gl.col('x') == t.min('x')): tables have no index",
    "index": _NO_INDEX,
    "insert": "assign(y=gl.col('x') * 2), and select(columns) for their order",
    "interpolate": "to_pandas(limit).interpolate(), or ffill() and bfill()",
    "items": "columns, and select(column) for each",
    "iterrows": "map_parts(f), or to_pandas(limit)",
    "itertuples": "map_parts(f), or to_pandas(limit)",
    "keys": "columns",
    "last": "tail(n)",
    "lazy": "the table itself: row-wise verbs wait until rows are needed",
    "limit": "head(n)",
    "map": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "map_partitions": "map_parts(f)",
    "memory_usage": "nbytes, tiers, or info()",
    "mode": "value_counts('x').head(1)",
    "npartitions": "info(): a table has one part on each rank, of some chunks",
    "order_by": "sort_values(by)",
    "partitions": "map_parts(f), which takes the part of each rank",
    "persist": "the table itself: verbs run at once, and their results stay on the ranks",
    "pivot": _PIVOTED,
    "plot": "to_pandas(limit).plot",
    "pop": "select(column) and drop(column)",
    "reindex": "select(columns): tables have no index",
    "rolling": "assign(x=gl.col('x').rolling(3).mean()), and the like",
    "sem": "std('x') / count('x') ** 0.5",
    "set_index": "shuffle(on) or sort_values(by): tables have no index",
    "show": "head(n)",
    "sort": "sort_values(by)",
    "skew": "to_pandas(limit).skew()",
    "kurt": "to_pandas(limit).kurt()",
    "sql": "query(text), or DuckDB, which takes to_arrow(limit)",
    "sort_index": "sort_values(by): tables have no index",
    "stack": "melt(id_vars, value_vars)",
    "str": "gl.col('s').str in filter or assign",
    "style": "to_pandas(limit).style",
    "take": "head(n), tail(n) or filter(gl.col('x') > 0)",
    "iter_batches": "to_batches(rows)",
    "to_excel": _TO_DISK,
    "to_pickle": _TO_DISK,
    "to_records": "to_pandas(limit).to_records()",
    "to_sql": _TO_DISK,
    "to_string": "to_pandas(limit).to_string()",
    "transform": "assign(y=gl.col('x') * 2), or map_parts(f)",
    "unstack": _PIVOTED,
    "update": "join(other, on=keys, how='left') and assign(x=gl.col('x_y').fillna(gl.col('x_x')))",
    "values": "to_pandas(limit).to_numpy()",
    "withColumn": "assign(y=gl.col('x') * 2)",
}

_OF_GROUPS = {
    "aggregate": "agg({'x': 'sum'})",
    "apply": "agg({'x': 'sum'}), or shuffle(by).map_parts(f): there a rank has all rows of its groups",
    "describe": "groupby(keys)['x'].describe(), of one column after the other",
    "filter": "agg(n=('x', 'size')), filter(gl.col('n') > 1), and join of the table with that, how='semi'",
    "idxmax": "t.sort_values('x', ascending=False).groupby(keys).head(1): tables have no index, and these are the rows",
    "idxmin": "t.sort_values('x').groupby(keys).head(1): tables have no index, and these are the rows",
    "nlargest": "t.sort_values('x', ascending=False).groupby(keys).head(3)",
    "nsmallest": "t.sort_values('x').groupby(keys).head(3)",
    "prod": "shuffle(by).map_parts(f): there a rank has all rows of its groups",
    "sem": "agg(s=('x', 'std'), n=('x', 'count')) and assign(sem=gl.col('s') / gl.col('n') ** 0.5)",
}

OF_COLUMNS = {
    "alias": "t.assign(y=t.x): a column has its name where it is made",
    "ewm": "to_pandas(limit).ewm(...)",
    "explode": "t.map_parts(lambda part: part.explode('x'))",
    "argmax": "t.nlargest(1, 'x'), whose row has it",
    "argmin": "t.nsmallest(1, 'x'), whose row has it",
    "idxmax": "t.nlargest(1, 'x'): tables have no index",
    "idxmin": "t.nsmallest(1, 'x'): tables have no index",
    "interpolate": "to_pandas(limit).interpolate(), or ffill() and bfill()",
    "kurt": "to_pandas(limit).kurt()",
    "skew": "to_pandas(limit).skew()",
    "to_frame": "to_table()",
    "tz_localize": "astype('datetime64[ns, UTC]')",
    "apply": "t.map_parts(f), or what is computed of columns, as t.x * 2",
    "groupby": "t.groupby(keys)",
    "hist": "to_pandas(limit).hist()",
    "iloc": "head(n) or tolist(limit)",
    "loc": "t[condition]['x'], or head(n)",
    "plot": "to_pandas(limit).plot()",
    "to_list": "tolist(limit)",
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
    """Return the public name that a mistyped one was probably meant to be, columns first; "" where none is near."""
    if name.startswith("_"):
        return ""
    if name.startswith("plan_"):
        known = [f"plan_{verb}" for verb in dir(getattr(table, "plan", None)) if not verb.startswith("_")]
        return nearest(name, known)
    later = "_asy" in name
    known = [own for own in dir(type(table)) if not own.startswith("_") and (later or not own.endswith("_async"))]
    has_columns = hasattr(type(table), "released") and not table.released  # a table or a handle
    return (nearest_label(name, table.columns) if has_columns else "") or nearest(name, known)


def nearest_label(name: Any, columns: Iterable[Any]) -> str:
    """The column that a mistyped label was probably meant to be, whatever its capitals; "" where none is near."""
    known = {one.lower(): one for one in columns if isinstance(one, str)}
    return known.get(nearest(name.lower(), known), "") if isinstance(name, str) else ""


def no_such_column(error: ColumnMissing, name: Any, columns: Sequence[Any]) -> ColumnMissing:
    """The error for brackets with a label that is none, with what may have been meant: another, or a row."""
    if meant := nearest_label(name, columns):
        error.advice = f"Did you mean {meant!r}? {error.advice}"
    if columns and (not meant or _COUNTS & set(columns)):
        error.advice += f" Rows are chosen by a condition, as t[t[{columns[0]!r}] == {name!r}]."
    return error


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


def no_operator(table: Any, sign: str) -> Any:
    """Raise the error for ``t == u``, ``t + u`` and the like.

    Raises
    ------
    TypeError
    """
    raise TypeError(
        f"{type(table).__name__!r} objects have no {sign}: compute with columns, as t.x {sign} 1 in assign or filter; "
        "of two tables t.equals(other) says whether they are equal, and concat and join bring them together"
    )


# Functions of pandas that look into what they are given, and what does the same on the ranks.
_OF_PANDAS = {
    "concat": "gl.concat([t, u])",
    "merge": "t.merge(other, on='key')",
    "merge_asof": "t.merge_asof(other, on='time')",
    "merge_ordered": "t.merge(other, how='outer') and sort_values",
    "melt": "t.melt(id_vars, value_vars)",
    "pivot_table": "t.pivot_table(values, index, columns)",
    "pivot": "t.pivot_table(values, index, columns, 'first')",
    "crosstab": "gl.crosstab(t.a, t.b)",
    "get_dummies": "t.assign(a=(t.x == 'a').astype('int64')) for each value",
    "cut": "gl.cut(t.x, bins)",
    "qcut": "gl.cut(t.x, list(t.x.quantile([0, 0.5, 1])), include_lowest=True)",
}


def refuse_in_pandas() -> None:
    """Refuse, where a function of pandas asks whether something is a frame: its own error would not say what to call.

    Raises
    ------
    TypeError
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEEP):
        if frame is None:
            return
        name = frame.f_code.co_name
        if name in _OF_PANDAS and frame.f_globals.get("__name__", "").startswith("pandas.core.reshape."):
            raise TypeError(
                f"pd.{name} takes frames of pandas, and this table is on the ranks: use {_OF_PANDAS[name]}, or give it "
                "to_pandas(limit)"
            )
        frame = frame.f_back


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
    said = f"a group-by has no attribute {name!r}"
    if name in FUNCTIONS:
        said += f": use agg({{'x': {name!r}}}), or agg(new=('x', {name!r}))"
    elif name in _OF_GROUPS:
        said += f": use {_OF_GROUPS[name]}"
    return AttributeError(said, name=name, obj=groups)
