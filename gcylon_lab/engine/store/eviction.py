"""What is evicted for an operation: counted while it runs."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from .part import Part
from .views import ShownPart
from .workspace import Workspace


class EvictionCount:
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
        self._before = weakref.WeakKeyDictionary({part: part.evicted_bytes for part in workspace.parts})

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
                own += part.evicted_bytes - before
            else:
                others += part.evicted_bytes - before
        return own, others
