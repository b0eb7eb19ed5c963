"""Columns of a table as plain lists and dicts, which answer to what pandas has there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class Labels(list[Any]):
    """``t.columns``: a list of labels."""

    def tolist(self) -> list[Any]:
        """A plain list."""
        return list(self)

    to_list = tolist

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"columns are a list, which has no {name!r}: loop over them, as in [c.lower() for c in t.columns]; "
                "t.rename(str.lower) gives a table with other names"
            )


class Dtypes(dict[Any, str]):
    """``t.dtypes``: a dict of dtypes by label."""

    def to_dict(self) -> dict[Any, str]:
        """A plain dict."""
        return dict(self)

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"dtypes are a dict of texts, which has no {name!r}: use t.dtypes['x'], or pd.Series(t.dtypes)"
            )
