"""``t.plan``: what a verb would take, asked for with the verb's own arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..backends.protocol.aggregation import Aggregation
from ..engine.exec.invocation import RunOptions
from ..engine.plan.estimate import PlannedVerb
from ..engine.plan.plan import Plan
from ..errors import GcylonError
from ..operators.estimate import PLANNED
from .verbs.arguments import bind

_HOW = {"deterministic", "strategy", "config", "timeout_s"}
_METHODS = {one.method or one.verb: one for one in PLANNED.values()}


class Plans:
    """Plans of a table's verbs, without reading rows: ``t.plan.shuffle("k")`` has the arguments of ``t.shuffle``.

    What depends on values of keys is assumed, and said in the plan: keys are evenly spread, and no two are equal. Of a
    `Table` all ranks call it; a handle's plans are made of what is known in the notebook. Row-wise verbs that the table
    waits for are done first, as its size is not known before.

    Parameters
    ----------
    table : Table or DistTable
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    def groupby(self, by: Any, *, dropna: bool = True, sort: bool = False, as_index: bool = False) -> GroupPlans:
        """Name the keys of a group-by, of whose `agg` and `size` there are plans; see ``t.groupby``."""
        return GroupPlans(self._table.groupby(by, dropna=dropna, sort=sort, as_index=as_index))

    def __getattr__(self, name: str) -> Callable[..., Plan]:
        method = None if name.startswith("_") else getattr(type(self._table), name, None)
        verb = _METHODS.get(getattr(method, "__name__", ""))
        if method is None or verb is None:
            raise AttributeError(
                f"{name} has no plan that is known before it runs. These have: {', '.join(dir(self))}."
            )
        return _planning(self._table, verb, method)

    def _of_old_name(self, name: str) -> Callable[..., Plan] | None:
        """What answers for a name such as ``plan_shuffle``; None where it is none of these."""
        verb = PLANNED.get(name.removeprefix("plan_")) if name.startswith("plan_") else None
        if verb is None:
            return None
        plan: Callable[..., Plan] = getattr(self, verb.method or verb.verb)
        return plan if verb.verb != "groupby" else lambda by, *, wanted=(), **how: plan(by, list(wanted), **how)

    def __dir__(self) -> list[str]:
        return sorted([*_METHODS, "groupby", "merge"])

    def __repr__(self) -> str:
        return f"<plans of {self._table!r}: {', '.join(dir(self))}>"


class GroupPlans:
    """Plans of a group-by, with the arguments of `GroupBy.agg` and `GroupBy.size`; made by ``t.plan.groupby(keys)``.

    Parameters
    ----------
    groups : GroupBy
    """

    def __init__(self, groups: Any) -> None:
        self.agg: Callable[..., Plan] = functools.update_wrapper(functools.partial(self._agg), groups.agg)
        rows = functools.partial(groups._planned, [Aggregation("size", "size")])
        self.size: Callable[..., Plan] = functools.update_wrapper(rows, groups.size)
        self.groups = groups

    def _agg(self, spec: Any = None, **how: Any) -> Plan:
        if spec is None and not how.keys() - _HOW:  # which groups.plan takes for any functions
            try:
                self.groups._wanted(None, {})
            except GcylonError as error:
                self.groups._refuse("agg", error)
        plan: Plan = self.groups.plan(spec, **how)
        return plan

    def __repr__(self) -> str:
        return f"<plans of {self.groups!r}>"


def _planning(table: Any, verb: PlannedVerb, method: Callable[..., Any]) -> Callable[..., Plan]:
    """A verb's method that plans it instead: arguments are checked as the verb's, and refused in its words."""
    name, signature = method.__name__, inspect.signature(method)

    def plan(*args: Any, **kwargs: Any) -> Plan:
        try:
            bound = bind(name, signature, table, *args, **kwargs)
        except GcylonError as error:
            table._refuse(f"plan_{verb.verb}", error)
            raise
        bound.apply_defaults()
        given = dict(bound.arguments)
        others = given.pop(verb.tables, ())
        others = list(others) if isinstance(others, (list, tuple)) else [others]
        options = RunOptions(given["strategy"], given["config"], given["timeout_s"])
        made: Plan = table._plan(verb.verb, others, options, {n: given[n] for n in given if n in verb.takes})
        return made

    own = list(signature.parameters.values())[1:]
    plan.__signature__ = signature.replace(parameters=own, return_annotation="Plan")  # type: ignore[attr-defined]
    plan.__name__, plan.__qualname__ = name, f"Plans.{name}"
    plan.__doc__ = f"Plan `{name}`, without reading rows. Its arguments are:\n\n{inspect.getdoc(method) or ''}"
    return plan
