"""How rows travel between ranks: for device memory the fastest way that works, or the one that was asked for."""

from __future__ import annotations

from typing import Any

from ..comm.transport import Transport
from ..config import TRANSPORT_VARIABLE
from ..errors import CommError

DEVICE_TRANSPORTS = ("auto", "peer", "nccl", "host")
_HOST_ROUTES = {"mpi": "MPI", "threads": "copies between threads", "single": "nothing (there is one rank)"}


def name_host_route(transport: Transport) -> str:
    """Say in words how rows in ordinary memory travel."""
    return _HOST_ROUTES.get(transport.name, transport.name)


def choose_route(
    transport: Transport, device: Any, pool: Any, route: str = "auto", *, one_host: bool
) -> tuple[Transport, str]:
    """Collective: all ranks call it. Choose how device memory travels, the same on all ranks.

    Returns
    -------
    Transport, str
        And why, in words.

    Raises
    ------
    CommError
        If what was asked for cannot be used, on all ranks.
    """
    from ..comm.cuda_ipc import PeerTransport
    from ..comm.host_staged import HostStagedTransport
    from ..comm.nccl import NcclTransport

    if transport.name != "mpi":
        return transport, "because all ranks are in one process"
    slab = (device.slab.base, device.slab.nbytes)
    makers: dict[str, Any] = {
        "peer": lambda: PeerTransport(transport, slab),
        "nccl": lambda: NcclTransport(transport),
        "host": lambda: HostStagedTransport(transport, lambda nbytes: pool.take(nbytes, "rows on their way")),
    }
    if route != "auto":
        try:
            return makers[route](), f"because {TRANSPORT_VARIABLE}={route}"
        except CommError as error:
            error.message = f"{TRANSPORT_VARIABLE}={route} was asked for, but {error.message}"
            raise
    reasons: list[str] = []
    for name in ("peer", "nccl") if one_host else ("nccl",):
        try:
            return makers[name](), "; ".join(["because it is the fastest that works", *reasons])
        except CommError as error:
            reasons.append(error.message.rstrip("."))
    return makers["host"](), "; ".join(["because nothing faster works", *reasons])
