"""Frames of the notebook where a verb takes a table: small ones are sent to the ranks by themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from ...errors import ArgumentError
from ...units import MIB, format_bytes
from ..messages import Request

F = TypeVar("F", bound=Callable[..., Any])

MOST_BYTES = 16 * MIB  # which a request carries


def with_frames(verb: F) -> F:
    """A verb of handles whose other table may be a small frame of pandas.

    Parameters
    ----------
    verb : function
        Takes the other table first, or as ``right``.
    """

    @functools.wraps(verb)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = args[0] if args else kwargs.get("right")
        if not _is_frame(place):
            return verb(self, *args, **kwargs)
        sent = _sent(self, verb.__name__, place)
        try:
            return verb(self, sent, *args[1:], **kwargs) if args else verb(self, **(kwargs | {"right": sent}))
        finally:
            sent.release()

    return cast(F, call)


def _is_frame(given: Any) -> bool:
    kind = type(given)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def _sent(table: Any, verb: str, frame: Any) -> Any:
    nbytes = int(frame.memory_usage(deep=True).sum())
    if nbytes > MOST_BYTES:
        raise ArgumentError(
            f"{verb} was given a frame of {format_bytes(nbytes)}, of which at most {format_bytes(MOST_BYTES)} are sent "
            "to the ranks by themselves.",
            advice="Send it before, as other = lab.from_pandas(frame), and keep the table.",
        )
    session = table._session
    ranks = len(session.ranks)
    edges = [len(frame) * rank // ranks for rank in range(ranks + 1)]
    each = [frame.iloc[start:stop] for start, stop in zip(edges, edges[1:], strict=False)]
    kind: Callable[..., Any] = type(table)
    handle = partial(kind, session)
    return session.make(Request("from_local", kwargs={"config": None}), handle, each=each)
