"""Window functions of groups whose rows are all on one rank, and in memory at once: no sort is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ...backends.expressions.windows import windowed
from ...backends.protocol.schema import Label
from ...engine.exchange.exchange import local_plan
from ...engine.exec.agreement import AgreementKind
from ...engine.exec.invocation import Request, RunOptions
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ..rowwise.rowwise import computed
from .scan import GROUP_ROW_BYTES
from .steps import frame_of, rows_of

_COPIES = 5  # of the rows, while they are worked on
_OF_LIMIT = 2  # rows that may take such a part of the budget, if they are evenly spread, are brought together
_REASON = "because the rows of each group are on one rank, and fit at once"


def may_fit(operation: Operation, part: Part) -> bool:
    """Collective: all ranks call it. Whether rows of all ranks, spread evenly, would fit at once on each."""
    rows, nbytes = max(operation.rows), part.nbytes
    row_bytes = nbytes / max(part.rows, 1)
    needed = int(rows * (_COPIES * row_bytes + GROUP_ROW_BYTES))
    limit = operation.workspace.budget.limit_bytes
    answers = operation.agree(AgreementKind.COUNT, (int(needed <= limit // _OF_LIMIT),))
    return bool(answers[:, 0].all())


def at_once(
    workspace: Workspace,
    part: Part,
    keys: Sequence[Label],
    value: Label,
    function: str,
    settings: Mapping[str, Any],
    *,
    reverse: bool,
    dropna: bool,
    options: RunOptions,
    what: str,
) -> Part | None:
    """Collective: all ranks call it. A column of what a function gives for each row; None where rows do not fit.

    Parameters
    ----------
    workspace, part
        This rank's means and rows: all that have their keys, in the order of the whole table.
    keys : sequence of labels
    value : label
        Also of the result's column.
    function, settings
        See `gcylon_lab.backends.expressions.windows.windowed`.
    reverse : bool
        Whether rows are looked at from the last to the first.
    dropna : bool
        Whether rows with a missing key have no answer.
    options : RunOptions
    what : str
        What was asked for, in the words of an error.
    """
    fitted: list[bool] = []

    def body(operation: Operation) -> Part:
        work = LocalExecutor(operation, "Window functions of groups")
        needed = _COPIES * part.nbytes + part.rows * GROUP_ROW_BYTES
        work.make_room(needed / max(part.rows, 1), part.rows)
        answers = operation.agree(AgreementKind.COUNT, (int(needed <= work.room()),))
        fitted.append(bool(answers[:, 0].all()))
        if not fitted[0]:
            operation.plan = local_plan(operation, part, part, "because the rows of groups do not fit at once")
            return part
        work.expect(needed)
        result = work.new_part(operation.schema.select([value]))
        backend = workspace.backend
        with ExitStack() as held:
            claim = work.claim(needed)
            data = work.everything(part, operation.schema, held) if part.chunks else backend.empty(operation.schema)
            frame = frame_of(backend, data)
            frame = frame.iloc[::-1] if reverse else frame
            made = computed(
                lambda: rows_of(backend, 
                    windowed(frame, keys, value, function, settings, dropna=dropna)
                    .iloc[:: -1 if reverse else 1].rename(value).to_frame()
                ),
                lambda: what,
            )  # fmt: skip
        result.schema = operation.agree_result_schema(made.schema, made.rows)
        work.keep(result, made, claim)
        operation.plan = local_plan(operation, part, result, _REASON)
        return result

    arguments = {"keys": list(keys), "value": value, "function": function, "dropna": dropna, "reverse": reverse}
    made, _ = run_operation(workspace, Request("window", arguments | {"how": dict(settings)}, part, options), body)
    return made if fitted[0] else None
