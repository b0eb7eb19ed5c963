"""Interrupts by a person: what runs stops, nothing of it stays, the next request works, and the person reads so."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ipyparallel.error import CompositeError

import gcylon_lab as gl
from gcylon_lab.cluster.channel import channel as channels
from gcylon_lab.cluster.channel.channel import Channel
from gcylon_lab.cluster.channel.interrupts import undisturbed
from gcylon_lab.cluster.channel.waiting import Waiter
from gcylon_lab.cluster.engine.engine import Engine
from gcylon_lab.cluster.handles.handle import DistTable
from gcylon_lab.cluster.messages import Request
from gcylon_lab.comm.transport import INTERRUPTED
from gcylon_lab.errors import ClusterDegraded, ColumnMissing, DeadlineExceeded, RankLost, Revoked

SOON_S = 20.0
FRAME = pd.DataFrame({"k": range(1000), "v": [i % 7 for i in range(1000)]})


def interrupt_here() -> None:
    os.kill(os.getpid(), signal.SIGINT)


# --- where an interrupt may strike ---


def test_an_interrupt_takes_effect_at_the_end_of_what_must_not_be_cut() -> None:
    done = []
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), undisturbed():
        interrupt_here()
        done.append(1)
    assert done == [1] and signal.getsignal(signal.SIGINT) is handler


class SignalInBetween:
    """A lock that lets a request begin just before whoever takes it first has it."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.lock = engine, engine._turn

    def __enter__(self) -> None:
        self.engine._turn = self.lock
        self.engine.begin("call")
        self.lock.acquire()

    def __exit__(self, *unused: object) -> None:
        self.lock.release()


def test_a_rank_that_a_signal_met_as_its_request_began_says_that_it_was_interrupted() -> None:
    def waits() -> None:
        raise Revoked(INTERRUPTED, rank=0)

    with gl.initialize(sample_hz=0) as context:
        engine = Engine(context, SimpleNamespace(shell=SimpleNamespace(user_ns={})))
        engine._turn = SignalInBetween(engine)  # type: ignore[assignment]
        engine.signalled()
        assert engine.revoked
        reply = engine.serve(Request("run"), waits)
    assert reply.error is not None and reply.error["message"] == "Rank 0 was interrupted in 'run'."


@pytest.mark.parametrize("kept", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_a_program_decided_about_interrupts_stays(kept: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, kept)
    try:
        with undisturbed():
            assert signal.getsignal(signal.SIGINT) is kept
        assert signal.getsignal(signal.SIGINT) is kept
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_sends_as_it_is() -> None:
    seen = []
    handler = signal.getsignal(signal.SIGINT)

    def send() -> None:
        with undisturbed():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    assert seen == [handler]


class Signalled:
    """Interrupts this process while it is pickled, and arrives as a string."""

    def __reduce__(self) -> tuple[Any, ...]:
        interrupt_here()
        return str, ("arrived",)


class Unsendable:
    def __reduce__(self) -> tuple[Any, ...]:
        raise ValueError("cannot be sent")


def held_by(lab: gl.Cluster) -> set[tuple[str, int]]:
    memory = lab.memory()
    return set(zip(memory["id"], memory["rank"], strict=True)) if len(memory) else set()


@pytest.mark.mpi
def test_an_interrupt_while_a_request_is_sent_leaves_the_ranks_together(hurt: gl.Cluster) -> None:
    before = held_by(hurt)
    frame = pd.DataFrame({"k": [*range(999), Signalled()]})
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt, match="Interrupted: from_pandas stopped"):
            hurt.from_pandas(frame)  # the part of rank 0 was sent by then
        start = time.monotonic()
        table = hurt.from_pandas(FRAME)
        assert table.shuffle("k").num_rows == 1000
        assert time.monotonic() - start < SOON_S
        del table
    assert held_by(hurt) <= before  # what earlier tests held may have gone
    assert not hurt.client.outstanding


@pytest.mark.mpi
def test_a_part_that_cannot_be_sent_leaves_the_ranks_together(hurt: gl.Cluster) -> None:
    before = held_by(hurt)
    with pytest.raises(ValueError, match="cannot be sent"):
        hurt.from_pandas(pd.DataFrame({"k": [*range(999), Unsendable()]}))
    assert hurt.from_pandas(FRAME).shuffle("k").num_rows == 1000
    assert held_by(hurt) <= before  # what earlier tests held may have gone


# --- what is left of it ---


def cut_after_the_replies(patched: pytest.MonkeyPatch) -> None:
    replies = Waiter.replies

    def cut(self: Waiter, *args: Any) -> Any:
        replies(self, *args)
        raise KeyboardInterrupt

    patched.setattr(Waiter, "replies", cut)


def cut_before_the_handle(patched: pytest.MonkeyPatch) -> None:
    def cut(self: DistTable, *unused: Any) -> None:
        raise KeyboardInterrupt

    patched.setattr(DistTable, "__init__", cut)


def cut_after_the_handle(patched: pytest.MonkeyPatch) -> None:
    def cut(self: Channel, table: str) -> None:
        raise KeyboardInterrupt

    patched.setattr(Channel, "claim", cut)


@pytest.mark.mpi
@pytest.mark.parametrize("cut", [cut_after_the_replies, cut_before_the_handle, cut_after_the_handle])
@pytest.mark.parametrize("verb", ["shuffle", "from_pandas", "table"])
def test_a_result_without_a_handle_does_not_stay(
    hurt: gl.Cluster, monkeypatch: pytest.MonkeyPatch, cut: Callable[[pytest.MonkeyPatch], None], verb: str
) -> None:
    table = hurt.from_pandas(FRAME).bind("bound")
    before = held_by(hurt)
    verbs = {
        "shuffle": lambda: table.shuffle("k"),
        "from_pandas": lambda: hurt.from_pandas(FRAME),
        "table": lambda: hurt.table("bound"),
    }
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        cut(patched)
        verbs[verb]()
    assert held_by(hurt) <= before  # what earlier tests held may have gone
    hurt.view.execute("del bound", silent=False)


@pytest.mark.mpi
def test_nothing_stays_of_what_was_cancelled_or_late_or_failed(hurt: gl.Cluster) -> None:
    table = hurt.from_pandas(FRAME)
    before = held_by(hurt)
    for wait_s in (0.0, 0.01, 0.02, 0.04):

        async def cancelled(wait_s: float = wait_s) -> None:
            task = asyncio.ensure_future(_awaited(table.shuffle_async("k")))
            await asyncio.sleep(wait_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(cancelled())
        future = hurt.from_pandas_async(FRAME)
        time.sleep(wait_s)
        future.cancel()
        del future
    hurt.run(int, 1)  # in the order of all that was asked for
    with pytest.raises(ColumnMissing):
        table.shuffle("nothing")
    with pytest.raises(DeadlineExceeded):
        table.map_parts(_slow, timeout_s=0.3)
    threading.Timer(0.3, hurt.interrupt).start()
    with pytest.raises(Revoked):
        table.map_parts(_slow)
    table.map_parts(lambda part: part)
    hurt.revoke()  # while nothing runs
    hurt.recover()
    assert held_by(hurt) <= before  # what earlier tests held may have gone


async def _awaited(future: Any) -> Any:
    return await future


def _slow(part: Any) -> Any:
    time.sleep(2)
    return part


@pytest.mark.mpi
def test_what_a_request_was_to_drop_is_dropped_though_it_was_not_begun(
    hurt: gl.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hurt.from_pandas(FRAME)
    before = held_by(hurt)
    dropped = hurt.from_pandas(FRAME)
    with monkeypatch.context() as patched:
        patched.setattr(hurt._session.channel.view, "send", lambda *args, **options: 1 / 0)
        del dropped
        with pytest.raises(ZeroDivisionError):
            table.shuffle("k")
    assert held_by(hurt) <= before  # what earlier tests held may have gone


# --- what the person reads ---


@pytest.mark.mpi
def test_the_person_reads_what_stopped_and_that_tables_are_as_they_were(hurt: gl.Cluster) -> None:
    table = hurt.from_pandas(FRAME)
    with pytest.raises(KeyboardInterrupt) as cut:
        threading.Timer(0.7, interrupt_here).start()
        hurt.run(time.sleep, 60)
    assert str(cut.value).startswith("Interrupted: run stopped after 0.")
    lines = "".join(cut.value._render_traceback_())  # type: ignore[attr-defined]
    assert lines.strip() == f"KeyboardInterrupt: {cut.value}"
    threading.Timer(0.7, hurt.interrupt).start()
    with pytest.raises(Revoked) as revoked:
        table.map_parts(_slow)
    assert str(revoked.value).startswith("Interrupted: map_parts stopped after 0.")
    threading.Timer(0.7, hurt.interrupt).start()
    with pytest.raises(
        Revoked, match=r"^Interrupted: the cell stopped after 0\.\d s; what it had done by then stays\.$"
    ):
        hurt.view.execute("import time; time.sleep(60)", silent=False)
    with pytest.raises(KeyboardInterrupt, match="Interrupted: the cell stopped after 0"):
        threading.Timer(0.7, interrupt_here).start()
        hurt.view.execute("import time; time.sleep(60)", silent=False)
    future = table.map_parts_async(_slow)
    with pytest.raises(KeyboardInterrupt, match=r"Interrupted: .*map_parts\(.* stopped after 0\.\d s; tables are unch"):
        threading.Timer(0.7, interrupt_here).start()
        future.result()
    assert future.cancelled()
    assert table.shuffle("k").num_rows == 1000


def wait_for(sleeper: int) -> None:
    context = gl.current()
    if context.rank == sleeper:
        time.sleep(60)
    context.transport.agree(np.array([context.rank], dtype=np.int64))


@pytest.mark.mpi
@pytest.mark.parametrize(("rank", "sleeper"), [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_a_rank_that_somebody_interrupts_is_named(hurt: gl.Cluster, rank: int, sleeper: int) -> None:
    """Whether it works by itself or waits for the other."""
    hurt.run(wait_for, -1)
    threading.Timer(0.7, os.kill, (hurt.ranks[rank].pid, signal.SIGINT)).start()
    with pytest.raises(Revoked, match=f"Rank {rank} was interrupted in 'run'") as caught:
        hurt.run(wait_for, sleeper)
    assert caught.value.rank == rank


@pytest.mark.mpi
def test_a_rank_that_somebody_interrupts_in_a_cell_is_named(hurt: gl.Cluster) -> None:
    hurt.run(wait_for, -1)
    threading.Timer(0.3, os.kill, (hurt.ranks[1].pid, signal.SIGINT)).start()
    with pytest.raises(CompositeError, match="Rank 1 was interrupted by a signal"):
        hurt.view.execute("import time; time.sleep(2)", silent=False, block=True)


@pytest.mark.mpi
def test_interrupted_cells_hold_no_memory(hurt: gl.Cluster) -> None:
    table = hurt.from_pandas(FRAME).bind("bound")
    hurt.run(int, 1)
    before = [memory["used_bytes"] for memory in hurt._session.memory]
    for wait_s in (0.0, 0.02, 0.05, 0.1):
        threading.Timer(wait_s, hurt.interrupt).start()
        with contextlib.suppress(Revoked, CompositeError):
            hurt.view.execute("for _ in range(50): shuffled = bound.shuffle('k')", silent=False)
        time.sleep(0.2)
        with contextlib.suppress(Revoked):
            hurt.run(int, 1)
    hurt.view.execute("globals().pop('shuffled', None); del bound", silent=False)
    until = time.monotonic() + 10
    while True:  # what a rank was told to drop as the last interrupt came is dropped by a request after it
        hurt.run(int, 1)
        used = [memory["used_bytes"] for memory in hurt._session.memory]
        if all(now <= then for now, then in zip(used, before, strict=True)) or time.monotonic() > until:
            break
        time.sleep(0.2)
    assert used == before
    assert table.num_rows == 1000


# --- a channel that is closed ---


def test_no_timer_or_thread_of_a_closed_channel_strikes() -> None:
    class Client:
        """Engines that were started since have the ids of those before."""

        ids = (0, 1)
        outstanding = frozenset({"a request of the next channel"})
        _closed = False

        def __init__(self) -> None:
            self._registration_callbacks: list[Any] = []
            self._queue_handlers = dict.fromkeys(("apply_reply", "execute_reply"), self.send_signal)
            self._engines = {0: "a", 1: "b"}
            self.later: list[Callable[[], None]] = []
            self._io_loop = self
            self._mux_stream = self._control_stream = None
            self.struck: list[Any] = []

        def call_later(self, seconds: float, function: Callable[..., None], *args: Any) -> None:
            self.later.append(lambda: function(*args))

        def send_signal(self, *args: Any, **options: Any) -> None:
            self.struck.append(args)

        _send = send_signal

    class Stops:
        def look(self) -> None:
            """Nobody is stopped."""

        now = look

    def channel_of(client: Any) -> Channel:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(channels, "OrderedView", lambda *unused: None)
            return Channel(client, (0, 1), describe_losses=str, is_cut_off=lambda: False, stops=Stops(), revocable=True)

    def strike(channel: Channel, client: Client) -> None:
        client.later.append(lambda: channel._on_part(Undone(), Undone()))
        while client.later:
            client.later.pop()()
        channel.interrupt()
        channel.cut()
        channel.revoke()
        channel._free_stranded([0], "why", "what helps")
        channel._on_registration({"event": "unregister", "id": 1})

    class Undone:
        def done(self) -> bool:
            return False

        def exception(self) -> Exception:
            return ValueError()

    client = Client()
    channel = channel_of(client)
    channel._on_registration({"event": "unregister", "id": 1})
    with pytest.raises(RankLost), channel.sending():
        raise KeyError(1)  # as ipyparallel says of an engine that went after the last look
    strike(channel, client)
    assert client.struck, "they strike while it is open"
    client.struck.clear()
    channel.close("A restart ended them.", "Run it again.")
    strike(channel, client)
    assert client.struck == []
    with pytest.raises(ClusterDegraded, match="A restart ended them"):
        channel.check_usable()


@pytest.mark.mpi
def test_an_operation_right_after_a_restart_is_left_alone(hurt: gl.Cluster) -> None:
    os.kill(hurt.ranks[1].pid, signal.SIGKILL)
    while hurt.status()[1]["state"] != "gone":
        time.sleep(0.02)
    known = time.monotonic()
    hurt.restart()
    # What the channel before had planned is over by then.
    hurt.run(time.sleep, max(0.5, 3.0 - (time.monotonic() - known)))
    assert hurt.from_pandas(FRAME).shuffle("k").num_rows == 1000


@pytest.mark.mpi
def test_who_waits_while_another_thread_restarts_is_told(hurt: gl.Cluster) -> None:
    said: list[BaseException] = []

    def wait() -> None:
        try:
            hurt.run(time.sleep, 60)
        except BaseException as error:
            said.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(0.5)
    old = hurt.view
    hurt.restart()
    waiter.join(SOON_S)
    assert isinstance(said[0], ClusterDegraded) and "A restart ended the engines" in str(said[0])
    with pytest.raises(ClusterDegraded, match=r"lab\.view"):
        old.execute("1")
    assert hurt.run(int, 1) == [1, 1]


# --- started where interrupts are ignored ---

IGNORED = """
import os, signal, threading, time
import gcylon_lab as gl
from gcylon_lab.errors import Revoked

assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
with gl.Cluster(2, name="ignored", progress=False) as lab:
    threading.Timer(0.7, lab.interrupt).start()
    start = time.monotonic()
    try:
        lab.run(time.sleep, 300)
    except Revoked:
        print("by another thread")
    threading.Timer(0.7, os.kill, (lab.ranks[1].pid, signal.SIGINT)).start()
    try:
        lab.run(time.sleep, 300)
    except Revoked:
        print("by a signal to a rank")
    assert time.monotonic() - start < 100
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""


@pytest.mark.mpi
@pytest.mark.timeout(280)
def test_ranks_are_interrupted_where_the_program_was_started_to_ignore_it(runtime_dir: str, tmp_path: Path) -> None:
    command = ["bash", "-c", 'trap "" INT; exec "$0" "$@"', sys.executable, "-c", IGNORED]
    environment = os.environ | {"PYTHONPATH": str(Path(gl.__file__).parents[1])}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "by another thread" in done.stdout and "by a signal to a rank" in done.stdout
