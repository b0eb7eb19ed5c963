"""What every room of verbs stands on: the rank's part, its means, and how a result becomes a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

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
