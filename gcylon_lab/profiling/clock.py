"""How far a rank's clock is from rank 0's, from the times of shared meetings.

Nobody leaves an agree round before everybody has entered it. So rank r entered
before rank 0 left, and rank 0 entered before rank r left; each round bounds
the offset from both sides, and rounds without delay bound it closely.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gcylon_lab.errors import ArgumentError

Int64s = npt.NDArray[np.int64]


def offset_bounds_ns(enter: Int64s, leave: Int64s, rank: int) -> tuple[int, int]:
    """The interval that holds the offset of a rank's clock to rank 0's.

    Parameters
    ----------
    enter, leave : ndarray of int64, shape (rounds, size)
        When each rank entered and left each round, in ns of its own clock.
    rank : int

    Returns
    -------
    lower, upper : int
        In ns. ``lower`` is above ``upper`` only if the clocks drifted apart meanwhile.

    Raises
    ------
    ArgumentError
        If the shapes differ or are empty, or the rank is out of range.
    """
    if enter.ndim != 2 or enter.shape != leave.shape or enter.size == 0 or not 0 <= rank < enter.shape[1]:
        raise ArgumentError(
            f"Times of shapes {enter.shape} and {leave.shape} say nothing of rank {rank}.",
            advice="Give two equal shapes (rounds, size), with at least one round.",
        )
    lower = int((enter[:, rank] - leave[:, 0]).max())
    upper = int((leave[:, rank] - enter[:, 0]).min())
    return lower, upper


def estimate_offset_ns(enter: Int64s, leave: Int64s, rank: int) -> int:
    """The offset of a rank's clock to rank 0's: subtract it from the rank's times to have rank 0's.

    Parameters, errors: as `offset_bounds_ns`.

    Returns
    -------
    int
        In ns, the middle of the interval; 0 for rank 0.
    """
    lower, upper = offset_bounds_ns(enter, leave, rank)
    return 0 if rank == 0 else (lower + upper) // 2
