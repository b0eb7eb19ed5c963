"""Plans of tables that nobody has loaded yet."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..backends.arrow.interop import from_frame
from ..backends.arrow.tables import from_arrow
from ..backends.protocol.scalars import check_choice
from ..backends.protocol.schema import Label, Schema
from ..config import GcylonConfig
from ..engine.plan.plan import Plan
from ..engine.plan.table_stats import VERBS
from ..errors import ArgumentError
from ..memory.available import available_bytes
from ..operators.estimate import OF_ONE_TABLE, PLANNED, estimate_parts
from ..operators.unloaded import unloaded_parts
from ..runtime.context import opened

if TYPE_CHECKING:
    import pyarrow as pa


def estimate(
    schema: Mapping[str, Any] | pa.Schema | Schema | None = None,
    rows: int = 0,
    *,
    nbytes: int | None = None,
    verb: str = "shuffle",
    on: Label | Sequence[Label] = (),
    root: int = 0,
    ranks: int = 4,
    strategy: str = "auto",
    config: GcylonConfig | None = None,
) -> Plan:
    """Plan a verb of a table that is not loaded: what would it take on so many engines with so much memory?

    On a rank that works on a GPU such engines are meant; CPU engines elsewhere.

    Parameters
    ----------
    schema : mapping of str to dtype, pyarrow.Schema or Schema, optional
        The columns, for example ``{"k": "int64", "price": "float64"}``. Without it rows are of one width, and verbs
        that need to know columns are refused.
    rows : int
        Of the table, on all ranks; they are spread evenly.
    nbytes : int, optional
        Of the table in memory, on all ranks; that of the dtypes where all have a fixed width.
    verb : str, default "shuffle"
        shuffle, allgather, gather, broadcast, repartition, sort_values, groupby, drop_duplicates or unique.
    on : label or sequence of labels
        Its keys.
    root : int
        Of gather and broadcast.
    ranks : int, default 4
    strategy : str, default "auto"
    config : GcylonConfig, optional
        Whose ``gpu_memory_limit`` is each rank's budget; where it is 0, ``gpu_memory_fraction`` of this host's free
        memory, split over the ranks.

    Returns
    -------
    Plan
        With strategy, rounds and the predicted peak of each rank.

    Raises
    ------
    BudgetExceeded
        If it would not run, with the limit that is enough.
    ArgumentError
        If sizes are missing, or an argument is invalid.

    Examples
    --------
    >>> import gcylon_lab as gl
    >>> config = gl.GcylonConfig(gpu_memory_limit="64MiB")
    >>> plan = gl.estimate({"k": "int64", "v": "float64"}, rows=10_000_000, verb="shuffle", on="k", config=config)
    >>> plan.strategy, max(plan.predicted_peaks) <= 64 * 2**20
    ('staged', True)
    """
    config = config or GcylonConfig.from_environment()
    rows, ranks = _count("rows", rows, 0), _count("ranks", ranks, 1)
    keys = [on] if isinstance(on, (str, int)) else list(on)
    check_choice("verb", verb, OF_ONE_TABLE)
    if schema is None and (keys or verb not in VERBS):
        raise ArgumentError(f"{verb} with keys needs to know the columns.", advice="Give a schema.")
    known = _schema(schema, rows, nbytes)
    limit = config.gpu_memory_limit or max(1, int(available_bytes() // ranks * config.gpu_memory_fraction))
    total = _total_bytes(known, rows, nbytes)
    context = opened()
    here = context.workspace if context is not None and context.workspace.backend.on_gpu else None
    parts = unloaded_parts(known, rows, total, (limit,) * ranks, config, here)
    chosen = PLANNED[verb].chosen(keys, root=root)
    return estimate_parts(verb, [parts], config, strategy=strategy, schemas=[known], **chosen)


def _total_bytes(schema: Schema, rows: int, nbytes: int | None) -> int:
    if nbytes is not None:
        return max(_count("nbytes", nbytes, 0), rows * schema.row_bytes)
    if schema.variable:
        names = ", ".join(repr(column.name) for column in schema.variable[:3])
        raise ArgumentError(
            f"How wide the values of {names} are is not known.", advice="Give nbytes, of the whole table in memory."
        )
    return rows * schema.row_bytes


def _schema(given: Any, rows: int, nbytes: int | None) -> Schema:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    if isinstance(given, Schema):
        return given
    if isinstance(given, pa.Schema):
        return from_arrow(given.empty_table()).schema
    if given is None:
        if nbytes is None:
            raise ArgumentError("Expected a schema, or nbytes beside rows.")
        width = nbytes // max(rows, 1) // 8
        return from_frame(pd.DataFrame({str(n): np.empty(0) for n in range(max(1, min(width, 1000)))})).schema
    try:
        return from_frame(pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in dict(given).items()})).schema
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"schema={given!r} is invalid: {error}.", advice='Expected for example {"k": "int64", "v": "float64"}.'
        ) from None


def _count(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ArgumentError(f"{name}={value!r} is invalid.", advice=f"Expected a whole number of at least {least}.")
    return number
