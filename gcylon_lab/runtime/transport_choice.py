"""How rows travel between ranks: for device memory the fastest way that works, or the one that was asked for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..comm.transport import Transport
from ..config import TRANSPORT_VARIABLE
from ..errors import CommError

DEVICE_TRANSPORTS = ("auto", "peer", "nccl", "host", "peer+nccl", "peer+host")
MPI_BETWEEN_HOSTS = "self,sm,tcp"  # of Open MPI's transports: shared memory inside hosts, TCP between them
_ON_A_HOST = ("peer", "nccl", "host")
_HOST_ROUTES = {"mpi": "MPI", "threads": "copies between threads", "single": "nothing (there is one rank)"}


def name_host_route(transport: Transport, hosts: Sequence[str]) -> str:
    """Say in words how rows in ordinary memory travel."""
    name = _HOST_ROUTES.get(transport.name, transport.name)
    if len(set(hosts)) > 1 and os.environ.get("OMPI_MCA_btl") == MPI_BETWEEN_HOSTS:
        name += ", by shared memory inside hosts and TCP between them"
    return name


def choose_route(
    transport: Transport, device: Any, pool: Any, hosts: Sequence[str], gpus: Sequence[str], route: str = "auto"
) -> tuple[Transport, str]:
    """Collective: all ranks call it. Choose how device memory travels, the same on all ranks.

    Ranks of one host reach each other's memory; over several hosts these pairs of ranks go by peer puts, and the
    others by NCCL or host memory.

    Parameters
    ----------
    transport : Transport
        Carries all else.
    device : Device
        Whose slab others may write into.
    pool : PinnedPool
        Of host memory.
    hosts, gpus : sequence of str
        Every rank's; ranks that share a GPU have the same.
    route : str
        One of `DEVICE_TRANSPORTS`.

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
    from ..comm.device_overlay import ByHostTransport
    from ..comm.host_staged import HostStagedTransport
    from ..comm.nccl import NcclTransport

    if transport.name != "mpi":
        return transport, "because all ranks are in one process"
    slab = (device.slab.base, device.slab.nbytes)
    peers = [rank for rank, host in enumerate(hosts) if host == hosts[transport.rank]]
    others = [rank for rank in range(transport.size) if rank not in peers]
    several, shared = len(set(hosts)) > 1, max(Counter(hosts).values()) > 1
    makers: dict[str, Any] = {
        "peer": lambda: PeerTransport(transport, slab),
        "nccl": lambda: nccl(None),
        "nccl between": lambda: nccl(others),
        "host": lambda: HostStagedTransport(transport, lambda nbytes: pool.take(nbytes, "rows on their way")),
    }

    def nccl(ranks: list[int] | None) -> Transport:
        # Where only some share one, NCCL fails on these, and the others wait for them for ever.
        _check_gpus(gpus)
        return NcclTransport(transport, ranks)

    def add_peers(far: Any) -> Transport:
        return ByHostTransport(PeerTransport(far, slab, peers), far, peers)

    if route != "auto":
        near, _, far = route.partition("+")
        why = f"because {TRANSPORT_VARIABLE}={route}"
        try:
            if far and several and shared:
                return add_peers(makers["nccl between" if far == "nccl" else far]()), why
            if far:
                why += " and each rank is on a host of its own" if several else " and all ranks are on one host"
            return makers[far if far and several else near](), why
        except CommError as error:
            error.message = f"{TRANSPORT_VARIABLE}={route} was asked for, but {error.message}"
            raise
    made, reasons = _first_that_works(makers, ("nccl between" if shared else "nccl", "host") if several else _ON_A_HOST)
    if several and shared:
        try:
            made = add_peers(made)
        except CommError as error:
            reasons.append(error.message.rstrip("."))
    why = "because nothing faster works" if made.name == "host memory" else "because it is the fastest that works"
    return made, "; ".join([why, *reasons])


def _check_gpus(gpus: Sequence[str]) -> None:
    """Refuse what NCCL refuses: ranks that share a GPU."""
    for gpu, count in Counter(gpus).items():
        if count > 1:
            sharing = ", ".join(str(rank) for rank, other in enumerate(gpus) if other == gpu)
            advice = f"Start fewer ranks, or use another transport ({TRANSPORT_VARIABLE}=peer or host)."
            raise CommError(f"NCCL wants a GPU for each rank, and ranks {sharing} share one.", advice=advice)


def _first_that_works(makers: Mapping[str, Callable[[], Any]], names: Sequence[str]) -> tuple[Any, list[str]]:
    """Collective: all ranks call it. A transport, and why those before it do not work."""
    reasons: list[str] = []
    for name in names[:-1]:
        try:
            return makers[name](), reasons
        except CommError as error:
            reasons.append(error.message.rstrip("."))
    return makers[names[-1]](), reasons
