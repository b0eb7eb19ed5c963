"""``shuffle_async`` beside `shuffle`, and so on: made of the verbs, so that a new verb has one."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from ...api.verbs.arguments import bind
from ...urls import without_secrets
from .forwarding import COLLECTIVE, Forwarding
from .futures import VerbFuture

if TYPE_CHECKING:
    from ..client.session import Session

C = TypeVar("C", bound=type)

SUFFIX = "_async"

_RETURNS = re.compile(r"\n\nReturns\n-+\n.*?(?=\n\n\w+\n-+\n|\Z)", re.DOTALL)
_SECTION = re.compile(r"\n\n(?:Raises|Notes|Examples)\n-+\n")
_ANSWER = """

Returns
-------
VerbFuture
    Await it for what `{name}` gives; or ``.result()``, ``.done()``, ``.cancel()``."""


def with_async(*, but: Collection[str] = ()) -> Callable[[C], C]:
    """Give a class a ``name_async`` beside each of its public methods, its bases' ones too.

    Parameters
    ----------
    but : collection of str
        Methods that ask no rank, or are no requests, and plans.
    """

    def add(kind: C) -> C:
        for name in dir(kind):
            method = inspect.getattr_static(kind, name)
            is_verb = inspect.isfunction(method) and not name.startswith(("_", "plan_")) and name not in but
            if is_verb and not name.endswith(SUFFIX):
                setattr(kind, name + SUFFIX, _later(name, method, kind.__name__))
        return kind

    return add


def _later(name: str, method: Callable[..., Any], owner: str) -> Callable[..., VerbFuture[Any]]:
    signature = inspect.signature(method)

    def call(self: Any, *args: Any, **kwargs: Any) -> VerbFuture[Any]:
        bind(name, signature, self, *args, **kwargs)  # what does not fit is said at once
        session: Session = self._session
        words = without_secrets(f"{self._display_name}.{name}({_words(args, kwargs)})")
        return session.later(words, functools.partial(_begun, getattr(self, name), *args, **kwargs))

    call.__name__ = name + SUFFIX
    call.__qualname__ = f"{owner}.{name}{SUFFIX}"
    call.__module__ = method.__module__
    call.__doc__ = _documented(name, (inspect.getdoc(method) or "").replace(COLLECTIVE, "", 1))
    call.__signature__ = signature.replace(return_annotation="VerbFuture[Any]")  # type: ignore[attr-defined]
    call.__annotations__ = method.__annotations__ | {"return": "VerbFuture[Any]"}
    return call


def _begun(verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a verb gives; who begins one that could wait for others wants its rows."""
    made = verb(*args, **kwargs)
    if isinstance(made, Forwarding):
        made._tell()
    return made


def _documented(name: str, text: str) -> str:
    """The verb's numpydoc text, for a method that begins it."""
    begins = f"Begin `{name}` and return at once: it runs when its turn has come.\n\n"
    body, answer = _RETURNS.sub("", text), _ANSWER.format(name=name)
    after = _SECTION.search(body)
    place = after.start() if after else len(body)
    return f"{begins}{body[:place].rstrip()}{answer}{body[place:]}\n"


def _words(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Arguments for people, cut short."""
    texts = [_short(value) for value in args] + [f"{key}={_short(value)}" for key, value in kwargs.items()]
    return ", ".join(texts)


def _short(value: Any) -> str:
    name: str = getattr(value, "_display_name", "")
    rows = type(value).__module__.partition(".")[0] in ("pandas", "numpy") or hasattr(value, "__arrow_c_stream__")
    if not name and (rows or isinstance(value, (bytes, bytearray, memoryview, dict))):
        return f"<{type(value).__name__}>"  # showing one takes long
    text = name or repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
