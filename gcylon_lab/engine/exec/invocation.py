"""What a verb was called with on a rank, and the key columns that it was given."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ...backends.protocol.expressions import without_literals
from ...backends.protocol.scalars import check_own_expression, has_columns, shown
from ...backends.protocol.schema import MANY_COLUMNS, Label, Schema, instead_of
from ...config import GcylonConfig
from ...errors import ArgumentError, ColumnMissing, ConfigError
from ..plan.plan import check_strategy
from ..store.part import Part


@dataclass(frozen=True)
class RunOptions:
    """How a verb runs: what verbs take beside their own arguments.

    Attributes
    ----------
    strategy : str
    config : GcylonConfig or None
        None takes rank 0's live one.
    timeout_s : float or None
        Seconds until `DeadlineExceeded`, of each step of a verb that has several.
    """

    strategy: str = "auto"
    config: GcylonConfig | None = None
    timeout_s: float | None = None

    def check(self) -> None:
        """Refuse a strategy that there is not, a config that is none, and a deadline that is no time.

        Raises
        ------
        ArgumentError, ConfigError
            With what was given.
        """
        check_strategy(self.strategy)
        if self.config is not None and not isinstance(self.config, GcylonConfig):
            raise ConfigError(
                f"Expected a GcylonConfig for config, got {shown(self.config)}.",
                advice="Give one, for example gl.GcylonConfig().",
            )
        seconds: Any = self.timeout_s
        is_time = not isinstance(seconds, bool) and isinstance(seconds, Real) and float(seconds) >= 0
        if seconds is not None and not is_time:
            raise ArgumentError(
                f"Expected a time for timeout_s, got {shown(seconds)}.",
                advice="Give seconds, or None to wait for ever.",
            )


AUTO = RunOptions()


@dataclass(frozen=True)
class Request:
    """What a verb was called with on this rank.

    Attributes
    ----------
    verb : str
    arguments : dict
        Plain values that must be the same on all ranks.
    part : Part
        The input.
    options : RunOptions
    check : callable, optional
        Looks at the arguments on this rank and raises; told to all.
    others : tuple of Part
        Further inputs, which are not evicted for the operation either.
    """

    verb: str
    arguments: dict[str, Any]
    part: Part
    options: RunOptions = AUTO
    check: Callable[[], None] | None = None
    others: tuple[Part, ...] = ()

    def text(self, *, literals: bool = True) -> str:
        """Return the call in words, the same text for the same call; without literals, as it is recorded."""
        config = self.options.config
        arguments = dict(self.arguments) | {"strategy": self.options.strategy}
        if config is not None:  # what else it may be, `RunOptions.check` says to all ranks
            arguments["config"] = config.as_code() if isinstance(config, GcylonConfig) else config
        said = repr if literals else without_literals
        return f"{self.verb}({', '.join(f'{k}={said(v)}' for k, v in arguments.items())})"


def digest(text: str) -> int:
    """Return 63 bits that stand for a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def listed(names: Label | Sequence[Label], argument: str = "columns") -> list[Label]:
    """Turn one label or several into a list.

    Parameters
    ----------
    names : label or sequence of labels
    argument : str
        What it was given as.

    Raises
    ------
    ArgumentError
        If it is neither: what has no order, or holds columns, is no list of labels.
    """
    if _is_label(names):
        return [plain_label(names)]
    given: Any = names
    unordered = isinstance(given, Set) and not isinstance(given, KeysView)
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, bytearray, Mapping)) and not unordered
    if several and getattr(given, "ndim", 1) == 1:
        given = list(given)
        if all(map(_is_label, given)):
            return [plain_label(name) for name in given]
    for one in given if isinstance(given, (list, tuple)) else [given]:
        check_own_expression(one)
    advice = "Give a label, or a list of labels."
    if unordered:
        advice = "A set has no order: give a list of labels."
    elif has_columns(given):
        advice = "Give a label, or a list of labels, as list(frame.columns)."
    raise ArgumentError(f"Expected column labels for {argument}, got {shown(given)}.", advice=advice)


def _is_label(name: Any) -> bool:
    return isinstance(name, (str, int, np.integer)) and not isinstance(name, bool)


def plain_label(name: Any) -> Any:
    """A label as tables have it: numpy's ints are ints."""
    return name if isinstance(name, (str, int)) or not isinstance(name, np.integer) else int(name)


def check_keys(schema: Schema, keys: Sequence[Label], what: str) -> None:
    """Refuse keys that are no columns.

    Parameters
    ----------
    schema : Schema
    keys : sequence of labels
    what : str
        The argument's name.

    Raises
    ------
    ArgumentError
        If there are none, or one twice.
    ColumnMissing
        Naming the key and the columns there are.
    """
    check_each_once(keys, what)
    check_labels(keys, schema.names)


def check_each_once(keys: Sequence[Label], what: str) -> None:
    """Refuse no keys, and one that is named twice.

    Raises
    ------
    ArgumentError
    """
    if not keys or len(set(keys)) != len(keys):
        raise ArgumentError(
            f"{what}={list(keys)!r} is empty or names a column twice.", advice="Give one or more columns, each once."
        )


def check_labels(names: Iterable[Label], known: Collection[Label]) -> None:
    """Refuse what is no column, of those that are known.

    Raises
    ------
    ColumnMissing
        Naming it and the columns there are.
    """
    there = known if len(known) < MANY_COLUMNS else {name: None for name in known}
    for name in names:
        if name not in there:
            raise ColumnMissing(f"There is no column {name!r}.", advice=instead_of(name, known), column=str(name))


def require_columns(schema: Schema) -> None:
    """Refuse a table without columns, whose rows have nothing that could be compared.

    Raises
    ------
    ArgumentError
    """
    if not len(schema):
        raise ArgumentError("There are no columns to compare rows by.", advice="Take a table that has some.")
