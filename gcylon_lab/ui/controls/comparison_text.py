"""Pure: a comparison as text and as HTML, the best of each column marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ...units import format_count, format_rate, format_seconds
from ..figures.series import percent, readable

Row = Mapping[str, Any]

BEST = "★"
_HEAD = ("", "strategy", "rounds", "predicted peak", "measured peak", "of budget", "time", "rate a rank", "staged")
# What is best of a column: the least or the most of a field.
_BEST = {
    2: ("rounds", min), 3: ("predicted_peak_bytes", min), 4: ("measured_peak_bytes", min), 6: ("seconds", min),
    7: ("gb_per_s", max), 8: ("staged_bytes", min),
}  # fmt: skip


def comparison_text(title: str, rows: Sequence[Row]) -> str:
    """Return the comparison as lines of text."""
    cells = [list(_HEAD), *(_marked(row, rows) for row in rows)]
    wide = [max(len(line[i]) for line in cells) for i in range(len(_HEAD))]
    lines = []
    for line, error in zip(cells, ["", *(row["error"] for row in rows)], strict=True):
        first, rest = line[0].ljust(wide[0]), [cell.rjust(n) for cell, n in zip(line[1:], wide[1:], strict=True)]
        lines.append("  ".join([first, rest[0], f"✖ {error}"] if error else [first, *rest]))
    return "\n".join([title, *(line.rstrip() for line in lines), *_notes(rows)])


def comparison_html(title: str, rows: Sequence[Row]) -> str:
    """Return the comparison as an HTML table."""
    head = "".join(f'<th style="text-align:right">{escape(name)}</th>' for name in _HEAD)
    body = "".join(_html_row(row, rows) for row in rows)
    notes = "".join(f"<div><small>{escape(note)}</small></div>" for note in _notes(rows))
    return (
        f'<div><b>{escape(title)}</b><table class="gcylon-numbers" style="font-variant-numeric:tabular-nums">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}</div>"
    )


def _html_row(row: Row, rows: Sequence[Row]) -> str:
    first = f'<th style="text-align:left">{escape(str(row["name"]))}</th>'
    if row["error"]:
        why = (
            f'<td colspan="{len(_HEAD) - 2}" style="text-align:left;white-space:normal">'
            f'<div class="gcylon-why">✖ {escape(row["error"])}</div></td>'
        )
        return f'<tr>{first}<td style="text-align:right">{escape(str(row["strategy"]))}</td>{why}</tr>'
    cells = "".join(f'<td style="text-align:right">{_bold(cell)}</td>' for cell in _marked(row, rows)[1:])
    return f"<tr>{first}{cells}</tr>"


def _bold(cell: str) -> str:
    return f"<b>{escape(cell)}</b>" if cell.startswith(BEST) else escape(cell)


def _marked(row: Row, rows: Sequence[Row]) -> list[str]:
    return [f"{BEST} {cell}" if _is_best(place, row, rows) else cell for place, cell in enumerate(_cells(row))]


def _is_best(place: int, row: Row, rows: Sequence[Row]) -> bool:
    if place not in _BEST:
        return False
    name, best = _BEST[place]
    known = [r[name] for r in rows if r[name] is not None and not r["error"]]
    # Where all are alike none is best.
    return row[name] is not None and len(set(known)) > 1 and row[name] == best(known)


def _cells(row: Row) -> list[str]:
    if row["error"]:
        return [str(row["name"]), str(row["strategy"]), *[""] * (len(_HEAD) - 2)]
    peak, budget = row["measured_peak_bytes"], row["budget_bytes"]
    return [
        str(row["name"]),
        row["strategy"],
        format_count(row["rounds"]),
        readable(row["predicted_peak_bytes"]),
        readable(peak),
        f"{percent(peak / budget)} of {readable(budget)}" if budget else "",
        format_seconds(row["seconds"]),
        "" if row["gb_per_s"] is None else format_rate(row["gb_per_s"] * 1e9),
        readable(row["staged_bytes"]) if row["staged_bytes"] else "nothing",
    ]


def _notes(rows: Sequence[Row]) -> list[str]:
    """What a reader must know to compare fairly."""
    notes = []
    below = {row["input_staged_bytes"] for row in rows if not row["error"]}
    if len(below) > 1:
        told = ", ".join(f"{r['name']} {readable(r['input_staged_bytes'])}" for r in rows if not r["error"])
        notes.append(f"Not all began alike: of the table so much was staged already and had to be read back: {told}.")
    runs = {row["runs"] for row in rows if not row["error"]}
    if max(runs, default=1) > 1:
        notes.append(f"Times are of the fastest of {max(runs)} runs, peaks the largest.")
    return notes
