"""``gcylon-lab bench scale``: messages, metadata and memory of a shuffle, a sort and a group-by, over many ranks.

They are counted, not timed: the same calls as any transport's, on MPI processes, or on ranks that are threads of this
process. How long they would take on a network is a model of what was counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import gcylon_lab as gl

from ..comm.threads import ThreadsWorld
from ..comm.transport import DEFAULT_MESSAGE_BYTES, Int64s, Receive, Send, Transport, Window, goes_together
from ..comm.two_levels import MOST_DIRECT, Groups, group, packed_bytes
from ..errors import ClusterError
from ..units import format_bytes, format_seconds
from .harness.reports import format_table

if TYPE_CHECKING:
    from .harness.worker_processes import Contender

VERBS = ("shuffle", "sort", "groupby")
_LIMIT_BYTES = 64 << 20
_STACK_BYTES = 1 << 20  # of a thread: of a thousand, the usual 8 MiB would be much


@dataclass(frozen=True, slots=True)
class Network:
    """What the model counts with: a message's cost on either side, the time it travels, and what a host sends."""

    message_s: float = 2e-6  # of Python and MPI
    latency_s: float = 5e-6
    bytes_per_s: float = 12.5e9  # a host's, shared by its ranks: 100 Gbit/s
    inside_bytes_per_s: float = 10e9  # a rank's, within its host


@dataclass
class Counts:
    """What one rank has sent in an operation.

    ``metadata_held_bytes`` are all ranks' numbers of the largest agreement; ``seconds`` are the model's.
    """

    agreements: int = 0
    agreement_messages: int = 0
    shared_messages: int = 0
    metadata_sent_bytes: int = 0
    metadata_held_bytes: int = 0
    exchanges: int = 0
    row_messages: int = 0
    row_bytes: int = 0
    between_hosts_bytes: int = 0
    seconds: float = 0.0
    agreement_seconds: float = 0.0


class Counting:
    """A transport that counts what goes through it.

    Parameters
    ----------
    base : Transport
    hosts : sequence of str
        Every rank's, as the model has them.
    network : Network
    widths : Widths
        One for all ranks of this process.
    direct : bool
        Whether ranks tell each other everything at once, however many they are.
    """

    def __init__(
        self, base: Transport, hosts: Sequence[str], network: Network, widths: Widths, *, direct: bool
    ) -> None:
        self.base, self.counts = base, Counts()
        self._widths = widths
        self._hosts, self._network = hosts, network
        self._peers = hosts.count(hosts[base.rank])
        two_levels = base.size > MOST_DIRECT and not direct
        self._groups = group([host.encode() for host in hosts]) if two_levels else ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def agree(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. As the base does, counted."""
        return self._counted(values, self.base.agree(values))

    def finish(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. As the base does, counted."""
        return self._counted(values, self.base.finish(values))

    def share(self, payload: bytes) -> list[bytes]:
        """Collective: all ranks call it. As the base does, counted: lengths, then the bytes to all."""
        answers = self.base.share(payload)
        lengths = np.array([[len(answer)] for answer in answers], dtype=np.int64)
        self._counted(lengths[self.base.rank], lengths)
        sent = [(rank, len(payload)) for rank in self._others() if payload]
        self.counts.shared_messages += len(sent)
        self._move(sent, [len(answer) for answer in answers if answer], rows=False)
        return answers

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. As the base does, counted."""
        self.base.exchange(window, sends, receives)
        sent = _messages(sends, self.base.rank)
        came = [nbytes for _, nbytes in _messages(receives, self.base.rank)]
        self.counts.exchanges += 1
        self._move(sent, came, rows=True)

    def _others(self) -> list[int]:
        return [rank for rank in range(self.base.size) if rank != self.base.rank]

    def _counted(self, values: Int64s, answers: Int64s) -> Int64s:
        counts = self.counts
        counts.agreements += 1
        counts.metadata_held_bytes = max(counts.metadata_held_bytes, answers.nbytes)
        before = counts.seconds
        for sent, came in self._steps(values, answers):
            counts.agreement_messages += len(sent)
            self._move(sent, came, rows=False)
        counts.agreement_seconds += counts.seconds - before
        return answers

    def _steps(self, values: Int64s, answers: Int64s) -> list[tuple[list[tuple[int, int]], list[int]]]:
        """The messages of an agreement by its steps: those sent, as (rank, bytes), and the bytes of those that came."""
        rank, others = self.base.rank, self._others()
        if not self._groups:
            return [([(other, values.nbytes) for other in others], [values.nbytes] * len(others))]
        widths = self._widths.of(answers, self._groups)
        mine = next(members for members in self._groups if rank in members)
        if rank != mine[0]:
            return [([(mine[0], widths.row(rank))], []), ([], [widths.everyone])]
        leaders = [members[0] for members in self._groups if members is not mine]
        blocks = [widths.block(leader) for leader in leaders]
        return [
            ([], [widths.row(member) for member in mine[1:]]),
            ([(leader, widths.block(rank)) for leader in leaders], blocks),
            ([(member, widths.everyone) for member in mine[1:]], []),
        ]

    def _move(self, sent: Sequence[tuple[int, int]], came: Sequence[int], *, rows: bool) -> None:
        """Count messages, and what they take on the model's network."""
        counts, network = self.counts, self._network
        nbytes = sum(n for _, n in sent)
        here = self._hosts[self.base.rank]
        away = sum(n for rank, n in sent if self._hosts[rank] != here)
        if rows:
            counts.row_messages += len(sent)
            counts.row_bytes += nbytes
            counts.between_hosts_bytes += away
        else:
            counts.metadata_sent_bytes += nbytes
        counts.seconds += network.message_s * (len(sent) + len(came)) + network.latency_s * bool(sent or came)
        # All of its ranks send at the same time.
        counts.seconds += away * self._peers / network.bytes_per_s + (nbytes - away) / network.inside_bytes_per_s


class Widths:
    """Bytes of the messages of an agreement in two levels; of ranks in one process found once for all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Int64s | None = None
        self._rows: Int64s = np.zeros(0, np.int64)
        self._blocks: dict[int, int] = {}
        self.everyone = 0

    def of(self, answers: Int64s, groups: Groups) -> Widths:
        """Find those of an agreement, unless it is the one that was asked for last."""
        with self._lock:
            if self._of is not answers:
                filled = answers != 0
                last = answers.shape[1] - np.argmax(filled[:, ::-1], axis=1)
                self._rows = np.where(filled.any(axis=1), last, 0)
                most = {members[0]: int(self._rows[list(members)].max()) for members in groups}
                self._blocks = {m[0]: packed_bytes(len(m), most[m[0]]) for m in groups}
                self.everyone = packed_bytes(len(answers), int(self._rows.max()))
                self._of = answers
        return self

    def row(self, rank: int) -> int:
        """Of one rank's numbers."""
        return packed_bytes(1, int(self._rows[rank]))

    def block(self, leader: int) -> int:
        """Of those of a group."""
        return self._blocks[leader]


def _messages(transfers: Sequence[Send] | Sequence[Receive], rank: int) -> list[tuple[int, int]]:
    """Those of an exchange with each other rank, as (rank, bytes)."""
    views: dict[int, list[int]] = {}
    for one in transfers:
        if one.rank != rank and one.view.nbytes:
            views.setdefault(one.rank, []).append(one.view.nbytes)
    return [
        (peer, nbytes)
        for peer, lengths in views.items()
        for nbytes in ([sum(lengths)] if goes_together(lengths, DEFAULT_MESSAGE_BYTES) else lengths)
    ]


def hosts_of(size: int, per_host: int) -> list[str]:
    """Every rank's host in the model."""
    return [f"node{rank // per_host}" for rank in range(size)]


def work(verb: str, rows: int) -> int:
    """Collective: all ranks call it. One operation on a part of so many rows; how many this rank has after it."""
    from ..runtime.context import current

    rng = np.random.default_rng(current().rank)
    table = gl.from_local(pd.DataFrame({"k": rng.integers(0, 1 << 40, rows), "v": rng.random(rows)}))
    if verb == "shuffle":
        result = table.shuffle("k")
    elif verb == "sort":
        result = table.sort_values("v")
    else:
        result = table.groupby("k").agg({"v": "sum"})
    return result.num_rows


def count_on(
    base: Transport, verb: str, rows: int, per_host: int, widths: Widths, *, direct: bool,
    given: Callable[[], int] = lambda: 0,
) -> dict[str, Any]:  # fmt: skip
    """Collective: all ranks call it. What this rank counts in one operation, once everything is set up."""
    from ..runtime.context import Context, set_current

    counting = Counting(base, hosts_of(base.size, per_host), Network(), widths, direct=direct)
    context = Context(counting, gl.GcylonConfig(gpu_memory_limit=_LIMIT_BYTES), sample_hz=0, engine="cpu")
    set_current(context)
    try:
        counting.counts, before = Counts(), given()
        found = work(verb, rows)
        return asdict(counting.counts) | {"mpi_messages": given() - before, "result_rows": found}
    finally:
        context.close()


def on_threads(ranks: int, verb: str, rows: int, per_host: int, *, direct: bool) -> list[dict[str, Any]]:
    """What each of so many ranks counts, which are threads of this process."""
    widths = Widths()
    bases = ThreadsWorld(ranks).transports()
    failed: list[BaseException] = []
    results: list[Any] = [None] * ranks

    def one(base: Transport) -> None:
        try:
            results[base.rank] = count_on(base, verb, rows, per_host, widths, direct=direct)
        except BaseException as error:
            failed.append(error)
            base.revoke()

    before = threading.stack_size(_STACK_BYTES)
    try:
        threads = [threading.Thread(target=one, args=(base,)) for base in bases]
        for thread in threads:
            thread.start()
    finally:
        threading.stack_size(before)
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return results


def summarize(counted: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The most of any rank; of the time an agreement takes the same, as all wait for the slowest."""
    return {name: max(one[name] for one in counted) for name in counted[0]}


def run(
    ranks: Sequence[int],
    *,
    mpi: bool = False,
    verbs: Sequence[str] = VERBS,
    rows: int = 200,
    per_host: int = 8,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Count each verb on each number of ranks, agreeing in two levels and directly.

    Parameters
    ----------
    ranks : sequence of int
    mpi : bool
        On MPI processes, which agree in the way that they have; by default on threads.
    verbs : sequence of str
    rows : int
        On each rank.
    per_host : int
        Ranks, as the model has them.
    say : callable
        Told how far it is.

    Returns
    -------
    dict
        Plain values; ``lines`` has one a number of ranks, verb and way to agree: the most of any rank.
    """
    lines: list[dict[str, Any]] = []
    for size in ranks:
        with ExitStack() as ends:
            contender = ends.enter_context(_on_mpi(size)) if mpi else None
            for verb in verbs:
                for direct in (False,) if mpi or size <= MOST_DIRECT else (False, True):
                    say(f"{size} ranks, {verb}{', agreeing directly' if direct else ''}")
                    if contender is None:
                        made = on_threads(size, verb, rows, per_host, direct=direct)
                    else:
                        made = contender.step(verb=verb, rows=rows, per_host=per_host)
                    found = sum(one["result_rows"] for one in made)
                    if found != rows * size:  # the keys are all different
                        raise ClusterError(f"The {verb} of {rows * size} rows gave {found}.")
                    line = {"ranks": size, "verb": verb, "direct": direct or size <= MOST_DIRECT}
                    lines.append(line | summarize(made))
    kind = "MPI processes" if mpi else "threads"
    about = {"rows": rows, "per_host": per_host, "ranks are": kind, **asdict(Network())}
    return {"bench": "scale", "case": about, "lines": lines}


def _on_mpi(size: int) -> Contender:
    from .harness.worker_processes import mpi_contender

    return mpi_contender("scale", "gcylon_lab.bench.scale_ranks", size)


def format_scale(report: dict[str, Any]) -> str:
    """A line a number of ranks, verb and way to agree; all are of the rank that has most."""
    case = report["case"]
    head = [
        "ranks", "verb", "agree", "agreements", "their messages", "rows' messages", "metadata sent", "held at once",
        "rows sent", "model", "of it agreeing",
    ]  # fmt: skip
    lines = [
        [
            f"{one['ranks']:,}", one["verb"], "directly" if one["direct"] else "in two levels", f"{one['agreements']}",
            f"{one['agreement_messages']:,}", f"{one['row_messages']:,}", format_bytes(one["metadata_sent_bytes"]),
            format_bytes(one["metadata_held_bytes"]), format_bytes(one["row_bytes"]), format_seconds(one["seconds"]),
            f"{100 * one['agreement_seconds'] / max(one['seconds'], 1e-12):.0f}%",
        ]
        for one in report["lines"]
    ]  # fmt: skip
    micro, giga, per_host = 1e6, 1e-9, case["per_host"]
    said = (
        f"{case['rows']:,} rows of two columns a rank; ranks are {case['ranks are']}, in the model {per_host} a host. "
        f"It has {micro * case['message_s']:g} µs a message on either side, {micro * case['latency_s']:g} µs on "
        f"its way, {giga * case['bytes_per_s']:g} GB/s a host, and {giga * case['inside_bytes_per_s']:g} GB/s a rank "
        "within its host."
    )
    return f"{format_table(head, lines)}\n\n{said} Each figure is of the rank that has most of it.\n"
