"""Folds what N ranks report into one error, with the cause on top."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..comm.transport import INTERRUPTED
from ..errors import (
    ClusterError,
    GcylonError,
    RankError,
    RankLost,
    Revoked,
    from_message,
    to_message,
)
from .messages import Reply
from .tracebacks import shown_folded

# These follow from somebody else's failure; they are the cause only if there is nothing else.
_CONSEQUENCES = ("RankLost", "DeadlineExceeded", "CommError", "Revoked")
_RANK = re.compile(r"rank \d+", re.IGNORECASE)


def fold(replies: Sequence[Reply]) -> GcylonError | None:
    """Make one error of the replies of all ranks; None if all is well.

    Parameters
    ----------
    replies : sequence of Reply
        In rank order.

    Returns
    -------
    GcylonError or None
        Of the class raised on the ranks. ``remote_traceback`` is the first failing
        rank's, ``ranks`` the ranks that raised it; a note says what the others did.
    """
    failed = [reply for reply in replies if reply.error is not None]
    if not failed:
        return None
    cause = min(failed, key=_weight)
    assert cause.error is not None
    same = [reply.rank for reply in failed if _alike(reply.error, cause.error)]
    error = from_message(cause.error)
    blamed = {reply.error["rank"] for reply in failed if reply.error is not None and reply.rank in same}
    if len(same) == len(replies) > 1 and len(blamed) > 1:
        error.rank = None  # all say it of themselves: none is to blame more than the others
    return attach_traceback(error, same, cause.traceback, _others(failed, same, len(replies)))


def attach_traceback(
    error: GcylonError, ranks: Sequence[int], remote_traceback: str, others: Sequence[str] = ()
) -> GcylonError:
    """Add to an error what a person needs to find its place on the ranks."""
    error.ranks = tuple(ranks)  # type: ignore[attr-defined]
    # What an agreement told to all was raised on one rank: its traceback is the one that helps.
    told = str(error.numbers.get("traceback", ""))
    remote_traceback = told if "Traceback" in told else remote_traceback
    error.remote_traceback = remote_traceback  # type: ignore[attr-defined]
    shown_folded(error, name_ranks(ranks))
    for line in others:
        error.add_note(line)
    if isinstance(error, RankError):
        origin = ranks if error.rank is None else [error.rank]
        error.add_note(f"On {name_ranks(origin)}:\n{remote_traceback.rstrip()}")
    elif remote_traceback:
        error.add_note(f"Raised on {name_ranks(ranks)}; .remote_traceback has where.")
    return error


def name_ranks(ranks: Sequence[int]) -> str:
    """Write ranks for people, runs folded: "rank 3", "ranks 0-2, 5"."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"rank{'s' if len(set(ranks)) > 1 else ''} {', '.join(texts)}"


def unreadable(rank: int, error: BaseException) -> Reply:
    """Stand in for a reply that did not come, or could not be unpacked."""
    name = getattr(error, "ename", "")
    if name == "EngineError":
        told: GcylonError = RankLost(f"Rank {rank} ended before it answered.", rank=rank)
    elif name == "KeyboardInterrupt":
        told = Revoked(f"Rank {rank} was interrupted before it began.", rank=rank)
    elif name == RankError.__name__:  # its value cannot be read here
        told = RankError(str(getattr(error, "evalue", error)).removeprefix(f"[rank {rank}] "), rank=rank)
    else:
        told = ClusterError(f"Rank {rank} gave no answer that can be read: {type(error).__name__}: {error}", rank=rank)
    text = str(getattr(error, "traceback", "") or "")
    return Reply(rank, error=to_message(told, rank), traceback=text, revoked=True)


def freed(reply: Reply) -> Reply:
    """The reply of a rank that was interrupted only because another one had failed, which it did not know."""
    if reply.error is None or reply.error["kind"] != "Revoked":
        return reply
    return replace(reply, error=reply.error | {"message": INTERRUPTED})


def _weight(reply: Reply) -> tuple[int, bool, int]:
    assert reply.error is not None
    kind = reply.error["kind"]
    follows = 1 + _CONSEQUENCES.index(kind) if kind in _CONSEQUENCES else 0
    return follows, reply.error["message"] == INTERRUPTED, reply.rank


def _alike(one: dict[str, Any] | None, other: dict[str, Any]) -> bool:
    return one is not None and summary_of(one["kind"], one["message"]) == summary_of(other["kind"], other["message"])


def summary_of(kind: str, message: str) -> tuple[str, str]:
    """What is the same where ranks say the same of themselves."""
    return kind, _RANK.sub("rank", message)


def _others(failed: Sequence[Reply], same: Sequence[int], size: int) -> list[str]:
    """What the ranks said that did not raise the cause."""
    texts: dict[str, list[int]] = {}
    for reply in failed:
        if reply.rank not in same and reply.error is not None:
            texts.setdefault(f"{reply.error['kind']}: {reply.error['message']}", []).append(reply.rank)
    fine = size - len(failed)
    lines = [f"{name_ranks(ranks).capitalize()} left with {text}" for text, ranks in texts.items()]
    return lines + ([f"{fine} of {size} ranks had no error; what they made is dropped."] if fine else [])
