"""A group whose rows do not fit at once: what is computed of it is found in passes over them, or in buckets of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ...backends.host.sorting import array_at
from ...backends.host.take import as_column
from ...backends.protocol.aggregation import Aggregations, Kernel, mergeable_steps, whole_rows
from ...backends.protocol.data import Array, Columns, Data
from ...backends.protocol.schema import Label, Schema
from ...engine.exec.align_schemas import new_label
from ...engine.store.part import Part
from ...engine.store.views import view_of
from ...errors import BudgetExceeded
from ...memory.budget import Reservation, exceeded
from .group_counts import KeysSeen
from .one_table import Grouped
from .order_statistics import quantile_positions, select_words

_BY_PASSES = ("median", "quantile")
_WORTH = 2.0  # rows of a value, for partial results
_ROWS_A_KEY = 4  # where rows do not fit at once, and may be brought together of partial results


class Groups(Grouped, Protocol):
    """What large groups are computed with; see `HashAggregate`."""

    result_schema: Schema

    def beside(self, steps: Aggregations, *, dropna: bool | None = None, schema: Schema | None = None) -> Groups:
        """Other groups of the same rows, or of rows that have a schema, in the same work."""
        ...

    def sample(self, part: Part) -> KeysSeen:
        """Look at some rows of a part in many places; what they tell is kept."""
        ...

    def fold(self, part: Part, groups: float, *, using_up: bool) -> tuple[Part, bool]:
        """Partial results of rows, and whether every key has one."""
        ...

    def whole(self, part: Part, kernels: Sequence[Kernel], result: Part, *, using_up: bool) -> None:
        """Compute groups of which all rows are here, and their last step, into a result."""
        ...

    def finish_all(self, partial: Part, result: Part) -> None:
        """The last step on partial results that have one row a key, which are used up."""
        ...

    def finish(self, made: Data, claim: Reservation, result: Part) -> None:
        """The last step on whole groups that were made under a claim."""
        ...


def may_be_large(steps: Aggregations) -> bool:
    """Whether nothing that is computed of whole groups needs all rows of one at once."""
    return steps.merge is None and all(kernel.function in (*_BY_PASSES, "nunique") for kernel in _whole(steps))


def _whole(steps: Aggregations) -> list[Kernel]:
    """What cannot be brought together of partial results."""
    made = {column.name for kernel, _ in steps.mergeable for column in kernel.outputs}
    return [kernel for kernel in steps.partial if kernel.outputs[0].name not in made]


def fold_large_groups(
    grouping: Groups, part: Part, kernels: Sequence[Kernel], result: Part, looked_at: int, keys: int
) -> bool:
    """Bring rows of few keys together piece by piece, and do their last step, into a result.

    Parameters
    ----------
    grouping : Groups
        Whose steps can be brought together of partial results.
    part : Part
        All rows of their groups, or partial results of these. They are there afterwards.
    kernels : sequence of Kernel
        What is to be done with them: the steps' ``partial`` or ``merge``.
    result : Part
    looked_at, keys : int
        In so many of the rows so many keys were found.

    Returns
    -------
    bool
        False where there are too many keys.

    Raises
    ------
    BudgetExceeded
        If a piece of work does not fit.
    """
    steps = grouping.steps
    if keys * _ROWS_A_KEY > looked_at:
        return False
    inner = grouping
    if kernels is not steps.partial:
        merging = Aggregations(steps.keys, tuple(kernels), tuple(kernels), ())
        inner = grouping.beside(merging, schema=grouping.partial_schema)
    folded, complete = inner.fold(part, float(keys), using_up=False)
    try:
        if complete:
            grouping.finish_all(folded, result)
        return complete
    finally:
        grouping.work.forget(folded)


def reduce_large_group(grouping: Groups, part: Part, result: Part) -> bool:
    """Compute the group of rows that do not fit at once, and its last step, into a result.

    Parameters
    ----------
    grouping : Groups
        Whose steps `may_be_large`.
    part : Part
        All rows of their groups. They are there afterwards.
    result : Part

    Returns
    -------
    bool
        False where the rows are not all of one group.

    Raises
    ------
    BudgetExceeded
        If a piece of work does not fit.
    """
    others, work, backend = _whole(grouping.steps), grouping.work, grouping.work.backend
    row = _merged(grouping, part)
    if row is None:
        return False
    if not row.rows:
        return True  # its key is missing, and left out
    arrays = _quantiles(grouping, part, [kernel for kernel in others if kernel.function in _BY_PASSES])
    for kernel in others:
        if kernel.function == "nunique":
            arrays[kernel.outputs[0].name] = as_column(kernel.outputs[0], np.array([_distinct(grouping, part, kernel)]))
    schema = grouping.partial_schema
    every = tuple(arrays[name] if name in arrays else row.array(name) for name in schema.names)
    whole = backend.from_host(Columns(schema, 1, every))
    grouping.finish(whole, work.claim(whole.nbytes), result)
    return True


def rows_do_not_fit(grouping: Groups, needed: int) -> BudgetExceeded:
    """The error of rows of one key that are needed at once, of which so many bytes are needed."""
    budget, operation = grouping.work.workspace.budget, grouping.work.operation
    would_do = budget.used_bytes + needed + operation.evicted_bytes
    what, plan = "groupby of the rows of one key", operation.plan
    staged = plan is not None and plan.strategy == "staged"
    return exceeded(what, needed, budget.used_bytes, budget.limit_bytes, would_do=would_do, staged=staged)


def _merged(grouping: Groups, part: Part) -> Columns | None:
    """What can be brought together of partial results: one row, or none; None where there are several keys."""
    work = grouping.work
    size = new_label(grouping.partial_schema.names, "rows")
    partial, _ = grouping.beside(mergeable_steps(grouping.steps, size)).fold(part, 1.0, using_up=False)
    try:
        if partial.rows > 1:
            return None
        if not partial.rows:
            return Columns(partial.schema, 0, ())
        with partial.chunks[0].load(work.workspace) as data:
            row = work.backend.to_host(data)
        return row if int(row.array(size)[0]) == part.rows else None  # else some lack a key, and are left out
    finally:
        work.forget(partial)


def _quantiles(grouping: Groups, part: Part, kernels: list[Kernel]) -> dict[Label, Array]:
    """The arrays of medians and quantiles, one row each, by output."""
    if not kernels:
        return {}
    shares = {kernel: 0.5 if kernel.function == "median" else kernel.argument for kernel in kernels}
    names = list(dict.fromkeys(kernel.inputs[0] for kernel in kernels))
    founds = select_words(grouping.work, part, names, sorted(set(shares.values())), here=True)
    by_name, arrays = dict(zip(names, founds, strict=True)), {}
    for kernel, share in shares.items():
        found, column = by_name[kernel.inputs[0]], grouping.rows_schema[kernel.inputs[0]]
        low, high, further = quantile_positions(found.count, share) if found.count else (0, 0, 0.0)
        words = found.words.get(low), found.words.get(high)
        arrays[kernel.outputs[0].name] = array_at(column, kernel.outputs[0], *words, further)
    return arrays


def _distinct(grouping: Groups, part: Part, kernel: Kernel) -> int:
    """How many different values a column has here; a missing one is none."""
    work, name = grouping.work, kernel.inputs[0]
    values = view_of(work.workspace, part, [name])
    inner = grouping.beside(whole_rows(grouping.rows_schema.select([name]), [name], "first"), dropna=True)
    groups = inner.sample(values).expected(part.rows)
    found_here = work.new_part(inner.result_schema)
    try:
        if part.rows < _WORTH * groups:
            inner.whole(values, inner.steps.partial, found_here, using_up=False)
            return found_here.rows
        values, complete = inner.fold(values, groups, using_up=False)
        if complete:
            return values.rows
        inner.whole(values, inner.steps.partial, found_here, using_up=True)
        return found_here.rows
    finally:
        work.forget(values)
        work.forget(found_here)
