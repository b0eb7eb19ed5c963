"""Plans as ranks ask for them: what each knows of its tables is shared, then all plan alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..backends.protocol.schema import Schema
from ..config import GcylonConfig
from ..engine.exec.agreement import agreed
from ..engine.exec.invocation import Request, RunOptions
from ..engine.exec.operation import Operation
from ..engine.exec.running import run_verb
from ..engine.plan.part_stats import Infos
from ..engine.plan.plan import Plan
from ..engine.store.part import Part
from ..engine.store.workspace import Workspace
from ..errors import GcylonError
from .estimate import estimate_verb
from .unloaded import most_rows

T = TypeVar("T")


def plan_verb(
    workspace: Workspace,
    part: Part,
    verb: str,
    infos: Sequence[Mapping[str, Any]],
    options: RunOptions,
    arguments: Mapping[str, Any],
    *,
    schemas: Sequence[Schema],
    check: Callable[[], None] | None = None,
) -> Plan:
    """Collective: all ranks call it. Share what each rank knows of the tables, and `estimate_verb`.

    Parameters
    ----------
    workspace, part
        This rank's means, and its rows of the first table.
    verb : str
        What to plan.
    infos : sequence of mapping
        This rank's ``Table.info()`` of each table.
    options : RunOptions
    arguments, schemas
        As for `estimate_verb`.
    check : callable, optional
        See `Request`.

    Returns
    -------
    Plan
    """

    def plan(tables: Sequence[Infos], config: GcylonConfig) -> Plan:
        return estimate_verb(verb, tables, config, strategy=options.strategy, schemas=schemas, **arguments)

    request = Request(f"plan_{verb}", {"tables": len(infos), **arguments}, part, options, check)
    return _of_all(workspace, request, infos, plan)


def most_rows_of(
    workspace: Workspace,
    part: Part,
    verb: str,
    info: Mapping[str, Any],
    options: RunOptions,
    arguments: Mapping[str, Any],
) -> int | None:
    """Collective: all ranks call it. Share what each rank knows of a table, and `most_rows`; parameters as of
    `plan_verb`."""

    def count(tables: Sequence[Infos], config: GcylonConfig) -> int | None:
        return most_rows(verb, tables[0], config, options.strategy, **arguments)

    request = Request("plan_max_rows", {"verb": verb, **arguments}, part, options)
    return _of_all(workspace, request, [info], count)


def _of_all(
    workspace: Workspace,
    request: Request,
    infos: Sequence[Mapping[str, Any]],
    compute: Callable[[Sequence[Infos], GcylonConfig], T],
) -> T:
    found: list[T] = []

    def body(operation: Operation) -> Part:
        texts = workspace.transport.share(json.dumps(list(infos)).encode())
        tables = list(zip(*(json.loads(text) for text in texts), strict=True))
        try:
            found.append(compute(tables, operation.config))
        except GcylonError as error:
            raise agreed(error) from None  # of numbers that all ranks share: all raise it
        return request.part

    run_verb(workspace, request, body, quiet=True)
    return found[0]
