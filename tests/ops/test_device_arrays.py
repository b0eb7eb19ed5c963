"""Columns of GPU tables in PyTorch: the same memory, kept while somebody reads it."""

from __future__ import annotations

import gc

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.runtime.context import current

pytestmark = pytest.mark.gpu


def column_in_torch() -> None:
    import torch

    values = np.random.default_rng(1).normal(size=100_000)
    table = gl.from_local(pd.DataFrame({"x": values, "k": np.arange(100_000)}))
    device = current().equipment.device
    assert device is not None
    (chunk,) = table._part.chunks
    before = device.used_bytes, gl.budget.used_bytes
    column = torch.from_dlpack(table.tensor("x"))
    assert column.is_cuda and column.data_ptr() == chunk.data.array("x").data.ptr
    assert (device.used_bytes, gl.budget.used_bytes) == before
    del chunk
    table.release()
    gc.collect()
    assert gl.budget.used_bytes > 0  # the memory stays, and counts, with who reads it
    assert column.cpu().numpy().tolist() == values.tolist()
    doubled = column * 2  # PyTorch's own memory
    again = gl.from_columns({"y": doubled})
    (chunk,) = again._part.chunks
    assert chunk.data.array("y").data.ptr == doubled.data_ptr()
    assert gl.budget.by_use()["external"] >= doubled.nbytes
    assert to_frame(current().workspace.backend.to_host(again._whole()))["y"].tolist() == (values * 2).tolist()
    again.release()
    del column, chunk, again
    gc.collect()
    assert gl.budget.used_bytes == 0 and "external" not in gl.budget.by_use()


def test_a_column_in_torch_is_no_copy() -> None:
    pytest.importorskip("torch")
    World("single", 1).run(column_in_torch)
