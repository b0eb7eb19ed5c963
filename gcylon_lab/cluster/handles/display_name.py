"""What people call the tables on the ranks: the notebook's variables, and where none refers, how they were made."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...urls import without_secrets
from ..messages import Request, TableRef
from .forwarding import Forwarding
from .session_api import SessionApi

_SPOKEN = {"group_agg": "groupby", "from_local": "from_pandas", "adopt": "variable"}
_READS = "read_"


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a stored table came to be: a verb, the stored tables that it took, and other words."""

    verb: str
    tables: tuple[str, ...] = ()
    what: str = ""

    def describe(self, names: Mapping[str, str]) -> str:
        """In words, as "join of orders and #5".

        Parameters
        ----------
        names : mapping
            What stored tables are called; those that are not in it are called by their id.
        """
        of = [names.get(table, table) for table in self.tables] or [self.what] * bool(self.what)
        listed = " and ".join([", ".join(of[:-1])] * (len(of) > 1) + of[-1:])
        if self.verb == "variable":
            return f"{self.what} of %px"
        return f"{self.verb} of {listed}" if listed else self.verb


def spoken(action: str) -> str:
    """What a person calls a request's action."""
    return _SPOKEN.get(action, action)


def provenance_of(request: Request) -> Provenance:
    """How the table that a request makes comes to be."""
    verb = spoken(request.action)
    given = [value for one in (*request.args, *request.kwargs.values()) for value in _each(one)]
    tables = [request.table] * bool(request.table) + [v.table for v in given if isinstance(v, TableRef)]
    what = ""
    if request.action.startswith(_READS):
        what = _files(request.args[0])
    elif request.action == "adopt":
        what = str(request.args[0])
    return Provenance(verb, tuple(dict.fromkeys(tables)), what)


def handles(session: SessionApi) -> dict[str, Forwarding]:
    """A cluster's handles by the notebook's variables, those that are gone too; none where there is no notebook."""
    return {
        name: value
        for name, value in _variables()
        if not name.startswith("_") and isinstance(value, Forwarding) and value._session is session
    }


def variable_names(session: SessionApi, generation: int = 0) -> dict[str, str]:
    """The variables that refer to stored tables, by the tables' ids; several of one table stand with commas.

    Parameters
    ----------
    session : SessionApi
    generation : int, optional
        Of a handle that a restart may have made void; the session's own by default.
    """
    found: dict[str, list[str]] = {}
    for name, handle in handles(session).items():
        if handle._generation == (generation or session.generation):
            found.setdefault(handle._name, []).append(name)
    return {table: ", ".join(names) for table, names in found.items()}


def display_name(session: SessionApi, table: str) -> str:
    """What to call a stored table: its variables, or how it was made; "" where neither is known."""
    names = variable_names(session)
    origin = session.origins.get(table)
    return names.get(table) or (origin.describe(names) if origin else "")


def with_id(session: SessionApi, table: str, generation: int = 0) -> str:
    """A stored table by its variable, with its id: "orders (#3)"; its id alone where there is none."""
    name = variable_names(session, generation).get(table)
    return f"{name} ({table})" if name else table


def memory_names(session: SessionApi, ids: Iterable[str], on_engines: Iterable[str]) -> str:
    """What to call a table that engines keep under these ids, and that these variables of ``%px`` refer to."""
    said = [display_name(session, table) for table in ids]
    there = [f"{name} of %px" for name in on_engines]
    return ", ".join(dict.fromkeys(text for text in (*said, *there) if text)) or ", ".join(ids)


def made_at(ids: str) -> float:
    """A key that puts ids in the order in which the tables were made; what has no id comes last."""
    number = ids.partition(",")[0].removeprefix("#")
    return int(number) if number.isdigit() else float("inf")


def _variables() -> list[tuple[str, Any]]:
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return list(shell.user_ns.items()) if shell is not None else []


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _files(paths: Any) -> str:
    first, *others = _each(paths) or [""]
    first = without_secrets(str(first))
    name = os.path.basename(first.rstrip("/")) or first
    return f"{name} and {len(others)} more" if others else name
