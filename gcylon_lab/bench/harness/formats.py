"""A table of cells as text, Markdown, HTML and LaTeX."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from ...profiling.report import format_table

# Beside ASCII, what LaTeX sets without a package.
_SET = set(map(chr, range(0xA1, 0x180))) - set("«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ") | set("–—‘’“”…€→←•†‡™‰")
_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "µ": r"\ensuremath{\mu}",
    "±": r"\ensuremath{\pm}", "²": r"\ensuremath{^2}", "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "≤": r"\ensuremath{\leq}", "≥": r"\ensuremath{\geq}", "≈": r"\ensuremath{\approx}", "−": "-",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


@dataclass(frozen=True, slots=True)
class Cells:
    """A titled table: the first column is set left, the others right; notes stand below it."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def as_text(table: Cells) -> str:
    """Columns in line, for a terminal."""
    lines = format_table(table.head, table.rows)
    return "\n".join([table.title, "", *lines, *([""] if table.notes else []), *table.notes])


def as_markdown(table: Cells) -> str:
    """A table as GitHub and JupyterLab read it."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(map(_plain, cells))} |"

    rule = f"| --- |{' ---: |' * (len(table.head) - 1)}"
    parts = ["\n".join([line(table.head), rule, *map(line, table.rows)]), *map(_plain, table.notes)]
    return "\n\n".join([f"**{_plain(table.title)}**", *parts])


def _plain(text: str) -> str:
    """Text of one line, which is no HTML, no link, no image and no end of a cell."""
    return re.sub(r"[\\|\[]", r"\\\g<0>", escape(" ".join(text.split()), quote=False))


def as_html(table: Cells) -> str:
    """A card that a notebook or a page shows; all text is escaped."""

    from ...cluster.handles.html_repr import CARD_STYLE

    def row(cells: Sequence[str], tag: str) -> str:
        sides = ("left", *("right",) * (len(cells) - 1))
        inner = (
            f'<{tag} style="text-align:{side};padding:1px 6px">{_glued(escape(cell))}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{''.join(inner)}</tr>"

    head, body = row(table.head, "th"), "".join(row(cells, "td") for cells in table.rows)
    notes = "".join(f'<div style="opacity:0.75">{escape(note)}</div>' for note in table.notes)
    return (
        f'<div style="{CARD_STYLE}"><div><b>{escape(table.title)}</b></div>'
        f'<table style="font-size:12px"><thead>{head}</thead><tbody>{body}</tbody></table>{notes}</div>'
    )


def _glued(text: str) -> str:
    """Figures stay with their units; between two of them a narrow page may begin a new line."""
    return re.sub(r"(?<=[\d±]) (?!to )|(?<=\bto) ", "\N{NO-BREAK SPACE}", text)


def as_latex(table: Cells) -> str:
    """A ``tabular`` in a ``table``; it needs no package."""

    def line(cells: Sequence[str]) -> str:
        text = " & ".join(map(_escaped, cells))
        # After the end of a row these would be its arguments.
        return f"{'{}' if text[:1] in ('[', '*') else ''}{text} \\\\"

    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_escaped(' '.join([table.title, *table.notes]))}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
            r"\hline",
            line(table.head),
            r"\hline",
            *map(line, table.rows),
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _escaped(text: str) -> str:
    known = (c if " " <= c <= "~" or c in _SET or c in _LATEX else _instead(c) for c in " ".join(text.split()))
    made = _SPECIAL.sub(lambda found: _LATEX[found[0]], "".join(known))
    return re.sub("-(?=-)", "-{}", made)  # no dash, as in --baseline


def _instead(sign: str) -> str:
    """The same letter without its accent, or the number of a sign that has none."""
    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return plain if plain and plain.isprintable() else f"U+{ord(sign):04X}"


FORMATS: dict[str, Callable[[Cells], str]] = {
    "text": as_text, "markdown": as_markdown, "html": as_html, "latex": as_latex,
}  # fmt: skip
