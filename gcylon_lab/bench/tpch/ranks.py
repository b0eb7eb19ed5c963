"""What the TPC-H bench runs on each rank."""

from __future__ import annotations

import time
from typing import NamedTuple

import pandas as pd

from ...runtime.context import current
from .queries import QUERIES, Tables


class Answered(NamedTuple):
    """A query's rows, the seconds it took, and the tables and columns that it read."""

    rows: pd.DataFrame
    seconds: float
    asked: list[tuple[str, str]]


def ask_on_rank(number: int, folder: str) -> Answered:
    """Collective: all ranks call it. Ask a query as a ``%%px`` cell would; rows on rank 0 alone, which tells them."""
    import gcylon_lab

    tables = Tables(gcylon_lab, folder)
    start = time.perf_counter()
    rows = QUERIES[number](tables)
    seconds = time.perf_counter() - start
    return Answered(rows if current().rank == 0 else rows.head(0), seconds, tables.asked)


def begin() -> None:
    """A rank's peak begins anew."""
    current().budget.reset_peak()


def peak_bytes() -> int:
    """The most that a rank's budget had in use since then."""
    return current().budget.peak_bytes
