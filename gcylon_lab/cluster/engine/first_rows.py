"""The first rows of this rank: they go with the reply that made a table, whose card shows them without a question."""

from __future__ import annotations

import logging
import pickle
from typing import Any

from ..messages import CARD_COLUMNS, CARD_ROWS

_MOST_BYTES = 16 * 1024  # of rows, as they are held

_log = logging.getLogger(__name__)


def first_rows(table: Any) -> bytes | None:
    """A pickled frame of this rank's first rows and columns; None where they are staged, or longer than a card is.

    No collective: what is at hand in the device tier, and nothing else.
    """
    from ...backends.arrow.interop import to_frame

    part, backend = table._live(), table._context.workspace.backend
    names = part.schema.names[:CARD_COLUMNS]
    frames: list[Any] = []
    columns = [part.schema[name] for name in names]
    left, nbytes = CARD_ROWS, sum(column.labels.nbytes for column in columns if column.kind == "category")
    try:
        for chunk in part.chunks:
            if not left or not chunk.rows:
                continue
            if chunk.tier != "device":
                return None
            rows = min(left, chunk.rows)
            some = backend.slice(backend.select(chunk.data, names), 0, rows)
            nbytes += some.nbytes
            if nbytes > _MOST_BYTES:
                return None
            frames.append(to_frame(backend.to_host(some)))
            left -= rows
        return pickle.dumps(frames)
    except Exception as error:  # a table that cannot be shown is a table: a GPU without room for ten rows, and others
        _log.warning("The first rows of a table cannot be shown: %s: %s", type(error).__name__, error)
        return None
