"""NCCL between GPUs: grouped sends and receives of device memory, started over the transport beneath."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..errors import CommError, GcylonError
from .device_overlay import QueuedOverlay
from .device_waits import DeviceWaits
from .transport import Receive, Send, Transport, Window, first_failure, split_view

_UINT8 = 1  # ncclUint8
_MESSAGE_BYTES = 2**30


class NcclTransport(QueuedOverlay):
    """Device memory by NCCL, everything else by the transport beneath.

    Collective: all ranks call it. Ranks must have a GPU each. The communicator is made and used once here, so
    that no operation pays for that.

    Parameters
    ----------
    base : Transport
        Carries agreements and texts, and NCCL's first meeting.
    peers : collection of int, optional
        The ranks that this one exchanges with: all by default.

    Raises
    ------
    CommError
        On all ranks, if NCCL cannot be started on one.
    """

    name = "NCCL"

    def __init__(self, base: Transport, peers: Collection[int] | None = None) -> None:
        import cupy

        self._peers = [rank for rank in (range(base.size) if peers is None else peers) if rank != base.rank]
        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True, priority=-1)
        super().__init__(base, DeviceWaits(base, [self._stream]))
        self._comm: Any = None
        self._start()

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. Queue one group of sends and receives; returns before they are done."""
        self.base.check()
        own = [s.view for s in sends if s.rank == self.rank]
        room = [r.view for r in receives if r.rank == self.rank]
        self._waits.let_streams_follow()
        from cupy.cuda import nccl

        nccl.groupStart()
        try:
            for receive in receives:
                if receive.rank != self.rank:
                    for part in split_view(receive.view, _MESSAGE_BYTES):
                        self._comm.recv(part.data.ptr, part.nbytes, _UINT8, receive.rank, self._stream.ptr)
            for send in sends:
                if send.rank != self.rank:
                    for part in split_view(send.view, _MESSAGE_BYTES):
                        self._comm.send(part.data.ptr, part.nbytes, _UINT8, send.rank, self._stream.ptr)
        finally:
            nccl.groupEnd()
        for source, target in zip(own, room, strict=True):
            if source.nbytes:
                target.data.copy_from_device_async(source.data, source.nbytes, self._stream)
        self._waits.note_queued()
        self._kept.append(receives)
        self._sent.append(sends)

    def recover(self) -> None:
        """Collective: all ranks call it. Abort NCCL's communicator, let the base recover, and make a new one."""
        # What is under way would wait for ever for a rank that has left.
        if self._comm is not None:
            self._comm.abort()
            self._comm = None
        self._stream.synchronize()
        self.base.recover()
        self._forget()
        self._start()

    def close(self) -> None:
        """Abort the communicator, which needs nobody else. Idempotent."""
        if self._comm is not None:
            self._comm.abort()
            self._comm = None
        self._forget()
        self.base.close()

    def _start(self) -> None:
        """Make the communicator and use it once; all ranks succeed or all fail."""
        failure, ident = "", b""
        try:
            from cupy.cuda import nccl

            if self.rank == 0:
                ident = _to_bytes(nccl.get_unique_id())
        except Exception as error:
            failure = _reason(error)
        idents = self.base.share(ident)
        self._agree_on(failure)
        try:
            self._comm = nccl.NcclCommunicator(self.size, idents[0], self.rank)
            word = self._cupy.zeros(1, dtype=self._cupy.uint8)
            self._comm.allReduce(word.data.ptr, word.data.ptr, 1, _UINT8, 0, self._stream.ptr)
            met = self._meet_everyone(nccl)
            self._waits.for_streams()
            del met  # what was sent and received has arrived
        except GcylonError:
            raise
        except Exception as error:
            failure = _reason(error)
        self._agree_on(failure)

    def _meet_everyone(self, nccl: Any) -> Any:
        """Send a byte to each peer and get one: connections are made by the first message, which takes a while."""
        words = self._cupy.zeros((2, self.size), dtype=self._cupy.uint8)
        nccl.groupStart()
        try:
            for rank in self._peers:
                self._comm.recv(words[0, rank:].data.ptr, 1, _UINT8, rank, self._stream.ptr)
                self._comm.send(words[1, rank:].data.ptr, 1, _UINT8, rank, self._stream.ptr)
        finally:
            nccl.groupEnd()
        return words

    def _agree_on(self, failure: str) -> None:
        failed = first_failure(self.base, failure)
        if failed:
            advice = "Use another transport for device memory (GCYLON_TRANSPORT=peer or host)."
            raise CommError(f"{failed}.", advice=advice)


def _reason(error: Exception) -> str:
    return f"NCCL cannot be started: {type(error).__name__}: {error}"


def _to_bytes(ident: Any) -> bytes:
    """A unique id as bytes; older releases of cupy give it as a tuple of C chars."""
    return ident if isinstance(ident, bytes) else bytes(value & 0xFF for value in ident)
