"""The verbs of handles, each one line; what they do is written at the verbs of `Table`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...api.frames.group_keys import listed_keys
from ...api.verbs.arguments import checked
from ...api.verbs.distinct import DistinctVerbs
from ...api.verbs.exchange import ExchangingVerbs
from ...api.verbs.group import GroupBy, GroupingVerbs, resample
from ...api.verbs.inspection import LookingVerbs
from ...api.verbs.join import JoiningVerbs, Keys
from ...api.verbs.reductions import ReductionVerbs
from ...api.verbs.rows import RowVerbs
from ...api.verbs.sets import SetVerbs
from ...api.verbs.sort import SortingVerbs
from ...api.verbs.staging import StagingVerbs
from ...api.verbs.writing import WritingVerbs
from ...backends.protocol.schema import Label
from ...config import GcylonConfig
from ...engine.exec.keys import listed
from .async_verbs import with_async
from .forwarding import Forwarding, answered, asked_here, collected, forwarded, in_place
from .frame_arguments import with_frames
from .session_api import SessionApi

if TYPE_CHECKING:
    from ...backends.protocol.aggregation import Aggregation
    from ...engine.plan.plan import Plan


@with_async(but=("plan", "cumcount", "ngroup", "rolling"))
class HandleGroupBy(GroupBy[Any]):
    """A `GroupBy` of a handle, with `agg_async` and `size_async`."""

    @property
    def _session(self) -> SessionApi:
        session: SessionApi = self._source._session
        return session

    @property
    def _display_name(self) -> str:
        return f"{self._source._display_name}.groupby({', '.join(map(repr, self._by))})"


class HandleVerbs(Forwarding):
    """All of them together. `DistTable` is one."""

    shuffle = forwarded(ExchangingVerbs.shuffle)
    allgather = forwarded(ExchangingVerbs.allgather)
    gather = forwarded(ExchangingVerbs.gather)
    broadcast = forwarded(ExchangingVerbs.broadcast)
    repartition = forwarded(ExchangingVerbs.repartition)
    sort_values = forwarded(SortingVerbs.sort_values)

    select = forwarded(RowVerbs.select)
    drop = forwarded(RowVerbs.drop)
    rename = forwarded(RowVerbs.rename)
    filter = forwarded(RowVerbs.filter)
    assign = forwarded(RowVerbs.assign)
    astype = forwarded(RowVerbs.astype)
    fillna = forwarded(RowVerbs.fillna)
    dropna = forwarded(RowVerbs.dropna)
    isin = forwarded(RowVerbs.isin)
    map_parts = forwarded(RowVerbs.map_parts)

    @checked
    def groupby(self, by: Any, *, dropna: bool = True, sort: bool = False, as_index: bool = False) -> HandleGroupBy:
        """Name the keys of a group-by; `GroupBy.agg` of what comes back does it, `agg_async` begins it.

        Parameters
        ----------
        by : label, Expression, pandas.Grouper, or list of them
            Key columns, or what is computed of columns. All missing values of a key are one.
        dropna : bool, default True
            Leave out rows with a missing key.
        sort : bool, default False
            Bring the groups into the order of their keys, over all ranks, missing ones last. It costs a sort of them.
        as_index : bool, default False
            Only False: keys are columns of the result.

        Returns
        -------
        GroupBy
        """
        return HandleGroupBy(self, listed_keys("by", by), dropna=dropna, sort=sort, as_index=as_index)

    resample = resample

    group_agg = forwarded(GroupingVerbs.group_agg)
    join = with_frames(forwarded(JoiningVerbs.join))
    merge = with_frames(forwarded(JoiningVerbs.join))

    drop_duplicates = forwarded(DistinctVerbs.drop_duplicates)
    unique = forwarded(DistinctVerbs.unique)
    value_counts = forwarded(DistinctVerbs.value_counts)

    union = forwarded(SetVerbs.union)
    intersect = forwarded(SetVerbs.intersect)
    difference = forwarded(SetVerbs.difference)
    concat = forwarded(SetVerbs.concat)
    equals = answered(SetVerbs.equals)
    why_not_equal = answered(SetVerbs.why_not_equal)

    tail = answered(LookingVerbs.tail)
    sample = forwarded(LookingVerbs.sample)
    unstage = in_place(StagingVerbs.unstage)

    sum = answered(ReductionVerbs.sum)
    mean = answered(ReductionVerbs.mean)
    min = answered(ReductionVerbs.min)
    max = answered(ReductionVerbs.max)
    count = answered(ReductionVerbs.count)
    any = answered(ReductionVerbs.any)
    all = answered(ReductionVerbs.all)
    var = answered(ReductionVerbs.var)
    std = answered(ReductionVerbs.std)
    median = answered(ReductionVerbs.median)
    quantile = answered(ReductionVerbs.quantile)
    nunique = answered(ReductionVerbs.nunique)
    describe = answered(ReductionVerbs.describe)
    corr = answered(ReductionVerbs.corr)
    cov = answered(ReductionVerbs.cov)
    histogram = answered(ReductionVerbs.histogram)
    count_rows = answered(ReductionVerbs.count_rows)

    write_parquet = collected(WritingVerbs.write_parquet)
    write_csv = collected(WritingVerbs.write_csv)
    write_json = collected(WritingVerbs.write_json)
    write_ipc = collected(WritingVerbs.write_ipc)

    # ---- plans: of what is known here already, so that no rank is asked

    @asked_here
    def plan_shuffle(
        self, on: Label | Sequence[Label], *, strategy: str = "auto", config: GcylonConfig | None = None
    ) -> Plan:
        """Show how `shuffle` would run, assuming evenly spread keys; no data is read."""
        return self._plan("shuffle", strategy, config, on=listed(on))

    @asked_here
    def plan_allgather(self, *, strategy: str = "auto", config: GcylonConfig | None = None) -> Plan:
        """Show how `allgather` would run; no data is read."""
        return self._plan("allgather", strategy, config)

    @asked_here
    def plan_gather(self, root: int = 0, *, strategy: str = "auto", config: GcylonConfig | None = None) -> Plan:
        """Show how `gather` would run; no data is read."""
        return self._plan("gather", strategy, config, root=root)

    @asked_here
    def plan_broadcast(self, root: int = 0, *, strategy: str = "auto", config: GcylonConfig | None = None) -> Plan:
        """Show how `broadcast` would run; no data is read."""
        return self._plan("broadcast", strategy, config, root=root)

    @asked_here
    def plan_repartition(
        self,
        rows_per_rank: Sequence[int] | None = None,
        *,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
    ) -> Plan:
        """Show how `repartition` would run; no data is read."""
        return self._plan("repartition", strategy, config, rows_per_rank=rows_per_rank)

    @asked_here
    def plan_join(
        self,
        right: Any,
        how: str = "inner",
        on: Keys | None = None,
        *,
        left_on: Keys | None = None,
        right_on: Keys | None = None,
        validate: str | None = None,
        strategy: str = "auto",
        config: GcylonConfig | None = None,
    ) -> Plan:
        """Show how `join` would run; no data is read."""
        from ...backends.protocol.join_columns import join_spec
        from ...operators.join.estimate import estimate_join

        left, other = self.info(), right.info()
        names = left[0]["columns"], other[0]["columns"]
        spec = join_spec(*names, how, on, left_on, right_on, ("_x", "_y"), False, validate)
        return estimate_join(spec, left, other, config or self._session.config, strategy=strategy)

    @asked_here
    def plan_groupby(
        self,
        by: Label | Sequence[Label],
        *,
        sort: bool = False,
        wanted: Sequence[Aggregation] = (),
        strategy: str = "auto",
        config: GcylonConfig | None = None,
    ) -> Plan:
        """Show how a group-by would run, and with ``sort=True`` in `Plan.then` how its groups would be sorted; no data
        is read."""
        keys = listed(by)
        asked = [(one.function, one.column) for one in wanted]
        return self._plan("groupby", strategy, config, on=keys, in_order=sort, asked=asked)

    @asked_here
    def plan_sort_values(
        self, by: Label | Sequence[Label], *, strategy: str = "auto", config: GcylonConfig | None = None
    ) -> Plan:
        """Show how `sort_values` would run; no data is read."""
        return self._plan("sort_values", strategy, config, on=listed(by))

    plan_drop_duplicates = asked_here(DistinctVerbs.plan_drop_duplicates)
    plan_unique = asked_here(DistinctVerbs.plan_unique)
    plan_union = asked_here(SetVerbs.plan_union)
    plan_intersect = asked_here(SetVerbs.plan_intersect)
    plan_difference = asked_here(SetVerbs.plan_difference)
    plan_concat = asked_here(SetVerbs.plan_concat)
    max_rows = asked_here(LookingVerbs.max_rows)

    def info(self) -> list[dict[str, Any]]:
        """Every rank's `Table.info`, in rank order."""
        raise NotImplementedError

    def _plan_sets(
        self, verb: str, others: Sequence[Any], strategy: str, config: GcylonConfig | None, **arguments: Any
    ) -> Plan:
        from ...operators.sets.estimate import estimate_sets

        tables = [table.info() for table in (self, *others)]
        return estimate_sets(verb, tables, config or self._session.config, strategy=strategy, **arguments)

    def _most_rows(self, verb: str, strategy: str, config: GcylonConfig | None, **arguments: Any) -> int | None:
        from ...operators.unloaded import most_rows

        return most_rows(verb, self.info(), config or self._session.config, strategy, **arguments)

    def _plan(self, verb: str, strategy: str, config: GcylonConfig | None, **arguments: Any) -> Plan:
        from ...operators.estimate import estimate_verb

        return estimate_verb(verb, self.info(), config or self._session.config, strategy=strategy, **arguments)
