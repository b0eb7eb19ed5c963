"""A notebook that goes on for hours keeps no more of what its ranks told than its bounded buffers."""

from __future__ import annotations

import gc
import time
import weakref
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from jupyter_client.session import Session

import gcylon_lab as gl
from gcylon_lab.cluster import control
from gcylon_lab.cluster.channel import views
from gcylon_lab.cluster.messages import CONTROL_REQUEST

pytestmark = pytest.mark.mpi


def numbers() -> npt.NDArray[np.float64]:
    return np.zeros(1000)


def test_what_requests_brought_back_goes_with_its_last_user(lab: gl.Cluster) -> None:
    kept = [weakref.ref(value) for _ in range(4) for value in lab.run(numbers)]
    deadline = time.monotonic() + 5.0
    while True:  # what ranks print comes on a way of its own, and ends a request for ipyparallel: a moment later
        lab.run(int)
        gc.collect()
        still = [reference() is not None for reference in kept]
        if not any(still) or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert still == [False] * 8


def test_what_ranks_were_asked_for_waits_for_no_collection(lab: gl.Cluster) -> None:
    feed = lab._session.feed

    def snapshots() -> int:
        return sum(type(one) is dict and "sampler_cpu_ns" in one for one in gc.get_objects())

    lab.snapshots()
    gc.collect()
    before = snapshots()
    gc.disable()
    try:
        for _ in range(10):
            feed.pull()
        after = snapshots()
    finally:
        gc.enable()
    assert after <= before + lab.n


def test_of_messages_the_latest_ids_are_kept(lab: gl.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_HISTORY", 6)
    for _ in range(4):
        lab.view.execute("1 + 1")
        assert lab.run(int) == [0, 0]
    assert len(lab.view.history) == len(lab._session.client.history) == 6


def quiet(seen: set[bytes]) -> set[bytes]:
    """The messages so far, once none has come for a while."""
    before: set[bytes] = set()
    deadline = time.monotonic() + 10.0
    while before != seen and time.monotonic() < deadline:
        before = set(seen)
        time.sleep(0.4)
    return before


def test_an_answer_is_one_message_and_serves_all_who_ask_for_states(
    lab: gl.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_s = control._FRESH_S
    assert fresh_s < 1.0
    monkeypatch.setattr(control, "_FRESH_S", 60.0)  # however long it takes to get there
    channel, seen = lab._session.channel, lab._session.client.session.digest_history
    before = quiet(seen)
    channel.control.ask({"ask": "state"})
    lab.snapshots()
    time.sleep(0.3)  # a status of the kernel would come after the answer, from another thread
    assert len(seen - before) == 2 * lab.n
    before = set(seen)
    assert [state and state["rank"] for state in channel.control.states(1.0)] == list(range(lab.n))
    assert not seen - before
    monkeypatch.setattr(control, "_FRESH_S", fresh_s)
    time.sleep(fresh_s)
    assert [state and state["rank"] for state in channel.control.states(1.0)] == list(range(lab.n))
    assert len(seen - before) == lab.n, "what was told is too old"


def test_a_request_that_others_signed_is_not_answered_and_the_next_one_is(lab: gl.Cluster) -> None:
    client, seen = lab._session.client, lab._session.client.session.digest_history
    other = Session(key=b"another", session=client.session.session)
    before = quiet(seen)
    for engine in client._engines.values():
        send = partial(other.send, client._control_stream, CONTROL_REQUEST, {"ask": "state"}, ident=engine.encode())
        client._io_loop.add_callback(send)
    assert None not in lab._session.channel.control.ask({"ask": "state"})
    time.sleep(0.3)
    assert len(seen - before) == lab.n


def test_the_end_of_a_request_is_told_at_once(lab: gl.Cluster) -> None:
    heard: list[float] = []
    late: list[float] = []
    end = lab.feed.subscribe(lambda snapshots: heard.append(time.monotonic()))
    try:
        while len(late) < 3 and min(late, default=1.0) > 0.7:  # once, since a busy machine is late now and then
            lab.run(time.sleep, 0.7)
            ended = time.monotonic()
            while not heard or heard[-1] < ended:
                assert time.monotonic() < ended + 20
                time.sleep(0.01)
            late.append(heard[-1] - ended)
    finally:
        end()
    assert min(late) <= 0.7, "the next look at idle ranks would come 0.8 s after the end at best"


def test_measuring_in_a_loop_keeps_no_result_on_the_ranks(lab: gl.Cluster) -> None:
    t = lab.from_pandas(pd.DataFrame({"k": np.arange(1000), "v": 1.0}))
    lab.run(int)
    gc.collect()
    before = len(lab.memory())
    b = gl.Benchmark(repeats=3, warmup=1)
    one = b.run("shuffle", lambda: t.shuffle("k"), bytes=t.nbytes, rows=t.num_rows, ranks=lab.n)
    assert len(lab.memory()) == before, "released after each call"
    later = b.run("later", lambda: t.shuffle_async("k"))
    lab.run(int)
    assert len(lab.memory()) == before
    assert one.bytes == t.nbytes > 0 and min(one.times_s) > 0.001 and min(later.times_s) > 0.001, "and waited for"
    b.run("the table itself", lambda: t.unstage())
    assert t.num_rows == 1000 and not t.released
    code = """
import gcylon_lab as gl, pandas as pd
t = gl.from_local(pd.DataFrame({"k": range(1000)}))
used = gl.current().budget.used_bytes
b = gl.Benchmark(repeats=2, warmup=1)
b.run("shuffle", lambda: t.shuffle("k"), bytes=t.nbytes)
told = len(b["shuffle"].times_s), gl.current().budget.used_bytes - used
"""
    lab.view.execute(code, block=True)
    assert lab.view["told"] == [(2, 0)] * 2


def test_engines_say_of_a_verb_what_it_gives_alone(lab: gl.Cluster) -> None:
    client = lab._session.client
    table, heard = lab.from_pandas(pd.DataFrame({"k": range(10)})), []

    def hear(message: list[Any]) -> None:
        heard.append(message)
        client._dispatch_iopub(message)

    lab.run(int)
    time.sleep(0.5)  # its statuses are under way
    client._iopub_stream.on_recv(hear, copy=False)
    try:
        assert table.filter(gl.col("k") > 4).count_rows() == 5
        time.sleep(0.5)
        assert not heard, "nobody hears that it begins and ends"
        lab.run(print, "told")
        deadline = time.monotonic() + 5.0
        while len(heard) < 3 * lab.n and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        client._iopub_stream.on_recv(client._dispatch_iopub, copy=False)
    said = [part.bytes for message in heard for part in message]
    assert sum(b"told" in part for part in said) == lab.n, "what functions print is heard, and when they are over"
    assert sum(b'"idle"' in part for part in said) == lab.n
    assert not client._output_futures, "nothing waits for the status of a verb"
