"""What gives way to an operation: counted while it runs, told by all ranks, and noted in its plan."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from ..units import format_bytes
from .part import Part
from .views import ShownPart
from .workspace import Workspace


class GivingWay:
    """The bytes of tables that leave this rank's device tier from now on; of tables that are there by now.

    Parameters
    ----------
    workspace : Workspace
        Whose tables they are.
    inputs : sequence of Part
        Those that the operation takes.
    """

    def __init__(self, workspace: Workspace, inputs: Sequence[Part]) -> None:
        behind = (part.behind if isinstance(part, ShownPart) else (part,) for part in inputs)
        self._workspace = workspace
        self._inputs = {id(part) for parts in behind for part in parts}
        self.inputs = len(self._inputs)
        self._before = weakref.WeakKeyDictionary({part: part.gave_way_bytes for part in workspace.parts})

    def let_go_of_made(self) -> None:
        """Empty the parts that were made since: those of an operation that failed, whoever still refers to them."""
        for part in list(self._workspace.parts):
            if part not in self._before:
                part.release()

    def count(self) -> tuple[int, int]:
        """Bytes so far: of inputs, and of other tables."""
        own = others = 0
        for part, before in list(self._before.items()):
            if id(part) in self._inputs:
                own += part.gave_way_bytes - before
            else:
                others += part.gave_way_bytes - before
        return own, others


def giving_way_notes(
    own_bytes: int, other_bytes: int, *, inputs: int = 1, ran: bool = False, come_back: bool = False
) -> tuple[str, ...]:
    """What a plan says of it: it is why a smaller limit may allow what a larger one does not.

    Parameters
    ----------
    own_bytes, other_bytes : int
        Bytes of inputs and of other tables, on the rank that has most.
    inputs : int, default 1
        How many the operation takes.
    ran : bool, default False
        Whether it has run; it is still to come otherwise.
    come_back : bool, default False
        Whether a limit of this operation alone was the reason.
    """
    later = "; {} come{} back when next used, as the limit was this operation's alone" if come_back else ""
    are, makes = ("were", "made") if ran else ("are", "makes")
    notes = []
    if other_bytes:
        notes.append(
            f"other tables {are} staged first, up to {format_bytes(other_bytes)} a rank, which {makes} room"
            + later.format("they", "")
        )
    if own_bytes:
        name, is_ = ("the table itself", "was" if ran else "is") if inputs == 1 else ("the tables themselves", are)
        notes.append(
            f"{name} {is_} staged first, up to {format_bytes(own_bytes)} a rank, which {makes} room, and {is_} read "
            "back piece by piece" + (later.format("it", "s") if inputs == 1 else later.format("they", ""))
        )
    return tuple(notes)
