"""One-sided puts between the GPUs of one host: copy engines write into the receivers' memory, by CUDA IPC."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import CommError
from .device_overlay import QueuedOverlay
from .device_waits import DeviceWaits
from .transport import Int64s, Receive, Send, Transport, Window, first_failure


class PeerTransport(QueuedOverlay):
    """Device memory by puts, everything else by the transport beneath.

    Every rank has one slab of device memory, out of which all its buffers come; its peers map it once,
    here. An exchange tells each sender where its bytes belong, and queues the copies; they run beside what
    the rank computes, on a stream for each receiver, and are complete after the next `finish`.

    Collective: all ranks call it.

    Parameters
    ----------
    base : Transport
        Carries agreements, texts and addresses.
    slab : tuple of int
        Address and bytes of this rank's slab, one allocation of cudaMalloc.
    peers : collection of int, optional
        The ranks that it exchanges with, itself too: all by default.

    Raises
    ------
    CommError
        On all ranks, if a rank cannot map a peer's slab.
    """

    name = "peer puts"

    def __init__(self, base: Transport, slab: tuple[int, int], peers: Collection[int] | None = None) -> None:
        import cupy

        priority = _highest_priority(cupy.cuda.runtime)
        self._streams = {
            rank: cupy.cuda.Stream(non_blocking=True, priority=priority)
            for rank in (range(base.size) if peers is None else sorted(peers))
        }
        super().__init__(base, DeviceWaits(base, list(self._streams.values())))
        self._cuda = cupy.cuda
        self._runtime = cupy.cuda.runtime
        self._slab = slab
        self._bases = self._open_all()

    def expose(self, buffers: Sequence[Any]) -> Window:
        """Let others write into these buffers until the next `finish`.

        Waits for this rank's stream: a pool hands out memory that work before may still touch.
        """
        self._waits.for_current_stream()
        self._kept.append(buffers)
        return Window(tuple(buffers))

    def places(self, window: Window) -> Int64s:
        """Where in this rank's slab its buffers are."""
        mine = [buffer.data.ptr - self._slab[0] if buffer.nbytes else 0 for buffer in window.buffers]
        return np.array(mine, dtype=np.int64)

    def open_window(self, window: Window, places: Int64s) -> Window:
        """A window with the addresses of every rank's buffers, as they are mapped here."""
        bases = [self._bases.get(rank, 0) for rank in range(self.size)]
        return Window(window.buffers, places + np.array(bases, dtype=np.int64)[:, None])

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. Queue puts into what receivers have exposed; returns before they are done."""
        if window is None or window.addresses is None:
            targets = self._meet(sends, receives)
        else:
            self.base.check()
            places = window.addresses
            targets = [int(places[s.rank, s.buffer]) + s.offset for s in sends]
        self._waits.let_streams_follow()
        # Each rank begins with its neighbour, so that they do not all write to the same one at first.
        for turn in sorted(range(len(sends)), key=lambda i: (sends[i].rank - self.rank - 1) % self.size):
            send, stream = sends[turn], self._streams[sends[turn].rank]
            if send.view.nbytes:
                source, nbytes = send.view.data.ptr, send.view.nbytes
                self._runtime.memcpyAsync(targets[turn], source, nbytes, _DEVICE_TO_DEVICE, stream.ptr)
        self._waits.note_queued()
        self._kept.append((receives, window))
        self._sent.append(sends)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Queue kernels on the current stream that write into open windows; complete as exchanges are."""
        self.base.check()
        with self._waits.writing():
            yield

    def recover(self) -> None:
        """Collective: all ranks call it. Wait for the copies under way, then let the base recover."""
        self._cuda.get_current_stream().synchronize()
        for stream in self._streams.values():
            stream.synchronize()
        self.base.recover()
        # Every rank has come here, so nobody writes into this rank's memory any more.
        self._forget()

    def close(self) -> None:
        """Unmap the others' slabs. Idempotent."""
        bases, self._bases = self._bases, {}
        for rank, address in bases.items():
            if rank != self.rank:
                self._runtime.ipcCloseMemHandle(address)
        self._forget()
        self.base.close()

    def _open_all(self) -> dict[int, int]:
        """Map every peer's slab; all ranks succeed or all fail."""
        handles = self.base.share(bytes(self._runtime.ipcGetMemHandle(self._slab[0])))
        bases: dict[int, int] = {}
        failure = ""
        for rank in self._streams:
            try:
                own = rank == self.rank
                bases[rank] = self._slab[0] if own else int(self._runtime.ipcOpenMemHandle(handles[rank]))
            except self._runtime.CUDARuntimeError as error:
                failure = failure or f"the GPU memory of rank {rank} cannot be mapped: {error}"
        failed = first_failure(self.base, failure)
        if failed:
            advice = "Use another transport for device memory (GCYLON_TRANSPORT=nccl or host)."
            raise CommError(f"{failed}.", advice=advice)
        return bases

    def _meet(self, sends: Sequence[Send], receives: Sequence[Receive]) -> list[int]:
        """Tell senders where their bytes belong; returns the address of each send's target, as mapped here."""
        rooms: list[list[int]] = [[] for _ in range(self.size)]
        for receive in receives:
            rooms[receive.rank].append(receive.view.data.ptr - self._slab[0] if receive.view.nbytes else 0)
        counts = np.bincount([send.rank for send in sends], minlength=self.size)
        mine = [np.array(offsets, dtype=np.int64) for offsets in rooms]
        theirs = [np.empty(count, dtype=np.int64) for count in counts]
        others = [rank for rank in self._streams if rank != self.rank]
        theirs[self.rank] = mine[self.rank]
        self.ground.exchange(
            None,
            [Send(rank, _bytes(mine[rank])) for rank in others if len(mine[rank])],
            [Receive(rank, _bytes(theirs[rank])) for rank in others if len(theirs[rank])],
        )
        next_of = [iter(offsets.tolist()) for offsets in theirs]
        return [self._bases[send.rank] + next(next_of[send.rank]) for send in sends]


_DEVICE_TO_DEVICE = 3


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return array.view(np.uint8).data


def _highest_priority(runtime: Any) -> int:
    try:
        return int(runtime.deviceGetStreamPriorityRange()[1])
    except AttributeError:  # cupy does not tell; -1 is there on every GPU
        return -1
