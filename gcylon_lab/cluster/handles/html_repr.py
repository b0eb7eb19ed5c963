"""How handles look in a notebook: HTML of what the client knows already. No question goes to a rank."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ...backends.protocol.schema import shown_label, shown_labels
from ...units import MIB, format_bytes, format_count
from ..failures import name_ranks
from ..messages import CARD_COLUMNS, CARD_ROWS
from ..rank_info import RankRecord

_MOST_RANKS = 16
_TIERS = {"device": "#4477AA", "pinned": "#66CCEE", "disk": "#CCBB44"}  # apart for the colour-blind too
_BELOW = {"pinned": "in pinned memory", "disk": "on disk"}
_BRINGS_BACK = "unstage()"  # what was staged stays there until it is asked back
_BAR_PX = 240
_EVEN, _WORTH_TELLING = 1.1, MIB
_USUALLY_SHOWN = 5  # rows, where a card cannot have all
CARD_STYLE = (
    "border:1px solid var(--jp-border-color1,#bbb);border-radius:4px;padding:6px 10px;display:inline-block;"
    "color:var(--jp-ui-font-color1,inherit);font-size:13px;max-width:100%;box-sizing:border-box;overflow-x:auto"
)
_FAINT = "opacity:0.75"


def table_card(
    name: str,
    infos: Sequence[Mapping[str, Any]],
    called: str = "",
    variable: str = "",
    first: Sequence[bytes | None] = (),
    hosts: Sequence[str] = (),
) -> str:
    """A table on the ranks: its first rows, its size, and a strip of ranks; folded, columns and a bar for each rank.

    Of many ranks on several hosts it has a bar for each host's.

    Parameters
    ----------
    name : str
        Of the handle.
    infos : sequence of mapping
        Every rank's ``Table.info()``, in rank order.
    called : str, optional
        What a person calls it: its variables, or how it was made.
    variable : str, optional
        One that refers to it.
    first : sequence of bytes or None
        Every rank's first rows, as they came with the replies.
    hosts : sequence of str, optional
        Every rank's.

    Returns
    -------
    str
        HTML.
    """
    rows, nbytes = sum(i["rows"] for i in infos), sum(i["nbytes"] for i in infos)
    count = len(infos[0]["columns"])
    spread = infos[0].get("partitioning")
    title = f"<b>{escape(called)}</b> · DistTable {escape(name)}" if called else f"<b>DistTable {escape(name)}</b>"
    head = (
        f"{title} · {format_count(rows)} row{'s' * (rows != 1)} · {count} "
        f"column{'s' * (count != 1)} · {format_bytes(nbytes)}"
    )
    if spread:
        head += f" · equal {escape(shown_labels(spread['keys']))} on one rank"
    external = sum(i.get("external_bytes", 0) for i in infos)
    told = [staged_html(infos, variable), f"{format_bytes(external)} in memory of another library" if external else ""]
    below = "<br>".join(filter(None, told))
    below = f'<div style="font-size:12px">{below}</div>' if below else ""
    frame = first_frame(infos, first)
    detail = f"{_columns(infos[0])}{_ranks(infos, hosts)}"
    if frame is None:
        return f'<div style="{CARD_STYLE}"><div>{head}</div>{detail}{below}</div>'
    shown = frame.to_html(max_cols=CARD_COLUMNS, border=0, notebook=True)
    # JupyterLab's own rule for cells goes before one of what is around them; what stands in cells is escaped.
    shown = shown.replace("<td>", '<td style="white-space:nowrap">')
    shown = f'<div style="overflow-x:auto">{shown}</div>'
    left = [f"{count - CARD_COLUMNS} more columns"] if count > CARD_COLUMNS else []
    left += [f"{format_count(rows - len(frame))} more rows"] if rows > len(frame) else []
    more = f'<div style="font-size:12px;{_FAINT}">{" and ".join(left)}</div>' if left else ""
    folded = f'<details style="font-size:12px"><summary>{_strip(infos)}</summary>{detail}</details>'
    return f'<div style="{CARD_STYLE}"><div>{head}</div>{shown}{more}{folded}{below}</div>'


def first_frame(infos: Sequence[Mapping[str, Any]], first: Sequence[bytes | None], wanted: int | None = None) -> Any:
    """The first rows of a table, as far as they came with the replies that it was made.

    Parameters
    ----------
    infos : sequence of mapping
        Every rank's ``Table.info()``.
    first : sequence of bytes or None
        Every rank's first rows.
    wanted : int, optional
        How many; by default those that a card shows: five, or all of a few.

    Returns
    -------
    pandas.DataFrame or None
        None where there are none, or a rank told too few before they are found.
    """
    from ...backends.arrow.interop import to_frame
    from ...backends.protocol.data import Columns, concat_columns, slice_columns

    rows = sum(info["rows"] for info in infos)
    if wanted is None:
        wanted = rows if rows <= CARD_ROWS else _USUALLY_SHOWN
    left = min(rows, wanted)
    if not left:
        return None
    pieces: list[Columns] = []
    for info, pickled in zip(infos, first, strict=False):
        some = [] if pickled is None else [Columns(*piece) for piece in pickle.loads(pickled)]
        for piece in some:
            pieces.append(slice_columns(piece, 0, min(left, piece.rows)))
            left -= pieces[-1].rows
        if left and sum([piece.rows for piece in some]) < info["rows"]:
            return None
    return None if left else to_frame(concat_columns(pieces))


def _strip(infos: Sequence[Mapping[str, Any]]) -> str:
    """One bar for all ranks, each as wide as what it holds."""
    total = sum(i["nbytes"] for i in infos) or 1
    parts = "".join(
        f'<span title="rank {rank}: {format_count(i["rows"])} rows, {format_bytes(i["nbytes"])}" style="display:'
        f"inline-block;height:9px;width:{max(0.0, _BAR_PX * i['nbytes'] / total - 1):.1f}px;margin-right:1px;"
        f'background:{_TIERS["device"]};opacity:{0.6 if rank % 2 else 1}"></span>'
        for rank, i in enumerate(infos)
    )
    skew = _skew(infos) if total >= _WORTH_TELLING else ""
    return f"{parts} {len(infos)} rank{'s' * (len(infos) != 1)}{skew}"


def staged_html(infos: Sequence[Mapping[str, Any]], variable: str = "") -> str:
    """What of a table is below the device tier, since when, what that costs, and what helps; "" where nothing is.

    Parameters
    ----------
    infos : sequence of mapping
        Every rank's ``Table.info()``, with what `Engine.staged_by` says.
    variable : str, optional
        One that refers to it.

    Returns
    -------
    str
        HTML of one line.
    """
    where = {tier: sum(i["tiers"].get(tier, 0) for i in infos) for tier in _BELOW}
    said = [f"{format_bytes(nbytes)} {_BELOW[tier]}" for tier, nbytes in where.items() if nbytes]
    kept = {tier: sum(i.get("kept", {}).get(tier, 0) for i in infos) for tier in _BELOW}
    also = " and ".join(f"{format_bytes(nbytes)} {_BELOW[tier]}" for tier, nbytes in kept.items() if nbytes)
    also = f"Of the rows in the budget {also} too: staging them again writes nothing." if also else ""
    if not said:
        return also
    by = next((i["staged_by"] for i in infos if i.get("staged_by")), "")
    since = f" since {by}" if by else ""
    call = f"{variable}.{_BRINGS_BACK}"
    return (
        f"{' and '.join(said)}{escape(since)}, read back by each operation that uses it. "
        f"<code>{escape(call)}</code> brings it back into the budget, where it fits. {also}"
    ).rstrip()


def cluster_card(
    name: str, ranks: Sequence[RankRecord], mpi: str, tables: int, security: str = "", gpus: str = ""
) -> str:
    """A cluster: what it works with and why, and who its ranks are.

    Parameters
    ----------
    name, mpi : str
        Of the cluster, and its MPI library in words.
    ranks : sequence of RankRecord
    tables : int
        Handles that are alive.
    security : str
        How messages are protected, and why.
    gpus : str
        Which GPUs the notebook's machine has, or what helps where it has none to use.

    Returns
    -------
    str
        HTML.
    """
    hosts = len({record.host for record in ranks})
    head = (
        f"<b>Cluster {escape(name)}</b> · {len(ranks)} rank{'s' * (len(ranks) != 1)} on {hosts} "
        f"host{'s' * (hosts != 1)} · {escape(mpi)} · {tables} table{'s' * (tables != 1)}"
    )
    by_host = _by_host([r.host for r in ranks])
    titles: tuple[str, ...] = ("rank", "host", "device", "process")
    rows: list[tuple[str, ...]] = []
    left = _left(len(ranks), "ranks")
    for r in [] if by_host else ranks[:_MOST_RANKS]:
        rows.append((str(r.rank), r.host, r.device, str(r.pid)))
    if by_host:
        titles, left = ("host", "ranks", "devices"), _left(len(by_host), "hosts")
    for host, numbers in list(by_host.items())[:_MOST_RANKS]:
        devices = ", ".join(dict.fromkeys(ranks[n].device for n in numbers))
        rows.append((host, name_ranks(numbers), devices))
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    head_row = "".join(_cell(title, faint=True) for title in titles)
    table = f'<table style="font-size:12px">{head_row}{lines}</table>'
    chosen = "".join(f'<div style="font-size:12px">{escape(text)}</div>' for text in _choices(ranks, security, gpus))
    return f'<div style="{CARD_STYLE}"><div>{head}</div>{chosen}{table}{left}</div>'


def gone_card(text: str) -> str:
    """A handle or cluster that is no more, in its own words."""
    return f'<div style="{CARD_STYLE};{_FAINT}">{escape(text)}</div>'


def _choices(ranks: Sequence[RankRecord], security: str, gpus: str) -> list[str]:
    """Kind of engines, way of the rows and of messages, which are the same for all ranks, with the reasons."""
    of_ranks = [ranks[0].engines, f"rows travel by {ranks[0].route}"] if ranks and ranks[0].engines else []
    return of_ranks + [text for text in (security, gpus) if text]


def _columns(info: Mapping[str, Any]) -> str:
    pairs = list(zip(info["columns"], info["dtypes"], strict=True))
    texts = [(escape(shown_label(name)), escape(str(dtype))) for name, dtype in pairs[:CARD_COLUMNS]]
    shown = " · ".join(f'{name} <span style="{_FAINT}">{dtype}</span>' for name, dtype in texts)
    left = f" · and {len(pairs) - CARD_COLUMNS} more" if len(pairs) > CARD_COLUMNS else ""
    return f'<div style="font-size:12px">{shown}{left}</div>'


def _by_host(hosts: Sequence[str]) -> dict[str, list[int]]:
    """The ranks of each host, where there are several, and too many ranks for a line each."""
    found: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return found if len(found) > 1 and len(hosts) > _MOST_RANKS else {}


def _together(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several ranks hold."""
    tiers = {tier: sum(i["tiers"].get(tier, 0) for i in infos) for tier in _TIERS}
    return {name: sum(i[name] for i in infos) for name in ("rows", "nbytes")} | {"tiers": tiers}


def _ranks(infos: Sequence[Mapping[str, Any]], hosts: Sequence[str]) -> str:
    by_host = _by_host(hosts) if len(hosts) == len(infos) else {}
    shown = [(f"rank {rank}", info) for rank, info in enumerate(infos)]
    if by_host:
        shown = [
            (f"{host}: {name_ranks(numbers)}", _together([infos[n] for n in numbers]))
            for host, numbers in by_host.items()
        ]
    most = max((i["nbytes"] for _, i in shown), default=0) or 1
    tiers = [tier for tier in _TIERS if any(i["tiers"].get(tier) for i in infos)]
    lines = []
    for who, info in shown[:_MOST_RANKS]:
        parts = "".join(
            f'<span title="{tier}: {format_bytes(info["tiers"].get(tier, 0))}" style="display:inline-block;height:9px;'
            f'width:{_BAR_PX * info["tiers"].get(tier, 0) / most:.1f}px;background:{_TIERS[tier]}"></span>'
            for tier in tiers
        )
        rows = f"{format_count(info['rows'])} row{'s' * (info['rows'] != 1)}"
        bar = f'<td style="text-align:left;min-width:{_BAR_PX}px;line-height:9px;white-space:nowrap">{parts}</td>'
        lines.append(f"<tr>{_cell(who)}{bar}{_cell(rows)}{_cell(format_bytes(info['nbytes']))}</tr>")
    legend = " ".join(
        f'<span style="display:inline-block;width:9px;height:9px;background:{_TIERS[tier]}"></span> {tier}'
        for tier in tiers
    )
    return (
        f'<table style="font-size:12px">{"".join(lines)}</table>{_left(len(shown), "hosts" if by_host else "ranks")}'
        f'<div style="font-size:12px">{legend}{_skew(infos)}</div>'
    )


def _skew(infos: Sequence[Mapping[str, Any]]) -> str:
    """How much more the fullest rank holds than the mean; nothing where all hold about as much."""
    sizes = [int(info["nbytes"]) for info in infos]
    most, mean = max(sizes), sum(sizes) / len(sizes)
    if most <= _EVEN * mean:
        return ""
    return f" · rank {sizes.index(most)} holds {most / mean:.1f} × the mean"


def _cell(text: str, *, faint: bool = False) -> str:
    return f'<td style="text-align:left;padding:0 8px 0 4px;{_FAINT if faint else ""}">{escape(text)}</td>'


def _left(count: int, what: str) -> str:
    more = count - _MOST_RANKS
    return f'<div style="font-size:12px;{_FAINT}">and {more} more {what}</div>' if more > 0 else ""
