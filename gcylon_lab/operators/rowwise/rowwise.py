"""Verbs that look at each row alone: nothing is exchanged but agreements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ...backends.kernels.kernel import ColumnKernel, kernels_in
from ...backends.protocol.backend import Backend
from ...backends.protocol.data import Data
from ...backends.protocol.expressions import Expression
from ...backends.protocol.promotion import agree_schemas
from ...backends.protocol.scalars import check_own_expression, several_values, shown
from ...backends.protocol.schema import Label, Schema, require_distinct
from ...backends.refusals import is_refused_on_gpus
from ...engine.exchange.exchange import local_plan
from ...engine.exec.invocation import AUTO, Request, RunOptions, check_labels
from ...engine.exec.local_executor import LocalExecutor, reading_bytes
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation, run_verb
from ...engine.plan.plan import Plan
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part, Partitioning
from ...engine.store.views import ChunkView, renamed
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError, BudgetExceeded, GcylonError, UnsupportedDtype
from ...memory.budget import Reservation, exceeded
from ...units import format_bytes
from ..io.ingest import check_values, ingest

# On GPUs what a piece costs beside its rows is some milliseconds of Python, so pieces are large where there is room.
_DEVICE_ROWS = 1 << 26

_EACH_ROW = "because each rank works on its own rows"

_OWN_TYPES = "Give each column values of its own type, as in fillna({'x': 0}), or convert the column by astype."


def filtered(
    workspace: Workspace,
    part: Part,
    condition: Expression,
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. The rows of which a condition holds."""

    def check() -> None:
        check_condition(condition)
        check_labels(condition.columns(), part.schema.names)

    def body(operation: Operation) -> Part:
        backend = workspace.backend
        temporary = backend.evaluating_row_bytes(operation.schema, [condition])

        def work(data: Data) -> Data:
            return computed(lambda: backend.filter(data, condition), lambda: repr(condition))

        result = each_piece(operation, part, temporary, 0, work, operation.schema, part.partitioning)
        operation.notes += _how_kernels_ran([condition])
        return result

    arguments = {"condition": condition} | _kernels([condition])
    request = Request("filter", arguments, part, options, check)
    return run_operation(workspace, request, body)


def _kernels(expressions: Sequence[Expression]) -> dict[str, Any]:
    """Of kernels, beside the expressions with their names, what must be the same on all ranks."""
    found = [one for expression in expressions for one in kernels_in(expression)]
    for one in found:
        one.begin()
    return {"kernels": list(dict.fromkeys(one.identity() for one in found))} if found else {}


def _how_kernels_ran(expressions: Sequence[Expression]) -> list[str]:
    return list(dict.fromkeys(one.how() for expression in expressions for one in kernels_in(expression)))


def check_called(given: Any) -> None:
    """Refuse a kernel in place of what it makes.

    Raises
    ------
    ArgumentError
    """
    if isinstance(given, ColumnKernel):
        columns = ", ".join(map(repr, given.source.parameters))
        raise ArgumentError(f"{given!r} was not called.", advice=f"Call it with columns, as in kernel({columns}).")


def check_condition(given: Any) -> None:
    """Refuse what is no expression.

    Raises
    ------
    ArgumentError
    """
    if isinstance(given, Expression):
        return
    check_called(given)
    check_own_expression(given)
    if callable(given):  # its address would be another one on each rank
        advice = "Give one such as gl.col('x') > 0, or call map_parts(f) with a function of frames."
        raise ArgumentError("Expected a condition, got a function.", advice=advice)
    raise ArgumentError(
        f"Expected a condition, got {several_values(given) or shown(given)}.",
        advice="Give one such as gl.col('x') > 0.",
    )


def assigned(
    workspace: Workspace,
    part: Part,
    verb: str,
    expressions: Sequence[tuple[Label, Expression]],
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Columns made anew, or more of them; the others are not copied."""

    def check() -> None:
        check_labels([name for _, expression in expressions for name in expression.columns()], part.schema.names)

    def body(operation: Operation) -> Part:
        result = _assigned(operation, part, expressions)
        operation.notes += _how_kernels_ran([expression for _, expression in expressions])
        return result

    arguments = {"columns": list(expressions)} | _kernels([expression for _, expression in expressions])
    request = Request(verb, arguments, part, options, check)
    return run_operation(workspace, request, body)


def _assigned(operation: Operation, part: Part, expressions: Sequence[tuple[Label, Expression]]) -> Part:
    backend = operation.workspace.backend
    temporary = backend.evaluating_row_bytes(operation.schema, [expression for _, expression in expressions])
    made = {name for name, _ in expressions}
    spread = part.partitioning
    if spread is not None and made & set(spread.keys):
        spread = None  # other values may hash to other ranks

    def work(data: Data) -> Data:
        return computed(lambda: backend.evaluate(data, expressions), lambda: what_fails(backend, data, expressions))

    return each_piece(operation, part, temporary, 16 * len(made), work, None, spread, shared=made)


def what_fails(backend: Backend, data: Data, expressions: Sequence[tuple[Label, Expression]]) -> str:
    """The first of several columns that cannot be made by itself, as it was asked for."""
    for name, expression in expressions:
        try:
            backend.evaluate(data, [(name, expression)])
        except Exception:
            return f"{name}={expression!r}"
    return ", ".join(f"{name}={expression!r}" for name, expression in expressions)


def computed(work: Callable[[], Data], what: Callable[[], str]) -> Data:
    """Compute an expression; what the library cannot do is told with the expression.

    Raises
    ------
    ArgumentError
        With the library's words.
    """
    try:
        return work()
    except UnsupportedDtype as error:
        if is_refused_on_gpus(error):
            raise
        # There is no frame whose column could be converted.
        error.advice = _OWN_TYPES
        raise
    except (GcylonError, MemoryError):
        raise
    except Exception as error:
        failed = what()
        advice = _OWN_TYPES if ".fillna(" in failed else "Look at the columns' dtypes."
        raise ArgumentError(
            f"{failed} cannot be computed: {type(error).__name__}: {str(error).rstrip('.')}.", advice=advice
        ) from error


def each_piece(
    operation: Operation,
    part: Part,
    temporary: int,
    made_row_bytes: int,
    function: Callable[[Data], Data],
    schema: Schema | None,
    partitioning: Partitioning | None,
    shared: set[Label] | None = None,
    read: Schema | None = None,
    kept: Part | None = None,
) -> Part:
    """Apply a function to all rows, piece by piece.

    Parameters
    ----------
    operation, part
        The verb, and its input.
    temporary, made_row_bytes : int
        Bytes a row for the work and for columns that it makes, beside the input's.
    function : callable
    schema : Schema, optional
        Of the result; found from what was made where None.
    partitioning : Partitioning, optional
    shared : set of labels, optional
        The columns that are made; the others are views of the input's, and not paid for twice on the device tier.
    read : Schema, optional
        The part's columns as all ranks have them, where it is a view of the verb's input.
    kept : Part, optional
        All that the function gives, which this rank has from before: it is not applied.
    """
    read = read or operation.schema
    result = kept or _applied(operation, part, temporary, made_row_bytes, function, schema or read, read, shared)
    if schema is None:
        schemas: dict[Schema, int] = {}
        for chunk in result.chunks:
            schemas[chunk.schema] = schemas.get(chunk.schema, 0) + chunk.rows
        if not schemas:
            schemas[function(operation.workspace.backend.empty(read)).schema] = 0
        mine = agree_schemas(list(schemas), list(schemas.values()))
        result.schema = operation.agree_result_schema(mine, result.rows)
        check_values(operation.workspace, result.chunks, result.schema)
    result.partitioning = partitioning
    operation.plan = local_plan(operation, part, result, _EACH_ROW)
    return result


def _applied(
    operation: Operation,
    part: Part,
    temporary: int,
    made_row_bytes: int,
    function: Callable[[Data], Data],
    schema: Schema,
    read: Schema,
    shared: set[Label] | None,
) -> Part:
    """What the function gives of all rows."""
    work = LocalExecutor(operation, operation.verb.capitalize())
    work.make_room(part.nbytes / max(part.rows, 1) + made_row_bytes, part.rows)
    result = work.new_result(schema)

    def needed(data: Data) -> int:
        return 2 * data.nbytes + data.rows * (temporary + made_row_bytes)

    row_bytes = part.nbytes / max(part.rows, 1)
    least = _DEVICE_ROWS if operation.workspace.backend.on_gpu else 0
    rows = work.piece_rows(row_bytes, temporary + made_row_bytes, least=least)
    result_bytes = part.rows * made_row_bytes if shared is not None and not part.staged_bytes else part.nbytes
    at_once = min(rows, part.rows) * (2 * row_bytes + temporary + made_row_bytes) + part.largest_staged_bytes
    work.expect(at_once + (0 if operation.options.strategy == "staged" else result_bytes))
    with work.holding(part, part.nbytes + part.rows * made_row_bytes):
        for piece, held in _pieces_with_claims(work, part, read, rows, apart=shared is not None):
            for made, claim in work.apply(piece, needed, function):
                if shared is not None and held is not None:
                    names = [name for name in made.schema.names if name in shared]
                    own = operation.workspace.backend.select(made, names)
                    work.keep(result, made, claim, own_bytes=own.nbytes, shared=held)
                else:
                    work.keep(result, made, claim)
                del made
            del piece  # before the next one is read back
    return result


def _pieces_with_claims(
    work: LocalExecutor, part: Part, schema: Schema, rows: int, *, apart: bool
) -> Iterator[tuple[Data, object]]:
    """Pieces of a part, and where ``apart`` asks for it the claim on those that are views of a device chunk."""
    waiting = list(part.chunks)
    while waiting:
        first = waiting.pop(0)
        group = [first]
        held = first.claim if apart and _is_viewed(first, schema) else None
        while held is None and waiting and not (apart and _is_viewed(waiting[0], schema)):
            group.append(waiting.pop(0))
        some = Part(work.workspace, schema, group)
        work.workspace.parts.discard(some)
        for piece in work.pieces(some, schema, rows, joined_bytes=work.fast_chunk_bytes):
            yield piece, held
            del piece


def _is_viewed(chunk: Chunk, schema: Schema) -> bool:
    return chunk.tier == "device" and chunk.schema == schema


def relabelled(
    workspace: Workspace,
    part: Part,
    verb: str,
    arguments: dict[str, Any],
    names: Callable[[Schema], Mapping[Label, Label]],
    options: RunOptions = AUTO,
) -> Part:
    """Collective: all ranks call it. Some columns, perhaps under other names, without a copy.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    verb : str
    arguments : dict
        As called.
    names : callable
        Gives the new name of each column that stays, in the new order; raises where it cannot.
    options : RunOptions
        Of which the deadline counts.
    """
    chosen: dict[Label, Label] = {}

    def check() -> None:
        chosen.update(names(part.schema))
        require_distinct(list(chosen.values()))

    def body(operation: Operation) -> Part:
        chunks: list[Chunk] = [ChunkView(chunk, chosen, workspace) for chunk in part.chunks]
        return Part(workspace, renamed(operation.schema, chosen), chunks, renamed_spread(part.partitioning, chosen))

    return run_verb(workspace, Request(verb, arguments, part, options, check), body, quiet=True)[0]


def renamed_spread(spread: Partitioning | None, names: Mapping[Label, Label]) -> Partitioning | None:
    """How some columns under other names are spread: not known where a key is none of them."""
    if spread is None or not all(key in names for key in spread.keys):
        return None
    return Partitioning(
        tuple(str(names[key]) if isinstance(names[key], str) else key for key in spread.keys), spread.size
    )


def mapped(
    workspace: Workspace,
    part: Part,
    function: Callable[[Any], Any],
    *,
    by_chunk: bool,
    options: RunOptions = AUTO,
) -> Part:
    """Collective: all ranks call it. What a function makes of each rank's rows, as a frame of the rank's library."""
    backend = workspace.backend

    def check() -> None:
        if not callable(function):
            raise ArgumentError(
                f"Expected a function, got {function!r}.", advice="Give one that takes a frame and returns one."
            )

    def make() -> Iterator[Data]:
        work_pieces = part.chunks if by_chunk else [part]
        for some in list(work_pieces) or [part]:
            with ExitStack() as held:
                data = _given(workspace, part, [some] if isinstance(some, Chunk) else part.chunks, held)
                frame = function(backend.to_frame(data))
                made = backend.from_frame(frame)
                del data, frame
            yield made
            del made  # before the next rows are read back

    name = getattr(function, "__qualname__", type(function).__name__)
    request = Request("map_parts", {"f": name, "by_chunk": by_chunk}, part, options, check)
    return ingest(workspace, request, make)


def _advise_chunks(error: BudgetExceeded) -> None:
    """Not all of a rank's rows fit at once: each chunk may."""
    error.advice = (
        "Let the function have one chunk after the other, with by_chunk=True. All rows of a rank at once would fit in "
        f"a gpu_memory_limit of {error.numbers['would_do']} bytes ({format_bytes(error.numbers['would_do'])}); "
        f"it is {error.numbers['limit_bytes']} now."
    )


def _given(workspace: Workspace, part: Part, chunks: Sequence[Chunk], held: ExitStack) -> Data:
    """Rows of some chunks, with claims on them and on the frame that they become; an error says what all takes."""
    budget, what = workspace.budget, "The frame that a function is given"
    used = budget.used_bytes
    try:
        data = _as_one(workspace, part, chunks, held)
        held.enter_context(budget.reserve(data.nbytes, what))
        return data
    except workspace.out_of_memory:
        kept, joining = reading_bytes(chunks) if chunks else (0, 0)
        needed = max(joining, kept + sum(chunk.nbytes for chunk in chunks))
        error = exceeded(what, needed, used, budget.limit_bytes)
        if len(chunks) > 1:
            _advise_chunks(error)
        raise error from None


def _as_one(workspace: Workspace, part: Part, chunks: Sequence[Chunk], held: ExitStack) -> Data:
    backend = workspace.backend
    if not chunks:
        return backend.empty(part.schema)
    if len(chunks) == 1:
        return backend.cast(held.enter_context(chunks[0].load(workspace)), part.schema)
    with ExitStack() as loaded:  # only the copy is needed afterwards
        pieces = [backend.cast(loaded.enter_context(one.load(workspace)), part.schema) for one in chunks]
        held.enter_context(workspace.budget.reserve(sum(piece.nbytes for piece in pieces), "Joining a part's chunks"))
        return backend.concat(pieces)


def chosen_rows(
    work: LocalExecutor, part: Part, condition: Expression, schema: Schema
) -> Iterator[tuple[Data, Reservation]]:
    """Some of the rows, as columns of a schema, each piece under a claim; the part is used up."""
    backend = work.backend
    scratch = backend.evaluating_row_bytes(part.schema, [condition])
    total, row_bytes = part.rows, part.nbytes / max(part.rows, 1)
    rows = work.piece_rows(row_bytes, scratch)
    work.expect_pieces(part, part.schema, rows, 3 * row_bytes + scratch)
    looked_at = found = 0

    def filtered(data: Data) -> Data:
        return backend.concat([backend.select(backend.filter(data, condition), schema.names)])

    for piece in work.pieces(part, part.schema, rows, using_up=True):
        for made, claim in work.apply(piece, lambda data: 3 * data.nbytes + data.rows * scratch, filtered):
            found += made.rows
            yield made, claim
            del made
        looked_at += piece.rows
        if looked_at == piece.rows < total:  # the first piece says about how many there will be
            more = work.kept_bytes(found / looked_at * (total - looked_at) * row_bytes)
            work.expect_now(more + piece.rows * (3 * row_bytes + scratch))
        del piece  # before the next one is read back
