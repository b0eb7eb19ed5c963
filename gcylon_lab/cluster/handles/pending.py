"""Row-wise verbs of a handle that no rank was told yet: they go with the first request that needs their table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Never, Self

from ...api.verbs.rows import RowVerbs
from ...backends.protocol.schema import Schema
from ...errors import GcylonError
from ...operators.rowwise.chain import Chain, Step, extended
from ..messages import Request
from .session_api import SessionApi


@dataclass(slots=True)
class Pending:
    """What a handle's table is to be made of.

    Attributes
    ----------
    source : DistTable
        Its verb's table, which is kept until then.
    request : Request
        What the ranks are told.
    after : Chain
        With the columns of what it gives; where they are not known, their names are.
    """

    source: Any
    request: Request
    after: Chain


@dataclass(slots=True)
class OnRanks:
    """Whether ranks may know of a table, so that they are told when its handle goes."""

    told: bool

    def drop_later(self, session: SessionApi, table: str) -> None:
        """Let them forget it with the next request; safe in finalizers."""
        if self.told:
            session.drop_later(table)


def chain_after(verb: Callable[..., Any], bound: inspect.BoundArguments, schema: Schema) -> Chain | None:
    """A row-wise verb, with the columns that it gives; None where it is to be sent at once.

    Parameters
    ----------
    verb : function
        The method of `Table`.
    bound : inspect.BoundArguments
        What it is called with.
    schema : Schema
        Of its table.
    """
    asked = _Asked(schema)
    try:
        inspect.unwrap(verb)(asked, *bound.args[1:], **bound.kwargs)
    except (_AtOnceError, GcylonError):  # ranks tell what is wrong
        return None
    return asked.after


class _AtOnceError(Exception):
    """A verb is to be sent at once."""


class _Asked(RowVerbs):
    """A table of which only the columns are known: it takes one step, and has no rows."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.after: Chain | None = None

    @property
    def schema(self) -> Schema:
        """Columns and dtypes."""
        return self._schema

    def _later(self, step: Callable[[Schema], Step]) -> Self:
        more = extended(Chain((), (self._schema,)), step(self._schema))
        if more is None or not more.sure:
            raise _AtOnceError
        self.after = more
        return self

    def _live(self) -> Never:
        raise _AtOnceError

    @property
    def _workspace(self) -> Never:
        raise _AtOnceError
