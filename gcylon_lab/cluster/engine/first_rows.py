"""The first rows of this rank: they go with the reply that made a table, whose card shows them without a question.

They go as columns: few of the tables are shown, and frames are made of these alone.
"""

from __future__ import annotations

import logging
import pickle
from typing import Any

import numpy as np
import pyarrow as pa

from ...backends.protocol.data import Columns
from ..messages import CARD_COLUMNS, CARD_ROWS

_MOST_BYTES = 16 * 1024  # of rows, as they are held
_MOST_ASKED_BYTES = 1024 * 1024
_MOST_READ_BYTES = 4 * 1024**2  # of a staged chunk, whose rows are not read one by one

_log = logging.getLogger(__name__)


def first_rows(table: Any) -> bytes | None:
    """This rank's first rows and columns, pickled; None where much is to be read back for them, or they are longer than
    a card is."""
    return _at_hand(table, CARD_ROWS, CARD_COLUMNS, _MOST_BYTES)


def asked_rows(table: Any, rows: int | None = 0) -> bytes | None:
    """As `first_rows`, what a person asks for together with the table: so many rows of all columns, or all of them."""
    return None if rows == 0 else _at_hand(table, rows, None, _MOST_ASKED_BYTES)


def _at_hand(table: Any, rows: int | None, columns: int | None, most_bytes: int) -> bytes | None:
    """No collective: what is in the device tier, or read back in a moment."""
    part, workspace = table._mine(), table._context.workspace
    backend = workspace.backend
    schema = part.schema.select(list(part.schema.names[:columns]))
    found: list[Columns] = []
    left = part.rows if rows is None else min(rows, part.rows)
    nbytes = sum(column.labels.nbytes for column in schema if column.kind == "category")
    try:
        for chunk in part.chunks:
            if not left or not chunk.rows:
                continue
            if chunk.loaded_bytes(schema.names) > min(_MOST_READ_BYTES, workspace.budget.remaining_bytes):
                return None
            with chunk.load(workspace, schema.names) as data:
                some = backend.slice(data, 0, min(left, chunk.rows))
                del data
                nbytes += some.nbytes
                if nbytes > most_bytes:
                    return None
                found.append(_alone(backend.to_host(backend.cast(some, schema))))
                left -= some.rows
                del some
        return pickle.dumps([(data.schema, data.rows, data.arrays) for data in found])
    except Exception as error:  # a table that cannot be shown is a table: a GPU without room for ten rows, and others
        _log.warning("The first rows of a table cannot be shown: %s: %s", type(error).__name__, error)
        return None


def _alone(data: Columns) -> Columns:
    """A copy of some rows, without what they are a part of: that would be pickled too."""
    arrays = [
        np.array(array) if column.fixed else pa.chunked_array([pa.concat_arrays(array.chunks)], array.type)
        for column, array in zip(data.schema.columns, data.arrays, strict=True)
    ]
    return Columns(data.schema, data.rows, tuple(arrays))
