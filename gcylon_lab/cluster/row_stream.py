"""Rows on their way between the notebook and its ranks: in messages of some megabytes, against credits.

A receiver grants so many bytes; a sender that has used them up waits until the receiver has worked on most of them.
So neither side holds more than was granted, however large the table. The messages go over a Unix socket in the
cluster's own folder, which no other user can enter, and not through the controller. Where ranks are on other hosts it
is a TCP port for the one request, encrypted by CurveZMQ: who connects must know its key, which is new for each, is
never sent in clear, and comes with the request.
"""

from __future__ import annotations

import os
import pickle
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import zmq

from ..backends.host.packing import pack_whole, unpack
from ..backends.protocol.data import Columns, bounded, concat_columns
from ..backends.protocol.schema import Schema
from ..errors import GcylonError

MESSAGE_BYTES = 4_000_000
_POLL_MS = 50
_LINGER_MS = 2_000
_LEAST_MESSAGE_BYTES = 16 * 1024
_IN_WINDOW = 4  # messages: one is worked on while others are on their way

# What a message begins with.
_HELLO, _GRANT, _ROWS, _END = b"hello", b"grant", b"rows", b"end"
_FAILED, _LEFT, _STOP = b"failed", b"left", b"stop"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a notebook's end is, as a request carries it to the ranks."""

    folder: str
    name: str
    key: bytes = b""  # of a port, whose address is the name


def _message_bytes(window_bytes: int) -> int:
    return min(MESSAGE_BYTES, max(_LEAST_MESSAGE_BYTES, window_bytes // _IN_WINDOW))


@contextmanager
def _path_to(address: Address) -> Iterator[str]:
    """A name for the socket's file: a folder's own may be longer than the 107 bytes that the system takes."""
    if address.key:
        yield address.name
        return
    if not os.path.isdir("/proc/self/fd"):
        yield f"ipc://{address.folder}/{address.name}"
        return
    folder = os.open(address.folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"ipc:///proc/self/fd/{folder}/{address.name}"
    finally:
        os.close(folder)


class Sender:
    """What one end sends to another: rows while credit lasts.

    Parameters
    ----------
    put : callable
        Sends the parts of one message.
    """

    def __init__(self, put: Callable[[Sequence[Any]], None]) -> None:
        self._put = put
        self._schema: Schema | None = None
        self._last: list[bytes] = []
        self.credit_bytes = 0
        self.sent_bytes = self.sent_rows = 0

    @property
    def ended(self) -> bool:
        """Whether the last message was sent."""
        return bool(self._last)

    @property
    def may_send(self) -> bool:
        """Whether there is credit; the last message may be larger than what is left of it."""
        return self.credit_bytes > 0 and not self.ended

    def send(self, data: Columns) -> None:
        """Send rows as one message."""
        buffers = pack_whole(data)
        nbytes = sum(len(buffer) for buffer in buffers)
        schema = None if data.schema == self._schema else data.schema
        self._put([_ROWS, pickle.dumps((schema, data.rows, nbytes)), *buffers])
        self._schema = data.schema
        self.credit_bytes -= max(1, nbytes)
        self.sent_bytes += nbytes
        self.sent_rows += data.rows

    def end(self) -> None:
        """All is sent. Idempotent."""
        self._finish([_END])

    def fail(self, text: str) -> None:
        """What makes the rows has failed."""
        self._finish([_FAILED, text.encode()])

    def repeat_end(self) -> None:
        """Say again how it ended, to a receiver that was not there yet."""
        if self.ended:
            self._put(self._last)

    def _finish(self, parts: list[bytes]) -> None:
        if not self.ended:
            self._last = parts
            self._put(parts)


class Receiver:
    """What one end gets from another, and the credit that it grants.

    Parameters
    ----------
    put : callable
        Sends the parts of one message.
    high_bytes : int
        Granted at first, and the most that is ever under way. The half of it is the low mark: credit goes back once
        no more than that is.
    """

    def __init__(self, put: Callable[[Sequence[Any]], None], high_bytes: int) -> None:
        self._put = put
        self._schema: Schema | None = None
        self._low_bytes = high_bytes // 2
        self._worked_on = 0
        self.ended = False
        self._put([_GRANT, b"%d" % high_bytes])

    def take(self, parts: Sequence[Any]) -> tuple[Columns, int]:
        """The rows of a message, over its memory, and its bytes."""
        schema, rows, nbytes = pickle.loads(parts[1])
        self._schema = self._schema if schema is None else schema  # one of no columns is false
        assert self._schema is not None
        return unpack(self._schema, rows, [memoryview(part).cast("B") for part in parts[2:]]), nbytes

    def worked_on(self, nbytes: int) -> None:
        """So many bytes are no longer in memory as messages."""
        self._worked_on += max(1, nbytes)
        if self._worked_on >= self._low_bytes:
            self._put([_GRANT, b"%d" % self._worked_on])
            self._worked_on = 0


class RankEnd:
    """A rank's end. Used in a ``with`` block, by one thread.

    Parameters
    ----------
    address : Address
        Of the notebook's end.
    rank : int
    window_bytes : int
        The most that this rank will have on its way.
    check : callable
        Raises where this rank must leave what it waits for.
    """

    def __init__(self, address: Address, rank: int, window_bytes: int, check: Callable[[], None]) -> None:
        self._check = check
        self._window_bytes = window_bytes
        self._done = False
        self._socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, b"%d" % rank)
        self._socket.setsockopt(zmq.LINGER, _LINGER_MS)
        self._socket.set_hwm(0)  # credits bound what is under way
        if address.key:
            public, secret = zmq.curve_keypair()
            options = {zmq.CURVE_PUBLICKEY: public, zmq.CURVE_SECRETKEY: secret, zmq.CURVE_SERVERKEY: address.key}
            for option, value in options.items():
                self._socket.setsockopt(option, value)
        try:
            with _path_to(address) as path:
                self._socket.connect(path)
                self._put([_HELLO, b"%d" % window_bytes])
                self._next()  # only once it is connected is the path no longer needed
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> RankEnd:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._done:
            self._put([_LEFT])
        self._socket.close()

    def receive(self, piece_bytes: int) -> Iterator[Columns]:
        """Give the rows that the notebook sends, in pieces of about so many bytes, each in memory of its own."""
        receiver = Receiver(self._put, self._window_bytes)
        waiting: list[Columns] = []
        size = 0
        while True:
            parts = self._next()
            kind = bytes(parts[0])
            if kind == _ROWS:
                data, nbytes = receiver.take(parts)
                if waiting and data.schema != waiting[0].schema:
                    yield concat_columns(waiting)
                    waiting, size = [], 0
                waiting.append(data)
                size += nbytes
                del data, parts
                receiver.worked_on(nbytes)
                if size >= piece_bytes:
                    piece = concat_columns(waiting)
                    waiting, size = [], 0
                    yield piece
                    del piece
            elif kind == _END:
                if waiting:
                    yield concat_columns(waiting)
                self._done = True
                return
            elif kind == _FAILED:
                self._done = True
                raise GcylonError(f"What makes the rows has failed: {bytes(parts[1]).decode()}")

    def send(self, pieces: Iterable[Columns]) -> None:
        """Send pieces while the notebook grants credit; returns once all is sent, or it wants no more."""
        sender = Sender(self._put)
        message_bytes = _message_bytes(self._window_bytes)
        for piece in pieces:
            for data in bounded(piece, message_bytes, None):
                while not sender.may_send:
                    parts = self._next()
                    if bytes(parts[0]) == _STOP:
                        self._done = True
                        return
                    sender.credit_bytes += int(bytes(parts[1]))
                sender.send(data)
        sender.end()
        self._done = True

    def _put(self, parts: Sequence[Any]) -> None:
        self._socket.send_multipart(list(parts), copy=False)

    def _next(self) -> list[Any]:
        while not self._socket.poll(_POLL_MS):
            self._check()
        return [frame.buffer for frame in self._socket.recv_multipart(copy=False)]


class NotebookEnd:
    """The notebook's end, which all ranks of one request connect to. Used in a ``with`` block, by one thread.

    Parameters
    ----------
    folder : Path
        The cluster's own.
    size : int
        Ranks.
    host : str, optional
        The address of this host at which ranks on others reach it.
    """

    def __init__(self, folder: Path, size: int, host: str = "") -> None:
        self.size = size
        self._socket: Any = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.set_hwm(0)
        if host:
            key, secret = zmq.curve_keypair()
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
            self._socket.setsockopt(zmq.CURVE_SERVER, 1)
            self.address = Address("", f"tcp://{host}:{self._socket.bind_to_random_port(f'tcp://{host}')}", key)
            return
        self.address = Address(str(folder), f"rows-{secrets.token_hex(8)}")
        with _path_to(self.address) as path:
            self._socket.bind(path)

    def __enter__(self) -> NotebookEnd:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        with suppress(OSError):  # a port has no file
            os.unlink(os.path.join(self.address.folder, self.address.name))

    def put(self, rank: int, parts: Sequence[Any]) -> None:
        """Send a message to a rank; nothing where it is gone, which its request tells."""
        with suppress(zmq.ZMQError):
            self._socket.send_multipart([b"%d" % rank, *parts], copy=False)

    def came(self, timeout_s: float) -> Iterator[tuple[int, bytes, list[Any]]]:
        """Give the messages that are there, waiting for the first: of which rank, of which kind, and their parts."""
        wait_ms = max(0, int(1000 * timeout_s))
        while self._socket.poll(wait_ms):
            identity, *frames = self._socket.recv_multipart(copy=False)
            parts = [frame.buffer for frame in frames]
            yield int(bytes(identity.buffer)), bytes(parts[0]), parts
            wait_ms = 0


class RowSource(Protocol):
    """Where rows for the ranks come from."""

    def waits(self, rank: int) -> bool:
        """Whether the next rows are for another rank."""
        ...

    def next(self, rank: int, most_bytes: int) -> Columns | None:
        """The next rows for a rank, of about so many bytes at the most; None where there are no more."""
        ...


class NotYet(Exception):
    """The next rows of a source are still being made."""


class ThreadedSource:
    """A source that is read in a thread of its own, so that one that blocks holds up nobody; `close` does not wait.

    Parameters
    ----------
    source : RowSource
    inside : callable
        Gives what that thread is in while it reads.
    """

    def __init__(self, source: RowSource, inside: Callable[[], AbstractContextManager[None]]) -> None:
        self._source, self._inside = source, inside
        self._asked: queue.SimpleQueue[tuple[int, int, Future[Columns | None]] | None] = queue.SimpleQueue()
        self._rank = -1
        self._answer: Future[Columns | None] | None = None
        self._thread: threading.Thread | None = None

    def waits(self, rank: int) -> bool:
        """Whether the next rows are for another rank, one that has asked already first."""
        return self._source.waits(rank) if self._answer is None else rank != self._rank

    def next(self, rank: int, most_bytes: int) -> Columns | None:
        """The next rows, if they are there soon.

        Raises
        ------
        NotYet
            If they are not: to be asked again.
        """
        if self._answer is None:
            self._rank, self._answer = rank, Future()
            self._asked.put((rank, most_bytes, self._answer))
            if self._thread is None:
                self._thread = threading.Thread(target=self._read, name="gcylon-rows", daemon=True)
                self._thread.start()
        answer = self._answer
        if rank != self._rank or not wait([answer], _POLL_MS / 1000).done:
            raise NotYet
        self._answer = None
        return answer.result()

    def close(self) -> None:
        """Read no more, once what is being read is there."""
        self._asked.put(None)

    def _read(self) -> None:
        with self._inside():
            while (asked := self._asked.get()) is not None:
                rank, most_bytes, answer = asked
                try:
                    answer.set_result(self._source.next(rank, most_bytes))
                except BaseException as error:  # raised where the rows are sent
                    answer.set_exception(error)
                del asked, answer


class Sending:
    """The notebook sends: called again and again while the request runs on the ranks.

    Parameters
    ----------
    end : NotebookEnd
    source : RowSource

    Attributes
    ----------
    error : Exception or None
        What the source raised. The ranks were told.
    """

    def __init__(self, end: NotebookEnd, source: RowSource) -> None:
        self._end = end
        self._source = source
        self._senders = [Sender(partial(end.put, rank)) for rank in range(end.size)]
        self._message_bytes = [MESSAGE_BYTES] * end.size
        self._to_come = set(range(end.size))  # ranks that are not connected yet: they wait for an answer
        self._last = -1  # the rank that was given rows last
        self.error: Exception | None = None

    @property
    def sent_bytes(self) -> int:
        """So far, to all ranks."""
        return sum(sender.sent_bytes for sender in self._senders)

    @property
    def sent_rows(self) -> int:
        """So far, to all ranks."""
        return sum(sender.sent_rows for sender in self._senders)

    def __call__(self, timeout_s: float) -> bool:
        """Send what credit allows, waiting at most so long for it; returns whether anything is left to do."""
        until = time.monotonic() + timeout_s
        while self._to_come or any(not sender.ended for sender in self._senders):
            ranks = [*range(self._last + 1, self._end.size), *range(self._last + 1)]  # all take turns
            ready = [rank for rank in ranks if self._senders[rank].may_send and not self._source.waits(rank)]
            left_s = until - time.monotonic()
            for rank, kind, parts in self._end.came(0 if ready else max(0.0, left_s)):
                self._heard(rank, kind, parts)
            for rank in ready:
                self._feed(rank)
            if left_s <= 0:
                return True
        for _ in self._end.came(0):  # credits for what is already sent
            pass
        return False

    def _heard(self, rank: int, kind: bytes, parts: Sequence[Any]) -> None:
        sender = self._senders[rank]
        if kind == _HELLO:
            self._message_bytes[rank] = _message_bytes(int(bytes(parts[1])))
            self._to_come.discard(rank)
            self._end.put(rank, [_HELLO])
            sender.repeat_end()
        elif kind == _GRANT:
            sender.credit_bytes += int(bytes(parts[1]))
        elif kind == _LEFT:
            # Its error is told once all ranks are at the next agreement.
            for other in self._senders:
                other.end()

    def _feed(self, rank: int) -> None:
        sender = self._senders[rank]
        if sender.ended:
            return
        try:
            data = self._source.next(rank, self._message_bytes[rank])
        except NotYet:
            return
        except Exception as error:
            self.error = error
            for other in self._senders:
                other.fail(f"{type(error).__name__}: {error}")
            return
        self._last = rank
        if data is None:
            sender.end()
        else:
            sender.send(data)


class Receiving:
    """The notebook receives: called again and again while the request runs on the ranks.

    Parameters
    ----------
    end : NotebookEnd
    high_bytes : int
        The most that is on its way from all ranks together.
    take : callable
        Gets the rank, and rows of it, in order.
    """

    def __init__(self, end: NotebookEnd, high_bytes: int, take: Callable[[int, Columns], None]) -> None:
        self._end = end
        self._take = take
        self._high_bytes = max(1, high_bytes // end.size)
        self._receivers: dict[int, Receiver] = {}
        self._ended: set[int] = set()
        self.bytes = self.rows = 0

    @property
    def complete(self) -> bool:
        """Whether all ranks have sent all."""
        return len(self._ended) == self._end.size

    def __call__(self, timeout_s: float) -> bool:
        """Take what comes, waiting at most so long; returns whether anything is to come yet."""
        until = time.monotonic() + timeout_s
        while not self.complete:
            left_s = until - time.monotonic()
            for rank, kind, parts in self._end.came(max(0.0, left_s)):
                self._heard(rank, kind, parts)
            if left_s <= 0:
                return True
        return False

    def _heard(self, rank: int, kind: bytes, parts: Sequence[Any]) -> None:
        if kind == _HELLO:
            self._end.put(rank, [_HELLO])
            high_bytes = min(self._high_bytes, int(bytes(parts[1])))
            self._receivers[rank] = Receiver(partial(self._end.put, rank), high_bytes)
        elif kind == _ROWS:
            receiver = self._receivers[rank]
            data, nbytes = receiver.take(parts)
            self._take(rank, data)
            self.bytes += nbytes
            self.rows += data.rows
            receiver.worked_on(nbytes)
        elif kind == _END:
            self._ended.add(rank)
        elif kind == _LEFT:
            self._ended.add(rank)
            for other in self._receivers.keys() - self._ended:
                self._end.put(other, [_STOP])
