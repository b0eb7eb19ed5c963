"""All ranks' pieces of a plan, brought together as the ranks would."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.data import Columns
from gcylon_lab.backends.protocol.promotion import agree_schemas

backend = PandasBackend()


def read_all(plans: Sequence[Any], read: Callable[..., Iterator[Columns]], **how: Any) -> pd.DataFrame:
    """The frame that the ranks hold together, in rank order."""
    parts = [piece for plan in plans for piece in read(plan, **how)]
    assert len(parts) >= len(plans), "each rank gives at least one piece"
    schema = agree_schemas([part.schema for part in parts], [part.rows for part in parts])
    return backend.to_frame(backend.concat([backend.cast(part, schema) for part in parts]))
