"""The dashboard's comparison: says what it will run, runs it on a thread of its own, and shows the table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import Any

import ipywidgets as w

from ...config import GcylonConfig
from ...engine.plan.plan import STRATEGIES
from ...errors import GcylonError
from ...units import format_count
from ..figures.series import readable
from ..live.live_widget import set_html
from ..live.source import Source
from ..live.worker import Worker
from .comparison import NOT_RUN, Row, Variant, call_of, comparison_html, run, variants
from .planned import Planned
from .settings import PRESETS, preset

_WAYS = ("strategies", "settings")


class CompareBox:
    """The button [compare], and below it what it will do, the button that does it, and what came out.

    Parameters
    ----------
    source : Source
        The cluster, with handles to run operations on.
    planned : callable
        Gives the operation.
    config : callable
        Gives the config that the tuner shows.
    """

    def __init__(self, source: Source, planned: Callable[[], Planned], config: Callable[[], GcylonConfig]) -> None:
        self._source, self._planned, self._config = source, planned, config
        self._opened_with = source.config
        # Operations take long: they must hold up neither the drawing nor an interrupt.
        self._runner, self._hands = Worker(self._failed), Worker(self._failed)
        self._stop = threading.Event()
        self.running = False
        self._said_of: Any = None
        self._make_widgets()

    def _make_widgets(self) -> None:
        self.button = w.Button(
            description="compare", icon="balance-scale", layout={"width": "112px", "flex": "0 0 auto"},
            tooltip="Run this operation in several ways, one after the other. It says first what it will do.",
        )  # fmt: skip
        self.ways = w.Dropdown(
            options=_WAYS, layout={"width": "104px", "flex": "0 0 auto"},
            tooltip="strategies: each with the settings shown. settings: those shown, at the opening, and presets.",
        )  # fmt: skip
        self.repeat = w.Dropdown(
            options=[("once each", 1), ("3 times each", 3), ("5 times each", 5)],
            layout={"width": "116px", "flex": "0 0 auto"},
            tooltip="Runs of each: the fastest counts, and the largest peak",
        )  # fmt: skip
        self.start = w.Button(
            description="run these", button_style="primary", icon="play", layout={"width": "100px", "flex": "0 0 auto"}
        )
        self.dismiss = w.Button(description="close", layout={"width": "70px", "flex": "0 0 auto"})
        self.asks, self.table = w.HTML(layout={"flex": "1 1 280px", "min_width": "0"}), w.HTML()
        self._row = w.HBox(
            [self.ways, self.repeat, self.start, self.dismiss, self.asks],
            layout={"display": "none", "align_items": "center", "flex_flow": "row wrap"},
        )
        self.box = w.VBox([self._row, self.table], layout={"width": "100%"})
        self.button.on_click(lambda _: self._hands.request("open", self._open))
        for choice in (self.ways, self.repeat):
            choice.observe(lambda _: self._hands.request("open", self._open), "value")
        self.start.on_click(self._start_clicked)
        self.dismiss.on_click(self._dismiss_clicked)

    def keep_true(self) -> None:
        """Say anew what it will do, where another operation or other settings were chosen since; returns at once."""
        if self._row.layout.display != "none" and not self.running and self._said_of != self._chosen():
            self._hands.request("open", self._open)

    # --- callbacks ---

    def _start_clicked(self, _button: Any) -> None:
        if self.running:
            self._stop.set()
            self._hands.request("stop", self._source.interrupt)
            return
        self._stop.clear()
        self._runner.request("run", self._run)

    def _dismiss_clicked(self, _button: Any) -> None:
        if not self.running:
            self._row.layout.display = "none"
            self.table.value = ""

    def _failed(self, error: Exception) -> None:
        kind = "" if isinstance(error, GcylonError) else f"{type(error).__name__}: "
        self.asks.value = f'<span class="gcylon-error">{escape(kind + str(error))}</span>'

    # --- on the workers ---

    def _open(self) -> None:
        self._row.layout.display = ""
        if self.running:
            return
        self._said_of = self._chosen()
        try:
            text = self._what_it_will_do()
            self.start.disabled = False
            self.asks.value = f'<div class="gcylon-asks">{escape(text)}</div>'
        except GcylonError as error:
            self.start.disabled = True
            self._failed(error)

    def _chosen(self) -> Any:
        return self._planned(), self._config(), self.ways.value, self.repeat.value

    def _what_it_will_do(self) -> str:
        planned = self._planned()
        planned.arguments()
        if planned.table not in self._source.handles():
            raise GcylonError("There is no table to run it on.", advice='Load one: t = lab.read_parquet("...").')
        names = [variant.name for variant in self._variants(planned)]
        infos = self._source.tables()[planned.table]
        size = f"{format_count(sum(i['rows'] for i in infos))} rows, {readable(sum(i['nbytes'] for i in infos))}"
        each = f", {self.repeat.value} times each" if self.repeat.value > 1 else ""
        return (
            f"Runs {self._code(planned)} on all {len(infos)} ranks ({size}), one after the other, as: "
            f"{', '.join(names)}{each}; before that one run that does not count. Cells wait meanwhile; results are not "
            "kept, other tables may be staged, settings stay."
        )

    def _variants(self, planned: Planned) -> list[Variant]:
        shown = self._config()
        if self.ways.value == "strategies":
            return [Variant(name, name, shown) for name in STRATEGIES[1:]]
        named = {"shown": shown, "at the opening": self._opened_with}
        named |= {name: preset(name, shown) for name in PRESETS}
        distinct = {config: name for name, config in reversed(named.items())}  # of equal ones the first name
        configs = {name: config for name, config in named.items() if distinct[config] == name}
        return variants(configs, [planned.strategy])

    def _code(self, planned: Planned) -> str:
        """What is run, without the strategy where that is what differs."""
        return (replace(planned, strategy="auto") if self.ways.value == "strategies" else planned).code()

    def _run(self) -> None:
        planned = self._planned()
        table = self._source.handles()[planned.table]
        chosen, rows = self._variants(planned), dict[str, Row]()
        self._begin(len(chosen))
        try:
            call = call_of(self._source, planned)
            for row in run(table, planned.verb, call, chosen, self.repeat.value, is_stopped=self._stop.is_set):
                rows[row["name"]] = row
                self._show(planned, chosen, rows)
        finally:
            self._end(rows)

    def _begin(self, count: int) -> None:
        self.running = True
        self.start.description, self.start.icon, self.start.button_style = "stop", "stop", "warning"
        self.start.tooltip = "Ends the running operation with an error on all ranks; what is left is not run"
        self.table.value = ""
        self.asks.value = f'<span class="gcylon-note">Running 1 of {count} …</span>'

    def _show(self, planned: Planned, chosen: list[Variant], rows: dict[str, Row]) -> None:
        in_order = [rows[variant.name] for variant in chosen if variant.name in rows]
        set_html(
            self.table,
            f'<div class="gcylon-scroll gcylon-compared">{comparison_html(self._code(planned), in_order)}</div>',
        )
        if len(rows) < len(chosen):
            self.asks.value = f'<span class="gcylon-note">Running {len(rows) + 1} of {len(chosen)} …</span>'

    def _end(self, rows: dict[str, Row]) -> None:
        self.running = False
        self.start.description, self.start.icon, self.start.button_style = "run these", "play", "primary"
        self.start.tooltip = ""
        ran = sum(not row["error"] for row in rows.values())
        left = sum(row["error"].startswith(NOT_RUN) for row in rows.values())
        text = f"{ran} ran" + (f", {len(rows) - ran - left} failed" if len(rows) - ran - left else "")
        self.asks.value = f'<span class="gcylon-note">{text}{f", {left} not run" if left else ""}.</span>'

    def close(self) -> None:
        """Forget what is left to run, and end the threads."""
        self._stop.set()
        self._runner.close()
        self._hands.close()
