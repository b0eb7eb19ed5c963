"""Arguments that no verb can use: by verb, what was given, and the words of the error. For ranks, handles and plans."""

from __future__ import annotations

from typing import Any

import pandas as pd

import gcylon_lab as gl

FRAME = pd.DataFrame({"k": [1, 2, 3, 4], "x": [0.5, 1.5, 2.5, None]})

# verb, arguments, named arguments, and what the error says: which argument, what was given, and what is allowed.
ODD: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("shuffle", (None,), {}, "on=None names no column. Give a label, or a list of labels."),
    ("shuffle", ({"k"},), {}, "on={'k'} names no column. A set has no order: give a list of labels."),
    ("shuffle", (FRAME,), {}, "on=a DataFrame of 4 names no column. Give a label, or a list of labels, as list("),
    ("shuffle", (True,), {}, "on=True names no column."),
    ("shuffle", ([],), {}, "on=[] names no column, or one twice."),
    ("shuffle", ("k",), {"strategy": "fast"}, "strategy='fast' is invalid. Expected 'auto', 'direct', 'chunked' or"),
    ("shuffle", ("k",), {"strategy": None}, "strategy=None is invalid. Expected 'auto'"),
    ("shuffle", ("k",), {"config": {"chunk_size_bytes": 1}}, "is no GcylonConfig."),
    ("gather", (True,), {}, "root=True is no rank."),
    ("gather", (99,), {}, "root=99 is no rank."),
    ("broadcast", ("one",), {}, "root='one' is no rank."),
    ("repartition", ("12",), {}, "rows_per_rank='12' is no list of numbers of rows."),
    ("sort_values", (1.5,), {}, "by=1.5 names no column."),
    ("drop_duplicates", (), {"keep": "most"}, "keep='most' is invalid. Expected 'first', 'last' or False."),
    ("unique", ([],), {}, "columns=[] names no column, or one twice."),
    ("join", (FRAME, "inner", "k"), {}, "join takes another table, but this is a DataFrame. Make one of it before"),
    ("join", (None,), {}, "join takes another table, but this is a NoneType."),
    ("union", (FRAME,), {}, "union takes another table, but this is a DataFrame."),
    ("concat", ([FRAME],), {}, "concat takes another table, but this is a DataFrame."),
]
PLANNED = list(ODD)  # a plan refuses the same in the same words
ODD += [
    ("shuffle", ("k",), {"keep_order": 1}, "keep_order=1 is neither True nor False. Give one of them."),
    ("shuffle", ("k",), {"timeout_s": "soon"}, "timeout_s='soon' is no time. Give seconds"),
    ("shuffle", ("k",), {"timeout_s": True}, "timeout_s=True is no time."),
    ("sort_values", ("k",), {"ascending": len}, "is neither True nor False. Give True or False, or a list"),
    ("sort_values", ("k",), {"na_position": FRAME}, "na_position=a DataFrame of 4 is invalid. Expected 'first'"),
    ("select", (None,), {}, "columns=None names no column."),
    ("drop", ({"k": 1},), {}, "columns={'k': 1} names no column."),
    ("rename", ("k",), {}, "'k' are no new names."),
    ("filter", ("k > 1",), {}, "'k > 1' is no condition."),
    ("assign", ("y",), {}, "assign was given 'y', which does not say how new columns are called."),
    ("assign", (), {"y": len}, "assign makes columns of expressions, not of functions."),
    ("fillna", (None,), {}, "value=None fills nothing."),
    ("dropna", (), {"how": "most"}, "how='most' is invalid. Expected 'any' or 'all'."),
    ("isin", ("abc",), {}, "values='abc' is no list of values. Pass a list, as ['abc']."),
    ("isin", (3,), {}, "values=3 is no list of values. Pass a list, as [3]."),
    ("isin", (None,), {}, "values=None is no list of values."),
    ("isin", ({"k": "abc"},), {}, "values['k']='abc' is no list of values."),
    ("isin", (FRAME,), {}, "values=a DataFrame of 4 is no list of values."),
    ("isin", (gl.col("k"),), {}, "is no list of values."),
    ("map_parts", (3,), {}, "3 is no function."),
    ("map_parts", (abs,), {"by_chunk": "yes"}, "by_chunk='yes' is neither True nor False."),
    ("groupby", (None,), {}, "by=None names no column."),
    ("groupby", ("k",), {"dropna": None}, "dropna=None is neither True nor False."),
    ("value_counts", ("k",), {"normalize": "yes"}, "normalize='yes' is neither True nor False."),
    ("tail", (-1,), {}, "n=-1 is no number of rows."),
    ("head", ("all",), {}, "n='all' is no number of rows."),
    ("sample", (2,), {"seed": None}, "seed=None is no whole number."),
    ("sample", (), {"frac": "half"}, "frac='half' is no number."),
    ("var", ("k",), {"ddof": "one"}, "ddof='one' is no number."),
    ("quantile", (True, "k"), {}, "q=True is no quantile."),
    ("sum", (), {"numeric_only": 1}, "numeric_only=1 is neither True nor False."),
    ("sum", (FRAME,), {}, "columns=a DataFrame of 4 names no column."),
    ("equals", (FRAME,), {}, "equals takes another table, but this is a DataFrame."),
    ("write_parquet", (None,), {}, "path=None is no path."),
    ("write_csv", ("here",), {"header": 0}, "header=0 is neither True nor False."),
]  # fmt: skip


def name_of(case: object) -> str | None:
    return case[0] if isinstance(case, tuple) and case and isinstance(case[0], str) else None
