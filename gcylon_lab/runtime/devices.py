"""What a rank works with: GPU or CPU, and the way device memory travels. Chosen together, with the reasons."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..backends.host.backend import PandasBackend
from ..backends.host.keys.scratch_pool import bound_scratch
from ..backends.protocol.backend import Backend
from ..comm.transport import Transport, first_failure
from ..config import (
    AHEAD_VARIABLE,
    DEVICE_POOL_VARIABLE,
    ENGINE_VARIABLE,
    LOG_VARIABLE,
    OVERLAP_VARIABLE,
    POISON_NEW_VARIABLE,
    POISON_VARIABLE,
    TRANSPORT_VARIABLE,
    GcylonConfig,
    parse_flag,
)
from ..errors import ConfigError
from ..memory.allocation_log import AllocationLog, log_of_rank
from ..memory.available import available_bytes
from ..memory.budget import MemoryBudget, bound_retention
from ..memory.debug_checks import Checks
from ..memory.device import (
    POOLS,
    DeviceUnavailable,
    do_not_load,
    free_bytes,
    open_device,
    total_bytes,
    why_unavailable,
)
from ..memory.tiers.disk_tier import SpillStore
from ..memory.tiers.staging_tier import StagingTiers
from ..profiling import GpuProbe, GpuSample, Recorder
from ..units import MIB, format_bytes, parse_bytes
from .transport_choice import DEVICE_TRANSPORTS, choose_route, name_host_route

ENGINES = ("auto", "cpu", "gpu")
LEAST_FREE_BYTES = 256 * MIB  # of a GPU for each rank: with less, cuDF's own kernels hardly load


@dataclass(frozen=True, slots=True)
class Topology:
    """Who runs where, and what memory a rank of this one's host may count on.

    Attributes
    ----------
    hosts : tuple of str
        Of every rank.
    share_bytes : int
        Host memory for each rank of this host: what was available at start, split evenly.
    """

    hosts: tuple[str, ...]
    share_bytes: int


def discover(transport: Transport) -> Topology:
    """Collective: all ranks call it. Learn who is where, and share each host's memory among its ranks.

    All look before any goes on and takes some, and those of one host count with the least that one of them saw.
    """
    told = [text.decode().split(" ", 1) for text in transport.share(f"{available_bytes()} {transport.host}".encode())]
    hosts = tuple(host for _, host in told)
    seen = [int(nbytes) for nbytes, host in told if host == transport.host]
    return Topology(hosts, max(1, min(seen) // len(seen)))


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
        Why it is that kind, in words, beginning with "because".
    route : str
        How rows travel between ranks, and why.
    around : Topology
    ahead : PinnedPrefetch or None
        What page-locks host memory in the background, on GPU engines.
    """

    kind: str
    where: str
    reason: str
    route: str
    transport: Transport
    backend: Backend
    budget: MemoryBudget
    tiers: StagingTiers
    free_at_start_bytes: int
    around: Topology
    device: Any = None
    pool: Any = None
    ahead: Any = None
    closers: list[Any] = field(default_factory=list)

    @property
    def engines(self) -> str:
        """The kind and the reason, for people."""
        return f"{self.kind.upper()} engines, {self.reason}"

    def describe(self) -> str:
        """All of the choice in a line, for logs."""
        return f"{self.engines}; rows travel by {self.route}"

    def close(self) -> None:
        """Give back what was opened, last first. Idempotent."""
        while self.closers:
            self.closers.pop()()


@dataclass(frozen=True, slots=True)
class _Means:
    """What all choices at start are made from."""

    transport: Transport
    config: GcylonConfig
    around: Topology
    checks: Checks
    ahead: int | None
    recorder: Recorder | None
    log: AllocationLog | None = None
    pool: str = "pool"


def equip(
    transport: Transport, config: GcylonConfig, engine: str = "", route: str = "", recorder: Recorder | None = None
) -> Equipment:
    """Collective: all ranks call it. Choose and open what all ranks work with: the same kind on each.

    Parameters
    ----------
    transport : Transport
        Carries agreements; rows too, on CPU engines.
    config : GcylonConfig
        Its limit becomes the ceiling.
    engine : {"", "auto", "cpu", "gpu"}
        ``gpu`` is an error where a rank has none; "" reads ``GCYLON_ENGINE``.
    route : {"", "auto", "peer", "nccl", "host", "peer+nccl", "peer+host"}
        How device memory travels; "" reads ``GCYLON_TRANSPORT``.
    recorder : Recorder, optional
        Where what goes on in the background is recorded.

    Raises
    ------
    ConfigError
        On all ranks, if a choice is unknown, or the GPU that was asked for is missing on one, with its reason.
    """
    engine = _known(ENGINE_VARIABLE, engine, ENGINES)
    route = _known(TRANSPORT_VARIABLE, route, DEVICE_TRANSPORTS)
    around, log = discover(transport), _open_log(transport)
    means = _Means(transport, config, around, read_checks(), read_ahead(), recorder, log, read_device_pool())
    if engine == "cpu":
        return _cpu(means, f"because {ENGINE_VARIABLE}=cpu")
    reason = first_failure(transport, why_unavailable())
    if not reason:
        device, free, gpus, reason = _open_together(means)
        if device is not None:
            return _gpu(means, device, free, gpus, route)
    if engine == "gpu":
        raise ConfigError(
            f"GPU engines were asked for, but {reason}.",
            advice=f"Fix this, or set {ENGINE_VARIABLE}=auto to work on CPU engines where there is no GPU to use.",
        )
    return _cpu(means, f"because {reason}")


def read_checks() -> Checks:
    """Return which checks the environment asks for.

    Raises
    ------
    ConfigError
        If a variable is neither on nor off.
    """
    names = (POISON_VARIABLE, OVERLAP_VARIABLE, POISON_NEW_VARIABLE)
    return Checks(*(parse_flag(name, os.environ.get(name, "") or "0") for name in names))


def read_device_pool() -> str:
    """Return which pool of device memory the environment wants.

    Raises
    ------
    ConfigError
        If it is none that there is.
    """
    asked = _known(DEVICE_POOL_VARIABLE, "", ("auto", *POOLS))
    return "binning" if asked == "auto" else asked


def _open_log(transport: Transport) -> AllocationLog | None:
    """Collective: all ranks call it. Open this rank's file, if the environment names one.

    Raises
    ------
    ConfigError
        On all ranks, if one cannot write its own.
    """
    path, made, failure = os.environ.get(LOG_VARIABLE, ""), None, ""
    if path:
        try:
            made = AllocationLog(log_of_rank(path, transport.rank))
        except OSError as error:
            failure = f"{log_of_rank(path, transport.rank)!r} cannot be written: {error.strerror or error}"
    if failure := first_failure(transport, failure):
        raise ConfigError(
            f"{LOG_VARIABLE}={path!r}: {failure}.",
            advice="Set it to a file in a folder that every rank can write, or to none.",
        )
    return made


def read_ahead() -> int | None:
    """Return how much host memory the environment wants page-locked ahead of need; None leaves it to the rank.

    Raises
    ------
    ConfigError
        If the variable is no size.
    """
    text = os.environ.get(AHEAD_VARIABLE, "") or "auto"
    try:
        return None if text == "auto" else parse_bytes(text)
    except ValueError as error:
        raise ConfigError(
            f"{AHEAD_VARIABLE}={text!r}: {error}.", advice="Expected a size, 0 for none, or auto."
        ) from None


def _bound_kept(limit_bytes: int) -> None:
    """Let this process keep of memory that it has freed what is a small part of a limit."""
    bound_retention(limit_bytes)
    bound_scratch(limit_bytes)


def _cpu(means: _Means, reason: str) -> Equipment:
    transport, config, free = means.transport, means.config, means.around.share_bytes
    ceiling = config.gpu_memory_limit or max(1, int(free * config.gpu_memory_fraction))
    tiers = SpillStore(config.spill_dir, means.checks)
    route = f"{name_host_route(transport, means.around.hosts)}, because they are in ordinary memory"
    budget = MemoryBudget(ceiling, _bound_kept, means.log)
    made = Equipment("cpu", "cpu", reason, route, transport, PandasBackend(), budget, tiers, free, means.around)
    made.closers = [] if means.log is None else [means.log.close]
    return made


def _open_together(means: _Means) -> tuple[Any, int, list[str], str]:
    """Open every rank's device, or none's. Ranks of one GPU share what is free on it evenly.

    Returns
    -------
    device, int, list of str, str
        What is free on this rank's GPU for it, every rank's GPU, and what failed.
    """
    transport, config = means.transport, means.config
    failure, free, mine, device = "", 0, "", None
    try:
        free, gpu = _look()
        mine = f"{transport.host} {gpu}"
    except Exception as error:
        failure = error.reason if isinstance(error, DeviceUnavailable) else do_not_load(error)
    # All have looked before anyone takes memory.
    places = [text.decode() for text in transport.share(mine.encode())]
    if not failure:
        try:
            free = _share_of(free, places.count(mine))
            limit = config.gpu_memory_limit or max(1, int(free * config.gpu_memory_fraction))
            log_file = "" if means.log is None else means.log.path
            device = open_device(limit, checks=means.checks, log_file=log_file, pool=means.pool)
        except Exception as error:
            failure = error.reason if isinstance(error, DeviceUnavailable) else do_not_load(error)
    failure = first_failure(transport, failure)
    if failure and device is not None:
        device.close()
        device = None
    return device, free, places, failure


def _look() -> tuple[int, str]:
    """What is free on this rank's GPU, and which it is. Loads all that a rank needs, so that nothing fails later."""
    from ..backends.cudf import backend as cudf_backend
    from ..memory.nvml import GpuStatus

    assert cudf_backend.CudfBackend.on_gpu
    return free_bytes(), str(GpuStatus().uuid)


def _share_of(free: int, ranks: int) -> int:
    """One rank's share of what is free on its GPU.

    Raises
    ------
    DeviceUnavailable
        If that is too little to work with.
    """
    share = free // ranks
    if share < LEAST_FREE_BYTES:
        among = f", among {ranks} ranks" if ranks > 1 else ""
        raise DeviceUnavailable(
            f"the GPU is out of memory: {format_bytes(free)} of {format_bytes(total_bytes())} are free on it{among}, "
            f"and a rank needs {format_bytes(LEAST_FREE_BYTES)}"
        )
    return share


def _gpu(means: _Means, device: Any, free: int, gpus: list[str], route: str) -> Equipment:
    from ..backends.cudf.backend import CudfBackend
    from ..memory.device_budget import DeviceBudget
    from ..memory.tiers.device_tiers import DeviceTiers
    from ..memory.tiers.pinned_pool import Pageable, PinnedPool
    from ..memory.tiers.pinned_prefetch import PinnedPrefetch, ahead_bytes, pinned_cap

    config, share = means.config, means.around.share_bytes
    cap = pinned_cap(config.host_memory_limit, share)
    pool = PinnedPool(cap, memory=None if config.use_pinned_memory else Pageable(), checks=means.checks)
    wanted = ahead_bytes(means.ahead, cap, share, device.limit_bytes) if config.use_pinned_memory else 0
    ahead = PinnedPrefetch(pool, wanted, means.recorder)
    ahead.start()
    try:
        chosen, why = choose_route(means.transport, device, pool, means.around.hosts, gpus, route)
        ahead.wait_for_first()
    except BaseException:
        ahead.stop()
        device.close()
        raise
    tiers = DeviceTiers(pool, config.spill_dir, allow_disk=config.allow_disk_spill)
    name = _device_name()
    backend = CudfBackend()
    with suppress(MemoryError):  # a limit of a few KiB: then the first operation compiles
        backend.warm_up()
    made = Equipment(
        "gpu", _place(name), "because every rank has a GPU and cuDF", f"{chosen.name}, {why}", chosen, backend,
        DeviceBudget(device), tiers, free, means.around, device, pool, ahead,
    )  # fmt: skip
    if means.log is not None:
        means.log.remove()  # RMM writes its own
    made.closers = [device.close, pool.close, tiers.close, ahead.stop]
    return made


def gpu_probe(equipment: Equipment) -> GpuProbe | None:
    """Return how to ask NVML for the figures of a rank's GPU; None on a CPU engine, and where NVML knows no GPU."""
    from ..memory.nvml import GpuStatus

    if equipment.device is None:
        return None
    status = GpuStatus()
    if status.uuid is None:
        return None

    def read() -> GpuSample:
        busy = status.read_utilisation()
        return GpuSample(status.read_used_bytes(), None if busy is None else round(100 * busy))

    held_bytes = equipment.device.slab.nbytes
    return GpuProbe(status.uuid, status.name or "GPU", status.total_bytes or 0, held_bytes, read)


def bind_gpu(local_rank: int) -> None:
    """Make one GPU this process's first: the one that its place on the host names. Before any GPU library loads.

    All stay visible, so that peers' memory can be mapped. More ranks than GPUs share them in turn.
    """
    from ..memory.nvml import visible_gpus

    gpus = [gpu.uuid for gpu in visible_gpus()]
    if gpus:
        first = local_rank % len(gpus)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first:] + gpus[:first])


def _place(name: str) -> str:
    from ..memory.nvml import GpuStatus

    uuid = GpuStatus().uuid or ""
    return f"{name} {uuid.removeprefix('GPU-')[:8]}".strip()


def _device_name() -> str:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    return str(properties["name"].decode())


def _known(variable: str, value: str, allowed: tuple[str, ...]) -> str:
    value = value or os.environ.get(variable, "") or "auto"
    if value not in allowed:
        raise ConfigError(f"{variable}={value!r} is invalid.", advice=f"Expected one of {', '.join(allowed)}.")
    return value
