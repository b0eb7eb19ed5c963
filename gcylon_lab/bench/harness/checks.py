"""What benches on ranks look at beside the clock: whether a shuffle was right, and the true memory of the process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from pathlib import Path

import pyarrow as pa
from mpi4py import MPI

from .cases import KEY, Columns, add_checksums, checksum, distinct, shared_keys


def count_and_sum(columns: Columns) -> tuple[int, int]:
    """Rows and their `checksum`."""
    return len(columns[KEY]), checksum(columns)


def check_ranks(comm: MPI.Intracomm, before: tuple[int, int], after: Columns, *, check_keys: bool) -> str:
    """Collective: all ranks call it. Compare all rows before and after, and see that equal keys met.

    Parameters
    ----------
    comm : MPI.Intracomm
    before : tuple of int
        Rows and checksum of this rank's input.
    after : dict of str to ndarray
        This rank's rows of the result.
    check_keys : bool
        Whether to look for keys that ended on two ranks, which takes longer than the checksums.

    Returns
    -------
    str
        What is wrong, the same on all ranks; "" if all is well.
    """
    sums = comm.allgather((*before, *count_and_sum(after)))
    rows_in, sums_in, rows_out, sums_out = zip(*sums, strict=True)
    if sum(rows_in) != sum(rows_out):
        return f"{sum(rows_in)} rows went in and {sum(rows_out)} came out"
    if add_checksums(sums_in) != add_checksums(sums_out):
        return "the checksums of the rows before and after differ"
    if not check_keys:
        return ""
    parts = comm.gather(distinct(after[KEY]))
    stray = comm.bcast(shared_keys(parts) if parts is not None else 0)
    return f"{stray} keys ended on more than one rank" if stray else ""


def reset_high_water() -> None:
    """Give back what is free, and let the high-water mark start again from what is resident now."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):
        # Freed memory that malloc kept would hide growth.
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def high_water_bytes() -> int:
    """The most that was resident since `reset_high_water`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
