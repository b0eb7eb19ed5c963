"""What every room of verbs stands on: the rank's part, its means, and how a result becomes a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ..config import GcylonConfig
from ..errors import ArgumentError
from ..ops.part import Part
from ..ops.plan import Plan
from ..ops.planning import plan_verb
from ..ops.workspace import Workspace

if TYPE_CHECKING:
    from ..context import Context


class Verbs:
    """The base of all rooms. `Table` fills it in."""

    _context: Context

    def _live(self) -> Part:
        """This rank's part; an error where the table was released."""
        raise NotImplementedError

    def _made(self, part: Part, plan: Plan | None = None) -> Self:
        """The table of a result."""
        raise NotImplementedError

    def info(self) -> dict[str, Any]:
        """What is known on this rank as plain values."""
        raise NotImplementedError

    def release(self) -> None:
        """Give back this rank's memory and disk."""
        raise NotImplementedError

    def _plan(self, verb: str, strategy: str, config: GcylonConfig | None, **arguments: Any) -> Plan:
        """Collective: all ranks call it. The plan of a verb; arguments are those of `foresee`."""
        part = self._live()
        return plan_verb(self._workspace, part, verb, self.info(), config, strategy, **arguments)

    @property
    def _workspace(self) -> Workspace:
        return self._context.workspace


def other_table(verb: str, mine: Verbs, value: Any) -> Verbs:
    """A table that was given to a verb of another one.

    Raises
    ------
    ArgumentError
        If it is none, or its rows lie on the ranks of another context, which need not be the same nor in one order.
    """
    if not isinstance(value, Verbs):
        raise ArgumentError(
            f"{verb} takes another table, but this is a {type(value).__name__}.",
            advice="Make one of it before: of a frame of the notebook lab.from_pandas(frame), on the ranks "
            "gl.from_pandas(frame).",
        )
    if value._context is not mine._context:
        where = [f"rank {table._context.rank} of {table._context.size}" for table in (mine, value)]
        raise ArgumentError(
            f"{verb} was given a table of another context: this one is on {where[0]} of its context, the other one on "
            f"{where[1]} of another.",
            advice="Make both in one context, for example the other one anew with gl.from_local(other.local()).",
        )
    return value


def other_part(mine: Verbs, value: Any) -> Part:
    """The part of a table that was given to a verb; this rank's own where `other_table` will refuse it."""
    return value._live() if isinstance(value, Verbs) and value._context is mine._context else mine._live()
