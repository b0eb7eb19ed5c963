"""Verbs whose results have not been compared with pandas on a GPU yet: there they are refused, until somebody asks."""

from __future__ import annotations

import os

from ..config import parse_flag
from ..errors import ArgumentError
from .votes import agreed
from .workspace import Workspace

UNTRIED_VARIABLE = "GCYLON_UNTRIED"
_UNTRIED = frozenset("astype fillna isin map_parts sample tail any all var describe".split())


def refuse_untried(workspace: Workspace, verb: str) -> None:
    """Refuse a verb on GPU engines that was never seen to be right there; all ranks alike.

    Raises
    ------
    ArgumentError
        Unless ``GCYLON_UNTRIED`` is on.
    """
    if not workspace.backend.on_gpu or verb not in _UNTRIED:
        return
    if not parse_flag(UNTRIED_VARIABLE, os.environ.get(UNTRIED_VARIABLE, "") or "0"):
        raise agreed(
            ArgumentError(
                f"{verb} has not been seen to give right results on GPU engines yet.",
                advice=f"Use CPU engines (GCYLON_ENGINE=cpu), or set {UNTRIED_VARIABLE}=1 and compare what it gives.",
            )
        )
