"""`DistAppender`: the notebook's reference to rows on the ranks that will be a table."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...errors import HandleReleased
from ...units import format_bytes, format_count
from ..handles.handle import DistTable
from ..messages import Reply, Request
from .scatter import append
from .session import Session


class DistAppender:
    """Rows on the ranks that will be a table. Made by `Cluster.empty`; given up by `release`, or when it is collected.

    What was appended counts in the ranks' budget, and is staged like a table where others need the room.
    """

    def __init__(self, session: Session, capacity: int, name: str, replies: Sequence[Reply]) -> None:
        self._session = session
        self._name = name
        self._generation = session.generation
        self._sizes = [(0, 0)] * len(replies)
        self._finalizer = weakref.finalize(self, session.drop_later, name)
        self._finalizer.atexit = False
        self.capacity = capacity

    @property
    def num_rows(self) -> int:
        """Rows so far, on all ranks."""
        return sum(rows for rows, _ in self._sizes)

    @property
    def nbytes(self) -> int:
        """Bytes so far, on all ranks, in all tiers."""
        return sum(nbytes for _, nbytes in self._sizes)

    def append(self, rows: Any) -> None:
        """Append rows: all of them, or none where anything goes wrong.

        Parameters
        ----------
        rows : pandas.DataFrame, Arrow data, mapping of str to array, or iterable of frames or Arrow data
            With the columns that `Cluster.empty` was given. A frame or table is spread evenly, in order; of an
            iterable each piece goes to the rank that is ahead.

        Raises
        ------
        ColumnMissing, SchemaMismatch
            If they have other columns, or values that the dtypes do not hold.
        BudgetExceeded
            If they do not fit and staging is not allowed.
        HandleReleased
            If it was released, or is a table by now.
        """
        self._check()
        self._sizes = [reply.value for reply in append(self._session, self._name, rows)]

    def table(self) -> DistTable:
        """Make a table of all rows. Nothing can be appended afterwards."""
        self._check()
        made = self._session.make(Request("appended", self._name), partial(DistTable, self._session))
        self.release()
        return made

    def release(self) -> None:
        """Give the rows up. Idempotent."""
        alive = not self._session.closed and self._session.generation == self._generation
        if self._finalizer.detach() is not None and alive:
            self._session.drop(self._name)

    def __repr__(self) -> str:
        if not self._finalizer.alive:
            return "<DistAppender: released, or a table by now>"
        return (
            f"<DistAppender {self._name}: {format_count(self.num_rows)} rows, {format_bytes(self.nbytes)}, "
            f"room claimed for {format_count(self.capacity)}>"
        )

    def _check(self) -> None:
        if not self._finalizer.alive:
            raise HandleReleased("These rows were released, or are a table by now.", advice="Begin anew with empty().")
        if self._session.closed or self._session.generation != self._generation:
            raise HandleReleased(
                f"These rows are gone: the cluster {self._session.name!r} was closed or restarted.",
                advice="Begin anew with empty().",
            )
