"""Agreements: the one message shape in which ranks tell each other numbers and errors.

Every agreement of an operation has the same length, so that a rank which fails
anywhere between two agreements can tell it in the next one, whatever that one is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ...comm.transport import Transport
from ...errors import CommError, GcylonError, RankError, RanksDisagree, from_message, to_message
from ...profiling import span

Int64s = npt.NDArray[np.int64]

_HEADER = 3  # kind, operation number, failed
_FIXED = 16


class AgreementKind(IntEnum):
    """Where in an operation ranks agree."""

    OPENING = 1
    COUNT = 2
    ROUND = 3
    CLOSING = 4


def agreement_room(size: int) -> int:
    """How many numbers an agreement of so many ranks carries."""
    return _FIXED + 2 * size


class Agreements:
    """Makes the agreements of one operation.

    Parameters
    ----------
    transport : Transport
        Its world agrees.
    number : int
        The operation's number, the same on all ranks.
    describe : callable
        Says what this rank is doing, for the error that shows ranks apart.
    """

    def __init__(self, transport: Transport, number: int, describe: Callable[[], str]) -> None:
        self._transport = transport
        self._number = number
        self._describe = describe
        self.room = agreement_room(transport.size)
        self.count = 0  # that were made: the same on all ranks

    def agree(
        self,
        kind: AgreementKind,
        numbers: Sequence[int] | Int64s,
        *,
        completes: bool = True,
        error: BaseException | None = None,
    ) -> Int64s:
        """Collective: all ranks call it. Agree that all is well so far, with numbers for all.

        Parameters
        ----------
        kind : AgreementKind
            Where this rank is.
        numbers : sequence of int
            At most ``room``; the rest is zero.
        completes : bool
            Whether all that was exchanged before is complete once the agreement is made; the same on all ranks.
        error : Exception, optional
            Of this rank, which all raise; see `fail`.

        Returns
        -------
        ndarray of int64, shape (size, room)

        Raises
        ------
        GcylonError
            The error of the first rank that failed, on all ranks, with ``agreed`` set.
        RanksDisagree
            If ranks are in different operations or at different agreements.
        """
        message = np.zeros(_HEADER + self.room, dtype=np.int64)
        message[:_HEADER] = (kind, self._number, error is not None)
        message[_HEADER : _HEADER + len(numbers)] = numbers
        transport = self._transport
        completes = completes and kind is not AgreementKind.OPENING
        self.count += 1
        with span("waiting", "sync"):
            answers = transport.finish(message) if completes else transport.agree(message)
        if answers[:, :_HEADER].tolist() != [[kind, self._number, 0]] * len(answers):
            if not completes:
                transport.drain()  # before the texts are shared: then no rank writes into what others let go of
            raise self._tell(answers, error)
        return answers[:, _HEADER:]

    def fail(self, error: BaseException) -> GcylonError:
        """Collective: all ranks call it. Tell an error in the agreement that the others are at; return what all raise.

        Raises
        ------
        CommError
            If nobody can be told.
        """
        try:
            self.agree(AgreementKind.ROUND, (), error=error)
        except CommError:
            raise
        except GcylonError as told:
            return told.with_traceback(None)  # whose frames would hold it, and so all that the failed work has made
        raise AssertionError("an agreement with an error was taken for a good one")

    def _tell(self, answers: Int64s, error: BaseException | None) -> GcylonError:
        mine = {
            "error": None if error is None else to_message(error, self._transport.rank),
            "doing": self._describe(),
        }
        texts = [json.loads(text) for text in self._transport.share(json.dumps(mine, default=str).encode())]
        failures = [text["error"] for text in texts if text["error"] is not None]
        if failures:
            return agreed(_first(failures, self._transport.size))
        doing = "; ".join(f"rank {rank}: {text['doing']}" for rank, text in enumerate(texts))
        return agreed(
            RanksDisagree(
                f"Ranks met in different operations: {doing}.",
                advice="Let every rank call the same verb, in the same order, with the same arguments.",
                operations=[int(n) for n in answers[:, 1]],
            )
        )


def agreed(error: GcylonError) -> GcylonError:
    """Flag an error that every rank raises alike, so that nobody tells it again."""
    error.agreed = True
    return error


def _first(failures: list[dict[str, Any]], size: int) -> GcylonError:
    ranks = sorted({failure["rank"] for failure in failures if failure["rank"] is not None})
    first = from_message(_worst(failures))
    if len(failures) == size and len({(f["kind"], f["message"]) for f in failures}) == 1 and size > 1:
        first.rank = None  # the same on every rank: none is to blame
    elif len(ranks) > 1:
        first.message += f" (Ranks {', '.join(map(str, ranks))} failed.)"
    if isinstance(first, RankError) and first.rank is not None and not first.advice:
        first.advice = "The error's numbers hold the traceback of that rank."
    first.numbers.setdefault("failed_ranks", ranks)
    return first


def _worst(failures: list[dict[str, Any]]) -> dict[str, Any]:
    """The first rank's failure; of several that miss a limit, the one of whoever needs the largest."""
    kind, needs = failures[0]["kind"], [failure["numbers"].get("would_do", 0) for failure in failures]
    same = [place for place, failure in enumerate(failures) if failure["kind"] == kind]
    return failures[max(same, key=lambda place: needs[place])]
