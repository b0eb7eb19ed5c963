"""What a rank works with: GPU or CPU, and the way device memory travels. Chosen together, with the reasons."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

from .comm.failures import first_failure
from .comm.transport import Transport
from .config import GcylonConfig
from .errors import CommError, ConfigError
from .memory.available import available_bytes
from .memory.budget import MemoryBudget
from .memory.device import DeviceUnavailable, free_bytes, open_device, why_unavailable
from .memory.lower import LowerTiers
from .memory.tiers import SpillStore
from .tables.backend import Backend
from .tables.pandas_backend import PandasBackend
from .units import GIB

ENGINES = ("auto", "cpu", "gpu")
DEVICE_TRANSPORTS = ("auto", "peer", "nccl", "host")
ENGINE_VARIABLE = "GCYLON_ENGINE"
TRANSPORT_VARIABLE = "GCYLON_TRANSPORT"
_PREFILLED_BYTES = GIB


@dataclass
class Equipment:
    """What one rank works with.

    Attributes
    ----------
    kind : str
        ``cpu`` or ``gpu``.
    where : str
        ``cpu``, or the GPU's name and the first part of its number.
    reason : str
        Why it is that kind, in words.
    route : str
        How rows travel between ranks, and why.
    """

    kind: str
    where: str
    reason: str
    route: str
    transport: Transport
    backend: Backend
    budget: MemoryBudget
    tiers: LowerTiers
    free_at_start_bytes: int
    device: Any = None
    pool: Any = None
    closers: list[Any] = field(default_factory=list)

    def close(self) -> None:
        """Give back what was opened, last first. Idempotent."""
        while self.closers:
            self.closers.pop()()


def equip(transport: Transport, config: GcylonConfig, engine: str = "", route: str = "") -> Equipment:
    """Collective: all ranks call it. Choose and open what all ranks work with: the same kind on each.

    Parameters
    ----------
    transport : Transport
        Carries votes; rows too, on CPU engines.
    config : GcylonConfig
        Its limit becomes the ceiling.
    engine : {"", "auto", "cpu", "gpu"}
        ``gpu`` is an error where a rank has none; "" reads ``GCYLON_ENGINE``.
    route : {"", "auto", "peer", "nccl", "host"}
        How device memory travels; "" reads ``GCYLON_TRANSPORT``.

    Raises
    ------
    ConfigError
        On all ranks, if a choice is unknown, or the GPU that was asked for is missing on one, with its reason.
    """
    engine = _known(ENGINE_VARIABLE, engine, ENGINES)
    route = _known(TRANSPORT_VARIABLE, route, DEVICE_TRANSPORTS)
    hosts = transport.share(transport.host.encode())
    local_size = hosts.count(transport.host.encode())
    if engine == "cpu":
        return _cpu(transport, config, local_size, "because GCYLON_ENGINE=cpu")
    reason = first_failure(transport, why_unavailable())
    if not reason:
        device, free, reason = _open_together(transport, config)
        if device is not None:
            return _gpu(transport, config, local_size, device, free, route)
    if engine == "gpu":
        raise ConfigError(
            f"GPU engines were asked for, but {reason}.", advice="Leave the engine on auto, or mend this (see doctor)."
        )
    return _cpu(transport, config, local_size, f"because {reason}")


def _cpu(transport: Transport, config: GcylonConfig, local_size: int, reason: str) -> Equipment:
    free = available_bytes() // local_size
    ceiling = config.gpu_memory_limit or max(1, int(free * config.gpu_memory_fraction))
    tiers = SpillStore(config.spill_dir)
    return Equipment(
        "cpu", "cpu", reason, transport.name, transport, PandasBackend(), MemoryBudget(ceiling), tiers, free
    )


def _open_together(transport: Transport, config: GcylonConfig) -> tuple[Any, int, str]:
    """Open every rank's device, or none's. Ranks of one GPU share what is free on it evenly."""
    from .memory.gpu_status import GpuStatus

    failure, free, device = "", 0, None
    try:
        free = free_bytes()
        mine = f"{transport.host} {GpuStatus().uuid}"
    except DeviceUnavailable as error:
        failure, mine = error.reason, ""
    # All have looked before anyone takes memory.
    places = [text.decode() for text in transport.share(mine.encode())]
    if not failure:
        free //= places.count(mine)
        try:
            device = open_device(config.gpu_memory_limit or max(1, int(free * config.gpu_memory_fraction)))
        except DeviceUnavailable as error:
            failure = error.reason
    failure = first_failure(transport, failure)
    if failure and device is not None:
        device.close()
        device = None
    return device, free, failure


def _gpu(transport: Transport, config: GcylonConfig, local_size: int, device: Any, free: int, route: str) -> Equipment:
    from .memory.device_budget import DeviceBudget
    from .memory.device_tiers import DeviceTiers
    from .memory.pinned import Pageable, PinnedPool
    from .tables.cudf_backend import CudfBackend

    cap = config.host_memory_limit or available_bytes() // local_size // 2
    pool = PinnedPool(cap, memory=None if config.use_pinned_memory else Pageable())
    # Locking a GiB takes half a second, which no operation is to pay for.
    threading.Thread(target=pool.prefill, args=(min(cap, _PREFILLED_BYTES),), name="pinning", daemon=True).start()
    chosen, why = choose_route(transport, device, pool, route)
    tiers = DeviceTiers(pool, config.spill_dir, allow_disk=config.allow_disk_spill)
    name = _device_name()
    backend = CudfBackend()
    made = Equipment(
        "gpu", _place(name), f"because every rank has one ({name} here)", f"{chosen.name}, {why}", chosen, backend,
        DeviceBudget(device), tiers, free, device, pool,
    )  # fmt: skip
    made.closers = [device.close, tiers.close]
    return made


def choose_route(transport: Transport, device: Any, pool: Any, route: str = "auto") -> tuple[Transport, str]:
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
    from .comm.host_staged import HostStagedTransport
    from .comm.nccl import NcclTransport
    from .comm.peer import PeerTransport

    if transport.name != "mpi":
        return transport, "because all ranks are in one process"
    slab = (device.slab.base, device.slab.nbytes)
    makers: dict[str, Any] = {
        "peer": lambda: PeerTransport(transport, slab),
        "nccl": lambda: NcclTransport(transport),
        "host": lambda: HostStagedTransport(transport, pool.take),
    }
    if route != "auto":
        return makers[route](), "because you asked for it"
    reasons: list[str] = []
    one_host = len(set(transport.share(transport.host.encode()))) == 1
    for name in ("peer", "nccl") if one_host else ("nccl",):
        try:
            return makers[name](), "; ".join(["because it is the fastest that works", *reasons])
        except CommError as error:
            reasons.append(error.message.rstrip("."))
    return makers["host"](), "; ".join(["because nothing faster works", *reasons])


def bind_gpu(local_rank: int) -> None:
    """Make one GPU this process's first: the one that its place on the host names. Before any GPU library loads.

    All stay visible, so that peers' memory can be mapped. More ranks than GPUs share them in turn.
    """
    from .memory.gpu_status import visible_gpus

    gpus = [gpu.uuid for gpu in visible_gpus()]
    if gpus:
        first = local_rank % len(gpus)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first:] + gpus[:first])


def _place(name: str) -> str:
    from .memory.gpu_status import GpuStatus

    uuid = GpuStatus().uuid or ""
    return f"{name} {uuid.removeprefix('GPU-')[:8]}".strip()


def _device_name() -> str:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    return str(properties["name"].decode())


def _known(variable: str, value: str, allowed: tuple[str, ...]) -> str:
    value = value or os.environ.get(variable, "") or "auto"
    if value not in allowed:
        raise ConfigError(f"{variable}={value!r} is unknown.", advice=f"It is one of {', '.join(allowed)}.")
    return value
