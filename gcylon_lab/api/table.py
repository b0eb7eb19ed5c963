"""Table: one rank's part of a distributed table, and its verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..backends.arrow.interop import to_frame as pandas_frame
from ..backends.protocol.aggregation import Kernel
from ..backends.protocol.schema import Schema, shown_labels
from ..engine.exec.remote_write import has_missing, null_columns
from ..engine.plan.plan import Plan, Words
from ..engine.store.aliasing import external_bytes
from ..engine.store.part import Part, Partitioning, column_row_bytes
from ..errors import ArgumentError, GcylonError
from ..memory.tiers.kept_copies import ALSO
from ..operators.rowwise.chain import Chain, Made, Step, extended, made, made_alone
from ..operators.rowwise.head_tail import checked_rows, first_rows
from ..runtime.context import Context, current
from .frames.labels import Dtypes, Labels
from .frames.names import Frames
from .interchange.verbs import InterchangeVerbs
from .part_info import PartInfo
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
from .verbs.writing import WritingVerbs

if TYPE_CHECKING:
    import pandas as pd


class Table(
    ExchangingVerbs, RowVerbs, GroupingVerbs, DistinctVerbs, ReductionVerbs, JoiningVerbs, LookingVerbs,
    SetVerbs, WritingVerbs, InterchangeVerbs, Frames,
    Brackets,
):  # fmt: skip
    """One rank's part of a distributed table. Never changed: verbs give new tables, and `unstage` moves its rows.

    Row-wise verbs of CPU engines are remembered, and done in one pass when rows are needed: by a collective on all
    ranks, by what is none (``len(t)``, `local`, `info`) on this rank alone.

    Made by the readers, `from_local`, `from_pandas`, and by verbs. Its memory
    is released with the last reference, or by `release`.
    """

    def __init__(self, part: Part, context: Context, plan: Plan | None = None, chain: Chain | None = None) -> None:
        self._part = part  # of its rows; where these are not made yet, of what they are made of
        self._chain = chain  # the steps that are left to make them
        self._kept: Made | None = None  # what this rank has made of them alone
        self._lent = False  # whether another table has more steps than this one
        self._context = context
        self._released = False
        self._made_by = plan
        context.tables.add(self)

    # ---- what this rank holds

    @property
    def schema(self) -> Schema:
        """Columns and dtypes, the same on all ranks."""
        part = self._input()
        return part.schema if self._chain is None else self._chain.schema

    @property
    def columns(self) -> list[Any]:
        """Column labels."""
        refuse_in_pandas()
        return Labels(self.schema.names)

    @property
    def dtypes(self) -> dict[Any, str]:
        """The dtype of each column, in words."""
        return Dtypes((column.name, column.describe()) for column in self.schema)

    @property
    def num_rows(self) -> int:
        """Rows on this rank."""
        return self._mine().rows

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self.schema)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows on this rank, and columns; `count_rows` has the rows of all ranks."""
        return self.num_rows, self.num_columns

    @property
    def nbytes(self) -> int:
        """Bytes on this rank, in all tiers."""
        return self._mine().nbytes

    @property
    def tiers(self) -> dict[str, int]:
        """Bytes on this rank by tier. Of those on the device tier, ``also pinned`` and ``also on disk`` have a copy
        below, from which they came back: to stage them again writes nothing. A copy goes when its tier needs room."""
        part = self._mine()
        return part.tiers | {ALSO[tier]: nbytes for tier, nbytes in part.kept.items()}

    @property
    def partitioning(self) -> Partitioning | None:
        """How the table is spread over the ranks, if known."""
        part = self._input()
        return part.partitioning if self._chain is None else self._chain.partitioning(part.partitioning)

    @property
    def released(self) -> bool:
        """Whether `release` was called."""
        return self._released

    def info(self) -> PartInfo:
        """Return what is known on this rank as plain values, without asking others.

        Returns
        -------
        PartInfo
            A dict that is shown in few lines: columns, dtypes, rows, nbytes, tiers (bytes by tier), kept (bytes
            by tier of copies of rows that are on the device tier), external_bytes (on the device tier, in memory that
            another library has handed over), chunks, device_chunk_bytes, largest_staged_bytes, evicted (of chunks that
            come back when the table is next used: the limit that they were staged for, bytes, slices), widest_row_bytes
            (of the variable columns, in the row in which they take most, 0 where that is not known), partitioning,
            row_bytes (of the fixed columns), fixed_column_bytes (of each, 0 for a variable one), column_row_bytes (mean
            bytes a row of each column), fixed (whether no column is variable), texts (how many columns hold them),
            null_columns (how many lack values, -1 where kernels write no rows with texts or missing values), ready
            (whether all chunks have the table's dtypes, and are not too small to be sent one by one), and of the rank:
            used_bytes, limit_bytes, ceiling_bytes, free_at_start_bytes, exchange (how its world exchanges, for plans),
            index_row_bytes, match_row_bytes, pair_bytes, grouping_row_bytes and ordering_row_bytes (of a join's index,
            of looking up in it, of pairs, of what finds equal rows, and what orders them too, for plans),
            pinned_tier (whether host memory is a tier there, on GPU engines).
        """
        part, context = self._mine(), self._context
        budget = context.budget
        spread = part.partitioning
        return PartInfo(
            {
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
                "texts": len(part.schema.texts),
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
        )

    def _placement(self) -> dict[str, Any]:
        """Return what `info` tells of where this rank's rows are: all of it that moving them changes."""
        part = self._mine()
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

    @property
    def last_plan(self) -> Plan | None:
        """How this table was made, as far as there was a plan."""
        self._mine()
        return self._made_by

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
        part, workspace = self._mine(), self._context.workspace
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
        return pandas_frame(first_rows(self._context.workspace, self._live(), limit))

    def head(self, n: int = 5) -> pd.DataFrame:
        """Collective: all ranks call it. Return the first ``n`` rows in global order, on every rank.

        As a look at some rows it is left out of the profile, as `tail` is.
        """
        n = checked_rows(n, "n")
        return pandas_frame(first_rows(self._context.workspace, self._live(), n, quiet=True))

    def release(self) -> None:
        """Give back this rank's memory and disk. Idempotent; the table cannot be used afterwards."""
        if not self._released:
            self._released = True
            part, kept = self._part, self._kept
            self._part, self._chain, self._kept = Part(self._context.workspace, Schema(()), ()), None, None
            # An error that is kept refers to the inputs of what failed: nothing is held by that.
            self._let_go(part)
            if kept:
                kept[0].release()

    def _let_go(self, part: Part) -> None:
        """Release a part, unless a table has it, or is still to be made of it."""
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

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Table is one rank's part and is not sent: give it a name on the ranks and call lab.table(name) in the "
            "notebook, or return to_pandas(limit)"
        )

    def _live(self) -> Part:
        if self._released:
            raise _gone()
        if self._chain is not None:
            source = self._part
            self._part, self._made_by = made(self._context.workspace, source, self._chain, self._kept)
            self._chain = self._kept = None
            self._let_go(source)
        return self._part

    @property
    def _is_pending(self) -> bool:
        """Whether nobody has asked for its rows yet."""
        return self._chain is not None and self._kept is None

    def _mine(self) -> Part:
        if self._chain is None or self._released:
            return self._input()
        if self._kept is None:
            self._kept = made_alone(self._context.workspace, self._part, self._chain)
            self._made_by = self._kept[1]
        return self._kept[0]

    def _input(self) -> Part:
        if self._released:
            raise _gone()
        return self._part

    def _later(self, step: Callable[[Schema], Step]) -> Table | None:
        if self._chain is None or self._lent:  # what two tables need is made once
            chain = Chain((), (self._live().schema,))
        else:
            chain = self._chain
        try:
            more = extended(chain, step(chain.schema))
        except GcylonError:  # which the verb's own operation tells
            return None
        if more is None:
            return None
        self._lent = self._chain is not None
        table = Table(self._part, self._context, chain=more)
        if not more.known:
            table._live()
        return table

    def _made(self, part: Part, plan: Plan | None = None) -> Table:
        return Table(part, self._context, plan)


def _gone() -> ArgumentError:
    return ArgumentError("This table was released.", advice="Make it again; release() cannot be undone.")


def table_of(part: Part, plan: Plan | None = None) -> Table:
    """Make a table of a part, in the current context."""
    return Table(part, current(), plan)
