"""The verbs of handles, each one line; what they do is written at the verbs of `Table`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...api.frames.group_keys import listed_keys
from ...api.part_info import PartInfos
from ...api.plans import Plans
from ...api.verbs.arguments import checked
from ...api.verbs.distinct import DistinctVerbs
from ...api.verbs.exchange import ExchangingVerbs
from ...api.verbs.group import GroupBy, GroupingVerbs, resample
from ...api.verbs.inspection import LookingVerbs
from ...api.verbs.join import JoiningVerbs
from ...api.verbs.reductions import ReductionVerbs
from ...api.verbs.rows import RowVerbs
from ...api.verbs.sets import SetVerbs
from ...api.verbs.writing import WritingVerbs
from ...engine.exec.invocation import RunOptions, listed
from ...errors import ArgumentError
from ...operators.estimate import estimate_verb
from ...operators.unloaded import most_rows
from ...units import MIB, format_bytes
from ..messages import Request
from .async_verbs import with_async
from .forwarding import Forwarding, answered, asked_here, collected, forwarded, in_place, remembered
from .session_api import SessionApi

if TYPE_CHECKING:
    from ...engine.plan.plan import Plan


F = TypeVar("F", bound=Callable[..., Any])

MOST_BYTES = 16 * MIB  # which a request carries


def with_frames(verb: F, *, as_join: bool = False) -> F:
    """A verb of handles whose other table may be a small frame of pandas.

    Parameters
    ----------
    verb : function
        Takes the other table first, or as ``right``.
    as_join : bool, default False
        Whether it is called as pandas' ``join``, which means the index of the other frame.
    """

    @functools.wraps(verb)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = args[0] if args else kwargs.get("right")
        if not _is_frame(place):
            return verb(self, *args, **kwargs)
        place, kwargs = _by_columns(place, kwargs, as_join=as_join and len(args) < 2)
        sent = _sent(self, verb.__name__, place)
        try:
            return verb(self, sent, *args[1:], **kwargs) if args else verb(self, **(kwargs | {"right": sent}))
        finally:
            sent.release()

    return cast(F, call)


def _is_frame(given: Any) -> bool:
    kind = type(given)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def _by_columns(frame: Any, given: dict[str, Any], *, as_join: bool) -> tuple[Any, dict[str, Any]]:
    """A frame with its index as columns, where that has a name or is to be the key, and the keys that say so."""
    levels, given = list(frame.index.names), dict(given)
    if given.pop("right_index", False):
        levels = listed(given.pop("left_on", levels), "left_on")
        given["on"] = levels
    elif None in levels:
        return frame, given
    elif as_join and "on" in given:  # which names columns of the left side there
        levels = listed(given["on"], "on")
    if as_join and "how" not in given:
        raise ArgumentError(
            f"join was given a frame with an index, {list(frame.index.names)!r}: pandas keeps all left rows then.",
            advice="Say which rows to keep: give how='left', or how='inner'.",
        )
    if len(levels) != frame.index.nlevels or None in levels or set(levels) & set(frame.columns):
        raise ArgumentError(
            f"The frame's index {list(frame.index.names)!r} cannot be the columns {levels!r}.",
            advice="Give frame.reset_index(), and on=, or left_on= and right_on=.",
        )
    return frame.rename_axis(levels).reset_index(), given


def _sent(table: Any, verb: str, frame: Any) -> Any:
    nbytes = int(frame.memory_usage(deep=True).sum())
    if nbytes > MOST_BYTES:
        raise ArgumentError(
            f"{verb} was given a frame of {format_bytes(nbytes)}, of which at most {format_bytes(MOST_BYTES)} are sent "
            "to the ranks by themselves.",
            advice="Send it before, as other = lab.from_pandas(frame), and keep the table.",
        )
    session = table._session
    ranks = len(session.ranks)
    edges = [len(frame) * rank // ranks for rank in range(ranks + 1)]
    each = [frame.iloc[start:stop] for start, stop in zip(edges, edges[1:], strict=False)]
    kind: Callable[..., Any] = type(table)
    handle = partial(kind, session)
    return session.make(Request("from_local", kwargs={"config": None}), handle, each=each)


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
    sort_values = forwarded(ExchangingVerbs.sort_values)

    select = remembered(RowVerbs.select)
    drop = remembered(RowVerbs.drop)
    rename = remembered(RowVerbs.rename)
    filter = remembered(RowVerbs.filter)
    assign = remembered(RowVerbs.assign)
    astype = remembered(RowVerbs.astype)
    fillna = remembered(RowVerbs.fillna)
    dropna = remembered(RowVerbs.dropna)
    isin = remembered(RowVerbs.isin)
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

    resample = checked(resample)

    group_agg = forwarded(GroupingVerbs.group_agg)
    join = with_frames(forwarded(JoiningVerbs.join), as_join=True)
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
    unstage = in_place(ExchangingVerbs.unstage)

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

    @property
    def plan(self) -> Plans:
        """What verbs would take, before they run: ``t.plan.shuffle("k")``, with the arguments of ``t.shuffle``."""
        return Plans(self)

    max_rows = asked_here(LookingVerbs.max_rows)

    def info(self) -> PartInfos:
        """Every rank's `Table.info`, in rank order."""
        raise NotImplementedError

    def _plan(self, verb: str, others: Sequence[Any], options: RunOptions, arguments: Mapping[str, Any]) -> Plan:
        options.check()
        tables = []
        for table in (self, *others):
            table._reference(self._session)  # refuses one that is gone
            tables.append(table.info())
        config, known = options.config or self._session.config, [table._schema for table in (self, *others)]
        schemas = [schema for schema in known if schema is not None]  # what is not known here, no rank is asked for
        return estimate_verb(
            verb, tables, config, strategy=options.strategy, schemas=schemas if len(schemas) == len(known) else (),
            **arguments,
        )  # fmt: skip

    def _most_rows(self, verb: str, options: RunOptions, arguments: Mapping[str, Any]) -> int | None:
        self._reference(self._session)
        return most_rows(verb, self.info(), options.config or self._session.config, options.strategy, **arguments)
