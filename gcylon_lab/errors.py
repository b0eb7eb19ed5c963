"""Every error that gcylon_lab raises on purpose.

::

    GcylonError                      .rank .advice .numbers
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
class; ``rank`` is where it began. URLs stand in them without user info and query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .urls import without_secrets


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
    """

    def __init__(self, message: str, *, advice: str = "", rank: int | None = None, **numbers: Any) -> None:
        message = without_secrets(message)
        super().__init__(message)
        self.message = message
        self.advice = without_secrets(advice)
        self.rank = rank
        self.numbers: dict[str, Any] = {k: without_secrets(v) if type(v) is str else v for k, v in numbers.items()}
        self.agreed = False  # set where every rank raises it, so that it need not be told again

    def __str__(self) -> str:
        where = f"[rank {self.rank}] " if self.rank is not None else ""
        if not self.advice:
            return f"{where}{self.message}"
        stop = "" if self.message.endswith((".", "!", "?", ".)")) else "."
        return f"{where}{self.message}{stop} {self.advice}"

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
        JSON values: kind, message, advice, rank, numbers.
    """
    if isinstance(error, GcylonError):
        origin = error.rank if error.rank is not None else rank
        return {
            "kind": type(error).__name__,
            "message": error.message,
            "advice": error.advice,
            "rank": origin,
            "numbers": error.numbers,
        }
    import traceback

    text = "".join(traceback.format_exception(error))
    return {
        "kind": "RankError",
        "message": f"{type(error).__name__}: {_text_of(error)}",
        "advice": "",
        "rank": rank,
        "numbers": {"type_name": type(error).__name__, "traceback": text[-8000:]},
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
    return kind(message["message"], advice=message["advice"], rank=message["rank"], **message["numbers"])
