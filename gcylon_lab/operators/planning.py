"""Plans as ranks ask for them: what each knows of a table is shared, then all plan alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..config import GcylonConfig
from ..engine.exec.agreement import agreed
from ..engine.exec.invocation import Request
from ..engine.exec.operation import Operation
from ..engine.exec.running import run_verb
from ..engine.plan.plan import Plan
from ..engine.store.part import Part
from ..engine.store.workspace import Workspace
from ..errors import GcylonError
from .estimate import estimate_verb


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
    plans: list[Plan] = []

    def body(operation: Operation) -> Part:
        texts = workspace.transport.share(json.dumps(info).encode())
        infos = [json.loads(text) for text in texts]
        try:
            plans.append(estimate_verb(verb, infos, operation.config, strategy=strategy, **arguments))
        except GcylonError as error:
            raise agreed(error) from None  # of numbers that all ranks share: all raise it
        return part

    request = Request(f"plan_{verb}", arguments, part, strategy, config)
    run_verb(workspace, request, body, quiet=True)
    return plans[0]
