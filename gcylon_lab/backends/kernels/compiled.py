"""Kernels compiled by numba, once for the dtypes of their columns, and kept in the cache on disk."""

from __future__ import annotations

import functools
import importlib
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
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
_made: dict[str, CompiledLoop] = {}


class NotCompiled(Exception):
    """Numba is not there, or cannot compile this one; its text says why, in words."""


class CompiledLoop:
    """A kernel's loop over columns of some dtypes, in machine code.

    Attributes
    ----------
    dtype : numpy.dtype
        Of what it gives.
    how : str
        Where the code came from, in words.
    """

    __slots__ = ("_run", "dtype", "how")

    def __init__(self, run: Callable[..., None], dtype: np.dtype[Any], how: str) -> None:
        self._run, self.dtype, self.how = run, dtype, how

    def __call__(self, values: Sequence[Any], nulls: Any, rows: int) -> Any:
        """One value a row; where ``nulls`` is set it is zero, and the kernel is not called."""
        out = np.zeros(rows, self.dtype) if len(nulls) else np.empty(rows, self.dtype)
        self._run(out, nulls, *values)
        return out


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


def compiled(source: KernelSource, arguments: Sequence[str], scalars: Sequence[bool]) -> CompiledLoop:
    """The loop of a kernel for columns of some dtypes: compiled before, from the cache on disk, or now.

    Parameters
    ----------
    source : KernelSource
    arguments : sequence of str
        The dtype of each argument as numpy names it.
    scalars : sequence of bool
        Which of them are one value for all rows.

    Raises
    ------
    NotCompiled
        If numba is not there, or cannot compile it.
    """
    numba, why_not = numba_or_why()
    if numba is None:
        raise NotCompiled(why_not)
    about = {
        "source": source.module_text(), "arguments": list(arguments), "scalars": list(map(bool, scalars)),
        "options": _OPTIONS, "versions": _versions(numba),
    }  # fmt: skip
    key = cache.key_of(about)
    with _lock:
        if key not in _made:
            _made[key] = _compiled(numba, source, arguments, scalars, key)
        return _made[key]


def _versions(numba: Any) -> list[str]:
    """What machine code depends on beside its source: a processor's capability, and versions."""
    llvm = importlib.import_module("llvmlite")
    host = importlib.import_module("llvmlite.binding")
    features = ",".join(sorted(name for name, there in host.get_host_cpu_features().items() if there))
    chosen = [str(getattr(numba.config, name, "")) for name in ("CPU_NAME", "CPU_FEATURES", "OPT")]
    return [
        __version__, numba.__version__, llvm.__version__, np.__version__, sys.implementation.cache_tag or "",
        platform.machine(), host.get_host_cpu_name(), features, *chosen,
    ]  # fmt: skip


def _compiled(
    numba: Any, source: KernelSource, arguments: Sequence[str], scalars: Sequence[bool], key: str
) -> CompiledLoop:
    folder, why_not = cache.opened()
    name = f"numba {numba.__version__}"
    if folder is not None and (found := cache.load(folder, key)) is not None:
        home, about = found
        dtype = np.dtype(about["dtype"])
        try:
            run = _loop(numba, home / _FILE, key, source, arguments, scalars, dtype)
        except Exception as error:
            cache.drop(home)  # what numba cannot read is made anew
            why_not = f"; an entry of the cache could not be read: {type(error).__name__}"
        else:
            return CompiledLoop(run, dtype, f"compiled by {name}, from the cache on disk")
    began = time.perf_counter()
    home = None if folder is None else cache.draft(folder)
    try:
        path = None if home is None else cache.write_source(home, _FILE, _module_text(source, scalars, arguments))
        dtype = _result_dtype(numba, _module(path, key, source, scalars, arguments), arguments)
        run = _loop(numba, path, key, source, arguments, scalars, dtype)
        if home is not None and folder is not None:
            cache.keep(home, folder, key, {"dtype": dtype.str, "kernel": source.shown or source.name})
    except BaseException:
        if home is not None:
            cache.drop(home)
        raise
    took = time.perf_counter() - began
    note = f" ({why_not})" if why_not and folder is None else why_not
    return CompiledLoop(run, dtype, f"compiled by {name} in {took:.2g} s{note}")


def _result_dtype(numba: Any, module: ModuleType, arguments: Sequence[str]) -> np.dtype[Any]:
    """What the kernel gives: a bool, an int64 or a float64."""
    function = module.__dict__["_gl_kernel"]
    jitted = numba.njit(**_OPTIONS)(function)
    try:
        jitted.compile(tuple(getattr(numba.types, _wide(name)) for name in arguments))
        given = jitted.nopython_signatures[0].return_type
    except Exception as error:
        said = str(error).strip()
        # Numba's first lines are about itself.
        lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("Failed in")]
        raise NotCompiled(f"numba cannot compile it: {(lines or [type(error).__name__])[0][:200]}") from None
    given = getattr(given, "literal_type", given)
    for kind, dtype in ((numba.types.Boolean, "bool"), (numba.types.Integer, "int64"), (numba.types.Float, "float64")):
        if isinstance(given, kind):
            return np.dtype(dtype)
    raise NotCompiled(f"numba says that it gives {given}")


def _wide(name: str) -> str:
    """The type that a kernel sees a value of a dtype as, as numba names it."""
    kind = np.dtype(name).kind
    return "boolean" if kind == "b" else "float64" if kind == "f" else "int64"


def _loop(
    numba: Any,
    path: Path | None,
    key: str,
    source: KernelSource,
    arguments: Sequence[str],
    scalars: Sequence[bool],
    dtype: np.dtype[Any],
) -> Callable[..., None]:
    """Compile the loop, or where it lies beside its source, load it."""
    module = _module(path, key, source, scalars, arguments)
    module.__dict__["_gl_kernel"] = numba.njit(**_OPTIONS)(module.__dict__["_gl_kernel"])
    types = numba.types

    def column(name: str, *, written: bool = False) -> Any:
        own = types.boolean if name == "bool" else getattr(types, name)
        return types.Array(own, 1, "C", readonly=not written)

    columns = [
        getattr(types, _wide(name)) if one else column(name) for name, one in zip(arguments, scalars, strict=True)
    ]
    signature = types.void(column(dtype.name, written=True), column("bool"), *columns)
    folder, numba.config.CACHE_DIR = numba.config.CACHE_DIR, ""  # beside the source, wherever others are kept
    try:
        made: Callable[..., None] = numba.njit(signature, cache=path is not None, **_OPTIONS)(module._gl_loop)
    finally:
        numba.config.CACHE_DIR = folder
    return made


def _module(
    path: Path | None, key: str, source: KernelSource, scalars: Sequence[bool], arguments: Sequence[str]
) -> ModuleType:
    """The module of a loop: machine code that was kept finds it by its name."""
    made = ModuleType(f"_gcylon_lab_kernel_{key}")
    text = _module_text(source, scalars, arguments)
    exec(compile(text, str(path or f"<kernel {source.name}>"), "exec"), made.__dict__)
    sys.modules[made.__name__] = made
    return made


def _module_text(source: KernelSource, scalars: Sequence[bool], arguments: Sequence[str]) -> str:
    """The kernel, and the loop that calls it for each row whose values are all there."""
    names = [f"_gl_{i}" for i in range(len(arguments))]
    values = []
    for name, one, dtype in zip(names, scalars, arguments, strict=True):
        wide = np.dtype(dtype).kind
        value = name if one else f"{name}[_gl_i]"
        values.append(value if one or wide == "b" else f"_gl_np.{'float64' if wide == 'f' else 'int64'}({value})")
    call = f"_gl_out[_gl_i] = _gl_kernel({', '.join(values)})"
    return "\n".join(
        [
            '"""Made by gcylon_lab: a kernel, and its loop over columns."""',
            "import numpy as _gl_np",
            source.module_text(),
            f"_gl_kernel = {source.name}",
            "",
            f"def _gl_loop(_gl_out, _gl_nulls, {', '.join(names)}):",
            "    if _gl_nulls.size:",
            "        for _gl_i in range(_gl_out.size):",
            "            if not _gl_nulls[_gl_i]:",
            f"                {call}",
            "    else:",
            "        for _gl_i in range(_gl_out.size):",
            f"            {call}",
            "",
        ]
    )
