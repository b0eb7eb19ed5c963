"""Table: one rank's part of a distributed table, and its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends.arrow.interop import to_frame as pandas_frame
from ..backends.host.column_buffers import string_places
from ..backends.protocol.aggregation import Kernel
from ..backends.protocol.column import shown_labels
from ..backends.protocol.schema import Schema
from ..engine.exec.remote_write import has_missing, null_columns
from ..engine.plan.plan import Plan, Words
from ..engine.store.column_widths import column_row_bytes
from ..engine.store.part import Part, Partitioning
from ..engine.store.uses import external_bytes
from ..errors import ArgumentError
from ..memory.tiers.kept_copies import ALSO
from ..operators.exchange.collect import allgather
from ..operators.rowwise.head_tail import checked_rows, take_head
from ..runtime.context import Context, current
from .frames.names import Frames
from .interchange.verbs import InterchangeVerbs
from .verbs.brackets import Brackets
from .verbs.distinct import DistinctVerbs
from .verbs.exchange import ExchangingVerbs
from .verbs.group import GroupingVerbs
from .verbs.inspection import LookingVerbs
from .verbs.join import JoiningVerbs
from .verbs.pandas_hints import refuse_in_pandas
from .verbs.reductions import ReductionVerbs
from .verbs.rows import RowVerbs
from .verbs.sets import SetVerbs
from .verbs.sort import SortingVerbs
from .verbs.staging import StagingVerbs
from .verbs.writing import WritingVerbs

if TYPE_CHECKING:
    import pandas as pd


class Table(
    ExchangingVerbs, RowVerbs, GroupingVerbs, DistinctVerbs, ReductionVerbs, JoiningVerbs, SortingVerbs, LookingVerbs,
    SetVerbs, StagingVerbs, WritingVerbs, InterchangeVerbs, Frames,
    Brackets,
):  # fmt: skip
    """One rank's part of a distributed table. Never changed: verbs give new tables, and `unstage` moves its rows.

    Made by the readers, `from_local`, `from_pandas`, and by verbs. Its memory
    is released with the last reference, or by `release`.
    """

    def __init__(self, part: Part, context: Context, plan: Plan | None = None) -> None:
        self._part = part
        self._context = context
        self._released = False
        self.last_plan = plan
        context.tables.add(self)

    # ---- what this rank holds

    @property
    def schema(self) -> Schema:
        """Columns and dtypes, the same on all ranks."""
        return self._live().schema

    @property
    def columns(self) -> list[Any]:
        """Column labels."""
        refuse_in_pandas()
        return list(self._live().schema.names)

    @property
    def dtypes(self) -> dict[Any, str]:
        """The dtype of each column, in words."""
        return {column.name: column.describe() for column in self._live().schema}

    @property
    def num_rows(self) -> int:
        """Rows on this rank."""
        return self._live().rows

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self._live().schema)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows on this rank, and columns; `count_rows` has the rows of all ranks."""
        return self.num_rows, self.num_columns

    @property
    def nbytes(self) -> int:
        """Bytes on this rank, in all tiers."""
        return self._live().nbytes

    @property
    def tiers(self) -> dict[str, int]:
        """Bytes on this rank by tier. Of those on the device tier, ``also pinned`` and ``also on disk`` have a copy
        below, from which they came back: to stage them again writes nothing. A copy goes when its tier needs room."""
        part = self._live()
        return part.tiers | {ALSO[tier]: nbytes for tier, nbytes in part.kept.items()}

    @property
    def partitioning(self) -> Partitioning | None:
        """How the table is spread over the ranks, if known."""
        return self._live().partitioning

    @property
    def released(self) -> bool:
        """Whether `release` was called."""
        return self._released

    def info(self) -> dict[str, Any]:
        """Return what is known on this rank as plain values, without asking others.

        Returns
        -------
        dict
            columns, dtypes, rows, nbytes, tiers (bytes by tier), kept (bytes by tier of copies of rows that are on the
            device tier), external_bytes (on the device tier, in memory that another library has handed over), chunks,
            device_chunk_bytes, largest_staged_bytes, evicted (of chunks that come back when the table is next used: the
            limit that they were staged for, bytes, slices), widest_row_bytes (of the variable columns, in the row in
            which they take most, 0 where that is not known), partitioning, row_bytes (of the fixed columns),
            fixed_column_bytes (of each, 0 for a variable one), column_row_bytes (mean bytes a row of each column),
            fixed (whether no column is variable), texts (how many columns hold them), null_columns (how many lack
            values, -1 where kernels write no rows with texts or missing values), ready (whether all chunks have the
            table's dtypes, and are not too small to be sent one by one), and of the rank:
            used_bytes, limit_bytes, ceiling_bytes, free_at_start_bytes, exchange
            (how its world exchanges, for plans), index_row_bytes, match_row_bytes, pair_bytes, grouping_row_bytes and
            ordering_row_bytes (of a join's index, of looking up in it, of pairs, of what finds equal rows, and what
            orders them too, for plans),
            pinned_tier (whether host memory is a tier there, on GPU engines).
        """
        part, context = self._live(), self._context
        budget = context.budget
        spread = part.partitioning
        return {
            "columns": self.columns,
            "dtypes": list(self.dtypes.values()),
            "rows": part.rows,
            **self._placement(),
            "external_bytes": min(external_bytes(part), part.device_bytes),  # claims are of whole batches
            "widest_row_bytes": part.widest_row_bytes(context.workspace),
            "partitioning": None if spread is None else {"keys": list(spread.keys), "size": spread.size},
            "row_bytes": part.schema.row_bytes,
            "fixed_column_bytes": [0 if c.dtype is None else c.dtype.itemsize for c in part.schema],
            "column_row_bytes": column_row_bytes(context.workspace, part),
            "null_columns": null_columns(has_missing(context.workspace, part)),
            "texts": len(string_places(part.schema)),
            "fixed": not part.schema.variable,
            "ready": part.is_ready(part.schema),
            "used_bytes": budget.used_bytes,
            "limit_bytes": context.workspace.limit_for(context.config),
            "ceiling_bytes": budget.ceiling_bytes,
            "free_at_start_bytes": context.workspace.free_at_start_bytes,
            "exchange": context.workspace.exchange_shapes(),
            "index_row_bytes": context.workspace.backend.index_row_bytes(Schema(())),
            "match_row_bytes": context.workspace.backend.match_row_bytes(Schema(())),
            "pair_bytes": context.workspace.backend.pair_bytes(),
            "grouping_row_bytes": context.workspace.backend.grouping_row_bytes(()),
            "ordering_row_bytes": context.workspace.backend.grouping_row_bytes([Kernel("median", (), ())]),
            "pinned_tier": context.workspace.has_pinned_tier,
        }

    def _placement(self) -> dict[str, Any]:
        """Return what `info` tells of where this rank's rows are: all of it that moving them changes."""
        part = self._live()
        return {
            "nbytes": part.nbytes,
            "tiers": part.tiers,
            "kept": part.kept,
            "chunks": len(part.chunks),
            "device_chunk_bytes": [chunk.nbytes for chunk in part.chunks if chunk.tier == "device"],
            "largest_staged_bytes": part.largest_staged_bytes,
            "evicted": [
                (one.limit_bytes, sum(chunk.nbytes for chunk in slices), len(slices))
                for one, slices in part.evictions.items()
            ],
        }

    def explain(self) -> str:
        """Return how this table was made, in words."""
        if self.last_plan is None:
            return "This table was made, not read or exchanged: there was no plan."
        return Words(self.last_plan.describe())

    # ---- looking at rows, and away with them

    def local(self) -> Any:
        """Return this rank's rows as a frame of the user's, outside the budget; its index is a plain range.

        Returns
        -------
        pandas.DataFrame or cudf.DataFrame
            What the engine works with.
        """
        workspace = self._context.workspace
        with workspace.memory_named("A frame of a table's rows", staged=True):
            return workspace.backend.to_frame(self._whole())

    def _whole(self) -> Any:
        part, workspace = self._live(), self._context.workspace
        part.return_evicted(workspace, workspace.live_limit_bytes)
        backend = workspace.backend
        pieces = [backend.cast(chunk.read(workspace), part.schema) for chunk in part.chunks]
        return pieces[0] if len(pieces) == 1 else backend.concat(pieces) if pieces else backend.empty(part.schema)

    def to_pandas(self, limit: int | None = 10_000) -> pd.DataFrame:
        """Collective: all ranks call it. Return the first rows in global order, on every rank.

        Parameters
        ----------
        limit : int or None, default 10_000
            How many; None for all.

        Returns
        -------
        pandas.DataFrame
        """
        if limit is not None:
            limit = checked_rows(limit, "limit", or_all=True)
        workspace = self._context.workspace
        part = self._live()
        head = take_head(workspace, part, limit)
        try:
            gathered = self._made(allgather(workspace, head)[0])
        finally:
            if head is not part:
                head.release()  # an error that is kept would hold it
        try:
            with workspace.memory_named("A frame of a table's rows", staged=True):
                return pandas_frame(workspace.backend.to_host(gathered._whole()))
        finally:
            gathered.release()

    def head(self, n: int = 5) -> pd.DataFrame:
        """Collective: all ranks call it. Return the first ``n`` rows in global order, on every rank."""
        return self.to_pandas(limit=checked_rows(n, "n"))

    def release(self) -> None:
        """Give back this rank's memory and disk. Idempotent; the table cannot be used afterwards."""
        if not self._released:
            self._released = True
            part, self._part = self._part, Part(self._context.workspace, Schema(()), ())
            # An error that is kept refers to the inputs of what failed: nothing is held by that.
            if not any(isinstance(one, Table) and one._part is part for one in tuple(self._context.tables)):
                part.release()

    def _all_rows(self) -> int:
        return self.count_rows()

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        if self._released:
            return "<Table, released>"
        names = shown_labels(self.columns[:6]) + (", …" if self.num_columns > 6 else "")
        rows = f"{self.num_rows:,} row{'s' * (self.num_rows != 1)}"
        columns = f"{self.num_columns} column{'s' * (self.num_columns != 1)}"
        return f"<Table: {rows} of {columns} on rank {self._context.rank} of {self._context.size} ({names})>"

    def _live(self) -> Part:
        if self._released:
            raise ArgumentError("This table was released.", advice="Make it again; release() cannot be undone.")
        return self._part

    def _made(self, part: Part, plan: Plan | None = None) -> Table:
        return Table(part, self._context, plan)


def table_of(part: Part, plan: Plan | None = None) -> Table:
    """Make a table of a part, in the current context."""
    return Table(part, current(), plan)
