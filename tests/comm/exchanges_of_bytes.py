"""Bodies of the transport tests, run on every rank of a world: they know bytes and numbers, no tables."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from gcylon_lab.comm.transport import Receive, Send, Transport
from gcylon_lab.errors import GcylonError
from gcylon_lab.runtime.context import current


def transport_of(limit: int) -> Transport:
    """This rank's transport; on MPI with a limit of its own (threads get theirs from the world)."""
    transport = current().transport
    if transport.name != "mpi" or not limit:
        return transport
    from gcylon_lab.comm.mpi import MpiTransport

    return MpiTransport(max_message_bytes=limit)


def payload(source: int, target: int, nbytes: int) -> np.ndarray:
    """Bytes that tell who sent them to whom."""
    return ((np.arange(nbytes) * 7 + 31 * source + 3 * target) % 251).astype(np.uint8)


def everyone_to_everyone(sizes: list[int], limit: int = 0) -> int:
    """Send buffers of all sizes to every rank, oneself too; returns how many arrived as they were sent."""
    transport = transport_of(limit)
    me, ranks = transport.rank, range(transport.size)
    sends = [Send(to, payload(me, to, n + me).data) for to in ranks for n in sizes]
    room = {source: [np.zeros(n + source, np.uint8) for n in sizes] for source in ranks}
    transport.exchange(None, sends, [Receive(source, a.data) for source in ranks for a in room[source]])
    right = 0
    for source in ranks:
        for n, got in zip(sizes, room[source], strict=True):
            np.testing.assert_array_equal(got, payload(source, me, n + source))
            right += 1
    return right


def numbers_and_bytes() -> tuple[list[list[int]], list[bytes]]:
    transport = current().transport
    rank = transport.rank
    numbers = transport.agree(np.array([rank, 2**62 - rank, -rank], dtype=np.int64))
    assert numbers.dtype == np.int64
    texts = transport.share(b"x" * (rank * 1500) + str(rank).encode())
    assert transport.finish(np.array([rank], dtype=np.int64))[:, 0].tolist() == list(range(transport.size))
    assert transport.share(b"") == [b""] * transport.size
    return numbers.tolist(), texts


def only_the_last_rank_gets() -> bytes:
    """Everyone sends one buffer to the last rank and nothing else; the last rank sends nothing at all."""
    transport = current().transport
    last = transport.size - 1
    sends = [] if transport.rank == last and last > 0 else [Send(last, payload(transport.rank, last, 10).data)]
    room = [np.zeros(10, np.uint8) for _ in range(max(1, last))] if transport.rank == last else []
    transport.exchange(None, sends, [Receive(source, a.data) for source, a in enumerate(room)])
    return b"".join(a.tobytes() for a in room)


def sent_views_may_change(times: int) -> None:
    """Overwrite what was sent as soon as `exchange` returns; the others still have what was sent."""
    transport = current().transport
    ranks = range(transport.size)
    mine = np.zeros(5000, np.uint8)
    room = [np.zeros(5000, np.uint8) for _ in ranks]
    for turn in range(times):
        mine[:] = turn + transport.rank
        transport.exchange(
            None, [Send(to, mine.data) for to in ranks], [Receive(source, room[source].data) for source in ranks]
        )
        mine[:] = 255
        for source in ranks:
            assert (room[source] == turn + source).all()


def run_past_deadline(timeout_s: float) -> dict[str, Any]:
    """Rank 0 never comes to the second agreement in time; returns what each rank saw, and that recovery helps."""
    transport = current().transport
    answer = np.array([transport.rank], dtype=np.int64)
    transport.agree(answer)
    transport.set_deadline(timeout_s)
    started = time.monotonic()
    if transport.rank == 0:
        time.sleep(timeout_s + 0.15)
    seen = _error_of(lambda: transport.agree(answer))
    waited = time.monotonic() - started
    transport.recover()
    return {"error": seen, "waited_s": waited, "after": transport.agree(answer)[:, 0].tolist()}


def deadline_that_is_kept() -> list[int]:
    transport = current().transport
    transport.set_deadline(0.3)
    transport.agree(np.zeros(1, np.int64))
    transport.set_deadline(None)
    time.sleep(0.35)
    return transport.agree(np.array([transport.rank], dtype=np.int64))[:, 0].tolist()


def revoke_from_another_thread(where: str) -> dict[str, Any]:
    """Rank 0 stays away while another thread of it revokes; the others are stuck in a collective until then."""
    transport = current().transport
    answer = np.array([transport.rank], dtype=np.int64)
    room = np.zeros(100_000, np.uint8)
    transport.agree(answer)
    revoked_at = 0.0
    if transport.rank == 0:
        time.sleep(0.3)
        revoker = threading.Thread(target=transport.revoke)
        revoked_at = time.time()
        revoker.start()
        revoker.join()
        transport.revoke()  # a second time does no harm
        seen = _error_of(lambda: transport.agree(answer))
    elif where == "agree":
        seen = _error_of(lambda: transport.agree(answer))
    elif where == "share":
        seen = _error_of(lambda: transport.share(b"text"))
    elif where == "check":  # as who waits for work on a GPU does
        seen = _error_of(lambda: _check_until(transport, time.monotonic() + 5))
    else:
        seen = _error_of(lambda: transport.exchange(None, [], [Receive(0, room.data)]))
    left_at = time.time()
    transport.recover()
    after = transport.agree(answer)[:, 0].tolist()
    return {"error": seen, "revoked_at": revoked_at, "left_at": left_at, "after": after}


def _check_until(transport: Any, end: float) -> None:
    while time.monotonic() < end:
        transport.check()
        time.sleep(20e-6)


def used_after_close() -> list[GcylonError | None]:
    from gcylon_lab.comm.mpi import MpiTransport
    from gcylon_lab.comm.single import SingleTransport
    from gcylon_lab.comm.threads import ThreadsWorld

    name, size = current().transport.name, current().size
    if name == "mpi":
        transport: Transport = MpiTransport()
    else:
        transport = SingleTransport() if name == "single" else ThreadsWorld(size).transports()[current().rank]
    transport.close()
    transport.close()
    answer = np.zeros(1, np.int64)
    return [
        _error_of(lambda: transport.agree(answer)),
        _error_of(lambda: transport.finish(answer)),
        _error_of(lambda: transport.share(b"")),
        _error_of(lambda: transport.exchange(None, [], [])),
    ]


def _error_of(call: Any) -> GcylonError | None:
    try:
        call()
    except GcylonError as error:
        error.__traceback__ = None
        return error
    return None


def in_two_levels(hosts: str, body: Any, *args: Any) -> Any:
    """Run a body where so few ranks, each on one of the hosts that are named by letters, agree as many do."""
    from gcylon_lab.comm import mpi
    from gcylon_lab.comm.two_levels import group

    transport: Any = current().transport
    before = mpi.MOST_DIRECT, transport._groups
    mpi.MOST_DIRECT, transport._groups = 1, group([host.encode() for host in hosts])
    try:
        return body(*args)
    finally:
        mpi.MOST_DIRECT, transport._groups = before


def by_pairs(hosts: str, body: Any, *args: Any) -> Any:
    """Run a body where pairs of ranks of one host, named by letters, have another way than those of two."""
    from gcylon_lab.comm.device_overlay import ByHostTransport, Overlay

    context, base = current(), current().transport
    far = Overlay(base)
    peers = [rank for rank, host in enumerate(hosts) if host == hosts[base.rank]]
    context.transport = ByHostTransport(Overlay(far), far, peers)
    try:
        return body(*args)
    finally:
        context.transport = base


def long_numbers(limit: int) -> bool:
    """Rows that end in zeros, of different lengths on each rank, also where messages are cut."""
    transport = transport_of(limit)
    for filled in (0, 1, 40, 200):
        mine = np.zeros(200, np.int64)
        mine[: max(0, filled - transport.rank)] = 1 + transport.rank
        everyone = transport.agree(mine)
        for rank, row in enumerate(everyone.tolist()):
            many = max(0, filled - rank)
            assert row == [1 + rank] * many + [0] * (200 - many)
    return True
