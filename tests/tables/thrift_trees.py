"""Thrift's compact form as trees that can be changed and written again: the footers and page headers of parquet files.

A value is [kind, value]: of a struct a list of [field, value], of a list or set [kind of its items, values].
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Value = list[Any]


class Reader:
    """Reads values one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def value(self, kind: int = STRUCT, *, in_list: bool = False) -> Value:
        """The next one, which is of a kind."""
        if kind in (TRUE, FALSE):
            return [self._bytes(1)[0] if in_list else kind, None]
        if kind in (BYTE, DOUBLE):
            return [kind, self._bytes(1 if kind == BYTE else 8)]
        if kind in (I16, I32, I64):
            return [kind, self._zigzag()]
        if kind == BINARY:
            return [kind, self._bytes(self._varint())]
        if kind in (LIST, SET):
            head = self._bytes(1)[0]
            count = head >> 4 if head >> 4 < 15 else self._varint()
            return [kind, [head & 15, [self.value(head & 15, in_list=True) for _ in range(count)]]]
        assert kind == STRUCT, kind
        fields, field = [], 0
        while head := self._bytes(1)[0]:
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            fields.append([field, self.value(head & 15)])
        return [STRUCT, fields]


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _zigzag(value: int) -> bytes:
    return _varint((value << 1) ^ (value >> 63))


def written(value: Value, *, in_list: bool = False) -> bytes:
    """A value as bytes."""
    kind, content = value
    if kind in (TRUE, FALSE):
        return bytes([kind]) if in_list else b""
    if kind in (BYTE, DOUBLE):
        return bytes(content)
    if kind in (I16, I32, I64):
        return _zigzag(content)
    if kind == BINARY:
        return _varint(len(content)) + bytes(content)
    if kind in (LIST, SET):
        of, items = content
        count = len(items)
        head = bytes([count << 4 | of]) if count < 15 else bytes([0xF0 | of]) + _varint(count)
        return head + b"".join(written(item, in_list=True) for item in items)
    out, last = bytearray(), 0
    for field, item in content:
        delta = field - last
        out += bytes([delta << 4 | item[0]]) if 0 < delta < 16 else bytes([item[0]]) + _zigzag(field)
        out += written(item)
        last = field
    return bytes(out) + b"\0"


def _nodes(value: Value) -> Iterator[Value]:
    yield value
    kind, content = value
    for item in [one for _, one in content] if kind == STRUCT else content[1] if kind in (LIST, SET) else ():
        yield from _nodes(item)


def mutate(tree: Value, rng: random.Random) -> None:
    """Change one value somewhere: its content, its place, its kind, or how many there are."""
    nodes = list(_nodes(tree))
    value = rng.choice(nodes)
    kind, content = value
    if rng.random() < 0.1:  # as another has it, of this kind or any
        other = rng.choice([one for one in nodes if rng.random() < 0.2 or one[0] == kind] or [value])
        value[:] = Reader(written(other, in_list=True)).value(other[0], in_list=True)
    elif kind in (TRUE, FALSE):
        value[0] = TRUE + FALSE - kind
    elif kind in (BYTE, DOUBLE):
        value[1] = rng.randbytes(len(content))
    elif kind in (I16, I32, I64):
        limit = 2 ** rng.choice([3, 7, 8, 15, 16, 31, 32, 40, 62, 63])
        value[1] = rng.choice([0, 1, -1, content + 1, content - 1, -content, limit, limit - 1, -limit, 2 * content])
    elif kind == BINARY:
        at = rng.randrange(len(content) + 1)
        new = rng.randbytes(len(content))
        value[1] = rng.choice([b"", content[:at], content[:-1], content + rng.randbytes(rng.randrange(1, 20)), new])
    elif kind in (LIST, SET):
        _mutate_items(content, rng)
    else:
        _mutate_fields(content, rng)


def _mutate_items(content: list[Any], rng: random.Random) -> None:
    items = content[1]
    how = rng.randrange(6)
    if how == 0 or not items:
        content[1] = []
    elif how == 1:
        del items[rng.randrange(len(items))]
    elif how == 2:
        items += [rng.choice(items)] * rng.choice([1, 2, 20])
    elif how == 3:
        rng.shuffle(items)
    elif how == 4:
        items.insert(rng.randrange(len(items) + 1), rng.choice(items))
    else:
        content[0] = rng.randrange(16)  # what follows is read as something else


def _mutate_fields(fields: list[Any], rng: random.Random) -> None:
    if not fields:
        fields.append([rng.randrange(1, 20), [I64, rng.randrange(100)]])
        return
    how, at = rng.randrange(6), rng.randrange(len(fields))
    if how == 0:
        del fields[at]
    elif how == 1:
        fields.append([fields[at][0], rng.choice(fields)[1]])  # the last one counts
    elif how == 2:
        fields[at][0] = rng.choice([rng.randrange(1, 20), 0, -1, 2**15 - 1, 2**15, 2**16 + 1])
    elif how == 3:
        new = [[STRUCT, []], [I32, 7], [BINARY, b"x" * rng.randrange(20)], [LIST, [STRUCT, []]], [TRUE, None]]
        fields[at][1] = rng.choice(new)
    elif how == 4:
        new = [[STRUCT, [[1, [STRUCT, []]]]], [STRUCT, [[2, [STRUCT, []]]]], [I64, rng.randrange(10)]]
        fields.append([rng.randrange(1, 20), rng.choice(new)])
    else:
        rng.shuffle(fields)
