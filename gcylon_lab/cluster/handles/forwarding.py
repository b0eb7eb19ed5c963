"""Verbs of `Table` as methods of handles: sent to all ranks as they were called. A new verb is one line."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Never, ParamSpec, Self, TypeVar, cast

from ...api.verbs.arguments import bind
from ...api.verbs.brackets import of_groups
from ...api.verbs.rows import RowVerbs
from ...backends.protocol.schema import Schema
from ...errors import GcylonError
from ...operators.rowwise.chain import Chain, Step, extended
from ..messages import Reply, Request, TableRef
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


P = ParamSpec("P")
R = TypeVar("R")

COLLECTIVE = "Collective: all ranks call it. "


class Forwarding:
    """What a handle needs to send its verbs. `DistTable` fills it in."""

    _session: SessionApi
    _name: str
    _generation: int
    _there: OnRanks
    _pending: Pending | None

    def _reference(self, session: SessionApi) -> TableRef:
        """What stands for the table in a request."""
        raise NotImplementedError

    def _before(self) -> list[Forwarding]:
        """The handles whose verbs are to be sent with a request that needs this table, in order; itself the last."""
        found: list[Forwarding] = []
        table: Forwarding = self
        while table._pending is not None:
            found.append(table)
            table = table._pending.source
        return found[::-1]

    def _tell(self) -> Any:
        """What the ranks tell of it; they make it where they had no need of it before."""
        raise NotImplementedError

    def _remember(self, verb: Callable[..., Any], bound: inspect.BoundArguments) -> Self | None:
        """The handle of a row-wise verb's table, which is not sent yet; None where it is to be sent at once."""
        raise NotImplementedError

    def _wrap_result(self, name: str, replies: list[Reply]) -> Self:
        """The handle of a table that a verb of this one made."""
        raise NotImplementedError

    @property
    def _table_kind(self) -> type:
        """What other tables are that verbs are given."""
        return Forwarding

    def _refuse(self, verb: str, error: GcylonError) -> Never:
        """Raise what an argument is refused with: no rank was asked yet."""
        raise error

    def _send(self, verb: str, bound: inspect.BoundArguments) -> list[Reply]:
        request, function = self._asked(verb, bound)
        with with_before(self._session, request, self, *tables_in(bound.arguments.values())) as request:
            return self._session.call(request, function, timeout_s=bound.arguments.get("timeout_s"))

    def _make(self, verb: str, bound: inspect.BoundArguments) -> Self:
        request, function = self._asked(verb, bound)
        with with_before(self._session, request, self, *tables_in(bound.arguments.values())) as request:
            return self._session.make(request, self._wrap_result, function, timeout_s=bound.arguments.get("timeout_s"))

    def _asked(self, verb: str, bound: inspect.BoundArguments) -> tuple[Request, Callable[..., Any] | None]:
        """What to send for a call of a verb: the request, and the function among its arguments."""
        args, kwargs = bound.args[1:], bound.kwargs
        session = self._session
        table = self._reference(session).table
        # A function travels as ``%px`` code does, and is the first argument there.
        function = next((value for value in (*args[:1], *kwargs.values()) if inspect.isroutine(value)), None)
        args = tuple(as_reference(session, value) for value in args if value is not function or function is None)
        kwargs = {
            name: as_reference(session, value)
            for name, value in kwargs.items()
            if value is not function or function is None  # None is a value too
        }
        return Request(verb, table, "", args, kwargs), function


H = TypeVar("H", bound=Forwarding)


def as_reference(session: SessionApi, value: Any) -> Any:
    """A handle as what stands for it in a request, also in a list; anything else as it is."""
    if isinstance(value, (list, tuple)) and any(isinstance(one, Forwarding) for one in value):
        return [as_reference(session, one) for one in value]
    return value._reference(session) if isinstance(value, Forwarding) else value


def tables_in(values: Iterable[Any]) -> list[Forwarding]:
    """The handles among arguments, those in lists too."""
    each = [one for value in values for one in (value if isinstance(value, (list, tuple)) else [value])]
    return [one for one in each if isinstance(one, Forwarding)]


@contextmanager
def with_before(session: SessionApi, request: Request, *tables: Forwarding) -> Iterator[Request]:
    """A request with the verbs that were not sent of tables that it is about; they are made once it ends well.

    Where it does not, ranks may have come to different points: they forget those tables, and are told them anew.
    """
    waiting = {one._name: one for table in tables for one in table._before()}
    for one in waiting.values():
        one._there.told = True
    try:
        before = [one._pending.request for one in waiting.values() if one._pending is not None]
        yield replace(request, before=tuple(before)) if before else request
    except BaseException:
        for name in waiting:
            session.drop_later(name)
        raise
    for table in tables:
        if table._name in waiting:
            waiting[table._name]._pending = None


def remembered(verb: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[H, P], H]:
    """A row-wise verb of `Table`, as a handle's method; it is sent with the first request that needs its table."""

    def call(self: H, bound: inspect.BoundArguments) -> H:
        later = self._remember(verb, bound)
        made = self._make(verb.__name__, bound) if later is None else later
        return cast(H, of_groups(verb.__name__, self, made))

    method: Callable[Concatenate[H, P], H] = _as_method(verb, call)
    return method


def forwarded(verb: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[H, P], H]:
    """A verb of `Table` that gives a table, as a handle's method. Handles among its arguments arrive as tables.

    Parameters
    ----------
    verb : function
        The method of `Table`. A function may be its first argument; it runs as ``%px`` code does.
    """

    def call(self: H, bound: inspect.BoundArguments) -> H:
        return cast(H, of_groups(verb.__name__, self, self._make(verb.__name__, bound)))

    method: Callable[Concatenate[H, P], H] = _as_method(verb, call)
    return method


def answered(verb: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A verb of `Table` that gives the same value on every rank, as a handle's method; see `forwarded`."""

    def call(self: Forwarding, bound: inspect.BoundArguments) -> R:
        replies = self._send(verb.__name__, bound)
        value: R = replies[0].value
        return value

    method: Callable[Concatenate[Any, P], R] = _as_method(verb, call)
    return method


def in_place(verb: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[H, P], H]:
    """A verb of `Table` that gives the table itself, as a handle's method that gives the handle; see `forwarded`."""

    def call(self: H, bound: inspect.BoundArguments) -> H:
        self._send(verb.__name__, bound)
        return self

    method: Callable[Concatenate[H, P], H] = _as_method(verb, call)
    return method


def collected(verb: Callable[Concatenate[Any, P], list[R]]) -> Callable[Concatenate[Any, P], list[R]]:
    """A verb of `Table` that gives each rank a list, as a handle's method that gives them one after the other.

    Its first argument is a path: that of the notebook's folder, wherever the engines are.
    """

    def call(self: Forwarding, bound: inspect.BoundArguments) -> list[R]:
        bound.arguments["path"] = absolute(bound.arguments["path"])
        replies = self._send(verb.__name__, bound)
        return [value for reply in replies for value in reply.value]

    method: Callable[Concatenate[Any, P], list[R]] = _as_method(verb, call)
    return method


def asked_here(verb: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method of `Table` that is answered in the notebook: what it calls of a table, a handle has too."""
    method: Callable[Concatenate[Any, P], R] = _documented(
        verb, lambda self, *args, **kwargs: verb(self, *args, **kwargs)
    )
    return method


def absolute(paths: Any) -> Any:
    """Paths as the engines find them, wherever the notebook has gone since they started."""
    if isinstance(paths, (list, tuple)):
        return [absolute(path) for path in paths]
    from ...formats.filesystems import is_url

    text = os.fspath(paths) if isinstance(paths, os.PathLike) else str(paths)
    return text if is_url(text) else os.path.abspath(os.path.expanduser(text))


def _as_method(verb: Callable[..., Any], call: Callable[[Any, inspect.BoundArguments], Any]) -> Any:
    """A method with a verb's arguments, which are checked before it is called with them."""
    signature = inspect.signature(verb)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(self, bind(verb.__name__, signature, self, *args, **kwargs))

    return _documented(verb, method)


def _documented(verb: Callable[..., Any], method: Callable[..., Any]) -> Any:
    method = functools.wraps(verb)(method)
    method.__doc__ = handle_doc(verb)
    return method


def handle_doc(verb: Callable[..., Any]) -> str:
    """What is written at a collective, for the notebook, where one call does for all ranks."""
    return (verb.__doc__ or "").replace(COLLECTIVE, "", 1)
