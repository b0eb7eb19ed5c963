"""Who may speak to mpiexec: the ranks that it starts, and nobody else (on Linux).

Open MPI's mpiexec listens on loopback for its ranks and on all interfaces for mpiexecs of other hosts. It does what it
is told there, and believes who callers say they are; none of its settings changes that. So the process that starts it
puts filters on its ports, through copies of its file descriptors (pidfd_getfd), which a process may have of those that
it started. A filter drops what does not come from a socket of a rank; a call counts for mpiexec once something has
passed. TCP sends again what a rank has said before the filter knew its socket. Where this user may not filter TCP,
calls must be signed (TCP-MD5), and sockets of ranks get the key once they have called in vain; a second later TCP calls
again.

mpiexec waits for the filters. It writes into a file where it listens, here a named pipe, and so waits until somebody
reads that; ranks then write their numbers into it, before they call. The ports for other hosts it makes later. But its
thread that greets callers waits for what each has to say, its main thread waits for that one again and again, and the
first caller is this process, which says too little.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_EVERY_S = 0.002
_BUSY = 3  # looks take at most a quarter of a core
_IDLE_S = 0.1
_PATIENCE_S = 10.0  # then mpiexec goes on without filters: it is another program than this one knows
_PIDFD_GETFD = 438  # of syscall(2), the same on every kind of machine
_SO_ATTACH_FILTER, _SO_DETACH_FILTER, _SO_PROTOCOL = 26, 27, 38
_SILENT_S = 3600  # so long a call without words does not count
# Ranks introduce themselves in 80 bytes. In two segments, of the fewest bytes that can be asked for, these come again
# after some milliseconds; in one, after 200.
_LEAST_SEGMENT = 88
# Of the kernel's machine language for filters: load a word, half a word, a byte, the length; and the like.
_WORD, _HALF, _BYTE, _LENGTH, _AND, _SHIFT, _KEEP, _LESS, _EQUAL, _RETURN = (
    0x20, 0x28, 0x30, 0x80, 0x54, 0x74, 0x07, 0x1C, 0x15, 0x06,
)  # fmt: skip
_IP_HEADER = 2**32 - 0x100000  # before it, where the TCP header is at 0
_ALL = 2**32 - 1

_TCP_MD5SIG, _TCP_MD5SIG_EXT, _MD5SIG_PREFIX, _KEY_BYTES, _SYN_SENT = 14, 32, 1, 80, 2
_ANY_IPV4_IN_IPV6 = b"\0" * 10 + b"\xff" * 2 + b"\0" * 4
_libc = ctypes.CDLL(None, use_errno=True)
_Line = tuple[int, int, int, int]


class _End(NamedTuple):
    """One end of a TCP connection."""

    family: int
    host: bytes
    port: int


class PortGuard(threading.Thread):
    """Lets only its ranks speak to an mpiexec that this process starts; once closed, nobody can connect to it any more.

    Where one process may not do so for another, as in many containers, all goes as without it.

    Parameters
    ----------
    pipe : Path
        The file of ``mpiexec --report-uri``, made here as a pipe: mpiexec waits for `watch`. Ranks `announce` there.
    reports : bool
        Whether mpiexec writes there. One that does not may hear others for some milliseconds.
    """

    def __init__(self, pipe: Path, *, reports: bool) -> None:
        super().__init__(name="gcylon-ports", daemon=True)
        os.mkfifo(pipe, 0o600)
        self._pipe = pipe
        self._reports = reports
        self._pid = 0
        self._closing = threading.Event()
        self._works = False

    def watch(self, pid: int) -> None:
        """Guard the process of this number, which has just been started."""
        self._pid = pid
        self.start()

    def close(self) -> bool:
        """Let nobody connect any more; connections stay. Idempotent.

        Returns
        -------
        bool
            Whether nobody but ranks was heard, and nobody can connect.
        """
        self._closing.set()
        if self.is_alive():
            self.join(_PATIENCE_S)
        return self._works

    def run(self) -> None:
        """Filter until `close`, or until mpiexec has ended."""
        with contextlib.ExitStack() as to_close:
            # It has ended, or the system does not allow this.
            with contextlib.suppress(OSError, psutil.Error):
                ports = to_close.enter_context(_Ports(self._pid))
                try:
                    self._guard(ports, to_close)
                    self._works = True
                except BaseException:
                    ports.open()
                    raise
            with contextlib.suppress(FileNotFoundError):  # the start has failed, and its folder is gone
                self._let_go(to_close)
            self._closing.wait()

    def _guard(self, ports: _Ports, to_close: contextlib.ExitStack) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not ports.look():
            self._wait(until)
        if self._reports:
            ports.call()
        announced = self._let_go(to_close)
        if self._reports:
            # Whenever its main thread needs the one that greets callers, it sleeps until the caller that says too
            # little has gone; then comes the next one. While all its threads sleep, none is just taking a call.
            found = False
            while not found:
                self._wait_for_sleep(until)
                found = ports.look()
                if found:
                    self._wait_for_sleep(until)
                    ports.look()
                ports.call()
            ports.hang_up()
        self._admit_ranks(ports, announced)
        ports.shut()

    def _admit_ranks(self, ports: _Ports, announced: int) -> None:
        text, spent, looked = b"", 0.0, 0.0
        while not self._closing.is_set():
            _readable(announced, max(_EVERY_S, _BUSY * spent) if ports.expects() else _IDLE_S)
            began = time.monotonic()
            with contextlib.suppress(BlockingIOError):
                *lines, text = (text + os.read(announced, 4096)).split(b"\n")
                for line in lines:
                    if line.isdigit():
                        ports.expect(int(line))
            ports.admit()
            if began > looked + _IDLE_S:
                ports.look()
                looked = began
            spent = time.monotonic() - began

    def _wait(self, until: float) -> None:
        if time.monotonic() > until or self._closing.wait(_EVERY_S):
            raise TimeoutError

    def _wait_for_sleep(self, until: float) -> None:
        """Wait until mpiexec waits for something, in each of its threads."""
        states = ""
        while states.strip("S") or not states:
            self._wait(until)
            files = Path(f"/proc/{self._pid}/task").glob("*/stat")
            states = "".join(file.read_text().rpartition(")")[2].split()[0] for file in files)

    def _let_go(self, to_close: contextlib.ExitStack) -> int:
        """Let mpiexec go on: it can open and write a pipe that somebody may read."""
        # Not by its end: it has none, also while nobody writes.
        pipe = os.open(self._pipe, os.O_RDWR | os.O_NONBLOCK)
        to_close.callback(os.close, pipe)
        return pipe


def announce(pipe: Path) -> None:
    """Tell a `PortGuard`, where there is one, that this process is a rank which is about to call mpiexec."""
    with contextlib.suppress(OSError):
        number = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        os.write(number, b"%d\n" % os.getpid())
        os.close(number)


class _Ports:
    """The ports of a process that this one has started, and who may call them."""

    def __init__(self, pid: int) -> None:
        self._sockets = _Sockets(pid)
        self._ports: dict[_End, int] = {}  # copies of the file descriptors
        self._expected: list[_Sockets] = []  # of ranks
        self._admitted: dict[_End, _Sockets] = {}
        self._own: dict[_End, socket.socket] = {}
        self._filters = True  # whether this user may filter TCP; on newer Linux root alone may, as seen with 6.18
        self._key = os.urandom(_KEY_BYTES)

    def __enter__(self) -> _Ports:
        return self

    def __exit__(self, *_: object) -> None:
        for sockets in (self._sockets, *self._expected, *self._admitted.values()):
            sockets.close()
        for caller in self._own.values():
            caller.close()
        for port in self._ports.values():
            os.close(port)

    def look(self) -> bool:
        """Filter what comes to new ports from now on, and turn away who has called before.

        Returns
        -------
        bool
            Whether there are new ports.
        """
        before = len(self._ports)
        for inode, copy in self._sockets.new():
            here = _end(copy, "getsockname")
            if here and _get(copy, socket.SO_ACCEPTCONN):
                self._sockets.known.add(inode)
                self._add(here, os.dup(copy))
        ports = {end.port for end in self._ports}
        for inode, copy in self._sockets.new():
            here, there = _end(copy, "getsockname"), _end(copy, "getpeername")
            if here and there and here.port in ports:
                self._sockets.known.add(inode)
                if there not in self._own and there not in self._admitted:
                    _turn_away(copy)
        return len(self._ports) > before

    def call(self) -> None:
        """Call the first port, as one who may, and say too little; then hang up what was such a call before."""
        port = next(iter(self._ports))
        host = socket.inet_ntop(port.family, port.host)
        caller = socket.socket(port.family)
        caller.settimeout(_PATIENCE_S)
        caller.bind((host, 0))
        before, end = list(self._own), _End(port.family, port.host, caller.getsockname()[1])
        self._own[end] = caller
        self._filter()
        if not self._filters:
            _sign(caller.fileno(), port, self._key)
        caller.connect((host, port.port))
        caller.sendall(b"\0")
        if not _readable(self._ports[port], _PATIENCE_S):  # until it waits there, mpiexec does not wait for it
            raise TimeoutError
        for one in before:
            self._own.pop(one).close()

    def hang_up(self) -> None:
        """End the call."""
        for caller in self._own.values():
            caller.close()
        self._own = {}
        self._filter()

    def expect(self, pid: int) -> None:
        """Expect a call of a rank."""
        with contextlib.suppress(ProcessLookupError):
            self._expected.append(_Sockets(pid))

    def expects(self) -> bool:
        """Whether a rank has not called yet."""
        return bool(self._expected)

    def admit(self) -> None:
        """Let ranks speak that have called, while they live."""
        ended = [end for end, rank in self._admitted.items() if rank.has_ended()]
        for end in ended:
            self._admitted.pop(end).close()
        expected, self._expected = self._expected, []
        for rank in expected:
            calls = [here for _, copy in rank.new() if (here := self._caller(copy))]
            if calls:
                self._admitted[calls[0]] = rank
            elif rank.has_ended():
                rank.close()
            else:
                self._expected.append(rank)
        if ended or len(self._expected) < len(expected):
            self._filter()

    def shut(self) -> None:
        """Let nobody connect."""
        for port in self._ports.values():
            _require_signatures(port, os.urandom(_KEY_BYTES))

    def open(self) -> None:
        """Take all filters off again."""
        for port in self._ports.values():
            with contextlib.suppress(OSError):
                _set(port, _SO_DETACH_FILTER, 0)
                _set(port, socket.TCP_DEFER_ACCEPT, 0, socket.IPPROTO_TCP)
        for _, copy in self._sockets.new():
            with contextlib.suppress(OSError):  # it has none
                _set(copy, _SO_DETACH_FILTER, 0)

    def _add(self, end: _End, port: int) -> None:
        self._ports[end] = port
        if not any(end.host):  # on all interfaces it is for other hosts
            _require_signatures(port, os.urandom(_KEY_BYTES))
        else:
            try:
                self._filter()
                _set(port, socket.TCP_DEFER_ACCEPT, _SILENT_S, socket.IPPROTO_TCP)
                _set(port, socket.TCP_MAXSEG, _LEAST_SEGMENT, socket.IPPROTO_TCP)
            except PermissionError:
                self._filters = False
                _require_signatures(port, self._key)
        os.set_blocking(port, False)  # as mpiexec does
        while (caller := _libc.accept4(port, None, None, os.O_CLOEXEC)) >= 0:  # who has called before
            os.close(caller)

    def _filter(self) -> None:
        for end, port in self._ports.items():
            if any(end.host) and self._filters:
                _attach(port, _from([*self._own, *self._admitted], end))

    def _caller(self, copy: int) -> _End | None:
        """Where a socket of a rank is that calls a port."""
        here = _end(copy, "getsockname")
        if self._filters:
            return here if _end(copy, "getpeername") in self._ports else None
        # A call that has had no answer yet, though it is within this host, can be one to a port that wants signatures
        # alone; it is made once more after a second, and then it has one.
        port = next(iter(self._ports))
        if here and here[:2] == port[:2] and _get(copy, socket.TCP_INFO, socket.IPPROTO_TCP) & 0xFF == _SYN_SENT:
            _sign(copy, port, self._key)
            return here
        return None


class _Sockets:
    """The TCP sockets of another process of this user."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._process = os.pidfd_open(pid)
        self.known: set[str] = set()  # inodes of those that need no look any more

    def close(self) -> None:
        """Give the process up."""
        os.close(self._process)

    def has_ended(self) -> bool:
        """Whether the process has."""
        return _readable(self._process, 0.0)

    def new(self) -> Iterator[tuple[str, int]]:
        """Those that are not known, by inode: copies of the file descriptors, for as long as one is looked at."""
        if self.has_ended():
            return
        for number in os.listdir(f"/proc/{self._pid}/fd"):
            inode = _inode(f"/proc/{self._pid}/fd/{number}")
            if inode and inode not in self.known and (copy := self._copy(int(number))) >= 0:
                try:
                    if _inode(f"/proc/self/fd/{copy}") == inode and _get(copy, _SO_PROTOCOL) == socket.IPPROTO_TCP:
                        yield inode, copy
                    else:
                        self.known.add(inode)
                finally:
                    os.close(copy)

    def _copy(self, number: int) -> int:
        copy: int = _libc.syscall(_PIDFD_GETFD, self._process, number, 0)
        if copy < 0 and ctypes.get_errno() != errno.EBADF:  # it has just been closed
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return copy


def can_guard_ports() -> bool:
    """Whether a `PortGuard` works here, tried on a process that is made for it."""
    code = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(flush=True); sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            with _Ports(child.pid) as ports:
                ports.look()
                ports.call()
                ports.shut()
                return True
        except OSError:
            return False
        finally:
            child.kill()


def _readable(number: int, seconds: float) -> bool:
    """Wait for something to read."""
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _inode(path: str) -> str:
    """That of the socket to which a file descriptor leads; "" for something else."""
    try:
        kind, _, inode = os.readlink(path).partition(":")
    except FileNotFoundError:
        return ""
    return inode.strip("[]") if kind == "socket" else ""


def _end(number: int, which: str) -> _End | None:
    """Where a socket is, by getsockname(2) or getpeername(2); None for one that is not connected."""
    # With a default timeout, a socket object of Python's would change how mpiexec reads.
    place, size = ctypes.create_string_buffer(128), ctypes.c_uint32(128)
    if getattr(_libc, which)(number, place, ctypes.byref(size)):
        return None
    (family,), (port,) = struct.unpack_from("=H", place), struct.unpack_from("!H", place, 2)
    return _End(family, place.raw[4:8] if family == socket.AF_INET else place.raw[8:24], port)


def _require_signatures(port: int, key: bytes) -> None:
    """Drop calls that are not signed with a key, as TCP-MD5 does."""
    here = _end(port, "getsockname")
    family = socket.AF_INET if here is None else here.family
    for callers in (bytes(16), _ANY_IPV4_IN_IPV6)[: 1 + (family == socket.AF_INET6)]:
        # The address of any caller, then flags, the bits of it that count, the key's length, no interface.
        address = struct.pack("=HHI", family, 0, 0) + callers
        signed = struct.pack("=128sBBHi", address, _MD5SIG_PREFIX, 0, len(key), 0) + key
        _set(port, _TCP_MD5SIG_EXT, signed, socket.IPPROTO_TCP)


def _sign(caller: int, port: _End, key: bytes) -> None:
    """Sign what a socket says to a port."""
    host = port.host if port.family == socket.AF_INET else bytes(4) + port.host
    address = struct.pack("=HH", port.family, 0) + host
    _set(caller, _TCP_MD5SIG, struct.pack("=128sBBHi", address, 0, 0, len(key), 0) + key, socket.IPPROTO_TCP)


def _turn_away(connection: int) -> None:
    """End a connection, so that nothing more comes, and what came before is not read."""
    _libc.shutdown(connection, socket.SHUT_RDWR)
    unread = ctypes.create_string_buffer(1 << 16)
    while _libc.recv(connection, unread, len(unread), socket.MSG_DONTWAIT) > 0:
        pass


def _from(callers: list[_End], port: _End) -> list[_Line]:
    """A filter that drops what has data, and comes from another socket."""
    lines = [
        (_BYTE, 0, 0, 12),  # in its upper half, the length of the TCP header in words
        (_AND, 0, 0, 0xF0),
        (_SHIFT, 0, 0, 2),
        (_KEEP, 0, 0, 0),
        (_LENGTH, 0, 0, 0),
        (_LESS, 0, 0, 0),
        (_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALL),
    ]
    # On this host a caller has the address that it calls.
    at = _IP_HEADER + (12 if port.family == socket.AF_INET else 8)
    for part in range(0, len(port.host), 4):
        lines += [
            (_WORD, 0, 0, at + part),
            (_EQUAL, 1, 0, *struct.unpack_from("!I", port.host, part)),
            (_RETURN, 0, 0, 0),
        ]
    lines.append((_HALF, 0, 0, 0))  # its port
    for caller in callers:
        lines += [(_EQUAL, 0, 1, caller.port), (_RETURN, 0, 0, _ALL)]
    return [*lines, (_RETURN, 0, 0, 0)]


def _attach(number: int, lines: list[_Line]) -> None:
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    _set(number, _SO_ATTACH_FILTER, struct.pack("@HP", len(lines), ctypes.addressof(program)))


def _set(number: int, option: int, value: int | bytes, level: int = socket.SOL_SOCKET) -> None:
    value = value if isinstance(value, bytes) else struct.pack("i", value)
    if _libc.setsockopt(number, level, option, value, len(value)):
        raise OSError(ctypes.get_errno(), f"setsockopt {option}")


def _get(number: int, option: int, level: int = socket.SOL_SOCKET) -> int:
    value, size = ctypes.c_int(), ctypes.c_uint32(4)
    if _libc.getsockopt(number, level, option, ctypes.byref(value), ctypes.byref(size)):
        raise OSError(ctypes.get_errno(), f"getsockopt {option}")
    return value.value
