"""Group-bys to run on ranks, and pandas' answer to them."""

from __future__ import annotations

from typing import Any

import pandas as pd

PARTIAL = {
    "rows": ("x", "size"), "sx": ("x", "sum"), "mx": ("x", "mean"), "sdx": ("x", "std"), "cn": ("n", "count"),
    "sn": ("n", "sum"), "mn": ("t", "min"), "mxs": ("s", "max"), "fs": ("s", "first"), "lc": ("c", "last"),
    "anyb": ("b", "any"), "allb": ("b", "all"), "md": ("d", "min"), "sm": ("m", "sum"),
}  # fmt: skip

WHOLE = PARTIAL | {
    "med": ("x", "median"), "q": ("g", "quantile", 0.25), "nus": ("s", "nunique"), "li": ("g", "list"),
}  # fmt: skip


class Grouped:
    """A group-by to run on ranks."""

    def __init__(self, by: list[str], named: dict[str, Any], **options: Any) -> None:
        self.by, self.named, self.options = by, named, options
        self.dropna = options.pop("dropna", True)

    def __call__(self, table: Any) -> Any:
        return table.groupby(self.by, dropna=self.dropna).agg(**self.named, **self.options)


def by_pandas(frame: pd.DataFrame, by: list[str], named: dict[str, Any], dropna: bool = True) -> pd.DataFrame:
    groups = frame.groupby(by, dropna=dropna, observed=True, sort=False)
    made = {}
    for new, (column, function, *argument) in named.items():
        if function == "list":
            made[new] = groups[column].agg(list)
        else:
            made[new] = getattr(groups[column], function)(*argument)
    return pd.DataFrame(made).reset_index()
