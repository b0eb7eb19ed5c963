"""What every transport does alike: numbers, bytes of any length, deadlines, revoking and recovering."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import exchanges_of_bytes as bodies
import numpy as np
import pytest
from worlds import World

from gcylon_lab.comm.transport import copy_to_self, split_view
from gcylon_lab.comm.two_levels import gather_numbers, group
from gcylon_lab.errors import CommError, DeadlineExceeded, Revoked
from gcylon_lab.runtime.context import run_threads

SIZES = [0, 1, 7, 999, 1000, 1001, 5000, 0]


def test_numbers_and_bytes_of_all_ranks_reach_every_rank(world: World) -> None:
    ranks = range(world.size)
    for numbers, texts in world.run(bodies.numbers_and_bytes):
        assert numbers == [[rank, 2**62 - rank, -rank] for rank in ranks]
        assert texts == [b"x" * (rank * 1500) + str(rank).encode() for rank in ranks]


@pytest.mark.parametrize("sizes", [SIZES, 5 * SIZES], ids=["", "many"])  # many small ones are one message of MPI
def test_exchange_of_any_length_also_to_oneself(world: World, sizes: list[int]) -> None:
    assert world.run(bodies.everyone_to_everyone, sizes) == [world.size * len(sizes)] * world.size


def test_exchange_is_the_same_where_messages_are_split(several: World) -> None:
    expected = [several.size * len(SIZES)] * several.size
    if several.kind == "threads":
        assert run_threads(several.size, bodies.everyone_to_everyone, SIZES, max_message_bytes=1000) == expected
    else:
        assert several.run(bodies.everyone_to_everyone, SIZES, 1000) == expected


def test_ranks_that_send_or_receive_nothing_take_part(world: World) -> None:
    *others, last = world.run(bodies.only_the_last_rank_gets)
    senders = range(max(1, world.size - 1))
    assert others == [b""] * (world.size - 1)
    assert last == b"".join(bodies.payload(s, world.size - 1, 10).tobytes() for s in senders)


def test_sent_memory_is_free_to_change_after_an_exchange(several: World) -> None:
    several.run(bodies.sent_views_may_change, 20)


def test_deadline_ends_waiting_on_every_rank(several: World) -> None:
    waits = []
    for _ in range(3):  # a machine that has much else to do may miss the second once
        results = several.run(bodies.run_past_deadline, 0.3)
        for rank, seen in enumerate(results):
            assert isinstance(seen["error"], DeadlineExceeded), seen["error"]
            assert f"Rank {rank}" in str(seen["error"])
            assert "timeout_s" in seen["error"].advice
            assert seen["waited_s"] > 0.2
            assert seen["after"] == list(range(several.size))
        waits.append(max(seen["waited_s"] for seen in results))
        if waits[-1] < 1.3:
            break
    assert min(waits) < 1.3


def test_deadline_that_was_lifted_does_nothing(world: World) -> None:
    assert world.run(bodies.deadline_that_is_kept) == [list(range(world.size))] * world.size


@pytest.mark.parametrize("where", ["agree", "share", "exchange", "check"])
def test_revoke_frees_stuck_ranks_and_recover_makes_usable(several: World, where: str) -> None:
    waits = []
    for _ in range(3):  # a machine that has much else to do may miss the second once
        results = several.run(bodies.revoke_from_another_thread, where)
        for rank, seen in enumerate(results):
            assert isinstance(seen["error"], Revoked), seen["error"]
            assert seen["error"].rank == rank
            assert seen["left_at"] >= results[0]["revoked_at"]
            assert seen["after"] == list(range(several.size))
        waits.append(max(seen["left_at"] for seen in results) - results[0]["revoked_at"])
        if waits[-1] < 1.0:
            break
    assert min(waits) < 1.0


def test_a_world_of_one_rank_is_revoked_too() -> None:
    (seen,) = World("single", 1).run(bodies.revoke_from_another_thread, "agree")
    assert isinstance(seen["error"], Revoked)
    assert seen["after"] == [0]


def test_closed_transport_says_so(world: World) -> None:
    for errors in world.run(bodies.used_after_close):
        for error in errors:
            assert type(error) is CommError, error
            assert "closed" in str(error)


def test_views_are_split_without_a_byte_lost() -> None:
    view = memoryview(bytes(range(250)) * 9)
    parts = list(split_view(view, 1000))
    assert [part.nbytes for part in parts] == [1000, 1000, 250]
    assert b"".join(parts) == view.tobytes()
    assert list(split_view(memoryview(b""), 1000)) == []


def test_sends_to_oneself_must_fit() -> None:
    with pytest.raises(ValueError, match="2 bytes sent into 3"):
        copy_to_self([memoryview(b"ab")], [memoryview(bytearray(3))])
    with pytest.raises(ValueError, match="1 sends to oneself meet 0"):
        copy_to_self([memoryview(b"ab")], [])


def hosts_of(text: str) -> list[bytes]:
    return [letter.encode() for letter in text]


def test_ranks_are_grouped_by_host_where_hosts_have_several() -> None:
    assert group(hosts_of("aabb")) == ((0, 1), (2, 3))
    assert group(hosts_of("abab")) == ((0, 2), (1, 3))
    assert group(hosts_of("aaaa")) == group(hosts_of("abcd")) == ((0, 1), (2, 3))
    groups = group(hosts_of("a" * 1024))
    assert len(groups) == 32 and {len(ranks) for ranks in groups} == {32}


@pytest.mark.parametrize("hosts", ["aaaabbbb" * 3, "abcab" * 4, "a" * 17, "abcdefghijklmnopqrs"])
def test_many_ranks_agree_in_few_messages(hosts: str) -> None:
    size, groups = len(hosts), group(hosts_of(hosts))
    boxes = {(a, b): queue.Queue() for a in range(size) for b in range(size)}
    counts = [0] * size

    def on(rank: int) -> Any:
        def move(sends: Any, receives: Any) -> None:
            for send in sends:
                counts[rank] += 1
                boxes[rank, send.rank].put(bytes(send.view))
            for receive in receives:
                came = boxes[receive.rank, rank].get(timeout=20)
                receive.view[: len(came)] = came

        mine = np.zeros(2 * size, np.int64)
        mine[: rank % 5] = rank
        return gather_numbers(rank, groups, mine, 2**30, move)

    with ThreadPoolExecutor(size) as pool:
        results = list(pool.map(on, range(size)))
    for result in results:
        assert result.tolist() == [[r] * (r % 5) + [0] * (2 * size - r % 5) for r in range(size)]
    leaders = {members[0] for members in groups}
    assert all(counts[rank] == 1 for rank in range(size) if rank not in leaders)
    assert max(counts) <= len(groups) - 1 + max(map(len, groups)) - 1


@pytest.mark.mpi
@pytest.mark.parametrize("hosts", ["aabb", "abab", "aaab"])
def test_mpi_ranks_agree_in_two_levels(hosts: str) -> None:
    world = World("mpi", 4)
    for numbers, _ in world.run(bodies.in_two_levels, hosts, bodies.numbers_and_bytes):
        assert numbers == [[rank, 2**62 - rank, -rank] for rank in range(4)]
    for limit in (0, 1000):
        assert all(world.run(bodies.in_two_levels, hosts, bodies.long_numbers, limit))
    for seen in world.run(bodies.in_two_levels, hosts, bodies.revoke_from_another_thread, "agree"):
        assert isinstance(seen["error"], Revoked) and seen["after"] == [0, 1, 2, 3]
    for seen in world.run(bodies.in_two_levels, hosts, bodies.run_past_deadline, 0.3):
        assert isinstance(seen["error"], DeadlineExceeded) and seen["after"] == [0, 1, 2, 3]
