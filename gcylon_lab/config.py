"""The settings of an operation, in one frozen value."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

from .errors import ConfigError, warn
from .units import format_bytes, parse_bytes

ENGINE_VARIABLE = "GCYLON_ENGINE"
TRANSPORT_VARIABLE = "GCYLON_TRANSPORT"
AHEAD_VARIABLE = "GCYLON_PINNED_AHEAD"
POISON_VARIABLE = "GCYLON_POISON_FREED"
POISON_NEW_VARIABLE = "GCYLON_POISON_NEW"
LOG_VARIABLE = "GCYLON_LOG_ALLOCATIONS"
DEVICE_POOL_VARIABLE = "GCYLON_DEVICE_POOL"
OVERLAP_VARIABLE = "GCYLON_CHECK_OVERLAP"
SECURITY_VARIABLE = "GCYLON_SECURITY"
LITERALS_VARIABLE = "GCYLON_RECORD_LITERALS"
KERNEL_CACHE_VARIABLE = "GCYLON_KERNEL_CACHE"
# What is read from the environment at start and is no setting of an operation.
VARIABLES = (
    ENGINE_VARIABLE, TRANSPORT_VARIABLE, AHEAD_VARIABLE, POISON_VARIABLE, POISON_NEW_VARIABLE, LOG_VARIABLE,
    DEVICE_POOL_VARIABLE, OVERLAP_VARIABLE, SECURITY_VARIABLE, LITERALS_VARIABLE, KERNEL_CACHE_VARIABLE,
)  # fmt: skip
_PREFIX = "GCYLON_"
# Between processes of ours, and of tests.
_OWN_VARIABLES = ("GCYLON_LAB_", "GCYLON_BENCH_", "GCYLON_SCREENSHOTS", "GCYLON_DARK")
_told: set[str] = set()  # variables that nothing reads, of which this process has said so

_T = TypeVar("_T")
_MAX_BYTES = 2**62
_LEAST_LIMIT = 4096
SIZES = ("gpu_memory_limit", "chunk_size_bytes", "host_memory_limit")
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def _names_checked(cls: type[_T]) -> type[_T]:
    """Let a class refuse a keyword that is none of its fields as `GcylonConfig.with_values` does."""
    made = cls.__init__

    @functools.wraps(made)
    def init(self: _T, *args: Any, **values: Any) -> None:
        _check_names(values)
        made(self, *args, **values)

    cls.__init__ = init  # type: ignore[method-assign, assignment]
    return cls


@_names_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class GcylonConfig:
    """How much memory an operation may use, and where it may stage.

    An operation reads it when it starts, and it is the same on all ranks for
    the whole of it. A value given here goes before the environment
    (``GCYLON_GPU_MEMORY_LIMIT`` and so on, read by `from_environment`), which
    goes before the default.

    Parameters
    ----------
    gpu_memory_limit : int or str, default 0
        Limit of the device tier on each rank, in bytes, or text such as
        ``"64MiB"``; 0 takes ``gpu_memory_fraction`` of what is free at start.
        On CPU engines the device tier is ordinary memory.
    gpu_memory_fraction : float, default 0.8
        Part of the free memory to use when the limit is 0; in (0, 1].
    chunk_size_bytes : int or str, default 0
        Size of a chunk, in bytes; 0 lets the plan choose. At least 1024 otherwise.
    min_chunk_rows : int, default 1024
        Rows below which a chunk is not made smaller, as long as the budget allows.
    allow_cpu_staging : bool, default True
        Whether chunks may leave the device tier at all.
    use_pinned_memory : bool, default True
        Whether staging buffers are page-locked. Does nothing on CPU engines.
    host_memory_limit : int or str, default 0
        Limit of the pinned tier on each rank, in bytes; 0 takes half of the memory
        that is available at start, split over the host's ranks. Does nothing on CPU engines.
    spill_dir : str, default ""
        Folder for spill files; "" takes the system's temporary folder.
    allow_disk_spill : bool, default True
        Whether chunks may be staged to disk. GPU engines can stage without it, as long as
        ``host_memory_limit`` lasts; CPU engines cannot.

    Raises
    ------
    ConfigError
        If a value is out of its range; the message says the range.
    """

    gpu_memory_limit: int = 0
    gpu_memory_fraction: float = 0.8
    chunk_size_bytes: int = 0
    min_chunk_rows: int = 1024
    allow_cpu_staging: bool = True
    use_pinned_memory: bool = True
    host_memory_limit: int = 0
    spill_dir: str = ""
    allow_disk_spill: bool = True

    def __post_init__(self) -> None:
        for name in SIZES:
            object.__setattr__(self, name, _read_bytes(name, getattr(self, name)))
        if isinstance(self.gpu_memory_fraction, int) and not isinstance(self.gpu_memory_fraction, bool):
            object.__setattr__(self, "gpu_memory_fraction", float(self.gpu_memory_fraction))
        _check(self)

    @classmethod
    def default(cls) -> GcylonConfig:
        """Return the defaults: 80% of the free memory, chunks chosen by the plan."""
        return cls()

    @classmethod
    def low_memory(cls) -> GcylonConfig:
        """Return the preset for little memory: 60% of what is free, chunks of 4 MiB, smaller where they must."""
        return cls(gpu_memory_fraction=0.6, chunk_size_bytes=4 * 1024**2, min_chunk_rows=256)

    @classmethod
    def high_throughput(cls) -> GcylonConfig:
        """Return the preset for ranks that have their memory to themselves: 90% of what is free, and chunks of at least
        65,536 rows, as a round costs by itself. What does not fit so is staged instead of cut smaller."""
        return cls(gpu_memory_fraction=0.9, min_chunk_rows=65_536)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **explicit: Any) -> GcylonConfig:
        """Return explicit values over ``GCYLON_*`` variables over defaults.

        Variables of that name that nothing reads, as mistyped ones, are a warning, once in a process.

        Parameters
        ----------
        environ : mapping, optional
            Where to look; the process's environment by default.
        **explicit
            Fields set by the caller, which go first.

        Raises
        ------
        ConfigError
            If a variable's text does not fit its field, or a value is out of range.
        """
        source = os.environ if environ is None else environ
        warn_of_unread(source)
        return cls().with_values(**(read_settings(source) | explicit))

    def with_values(self, **changes: Any) -> GcylonConfig:
        """Return a copy with the given fields changed.

        Raises
        ------
        ConfigError
            If a name is no field, or a value is out of range.
        """
        _check_names(changes)
        return replace(self, **changes)

    def with_gpu_memory_limit(self, value: int | str) -> GcylonConfig:
        """Return a copy with another ``gpu_memory_limit``."""
        return self.with_values(gpu_memory_limit=value)

    def with_gpu_memory_fraction(self, value: float) -> GcylonConfig:
        """Return a copy with another ``gpu_memory_fraction``."""
        return self.with_values(gpu_memory_fraction=value)

    def with_chunk_size_bytes(self, value: int | str) -> GcylonConfig:
        """Return a copy with another ``chunk_size_bytes``."""
        return self.with_values(chunk_size_bytes=value)

    def with_min_chunk_rows(self, value: int) -> GcylonConfig:
        """Return a copy with another ``min_chunk_rows``."""
        return self.with_values(min_chunk_rows=value)

    def with_staging(self, *, allow_cpu_staging: bool = True, allow_disk_spill: bool = True) -> GcylonConfig:
        """Return a copy that may, or may not, stage below the device tier."""
        return self.with_values(allow_cpu_staging=allow_cpu_staging, allow_disk_spill=allow_disk_spill)

    def with_pinned_memory(self, *, enabled: bool = True) -> GcylonConfig:
        """Return a copy with ``use_pinned_memory`` set."""
        return self.with_values(use_pinned_memory=enabled)

    def with_host_memory_limit(self, value: int | str) -> GcylonConfig:
        """Return a copy with another ``host_memory_limit``."""
        return self.with_values(host_memory_limit=value)

    def with_spill_dir(self, value: str) -> GcylonConfig:
        """Return a copy with another ``spill_dir``."""
        return self.with_values(spill_dir=value)

    def limit_bytes(self, ceiling_bytes: int, free_bytes: int) -> int:
        """Return the device limit that these settings mean on a rank.

        Parameters
        ----------
        ceiling_bytes : int
            The limit that was fixed when the rank started.
        free_bytes : int
            The memory that was free for it then, of which the fraction is taken.

        Raises
        ------
        ConfigError
            If ``gpu_memory_limit`` is above the ceiling.
        """
        if self.gpu_memory_limit > ceiling_bytes:
            raise ConfigError(
                f"gpu_memory_limit={self.gpu_memory_limit} ({format_bytes(self.gpu_memory_limit)}) is above the "
                f"ceiling of {ceiling_bytes} bytes ({format_bytes(ceiling_bytes)}) that was fixed at start.",
                advice="Give a lower one, or start a new cluster with this limit: gl.Cluster(n, config=...). "
                "restart() keeps the limit of the start.",
            )
        return self.gpu_memory_limit or max(1, min(ceiling_bytes, int(free_bytes * self.gpu_memory_fraction)))

    def may_stage(self, *, pinned_tier: bool) -> bool:
        """Whether chunks may leave the device tier: below it CPU engines have only the disk, GPU engines host memory.

        Parameters
        ----------
        pinned_tier : bool
            Whether the engines are GPU engines: all of them are, or none.
        """
        return self.allow_cpu_staging and (pinned_tier or self.allow_disk_spill)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, in order."""
        return asdict(self)

    def as_code(self) -> str:
        """Return the expression that makes this config: only what differs from the defaults."""
        return _code_of(self)


@lru_cache(maxsize=64)
def _code_of(config: GcylonConfig) -> str:
    """As `GcylonConfig.as_code`, which records of operations ask for several times."""
    values = [(field.name, getattr(config, field.name), field.default) for field in fields(config)]
    changed = [f"{name}={_as_text(name, value)}" for name, value, default in values if value != default]
    return f"gl.GcylonConfig({', '.join(changed)})"


def _as_text(name: str, value: Any) -> str:
    """A value as it is written in code: a size as text, where that says it exactly."""
    if name in SIZES and value:
        for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if value % size == 0:
                return repr(f"{value // size}{unit}")
    return repr(value)


def _check_names(names: Iterable[str]) -> None:
    known = [field.name for field in fields(GcylonConfig)]
    for name in names:
        if name not in known:
            meant = nearest(name, known)
            advice = f"Did you mean {meant}? " if meant else ""
            raise ConfigError(f"There is no setting {name!r}.", advice=f"{advice}The settings are {', '.join(known)}.")


def read_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what the variables of an environment set, by field.

    Raises
    ------
    ConfigError
        If a variable's text does not fit its field.
    """
    values: dict[str, Any] = {}
    for field in fields(GcylonConfig):
        variable = f"{_PREFIX}{field.name.upper()}"
        if variable in environ:
            values[field.name] = _parse(variable, field.type, environ[variable])
    return values


def unread(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the ``GCYLON_*`` variables that nothing reads, each with what was probably meant, in words."""
    known = [f"{_PREFIX}{field.name.upper()}" for field in fields(GcylonConfig)] + list(VARIABLES)
    found = {}
    for name in sorted(environ):
        if name.startswith(_PREFIX) and name not in known and not name.startswith(_OWN_VARIABLES):
            # Without what all of them begin with, which would make any two look alike.
            meant = nearest(name.removeprefix(_PREFIX).lower(), [own.removeprefix(_PREFIX).lower() for own in known])
            advice = f"Did you mean {_PREFIX}{meant.upper()}? " if meant else ""
            found[name] = f"{advice}Known are {', '.join(known)}."
    return found


def warn_of_unread(environ: Mapping[str, str]) -> None:
    """Warn of each ``GCYLON_*`` variable that nothing reads, once in this process.

    It is no error: an environment may be shared with other programs, and with other versions of this one.
    """
    for name, advice in unread(environ).items():
        if name not in _told:
            _told.add(name)
            warn(f"{name} is set, but nothing reads it. {advice}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that a mistyped or shortened one was probably meant to be; "" where none is near."""
    names = list(known)
    # A short name for a long one shares too few letters with it: its words tell.
    shortened = [own for own in names if set(name.lower().split("_")) <= set(own.split("_"))]
    return next(iter(difflib.get_close_matches(name, names, 1) or shortened), "")


def _read_bytes(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ConfigError(
            f"Expected a size for {name}, got {value!r}.", advice="Give bytes as an int, or a string such as '64MiB'."
        )
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}.") from None


def _check(config: GcylonConfig) -> None:
    for name in ("gpu_memory_limit", "host_memory_limit"):
        _range(name, getattr(config, name), 0, _MAX_BYTES, "bytes; 0 is automatic")
    fraction = config.gpu_memory_fraction
    if not isinstance(fraction, float) or not 0.0 < fraction <= 1.0:
        raise ConfigError(f"gpu_memory_fraction={fraction!r} is out of range (0, 1].")
    if config.chunk_size_bytes:
        _range("chunk_size_bytes", config.chunk_size_bytes, 1024, _MAX_BYTES, "bytes; 0 lets the plan choose")
    _range("min_chunk_rows", config.min_chunk_rows, 1, 2**31 - 1, "rows")
    for name in ("allow_cpu_staging", "use_pinned_memory", "allow_disk_spill"):
        if not isinstance(getattr(config, name), bool):
            raise ConfigError(f"{name}={getattr(config, name)!r} is invalid.", advice="Expected True or False.")
    if not isinstance(config.spill_dir, str):
        raise ConfigError(
            f"Expected a path for spill_dir, got {config.spill_dir!r}.", advice="Give a folder as a string, or ''."
        )


def check_limit(config: GcylonConfig) -> None:
    """Refuse a limit that no rank could work in: it was probably given in another unit.

    Raises
    ------
    ConfigError
    """
    limit = config.gpu_memory_limit
    if 0 < limit < _LEAST_LIMIT:
        raise ConfigError(
            f"gpu_memory_limit={limit} is in bytes, and {limit} bytes hold nothing.",
            advice=f"Write '{limit}MiB' for {limit} MiB; 0 is automatic.",
        )


def _range(name: str, value: object, low: int, high: int, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name}={value!r} is out of range [{low}, {high}] ({unit}).")


def parse_flag(variable: str, text: str) -> bool:
    """Read a variable of the environment that is on or off.

    Raises
    ------
    ConfigError
        If its text is neither.
    """
    lowered = text.strip().lower()
    if lowered not in _TRUE | _FALSE:
        asked = "write 1 or 0, true or false, yes or no, on or off"
        raise ConfigError(f"The environment has {variable}={text!r}: {asked}.")
    return lowered in _TRUE


def records_literals() -> bool:
    """Whether profiles, traces and reports may hold values that a person wrote into conditions, and errors' texts."""
    return os.environ.get(LITERALS_VARIABLE, "").strip().lower() in _TRUE


def _parse(variable: str, kind: object, text: str) -> Any:
    if kind == "bool":
        return parse_flag(variable, text)
    try:
        if kind == "float":
            return float(text)
        return parse_bytes(text) if kind == "int" else text
    except ValueError as error:
        raise ConfigError(f"The environment has {variable}={text!r}: {error}.") from None
