"""Arguments that no verb can use: by verb, what was given, and the words of the error. For ranks, handles and plans."""

from __future__ import annotations

from typing import Any

import pandas as pd

import gcylon_lab as gl

FRAME = pd.DataFrame({"k": [1, 2, 3, 4], "x": [0.5, 1.5, 2.5, None]})

# verb, arguments, named arguments, and what the error says: which argument, what was given, and what is allowed.
ODD: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("shuffle", (None,), {}, "Expected column labels for on, got None. Give a label, or a list of labels."),
    ("shuffle", ({"k"},), {}, "Expected column labels for on, got {'k'}. A set has no order: give a list of labels."),
    (
        "shuffle",
        (FRAME,),
        {},
        "column labels for on, got a DataFrame of 4. Give a label, or a list of labels, as list(",
    ),
    ("shuffle", (True,), {}, "Expected column labels for on, got True."),
    ("shuffle", ([],), {}, "on=[] is empty or names a column twice."),
    ("shuffle", ("k",), {"strategy": "fast"}, "strategy='fast' is invalid. Expected 'auto', 'direct', 'chunked' or"),
    ("shuffle", ("k",), {"strategy": None}, "strategy=None is invalid. Expected 'auto'"),
    ("shuffle", ("k",), {"config": {"chunk_size_bytes": 1}}, "GcylonConfig for config, got {'chunk_size_bytes': 1}."),
    ("gather", (True,), {}, "Expected a rank for root, got True."),
    ("gather", (99,), {}, "root=99 is out of range [0, "),
    ("broadcast", ("one",), {}, "Expected a rank for root, got 'one'."),
    ("repartition", ("12",), {}, "Expected a list of numbers of rows for rows_per_rank, got '12'."),
    ("sort_values", (1.5,), {}, "Expected column labels for by, got 1.5."),
    ("drop_duplicates", (), {"keep": "most"}, "keep='most' is invalid. Expected 'first', 'last' or False."),
    ("unique", ([],), {}, "columns=[] is empty or names a column twice."),
    ("join", (FRAME, "inner", "k"), {}, "Expected another table for join, got a DataFrame. Make one of it before"),
    ("join", (None,), {}, "Expected another table for join, got a NoneType."),
    ("union", (FRAME,), {}, "Expected another table for union, got a DataFrame."),
    ("concat", ([FRAME],), {}, "Expected another table for concat, got a DataFrame."),
]
PLANNED = list(ODD)  # a plan refuses the same in the same words
ODD += [
    ("shuffle", ("k",), {"keep_order": 1}, "keep_order=1 is invalid. Expected True or False."),
    ("shuffle", ("k",), {"timeout_s": "soon"}, "Expected a time for timeout_s, got 'soon'. Give seconds"),
    ("shuffle", ("k",), {"timeout_s": True}, "Expected a time for timeout_s, got True."),
    ("sort_values", ("k",), {"ascending": len}, "is invalid. Expected True or False, or a list"),
    ("sort_values", ("k",), {"na_position": FRAME}, "na_position=a DataFrame of 4 is invalid. Expected 'first'"),
    ("select", (None,), {}, "Expected column labels for columns, got None."),
    ("drop", ({"k": 1},), {}, "Expected column labels for columns, got {'k': 1}."),
    ("rename", ("k",), {}, "Expected a dict of new names, got 'k'."),
    ("filter", ("k > 1",), {}, "Expected a condition, got 'k > 1'."),
    ("assign", ("y",), {}, "assign was given 'y', which does not say how new columns are called."),
    ("assign", (), {"y": len}, "assign makes columns of expressions, not of functions."),
    ("fillna", (None,), {}, "value=None fills nothing."),
    ("dropna", (), {"how": "most"}, "how='most' is invalid. Expected 'any' or 'all'."),
    ("isin", ("abc",), {}, "Expected a list of values for values, got 'abc'. Pass a list, as ['abc']."),
    ("isin", (3,), {}, "Expected a list of values for values, got 3. Pass a list, as [3]."),
    ("isin", (None,), {}, "Expected a list of values for values, got None."),
    ("isin", ({"k": "abc"},), {}, "Expected a list of values for values['k'], got 'abc'."),
    ("isin", (FRAME,), {}, "Expected a list of values for values, got a DataFrame of 4."),
    ("isin", (gl.col("k"),), {}, "Expected a list of values for values, got "),
    ("map_parts", (3,), {}, "Expected a function, got 3."),
    ("map_parts", (abs,), {"by_chunk": "yes"}, "by_chunk='yes' is invalid. Expected True or False."),
    ("groupby", (None,), {}, "Expected column labels for by, got None."),
    ("groupby", ("k",), {"dropna": None}, "dropna=None is invalid. Expected True or False."),
    ("value_counts", ("k",), {"normalize": "yes"}, "normalize='yes' is invalid. Expected True or False."),
    ("tail", (-1,), {}, "Expected a number of rows for n, got -1."),
    ("head", ("all",), {}, "Expected a number of rows for n, got 'all'."),
    ("sample", (2,), {"seed": None}, "Expected a whole number for seed, got None."),
    ("sample", (), {"frac": "half"}, "Expected a finite number for frac, got 'half'."),
    ("var", ("k",), {"ddof": "one"}, "Expected a finite number for ddof, got 'one'."),
    ("quantile", (True, "k"), {}, "Expected a quantile in [0, 1] for q, got True."),
    ("sum", (), {"numeric_only": 1}, "numeric_only=1 is invalid. Expected True or False."),
    ("sum", (FRAME,), {}, "Expected column labels for columns, got a DataFrame of 4."),
    ("equals", (FRAME,), {}, "Expected another table for equals, got a DataFrame."),
    ("write_parquet", (None,), {}, "Expected a folder for path, got None."),
    ("write_csv", ("here",), {"header": 0}, "header=0 is invalid. Expected True or False."),
]  # fmt: skip


def name_of(case: object) -> str | None:
    return case[0] if isinstance(case, tuple) and case and isinstance(case[0], str) else None
