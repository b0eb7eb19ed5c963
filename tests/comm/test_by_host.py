"""Routes by pair of ranks: what device memory goes by inside a host, and between hosts, in one exchange.

The transports are those of GPUs; CUDA and NCCL are stood in for by threads that copy ordinary memory.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import exchanges_of_bytes as bodies
import numpy as np
import pytest
from worlds import World

sys.path.insert(0, str(Path(__file__).parents[1] / "memory"))
from fake_cuda import FakeArray, FakeCupy, FakeEvent, FakeStream  # noqa: E402

from gcylon_lab.comm.device_overlay import ByHostTransport
from gcylon_lab.comm.threads import ThreadsWorld
from gcylon_lab.comm.transport import Receive, Send, Transport, WritableWindows
from gcylon_lab.errors import CommError, DeadlineExceeded, Revoked
from gcylon_lab.runtime.transport_choice import choose_route

SLAB_BYTES = 2**20
SIZES = (0, 1, 5000, 70_000)
PEER_NCCL = "peer puts inside hosts and NCCL between them"
PEER_HOST = "peer puts inside hosts and host memory between them"


class Stream(FakeStream):
    """Does what is next whenever it is looked at; work that gives False has to wait for other ranks."""

    def run(self, until: int) -> None:
        while self.ran < until and self.work[self.ran]() is not False:  # type: ignore[func-returns-value]
            self.ran += 1

    def wait_event(self, event: Event) -> None:  # type: ignore[override]
        self.work.append(lambda: event.done)


class Event(FakeEvent):
    def __init__(self, **_: Any) -> None:
        super().__init__()

    @property
    def done(self) -> bool:
        self.synchronize()
        return super().done


class Nccl(ModuleType):
    """Messages between threads; a group's are queued at its end."""

    def __init__(self, gpus: Gpus) -> None:
        super().__init__("nccl")
        self.gpus, self.boxes, self.local = gpus, defaultdict[Any, deque[bytes]](deque), threading.local()
        self.idents = iter(range(1, 1000))
        self.met: list[tuple[int, int]] = []  # pairs of ranks that have sent something

    def get_unique_id(self) -> bytes:
        return str(next(self.idents)).encode()

    def groupStart(self) -> None:
        self.local.group = []

    def groupEnd(self) -> None:
        for queue in sorted(self.local.group, key=lambda one: one[0]):
            queue[1]()

    def NcclCommunicator(self, size: int, ident: bytes, rank: int) -> Any:
        assert len(set(self.gpus.of_rank)) == size
        if self.gpus.without_network:
            raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR")
        aborted: list[bool] = []

        def send(pointer: int, nbytes: int, kind: int, peer: int, stream: Stream) -> None:
            self.met.append((rank, peer))

            def put() -> None:
                self.boxes[ident, rank, peer].append(ctypes.string_at(pointer, nbytes))

            self.local.group.append((0, lambda: stream.work.append(put)))

        def recv(pointer: int, nbytes: int, kind: int, peer: int, stream: Stream) -> None:
            def take() -> bool:
                box = self.boxes[ident, peer, rank]
                if box:
                    came = box.popleft()
                    assert len(came) == nbytes
                    ctypes.memmove(pointer, came, nbytes)
                    return True
                return bool(aborted)

            self.local.group.append((1, lambda: stream.work.append(take)))  # type: ignore[arg-type]

        return SimpleNamespace(send=send, recv=recv, allReduce=lambda *_: None, abort=lambda: aborted.append(True))


class Runtime:
    """CUDA's, where a slab can be mapped by ranks of its owner's host alone."""

    class CUDARuntimeError(RuntimeError):
        pass

    def __init__(self, gpus: Gpus) -> None:
        self.gpus = gpus
        self.copied: dict[str, int] = defaultdict(int)

    def deviceGetStreamPriorityRange(self) -> tuple[int, int]:
        return (0, -5)

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: Stream) -> None:
        self.copied[{1: "up", 2: "down", 3: "put"}[kind]] += nbytes
        stream.work.append(lambda: ctypes.memmove(target, source, nbytes) and None)

    def ipcGetMemHandle(self, address: int) -> bytes:
        return f"{self.gpus.host} {address}".encode()

    def ipcOpenMemHandle(self, handle: bytes) -> int:
        host, address = handle.decode().split()
        if host != self.gpus.host or self.gpus.apart:
            raise self.CUDARuntimeError("invalid device context")
        return int(address)

    def ipcCloseMemHandle(self, address: int) -> None:
        pass


class Gpus(FakeCupy):
    """The module that each rank imports, whichever its thread is.

    Parameters
    ----------
    hosts : str
        A letter for each rank's.
    of_rank : tuple of int
        Which GPU each rank has, of all hosts.
    apart : bool
        Whether nobody can map the memory of another.
    without_network : bool
        Whether NCCL finds none.
    """

    def __init__(
        self, hosts: str, of_rank: tuple[int, ...], *, apart: bool = False, without_network: bool = False
    ) -> None:
        self.hosts, self.of_rank, self.apart, self.local = hosts, of_rank, apart, threading.local()
        self.without_network = without_network
        self.nccl, self.runtime = Nccl(self), Runtime(self)
        self.cuda: Any = SimpleNamespace(
            Event=Event, Stream=lambda **_: Stream(), runtime=self.runtime, nccl=self.nccl,
            get_current_stream=lambda: self.local.current, get_elapsed_time=lambda *_: 1.0,
        )  # fmt: skip

    @property
    def host(self) -> str:
        return self.hosts[self.local.rank]

    def zeros(self, shape: Any, dtype: Any) -> Any:
        return np.zeros(shape, dtype=dtype).view(FakeArray)

    def enter(self, rank: int) -> None:
        """Let this thread be a rank."""
        self.local.rank, self.local.current = rank, Stream()


@contextmanager
def in_use(gpus: Gpus) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", gpus)  # type: ignore[arg-type]
        patch.setitem(sys.modules, "cupy.cuda", gpus.cuda)
        yield


class Rank:
    """One rank with its transport and its slab."""

    def __init__(self, gpus: Gpus, base: Any, route: str) -> None:
        gpus.enter(base.rank)
        base.name, base.host = "mpi", gpus.host  # of which alone there is a choice
        self.slab = np.zeros(SLAB_BYTES, np.uint8).view(FakeArray)
        device = SimpleNamespace(slab=SimpleNamespace(base=self.slab.ctypes.data, nbytes=SLAB_BYTES))
        of_rank = [str(gpu) for gpu in gpus.of_rank]
        self.transport, self.why = choose_route(base, device, self, list(gpus.hosts), of_rank, route)
        self.next = 0

    def take(self, nbytes: int, what: str) -> Any:
        """Host memory, as the pool of pinned memory gives it."""
        memory = np.zeros(nbytes, np.uint8)
        return SimpleNamespace(view=memory.data, pointer=memory.ctypes.data, memory=memory)

    def room(self, nbytes: int) -> Any:
        view = self.slab[self.next : self.next + nbytes]
        self.next += nbytes
        view[:] = 0
        return view

    def everyone_to_everyone(self, turn: int = 0) -> list[Any]:
        """Queue an exchange of views of all sizes; what will have come, and what it should be."""
        transport, ranks = self.transport, range(self.transport.size)
        self.next = 0
        sends, come = [], []
        for other in ranks:
            for n in SIZES:
                mine = self.room(n)
                mine[:] = payload(transport.rank, other, n, turn)
                sends.append(Send(other, mine))
        room = [(other, self.room(n), payload(other, transport.rank, n, turn)) for other in ranks for n in SIZES]
        come = [Receive(other, view) for other, view, _ in room]
        window = transport.open_window(
            transport.expose([one.view for one in come]), np.zeros((transport.size, 0), np.int64)
        )
        transport.exchange(None if turn % 2 else window, sends, come)
        return room


def payload(source: int, target: int, nbytes: int, turn: int) -> Any:
    return ((np.arange(nbytes) * 7 + 31 * source + 3 * target + 5 * turn + 1) % 251).astype(np.uint8)


def on_ranks(gpus: Gpus, body: Callable[[Rank], Any], route: str = "auto") -> list[Any]:
    """What a body gives, or raises, on each rank."""
    results: list[Any] = [None] * len(gpus.hosts)

    def work(base: Any) -> None:
        try:
            results[base.rank] = body(Rank(gpus, base, route))
        except BaseException as error:
            results[base.rank] = error
            if not isinstance(error, CommError):
                base.revoke()

    with in_use(gpus):
        threads = [threading.Thread(target=work, args=(base,)) for base in ThreadsWorld(len(gpus.hosts)).transports()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    unlike = [one for one in results if isinstance(one, BaseException) and not isinstance(one, CommError)]
    for error in unlike:
        raise error
    return results


def named(rank: Rank) -> tuple[str, str]:
    return rank.transport.name, rank.why


HOSTS = {"aabb": (0, 1, 2, 3), "abab": (0, 1, 2, 3), "aaab": (0, 1, 2, 3), "aabbb": (0, 0, 1, 1, 1)}


FASTEST = "because it is the fastest that works"
ASKED = "because GCYLON_TRANSPORT=peer+nccl and"
SHARED = "NCCL wants a GPU for each rank, and ranks {} share one"


@pytest.mark.parametrize(
    ("hosts", "of_rank", "route", "name", "why"),
    [
        ("aabb", (0, 1, 2, 3), "auto", PEER_NCCL, FASTEST),
        ("aabb", (0, 0, 1, 1), "auto", PEER_HOST, f"{FASTEST}; {SHARED.format('0, 1')}"),
        ("aabb", (0, 1, 2, 3), "peer+host", PEER_HOST, "because GCYLON_TRANSPORT=peer+host"),
        ("aabb", (0, 1, 2, 3), "nccl", "NCCL", "because GCYLON_TRANSPORT=nccl"),
        ("abc", (0, 1, 2), "auto", "NCCL", FASTEST),
        ("abc", (0, 1, 1), "auto", "host memory", f"because nothing faster works; {SHARED.format('1, 2')}"),
        ("abc", (0, 1, 2), "peer+nccl", "NCCL", f"{ASKED} each rank is on a host of its own"),
        ("aaa", (0, 1, 2), "peer+nccl", "peer puts", f"{ASKED} all ranks are on one host"),
        ("aaa", (0, 0, 0), "auto", "peer puts", FASTEST),
    ],
)
def test_each_pair_takes_the_fastest_way_that_works(
    hosts: str, of_rank: tuple[int, ...], route: str, name: str, why: str
) -> None:
    assert on_ranks(Gpus(hosts, of_rank), named, route) == [(name, why)] * len(hosts)


def test_what_does_not_work_is_told_and_left_out() -> None:
    for name, why in on_ranks(Gpus("aabb", (0, 1, 2, 3), apart=True), named):
        assert name == "NCCL" and "the GPU memory of rank" in why and "invalid device context" in why
    for name, why in on_ranks(Gpus("aabb", (0, 1, 2, 3), without_network=True), named):
        assert name == PEER_HOST and "NCCL cannot be started: RuntimeError: NCCL_ERROR_SYSTEM_ERROR" in why
    for error in on_ranks(Gpus("aabb", (0, 1, 2, 3), apart=True), named, "peer+host"):
        assert "GCYLON_TRANSPORT=peer+host was asked for, but" in str(error)


def exchanged(rank: Rank) -> list[int]:
    """Several exchanges, some of them closed together; what the others have told."""
    transport = rank.transport
    assert transport.completes_in_finish and not isinstance(transport, WritableWindows)
    told: list[int] = []
    for turn in range(4):
        came = rank.everyone_to_everyone(turn)
        if turn % 2:
            transport.drain()
        told = transport.finish(np.array([10 * transport.rank + turn], np.int64))[:, 0].tolist()
        for source, view, wanted in came:
            np.testing.assert_array_equal(np.asarray(view), wanted, f"from {source} in turn {turn}")
    assert not transport._kept and not transport._sent  # type: ignore[attr-defined]
    return told


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("route", ["peer+nccl", "peer+host"])
def test_bytes_of_all_pairs_arrive_by_their_own_ways(hosts: str, route: str) -> None:
    of_rank = tuple(range(len(hosts))) if route == "peer+nccl" else HOSTS[hosts]
    gpus = Gpus(hosts, of_rank)
    size, all_bytes = len(hosts), 4 * sum(SIZES)
    for told in on_ranks(gpus, exchanged, route):
        assert told == [10 * rank + 3 for rank in range(size)]
    inside = sum(hosts.count(host) for host in hosts)  # pairs of ranks, with those of one rank
    assert gpus.runtime.copied["put"] == inside * all_bytes
    far = (size * size - inside) * all_bytes
    assert gpus.runtime.copied["down"] == gpus.runtime.copied["up"] == (far if route == "peer+host" else 0)
    assert all(hosts[a] != hosts[b] for a, b in gpus.nccl.met) and bool(gpus.nccl.met) is (route == "peer+nccl")


def left_alone(rank: Rank, timeout_s: float | None) -> Any:
    """The last rank stays away from an exchange; then all recover, and exchange."""
    transport: Transport = rank.transport
    last = transport.size - 1
    transport.agree(np.zeros(1, np.int64))
    transport.set_deadline(timeout_s)
    error: Any = None
    began = time.monotonic()
    try:
        if transport.rank == last:
            time.sleep(0.2)
            if timeout_s is None:
                transport.revoke()
            while time.monotonic() < began + 5:
                transport.check()
        rank.everyone_to_everyone()
        transport.finish(np.zeros(1, np.int64))
    except CommError as raised:
        error = raised
    took = time.monotonic() - began
    transport.recover()
    assert not transport._kept and not transport._sent  # type: ignore[attr-defined]
    assert exchanged(rank) == [10 * one + 3 for one in range(transport.size)]
    transport.close()
    transport.close()
    return error, took


@pytest.mark.parametrize(("timeout_s", "kind"), [(None, Revoked), (0.3, DeadlineExceeded)])
@pytest.mark.parametrize("route", ["peer+nccl", "peer+host"])
def test_all_leave_both_ways_and_recover(route: str, timeout_s: float | None, kind: type[CommError]) -> None:
    for error, took in on_ranks(Gpus("aabb", (0, 1, 2, 3)), lambda rank: left_alone(rank, timeout_s), route):
        assert isinstance(error, kind) and took < 2.0


@pytest.mark.mpi
@pytest.mark.parametrize("hosts", ["aabb", "abab", "aaab"])
def test_messages_of_mpi_do_not_take_those_of_the_other_way(hosts: str) -> None:
    world = World("mpi", 4)
    assert world.run(bodies.by_pairs, hosts, bodies.everyone_to_everyone, [0, 7, 5000]) == [12] * 4
    world.run(bodies.by_pairs, hosts, bodies.sent_views_may_change, 5)
    for seen in world.run(bodies.by_pairs, hosts, bodies.revoke_from_another_thread, "exchange"):
        assert isinstance(seen["error"], Revoked) and seen["after"] == [0, 1, 2, 3]


def test_copies_at_once_are_waited_for_and_timed_at_once() -> None:
    def waits(rank: Rank) -> bool:
        transport = rank.transport
        assert isinstance(transport, ByHostTransport)
        near, far = transport.base, transport.base.base  # type: ignore[attr-defined]
        return near._waits is far._waits and len(near._waits._streams) == 2 + 1  # a stream a peer, and NCCL's

    assert all(on_ranks(Gpus("aabb", (0, 1, 2, 3)), waits))
