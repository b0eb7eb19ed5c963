"""`compare`: one operation under several settings, really run one after the other, and what each took."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ...cluster.handles.handle import DistTable
from ...config import GcylonConfig
from ...engine.plan.plan import STRATEGIES, check_strategy
from ...errors import ArgumentError, ClusterError, GcylonError, RankLost, Revoked
from ...profiling.report import summary
from ...units import format_count, format_rate, format_seconds
from ..figures.series import percent, readable
from ..live.source import Source
from .planned import OTHERS, VERBS, Planned

if TYPE_CHECKING:
    import pandas as pd


Row = dict[str, Any]

COLUMNS = (
    "name", "strategy", "rounds", "predicted_peak_bytes", "measured_peak_bytes", "budget_bytes", "seconds", "gb_per_s",
    "staged_bytes", "runs", "input_staged_bytes", "error",
)  # fmt: skip
NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the operation. Without a config it runs with the cluster's."""

    name: str
    strategy: str = "auto"
    config: GcylonConfig | None = None


class Comparison:
    """What `compare` found: a row for each way, in the order in which they were given.

    Attributes
    ----------
    title : str
        What was run.
    rows : list of dict
        name, strategy (as it ran), rounds, predicted_peak_bytes and measured_peak_bytes (of the rank with most),
        budget_bytes, seconds (of the slowest rank, in the fastest of the runs), gb_per_s (input bytes of a rank),
        staged_bytes (on all ranks), runs, input_staged_bytes (of the table, when the first run began), error
        (why there are no numbers). What is not known is None.
    """

    def __init__(self, title: str, rows: Sequence[Row]) -> None:
        self.title = title
        self.rows = list(rows)

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(COLUMNS))

    def __repr__(self) -> str:
        return comparison_text(self.title, self.rows)

    def _repr_html_(self) -> str:
        return comparison_html(self.title, self.rows)


def compare(
    table: DistTable,
    verb: str,
    *args: Any,
    configs: Mapping[str, GcylonConfig] | None = None,
    strategies: Sequence[str] | None = None,
    repeat: int = 1,
    **arguments: Any,
) -> Comparison:
    """Run an operation several times, each time with other settings, and put what it took side by side.

    The runs are real, one after the other, and their results are given up. Those with most room go first: what a tight
    one stages of the table stays staged, and a later run has to read it back. Before them the first one runs once more,
    uncounted, so that none pays for what only a first run costs. The cluster's own config stays as it is.

    Parameters
    ----------
    table : DistTable
    verb : str
        shuffle, join, groupby, sort_values, drop_duplicates, unique, union, intersect, difference, concat, allgather,
        gather, broadcast or repartition.
    *args, **arguments
        What the verb is called with. A group-by has ``by`` and, for its ``agg``, ``agg``; by default it counts rows.
    configs : mapping of str to GcylonConfig, optional
        Settings by the names of their rows.
    strategies : sequence of str, optional
        With ``configs``, each of them with each; alone, with the cluster's config. By default direct, chunked, staged.
    repeat : int, default 1
        Runs of each; the fastest counts, and the largest peak.

    Returns
    -------
    Comparison
        Shown as a table, the best of each column marked; ``.frame`` is a pandas frame. A run that failed is a row with
        the reason.

    Raises
    ------
    ArgumentError
        If there is nothing to compare, or a verb gives no table.

    Examples
    --------
    >>> gl.compare(trips, "shuffle", on="k", strategies=["direct", "staged"])                   # doctest: +SKIP
    """
    if not isinstance(table, DistTable):
        raise ArgumentError(
            f"Expected a DistTable, got {table!r}.", advice="Give a table such as lab.read_parquet(...) returns."
        )
    if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
        raise ArgumentError(
            f"Expected a number of runs for repeat, got {repeat!r}.", advice="Give an int of at least 1."
        )
    call = caller(table, verb, args, arguments)
    chosen = variants(configs, strategies)
    rows = {row["name"]: row for row in run(table, verb, call, chosen, repeat)}
    return Comparison(_title(verb, args, arguments), [rows[variant.name] for variant in chosen])


def variants(configs: Mapping[str, GcylonConfig] | None, strategies: Sequence[str] | None) -> list[Variant]:
    """Return what is to be compared, in order.

    Raises
    ------
    ArgumentError
        If a strategy is none, a config is none, or there is nothing.
    """
    named: Mapping[str, GcylonConfig | None] = {"": None} if configs is None else configs
    for name, config in named.items():
        if config is not None and not isinstance(config, GcylonConfig):
            raise ArgumentError(
                f"Expected a GcylonConfig for configs[{name!r}], got {config!r}.",
                advice="Give for example gl.GcylonConfig().",
            )
    if isinstance(strategies, str):
        strategies = [strategies]
    asked = (STRATEGIES[1:] if configs is None else ("auto",)) if strategies is None else tuple(strategies)
    for strategy in asked:
        check_strategy(strategy)
    made = [
        Variant(", ".join(filter(None, [name, strategy if not name or len(asked) > 1 else ""])), strategy, config)
        for name, config in named.items()
        for strategy in dict.fromkeys(asked)
    ]
    if not made:
        raise ArgumentError("There is nothing to compare.", advice="Give configs={'name': config, ...}, or strategies.")
    return made


def call_of(source: Source, planned: Planned) -> Callable[..., DistTable]:
    """Return a function of strategy and config that runs what is planned, on the tables of its source."""
    handles, arguments = source.handles(), planned.arguments()
    others = {name: handles[arguments[name]] for name in OTHERS if name in arguments}
    return caller(handles[planned.table], planned.verb, (), arguments | others)


def caller(table: DistTable, verb: str, args: Sequence[Any], arguments: Mapping[str, Any]) -> Callable[..., DistTable]:
    """Return a function of strategy and config that runs the verb.

    Raises
    ------
    ArgumentError
        If the verb gives no table that could be given up afterwards.
    """
    if verb not in VERBS:
        raise ArgumentError(f"verb={verb!r} cannot be compared.", advice=f"Expected one of {', '.join(VERBS)}.")
    more = {name: value for name, value in arguments.items() if name != "agg"}

    def call(strategy: str, config: GcylonConfig | None) -> DistTable:
        how: dict[str, Any] = {"strategy": strategy, "config": config}
        if verb == "groupby":
            groups, wanted = table.groupby(*args, **more), arguments.get("agg")
            return groups.size(**how) if wanted is None else groups.agg(wanted, **how)  # type: ignore[no-any-return]
        return getattr(table, verb)(*args, **more, **how)  # type: ignore[no-any-return]

    return call


def run(
    table: DistTable,
    verb: str,
    call: Callable[..., DistTable],
    chosen: Sequence[Variant],
    repeat: int = 1,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Row]:
    """Run variants, those with most room first; give each one's row as it is done.

    Parameters
    ----------
    table : DistTable
        The input.
    verb : str
    call : callable
        From `caller`.
    chosen : sequence of Variant
    repeat : int
    is_stopped : callable, optional
        Asked before each run; what is left then is given as not run.
    """
    in_order = sorted(chosen, key=lambda v: _tightness(table, v))
    # What only a first run pays for must not count against the one that happens to be it; what fails is told below.
    with contextlib.suppress(GcylonError):
        if not is_stopped():
            call(in_order[0].strategy, in_order[0].config).release()
    why = ""
    for variant in in_order:
        if not why and is_stopped():
            why = "stopped"
        if why:
            yield _row(variant, error=f"{NOT_RUN}: {why}")
            continue
        row = _measured(table, verb, call, variant, repeat, is_stopped)
        why = row.pop("end", "")
        yield row


def _tightness(table: DistTable, variant: Variant) -> tuple[int, int]:
    """The later, the more it stages."""
    config = variant.config or table._session.config
    memory = table.info()[0]
    try:
        limit = config.limit_bytes(memory["ceiling_bytes"], memory["free_at_start_bytes"])
    except GcylonError:
        limit = 0
    return -limit, (*STRATEGIES[1:], "auto").index(variant.strategy)


def _measured(
    table: DistTable,
    verb: str,
    call: Callable[..., DistTable],
    variant: Variant,
    repeat: int,
    is_stopped: Callable[[], bool],
) -> Row:
    before = staged_bytes(table)
    found: list[Row] = []
    for _ in range(repeat):
        if found and is_stopped():
            break
        known = {row["number"] for row in _operations(table, verb)}
        try:
            call(variant.strategy, variant.config).release()
        except (ClusterError, RankLost) as error:
            return _row(variant, error=_first_line(error), end="the cluster is not as it was")
        except Revoked as error:
            return _row(variant, error=_first_line(error), end="interrupted")
        except GcylonError as error:
            return _row(variant, error=_first_line(error))
        found += [row for row in _operations(table, verb) if row["number"] not in known and row["done"]][-1:]
    return _row_of(variant, found, before)


def _operations(table: DistTable, verb: str) -> list[Row]:
    rows = summary(table._session.feed.snapshots())["operations"]
    return [row for row in rows if row["verb"] == verb]


def staged_bytes(table: DistTable) -> int:
    """Bytes of a table below the device tier, on all ranks."""
    return sum(table.tiers.get(tier, 0) for tier in ("pinned", "disk"))


def _row_of(variant: Variant, found: Sequence[Row], input_staged_bytes: int) -> Row:
    if not found:
        return _row(variant, error="it ran, but the ranks kept no record of it")
    best = min(found, key=lambda o: o["seconds"])
    row = _row(variant) | {name: best[name] for name in ("strategy", "rounds", "budget_bytes", "seconds", "gb_per_s")}
    row |= {name: max(o[name] for o in found) for name in ("predicted_peak_bytes", "measured_peak_bytes")}
    return row | {
        "staged_bytes": best["staged_bytes"],
        "runs": len(found),
        "input_staged_bytes": input_staged_bytes,
    }


def _row(variant: Variant, **known: Any) -> Row:
    return dict.fromkeys(COLUMNS) | {"name": variant.name, "strategy": variant.strategy, "error": ""} | known


def _first_line(error: GcylonError) -> str:
    return str(error).partition("\n")[0]


def _title(verb: str, args: Sequence[Any], arguments: Mapping[str, Any]) -> str:
    shown = [_shown(value) for value in args] + [f"{name}={_shown(value)}" for name, value in arguments.items()]
    return f"{verb}({', '.join(shown)})"


def _shown(value: Any) -> str:
    return "a table" if isinstance(value, DistTable) else repr(value)


# ---- in words

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
