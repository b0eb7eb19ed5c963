"""What the notebook and the engines say to each other: plain values on two channels.

The shell channel carries one `Request` at a time, in the same order to every
rank. The control channel is answered by a thread of its own, also while a
request runs: state, snapshots and settings go there, so they never queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..backends.protocol.schema import Schema
    from ..engine.plan.plan import Plan

CONTROL_REQUEST = "gcylon_lab_request"
CONTROL_REPLY = "gcylon_lab_reply"
LOOK_REQUEST = "gcylon_lab_look_request"  # to the nanny of an engine
WITHOUT_STATUS = "gcylon_lab"  # the label of calls of which engines do not tell all clients that they begin and end
CARD_ROWS, CARD_COLUMNS = 10, 12  # of a table: go with the reply that it was made, for its card


@dataclass(frozen=True, slots=True)
class TableRef:
    """Stands for a stored table among the arguments of a request."""

    table: str


@dataclass(frozen=True, slots=True)
class Request:
    """One piece of work for every rank.

    Parameters
    ----------
    action : str
        What to do: a verb of `Table`, or one of the engine's own actions.
    table : str, optional
        The stored table whose verb it is.
    result : str, optional
        The name under which to keep the table that comes out.
    args, kwargs
        The verb's arguments; tables stand in them as `TableRef`.
    drop : tuple of str
        Stored tables that nobody refers to any more.
    modules : dict
        What the function that goes with it needs: the names of modules by what it calls them.
    before : tuple of Request
        Row-wise verbs that were called before and not sent: tables of their names are to be there when it begins.
    """

    action: str
    table: str = ""
    result: str = ""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    modules: dict[str, str] = field(default_factory=dict)
    before: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a rank answers to a `Request`.

    ``error`` is what `gcylon_lab.errors.to_message` gives; ``info`` is `Table.info` of the stored result, whose
    ``value`` are its first rows, ``rows`` those that were asked for with it where they are few, ``plan`` how it was
    made, and ``schema`` its columns as rank 0 tells them where they have few labels; ``revoked`` says whether the
    rank's transport needs recovery; ``memory`` is what plans need to know of the rank, and ``moved`` where the rows of
    stored tables are now, of those that were staged since the last reply.
    """

    rank: int
    value: Any = None
    rows: bytes | None = None
    error: dict[str, Any] | None = None
    traceback: str = ""
    info: dict[str, Any] | None = None
    plan: Plan | None = None
    schema: Schema | None = None
    revoked: bool = False
    memory: dict[str, int] = field(default_factory=dict)
    moved: dict[str, dict[str, Any]] = field(default_factory=dict)
