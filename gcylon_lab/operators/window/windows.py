"""Expressions that look at other rows: each window function in them becomes a column before they are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...backends.protocol.aggregation import result_column
from ...backends.protocol.expressions import Expression, col
from ...backends.protocol.schema import Label
from ...engine.exec.align_schemas import new_label
from ...engine.exec.invocation import RunOptions
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ..rowwise.rowwise import assigned
from .aligned import beside
from .by_groups import VALUE, Windows
from .steps import chosen

_SUMS = ("cumsum", "cumprod")


def has_windows(expressions: Sequence[Any]) -> bool:
    """Whether an expression looks at other rows."""
    known = [one for one in expressions if isinstance(one, Expression)]
    return any(part.operation == "window" for one in known for part in one.parts())


@contextmanager
def with_windows(
    workspace: Workspace, part: Part, expressions: Sequence[Expression], options: RunOptions
) -> Iterator[tuple[Part, list[Expression]]]:
    """Collective: all ranks call it. A part with a column for each window function, and the expressions of these.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    expressions : sequence of Expression
    options : RunOptions
    """
    making = _Making(workspace, part, options)
    try:
        made = [making.resolved(one) for one in expressions]
        yield making.part, made
    finally:
        making.release()


class _Making:
    def __init__(self, workspace: Workspace, part: Part, options: RunOptions) -> None:
        self._workspace, self.part, self._options = workspace, part, options
        self._known: dict[str, Label] = {}
        self._made: list[Part] = []

    def resolved(self, expression: Any) -> Any:
        """Collective: all ranks call it. An expression in which window functions are columns."""
        if not isinstance(expression, Expression) or not has_windows([expression]):
            return expression
        if expression.operation == "window":
            text = expression.text()
            if text not in self._known:
                self._known[text] = self._column(expression)
            return col(self._known[text])
        return Expression(expression.operation, *map(self.resolved, expression.arguments))

    def _column(self, window: Expression) -> Label:
        function, settings, *given = window.arguments
        value, *keys = map(self.resolved, given)
        names = [f"key{i}" for i in range(len(keys))]
        settings = dict(settings)
        dropna = bool(settings.pop("dropna", False))
        narrow = self._narrow([*zip(names, keys, strict=True), (VALUE, value)], function)
        windows = Windows(self._workspace, narrow, names, dropna=dropna, options=self._options, what=window.text())
        column = self._keep(windows.column(function, settings))
        label = new_label(self.part.schema.names, f"window{len(self._known)}")
        renamed = self._keep(chosen(self._workspace, column, {VALUE: label}, self._options))
        self.part = self._keep(beside(self._workspace, self.part, renamed, self._options))
        return label

    def _narrow(self, columns: Sequence[tuple[str, Expression]], function: str) -> Part:
        options, taken = self._options, list(self.part.schema.names)
        labels = {name: new_label(taken, name) for name, _ in columns}
        made: list[tuple[Label, Expression]] = [(labels[name], expression) for name, expression in columns]
        part = self._keep(self._assigned(made))
        narrow = self._keep(chosen(self._workspace, part, {label: name for name, label in labels.items()}, options))
        column = narrow.schema[VALUE]
        if function in _SUMS and column.kind in ("bool", "int"):
            wide = result_column(column, "sum", VALUE).describe()
            if wide != column.describe():
                widened: list[tuple[Label, Expression]] = [(VALUE, col(VALUE).astype(wide))]
                narrow = self._keep(assigned(self._workspace, narrow, "assign", widened, options)[0])
        return narrow

    def _assigned(self, columns: list[tuple[Label, Expression]]) -> Part:
        return assigned(self._workspace, self.part, "assign", columns, self._options)[0]

    def _keep(self, part: Part) -> Part:
        self._made.append(part)
        return part

    def release(self) -> None:
        """Give up what was made."""
        for part in self._made:
            part.release()  # an error that is kept would hold it
