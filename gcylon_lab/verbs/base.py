"""What every room of verbs stands on: the rank's part, its means, and how a result becomes a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ..errors import ArgumentError
from ..ops.part import Part
from ..ops.plan import Plan
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

    @property
    def _workspace(self) -> Workspace:
        return self._context.workspace


def other_table(verb: str, value: Any) -> Verbs:
    """A table that was given to a verb.

    Raises
    ------
    ArgumentError
        If it is none.
    """
    if not isinstance(value, Verbs):
        raise ArgumentError(
            f"{verb} takes another table, but this is a {type(value).__name__}.",
            advice="Make one of it before, for example with gl.from_pandas.",
        )
    return value
