"""Verbs of distinct rows: drop_duplicates, unique, value_counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ...backends.protocol.schema import Label
from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions, listed
from ...operators.distinct.distinct import drop_duplicates as _drop_duplicates
from ...operators.group.value_counts import value_counts as _value_counts
from .base import Verbs


class DistinctVerbs(Verbs):
    """drop_duplicates, unique, value_counts."""

    def drop_duplicates(
        self,
        subset: Label | Sequence[Label] | None = None,
        *,
        keep: str | bool = "first",
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Keep one row of those that are equal, or none of them.

        Parameters
        ----------
        subset : label or sequence of labels, optional
            The columns that must be equal; all by default. Missing values are equal to each other.
        keep : {"first", "last", False}
            Which row stays, in the order of the whole table (rank, row); False leaves only rows that no other equals.
        strategy, config, timeout_s
            As for `shuffle`.

        Returns
        -------
        Table
            In no particular order, with rows of equal keys on one rank.

        Raises
        ------
        ColumnMissing
            If one is no column.
        UnsupportedDtype
            If values of a column have no equality here (lists, structs).
        """
        keys = None if subset is None else listed(subset)
        return self._made(
            *_drop_duplicates(
                self._workspace, self._live(), "drop_duplicates", keys, keep=keep,
                options=RunOptions(strategy, config, timeout_s),
            )
        )  # fmt: skip

    def unique(
        self,
        columns: Label | Sequence[Label] | None = None,
        *,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. The distinct rows of some columns.

        Parameters
        ----------
        columns : label or sequence of labels, optional
            All by default; the others are left out.
        strategy, config, timeout_s
            As for `shuffle`.

        Returns
        -------
        Table
            In no particular order.
        """
        keys = None if columns is None else listed(columns)
        return self._made(
            *_drop_duplicates(
                self._workspace, self._live(), "unique", keys, only=True,
                options=RunOptions(strategy, config, timeout_s),
            )
        )  # fmt: skip

    # ---- how often each row stands there

    def value_counts(
        self,
        columns: Label | Sequence[Label] | None = None,
        *,
        normalize: bool = False,
        sort: bool = True,
        ascending: bool = False,
        dropna: bool = True,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Count how often each row of some columns stands there.

        Parameters
        ----------
        columns : label or sequence of labels, optional
            All by default.
        normalize : bool, default False
            Give the part of the rows that are counted, instead of their number.
        sort : bool, default True
            Whether the most frequent come first, in global order; otherwise there is no particular order. It costs a
            sort of the distinct rows.
        ascending : bool, default False
            Whether the least frequent come first instead.
        dropna : bool, default True
            Leave out rows with a missing value; they are not counted then.
        strategy, config, timeout_s
            As for `shuffle`; the deadline holds for each of its steps.

        Returns
        -------
        Table
            The columns, and ``count``, or ``proportion`` where it is normalized. Rows that stand there equally often
            are in no particular order. Labels of categories that no row has are not among them, unlike pandas'.

        Raises
        ------
        ColumnMissing
            If one is no column.
        UnsupportedDtype
            If values of a column have no equality here (lists, structs).
        """
        keys = list(self.schema.names) if columns is None else listed(columns)
        options = RunOptions(strategy, config, timeout_s)
        return self._made(
            *_value_counts(
                self._workspace, self._live(), keys, normalize=normalize, sort=sort, ascending=ascending,
                dropna=dropna, options=options,
            )
        )  # fmt: skip
