"""Correlations and covariances of columns, from sums over all rows of which both values are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...backends.arrow.interop import to_frame as pandas_frame
from ...backends.protocol.schema import Label
from ...engine.exec.agreement import AgreementKind
from ...engine.exec.invocation import Request, RunOptions, check_labels
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.part import Part
from ...engine.store.views import view_of
from ...engine.store.workspace import Workspace
from ...errors import UnsupportedDtype
from ..group.groupby import shared_checks
from ..group.reduce import as_float, reduced

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

_NUMBERS = ("bool", "int", "float", "decimal")
_COPIES = 5  # of the values of a piece as floats


def pair_sums(
    workspace: Workspace,
    part: Part,
    verb: str,
    columns: Sequence[Label],
    *,
    ddof: int,
    min_periods: int,
    options: RunOptions,
) -> pd.DataFrame:
    """Collective: all ranks call it. Correlations ("corr") or covariances ("cov") of columns, the same on every rank.

    Sums are of what values are above the columns' means, so that large values lose no digits.
    """
    found: list[pd.DataFrame] = []

    def body(operation: Operation) -> Part:
        with shared_checks():
            _require_numbers(operation, columns)
        means = reduced(operation, part, columns, [("mean", 0.0)])["mean", 0.0]
        centre = np.array([as_float(means[name]) for name in columns])
        mine = (
            _sums(operation, part, columns, np.where(np.isnan(centre), 0.0, centre)) if columns else np.zeros((4, 0, 0))
        )
        sums = summed(operation, mine)
        found.append(_frame(sums, columns, verb, ddof, min_periods))
        return part

    arguments = {"columns": list(columns), "ddof": ddof, "min_periods": min_periods}
    check = Request(verb, arguments, part, options, lambda: check_labels(columns, part.schema.names))
    run_verb(workspace, check, body)
    return found[0]


def _require_numbers(operation: Operation, columns: Sequence[Label]) -> None:
    for name in columns:
        if (column := operation.schema[name]).kind not in _NUMBERS:
            raise UnsupportedDtype(
                f"there is no {operation.verb} of column {name!r}, whose dtype is {column.describe()}",
                advice="Give numeric_only=True, or choose columns of numbers before.",
                column=name,
            )


def values_here(operation: Operation, part: Part, columns: Sequence[Label], what: str, copies: int) -> Iterator[Floats]:
    """The values of columns of this rank as floats, shape (rows, columns), piece by piece; missing ones are NaN."""
    work = LocalExecutor(operation, what)
    schema, backend = operation.schema.select(columns), work.backend
    rows = work.piece_rows(schema.row_bytes, copies * 8 * len(columns))
    work.make_room(0, 0)
    work.expect_pieces(part, schema, rows, copies * 8 * len(columns))
    for piece in work.pieces(view_of(operation.workspace, part, columns), schema, rows):
        with work.claim(piece.rows * copies * 8 * len(columns)):
            frame = pandas_frame(backend.to_host(piece))
            yield np.stack([_floats(frame.iloc[:, i]) for i in range(len(columns))]).T
            del frame
        del piece  # before the next one is read back


def _floats(series: Any) -> Floats:
    plain = series.astype("float64") if series.dtype == object else series
    values: Floats = plain.to_numpy(dtype="float64", na_value=np.nan)
    return values


def _sums(operation: Operation, part: Part, columns: Sequence[Label], centre: Floats) -> Floats:
    """Of each pair of columns, over rows with both: how many, the first's sum, its squares' sum, and the products'."""
    count = len(columns)
    sums = np.zeros((4, count, count))
    for values in values_here(operation, part, columns, "Summing up pairs of columns", _COPIES):
        there = ~np.isnan(values)
        if there.all():  # then each column has one sum, whichever is beside it
            values -= centre
            products, ones = values.T @ values, np.ones((count, count))
            sums += np.stack(
                [len(values) * ones, values.sum(axis=0)[:, None] * ones, np.diag(products)[:, None] * ones, products]
            )
            continue
        above = np.where(there, values - centre, 0.0)
        mask = there.astype("float64")
        sums += np.stack([mask.T @ mask, above.T @ mask, (above * above).T @ mask, above.T @ above])
    return sums


def summed(operation: Operation, mine: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Collective: all ranks call it. The sum of all ranks' arrays of one shape, in rank order, the same everywhere."""
    operation.agree(AgreementKind.COUNT, (mine.size,))  # a rank that failed tells here: what follows cannot fail
    texts = operation.workspace.transport.share(np.ascontiguousarray(mine).tobytes())
    every = [np.frombuffer(text, mine.dtype).reshape(mine.shape) for text in texts]
    total: npt.NDArray[Any] = np.sum(every, axis=0)
    return total


def _frame(sums: Floats, columns: Sequence[Label], verb: str, ddof: int, min_periods: int) -> pd.DataFrame:
    import pandas as pd

    count, first, squares, products = sums
    with np.errstate(all="ignore"):
        common = products - first * first.T / count
        if verb == "cov":
            made = common / np.where(count > ddof, count - ddof, np.nan)
        else:
            spread = squares - first * first / count
            made = np.clip(common / np.sqrt(spread * spread.T), -1.0, 1.0)
    made = np.where(count >= max(min_periods, 1), made, np.nan)
    return pd.DataFrame(made, index=list(columns), columns=list(columns))
