"""The plan of a join from what is known of both tables already: no data is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..config import GcylonConfig
from ..errors import GcylonError
from ..memory.budget import exceeded
from ..tables.join_columns import JoinSpec
from .foresight import foresee
from .join_plan import Meeting, Side, build_side, choose_strategy, plan_meeting
from .operation import Operation, Request
from .part import Part, Partitioning
from .plan import EVENLY, Plan, check_strategy
from .running import run_verb
from .votes import agreed
from .workspace import Workspace

Infos = Sequence[Mapping[str, Any]]
_ASSUMED = f"{EVENLY}, and as many pairs as the larger side has rows"


def foresee_join(spec: JoinSpec, left: Infos, right: Infos, config: GcylonConfig, *, strategy: str = "auto") -> Plan:
    """Plan a join from every rank's ``Table.info()`` of both sides.

    Parameters
    ----------
    spec : JoinSpec
    left, right : sequence of mapping
        One a rank, in rank order.
    config : GcylonConfig
        The settings it would run with.
    strategy : str, default "auto"

    Returns
    -------
    Plan
        Its notes say where rows meet, and why.

    Raises
    ------
    BudgetExceeded
        If an exchange, or the result that was asked to be held, does not fit.
    """
    check_strategy(strategy)
    limits = [config.limit_bytes(i["ceiling_bytes"], i["free_at_start_bytes"]) for i in left]
    index_row_bytes = left[0]["index_row_bytes"]
    sides = {"left": _side("left", spec.left_on, left), "right": _side("right", spec.right_on, right)}
    meeting = plan_meeting(spec, sides["left"], sides["right"], limits, index_row_bytes)
    plans = [_exchange(meeting, name, {"left": left, "right": right}[name], config, strategy) for name in meeting.moved]
    results = _results(spec, sides["left"], sides["right"])
    peaks = _peaks(
        spec,
        meeting,
        sides,
        index_row_bytes,
        results,
        [max(i["used_bytes"] for i in p) for p in zip(left, right, strict=True)],
    )
    peaks = [
        max(peak, *(plan.predicted_peaks[rank] for plan in plans)) if plans else peak for rank, peak in enumerate(peaks)
    ]
    fits = all(peak <= limit for peak, limit in zip(peaks, limits, strict=True))
    chosen, reason = choose_strategy(strategy, [plan.strategy for plan in plans], fits=fits)
    if chosen != "staged" and max(results) > min(limits):
        raise exceeded(f"The result of a join with strategy={chosen!r}", max(results), 0, min(limits))
    peaks = [min(peak, limit) for peak, limit in zip(peaks, limits, strict=True)]
    return Plan(
        verb="join",
        strategy=chosen,
        rounds=sum(plan.rounds for plan in plans),
        chunk_rows=max((plan.chunk_rows for plan in plans), default=0),
        round_bytes=max((plan.round_bytes for plan in plans), default=0),
        result_bytes=max(results),
        predicted_peak_bytes=max(peaks),
        budget_bytes=min(limits),
        reason=reason,
        assumption=_ASSUMED,
        predicted_peaks=tuple(peaks),
        notes=(f"{meeting.kind} join: {meeting.reason}",),
    )


def _side(name: str, keys: tuple[Any, ...], infos: Infos) -> Side:
    spread = infos[0]["partitioning"]
    known = None if spread is None else Partitioning(tuple(spread["keys"]), spread["size"])
    return Side(name, keys, tuple(i["nbytes"] for i in infos), tuple(i["rows"] for i in infos), known)


def _exchange(meeting: Meeting, name: str, infos: Infos, config: GcylonConfig, strategy: str) -> Plan:
    if meeting.kind == "broadcast":
        return foresee("allgather", infos, config, strategy=strategy)
    return foresee("shuffle", infos, config, strategy=strategy, on=[*meeting.keys(name)])  # type: ignore[list-item]


def _results(spec: JoinSpec, left: Side, right: Side) -> list[int]:
    """Bytes of the result on each rank, with pairs spread evenly."""
    row = sum(sum(side.nbytes) / max(sum(side.rows), 1) for side in ((left,) if spec.filters else (left, right)))
    rows = sum(left.rows) if spec.filters else max(sum(left.rows), sum(right.rows))
    if spec.how == "cross":
        rows = sum(left.rows) * sum(right.rows)
    return [int(row * rows / len(left.rows))] * len(left.rows)


def _peaks(
    spec: JoinSpec, meeting: Meeting, sides: dict[str, Side], index_row_bytes: int, results: list[int], used: list[int]
) -> list[int]:
    """In use on each rank once the result is made: tables of before, what was exchanged, the index, the result."""
    size = len(used)
    build = sides[build_side(spec, meeting, sum(sides["left"].nbytes), sum(sides["right"].nbytes))]
    share = 1 if meeting.kind == "broadcast" else size
    index = index_row_bytes * sum(build.rows) // share if spec.how != "cross" else 0
    moved = sum(sum(sides[name].nbytes) // share for name in meeting.moved)
    return [here + moved + index + result for here, result in zip(used, results, strict=True)]


def plan_join(
    workspace: Workspace,
    part: Part,
    infos: tuple[Mapping[str, Any], Mapping[str, Any]],
    arguments: dict[str, Any],
    specify: Any,
    config: GcylonConfig | None,
    strategy: str,
) -> Plan:
    """Collective: all ranks call it. Share what each rank knows of both tables, and `foresee_join`.

    Parameters
    ----------
    workspace, part
        This rank's means and rows of the left side.
    infos : pair of mapping
        This rank's ``Table.info()`` of both sides.
    arguments, specify
        As for `gcylon_lab.ops.join.join`.
    config : GcylonConfig, optional
        Rank 0's live one by default.
    strategy : str

    Returns
    -------
    Plan
    """
    plans: list[Plan] = []
    specs: list[JoinSpec] = []

    def body(operation: Operation) -> Part:
        texts = workspace.transport.share(json.dumps(infos).encode())
        left, right = zip(*(json.loads(text) for text in texts), strict=True)
        try:
            plans.append(foresee_join(specs[0], left, right, operation.config, strategy=strategy))
        except GcylonError as error:
            raise agreed(error) from None  # of numbers that all ranks share: all raise it
        return part

    request = Request("plan_join", arguments, part, strategy, config, check=lambda: specs.append(specify()))
    run_verb(workspace, request, body, quiet=True)
    return plans[0]
