"""Tables as sets of rows: union, intersect, difference; concat; and whether two are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from ...config import GcylonConfig
from ...engine.exec.invocation import RunOptions
from ...errors import ArgumentError
from ...operators.sets.compare import why_not_equal as _why_not_equal
from ...operators.sets.concat import concat as _concat
from ...operators.sets.set_operations import set_operation
from .base import Verbs, other_part, other_table


class SetVerbs(Verbs):
    """union, intersect, difference, concat; equals, why_not_equal."""

    def union(
        self,
        other: Self,
        *,
        all: bool = False,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. The rows of both tables, each once.

        Rows are equal where all their values are; missing values are equal to each other. Columns are brought together
        by their names, with dtypes that hold both sides' values. Times with time zones are instants, which are equal
        whatever their zones, as keys of `join` are; the result has this table's zone.

        Parameters
        ----------
        other : Table
            With the same columns, in any order.
        all : bool, default False
            Keep every row, as SQL's ``UNION ALL``: then nothing is exchanged or copied, and each rank has its rows of
            this table before those of the other one.
        strategy, config, timeout_s
            As for `shuffle`.

        Returns
        -------
        Table
            In no particular order.

        Raises
        ------
        ColumnMissing
            If a table has a column that the other one lacks.
        SchemaMismatch
            If no dtype holds the values of both sides of a column: numbers and texts, times with a zone and without.
        UnsupportedDtype
            If values of a column have no equality here (lists, structs).
        """
        return self._set_operation("union", other, all, RunOptions(strategy, config, timeout_s))

    def intersect(
        self,
        other: Self,
        *,
        all: bool = False,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. The rows that stand in both tables, each once; see `union`.

        Parameters
        ----------
        other : Table
        all : bool, default False
            A row stands in the result as often as in the table that has it less often, as SQL's ``INTERSECT ALL``.
        strategy, config, timeout_s
            As for `shuffle`.

        Returns
        -------
        Table
            In no particular order.
        """
        return self._set_operation("intersect", other, all, RunOptions(strategy, config, timeout_s))

    def difference(
        self,
        other: Self,
        *,
        all: bool = False,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. The rows that do not stand in the other table, each once; see `union`.

        Parameters
        ----------
        other : Table
        all : bool, default False
            Each row of the other table takes one equal row away, as SQL's ``EXCEPT ALL``.
        strategy, config, timeout_s
            As for `shuffle`.

        Returns
        -------
        Table
            In no particular order.
        """
        return self._set_operation("difference", other, all, RunOptions(strategy, config, timeout_s))

    def concat(
        self,
        others: Self | Sequence[Self],
        *,
        join: str = "outer",
        order: str = "global",
        strategy: str = "auto",
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """Collective: all ranks call it. Put tables after this one; ``gl.concat([t, u])`` is another way to say it.

        Parameters
        ----------
        others : Table or sequence of Table
        join : {"outer", "inner"}
            Whether columns that not all tables have stay, with missing values, or are left out.
        order : {"global", "local"}
            ``global`` is the order of ``pandas.concat`` on whole tables: all rows of a table come before those of the
            next one, over all ranks, so that `head`, `tail`, first and last see it so; the rows are exchanged, and cut
            evenly over the ranks. ``local`` costs nothing: each rank has its own rows of each table, one after the
            other, and nothing is exchanged or copied.
        strategy : {"auto", "direct", "chunked", "staged"}
            Of the exchanges of ``order="global"``.
        config, timeout_s
            As for `shuffle`.

        Returns
        -------
        Table
            With dtypes that hold the values of all tables; times with time zones have the first table's zone. Ints that
            get missing values become float64, and are an error where that would change one.

        Raises
        ------
        SchemaMismatch
            If no dtype holds the values of all tables, by the column's name.
        """
        given = listed_tables(others)
        parts = [self._live(), *(other_part(self, table) for table in given)]

        def check() -> None:
            for table in given:
                other_table("concat", self, table)

        return self._made(
            *_concat(
                self._workspace, parts, join=join, order=order, options=RunOptions(strategy, config, timeout_s),
                check=check,
            )
        )  # fmt: skip

    # ---- whether they are equal

    def equals(
        self,
        other: Self,
        *,
        ordered: bool = True,
        check_dtype: bool = True,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Collective: all ranks call it. Say whether two tables hold the same rows; `why_not_equal` says what differs.

        Parameters
        ----------
        other : Table
            However it is cut over the ranks.
        ordered : bool, default True
            Whether rows must stand in the same global order. Otherwise each must stand as often in both tables.
        check_dtype : bool, default True
            Whether dtypes must be the same; otherwise values are compared that a common dtype holds.
        config, timeout_s
            As for `shuffle`.

        Returns
        -------
        bool
            The same on all ranks. Missing values are equal, and names of columns must be, in order.

        Raises
        ------
        UnsupportedDtype
            If ``ordered=False`` and values of a column have no equality as keys (lists, structs).
        """
        return not self._why_not_equal("equals", other, ordered, check_dtype, RunOptions("auto", config, timeout_s))

    def why_not_equal(
        self,
        other: Self,
        *,
        ordered: bool = True,
        check_dtype: bool = True,
        config: GcylonConfig | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """Collective: all ranks call it. The first thing in which two tables differ, in words; see `equals`.

        Parameters
        ----------
        other, ordered, check_dtype, config, timeout_s
            As for `equals`.

        Returns
        -------
        str
            Empty where they are equal.
        """
        return self._why_not_equal("why_not_equal", other, ordered, check_dtype, RunOptions("auto", config, timeout_s))

    def _set_operation(self, verb: str, other: Any, every: bool, options: RunOptions) -> Self:
        right = other_part(self, other)
        return self._made(
            *set_operation(
                self._workspace, self._live(), right, verb, every=every, options=options,
                check=lambda: _checked(verb, self, other, all=every),
            )
        )  # fmt: skip

    def _why_not_equal(
        self,
        verb: str,
        other: Any,
        ordered: bool,
        check_dtype: bool,
        options: RunOptions,
    ) -> str:
        right = other_part(self, other)
        return _why_not_equal(
            self._workspace, self._live(), right, verb, ordered=ordered, check_dtype=check_dtype, options=options,
            check=lambda: _checked(verb, self, other, ordered=ordered, check_dtype=check_dtype),
        )  # fmt: skip


def listed_tables(others: Any) -> list[Any]:
    """What concat was given, as a list; what is no table is refused later, by all ranks."""
    return list(others) if isinstance(others, (list, tuple)) else [others]


def _checked(verb: str, mine: Verbs, other: Any, **flags: Any) -> None:
    other_table(verb, mine, other)
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ArgumentError(f"{name}={value!r} is invalid.", advice="Expected True or False.")


def concat(tables: Sequence[Any], **how: Any) -> Any:
    """Put tables one after the other; under ``%px`` and ``mpiexec`` all ranks call it.

    Parameters
    ----------
    tables : sequence of Table, or of DistTable
        At least one.
    **how
        As for `Table.concat`: join, order, strategy, config, timeout_s.

    Returns
    -------
    Table or DistTable

    Raises
    ------
    ArgumentError
        If there is no table, or something else.
    """
    given = list(tables) if isinstance(tables, (list, tuple)) else [tables]
    if not given or not hasattr(given[0], "concat"):
        what = f"a list that begins with a {type(given[0]).__name__}" if given else "an empty list"
        raise ArgumentError(
            f"Expected tables for concat, got {what}.", advice="Give tables, for example gl.concat([t, u])."
        )
    return given[0].concat(given[1:], **how)
