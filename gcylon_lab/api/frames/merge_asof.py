"""Rows beside the last row of another table that is not after them, made of verbs.

Keys of both tables are sorted together; the last row of the other table before each row is the last value that is
there, as `ffill` finds it; then the two are joined by the numbers of their rows.
"""

from __future__ import annotations

from typing import Any

from ...backends.protocol.expressions import col, lit
from ...backends.protocol.scalars import check_choice, check_flags
from ...engine.exec.align_schemas import new_label
from ...engine.exec.invocation import check_labels, listed
from ...errors import ArgumentError
from ..verbs.brackets import plain_label


def merge_asof(
    left: Any, right: Any, on: Any, by: Any, direction: str, tolerance: Any, allow_exact_matches: bool, suffixes: Any
) -> Any:
    """See `gcylon_lab.api.frames.names.Frames.merge_asof`."""
    check_flags(allow_exact_matches=allow_exact_matches)
    check_choice("direction", direction, ("backward", "forward"))
    key, groups = plain_label(on), [] if by is None else listed(plain_label(by))
    if not hasattr(right, "merge_asof"):
        raise ArgumentError(
            f"Expected another table for merge_asof, got a {type(right).__name__}.",
            advice="Make one of it before: lab.from_pandas(frame).",
        )
    for table in (left, right):
        check_labels([key, *groups], table.columns)
    taken = [*left.columns, *right.columns]
    held = right.schema[key]
    exact = ("UInt64" if held.dtype.kind == "u" else "Int64") if held.fixed and held.kind == "int" else None
    row, match, side, near = (new_label(taken, name) for name in ("row", "match", "side", "near"))
    numbered = left.assign({row: lit(1)._window("cumsum") - 1})
    others = right.assign(
        {match: (lit(1)._window("cumsum") - 1).astype("float64"), near: col(key).astype(exact) if exact else col(key)}
    )
    first = 0 if allow_exact_matches else 2
    both = numbered.select([*groups, key, row]).assign({side: 1})
    both = both.concat(others.select([*groups, key, match, near]).assign({side: first}))
    up = direction == "backward"
    both = both.sort_values([key, side, match], ascending=[up, True, up])
    found = {match: col(match).ffill(), near: col(near).ffill()}
    if groups:
        found = {name: one.over(groups) for name, one in found.items()}
    pairs = both.assign(found).filter(col(side) == 1)
    is_near = col(key).notna()  # those without a key come last in the order, after all others
    if tolerance is not None:
        is_near = is_near & ((col(key) - col(near) if up else col(near) - col(key)) <= tolerance)
    pairs = pairs.assign({match: col(match).where(is_near, None)})
    pairs = pairs.select([row, match])
    with_match = numbered.join(pairs.astype({row: "int64"}), on=row)
    wanted = others.select([name for name in others.columns if name not in (key, near, *groups)])
    joined = with_match.join(wanted, how="left", on=match, suffixes=suffixes)
    made = joined.sort_values(row)
    return made.select([name for name in made.columns if name not in (row, match)])
