"""What an engine can be asked to do. Each action runs on all ranks at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...backends.protocol.data import Columns
from ...backends.protocol.schema import Schema
from ...errors import ArgumentError, HandleReleased
from ..messages import Reply, Request, TableRef
from ..notebook_names import import_missing
from ..row_stream import RankEnd
from .first_rows import asked_rows, first_rows

_MOST_LABELS_BYTES = 4096
READERS = ("read_parquet", "read_csv", "read_json", "read_ipc")


class Serves(Protocol):
    """An engine, as actions see it."""

    context: Any
    tables: dict[str, Any]
    appenders: dict[str, Any]

    @property
    def rank(self) -> int:
        """Its MPI rank."""
        ...

    @property
    def namespace(self) -> dict[str, Any]:
        """Where ``%px`` runs."""
        ...

    def recover(self) -> None:
        """Make ranks that were freed fit for use again."""
        ...

    def staged_by(self, table: Any, *, known: bool = True) -> str:
        """Why rows of a table were staged, in words."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """A request on its way: with the function to run, and the value meant for this rank alone."""

    engine: Serves
    request: Request
    function: Callable[..., Any] | None
    own: Any

    def table(self) -> Any:
        """The table that the request is about."""
        return _table(self.engine, self.request.table)

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """The request's arguments, with tables in place of references."""
        args = [_resolved(self.engine, value) for value in self.request.args]
        return args, {name: _resolved(self.engine, value) for name, value in self.request.kwargs.items()}


def perform(call: Call) -> Reply:
    """Collective: all ranks call it. Run a request's action; a table that comes out is kept under its result name.

    Raises
    ------
    ArgumentError
        If there is no such action.
    HandleReleased
        If a table it names is not kept here.
    """
    rank, result = call.engine.rank, call.request.result or (call.request.action == "made" and call.request.table)
    import_missing(call.engine.namespace, call.request.modules)
    for one in call.request.before:
        if one.result not in call.engine.tables:  # it may have come before, with a request that did not end well
            call.engine.tables[one.result] = _verb(Call(call.engine, one, None, None))
    value = _ACTIONS.get(call.request.action, _verb)(call)
    if result and _is_table(value):
        value._live()  # rows that are still to be made: what is told of it needs them
        call.engine.tables[result] = value
        staged_by = call.engine.staged_by(value, known=call.request.action != "adopt")
        info = value.info() | {"staged_by": staged_by}
        schema = None if rank else _told(value.schema)
        rows = asked_rows(value, *call.request.args) if call.request.action == "made" else None
        return Reply(rank, first_rows(value), rows, info=info, plan=value.last_plan, schema=schema)
    return Reply(rank, value=value)


def _told(schema: Schema) -> Schema | None:
    """A schema that goes with a reply: not one of so many labels that to ask for them later takes less."""
    labels = sum(column.labels.nbytes for column in schema if column.labels is not None)
    return schema if labels <= _MOST_LABELS_BYTES else None


def _is_table(value: Any) -> bool:
    from ...api.table import Table

    return isinstance(value, Table)


def _table(engine: Serves, name: str) -> Any:
    if name not in engine.tables:
        raise HandleReleased(f"Rank {engine.rank} has no table {name!r}.", advice="Read or compute it again.")
    return engine.tables[name]


def _resolved(engine: Serves, value: Any) -> Any:
    if isinstance(value, list) and any(isinstance(one, TableRef) for one in value):
        return [_resolved(engine, one) for one in value]
    return _table(engine, value.table) if isinstance(value, TableRef) else value


def _verb(call: Call) -> Any:
    table, action = call.table(), call.request.action
    method = getattr(table, action, None)
    if action.startswith("_") or not callable(method):
        raise ArgumentError(f"A table has no verb {action!r}.")
    args, kwargs = call.arguments()
    return method(*([] if call.function is None else [call.function]), *args, **kwargs)


def _read(call: Call) -> Any:
    from ...api import readers

    return getattr(readers, call.request.action)(*call.request.args, **call.request.kwargs)


def _from_local(call: Call) -> Any:
    from ...api import readers

    if call.request.args:
        return _from_stream(call)
    return readers.from_local(call.own, **call.request.kwargs)


class _Incoming:
    """Rows that the notebook sends to this rank."""

    def __init__(self, call: Call) -> None:
        self._context, self._address = call.engine.context, call.request.args[0]
        self._asked = False

    def __call__(self, window_bytes: int, piece_bytes: int) -> Iterator[Columns]:
        self._asked = True
        with self._connect(window_bytes) as end:
            yield from end.receive(piece_bytes)

    def leave(self) -> None:
        """Tell the notebook that this rank wants no rows, if it has not asked for any."""
        if not self._asked:
            with self._connect(1):
                pass

    def _connect(self, window_bytes: int) -> RankEnd:
        return RankEnd(self._address, self._context.rank, window_bytes, self._context.transport.check)


def _from_stream(call: Call) -> Any:
    """Collective: all ranks call it. A table of the rows that the notebook sends to an address, spread evenly where it
    did not know how many there would be."""
    from ...api import readers

    _, expected_bytes, spread = call.request.args
    table = readers.from_pieces(_Incoming(call), call.request.action, expected_bytes, **call.request.kwargs)
    if not spread:
        return table
    try:
        return table.repartition(**call.request.kwargs)
    finally:
        table.release()


def _empty(call: Call) -> None:
    """Collective: all ranks call it. Begin what rows are appended to."""
    from ...api.interchange.appender import empty

    schema, capacity = call.request.args
    each, more = divmod(capacity, call.engine.context.size)
    mine = each + (call.engine.rank < more)
    call.engine.appenders[call.request.result] = empty(schema, mine, **call.request.kwargs)


def _append(call: Call) -> tuple[int, int]:
    """Collective: all ranks call it. Append rows that the notebook sends; this rank's rows and bytes so far."""
    appender = call.engine.appenders[call.request.table]
    appender.append_pieces(_Incoming(call))
    return appender.num_rows, appender.nbytes


def _appended(call: Call) -> Any:
    """Collective: all ranks call it. The table of what was appended."""
    return call.engine.appenders[call.request.table].table()


def _to_stream(call: Call) -> None:
    """Collective: all ranks call it. Send the notebook rows [start, stop) in global order, over the address given."""
    from ...engine.exec.invocation import Request as Invocation
    from ...operators.io.notebook_rows import send_rows

    context, (address, start, stop) = call.engine.context, call.request.args
    part = call.table()._live()

    def send(window_bytes: int, pieces: Iterator[Columns]) -> None:
        with RankEnd(address, context.rank, window_bytes, context.transport.check) as end:
            end.send(pieces)

    send_rows(
        context.workspace, Invocation(call.request.action, {"start": start, "stop": stop}, part), start, stop, send
    )


def _tensor(call: Call) -> Any:
    """This rank's numbers as an array of numpy's, whatever the engine works with."""
    array = call.table().tensor(*call.request.args)
    return array.get() if hasattr(array, "get") else np.asarray(array)


def _recover(call: Call) -> None:
    call.engine.recover()


def _check(call: Call) -> list[int]:
    """Collective: all ranks call it. A collective whose right answer is known: every rank's number, in order."""
    everyone = call.engine.context.transport.agree(np.array([call.engine.rank], dtype=np.int64))
    return [int(rank) for rank in everyone[:, 0]]


def _run(call: Call) -> Any:
    if call.function is None:
        raise ArgumentError("There is no function to run.")
    args, kwargs = call.arguments()
    return call.function(*args, **kwargs)


def _adopt(call: Call) -> Any:
    """Keep what a variable of this engine, or a stored name, refers to; says what it is where that is no table."""
    name, engine = call.request.args[0], call.engine
    value = engine.namespace.get(name, engine.tables.get(name, _MISSING))
    if _is_table(value):
        return value
    return "nothing" if value is _MISSING else type(value).__name__


def _bind(call: Call) -> None:
    call.engine.namespace[call.request.args[0]] = call.table()


def _schema(call: Call) -> Any:
    return call.table().schema


def _leading_rows(call: Call) -> Any:
    """Collective: all ranks call it. The first rows by some keys, given by rank 0 alone."""
    frame = call.table()._leading(*call.request.args, **call.request.kwargs)
    return frame if call.engine.rank == 0 else None


def _memory(call: Call) -> list[dict[str, Any]]:
    """Every table on this rank: stored ones, and those that only a variable of ``%px`` refers to."""
    found: dict[int, dict[str, list[str]]] = {}
    tables: dict[int, Any] = {}
    for kind, space in (("names", call.engine.namespace), ("ids", call.engine.tables)):
        for name, value in space.items():
            # One whose rows are not made yet has none, and is not made for being looked at.
            if _is_table(value) and not value.released and not value._is_pending and not name.startswith("_"):
                found.setdefault(id(value), {"names": [], "ids": []})[kind].append(name)
                tables[id(value)] = value
    return [found[key] | table.info() for key, table in tables.items()]


def _memory_info(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = call.engine.context.memory_info()
    return found


def _pools(call: Call) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call.engine.context.pools()
    return found


def _trim(call: Call) -> dict[str, int]:
    freed: dict[str, int] = call.engine.context.trim()
    return freed


def _unstage(call: Call) -> None:
    """Collective: all ranks call it. The table is the same afterwards: where it lies is told with the reply."""
    _verb(call)


def _nothing(call: Call) -> None:
    """For the sake of what a request carries beside its action."""


_MISSING = object()

_ACTIONS: dict[str, Callable[[Call], Any]] = {
    "recover": _recover,
    "check": _check,
    "run": _run,
    "adopt": _adopt,
    "bind": _bind,
    "schema": _schema,
    "made": Call.table,
    "leading_rows": _leading_rows,
    "memory": _memory,
    "memory_info": _memory_info,
    "pools": _pools,
    "trim": _trim,
    "nothing": _nothing,
    "unstage": _unstage,
    "from_local": _from_local,
    "empty": _empty,
    "append": _append,
    "appended": _appended,
    **dict.fromkeys(("scatter", "from_arrow", "from_columns"), _from_stream),
    **dict.fromkeys(("collect", "head", "local", "to_pandas", "to_arrow", "to_batches", "to_ipc"), _to_stream),
    "tensor": _tensor,
    **dict.fromkeys(READERS, _read),
}
