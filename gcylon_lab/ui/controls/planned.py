"""Pure: an operation as it is chosen in the plan panel: its plan, and the code that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...backends.protocol.aggregation import Aggregation
from ...backends.protocol.join_columns import HOWS
from ...config import GcylonConfig
from ...engine.plan.part_stats import Infos
from ...engine.plan.plan import STRATEGIES, Alternative, Plan
from ...errors import ArgumentError, GcylonError
from ...operators.estimate import PLANNED, estimate_verb

VERBS = tuple(sorted(PLANNED, key=lambda verb: not PLANNED[verb].keys))  # those with keys are asked for most
WITH_OTHER = tuple(verb for verb, one in PLANNED.items() if one.tables)
WITH_KEYS = tuple(verb for verb, one in PLANNED.items() if one.keys)
WITH_ROOT, WITH_HOW = (tuple(verb for verb, one in PLANNED.items() if name in one.takes) for name in ("root", "how"))
OTHERS = {PLANNED[verb].tables for verb in WITH_OTHER}  # what the second table is called among a verb's arguments
JOIN_HOWS = tuple(HOWS)
_ROWS = Aggregation("size", "size")  # what a group-by counts, whose functions a form does not ask for


@dataclass(frozen=True, slots=True)
class Planned:
    """An operation on a table that has a name.

    Attributes
    ----------
    verb, table, strategy : str
    keys : tuple of labels
        Of a shuffle, join, group-by or sort; or columns whose values are distinct then.
    other, how : str
        The second table, by its name, of a join or set operation; and the kind of join.
    root : int
        Of gather and broadcast.
    """

    verb: str
    table: str
    keys: tuple[Any, ...] = ()
    other: str = ""
    how: str = "inner"
    root: int = 0
    strategy: str = "auto"

    def plan(self, tables: Mapping[str, Infos], config: GcylonConfig) -> Plan:
        """Return the plan; no rank is asked.

        Parameters
        ----------
        tables : mapping
            By name, every rank's ``Table.info()``.
        config : GcylonConfig

        Raises
        ------
        GcylonError
            As the verb itself would, and where a second table is not chosen.
        """
        plan = self._plan(tables, config)
        return plan if plan.alternatives else replace(plan, alternatives=self._alternatives(plan, tables, config))

    def _plan(self, tables: Mapping[str, Infos], config: GcylonConfig) -> Plan:
        verb, taken = PLANNED[self.verb], [tables[self.table]]
        if verb.tables and self.other not in tables:
            raise ArgumentError(f"{self.verb} needs a second table.", advice="Choose one beside the first.")
        if verb.tables:
            taken.append(tables[self.other])
        chosen = verb.chosen(self._keys, root=self.root, how=self.how, wanted=[_ROWS])
        return estimate_verb(self.verb, taken, config, strategy=self.strategy, **chosen)

    def _alternatives(self, plan: Plan, tables: Mapping[str, Infos], config: GcylonConfig) -> tuple[Alternative, ...]:
        """Plans of verbs that are made of several say nothing of the other strategies: each is planned too."""
        found = []
        for name in STRATEGIES[1:] if plan.rounds else ():
            if name == plan.strategy:
                continue
            try:
                other = replace(self, strategy=name)._plan(tables, config)
            except GcylonError:
                continue
            found.append(Alternative(name, other.predicted_peak_bytes, other.rounds, True))
        return tuple(found)

    @property
    def _keys(self) -> tuple[Any, ...]:
        return () if self.verb in WITH_HOW and self.how == "cross" else self.keys

    def arguments(self) -> dict[str, Any]:
        """Return what `compare` is called with beside table and verb; a second table is its name.

        Raises
        ------
        ArgumentError
            If keys are missing.
        """
        verb = PLANNED[self.verb]
        chosen = verb.chosen(self._keys, root=self.root, how=self.how)
        keys = chosen.get(verb.keys, ())
        if verb.keys in chosen and not keys:
            raise ArgumentError(f"{self.verb} needs key columns.", advice="Write them beside the table's name.")
        if len(keys) == 1:
            chosen[verb.keys] = keys[0]
        return ({verb.tables: self.other} if verb.tables else {}) | chosen

    def code(self) -> str:
        """Return the line that runs it, with what differs from the defaults."""
        try:
            arguments = self.arguments()
        except GcylonError:
            arguments = {}
        right = next((arguments.pop(name) for name in OTHERS if name in arguments), None)
        if arguments.get("how") == "inner":
            arguments.pop("how")
        if self.verb == "groupby":
            chosen = [] if self.strategy == "auto" else [f"strategy={self.strategy!r}"]
            return f"{self.table}.groupby({arguments.get('by', '')!r}).size({', '.join(chosen)})"
        if self.strategy != "auto":
            arguments["strategy"] = self.strategy
        texts = ([] if right is None else [right]) + [f"{name}={value!r}" for name, value in arguments.items()]
        return f"{self.table}.{self.verb}({', '.join(texts)})"


def second_table(
    planned: Planned, columns: Sequence[Any], others: Mapping[str, Sequence[Any]]
) -> tuple[str, tuple[Any, ...]]:
    """Return a second table that the verb can take, and keys that it has: those there are, where they do.

    Parameters
    ----------
    planned : Planned
        As it is chosen now.
    columns : sequence of labels
        Of the first table.
    others : mapping of str to sequence of labels
        The tables to choose from, with their columns.

    Returns
    -------
    other, keys
        As they are in ``planned`` where nothing fits.
    """
    if planned.verb == "join" and planned.how != "cross":
        # The keys there are, and if no table has them, one that some table has.
        tried = [planned.keys] * bool(planned.keys) + [(column,) for column in columns]
        able = [(keys, [name for name in others if set(keys) <= set(others[name])]) for keys in tried]
    else:
        any_does = planned.verb in ("join", "concat")
        able = [(planned.keys, [name for name in others if any_does or set(others[name]) == set(columns)])]
    keys, fitting = next(((keys, names) for keys, names in able if names), (planned.keys, [planned.other]))
    return planned.other if planned.other in fitting else fitting[0], keys


def read_keys(text: str, columns: Sequence[Any]) -> tuple[Any, ...]:
    """Read column labels from text, several apart by commas; what is no column is kept as it was written."""
    labels = {str(column): column for column in columns}
    if text.strip() in labels:
        return (labels[text.strip()],)
    return tuple(labels.get(part.strip(), part.strip()) for part in text.split(",") if part.strip())
