"""Verbs that look at each row alone, remembered until rows are needed, and done in one pass over the chunks then.

A step that is remembered is data. Its names and dtypes are checked when it is asked for, on no rows. What that does not
tell, because it depends on the values, is not remembered but done at once; see `extended`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...backends.expressions.known_kinds import known_kind
from ...backends.host.backend import PandasBackend
from ...backends.kernels.kernel import kernels_in
from ...backends.protocol.backend import Backend
from ...backends.protocol.data import Data
from ...backends.protocol.expressions import Expression, without_literals
from ...backends.protocol.schema import Label, Schema, require_distinct
from ...comm.single import SingleTransport
from ...engine.exec.invocation import Request
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.plan.plan import Plan
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part, Partitioning
from ...engine.store.views import ChunkView, renamed, view_of
from ...engine.store.workspace import Workspace
from ...errors import GcylonError
from .rowwise import computed, each_piece, renamed_spread, what_fails

# Of so many columns that are made anew each is computed on no rows before: that takes as long as on some.
_MOST_COLUMNS = 64
_HOST = PandasBackend()
_MADE_ROW_BYTES = 16  # of a column that is made


@dataclass(frozen=True, slots=True)
class Relabel:
    """``select``, ``drop`` or ``rename``: some columns, perhaps under other names.

    Attributes
    ----------
    verb : str
    arguments : mapping
        As called.
    names : tuple of (label, label)
        Of the columns that stay, in their new order: what they were called, and are called now.
    """

    verb: str
    arguments: Mapping[str, Any]
    names: tuple[tuple[Label, Label], ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """``filter``: the rows of which a condition holds."""

    condition: Expression
    verb: str = "filter"

    @property
    def arguments(self) -> Mapping[str, Any]:
        """As called."""
        return {"condition": self.condition}


@dataclass(frozen=True, slots=True)
class Assign:
    """``assign``, ``astype``, ``fillna`` or ``isin``: columns made anew, or more of them."""

    verb: str
    columns: tuple[tuple[Label, Expression], ...]

    @property
    def arguments(self) -> Mapping[str, Any]:
        """As called."""
        return {"columns": list(self.columns)}

    def reads(self) -> dict[Label, None]:
        """The columns of which others are made."""
        return {name: None for _, expression in self.columns for name in expression.columns()}


Step = Relabel | Filter | Assign


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps to be done with rows, the columns before the first, and after each of them.

    Attributes
    ----------
    steps : tuple of Step
    schemas : tuple of Schema
        One more than there are steps.
    known : bool
        Whether the last is known before rows are made; of a chain to which more is added it is.
    sure : bool
        Whether it can be done whatever the values are, so that nobody waits for an error.
    """

    steps: tuple[Step, ...]
    schemas: tuple[Schema, ...]
    known: bool = True
    sure: bool = True

    @property
    def schema(self) -> Schema:
        """The columns of what it gives."""
        return self.schemas[-1]

    @property
    def verb(self) -> str:
        """The names of its verbs, in order."""
        return ".".join([step.verb for step in self.steps])

    def partitioning(self, spread: Partitioning | None) -> Partitioning | None:
        """How what it gives is spread over the ranks, where its input is spread in a way."""
        for step in self.steps:
            if isinstance(step, Relabel):
                spread = renamed_spread(spread, dict(step.names))
            elif (
                isinstance(step, Assign)
                and spread is not None
                and {name for name, _ in step.columns} & set(spread.keys)
            ):
                spread = None  # other values may hash to other ranks
        return spread

    def text(self, *, literals: bool = True) -> str:
        """How it is written."""
        said = repr if literals else without_literals
        each = [(step.verb, ", ".join(f"{k}={said(v)}" for k, v in step.arguments.items())) for step in self.steps]
        return ".".join([f"{verb}({arguments})" for verb, arguments in each])


@dataclass(frozen=True)
class _ChainRequest(Request):
    """A chain that was asked for."""

    chain: Chain | None = None

    def text(self, *, literals: bool = True) -> str:
        """Return the calls in words, the same text for the same calls; without literals, as they are recorded."""
        assert self.chain is not None
        return self.chain.text(literals=literals)


def extended(chain: Chain, step: Step) -> Chain | None:
    """A chain with one more step; None where this is to be done at once, by itself.

    That is so where it cannot be done, which its own operation tells with what it is called with; where it runs
    functions of a person's, which may have effects; and where it looks at other rows.

    Parameters
    ----------
    chain : Chain
        Whose columns are known.
    step : Step
        What it gives is looked at on no rows in host memory, whichever engine has the rows.

    Returns
    -------
    Chain or None
        Its columns are not `known` where their dtypes depend on the values.
    """
    try:
        known, sure, schema = _after(step, chain.schema)
    except Exception:  # of a library, too
        return None
    if schema is None:
        return None
    return Chain((*chain.steps, step), (*chain.schemas, schema), known, sure)


def _after(step: Step, schema: Schema) -> tuple[bool, bool, Schema | None]:
    """Whether the columns after a step are known, whether it is sure, and what is known of the columns; None where it
    is done at once."""
    if isinstance(step, Relabel):
        require_distinct([new for _, new in step.names])
        return True, True, renamed(schema, dict(step.names)) if step.names else None
    given = [step.condition] if isinstance(step, Filter) else [one for _, one in step.columns]
    if not given or len(given) > _MOST_COLUMNS or any(_has_effects(one) for one in given):
        return True, True, None
    reads = dict.fromkeys(name for one in given for name in one.columns()) or dict.fromkeys(schema.names[:1])
    some = schema.select(list(reads))
    if isinstance(step, Filter):
        # Of no rows pandas takes much for a condition.
        known = known_kind(step.condition, schema) == "bool"
        made = _HOST.evaluate(_HOST.empty(some), [(_CONDITION, step.condition)]).schema[_CONDITION]
        return known, known, schema if made.kind == "bool" else None
    kinds = [known_kind(one, schema) for one in given]
    known, sure = all(kinds) and "number" not in kinds, all(kinds)
    columns = {column.name: column for column in schema}
    if known:
        found = _HOST.evaluate(_HOST.empty(some), step.columns).schema
        columns |= {name: found[name] for name, _ in step.columns}
    else:  # only their names are asked for: rows are made at once
        columns |= {name: replace(some.columns[0], name=name) for name, _ in step.columns if name not in columns}
    return known, sure, Schema(list(columns.values()))


_CONDITION = "condition of a filter"  # what its values are called


def _has_effects(expression: Expression) -> bool:
    return bool(kernels_in(expression)) or any(part.operation == "window" for part in expression.parts())


@dataclass(frozen=True, slots=True)
class _Pass:
    """What is left of a chain's steps once what nobody needs is left out.

    Attributes
    ----------
    reads : tuple of labels
        The columns of the input that are read.
    steps : tuple of (Step, tuple of labels, Schema)
        With the columns that stay after it, and those that there may be before it.
    names : tuple of labels
        Of the result, in order.
    """

    reads: tuple[Label, ...]
    steps: tuple[tuple[Step, tuple[Label, ...], Schema], ...]
    names: tuple[Label, ...]

    @property
    def filters(self) -> int:
        """How many times rows are chosen."""
        return sum(isinstance(step, Filter) for step, _, _ in self.steps)

    def made(self) -> set[Label]:
        """The columns of the result that are no columns of the input."""
        made: set[Label] = set()
        for step, _, _ in self.steps:
            if isinstance(step, Relabel):
                made = {new for old, new in step.names if old in made}
            elif isinstance(step, Assign):
                made |= {name for name, _ in step.columns}
        return made

    def chosen(self) -> dict[Label, Label]:
        """Where no column of the result is made: what those of the input that stay are called, in order."""
        names = {name: name for name in self.reads}  # of the input, by what they are called now
        for step, _, _ in self.steps:
            if isinstance(step, Relabel):
                names = {new: names[old] for old, new in step.names if old in names}
            elif isinstance(step, Assign):
                made = {name for name, _ in step.columns}
                names = {now: before for now, before in names.items() if now not in made}
        return {names[name]: name for name in self.names}

    def row_bytes(self, backend: Backend) -> tuple[int, int]:
        """Temporary bytes a row, at the most, and those of all columns that are made."""
        temporary = made = 0
        for step, _, schema in self.steps:
            if isinstance(step, Filter):
                temporary = max(temporary, backend.evaluating_row_bytes(schema, [step.condition]))
            elif isinstance(step, Assign):
                temporary = max(temporary, backend.evaluating_row_bytes(schema, [one for _, one in step.columns]))
                made += _MADE_ROW_BYTES * len(step.columns)
        return temporary + made * bool(self.filters), made

    def work(self, backend: Backend, data: Data, *, alone: bool) -> Data:
        """What it gives of some rows. An error names the verb, where there are several."""
        for step, stays, _ in self.steps:
            if isinstance(step, Relabel):
                names = dict(step.names)
                data = backend.relabel(backend.select(data, list(names)), renamed(data.schema, names))
            elif isinstance(step, Filter):
                data = _filtered(backend, data, step, stays, alone=alone)
            else:
                data = _assigned(backend, data, step, alone=alone)
        return backend.select(data, self.names)


def _filtered(backend: Backend, data: Data, step: Filter, stays: tuple[Label, ...], *, alone: bool) -> Data:
    kept = [name for name in data.schema.names if name in stays]
    said = repr(step.condition)
    return computed(
        lambda: backend.filter(data, step.condition, kept), lambda: said if alone else f"{step.verb}({said})"
    )


def _assigned(backend: Backend, data: Data, step: Assign, *, alone: bool) -> Data:
    def what() -> str:
        said = what_fails(backend, data, step.columns)
        return said if alone else f"{step.verb}({said})"

    return computed(lambda: backend.evaluate(data, step.columns), what)


def _pass_of(chain: Chain) -> _Pass:
    """The steps of a chain, each with the columns that it and those after it need."""
    wanted: dict[Label, None] = dict.fromkeys(chain.schema.names)
    steps: list[tuple[Step, tuple[Label, ...], Schema]] = []
    for step, schema in zip(reversed(chain.steps), reversed(chain.schemas[:-1]), strict=True):
        stays = tuple(wanted)
        if isinstance(step, Relabel):
            step = replace(step, names=tuple([pair for pair in step.names if pair[1] in wanted]))
            wanted = {old: None for old, _ in step.names}
        elif isinstance(step, Filter):
            wanted |= step.condition.columns()
        else:
            step = replace(step, columns=tuple([pair for pair in step.columns if pair[0] in wanted]))
            if not step.columns:
                continue
            made = {name for name, _ in step.columns}
            wanted = {name: None for name in wanted if name not in made} | step.reads()
        wanted = wanted or dict.fromkeys([_narrowest(schema)])  # rows have to be counted by something
        steps.append((step, stays, schema))
    reads = tuple([name for name in chain.schemas[0].names if name in wanted])
    return _Pass(reads, tuple(reversed(steps)), chain.schema.names)


def _narrowest(schema: Schema) -> Label:
    """The column that takes least."""
    return min(schema, key=lambda column: (not column.fixed, column.dtype.itemsize if column.dtype else 0)).name


Made = tuple[Part, Plan | None]
"""The rows of a chain, and how they were made."""


def made(workspace: Workspace, part: Part, chain: Chain, kept: Made | None = None) -> Made:
    """Collective: all ranks call it. The rows that a chain gives, in one pass.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    chain : Chain
    kept : tuple of Part and Plan, optional
        What `made_alone` gave on this rank: it is not computed again.
    """
    return _made(workspace, part, chain, kept, quiet=False)


def made_alone(workspace: Workspace, part: Part, chain: Chain) -> Made:
    """This rank's rows that a chain gives, without other ranks: for what is no collective, as ``len(t)`` is none.

    Steps need no rows of others, so that a rank may be asked for its own alone, and none waits for it. Nobody but who
    asked is told an error then. When a collective uses the table, all ranks agree on the steps and tell each other
    errors: `made` is given what was computed here, and is the same operation on all ranks, whoever has looked before.
    """
    try:
        return _made(replace(workspace, transport=SingleTransport()), part, chain, None, quiet=True)
    except GcylonError as error:
        error.rank = workspace.transport.rank  # that world of one has a rank 0
        raise


def _made(workspace: Workspace, part: Part, chain: Chain, kept: Made | None, *, quiet: bool) -> Made:
    plan = _pass_of(chain)
    views = all(isinstance(step, Relabel) for step, _, _ in plan.steps)
    source = part
    if kept:  # this rank has no use for what the rows were made of, which may be staged by now
        source = Part(workspace, part.schema, ())
        workspace.parts.discard(source)

    def body(operation: Operation) -> Part:
        operation.record.rows_in, operation.record.bytes_in = part.rows, part.nbytes
        if views:
            return kept[0] if kept else _viewed(workspace, operation, part, chain, plan)
        return _passed(operation, part, chain, plan, kept)

    (first, *more) = chain.steps
    request = Request(first.verb, dict(first.arguments), source)  # recorded as that of a verb done at once
    if more:
        request = _ChainRequest(chain.verb, {}, source, chain=chain)
    return run_verb(workspace, request, body, quiet=quiet or views)


def _viewed(workspace: Workspace, operation: Operation, part: Part, chain: Chain, plan: _Pass) -> Part:
    """Columns alone: nothing is copied."""
    names = plan.chosen()
    chunks: list[Chunk] = [ChunkView(chunk, names, workspace) for chunk in part.chunks]
    return Part(workspace, renamed(operation.schema, names), chunks, chain.partitioning(part.partitioning))


def _passed(operation: Operation, part: Part, chain: Chain, plan: _Pass, kept: Made | None) -> Part:
    workspace, backend = operation.workspace, operation.workspace.backend
    alone = len(chain.steps) == 1
    read = operation.schema.select(plan.reads)
    source, made, filters = view_of(workspace, part, plan.reads), plan.made(), plan.filters
    temporary, made_row_bytes = plan.row_bytes(backend)
    if filters > 1:  # what one has chosen is there while the next one chooses of it
        temporary += source.nbytes // max(source.rows, 1)

    def work(data: Data) -> Data:
        return plan.work(backend, data, alone=alone)

    result = each_piece(
        operation, source, temporary, made_row_bytes, work, None if made else renamed(read, plan.chosen()),
        chain.partitioning(part.partitioning), shared=None if filters else made, read=read,
        kept=kept and kept[0],
    )  # fmt: skip
    if kept and kept[1] and operation.plan:
        operation.plan = replace(kept[1], predicted_peaks=kept[1].predicted_peaks * operation.size)
    if not alone:
        operation.notes.append(_explained(chain, plan))
    return result


def _explained(chain: Chain, plan: _Pass) -> str:
    verbs = [step.verb for step in chain.steps]
    count, there = len(plan.reads), len(chain.schemas[0])
    return (
        f"{', '.join(verbs[:-1])} and {verbs[-1]} in one pass over the rows, which read {count} of {there} "
        f"column{'s' * (there != 1)}"
    )
