"""Whether a shuffle of the bench was right: outside the clock, over MPI."""

from __future__ import annotations

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
