"""Plans as ranks ask for them: what each knows of a table is shared, then all plan alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..config import GcylonConfig
from ..engine.exec.agreement import agreed
from ..engine.exec.invocation import Request, RunOptions
from ..engine.exec.operation import Operation
from ..engine.exec.running import run_verb
from ..engine.plan.plan import Plan
from ..engine.store.part import Part
from ..engine.store.workspace import Workspace
from ..errors import GcylonError
from .estimate import estimate_verb
from .unloaded import most_rows

T = TypeVar("T")
Infos = Sequence[Mapping[str, Any]]


def plan_verb(
    workspace: Workspace,
    part: Part,
    verb: str,
    info: Mapping[str, Any],
    config: GcylonConfig | None,
    strategy: str,
    **arguments: Any,
) -> Plan:
    """Collective: all ranks call it. Share what each rank knows of a table, and `estimate_verb`.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    verb : str
        What to plan.
    info : mapping
        This rank's ``Table.info()``.
    config : GcylonConfig, optional
        Rank 0's live one by default.
    strategy, **arguments
        As for `estimate_verb`.

    Returns
    -------
    Plan
    """

    def plan(infos: Infos, config: GcylonConfig) -> Plan:
        return estimate_verb(verb, infos, config, strategy=strategy, **arguments)

    return _of_all(workspace, Request(f"plan_{verb}", arguments, part, RunOptions(strategy, config)), info, plan)


def most_rows_of(
    workspace: Workspace,
    part: Part,
    verb: str,
    info: Mapping[str, Any],
    config: GcylonConfig | None,
    strategy: str,
    **arguments: Any,
) -> int | None:
    """Collective: all ranks call it. Share what each rank knows of a table, and `most_rows`; parameters as of
    `plan_verb`."""

    def count(infos: Infos, config: GcylonConfig) -> int | None:
        return most_rows(verb, infos, config, strategy, **arguments)

    asked = {"verb": verb, **arguments}
    return _of_all(workspace, Request("plan_max_rows", asked, part, RunOptions(strategy, config)), info, count)


def _of_all(
    workspace: Workspace, request: Request, info: Mapping[str, Any], compute: Callable[[Infos, GcylonConfig], T]
) -> T:
    found: list[T] = []

    def body(operation: Operation) -> Part:
        texts = workspace.transport.share(json.dumps(info).encode())
        infos = [json.loads(text) for text in texts]
        try:
            found.append(compute(infos, operation.config))
        except GcylonError as error:
            raise agreed(error) from None  # of numbers that all ranks share: all raise it
        return request.part

    run_verb(workspace, request, body, quiet=True)
    return found[0]
