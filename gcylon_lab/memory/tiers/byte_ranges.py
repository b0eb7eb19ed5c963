"""Some of the buffers of a region, as runs of its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class Range(NamedTuple):
    """Bytes of a region: the first one, and how many."""

    begin: int
    nbytes: int


def ranges_of(sizes: Sequence[int], only: Sequence[int] | None) -> list[Range]:
    """Where some buffers lie that follow each other, those that are neighbours in one.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each buffer, with what pads it.
    only : sequence of int, optional
        Their numbers, ascending; all by default.

    Returns
    -------
    list of Range
        Without empty ones, in order.
    """
    begins, found = [0, *accumulate(sizes)], list[Range]()
    for number in range(len(sizes)) if only is None else only:
        if not sizes[number]:
            continue
        if found and sum(found[-1]) == begins[number]:
            found[-1] = Range(found[-1].begin, found[-1].nbytes + sizes[number])
        else:
            found.append(Range(begins[number], sizes[number]))
    return found
