"""``t.loc[...]`` and ``t.iloc[...]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...backends.protocol.expressions import Expression
from ...engine.exec.invocation import check_labels
from ..verbs.pandas_hints import no_item

_MOST_ROWS = 10_000  # that are fetched to be counted from one end


class _Places:
    """What is asked for in brackets, of rows and perhaps of columns.

    Parameters
    ----------
    table : Table or DistTable
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    if not TYPE_CHECKING:  # a checker shall go on to find what is not there

        def __setitem__(self, key: Any, value: Any) -> None:
            self._table[key] = value


def _asked(key: Any) -> tuple[Any, Any]:
    """The rows that are asked for, and the columns: all, where only rows are named."""
    return key if isinstance(key, tuple) and len(key) == 2 else (key, slice(None))


class Located(_Places):
    """Rows of a condition, and columns by their labels; made by ``t.loc``."""

    def __getitem__(self, key: Any) -> Any:
        rows, columns = _asked(key)
        table = self._table
        if isinstance(rows, Expression) or callable(rows):
            table = table[rows]
        elif not _is_all(rows):
            raise no_item(self._table, key)
        if isinstance(columns, slice):
            return table if _is_all(columns) else table[_between(table.columns, columns)]
        return table[columns if isinstance(columns, (str, int)) else list(columns)]


class Placed(_Places):
    """The first or last rows of a table, in pandas; made by ``t.iloc``."""

    def __getitem__(self, key: Any) -> Any:
        rows, columns = _asked(key)
        if _is_all(rows) and isinstance(key, tuple):
            names = self._table.columns
            try:
                chosen = names[columns] if isinstance(columns, (int, slice)) else [names[one] for one in columns]
            except (IndexError, TypeError):
                raise IndexError(
                    f"{columns!r} is no place among {len(names)} columns: give numbers from 0, or t.loc[:, labels]"
                ) from None
            return self._table[list(chosen) if isinstance(chosen, list) else chosen]
        found = some_rows(self._table, rows)
        if _is_all(columns):
            return found
        return found.iloc[columns] if isinstance(rows, int) else found.iloc[..., columns]


def _between(names: list[Any], ends: slice) -> list[Any]:
    """Columns from one label up to and with another."""
    check_labels([one for one in (ends.start, ends.stop) if one is not None], names)
    first = 0 if ends.start is None else names.index(ends.start)
    last = len(names) if ends.stop is None else names.index(ends.stop) + 1
    return list(names[first:last][:: ends.step])


def some_rows(table: Any, rows: Any) -> Any:
    """Rows by their numbers, in pandas: few ones from the beginning or the end."""
    if isinstance(rows, int) and not isinstance(rows, bool):
        stop = rows + 1 if rows >= 0 else None
        found = some_rows(table, slice(None if rows >= 0 else rows, stop))
        if rows >= len(found) or -rows > len(found):
            raise IndexError(f"row {rows} is out of bounds: the table has {len(found)} rows or fewer from that end")
        return found.iloc[rows if rows >= 0 else 0]
    if not isinstance(rows, slice) or rows.step not in (None, 1):
        raise no_item(table, rows)
    start, stop = rows.start or 0, rows.stop
    if start >= 0 and stop is not None and 0 <= stop <= _MOST_ROWS:
        return table.head(stop).iloc[start:]
    if -_MOST_ROWS <= start < 0 and (stop is None or stop < 0):
        return table.tail(-start).iloc[:stop]
    raise no_item(table, rows)


def _is_all(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)
