"""``%lab_plan``: the plan of a verb's call, which is read and not run."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from ...api.plans import GroupPlans, Plans
from ...api.verbs.group import GroupBy
from ...api.verbs.pandas_hints import nearest_verb
from ...cluster.client.cluster import Cluster
from ...cluster.handles.handle import DistTable
from ...engine.plan.plan import Plan
from ...errors import GcylonError
from ..controls.plan_text import plan_html
from .shown import Shown, refuse

EXAMPLE = '%lab_plan t.shuffle("k", strategy="staged")'
_ASKS_NOTHING = ("groupby", "table")  # what may be called on the way to a verb


class PlanShown(Shown):
    """A plan as it is shown; `plan` is the plan itself."""

    def __init__(self, plan: Plan, call: str) -> None:
        html = f"<code>{escape(call)}</code>{plan_html(plan.as_dict())}"
        super().__init__(plan.describe(), html)
        self.plan = plan


def planned(expression: str, namespace: Mapping[str, Any]) -> PlanShown:
    """The plan of a call such as ``t.join(u, on="k")``, which does not run; row-wise verbs that its tables remember do.

    Parameters
    ----------
    expression : str
        A call of a verb of a `DistTable`. Its arguments are computed, so they may name variables.
    namespace : mapping
        The user's variables.

    Raises
    ------
    UsageError
        If it is no such call, or rows would have to move for its arguments.
    GcylonError
        As the verb itself would, for example `BudgetExceeded`.
    """
    call = _call_of(expression)
    function = call.func
    assert isinstance(function, ast.Attribute)
    for part in [function.value, *call.args, *(keyword.value for keyword in call.keywords)]:
        _refuse_work(part, namespace)
    receiver = _evaluate(function.value, namespace)
    args, kwargs = _arguments(call, namespace)
    return PlanShown(_plan(receiver, function.attr, args, kwargs), expression.strip())


def _call_of(expression: str) -> ast.Call:
    text, instead = expression.strip(), f"Write for example {EXAMPLE}."
    if not text:
        raise refuse(f"Expected a call of a verb after %lab_plan. {instead}")
    try:
        body = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise refuse(f"%lab_plan cannot read {text!r}: {error.msg}. {instead}") from None
    if not isinstance(body, ast.Call) or not isinstance(body.func, ast.Attribute):
        raise refuse(f"Expected a call of a verb, got {text!r}. {instead}")
    return body


def _refuse_work(node: ast.AST, namespace: Mapping[str, Any]) -> None:
    """Refuse calls inside an expression that would make the ranks work."""
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Call) or not isinstance(inner.func, ast.Attribute):
            continue
        root: ast.AST = inner.func.value
        while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
            root = root.func if isinstance(root, ast.Call) else root.value
        value = namespace.get(root.id) if isinstance(root, ast.Name) else None
        verb = inner.func.attr
        works = isinstance(value, DistTable) or (isinstance(value, Cluster) and hasattr(Cluster, verb))
        if works and verb not in _ASKS_NOTHING and not verb.startswith("plan_"):
            text = ast.unparse(inner)
            raise refuse(f"{text} would have to run first. Run it (u = {text}), and plan the verb of what comes out.")


def _evaluate(node: ast.expr, namespace: Mapping[str, Any]) -> Any:
    code = compile(ast.Expression(node), "<%lab_plan>", "eval")
    try:
        return eval(code, dict(namespace))
    except GcylonError:
        raise
    except Exception as error:
        raise refuse(f"%lab_plan cannot compute {ast.unparse(node)}: {type(error).__name__}: {error}.") from None


def _arguments(call: ast.Call, namespace: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    for node in call.args:
        if isinstance(node, ast.Starred):
            args += list(_evaluate(node.value, namespace))
        else:
            args.append(_evaluate(node, namespace))
    kwargs: dict[str, Any] = {}
    for keyword in call.keywords:
        value = _evaluate(keyword.value, namespace)
        kwargs |= value if keyword.arg is None else {keyword.arg: value}
    return args, kwargs


def _plan(receiver: Any, verb: str, args: list[Any], kwargs: dict[str, Any]) -> Plan:
    if isinstance(receiver, GroupBy):
        if verb not in ("agg", "size", "plan"):
            return receiver.plan(**{name: kwargs[name] for name in ("strategy", "config") if name in kwargs})
        receiver, verb = GroupPlans(receiver), "size" if verb == "size" else "agg"
    if isinstance(receiver, DistTable):
        if not callable(getattr(receiver, verb, None)):
            meant = nearest_verb(receiver, verb)
            raise refuse(f"A table has no verb {verb!r}.{f' Did you mean {meant}?' if meant else ''}")
        receiver = receiver if verb.startswith("plan_") else receiver.plan
    elif not isinstance(receiver, (Plans, GroupPlans)):
        raise refuse(f"%lab_plan plans verbs of a DistTable, not of a {type(receiver).__name__}.")
    try:
        planner = getattr(receiver, verb)
    except AttributeError as error:
        raise refuse(f"{error}") from None
    return _called(planner, verb, args, kwargs)


def _called(planner: Callable[..., Any], verb: str, args: list[Any], kwargs: dict[str, Any]) -> Plan:
    try:
        inspect.signature(planner).bind(*args, **kwargs)
    except TypeError as error:
        raise refuse(f"{verb}: {error}.") from None
    made = planner(*args, **kwargs)
    plan: Plan = made.groups.plan() if isinstance(made, GroupPlans) else made
    return plan
