"""Every error that gcylon_lab raises on purpose.

::

    GcylonError                      .rank .advice .numbers .context
    ├── ConfigError                  (ValueError)   a setting is unknown, out of range or above the ceiling
    ├── ArgumentError                (ValueError)   an argument of a verb cannot be used
    ├── ColumnMissing                (KeyError)     a named column is not there
    ├── DuplicateColumns             (ValueError)   one label names several columns
    ├── SchemaMismatch               (TypeError)    the ranks' columns or dtypes cannot be brought together
    ├── UnsupportedDtype             (TypeError)    a column holds what cannot be distributed
    ├── ReadError                    (OSError)      a file cannot be read
    ├── WriteError                   (OSError)      a file cannot be written
    ├── BudgetExceeded               (MemoryError)  the device tier's limit is too small for the work
    ├── SpillError                   (OSError)      a disk failed, or host memory ended and no disk is allowed
    ├── RanksDisagree                               ranks called different verbs or gave different arguments
    ├── RankError                                   an exception that is none of the above, on one rank
    ├── CommError
    │   ├── Revoked                                 the exchange was cut short; `recover` makes it usable again
    │   ├── RankLost                                a rank's process is gone
    │   ├── RankStopped                             a rank's process is stopped, and may go on
    │   └── DeadlineExceeded         (TimeoutError) an operation ran past its `timeout_s`
    └── ClusterError
        ├── ClusterStartError                       the engines did not come up
        ├── ClusterDegraded                         a rank is gone: only `restart()` helps
        └── HandleReleased                          the table behind a handle is gone

Each says what happened, with numbers, and what to change (``advice``). An error
raised in an operation is told to all ranks and raised on each as the same
class; ``rank`` is where it began, and ``context`` what that rank was doing and holding then. URLs stand in them
without user info and query.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from .units import format_bytes
from .urls import without_secrets

_NOTES = "_gcylon_left"  # of any exception: what it has passed on its way out
_SHOWN_USES = 3


class GcylonError(Exception):
    """Base of every error of this package.

    Parameters
    ----------
    message : str
        What happened, with numbers.
    advice : str, optional
        What to change.
    rank : int, optional
        The rank on which it began.
    **numbers
        The values in the message, for programs; plain JSON values only.

    Attributes
    ----------
    context : dict
        Where it was raised in an operation: ``operation`` (verb and number, as "shuffle #12"), ``rank`` (where it was
        raised on one, and told to the others), ``phase``, ``round`` and ``rounds``, and what was in use at that moment:
        ``budget`` (used_bytes, limit_bytes, and of errors of memory by_use, bytes by what they were for) and ``tiers``
        (bytes by tier). Plain values; empty where no operation ran.
    """

    def __init__(self, message: str, *, advice: str = "", rank: int | None = None, **numbers: Any) -> None:
        message = without_secrets(message)
        super().__init__(message)
        self.message = message
        self.advice = without_secrets(advice)
        self.rank = rank
        self.numbers: dict[str, Any] = {k: without_secrets(v) if type(v) is str else v for k, v in numbers.items()}
        self.context: dict[str, Any] = {}
        self.agreed = False  # set where every rank raises it, so that it need not be told again

    def __str__(self) -> str:
        where = f"[rank {self.rank}] " if self.rank is not None else ""
        told = describe_context(self)
        if not self.advice:
            return f"{where}{self.message}{f' ({told})' if told else ''}"
        stop = "" if self.message.endswith((".", "!", "?", ".)")) else "."
        return f"{where}{self.message}{stop} {self.advice}{f' ({told})' if told else ''}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Plain Exception pickling would drop the keyword-only fields.
        return (from_message, (to_message(self),))


class ConfigError(GcylonError, ValueError):
    """A setting is unknown, out of range, or above the ceiling fixed at start."""


class ArgumentError(GcylonError, ValueError):
    """An argument of a verb cannot be used."""


class ColumnMissing(GcylonError, KeyError):
    """A named column is not in the table."""


class DuplicateColumns(GcylonError, ValueError):
    """One label names several columns."""


class SchemaMismatch(GcylonError, TypeError):
    """The ranks' columns or dtypes cannot be brought to one schema."""


class UnsupportedDtype(GcylonError, TypeError):
    """A column holds values that cannot be distributed."""


class ReadError(GcylonError, OSError):
    """A file cannot be read."""


class WriteError(GcylonError, OSError):
    """A file cannot be written."""


class BudgetExceeded(GcylonError, MemoryError):
    """The work does not fit the device tier's limit.

    ``numbers`` holds needed_bytes, used_bytes, limit_bytes, knob, and where
    known the value that would do (would_do).
    """


class SpillError(GcylonError, OSError):
    """Staging failed: on a disk, or where host memory ended and the config allows no disk.

    ``numbers`` holds needed_bytes, and where a limit was met used_bytes, limit_bytes, knob and would_do.
    """


class RanksDisagree(GcylonError):
    """Ranks met in different verbs, or with different arguments."""


class RankError(GcylonError):
    """An unexpected exception on one rank, told to all.

    ``numbers`` holds type_name and traceback of the original.
    """


class CommError(GcylonError):
    """The transport failed."""


class Revoked(CommError):
    """The exchange was cut short by an interrupt or a failure elsewhere."""


class RankLost(CommError):
    """A rank's process is gone."""


class RankStopped(CommError):
    """A rank's process is stopped, by a signal or a debugger; it may go on.

    ``numbers`` holds stopped_ranks.
    """


class DeadlineExceeded(CommError, TimeoutError):
    """An operation ran past its ``timeout_s``."""


class ClusterError(GcylonError):
    """The notebook's side could not do what was asked."""


class ClusterStartError(ClusterError):
    """The engines did not come up."""


class ClusterDegraded(ClusterError):
    """A rank is gone; only ``restart()`` helps."""


class HandleReleased(ClusterError):
    """The table behind a handle is gone."""


def warn(text: str) -> None:
    """Warn of something, at the line outside of this package that it is about."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _classes(base: type[GcylonError]) -> dict[str, type[GcylonError]]:
    found = {base.__name__: base}
    for sub in base.__subclasses__():
        found |= _classes(sub)
    return found


def to_message(error: BaseException, rank: int | None = None) -> dict[str, Any]:
    """Turn an exception into plain values that can be sent.

    Parameters
    ----------
    error : BaseException
        Any exception; one that is not a `GcylonError` becomes a `RankError`.
    rank : int, optional
        Where it was raised, used where the error does not say.

    Returns
    -------
    dict
        JSON values: kind, message, advice, rank, numbers, context.
    """
    if isinstance(error, GcylonError):
        origin = error.rank if error.rank is not None else rank
        return {
            "kind": type(error).__name__,
            "message": error.message,
            "advice": error.advice,
            "rank": origin,
            "numbers": error.numbers,
            "context": error.context,
        }
    import traceback

    text = "".join(traceback.format_exception(error))
    return {
        "kind": "RankError",
        "message": f"{type(error).__name__}: {_text_of(error)}",
        "advice": "",
        "rank": rank,
        "numbers": {"type_name": type(error).__name__, "traceback": text[-8000:]},
        "context": notes_of(error).get("context", {}),
    }


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an error that cannot be told must not keep the other ranks waiting
        return "(it has no text)"


def from_message(message: Mapping[str, Any]) -> GcylonError:
    """Rebuild the error that `to_message` described.

    Parameters
    ----------
    message : mapping
        What `to_message` returned, perhaps on another rank.

    Returns
    -------
    GcylonError
        Of the class named; an unknown name gives a `RankError`.
    """
    kind = _classes(GcylonError).get(message["kind"], RankError)
    error = kind(message["message"], advice=message["advice"], rank=message["rank"], **message["numbers"])
    error.context = dict(message.get("context", {}))
    return error


def note_left(error: BaseException, *, phase: str = "", claim: tuple[str, int] | None = None) -> None:
    """Note on an exception which phase and which claims on memory end by it: once it is caught, they are gone.

    Parameters
    ----------
    error : BaseException
        On its way out.
    phase : str, optional
        The name of a span; the innermost one stays.
    claim : tuple of str and int, optional
        What was claimed, and how many bytes.
    """
    notes = notes_of(error)
    if phase:
        notes.setdefault("phase", phase)
    if claim is not None:
        notes.setdefault("claims", []).append(claim)


def notes_of(error: BaseException) -> dict[str, Any]:
    """What `note_left` has noted on an exception: to be read and changed."""
    notes: dict[str, Any] = error.__dict__.setdefault(_NOTES, {})
    return notes


def describe_context(error: GcylonError) -> str:
    """Where an error was raised, in short; "" where that says nothing more than the error does.

    What was in use stands there where it is one rank's, so that the text is the same on all ranks.
    """
    context = error.context
    budget = context.get("budget", {}) if error.rank is not None and "rank" in context else {}
    if not (context.get("phase") or context.get("rounds") or budget.get("by_use")):
        return ""
    told = [f"in {context['operation']}"]
    if context.get("phase"):
        told.append(f"phase {context['phase']}")
    if context.get("rounds"):
        told.append(f"round {context['round']} of {context['rounds']}")
    if budget:
        uses = sorted(budget.get("by_use", {}).items(), key=lambda one: -one[1])[:_SHOWN_USES]
        by_use = f": {', '.join(f'{what} {format_bytes(n)}' for what, n in uses)}" if uses else ""
        told.append(f"{format_bytes(budget['used_bytes'])} of {format_bytes(budget['limit_bytes'])} in use{by_use}")
        below = {tier: n for tier, n in context["tiers"].items() if tier != "device" and n}
        told += [f"{format_bytes(n)} in tier {tier}" for tier, n in below.items()]
    return "; ".join(told)


class raised_as(AbstractContextManager[None]):  # noqa: N801 (used as a function is)
    """Around work whose errors are raised as others.

    A class: from Python 3.12 on an error that is caught where a generator's context manager yields, and replaced, is
    held by its own traceback, with the tables of all its frames, until the collector of cycles runs.

    Parameters
    ----------
    other : callable
        Takes an error and gives the one that is raised in its place, or None where it is to pass. Only what the other
        names as its cause is shown beside it.
    """

    def __init__(self, other: Callable[[Exception], Exception | None]) -> None:
        self._other = other

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return
        raised = self._other(error)
        if raised is None or raised is error:
            return
        raised.__suppress_context__ = True
        try:
            raise raised
        finally:
            del raised, error, trace
