"""Group-by: one row for each key, with what is computed of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...backends.protocol.aggregation import Aggregation, Aggregations, plan_aggregations
from ...backends.protocol.schema import Label, Schema, shown_labels
from ...backends.refusals import refused_argument
from ...engine.exchange.exchange import is_together, local_plan, partitioned_by, shuffled
from ...engine.exec.agreement import AgreementKind, agreed
from ...engine.exec.invocation import AUTO, Request, RunOptions, check_keys, check_labels
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.views import view_of
from ...engine.store.workspace import Workspace
from ...errors import GcylonError, raised_as
from ..sort.sort import sort_values
from .hash_aggregate import HashAggregate

# Partial results are worth it where rows of one key, on one rank, are at least so many.
_WORTH = 2.0


def groupby(
    workspace: Workspace,
    part: Part,
    by: Sequence[Label],
    aggregations: Sequence[Aggregation],
    *,
    dropna: bool = True,
    deterministic: bool = False,
    options: RunOptions = AUTO,
    check: Callable[[], None] | None = None,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Aggregate rows with equal keys.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    by : sequence of labels
        Key columns.
    aggregations : sequence of Aggregation
    dropna : bool, default True
        Leave out rows with a missing key.
    deterministic : bool, default False
        Refuse what may give other bits in another run.
    options, check
        See `Request`.

    Returns
    -------
    Part, Plan

    Raises
    ------
    ColumnMissing
        If a key or an aggregated column is none.
    UnsupportedDtype
        If a key cannot be hashed, or a column has not the function.
    """
    keys = list(by)
    asked = [(one.name, one.function, one.column, one.argument) for one in aggregations]
    arguments = {"by": keys, "aggregations": asked, "dropna": dropna, "deterministic": deterministic}

    def checked() -> None:
        if check is not None:
            check()
        check_keys(part.schema, keys, "by")
        check_labels([one.column for one in aggregations if one.column is not None], part.schema.names)

    request = Request("groupby", arguments, part, options, checked)

    def body(operation: Operation) -> Part:
        with shared_checks():
            steps = plan_aggregations(operation.schema, keys, aggregations)
            check_determinism(operation, steps, deterministic)
        return group_rows(operation, part, steps, dropna=dropna)

    return run_operation(workspace, request, body)


def shared_checks() -> raised_as:
    """Around what looks at values that all ranks share: all raise what it raises, and nobody tells it again."""
    return raised_as(lambda error: agreed(error) if isinstance(error, GcylonError) else None)


def group_rows(
    operation: Operation,
    part: Part,
    steps: Aggregations,
    *,
    dropna: bool,
    schema: Schema | None = None,
    giving: Sequence[Part] = (),
    in_one_go: bool = False,
) -> Part:
    """Collective: all ranks call it. Put rows with equal keys together, inside an operation.

    Parameters
    ----------
    operation : Operation
        Opened.
    part : Part
        Rows of this rank.
    steps : Aggregations
        Of `plan_aggregations`, or made for the purpose.
    dropna : bool
        Whether rows with a missing key are left out.
    schema : Schema, optional
        Of the rows of several tables, agreed; the operation's by default.
    giving : sequence of Part
        Parts that the operation has made, which are evicted where work does not fit.
    in_one_go : bool
        Whether partial results are made only where those of all keys fit: rows of which few are equal where they
        stand close together are not worth it otherwise.

    Returns
    -------
    Part
        One row a key, each on one rank, in no particular order: keys, then what the last steps give.

    Raises
    ------
    DuplicateColumns
        If two columns of the result have one name.
    """
    keys = list(steps.keys)
    work = LocalExecutor(operation, "HashAggregate rows")
    for made in giving:
        work.adopt(made)
    with shared_checks():
        rows_schema = operation.schema if schema is None else schema
        grouping = HashAggregate(work, steps, rows_schema, dropna=dropna, as_sets=schema is not None)
    work.make_room(grouping.result_schema.row_bytes, 0)
    together = is_together(part, keys, operation.size)
    complete = False
    folds, groups = False, 0.0
    if steps.merge is not None:
        folds, groups = _few_groups(operation, grouping, part, in_one_go=in_one_go)
    result = work.new_part(grouping.result_schema)
    if folds:
        rows, complete = grouping.fold(part, groups, using_up=False, in_order=together)
        operation.notes.append(_folded_note(together))
    else:
        rows = view_of(operation.workspace, part, steps.needed)
    if together:
        operation.notes.append(together_note(part, keys))
    else:
        before, rows = rows, work.adopt(shuffled(operation, rows, keys))
        if folds:
            work.forget(before)
    if folds and together and complete:
        grouping.finish_all(rows, result)
    else:
        kernels = steps.merge if folds and steps.merge is not None else steps.partial
        grouping.whole(rows, kernels, result, using_up=folds or not together)
    result.partitioning = partitioned_by(part, keys, operation.size)
    if operation.plan is None:
        operation.plan = local_plan(operation, part, result, "because rows with equal keys are on one rank already")
    return result


def check_determinism(operation: Operation, steps: Aggregations, deterministic: bool) -> None:
    """Refuse sums of floats on GPUs where the same bits are asked for in every run.

    Raises
    ------
    ArgumentError
        Naming the columns.
    """
    if not deterministic or not operation.workspace.backend.on_gpu:
        return
    floats = sorted({str(name) for k in steps.partial if k.function in ("total", "moments") for name in k.inputs})
    if floats:
        raise refused_argument("same bits", f"deterministic=True for sums, means and the like of {', '.join(floats)}")


def _few_groups(operation: Operation, grouping: HashAggregate, part: Part, *, in_one_go: bool) -> tuple[bool, float]:
    """Collective: all ranks call it. Whether partial results of each rank are far fewer than its rows, and how many are
    expected here."""
    groups = grouping.sample(part).expected(part.rows)
    partial = int(min(float(part.rows), grouping.folded_rows(part, groups)))
    answers = operation.agree(AgreementKind.COUNT, (part.rows, partial, int(grouping.fits_folded(part, groups))))
    if in_one_go and not answers[:, 2].all():
        return False, groups
    rows, left = answers[:, :2].sum(axis=0).tolist()
    return rows >= _WORTH * left, groups


def _folded_note(together: bool) -> str:
    return "each rank " + ("goes through its rows once" if together else "sends partial results, one row a key")


def together_note(part: Part, keys: Sequence[Label]) -> str:
    """What a plan says of a shuffle that is left out."""
    if part.partitioning is None:
        return "there is one rank: nothing is shuffled"
    spread = ", ".join(map(repr, part.partitioning.keys))
    return f"the table is partitioned by {spread} already: rows with equal {shown_labels(keys)} are not shuffled"


def groupby_in_order(
    workspace: Workspace,
    part: Part,
    by: Sequence[Label],
    aggregations: Sequence[Aggregation],
    *,
    dropna: bool = True,
    deterministic: bool = False,
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Aggregate rows with equal keys, and sort the groups by them over all ranks.

    Missing keys come last. Arguments are those of `groupby`; each of the two steps has its own plan, budget and
    deadline.

    Returns
    -------
    Part, Plan
        The plan is that of the grouping, and in its ``then`` that of the sort.
    """
    grouped, grouping = groupby(
        workspace, part, by, aggregations, dropna=dropna, deterministic=deterministic, options=options
    )
    try:
        made, plan = sort_values(workspace, grouped, by, options=options)
    finally:
        grouped.release()  # an error that is kept would hold it
    return made, replace(grouping, then=plan)
