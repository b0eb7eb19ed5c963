"""Kernels compiled by numba, once for the dtypes of their columns, and kept in the cache on disk."""

from __future__ import annotations

import functools
import importlib
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..._version import __version__
from . import cache
from .source import KernelSource

_FILE = "kernel.py"
_OPTIONS = {"error_model": "numpy", "nogil": True}
_lock = threading.Lock()  # of what was compiled, and of numba's settings
_made: dict[Any, CompiledLoop] = {}


class NotCompiled(Exception):
    """Numba is not there, or cannot compile this one; its text says why, in words."""


class CompiledLoop:
    """A kernel's loop over columns of some dtypes, in machine code.

    Attributes
    ----------
    run : callable
        Takes the array to write, where values are missing, and the values.
    dtype : numpy.dtype
        Of what it gives.
    how : str
        Where the code came from, in words.
    """

    __slots__ = ("dtype", "how", "run")

    def __init__(self, run: Callable[..., None], dtype: np.dtype[Any], how: str) -> None:
        self.run, self.dtype, self.how = run, dtype, how

    def __call__(self, values: Sequence[Any], nulls: Any, rows: int) -> Any:
        """One value a row; where ``nulls`` is set it is zero, and the kernel is not called."""
        out = np.zeros(rows, self.dtype) if len(nulls) else np.empty(rows, self.dtype)
        self.run(out, nulls, *values)
        return out


class Target:
    """What kernels are compiled for: this one is the CPU."""

    name = "numba"
    loop: tuple[str, ...] = (
        "    if _gl_nulls.size:",
        "        for _gl_i in range(_gl_out.size):",
        "            if not _gl_nulls[_gl_i]:",
        "                {call}",
        "    else:",
        "        for _gl_i in range(_gl_out.size):",
        "            {call}",
    )

    def version(self, numba: Any) -> str:
        """Of the compiler, for people."""
        return str(numba.__version__)

    def versions(self, numba: Any) -> list[str]:
        """What its code depends on beside its source: a processor's capability, and versions."""
        host = importlib.import_module("llvmlite.binding")
        features = ",".join(sorted(name for name, there in host.get_host_cpu_features().items() if there))
        chosen = [str(getattr(numba.config, name, "")) for name in ("CPU_NAME", "CPU_FEATURES", "OPT")]
        return [self.name, platform.machine(), host.get_host_cpu_name(), features, *chosen]

    def kernel(self, numba: Any, function: Any) -> Any:
        """The function, to be called in the loop."""
        return numba.njit(**_OPTIONS)(function)

    def compile(self, job: Job, function: Any, dtype: np.dtype[Any], *, cache: bool) -> Callable[..., None]:
        """The loop that gives values of a dtype; with ``cache`` it is kept beside its source, or loaded from there."""
        numba, types = job.numba, job.numba.types

        def column(name: str, *, written: bool = False) -> Any:
            own = types.boolean if name == "bool" else getattr(types, name)
            return types.Array(own, 1, "C", readonly=not written)

        given = zip(job.arguments, job.scalars, strict=True)
        columns = [getattr(types, wide(name)) if one else column(name) for name, one in given]
        signature = types.void(column(dtype.name, written=True), column("bool"), *columns)
        made: Callable[..., None] = numba.njit(signature, cache=cache, **_OPTIONS)(function)
        return made


HOST = Target()


@functools.cache
def numba_or_why() -> tuple[Any, str]:
    """Numba, or None and why it cannot be used; loaded at the first call."""
    try:
        numba = importlib.import_module("numba")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "numba"
        return None, "numba is not installed" if missing else f"numba cannot be loaded: {error}"
    except Exception as error:  # it looks at the versions of others when it is loaded
        return None, f"numba cannot be loaded: {error}"
    return (None, "NUMBA_DISABLE_JIT is set") if numba.config.DISABLE_JIT else (numba, "")


def compiled(
    source: KernelSource, arguments: Sequence[str], scalars: Sequence[bool], target: Target = HOST
) -> CompiledLoop:
    """The loop of a kernel for columns of some dtypes: compiled before, from the cache on disk, or now.

    Parameters
    ----------
    source : KernelSource
    arguments : sequence of str
        The dtype of each argument as numpy names it.
    scalars : sequence of bool
        Which of them are one value for all rows.
    target : Target, optional

    Raises
    ------
    NotCompiled
        If numba is not there, or cannot compile it.
    """
    numba, why_not = numba_or_why()
    if numba is None:
        raise NotCompiled(why_not)
    job = Job(numba, target, source, tuple(arguments), tuple(map(bool, scalars)))
    wanted = target.name, source, job.arguments, job.scalars
    with _lock:
        known = _made.get(wanted)
        if known is None:
            known = _loaded_or_compiled(job)
            _made[wanted] = CompiledLoop(
                known.run, known.dtype, f"compiled by {target.name} {target.version(numba)} before"
            )
        return known


@dataclass(frozen=True, slots=True)
class Job:
    """What to compile, and for what."""

    numba: Any
    target: Target
    source: KernelSource
    arguments: tuple[str, ...]
    scalars: tuple[bool, ...]

    def key(self) -> str:
        """A digest of all that the code depends on."""
        llvm = importlib.import_module("llvmlite")
        versions = [__version__, self.numba.__version__, llvm.__version__, np.__version__]
        python = sys.implementation.cache_tag or ""
        return cache.key_of(
            [self.text(), *self.arguments, _OPTIONS, *versions, python, *self.target.versions(self.numba)]
        )

    def text(self) -> str:
        """A module with the kernel, and the loop that calls it for each row whose values are all there."""
        names = [f"_gl_{i}" for i in range(len(self.arguments))]
        values = []
        for name, one, dtype in zip(names, self.scalars, self.arguments, strict=True):
            kind, value = np.dtype(dtype).kind, name if one else f"{name}[_gl_i]"
            wide = "" if one or kind == "b" else "_gl_np.float64" if kind == "f" else "_gl_np.int64"
            values.append(f"{wide}({value})" if wide else value)
        call = f"_gl_out[_gl_i] = _gl_kernel({', '.join(values)})"
        return "\n".join(
            [
                '"""Made by gcylon_lab: a kernel, and its loop over columns."""',
                "import numpy as _gl_np",
                self.source.module_text(),
                f"_gl_kernel = {self.source.name}",
                "",
                f"def _gl_loop(_gl_out, _gl_nulls, {', '.join(names)}):",
                *(line.format(call=call) for line in self.target.loop),
                "",
            ]
        )

    def module(self, path: Path | None, key: str) -> ModuleType:
        """The module, made anew: machine code that was kept finds it by its name."""
        made = ModuleType(f"_gcylon_lab_kernel_{key}")
        exec(compile(self.text(), str(path or f"<kernel {self.source.name}>"), "exec"), made.__dict__)
        sys.modules[made.__name__] = made
        return made


def _loaded_or_compiled(job: Job) -> CompiledLoop:
    folder, why_not = cache.opened()
    name, key = f"{job.target.name} {job.target.version(job.numba)}", job.key()
    if folder is not None and (found := cache.load(folder, key)) is not None:
        home, about = found
        dtype = np.dtype(about["dtype"])
        try:
            run = _loop(job, home / _FILE, key, dtype)
            return CompiledLoop(run, dtype, f"compiled by {name}, from the cache on disk")
        except Exception:
            cache.drop(home)  # what numba cannot read is made anew
    began = time.perf_counter()
    draft = None if folder is None else cache.draft(folder)
    try:
        path = None if draft is None else cache.write_source(draft, _FILE, job.text())
        dtype = _result_dtype(job, path, key)
        run = _loop(job, path, key, dtype)
        if draft is not None and folder is not None:
            cache.keep(draft, folder, key, {"dtype": dtype.str})
    except BaseException:
        if draft is not None:
            cache.drop(draft)
        raise
    note = f", and not kept, as {why_not}" if why_not else ""
    return CompiledLoop(run, dtype, f"compiled by {name} in {time.perf_counter() - began:.2g} s{note}")


def _result_dtype(job: Job, path: Path | None, key: str) -> np.dtype[Any]:
    """What the kernel gives: a bool, an int64 or a float64."""
    types = job.numba.types
    jitted = job.numba.njit(**_OPTIONS)(job.module(path, key).__dict__["_gl_kernel"])
    try:
        jitted.compile(tuple(getattr(types, wide(name)) for name in job.arguments))
        given = jitted.nopython_signatures[0].return_type
    except Exception as error:
        raise NotCompiled(f"numba cannot compile it: {_first_line(error)}") from None
    given = getattr(given, "literal_type", given)
    for kind, dtype in ((types.Boolean, "bool"), (types.Integer, "int64"), (types.Float, "float64")):
        if isinstance(given, kind):
            return np.dtype(dtype)
    raise NotCompiled(f"numba says that it gives {given}")


def _first_line(error: Exception) -> str:
    """What numba says of the code: its first lines are about itself."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("Failed in")]
    return (lines or [type(error).__name__])[0][:200]


def wide(name: str) -> str:
    """The type that a kernel sees a value of a dtype as, as numba names it."""
    kind = np.dtype(name).kind
    return "boolean" if kind == "b" else "float64" if kind == "f" else "int64"


def _loop(job: Job, path: Path | None, key: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    """Compile the loop, or where it lies beside its source, load it."""
    module, config = job.module(path, key), job.numba.config
    module.__dict__["_gl_kernel"] = job.target.kernel(job.numba, module.__dict__["_gl_kernel"])
    folder, config.CACHE_DIR = config.CACHE_DIR, ""  # beside the source, wherever others are kept
    try:
        return job.target.compile(job, module.__dict__["_gl_loop"], dtype, cache=path is not None)
    finally:
        config.CACHE_DIR = folder
