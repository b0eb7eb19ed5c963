"""What pandas and dask call otherwise: errors that name the verb to use instead."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

from ...backends.protocol.aggregation import FUNCTIONS
from ...backends.protocol.methods.named_operators import OF_EXPRESSIONS
from ...backends.protocol.schema import shown_labels
from ...config import nearest
from ...errors import ColumnMissing

_NO_INDEX = "a column: tables have no index"
_PIVOTED = "pivot_table(values, index, columns, 'first')"
_TO_DISK = "to_pandas(limit), or write_parquet(folder), write_csv(folder)"

_COUNTS = frozenset(("count", "proportion", "size"))  # columns beside values, which pandas has as labels of rows

_SHOWN = 6  # columns, in the words of an error

_DEEP = 12  # frames that pandas has between a function and its look at an argument

_HERE = {
    "T": "to_pandas(limit).T",
    "aggregate": "agg({'x': 'sum'})",
    "align": "join(other, on=keys)",
    "append": "concat(others)",
    "apply": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "applymap": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "arrow": "to_arrow(limit)",
    "asfreq": "resample(rule, on='time')",
    "at": "filter(gl.col('x') > 0) and select(columns)",
    "at_time": "filter(gl.col('time').dt.hour == 9)",
    "attrs": "a dict of your own beside the table",
    "axes": "columns: tables have no index",
    "between_time": "filter(gl.col('time').dt.hour.between(9, 16))",
    "bottom_k": "nsmallest(n, 'x')",
    "boxplot": "describe(), or to_pandas(limit).boxplot()",
    "cache": "the table itself: results stay on the ranks",
    "clone": "the table itself: no verb changes it",
    "collect_schema": "schema, or dtypes",
    "combine_first": "join(other, on=keys, how='outer') and assign(x=gl.col('x_x').fillna(gl.col('x_y')))",
    "compare": "why_not_equal(other)",
    "compute": "to_pandas(); verbs run at once, and nothing waits to be computed",
    "convert_dtypes": "astype({'x': 'float64'})",
    "cumcount": "reset_index(), which numbers rows",
    "df": "to_pandas(limit)",
    "distinct": "drop_duplicates() or unique(columns)",
    "divisions": "info(): rows lie in no order of an index",
    "drop_nans": "dropna()",
    "drop_nulls": "dropna()",
    "estimated_size": "nbytes",
    "ewm": "to_pandas(limit).ewm(...)",
    "execute": "to_pandas(limit), or to_arrow(limit)",
    "expanding": "assign(x=gl.col('x').expanding().mean()), and the like",
    "explode": "map_parts(lambda part: part.explode('x'))",
    "extend": "concat(others)",
    "fetch": "head(n)",
    "fetchall": "to_pandas(limit), or to_dict('records')",
    "fetchdf": "to_pandas(limit)",
    "fetchone": "head(1)",
    "fill_nan": "fillna(0)",
    "fill_null": "fillna(0)",
    "first": "head(n)",
    "get_column": "t['x']",
    "get_partition": "map_parts(f), which takes the part of each rank",
    "glimpse": "head(n), dtypes or info()",
    "group_by_dynamic": "resample('D', on='time')",
    "groupBy": "groupby(keys)",
    "height": "num_rows, or len(t)",
    "hist": "t.x.histogram(bins), which counts on the ranks, or to_pandas(limit).hist()",
    "hstack": "assign(y=gl.col('x') * 2), or join(other, on=keys)",
    "iat": "head(n), tail(n) or filter(gl.col('x') > 0)",
    "idxmax": "filter(gl.col('x') == t.max('x')): tables have no index",
    "idxmin": "filter(gl.col('x') == t.min('x')): tables have no index",
    "index": _NO_INDEX,
    "infer_objects": "astype({'x': 'float64'})",
    "insert": "assign(y=gl.col('x') * 2), and select(columns) for their order",
    "interpolate": "to_pandas(limit).interpolate(), or ffill() and bfill()",
    "is_duplicated": "duplicated(keep=False)",
    "is_empty": "empty",
    "is_unique": "~t.duplicated(keep=False)",
    "item": "head(1), or a reduction, as t.x.sum()",
    "items": "columns, and select(column) for each",
    "iter_batches": "to_batches(rows)",
    "iter_rows": "to_batches(rows), or to_pandas(limit)",
    "iter_slices": "to_batches(rows)",
    "iterrows": "map_parts(f), or to_pandas(limit)",
    "itertuples": "map_parts(f), or to_pandas(limit)",
    "join_asof": "merge_asof(other, on='time', by='key')",
    "join_where": "join(other, how='cross') and filter(condition)",
    "keys": "columns",
    "kurt": "to_pandas(limit).kurt()",
    "kurtosis": "to_pandas(limit).kurtosis()",
    "last": "tail(n)",
    "lazy": "the table itself: row-wise verbs wait until rows are needed",
    "len": "num_rows, or len(t)",
    "limit": "head(n)",
    "map": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "map_batches": "map_parts(f, by_chunk=True)",
    "map_partitions": "map_parts(f)",
    "map_rows": "map_parts(f), or assign(y=gl.col('x') * 2)",
    "max_horizontal": "np.maximum(t.x, t.y)",
    "mean_horizontal": "(t.x + t.y) / 2",
    "memory_usage": "nbytes, tiers, or info()",
    "min_horizontal": "np.minimum(t.x, t.y)",
    "mode": "value_counts('x').head(1)",
    "n_unique": "nunique()",
    "npartitions": "info(): a table has one part on each rank, of some chunks",
    "null_count": "isna().sum()",
    "order": "sort_values(by)",
    "orderBy": "sort_values(by)",
    "order_by": "sort_values(by)",
    "partition_by": "groupby(keys)",
    "partitions": "map_parts(f), which takes the part of each rank",
    "persist": "the table itself: verbs run at once, and their results stay on the ranks",
    "pivot": _PIVOTED,
    "pl": "to_polars(limit)",
    "plot": "to_pandas(limit).plot",
    "pop": "select(column) and drop(column)",
    "printSchema": "dtypes",
    "prod": "np.exp(np.log(t.x).sum()), or to_pandas(limit).prod()",
    "product": "np.exp(np.log(t.x).sum()), or to_pandas(limit).prod()",
    "project": "select(columns), or assign(y=gl.col('x') * 2)",
    "rechunk": "repartition()",
    "reindex": "select(columns): tables have no index",
    "remove": "filter(~condition)",
    "rename_axis": "rename({'x': 'y'}): tables have no index",
    "reverse": "sort_values(by, ascending=False)",
    "rolling": "assign(x=gl.col('x').rolling(3).mean()), and the like",
    "sort_by": "sort_values(by)",
    "to_delayed": "map_parts(f)",
    "row": "iloc[3]",
    "rows": "to_pandas(limit), or to_dict('records')",
    "sem": "std('x') / count('x') ** 0.5",
    "set_axis": "rename({'x': 'y'})",
    "set_index": "columns, as tables have no index: resample('D', on='time'), join(other, on='x'), sort_values('x')",
    "show": "head(n)",
    "sink_csv": "write_csv(folder)",
    "sink_ipc": "write_ipc(folder)",
    "sink_ndjson": "write_json(folder)",
    "sink_parquet": "write_parquet(folder)",
    "skew": "to_pandas(limit).skew()",
    "slice": "t[5:9]",
    "sort": "sort_values(by)",
    "sort_index": "sort_values(by): tables have no index",
    "sql": "query(text), or DuckDB, which takes to_arrow(limit)",
    "squeeze": "t['x']",
    "stack": "melt(id_vars, value_vars)",
    "str": "gl.col('s').str in filter or assign",
    "style": "to_pandas(limit).style",
    "sum_horizontal": "t.x + t.y",
    "take": "head(n), tail(n) or filter(gl.col('x') > 0)",
    "to_clipboard": "to_pandas(limit).to_clipboard()",
    "to_df": "to_pandas(limit)",
    "to_dicts": "to_dict('records')",
    "to_dummies": "assign(a=(gl.col('x') == 'a').astype('int64')) for each value",
    "to_excel": _TO_DISK,
    "to_frame": "the table itself",
    "to_hdf": _TO_DISK,
    "to_html": "to_pandas(limit).to_html()",
    "to_latex": "to_pandas(limit).to_latex()",
    "to_list": "t['x'].tolist(limit)",
    "to_markdown": "to_pandas(limit).to_markdown()",
    "to_orc": _TO_DISK,
    "to_pickle": _TO_DISK,
    "to_records": "to_pandas(limit).to_records()",
    "to_series": "t['x']",
    "to_sql": _TO_DISK,
    "to_string": "to_pandas(limit).to_string()",
    "to_xarray": "to_pandas(limit).to_xarray()",
    "tolist": "t['x'].tolist(limit)",
    "transform": "assign(y=gl.col('x') * 2), or map_parts(f)",
    "transpose": "to_pandas(limit).T",
    "truncate": "filter(gl.col('x') > 0)",
    "tz_convert": "astype({'time': 'datetime64[us, UTC]'})",
    "tz_localize": "assign(time=t.time.dt.tz_localize(None)), which leaves a zone out; put one in before",
    "unnest": "map_parts(f)",
    "unpivot": "melt(id_vars, value_vars)",
    "unstack": _PIVOTED,
    "update": "join(other, on=keys, how='left') and assign(x=gl.col('x_y').fillna(gl.col('x_x')))",
    "values": "to_pandas(limit).to_numpy()",
    "vstack": "concat(others)",
    "width": "num_columns",
    "withColumn": "assign(y=gl.col('x') * 2)",
    "withColumnRenamed": "rename({'x': 'y'})",
    "with_row_count": "reset_index(), which numbers rows",
    "with_row_index": "reset_index(), which numbers rows",
    "write_database": _TO_DISK,
    "write_excel": _TO_DISK,
    "write_ndjson": "write_json(folder)",
    "xs": "filter(gl.col('k') == 1)",
}

_OF_GROUPS = {
    "aggregate": "agg({'x': 'sum'})",
    "apply": "agg({'x': 'sum'}), or shuffle(by).map_parts(f): there a rank has all rows of its groups",
    "corr": "shuffle(by).map_parts(f): there a rank has all rows of its groups",
    "describe": "groupby(keys)['x'].describe(), of one column after the other",
    "filter": "agg(n=('x', 'size')), filter(gl.col('n') > 1), and join of the table with that, how='semi'",
    "groups": "t.unique(keys), or get_group(key) for the rows of one",
    "indices": "t.unique(keys), or get_group(key) for the rows of one",
    "idxmax": "t.sort_values('x', ascending=False).groupby(keys).head(1): tables have no index, and these are the rows",
    "idxmin": "t.sort_values('x').groupby(keys).head(1): tables have no index, and these are the rows",
    "len": "size()",
    "nlargest": "t.sort_values('x', ascending=False).groupby(keys).head(3)",
    "nsmallest": "t.sort_values('x').groupby(keys).head(3)",
    "n_unique": "nunique()",
    "ohlc": "agg(open=('x', 'first'), high=('x', 'max'), low=('x', 'min'), close=('x', 'last'))",
    "pipe": "agg({'x': 'sum'})",
    "plot": "agg({'x': 'sum'}), and to_pandas(limit).plot() of that",
    "resample": "groupby([keys, pd.Grouper(key='time', freq='D')])",
    "sample": "shuffle(by).map_parts(f): there a rank has all rows of its groups",
    "prod": "shuffle(by).map_parts(f): there a rank has all rows of its groups",
    "unique": "t.unique(['k', 'x']), or agg({'x': list})",
    "value_counts": "t.value_counts(['k', 'x'])",
    "sem": "agg(s=('x', 'std'), n=('x', 'count')) and assign(sem=gl.col('s') / gl.col('n') ** 0.5)",
}

OF_COLUMNS = OF_EXPRESSIONS | {
    "arg_max": "t.nlargest(1, 'x'), whose row has it",
    "arg_min": "t.nsmallest(1, 'x'), whose row has it",
    "argmax": "t.nlargest(1, 'x'), whose row has it",
    "argmin": "t.nsmallest(1, 'x'), whose row has it",
    "argsort": "t.sort_values('x')",
    "array": "to_numpy(limit)",
    "autocorr": "t.x.corr(t.x.shift(1))",
    "bottom_k": "nsmallest(n)",
    "convert_dtypes": "astype('float64')",
    "copy": "the column itself: nothing changes it",
    "drop_nulls": "dropna()",
    "duplicated": "t.duplicated('x')",
    "ewm": "to_pandas(limit).ewm(...)",
    "cut": "gl.cut(t.x, bins)",
    "equals": "(t.x != t.y).any()",
    "factorize": "t.groupby('x').ngroup()",
    "filter": "t.filter(condition), or t[condition]['x']",
    "first": "head(1)",
    "groupby": "t.groupby(keys)",
    "has_nulls": "hasnans",
    "hist": "histogram(bins), which counts on the ranks, or to_pandas(limit).hist()",
    "idxmax": "t.nlargest(1, 'x'): tables have no index",
    "idxmin": "t.nsmallest(1, 'x'): tables have no index",
    "index": "head(n): tables have no index",
    "is_monotonic_increasing": "(t.x.diff() < 0).any(), which says whether it is not",
    "item": "head(1), or a reduction, as t.x.sum()",
    "items": "tolist(limit)",
    "kurt": "to_pandas(limit).kurt()",
    "last": "tail(1)",
    "len": "count(), or len(t.x)",
    "limit": "head(n)",
    "loc": "t[condition]['x'], or head(n)",
    "n_unique": "nunique()",
    "null_count": "isna().sum()",
    "plot": "to_pandas(limit).plot()",
    "prod": "np.exp(np.log(t.x).sum()), or to_pandas(limit).prod()",
    "resample": "t.resample('D', on='time')['x']",
    "reset_index": "to_table(), or head(n): tables have no index",
    "sample": "t.sample(n)['x']",
    "searchsorted": "gl.cut(t.x, bins, labels=False)",
    "skew": "to_pandas(limit).skew()",
    "sort": "sort_values()",
    "sort_index": "sort_values(): tables have no index",
    "to_arrow": "to_table().to_arrow(limit)",
    "to_csv": "to_table().write_csv(folder), or to_pandas(limit).to_csv(path)",
    "to_dict": "to_pandas(limit).to_dict()",
    "to_frame": "to_table()",
    "to_list": "tolist(limit)",
    "to_parquet": "to_table().write_parquet(folder)",
    "top_k": "nlargest(n)",
    "tz_localize": "t.time.dt.tz_localize(None), which leaves a zone out; put one in before",
    "unique_counts": "value_counts()",
}


def no_attribute(table: Any, name: str, instead: Mapping[str, str] = _HERE) -> AttributeError:
    """Make the error for a name that a table has not; a private name is asked for by programs, and gets no advice."""
    said = f"{type(table).__name__!r} object has no attribute {name!r}"
    if name in instead:
        said += f": use {instead[name]}"
    elif meant := nearest_verb(table, name):
        # Without the object, so that Python does not say the same once more where it shows it; IPython never does.
        return AttributeError(f"{said}: did you mean {meant!r}?")
    elif not name.startswith("_"):
        said += _what_there_is(table)
    return AttributeError(said, name=name, obj=table)


def _what_there_is(table: Any) -> str:
    """Where to look, for a name that resembles none, as the end of a sentence."""
    if hasattr(table, "to_table"):  # a column
        return ": dir(t.x) lists its methods, and t.map_parts(f) runs what pandas has on each rank's rows"
    if not hasattr(type(table), "released"):  # a cluster
        return ": dir(lab) lists what it has"
    if table.released:
        return ""
    names = table.columns
    shown = shown_labels(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return (
        f": it is no column ({shown}) and no verb, which dir(t) lists; t.map_parts(f) runs what pandas has on each "
        "rank's rows, and to_pandas(limit) brings rows here"
    )


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
    if isinstance(name, bool):  # which a pivot has as text
        name = str(name)
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
    elif key is None and len(table.columns) == 1:
        said += f"one goes over the values of t[{table.columns[0]!r}]; or "
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
    "factorize": "t.groupby('x').ngroup()",
    "isna": "t.x.isna()",
    "notna": "t.x.notna()",
    "to_datetime": "t.x.astype('datetime64[us]'), or parse_dates= of read_csv",
    "to_numeric": "t.x.astype('float64')",
    "to_timedelta": "t.x.astype('timedelta64[us]')",
    "unique": "t.x.unique()",
    "value_counts": "t.x.value_counts()",
}
_OF_TABLES = "pandas.core.reshape."
_OF_COLUMNS = ("pandas.core.tools.", "pandas.core.algorithms", "pandas.core.dtypes.missing")  # which pandas calls too


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
        name, module, caller = frame.f_code.co_name, _module(frame), _module(frame.f_back)
        asked = module.startswith(_OF_COLUMNS) and not caller.startswith("pandas.core.")
        if name in _OF_PANDAS and (asked or module.startswith(_OF_TABLES)):
            raise TypeError(
                f"pd.{name} takes data of this process, and this table is on the ranks: use {_OF_PANDAS[name]}, or "
                "give it to_pandas(limit)"
            )
        frame = frame.f_back


def _module(frame: FrameType | None) -> str:
    return frame.f_globals.get("__name__", "") if frame is not None else ""


def no_new_item(table: Any, name: str = "") -> TypeError:
    """Make the error for ``t["x"] = ...``, ``t.x = ...`` and ``del t["x"]``."""
    if name == "columns":
        return TypeError(
            f"{type(table).__name__!r} object is never changed: make another table, as t = t.rename(str.lower) or "
            "t = t.rename(dict(zip(t.columns, names)))"
        )
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
    elif not name.startswith("_"):
        own = [one for one in dir(groups) if not one.startswith("_") and not one.endswith("_async")]
        of_all = getattr(groups, "_groups", groups)  # columns were chosen of these
        meant = nearest_label(name, of_all._source.columns) or nearest(name, own)
        said += f": did you mean {meant!r}?" if meant else ": dir() of it lists what there is"
    return AttributeError(said, name=name, obj=groups)
