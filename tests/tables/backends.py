"""The backends that tests run over, each seen from the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.refusals import is_refused_on_gpus
from gcylon_lab.errors import UnsupportedDtype


@cache
def gpu_missing() -> str:
    """Why there is no cuDF backend here; empty where there is one."""
    try:
        import cupy
        import pylibcudf  # noqa: F401

        return "" if cupy.cuda.runtime.getDeviceCount() else "there is no GPU"
    except Exception as error:
        return f"cuDF cannot be used: {error}"


class SeenFromHost:
    """The cuDF backend with ids, messages and frames as the CPU's backend gives them."""

    name = "cudf"

    def __init__(self) -> None:
        from gcylon_lab.backends.cudf.backend import CudfBackend, use_rmm_for_cupy

        use_rmm_for_cupy()
        self.device = CudfBackend()
        self.host = PandasBackend()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def from_frame(self, frame: Any) -> Any:
        try:
            return self.device.from_frame(frame)
        except UnsupportedDtype as error:
            if is_refused_on_gpus(error):
                pytest.skip(str(error))
            raise

    def to_frame(self, data: Any) -> Any:
        return self.host.to_frame(self.device.to_host(data))

    def partition_ids(self, data: Any, keys: Sequence[Any], n: int) -> Any:
        return self.device.partition_ids(data, keys, n).get()

    def pack_variable(self, data: Any, start: int, stop: int) -> memoryview:
        return memoryview(self.device.pack_variable(data, start, stop).get().tobytes())

    def pack(self, data: Any) -> list[memoryview]:
        given = [one if isinstance(one, list) else [one] for one in self.device.pack(data)]
        return [memoryview(b"".join(piece.get().tobytes() for piece in one)) for one in given]


def host_items(array: Any) -> np.ndarray:
    """The items of a fixed column of either backend."""
    return array if isinstance(array, np.ndarray) else array.get()
