"""Whether something worked on every rank: all learn of the first failure, so that all go the same way."""

from __future__ import annotations

import numpy as np

from .transport import Transport


def first_failure(transport: Transport, failure: str) -> str:
    """Collective: all ranks call it. Tell what failed on this rank, and learn what failed on any.

    Parameters
    ----------
    transport : Transport
    failure : str
        In words, without the rank; "" where all is well here.

    Returns
    -------
    str
        The failure of the first rank that has one, with its number unless all have the same; "" if none has.
    """
    if not transport.agree(np.array([bool(failure)], dtype=np.int64)).any():
        return ""
    told = [text.decode() for text in transport.share(failure.encode())]
    rank = next(rank for rank, text in enumerate(told) if text)
    return told[rank] if len(set(told)) == 1 else f"on rank {rank} {told[rank]}"
