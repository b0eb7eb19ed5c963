"""Frames of the notebook where a verb takes a table: small ones are sent to the ranks by themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from ...engine.exec.keys import listed
from ...errors import ArgumentError
from ...units import MIB, format_bytes
from ..messages import Request

F = TypeVar("F", bound=Callable[..., Any])

MOST_BYTES = 16 * MIB  # which a request carries


def with_frames(verb: F, *, as_join: bool = False) -> F:
    """A verb of handles whose other table may be a small frame of pandas.

    Parameters
    ----------
    verb : function
        Takes the other table first, or as ``right``.
    as_join : bool, default False
        Whether it is called as pandas' ``join``, which means the index of the other frame.
    """

    @functools.wraps(verb)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = args[0] if args else kwargs.get("right")
        if not _is_frame(place):
            return verb(self, *args, **kwargs)
        place, kwargs = _by_columns(place, kwargs, as_join=as_join and len(args) < 2)
        sent = _sent(self, verb.__name__, place)
        try:
            return verb(self, sent, *args[1:], **kwargs) if args else verb(self, **(kwargs | {"right": sent}))
        finally:
            sent.release()

    return cast(F, call)


def _is_frame(given: Any) -> bool:
    kind = type(given)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def _by_columns(frame: Any, given: dict[str, Any], *, as_join: bool) -> tuple[Any, dict[str, Any]]:
    """A frame with its index as columns, where that has a name or is to be the key, and the keys that say so."""
    levels, given = list(frame.index.names), dict(given)
    if given.pop("right_index", False):
        levels = listed(given.pop("left_on", levels), "left_on")
        given["on"] = levels
    elif None in levels:
        return frame, given
    elif as_join and "on" in given:  # which names columns of the left side there
        levels = listed(given["on"], "on")
    if as_join and "how" not in given:
        raise ArgumentError(
            f"join was given a frame with an index, {list(frame.index.names)!r}: pandas keeps all left rows then.",
            advice="Say which rows to keep: give how='left', or how='inner'.",
        )
    if len(levels) != frame.index.nlevels or None in levels or set(levels) & set(frame.columns):
        raise ArgumentError(
            f"The frame's index {list(frame.index.names)!r} cannot be the columns {levels!r}.",
            advice="Give frame.reset_index(), and on=, or left_on= and right_on=.",
        )
    return frame.rename_axis(levels).reset_index(), given


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
