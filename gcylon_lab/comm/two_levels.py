"""Numbers of many ranks for all of them, in few messages: within groups, between their first ranks, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt

import numpy as np

from .transport import Int64s, Receive, Send

MOST_DIRECT = 16
"""So many ranks tell each other everything at once: then a message each is sooner there than three in a row."""

Groups = tuple[tuple[int, ...], ...]
Move = Callable[[Sequence[Send], Sequence[Receive]], None]


def group(hosts: Sequence[bytes]) -> Groups:
    """The ranks of each host; where hosts have a rank or two, or there is one host, about as many as there are groups.

    Parameters
    ----------
    hosts : sequence of bytes
        Every rank's.
    """
    size, by_host = len(hosts), dict[bytes, list[int]]()
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    if 1 < len(by_host) <= size // 2:
        return tuple(tuple(ranks) for ranks in by_host.values())
    step = isqrt(size)
    return tuple(tuple(range(start, min(start + step, size))) for start in range(0, size, step))


def gather_numbers(rank: int, groups: Groups, values: Int64s, limit_bytes: int, move: Move) -> Int64s:
    """Collective: all ranks call it. Every rank's numbers, shape (size, n).

    Zeros at the end, which most agreements have many of, are not sent.

    Parameters
    ----------
    rank : int
    groups : tuple of tuple of int
        Of all ranks, from `group`; the first of each speaks for it.
    values : ndarray of int64, shape (n,)
        n is the same on all ranks.
    limit_bytes : int
        The longest message; longer ones are cut where both sides know how long they are.
    move : callable
        Sends and receives messages, of which one may be shorter than the room for it.
    """
    size, n = sum(map(len, groups)), len(values)
    everyone = np.zeros((size, n), dtype=np.int64)
    mine = next(members for members in groups if rank in members)
    leader = mine[0]
    if rank != leader:
        packed, room = _packed(values[None], limit_bytes), _room(size, n)
        move([Send(leader, _bytes(packed))], [])
        move([], [Receive(leader, _bytes(room))])
        everyone[_order(groups)] = _unpacked(room, size, n)
        return everyone
    rooms = {member: _room(1, n) for member in mine[1:]}
    move([], [Receive(member, _bytes(room)) for member, room in rooms.items()])
    rows = np.concatenate([values[None], *(_unpacked(room, 1, n) for room in rooms.values())])
    others = {members[0]: members for members in groups if members[0] != leader}
    packed, blocks = _packed(rows, limit_bytes), {lead: _room(len(members), n) for lead, members in others.items()}
    move(
        [Send(lead, _bytes(packed)) for lead in others],
        [Receive(lead, _bytes(block)) for lead, block in blocks.items()],
    )
    everyone[list(mine)] = rows
    for lead, members in others.items():
        everyone[list(members)] = _unpacked(blocks[lead], len(members), n)
    packed = _packed(everyone[_order(groups)], limit_bytes)
    move([Send(member, _bytes(packed)) for member in mine[1:]], [])
    return everyone


def packed_bytes(rows: int, width: int) -> int:
    """Of a message with so many numbers of each row, which are not all of them."""
    return 8 * (1 + rows * width)


def _order(groups: Groups) -> list[int]:
    return [rank for members in groups for rank in members]


def _room(rows: int, n: int) -> Int64s:
    return np.zeros(1 + rows * n, dtype=np.int64)


def _packed(rows: Int64s, limit_bytes: int) -> Int64s:
    """How many numbers of each row follow, and these; all of them where the message is cut."""
    n = rows.shape[1]
    used = np.flatnonzero(rows.any(axis=0))
    width = n if 8 * (1 + rows.size) > limit_bytes else int(used[-1]) + 1 if len(used) else 0
    return np.concatenate([[width], rows[:, :width].reshape(-1)])


def _unpacked(packed: Int64s, rows: int, n: int) -> Int64s:
    width = int(packed[0])
    found = np.zeros((rows, n), dtype=np.int64)
    found[:, :width] = packed[1 : 1 + rows * width].reshape(rows, width)
    return found


def _bytes(numbers: Int64s) -> memoryview:
    return numbers.view(np.uint8).data
