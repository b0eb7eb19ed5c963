"""Arguments as they are given, and functions' own: those of other libraries are taken where they mean the same."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ....config import nearest

C = TypeVar("C", bound=type)

# What pandas and polars call otherwise.
_SAME = {"sep": "delimiter", "separator": "delimiter", "usecols": "columns", "random_state": "seed"}

_WRITERS = ("write_csv", "write_parquet", "write_json", "write_ipc")
_REDUCTIONS = ("sum", "mean", "min", "max", "count", "any", "all", "var", "std", "median", "quantile", "nunique")

# What is done anyway, by the argument that would ask for it, and of which functions.
_DONE_ANYWAY: dict[str, tuple[tuple[Sequence[str], Sequence[Any]], ...]] = {
    "axis": ((_REDUCTIONS, (0, "index")), (("drop", "rename"), (1, "columns"))),
    "center": ((("rolling",), (False,)),),
    "dropna": ((("nunique",), (True,)),),
    "expand": ((("split",), (False,)),),
    "ignore_index": ((("drop_duplicates", "sort_values", "dropna", "concat", "sample"), (True,)),),
    "inclusive": ((("between",), ("both",)),),
    "index": ((_WRITERS, (False,)),),
    "inplace": ((("drop", "rename", "fillna", "dropna", "sort_values", "drop_duplicates"), (False,)),),
    "kind": ((("sort_values",), ("quicksort", "mergesort", "heapsort", "stable")),),
    "keep": ((("nlargest", "nsmallest"), ("first",)),),
    "lines": ((("read_json", "write_json"), (True,)),),
    "margins": ((("pivot_table",), (False,)),),
    "na_option": ((("rank",), ("keep",)),),
    "observed": ((("groupby",), (True,)),),
    "skipna": ((_REDUCTIONS, (True,)),),
}

# What to do instead of giving one; where functions differ, after the function's name.
_INSTEAD = {
    "drop.axis": "drop leaves columns out; rows are left out by a condition, as t[t.x != 1]",
    "Cluster.memory_limit": "give config=gl.GcylonConfig(gpu_memory_limit='64MiB')",
    "axis": "verbs go down columns: leave it out; along rows gl.col('x') + gl.col('y') goes",
    "center": "a window ends at its row: move what is computed, as gl.col('x').rolling(5).mean().shift(-2)",
    "chunksize": "files are read in parts anyway: leave it out; t.to_batches(rows) gives rows piece by piece",
    "engine": "there is one reader: leave it out",
    "errors": "what cannot be done is an error: leave it out",
    "expand": "take one piece after the other, as gl.col('s').str.split('-')[0]",
    "filter.*": "give a condition, as t.filter(t.{given} == 1)",
    "filter.items": "select(columns) chooses columns",
    "filter.like": "select(columns) chooses columns",
    "filter.regex": "select(columns) chooses columns",
    "histogram.range": "give edges as bins=, as bins=[0, 10, 20]",
    "ignore_index": "tables have no index: leave it out",
    "inclusive": "both ends are within: for others combine conditions, as (t.x > 1) & (t.x < 5)",
    "index": "tables have no index, and none is written: leave it out, or give index=False",
    "index_col": "tables have no index: leave it out",
    "inplace": "tables are never changed: leave it out, and take the result, as in t = t.{verb}(...)",
    "interpolation": "quantiles lie on a line between two values: leave it out",
    "key": "make a column of it with assign, and give its name",
    "left_index": "tables have no index: give on=, or left_on= and right_on=",
    "lines": "files hold one JSON object a line: leave it out, or give lines=True",
    "groupby.level": "tables have no index: give by=",
    "lsuffix": "give suffixes=('_l', '_r')",
    "rsuffix": "give suffixes=('_l', '_r')",
    "suffix": "give suffixes=('', '_r')",
    "value_counts.bins": "count bins, as gl.cut(t.x, 3).value_counts()",
    "weights": "each row is as likely as another: leave it out",
    "low_memory": "files are read in parts anyway: leave it out",
    "margins": "t.groupby(keys).sum() has the sums of rows, and of columns; to_pandas(limit).pivot_table has all",
    "corr.method": "it is Pearson's: give ranks, as t.x.rank().corr(t.y.rank()), for Spearman's",
    "descending": "give ascending=False",
    "drop.index": "rows are left out by a condition, as t[t.x != 1]",
    "rename.index": "tables have no index: give columns=",
    "split.n": "split('-')[0] is the first piece, and .str.extract('-(.*)') what is after it",
    "dropna.axis": "rows are left out: t.drop(columns) leaves out columns",
    "dropna.thresh": "give a condition, as t[t.x.notna() & t.y.notna()]",
    "encoding": "files are UTF-8: convert them before",
    "kind": "rows with equal keys stay in their order: leave it out",
    "method": "ffill() and bfill() do that",
    "names": "give header=False where files have none, and take t.rename(dict(zip(t.columns, names)))",
    "n_workers": "give the number of ranks, as gl.Cluster(2)",
    "normalize": "divide what is counted, as t.assign(part=t.x / t.x.sum())",
    "skiprows": "files begin with their header: take lines before it away",
    "thousands": "read the column as text, by dtype={{'x': 'str'}}, and then t.x.str.replace(',', '').astype('int64')",
    "unique.subset": "give columns=, whose different values it has; drop_duplicates(subset) keeps whole rows",
    "na_option": "missing values have no place: leave it out, and give fillna(0) or the like before",
    "na_values": "read the column as text, by dtype={{'x': 'str'}}, and then t.assign(x=t.x.mask(t.x == '?'))",
    "npartitions": "a table has one part on each rank: rows_per_rank= says how many rows each gets",
    "nrows": "read the files, and take t.head(n); columns= and filters= say what is read of them",
    "nunique.dropna": "missing values are not counted: leave it out, or add 1 where t.x.hasnans",
    "observed": "only groups that have rows are made, whatever the categories: leave it out, or give observed=True",
    "random_state": "give seed=",
    "replace.regex": "whole values are replaced; t.assign(s=t.s.str.replace('a', 'b')) replaces pieces of texts",
    "replace": "each row is taken at most once: leave it out",
    "select.*": "select keeps columns as they are: t.assign({given}=gl.col('x') * 2) makes new ones",
    "right_index": "tables have no index: give on=, or left_on= and right_on=",
    "single_file": "each rank writes a file of its own: leave it out; t.to_pandas(None).to_csv(path) makes one",
    "skipna": "missing values are always skipped: leave it out",
    "subset": "give columns=",
}

_OF_A_COLUMN = ("by", "columns", "column")
_OF_A_KEY = ("groupby", "shuffle")  # whose example has the first column; others have the last, which is a result's own
_SHOWN = 6  # columns, in the words of an error


def fit(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Fit arguments to a function's.

    Parameters
    ----------
    name : str
        The function's.
    signature : inspect.Signature
    args, kwargs
        As called.

    Raises
    ------
    TypeError
        If they do not fit; it says what to write.
    """
    try:
        return signature.bind(*args, **kwargs)
    except TypeError:
        taken = _in_own_words(name, signature, kwargs)
    try:
        return signature.bind(*args, **taken)
    except TypeError as error:
        unknown = next((given for given in taken if given not in signature.parameters), "")
        meant = nearest(unknown, [own for own in signature.parameters if own != "self"]) if unknown else ""
        instead = (
            _INSTEAD.get(f"{name}.{unknown}") or _INSTEAD.get(unknown) or (not meant and _INSTEAD.get(f"{name}.*"))
        )
        if unknown and instead:
            hint = instead.format(verb=name, given=unknown)
        elif unknown:
            hint = f"did you mean {meant!r}?" if meant else ""
        else:
            hint = _whole(name, signature, args, taken)
        raise TypeError(f"{name}() {error}{': ' if hint else ''}{hint}") from None


def in_own_words(kind: C) -> C:
    """Class decorator: methods of which an argument does not fit say what to write, and name no class."""
    for name, method in list(vars(kind).items()):
        if name.startswith("_") or not inspect.isfunction(method) or hasattr(method, "__wrapped__"):
            continue
        signature = inspect.signature(method)
        if not any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values()):
            setattr(kind, name, _fitting(name, method, signature))
    return kind


def _fitting(name: str, method: Any, signature: inspect.Signature) -> Any:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = fit(name, signature, args, kwargs)
        return method(*bound.args, **bound.kwargs)

    return call


def _in_own_words(name: str, signature: inspect.Signature, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their own names, without those that ask for what is done anyway."""
    own = signature.parameters
    taken: dict[str, Any] = {}
    for given, value in kwargs.items():
        if given not in own and _is_done(name, given, value):
            continue
        same = _SAME.get(given, given)
        taken[same if given not in own and same in own and same not in kwargs else given] = value
    return taken


def _is_done(name: str, given: str, value: Any) -> bool:
    for functions, values in _DONE_ANYWAY.get(given, ()):
        if name in functions:
            return any(type(value) is type(one) and value == one for one in values)
    return False


def _whole(name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """How to call a function of which an argument is missing: for a column of a table with one of its own."""
    own = [one for one in signature.parameters.values() if one.name != "self"]
    needed = [one for one in own if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    given = list(args[1:]) if "self" in signature.parameters else list(args)
    missing = [one for one in needed[len(given) :] if one.name not in kwargs]
    columns = getattr(args[0], "columns", None) if args else None
    if (
        len(missing) == 1
        and isinstance(columns, list)
        and columns
        and (name in _OF_A_KEY or missing[0].name in _OF_A_COLUMN)
    ):
        chosen = columns[0 if name in _OF_A_KEY else -1]
        texts = [*map(_text, given), repr(chosen), *(f"{key}={_text(value)}" for key, value in kwargs.items())]
        return f"this is a table with {_words(columns)}; write {name}({', '.join(texts)})"
    if not missing:
        return _INSTEAD.get(name, "")
    texts = [one.name if one.kind is not one.KEYWORD_ONLY else f"{one.name}=..." for one in needed]
    return f"write {name}({', '.join(texts)}{', ...' if len(own) > len(needed) else ''})"


def _words(columns: Sequence[Any]) -> str:
    if len(columns) == 1:
        return f"the column {columns[0]}"
    if len(columns) > _SHOWN:
        return f"{len(columns)} columns, {', '.join(map(str, columns[:_SHOWN]))} and others"
    return f"the columns {', '.join(map(str, columns[:-1]))} and {columns[-1]}"


def _text(value: Any) -> str:
    """A value as it was typed, where it is a plain one."""
    plain = isinstance(value, (str, int, float, bool)) or value is None
    return repr(value) if plain else "..."
