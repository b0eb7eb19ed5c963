"""Kernels of one's own on GPU ranks: compiled by numba-cuda, which cuDF brings, and run on cuDF's series."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import cudf
import cupy
import numpy as np

from ...errors import ArgumentError
from ..kernels.compiled import Job, NotCompiled, Target, compiled, wide
from ..kernels.kernel import run_by
from ..kernels.running import Ran, check_numbers, joined_nulls, refused, scalar
from ..kernels.source import KernelSource

_THREADS = 256
_NONE: Any = None


class _Gpu(Target):
    """The GPU of this rank."""

    name = "numba-cuda"
    loop = (
        "    _gl_i = _gl_cuda.grid(1)",
        "    if _gl_i < _gl_out.size and (_gl_nulls.size == 0 or not _gl_nulls[_gl_i]):",
        "        {call}",
    )

    def version(self, numba: Any) -> str:
        return str(getattr(importlib.import_module("numba_cuda"), "__version__", ""))

    def versions(self, numba: Any) -> list[str]:
        device = cupy.cuda.Device()
        return [self.name, self.version(numba), device.compute_capability, str(cupy.cuda.runtime.runtimeGetVersion())]

    def kernel(self, numba: Any, function: Any) -> Any:
        return _cuda().jit(device=True)(function)

    def compile(self, job: Job, function: Any, dtype: np.dtype[Any], *, cache: bool) -> Callable[..., None]:
        function.__globals__["_gl_cuda"] = cuda = _cuda()
        code = cuda.jit(cache=cache)(function)

        def run(out: Any, nulls: Any, *values: Any) -> None:
            stream = cuda.external_stream(cupy.cuda.get_current_stream().ptr)
            code[-(-out.size // _THREADS), _THREADS, stream](out, nulls, *values)

        # It is compiled at its first call, which is of one row here, so that the code can be kept with its source.
        zeros = [
            np.dtype(wide(name).replace("boolean", "bool")).type(0) if one else cupy.zeros(1, name)
            for name, one in zip(job.arguments, job.scalars, strict=True)
        ]
        run(cupy.zeros(1, dtype), cupy.zeros(0, np.bool_), *zeros)
        return run


_GPU = _Gpu()


def _cuda() -> Any:
    # A small table fills no GPU: that is no news to who has one.
    warnings.filterwarnings("ignore", message=".*Grid size .* GPU under-utilization")
    return importlib.import_module("numba.cuda")


def run(source: KernelSource, dtype: np.dtype[Any] | None, values: Sequence[Any]) -> Ran:
    """Compute a kernel of cuDF's series and single values; see `gcylon_lab.backends.kernels.running.run`."""
    rows, index = next((len(value), value.index) for value in values if isinstance(value, cudf.Series))
    pairs = [_given(name, value) for name, value in zip(source.parameters, values, strict=True)]
    given, dtypes = [one for one, _ in pairs], tuple(str(one.dtype) for one, _ in pairs)
    try:
        loop = compiled(source, dtypes, [not isinstance(one, cupy.ndarray) for one in given], _GPU)
    except NotCompiled as error:
        raise ArgumentError(
            f"It cannot be compiled for a GPU: {error}.", advice="Use what numba-cuda knows, or a CPU engine."
        ) from None
    cupy.cuda.Stream.null.synchronize()  # cuDF has made the values on its own stream
    some = [nulls for _, nulls in pairs if nulls is not None]
    nulls = joined_nulls(some) if some else cupy.zeros(0, np.bool_)
    out = cupy.zeros(rows, loop.dtype)
    if rows:
        loop.run(out, nulls, *given)
    counts = dtype is not None and dtype.kind in "Mm"
    if counts and out.dtype.kind != "i":
        raise ArgumentError(f"It gives {out.dtype}, which is no count for {dtype}.", advice="Give whole numbers.")
    values = out if dtype is None or counts else out.astype(dtype, copy=False)
    cupy.cuda.get_current_stream().synchronize()
    made = cudf.Series(values, index=index, nan_as_null=False)
    made = made.astype(dtype) if counts else made
    if some:
        made = made.where(~cudf.Series(nulls, index=index), None)
    nbytes = int(sum(one.nbytes for one in given) + out.nbytes)
    return Ran(made, dtypes, f"on the GPU, as this is a GPU engine: {loop.how}", nbytes, rows)


def _given(name: str, value: Any) -> tuple[Any, Any]:
    """The values of a column without gaps and where they are missing, or None; or one value for all rows."""
    if not isinstance(value, cudf.Series):
        return scalar(name, value), _NONE
    if value.dtype.kind in "mM":
        plain = value.astype("int64")
    else:
        if not isinstance(value.dtype, np.dtype):
            raise refused(name, value.dtype)
        check_numbers(name, value.dtype)
        plain = value
    if not value.has_nulls:
        return cupy.ascontiguousarray(plain.values), _NONE
    return cupy.ascontiguousarray(plain.fillna(0).values), value.isnull().values


run_by("cudf", run)
