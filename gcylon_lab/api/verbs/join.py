"""Joining two tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from ...backends.protocol.join_columns import JoinSpec, join_spec
from ...backends.protocol.schema import Label
from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions
from ...operators.join.join import join as _join
from .base import Verbs, other_part, other_table

Keys = Label | Sequence[Label]


class JoiningVerbs(Verbs):
    """join, which is merge too."""

    def join(
        self,
        right: Self,
        how: str = "inner",
        on: Keys | None = None,
        *,
        left_on: Keys | None = None,
        right_on: Keys | None = None,
        suffixes: Sequence[str | None] = ("_x", "_y"),
        indicator: bool | str = False,
        validate: str | None = None,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Put rows of two tables with equal keys beside each other.

        Rows are those of ``pandas.merge``; their order is unspecified. Missing keys match each other. Numbers are
        compared exactly whatever their dtypes, categories by their labels.

        Parameters
        ----------
        right : Table
            The other table. ``merge`` is another name of this verb.
        how : {"inner", "left", "right", "outer", "semi", "anti", "cross"}
            ``semi`` gives the rows of this table that have a partner, ``anti`` those that have none.
        on : label or sequence of labels, optional
            Keys that have one name on both sides; by default all names that both sides have.
        left_on, right_on : label or sequence of labels, optional
            Keys of each side, instead of ``on``.
        suffixes : pair of str or None, default ("_x", "_y")
            For other columns whose name both sides have.
        indicator : bool or str, default False
            Add a column ``_merge``, or of this name, with ``left_only``, ``right_only`` or ``both``.
        validate : {"1:1", "1:m", "m:1", "m:m", "one_to_one", ...}, optional
            Refuse keys that are not distinct on a side where they should be, with their number.
        strategy : {"auto", "direct", "chunked", "staged"}
            All give the same rows on the same rank.
        config : GcylonConfig, optional
            The same on all ranks; rank 0's live one by default.
        timeout_s : float, optional
            Seconds until `DeadlineExceeded`.

        Returns
        -------
        Table
            Columns and dtypes as pandas gives them. Ints of a side with missing rows become float64, and are an
            error where that would change one.

        Raises
        ------
        ColumnMissing
            If a key is no column.
        SchemaMismatch
            If keys cannot be compared (numbers with strings, aware with naive times).
        UnsupportedDtype
            If a key cannot be hashed (lists, structs).
        ArgumentError
            If arguments do not fit each other, or ``validate`` finds a key twice.
        BudgetExceeded
            If it does not fit.
        """
        given = _given(how, on, left_on, right_on, suffixes, indicator, validate)
        keys = on, left_on, right_on

        def specify() -> JoinSpec:
            names = self.schema.names, other_table("join", self, right).schema.names
            return join_spec(*names, how, *keys, suffixes, indicator, validate)

        other = other_part(self, right)
        options = RunOptions(strategy, config, timeout_s)
        return self._made(*_join(self._workspace, self._live(), other, given, specify, options=options))

    merge = join


def _given(*values: Any) -> dict[str, Any]:
    """The arguments of a join that say something, as plain values."""
    names = ("how", "on", "left_on", "right_on", "suffixes", "indicator", "validate")
    usual = {"suffixes": ["_x", "_y"], "indicator": False}
    plain = {name: _plain(value) for name, value in zip(names, values, strict=True)}
    return {name: value for name, value in plain.items() if name == "how" or value != usual.get(name)}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, list)) else value
