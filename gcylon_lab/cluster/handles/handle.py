"""`DistTable`: the notebook's reference to a table on the ranks."""

from __future__ import annotations

import inspect
import io
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Never, Self

import numpy as np
import pyarrow as pa

from ...api.frames.labels import Dtypes, Labels
from ...api.frames.names import Frames
from ...api.part_info import PartInfo, PartInfos
from ...api.verbs.arguments import checked
from ...api.verbs.brackets import Brackets
from ...api.verbs.pandas_hints import no_array, no_item, refuse_in_pandas
from ...backends.arrow.tables import to_arrow
from ...backends.protocol.data import Columns
from ...backends.protocol.schema import Label, Schema, shown_labels
from ...errors import ArgumentError, BudgetExceeded, GcylonError, HandleReleased, warn
from ...formats.row_writers import file_schema
from ...memory.available import available_bytes
from ...memory.tiers.kept_copies import ALSO
from ...operators.rowwise.head_tail import checked_rows
from ...units import MIB, format_bytes, format_count
from ..messages import CARD_COLUMNS, CARD_ROWS, Reply, Request, TableRef
from ..tracebacks import shown_folded
from .async_verbs import with_async
from .display_name import display_name, variable_names, with_id
from .forwarding import OnRanks, Pending, chain_after, with_before
from .session_api import SessionApi
from .verbs import HandleVerbs

if TYPE_CHECKING:
    import pandas as pd

    from ...engine.plan.plan import Plan
    from .collect import Batches


DEFAULT_LIMIT = 10_000
_COPIES = 2  # rows as they come, and what pandas makes of columns that it holds in another way
_ALWAYS_BYTES = 64 * MIB


_NO_REQUESTS = (
    "info", "explain", "release", "groupby", "group_by", "resample", "collect", "to_batches", "max_rows", "get", "copy",
    "pipe", "duplicated", "eval",
)  # fmt: skip


@with_async(but=_NO_REQUESTS)
class DistTable(HandleVerbs, Frames, Brackets):
    """A table on the ranks of a cluster. The rows stay there.

    It has the verbs of `Table`, called once for all ranks. What it shows of
    itself (`repr`, sizes, plans) is known here; the ranks are asked only after
    a cell ran or a table was given up, which may have changed it. It is alive
    until `release`, until it is collected, or until the cluster is restarted
    or closed; using it later raises `HandleReleased`.

    Row-wise verbs ask no rank: they are sent with the first request that needs their table, on CPU engines.

    Each verb has one with ``_async`` at its end, which returns at once; see `VerbFuture`.

    Made by a `Cluster` and by verbs.
    """

    def __init__(
        self, session: SessionApi, name: str, replies: Sequence[Reply], pending: Pending | None = None
    ) -> None:
        self._session = session
        self._name = name
        self._generation = session.generation
        self._pending = pending
        # What has steps more than this one and is not sent, by its name.
        self._waiting: weakref.WeakValueDictionary[str, DistTable] = weakref.WeakValueDictionary()
        # Runs wherever the collector happens to: it may only queue.
        self._there = OnRanks(pending is None)
        self._finalizer = weakref.finalize(self, self._there.drop_later, session, name)
        self._finalizer.atexit = False
        self._told: Sequence[Reply] = ()
        after = None if pending is None else pending.after
        self._schema: Schema | None = after.schema if after and after.known else None
        self._names: Sequence[Any] | None = after.schema.names if after else None
        if pending is None:
            self._take(replies)

    def _take(self, replies: Sequence[Reply]) -> None:
        """Know what the ranks tell of it."""
        self._told = [replace(reply, rows=None) for reply in replies if reply.info is not None]
        self._session.infos[self._name] = [reply.info for reply in self._told if reply.info is not None]
        self._known_infos = self._session.infos[self._name]  # brought up to date there
        self._schema = replies[0].schema or self._schema

    def _tell(self, rows: int | None = 0) -> Sequence[Reply]:
        """What the ranks tell of it; they make it where they had no need of it before, and add its first rows."""
        if self._told:
            return self._told
        replies = self._request("made", rows)
        self._take(replies)
        return replies

    @property
    def _infos(self) -> list[dict[str, Any]]:
        self._tell()
        return self._known_infos

    @property
    def _first_rows(self) -> list[Any]:
        return [reply.value for reply in self._tell()]

    @property
    def last_plan(self) -> Plan | None:
        """How this table was made, as far as there was a plan."""
        return self._tell()[0].plan

    @property
    def _is_pending(self) -> bool:
        """Whether nobody has asked for what the ranks tell of it."""
        return not self._told

    # ---- what the ranks hold

    @property
    def schema(self) -> Schema:
        """Columns and dtypes, the same on all ranks. Asks the ranks once, where there are many labels of categories."""
        if self._schema is None:
            self._tell()
        if self._schema is None:
            self._schema = self._request("schema")[0].value
        assert self._schema is not None
        return self._schema

    @property
    def columns(self) -> list[Any]:
        """Column labels."""
        refuse_in_pandas()
        return Labels(self._labels)

    @property
    def dtypes(self) -> dict[Any, str]:
        """The dtype of each column, in words."""
        if self._schema is not None:
            return Dtypes((column.name, column.describe()) for column in self._schema)
        return Dtypes(zip(self._infos[0]["columns"], self._infos[0]["dtypes"], strict=True))

    @property
    def num_rows(self) -> int:
        """Rows on all ranks."""
        return sum(info["rows"] for info in self._infos)

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self._labels)

    @property
    def _labels(self) -> Sequence[Any]:
        known = self._names if self._schema is None else self._schema.names
        return self._infos[0]["columns"] if known is None else known

    @property
    def shape(self) -> tuple[int, int]:
        """Rows on all ranks, and columns."""
        return self.num_rows, self.num_columns

    @property
    def nbytes(self) -> int:
        """Bytes on all ranks, in all tiers."""
        return sum(info["nbytes"] for info in self._infos)

    @property
    def tiers(self) -> dict[str, int]:
        """Bytes on all ranks by tier, as they are now; while the ranks work, as they last told. See `Table.tiers`."""
        self._refresh()
        told = [info["tiers"] | {ALSO[tier]: n for tier, n in info["kept"].items()} for info in self._infos]
        names = dict.fromkeys(tier for tiers in told for tier in tiers)
        return {tier: sum(tiers.get(tier, 0) for tiers in told) for tier in names}

    @property
    def partitioning(self) -> dict[str, Any] | None:
        """How the table is spread over the ranks, if known: keys and size."""
        spread: dict[str, Any] | None = self._infos[0]["partitioning"]
        return spread

    @property
    def released(self) -> bool:
        """Whether the table behind this handle is gone."""
        return self._session.closed or not self._finalizer.alive or self._session.generation != self._generation

    def info(self) -> PartInfos:
        """Return every rank's `Table.info`, in rank order, as it is now; while the ranks work, as they last told.

        It is a list of dicts that is shown in few lines.
        """
        self._refresh()
        return PartInfos(PartInfo(info | now) for info, now in zip(self._infos, self._session.memory, strict=True))

    # ---- how it was made, looking at rows, and away with them

    def explain(self) -> str:
        """Return how this table was made, in words."""
        if self.last_plan is None:
            return "This table was made, not read or exchanged: there was no plan."
        from ...engine.plan.plan import Words

        return Words(self.last_plan.describe())

    def local(self) -> list[pd.DataFrame]:
        """Return every rank's rows as a frame, in rank order. All of them come to the notebook.

        Raises
        ------
        BudgetExceeded
            If the notebook's memory has no room for them.
        """
        self._check_room(self.num_rows, "local()")
        from ...backends.arrow.interop import to_frame
        from .collect import Gathered, fetch

        each = [Gathered(self.schema, [info["rows"]]) for info in self._infos]
        table = self._reference(self._session).table
        fetch(self._session, table, "local", 0, self.num_rows, lambda rank, data: each[rank].take(0, data))
        return [to_frame(one.columns(), copy=False) for one in each]

    def to_pandas(self, limit: int | None = DEFAULT_LIMIT) -> pd.DataFrame:
        """Return the first rows in global order.

        Parameters
        ----------
        limit : int or None, default 10_000
            How many; None for all. Where the default leaves rows out, a warning says so.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        BudgetExceeded
            If the notebook's memory has no room for them.
        """
        if limit is not None:
            limit = checked_rows(limit, "limit", or_all=True)
        replies = self._tell(limit)
        return self._first("to_pandas", self._rows_within(limit, "to_pandas"), replies)

    def collect(self, batch_rows: int | None = None) -> Batches:
        """Give all rows in global order, batch by batch; the notebook holds some tens of megabytes of them at a time.

        Between batches the ranks are free: other verbs may run, and the loop may end early.

        Parameters
        ----------
        batch_rows : int, optional
            Rows of each batch but the last. By default batches take about 4 MB.

        Yields
        ------
        pandas.DataFrame
            With a RangeIndex of its own. A table without rows gives one batch without rows.

        Examples
        --------
        >>> for frame in table.collect(batch_rows=100_000):  # doctest: +SKIP
        ...     print(len(frame), frame["x"].mean())
        """
        from ...backends.arrow.interop import to_frame
        from ...backends.protocol.data import empty_columns
        from .collect import Batches

        if batch_rows is not None and checked_rows(batch_rows, "batch_rows") == 0:
            raise ArgumentError("batch_rows=0 gives no batches.", advice="Give one of at least 1.")
        some = self._batches("collect", None, batch_rows) if self.num_rows else [empty_columns(self.schema)]
        return Batches(to_frame(rows, copy=False) for rows in some)

    # ---- for libraries of the notebook that read Arrow

    def to_arrow(self, limit: int | None = DEFAULT_LIMIT) -> pa.Table:
        """Return the first rows in global order as an Arrow table.

        Parameters
        ----------
        limit : int or None, default 10_000
            How many; None for all. Where the default leaves rows out, a warning says so.

        Returns
        -------
        pyarrow.Table
            Of one chunk for each batch that was sent; with what pandas needs to restore the dtypes.

        Raises
        ------
        BudgetExceeded
            If the notebook's memory has no room for them.
        UnsupportedDtype
            Naming a column for which Arrow has no type (complex, period).
        """
        schema = file_schema(self.schema)
        return pa.Table.from_batches(list(self._first_batches(limit, "to_arrow")), schema)

    @checked
    def to_batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Give all rows in global order, batch by batch.

        Parameters
        ----------
        rows : int, optional
            Of a batch, the last one perhaps less; as many as take about 4 MiB by default.

        Yields
        ------
        pyarrow.RecordBatch
            The notebook holds some tens of megabytes of them at a time. Between batches the ranks are free.

        Raises
        ------
        ArgumentError
            If ``rows`` is no number of at least 1.
        HandleReleased
            If the table is gone before the last one.
        """
        return self._record_batches("to_batches", self.num_rows, rows)

    def to_ipc(self, limit: int | None = DEFAULT_LIMIT) -> bytes:
        """Return the first rows in global order as the bytes of an Arrow IPC stream; `read_ipc` is the way back.

        Parameters
        ----------
        limit : int or None, default 10_000
            How many; None for all. Where the default leaves rows out, a warning says so.

        Raises
        ------
        BudgetExceeded
            If the notebook's memory has no room for them.
        """
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, file_schema(self.schema)) as writer:
            for batch in self._first_batches(limit, "to_ipc"):
                writer.write_batch(batch)
        return sink.getvalue()

    def tensor(self, columns: Label | Sequence[Label] | None = None) -> list[np.ndarray[Any, Any]]:
        """Return every rank's rows as an array, in rank order. All of them come to the notebook.

        Parameters
        ----------
        columns : label or sequence of labels, optional
            A label gives arrays of shape (rows,), a list of labels, whose dtypes are one, arrays of shape
            (rows, columns); all columns by default. Numbers and bools.

        Raises
        ------
        UnsupportedDtype, ArgumentError
            Naming a column that is no number, has missing values, or another dtype than the first one.
        BudgetExceeded
            If the notebook's memory, or a rank's budget, has no room for them.
        """
        self._check_room(self.num_rows, "tensor()")
        name = self._reference(self._session).table
        return [reply.value for reply in self._session.call(Request("tensor", name, args=(columns,)))]

    def __arrow_c_schema__(self) -> Any:
        """The Arrow schema of the rows, as a capsule."""
        return file_schema(self.schema).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """All rows as a stream of Arrow, as a capsule; refused for more than 10,000.

        Raises
        ------
        ArgumentError
            If there are more.
        """
        return self._all_arrow().__arrow_c_stream__(requested_schema)

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        """All rows by the interchange protocol, by which seaborn asks; refused for more than 10,000."""
        return self._all_arrow().__dataframe__(nan_as_null, allow_copy)

    def __narwhals_dataframe__(self) -> Any:
        """All rows for narwhals, by which Altair, plotly and others ask; refused for more than 10,000."""
        narwhals = sys.modules["narwhals"]  # who asks has it
        return narwhals.from_native(self._all_arrow())._compliant_frame

    def _all_arrow(self) -> pa.Table:
        if self.num_rows > DEFAULT_LIMIT:
            raise ArgumentError(
                f"{self._called} has {format_count(self.num_rows)} rows ({format_bytes(self.nbytes)}), and another "
                f"library reads at most {format_count(DEFAULT_LIMIT)} of a table on the ranks by itself.",
                advice="Give it t.to_arrow(limit=None) for all rows, t.to_arrow(1000) for the first ones, or read "
                "t.to_batches() one by one.",
            )
        return self.to_arrow(limit=None)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise no_array(self)

    def __iter__(self) -> Any:
        raise no_item(self)

    def _first_batches(self, limit: int | None, verb: str) -> Iterator[pa.RecordBatch]:
        return self._record_batches(verb, self._rows_within(limit, verb), None)

    def _rows_within(self, limit: int | None, verb: str) -> int:
        """How many rows a limit gives, for which there is room here; warns where the default leaves some out."""
        if limit is not None:
            limit = checked_rows(limit, "limit", or_all=True)
        count = self.num_rows if limit is None else min(limit, self.num_rows)
        self._check_room(count, f"{verb}(limit={limit})")
        if limit == DEFAULT_LIMIT and count < self.num_rows:
            warn(
                f"These are the first {format_count(count)} of {format_count(self.num_rows)} rows "
                f"({format_bytes(self.nbytes)} in all); {verb}(limit=None) gives all."
            )
        return count

    def _record_batches(self, verb: str, count: int, rows: int | None) -> Iterator[pa.RecordBatch]:
        schema = file_schema(self.schema)
        for columns in self._batches(verb, count, rows):
            table = to_arrow(columns).replace_schema_metadata(schema.metadata).combine_chunks()
            del columns
            yield table.to_batches()[0]

    # ---- first rows, names, and the end

    def head(self, n: int = 5) -> pd.DataFrame:
        """Return the first ``n`` rows in global order. Of a few no rank is asked: they came when the table was made."""
        n = checked_rows(n, "n")
        return self._first("head", n, self._tell(n))

    def _leading(self, n: int, by: list[Any], *, ascending: bool) -> pd.DataFrame:
        frame: pd.DataFrame = self._request("leading_rows", n, by, ascending=ascending)[0].value
        return frame

    @checked
    def bind(self, name: str) -> DistTable:
        """Give the table a name in every engine's namespace, for ``%px``; returns this handle.

        Raises
        ------
        ArgumentError
            If it cannot be a name.
        """
        self._request("bind", name)
        return self

    def release(self) -> None:
        """Give the table up: its memory is freed unless a name of ``%px`` refers to it. Idempotent."""
        alive = not self.released
        waiting = [one for one in self._waiting.values() if one._pending is not None and not one.released]
        try:
            if alive and waiting:  # their tables need its rows, and will have them once the ranks know of them
                # An error of its rows is told to who uses those tables.
                with suppress(GcylonError), with_before(self._session, Request("nothing"), *waiting) as request:
                    self._session.call(request)
        finally:
            if self._finalizer.detach() is not None and alive and self._there.told:
                self._session.drop(self._name)

    def _all_rows(self) -> int:
        return self.num_rows

    def __len__(self) -> int:
        return self.num_rows

    def __reduce__(self) -> Never:
        raise TypeError(
            f"{self!r} cannot be pickled, as its rows are on the ranks: write_parquet(folder) keeps them, and "
            "lab.run(f, t) calls a function with them"
        )

    def __repr__(self) -> str:
        if self.released:
            return f"<DistTable {self._called}: {self._why_gone()}>"
        names = shown_labels(self.columns[:6]) + (", …" if self.num_columns > 6 else "")
        rows = "+".join(format_count(info["rows"]) for info in self._infos[:8]) + ("+…" if len(self._infos) > 8 else "")
        return (
            f"<DistTable {self._called}: {format_count(self.num_rows)} row{'s' * (self.num_rows != 1)} ({rows}) "
            f"of {self.num_columns} column{'s' * (self.num_columns != 1)}, "
            f"{format_bytes(self.nbytes)} ({names})>"
        )

    def __str__(self) -> str:
        """The line of `repr`, and below it the rows that came with the reply."""
        frame = self._shown_frame()
        return repr(self) if frame is None else f"{self!r}\n{frame.to_string(max_cols=CARD_COLUMNS)}"

    def _repr_html_(self) -> str:
        from .html_repr import gone_card, table_card

        if self.released:
            return gone_card(repr(self))
        variable = variable_names(self._session).get(self._name, "").partition(",")[0]
        hosts = [record.host for record in self._session.ranks]
        called = display_name(self._session, self._name)
        return table_card(self._name, self._infos, called, variable, self._first_rows, hosts)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """In a terminal IPython shows rows too; messages name a table by its `repr`."""
        frame = self._shown_frame()
        if frame is not None:
            printer.text(frame.to_string(max_cols=CARD_COLUMNS) + "\n")
        printer.text(repr(self))

    # ---- inside

    def _shown_frame(self) -> pd.DataFrame | None:
        """The first rows, where they are known here."""
        from .html_repr import first_frame

        return None if self.released else first_frame(self._infos, self._first_rows)

    def _check_room(self, rows: int, what: str) -> None:
        """Refuse to bring more rows to the notebook than its memory holds: it would die of them."""
        rows = min(rows, self.num_rows)
        needed = _COPIES * self.nbytes * rows // max(1, self.num_rows)
        if needed < _ALWAYS_BYTES or needed <= (free := available_bytes()):
            return
        raise BudgetExceeded(
            f"{what} of {self._called} would take about {format_bytes(needed)} of the notebook's memory, of which "
            f"{format_bytes(free)} are free.",
            advice=f"Give a smaller limit (about {format_count(rows * free // needed // 2)} rows), or write_parquet.",
            needed_bytes=needed, free_bytes=free,
        )  # fmt: skip

    @property
    def _called(self) -> str:
        """Its id, and the variable that refers to it, if one does."""
        return with_id(self._session, self._name, self._generation)

    @property
    def _display_name(self) -> str:
        return variable_names(self._session).get(self._name, "").partition(",")[0] or self._name

    def _wrap_result(self, name: str, replies: list[Reply]) -> Self:
        return type(self)(self._session, name, replies)

    def _reference(self, session: SessionApi) -> TableRef:
        """What stands for this table in a request to a cluster.

        Raises
        ------
        HandleReleased
            If it is gone.
        ArgumentError
            If it is another cluster's.
        """
        if session is not self._session:
            raise ArgumentError(f"{self!r} belongs to another cluster.")
        if self.released:
            error = HandleReleased(
                f"The table {self._called} is gone: {self._why_gone()}.", advice="Read or compute it again."
            )
            shown_folded(error)
            raise error
        return TableRef(self._name)

    def _why_gone(self) -> str:
        if not self._finalizer.alive:
            return "it was released"
        what = "closed" if self._session.closed else "restarted"
        return f"the cluster {self._session.name!r} was {what}"

    def _request(self, action: str, *args: Any, **kwargs: Any) -> list[Reply]:
        name = self._reference(self._session).table
        with with_before(self._session, Request(action, name, args=args, kwargs=kwargs), self) as request:
            return self._session.call(request)

    def _remember(self, verb: Callable[..., Any], bound: inspect.BoundArguments) -> Self | None:
        session, schema = self._session, self._schema
        if schema is None or self.released:
            return None
        after = chain_after(verb, bound, schema)
        if after is None:
            return None
        name = session.new_id()
        request = Request(verb.__name__, self._name, name, bound.args[1:], bound.kwargs)
        made = type(self)(session, name, (), Pending(self, request, after))
        self._waiting[name] = made
        return made

    def _batches(self, action: str, rows: int | None, batch_rows: int | None) -> Iterator[Columns]:
        from .collect import batches

        session = self._session
        self._reference(session)
        return batches(
            session,
            lambda: self._reference(session).table,
            (self.num_rows, self.nbytes),
            action,
            rows=rows,
            batch_rows=batch_rows,
        )

    def _first(self, action: str, count: int, replies: Sequence[Reply]) -> pd.DataFrame:
        """The first rows: of those that came with replies where these are enough."""
        from ...backends.arrow.interop import to_frame
        from .collect import Gathered, fetch
        from .html_repr import first_frame

        table = self._reference(self._session).table  # refuses one that is gone
        came = [reply.rows for reply in replies]
        if count <= CARD_ROWS and self.num_columns <= CARD_COLUMNS:
            came = self._first_rows
        known: pd.DataFrame | None = first_frame(self._infos, came, count)
        if known is not None:
            return known
        rows, left = [], count
        for info in self._infos:
            rows.append(min(left, info["rows"]))
            left -= rows[-1]
        whole = Gathered(self.schema, rows)
        fetch(self._session, table, action, 0, sum(rows), whole.take)
        return to_frame(whole.columns(), copy=False)

    def _refresh(self) -> None:
        if not self.released:
            self._session.refresh()
