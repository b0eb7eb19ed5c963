"""How the two sides of a join meet: pure, from sizes that all ranks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...backends.protocol.join_columns import JoinColumns, JoinSpec
from ...backends.protocol.schema import Label, shown_labels
from ...engine.store.part import Partitioning
from ...units import format_bytes

_MAY_BROADCAST = {"left": ("inner", "right", "cross"), "right": ("inner", "left", "semi", "anti", "cross")}
SIDES = ("left", "right")
_EXCHANGE_BYTES = 1 << 17  # that a rank sends in the time in which all agree on an exchange, however little it moves
IN_PASSES = "because both sides do not fit at once beside their tables, but some buckets of their keys at a time do"


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a join, as all ranks know it.

    Attributes
    ----------
    name : str
        ``left`` or ``right``.
    keys : tuple of labels
    nbytes, rows : tuple of int
        On each rank, of what travels.
    partitioning : Partitioning, optional
    """

    name: str
    keys: tuple[Label, ...]
    nbytes: tuple[int, ...]
    rows: tuple[int, ...]
    partitioning: Partitioning | None


@dataclass(frozen=True, slots=True)
class JoinDistribution:
    """Where rows go before ranks join what they have.

    Attributes
    ----------
    kind : str
        ``local``: nothing moves; ``broadcast``: one side goes to all ranks; ``shuffle``: equal keys meet.
    moved : tuple of str
        The sides that move.
    left_keys, right_keys : tuple of labels
        By which rows are spread afterwards, where that is so.
    reason : str
    """

    kind: str
    moved: tuple[str, ...]
    left_keys: tuple[Label, ...]
    right_keys: tuple[Label, ...]
    reason: str

    def keys(self, side: str) -> tuple[Label, ...]:
        """The keys of a side by which it is spread."""
        return self.left_keys if side == "left" else self.right_keys


def plan_distribution(
    spec: JoinSpec, left: Side, right: Side, limits: Sequence[int], index_row_bytes: int
) -> JoinDistribution:
    """Choose between leaving rows where they are, sending one side to all ranks, and shuffling.

    Parameters
    ----------
    spec : JoinSpec
    left, right : Side
    limits : sequence of int
        The budget of each rank.
    index_row_bytes : int
        Of the index that ranks make of a side that all of them get.
    """
    size = len(limits)
    if size == 1:
        return JoinDistribution("local", (), left.keys, right.keys, "one rank has all rows")
    shuffle = _shuffle(left, right, size) if spec.how != "cross" else None
    if shuffle is not None and not shuffle.moved:
        return shuffle
    choices = [_broadcast(spec, side, limits, index_row_bytes, size) for side in (left, right)]
    allowed = [choice for choice in choices if choice is not None]
    best = min(allowed, key=lambda choice: choice[0] + choice[1], default=None)
    if shuffle is None:
        return _crossing(left, right, size)
    shuffled_bytes = sum(sum(s.nbytes) for s in (left, right) if s.name in shuffle.moved) * (size - 1) // size
    if best is None:
        return shuffle
    moved_bytes, index_bytes, distribution = best
    sent = f"sending it to all ranks moves {format_bytes(moved_bytes)}, and indexes {format_bytes(index_bytes)} more"
    spared_bytes = _EXCHANGE_BYTES * size * (len(shuffle.moved) - 1)
    if moved_bytes + index_bytes < shuffled_bytes + spared_bytes:
        reason = f"{distribution.reason}: {sent}; shuffling would move {format_bytes(shuffled_bytes)}"
        return JoinDistribution(distribution.kind, distribution.moved, (), (), reason)
    reason = f"{shuffle.reason}: that moves {format_bytes(shuffled_bytes)} (the {distribution.moved[0]} side: {sent})"
    return JoinDistribution("shuffle", shuffle.moved, shuffle.left_keys, shuffle.right_keys, reason)


def _shuffle(left: Side, right: Side, size: int) -> JoinDistribution:
    """Bring equal keys together; a side that is spread by keys of the join stays, and the other follows it."""
    partner = dict(zip(left.keys, right.keys, strict=True)), dict(zip(right.keys, left.keys, strict=True))
    options: list[tuple[int, JoinDistribution]] = []
    for own, other, pairs in ((left, right, partner[0]), (right, left, partner[1])):
        spread = own.partitioning
        if spread is None or spread.size != size or not set(spread.keys) <= set(own.keys):
            continue
        follows = tuple(pairs[key] for key in spread.keys)
        there = other.partitioning is not None and other.partitioning == Partitioning(follows, size)
        keys = {own.name: tuple(spread.keys), other.name: follows}
        by = shown_labels(spread.keys)
        if there:
            reason = f"both sides are partitioned by {by} already: none is shuffled again"
            return JoinDistribution("local", (), keys["left"], keys["right"], reason)
        reason = f"the {own.name} side is partitioned by {by} already and stays: only the {other.name} side is shuffled"
        options.append(
            (sum(other.nbytes), JoinDistribution("shuffle", (other.name,), keys["left"], keys["right"], reason))
        )
    if options:
        return min(options, key=lambda option: option[0])[1]
    moved = SIDES if sum(left.nbytes) > sum(right.nbytes) else SIDES[::-1]
    return JoinDistribution("shuffle", moved[::-1], left.keys, right.keys, "both sides are shuffled")


def _broadcast(
    spec: JoinSpec, side: Side, limits: Sequence[int], index_row_bytes: int, size: int
) -> tuple[int, int, JoinDistribution] | None:
    """What moves, what is indexed more than after a shuffle, and the meeting."""
    other = "left" if side.name == "right" else "right"
    if spec.how not in _MAY_BROADCAST[side.name] or other in spec.unique_sides:
        return None  # equal keys of the other side would not meet
    total = sum(side.nbytes)
    indexed = index_row_bytes * sum(side.rows)
    if spec.how != "cross" and 4 * (total + indexed) > min(limits):
        return None
    reason = f"the {side.name} side is small ({format_bytes(total)})"
    return (size - 1) * total, (size - 1) * indexed, JoinDistribution("broadcast", (side.name,), (), (), reason)


def _crossing(left: Side, right: Side, size: int) -> JoinDistribution:
    small = left if sum(left.nbytes) < sum(right.nbytes) else right
    total = sum(small.nbytes)
    reason = f"every row meets every other: the smaller side ({small.name}, {format_bytes(total)}) goes to all ranks"
    return JoinDistribution("broadcast", (small.name,), (), (), reason)


def build_side(spec: JoinSpec, distribution: JoinDistribution, left_bytes: int, right_bytes: int) -> str:
    """The side that is indexed, while the other is looked up in it piece by piece."""
    if distribution.kind == "broadcast":
        return distribution.moved[0]
    # The side of which all rows are kept is better looked up: its rows without a partner are known at once.
    weight = {"left": 2.0, "right": 0.5, "semi": 2.0, "anti": 2.0}.get(spec.how, 1.0)
    return "left" if left_bytes * weight < right_bytes else "right"


def expected_rows(spec: JoinSpec, left_rows: int, right_rows: int) -> int:
    """Rows of the result as long as nothing is known of the keys: as many as the larger side has."""
    if spec.how == "cross":
        return left_rows * right_rows
    return left_rows if spec.filters else max(left_rows, right_rows)


def kept_sides(spec: JoinSpec) -> tuple[str, ...]:
    """The sides of which every row is in the result."""
    return {"left": ("left",), "right": ("right",), "outer": SIDES}.get(spec.how, ())


def may_split(spec: JoinSpec, distribution: JoinDistribution, strategy: str, *, staged: bool) -> bool:
    """Whether a join may go through its tables in several passes.

    Parameters
    ----------
    spec : JoinSpec
    meeting : JoinDistribution
    strategy : str
        As asked for.
    staged : bool
        Whether rows of a table are below the device tier, which each pass would read back.
    """
    return spec.how != "cross" and distribution.kind != "broadcast" and strategy in ("auto", "chunked") and not staged


def choose_strategy(asked: str, exchanged: Sequence[str], *, fits: bool) -> tuple[str, str]:
    """The strategy of a join, and the reason.

    Parameters
    ----------
    asked : str
    exchanged : sequence of str
        Strategies of the exchanges before it.
    fits : bool
        Whether the result is held on the device tier of every rank.
    """
    if asked != "auto":
        return asked, "because you asked for it"
    if fits and "staged" not in exchanged:
        chosen = "chunked" if "chunked" in exchanged else "direct"
        return chosen, "because the result fits beside what is in use"
    return "staged", "because the result, or what it is made of, does not fit beside what is in use"


def result_partitioning(
    columns: JoinColumns, distribution: JoinDistribution, stays: Partitioning | None, size: int
) -> Partitioning | None:
    """How the result is spread over ranks, as far as it is known.

    Parameters
    ----------
    columns : JoinColumns
    meeting : JoinDistribution
    stays : Partitioning, optional
        Of the side that was not sent to all ranks, where one was.
    size : int
    """
    how = columns.spec.how
    if distribution.kind == "broadcast":
        side = "left" if distribution.moved[0] == "right" else "right"
        keys: tuple[Label, ...] = () if stays is None or stays.size != size else tuple(stays.keys)
    else:
        side = "right" if how == "right" else "left"
        keys = distribution.keys(side)
    names = {(o.left if side == "left" else o.right): o for o in columns.outputs if o.side in (side, "key")}
    if not keys or any(key not in names for key in keys):
        return None
    if how == "outer" and any(names[key].side != "key" for key in keys):
        return None  # missing where only the other side has the row
    return Partitioning(tuple(names[key].column.name for key in keys), size)
