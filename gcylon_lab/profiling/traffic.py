"""Who sent how much to whom, of one operation over all ranks. Pure functions of operation records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes that ranks sent in an operation, as counted by those that sent them.

    Attributes
    ----------
    sent : ndarray of int64, shape (ranks, ranks)
        A row a sender, a column a receiver. On the diagonal is what stayed on its rank.
    known : ndarray of bool, shape (ranks,)
        Which senders have told; the others' rows are 0.
    """

    sent: Int64s
    known: npt.NDArray[np.bool_]

    @property
    def between_bytes(self) -> int:
        """Return what went from one rank to another."""
        return int(self.sent.sum()) - self.kept_bytes

    @property
    def kept_bytes(self) -> int:
        """Return what stayed on its rank."""
        return int(np.trace(self.sent))

    @property
    def received(self) -> Int64s:
        """Return what reached each rank, from itself too."""
        received: Int64s = self.sent.sum(axis=0)
        return received

    @property
    def receive_skew(self) -> float | None:
        """Return the most that reached a rank over the mean; None where nothing moved."""
        total = int(self.sent.sum())
        return float(self.received.max()) * len(self.sent) / total if total else None

    def within_hosts_bytes(self, hosts: Sequence[str]) -> int:
        """Return what went from one rank to another of the same host; ``hosts`` has each rank's."""
        names = np.array([hosts[rank] if rank < len(hosts) else "" for rank in range(len(self.sent))])
        return int(self.sent[names[:, None] == names].sum()) - self.kept_bytes

    def heaviest(self) -> tuple[int, int, int]:
        """Return sender, receiver and bytes of the most that went from one rank to another; 0 bytes if none did."""
        between = self.sent - np.diag(np.diag(self.sent))
        place = int(between.argmax())
        sender, receiver = divmod(place, len(between))
        return sender, receiver, int(between[sender, receiver])


def traffic_of(records: Mapping[int, Mapping[str, Any]]) -> Traffic | None:
    """Return the traffic of an operation from each rank's record of it; None where none is known.

    Parameters
    ----------
    records : mapping of int to mapping
        By rank, as in a snapshot's operations. Records without ``sent_to`` (of operations
        that exchange nothing, or too old to be kept) say nothing.
    """
    told = {rank: record["sent_to"] for rank, record in records.items() if record.get("sent_to")}
    if not told:
        return None
    size = max(max(map(len, told.values())), max(told) + 1)
    sent, known = np.zeros((size, size), dtype=np.int64), np.zeros(size, dtype=np.bool_)
    for rank, row in told.items():
        sent[rank, : len(row)], known[rank] = row, True
    return Traffic(sent, known)
