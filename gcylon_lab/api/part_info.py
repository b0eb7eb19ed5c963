"""What a table tells of itself by ``info()``: plain values for programs, and few lines for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..backends.protocol.schema import shown_label
from ..units import format_bytes, format_count

_BELOW = {"pinned": "in pinned memory", "disk": "on disk"}
_MOST = 60  # columns, and ranks, that have a line of their own


class PartInfo(dict[str, Any]):
    """What is known of one rank's part, by name; shown in few lines, as a dict it has all."""

    def __repr__(self) -> str:
        return _text([self])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


class PartInfos(list[PartInfo]):
    """What is known of every rank's part, in rank order; shown in few lines."""

    def __repr__(self) -> str:
        return _text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def _text(infos: Sequence[Mapping[str, Any]]) -> str:
    """Columns with their dtypes, then rows and bytes of each rank."""
    columns, dtypes = (infos[0]["columns"], infos[0]["dtypes"]) if infos else ([], [])
    names = [shown_label(name) for name in columns[:_MOST]]
    width = max(map(len, ["column", *names]))
    lines = [f"{'column':{width}}  dtype"]
    lines += [f"{name:{width}}  {dtype}" for name, dtype in zip(names, dtypes, strict=False)]
    lines += [f"and {len(columns) - _MOST} more columns"] * (len(columns) > _MOST)
    lines += [_of_rank(f"rank {rank}: " if len(infos) > 1 else "", info) for rank, info in enumerate(infos[:_MOST])]
    lines += [f"and {len(infos) - _MOST} more ranks"] * (len(infos) > _MOST)
    total = f"{format_count(sum(i['rows'] for i in infos))} rows, {format_bytes(sum(i['nbytes'] for i in infos))}"
    return "\n".join([*lines, *([f"all: {total}"] if len(infos) > 1 else [])])


def _of_rank(who: str, info: Mapping[str, Any]) -> str:
    below = [f"{format_bytes(info['tiers'][tier])} {said}" for tier, said in _BELOW.items() if info["tiers"].get(tier)]
    staged = f", of these {' and '.join(below)}" if below else ""
    return f"{who}{format_count(info['rows'])} rows, {format_bytes(info['nbytes'])}{staged}"
