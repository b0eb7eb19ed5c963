"""What makes a verb one that can be planned: how its arguments become a plan, and what a form asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...backends.protocol.schema import Label
from .plan import Plan


@dataclass(frozen=True)
class PlannedVerb:
    """A verb whose plan is known before it runs, from what ranks tell of its tables.

    Attributes
    ----------
    verb : str
        What its operation is called.
    estimate : callable
        Makes the plan. Takes the `Parts` of each table, a config, a strategy, and by their names those of the verb's
        arguments on which the plan depends, or that it refuses as the verb does. Reads no rows.
    method : str
        The method of tables, where it has another name.
    keys : str
        Which argument names key columns; empty where there is none.
    all_by_default : bool
        Whether without keys all columns are meant.
    tables : str
        Which argument is another table, or a list of them; empty where there is none.
    refuse : callable, optional
        Raises what the verb does for dtypes that it cannot take. Takes the schema of each table, how many rows each
        has, and what `estimate` takes by name.
    """

    verb: str
    estimate: Callable[..., Plan]
    method: str = ""
    keys: str = ""
    all_by_default: bool = False
    tables: str = ""
    refuse: Callable[..., None] | None = None

    @cached_property
    def takes(self) -> frozenset[str]:
        """The arguments of the verb that `estimate` takes."""
        return frozenset(list(inspect.signature(self.estimate).parameters)[3:])

    def chosen(self, keys: Sequence[Label], **more: Any) -> dict[str, Any]:
        """Return what `estimate` is given where keys are chosen, and of others those that it takes."""
        asks = self.keys and (keys or not self.all_by_default)
        return ({self.keys: list(keys)} if asks else {}) | {n: value for n, value in more.items() if n in self.takes}
