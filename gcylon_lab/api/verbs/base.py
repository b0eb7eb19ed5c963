"""What every room of verbs stands on: the rank's part, its means, and how a result becomes a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never, Self

from ...backends.protocol.schema import Schema
from ...engine.exec.invocation import Request, RunOptions
from ...engine.exec.running import run_verb
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError, GcylonError
from ...operators.planning import most_rows_of, plan_verb
from ...operators.rowwise.chain import Step
from ..part_info import PartInfo
from ..plans import Plans
from .arguments import check_table, checked

if TYPE_CHECKING:
    from ...runtime.context import Context


class Verbs:
    """The base of all rooms. `Table` fills it in."""

    _context: Context

    def __init_subclass__(cls) -> None:
        """Check what public methods are given before they run: a new verb needs no line for it."""
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if name.startswith("_") or not inspect.isfunction(method):
                continue
            if len(inspect.signature(method).parameters) > 1:
                setattr(cls, name, checked(method))

    @property
    def _table_kind(self) -> type:
        """What other tables are that verbs are given."""
        return Verbs

    def _refuse(self, verb: str, error: GcylonError) -> Never:
        """Raise what an argument is refused with; of a collective, all ranks are told, as they wait for this one."""
        if verb not in _ALONE:
            # Rows are not made for it: the others meet it in what they do next, whether or not they make theirs.
            request = Request(verb, {}, self._input(), check=lambda: _raise(error))
            run_verb(self._workspace, request, _nothing, quiet=True)
        raise error

    @property
    def schema(self) -> Schema:
        """Columns and dtypes, the same on all ranks."""
        raise NotImplementedError

    def _live(self) -> Part:
        """Collective: all ranks call it. This rank's part, once its rows are made; an error where the table was
        released."""
        raise NotImplementedError

    def _mine(self) -> Part:
        """This rank's part, for what is no collective: rows that are not made yet are made by this rank alone."""
        raise NotImplementedError

    def _input(self) -> Part:
        """This rank's part, or what it is still to be made of."""
        raise NotImplementedError

    def _later(self, step: Callable[[Schema], Step]) -> Self | None:
        """The table of one more step, done when its rows are needed; None where it is to be done at once."""
        raise NotImplementedError

    def _made(self, part: Part, plan: Plan | None = None) -> Self:
        """The table of a result."""
        raise NotImplementedError

    def info(self) -> PartInfo:
        """What is known on this rank as plain values."""
        raise NotImplementedError

    def release(self) -> None:
        """Give back this rank's memory and disk."""
        raise NotImplementedError

    @property
    def plan(self) -> Plans:
        """What verbs would take, before they run: ``t.plan.shuffle("k")``, with the arguments of ``t.shuffle``."""
        return Plans(self)

    def _plan(self, verb: str, others: Sequence[Any], options: RunOptions, arguments: Mapping[str, Any]) -> Plan:
        """Collective: all ranks call it. The plan of a verb, of this table and others; see `estimate_verb`."""

        def check() -> None:
            for table in others:
                other_table(verb, self, table)

        tables = [self, *others]
        part, *_ = [other_part(self, table) for table in tables]
        infos, schemas = [table.info() for table in tables], [table.schema for table in tables]
        return plan_verb(self._workspace, part, verb, infos, options, arguments, schemas=schemas, check=check)

    def _most_rows(self, verb: str, options: RunOptions, arguments: Mapping[str, Any]) -> int | None:
        """Collective: all ranks call it. How many rows a verb can take; see `estimate_verb`."""
        return most_rows_of(self._workspace, self._live(), verb, self.info(), options, arguments)

    @property
    def _workspace(self) -> Workspace:
        return self._context.workspace


_ALONE = ("groupby", "tensor", "to_batches")  # no rank waits for another in these


def _raise(error: GcylonError) -> Never:
    raise error


def _nothing(operation: Any) -> Part:
    raise AssertionError("an operation that is refused has no body")


def other_table(verb: str, mine: Verbs, value: Any) -> Verbs:
    """A table that was given to a verb of another one.

    Raises
    ------
    ArgumentError
        If it is none, or its rows lie on the ranks of another context, which need not be the same nor in one order.
    """
    check_table(verb, value, Verbs)
    if value._context is not mine._context:
        where = [f"rank {one._context.rank} of {one._context.size}" for one in (mine, value)]
        raise ArgumentError(
            f"{verb} was given a table of another context: this one is on {where[0]} of its context, the other one on "
            f"{where[1]} of another.",
            advice="Make both in one context, for example the other one anew with gl.from_local(other.local()).",
        )
    table: Verbs = value
    return table


def other_part(mine: Verbs, value: Any) -> Part:
    """The part of a table that was given to a verb; this rank's own where `other_table` will refuse it."""
    return value._live() if isinstance(value, Verbs) and value._context is mine._context else mine._live()
