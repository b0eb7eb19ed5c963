"""The plan panel: choose an operation, see how it would run, what would change that, and its code; compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets as w

from ...cluster.handles.html_repr import staged_html
from ...config import GcylonConfig
from ...engine.plan.part_stats import Infos
from ...engine.plan.plan import STRATEGIES, Plan
from ...errors import GcylonError
from ..figures.view import Snapshot
from ..live.live_widget import set_html
from ..live.source import Source
from ..live.worker import Worker
from .compare_box import CompareBox
from .limit_sweep import (
    better_below,
    limit_now,
    limits_text,
    non_monotonic_range,
    switches_text,
    turns,
    without_ceilings,
)
from .plan_text import measured_speeds, plan_html
from .planned import (
    JOIN_HOWS,
    VERBS,
    WITH_HOW,
    WITH_KEYS,
    WITH_OTHER,
    WITH_ROOT,
    Planned,
    read_keys,
    second_table,
)

_REPLAN_EVERY_S = 0.5
_NO_TABLE = (
    '<div class="gcylon-note">The plan of an operation on a table stands here, before it runs. '
    'Load one: <code>t = lab.read_parquet("...")</code></div>'
)


class Planner:
    """Chooses an operation and shows its plan under the config that the tuner shows. No rank is asked.

    Parameters
    ----------
    source : Source
        The cluster, whose tables can be planned for.
    worker : Worker
        Does the planning.
    config : callable
        Gives the config to plan with.
    snapshots : callable
        Gives the ranks' latest snapshots: what was measured in this session.
    """

    def __init__(
        self,
        source: Source,
        worker: Worker,
        config: Callable[[], GcylonConfig],
        snapshots: Callable[[], Sequence[Snapshot]],
    ) -> None:
        self._source, self._worker, self._config, self._snapshots = source, worker, config, snapshots
        self._changes: tuple[Any, str] = (None, "")
        self._make_choices()
        self.plan = w.HTML()
        self.compare_box = CompareBox(source, self.planned, config)
        self.code_button = w.ToggleButton(
            description="as code", tooltip="The lines that set these settings and run this operation",
            layout={"width": "84px"},
        )  # fmt: skip
        self.code = w.HTML()
        self.code_button.observe(lambda _: self.show_code(), "value")
        self.buttons = w.HBox([self.compare_box.button, self.code_button], layout={"flex": "0 0 auto"})
        row = w.HBox(
            [self._choices, self.buttons],
            layout={"align_items": "flex-start", "justify_content": "space-between", "width": "100%"}
            | {"flex_flow": "row wrap"},
        )
        self.box = w.VBox([row, self.plan, self.code, self.compare_box.box], layout={"width": "100%"})

    def _make_choices(self) -> None:
        self.verb = w.Dropdown(options=VERBS, layout={"width": "136px"}, tooltip="The operation to plan")
        self.table = w.Dropdown(options=[], layout={"width": "130px"}, tooltip="The table")
        self.keys = w.Combobox(
            options=[], ensure_option=False, continuous_update=False, placeholder="key columns",
            tooltip="Key columns; several with commas between them", layout={"width": "120px"},
        )  # fmt: skip
        self.other = w.Dropdown(options=[], layout={"width": "130px"}, tooltip="The second table")
        self.how = w.Dropdown(options=JOIN_HOWS, layout={"width": "78px"}, tooltip="Which rows without a partner stay")
        ranks = max(len(self._source.ranks), 1)
        self.root = w.BoundedIntText(
            min=0, max=ranks - 1, layout={"width": "64px"}, tooltip=f"A rank, 0 to {ranks - 1}"
        )
        self.strategy = w.Dropdown(
            options=STRATEGIES, layout={"width": "92px"}, tooltip="The strategy: auto takes the first that fits"
        )
        by, other, rank = _named("by", self.keys), _named("with", self.other, self.how), _named("rank", self.root)
        self._shown_for = (
            (WITH_KEYS, (by, self.keys)), (WITH_OTHER, (other, self.other)), (WITH_HOW, (self.how,)),
            (WITH_ROOT, (rank, self.root)),
        )  # fmt: skip
        verb = _named('<span class="gcylon-heading">Plan</span>', self.verb)
        self._heading = verb.children[0]
        self._choices = w.HBox(
            [verb, _named("of", self.table), other, by, rank, _named("strategy", self.strategy)],
            layout={"align_items": "center", "flex_flow": "row wrap", "flex": "1 1 420px", "min_width": "0"},
        )  # fmt: skip
        self._show_what_matters(None)
        self.verb.observe(self._show_what_matters, "value")
        # Another verb or table asks for another second one; what a hand chose beside these stays.
        for choice in (self.verb, self.table, self.how):
            choice.observe(self._choose_other, "value")
        for choice in (self.verb, self.table, self.keys, self.other, self.how, self.root, self.strategy):
            choice.observe(self._chosen, "value")

    def extend(self, name: Any, first: Any, button: Any, below: Any) -> None:
        """Put more into its row, where what is chosen is run: a named control before the verb, a button before the
        others, and what stands below."""
        self._heading.value = "verb"
        named = w.HBox([name, first], layout={"align_items": "center", "flex": "0 0 auto"})
        self._choices.children = (named, *self._choices.children)
        self.buttons.children = (button, *self.buttons.children)
        row, *rest = self.box.children
        self.box.children = (row, below, *rest)

    def planned(self) -> Planned:
        """Return the operation that is chosen."""
        infos = self._source.tables().get(self.table.value, ())
        columns = infos[0]["columns"] if infos else ()
        return Planned(
            verb=self.verb.value,
            table=self.table.value or "",
            keys=read_keys(self.keys.value, columns),
            other=self.other.value or "",
            how=self.how.value,
            root=self.root.value,
            strategy=self.strategy.value,
        )

    # --- callbacks ---

    def _chosen(self, _change: Any) -> None:
        self.request()

    def _show_what_matters(self, _change: Any) -> None:
        for verbs, parts in self._shown_for:
            for part in parts:
                part.layout.display = "" if self.verb.value in verbs else "none"

    def _choose_other(self, _change: Any = None) -> None:
        """Choose another second table, or key, where the verb cannot take what is chosen."""
        tables, planned = self._source.tables(), self.planned()
        if planned.verb not in WITH_OTHER or planned.table not in tables:
            return
        offered = [name for name in self.other.options if name in tables and name != planned.table]
        columns = {name: tables[name][0]["columns"] for name in (planned.table, *offered)}
        mine = columns.pop(planned.table)
        other, keys = second_table(planned, mine, columns)
        if other in columns:
            self.other.value = other
        if keys != planned.keys:
            self.keys.value = ", ".join(map(str, keys))

    def show_code(self) -> None:
        """Show the lines that set the config and run the operation, if they are asked for."""
        text = ""
        if self.code_button.value:
            line = f"result = {self.planned().code()}" if self.table.value else ""
            config = f"lab.config = {self._config().as_code()}"
            if "()" not in config:
                config = config.replace("(", "(\n    ").replace(", ", ",\n    ")
            text = f'<pre class="gcylon-code">{escape(config)}\n{escape(line)}</pre>'
        set_html(self.code, text)

    def request(self) -> None:
        """Have the plan made anew; returns at once."""
        self._worker.request("plan", self.show)

    # --- on the worker ---

    def show(self) -> None:
        """Plan the chosen operation with the config shown."""
        tables, planned, config = self._source.tables(), self.planned(), self._config()
        self.show_code()
        self.compare_box.keep_true()
        if planned.table not in tables:
            set_html(self.plan, _NO_TABLE)
            return
        plan: Plan | None = None
        try:
            plan = planned.plan(tables, config)
            nbytes = sum(int(info["nbytes"]) for info in tables[planned.table])
            used = [int(info["used_bytes"]) for info in tables[planned.table]]
            html = plan_html(plan.as_dict(), measured_speeds(self._snapshots(), planned.verb, nbytes), used)
        except GcylonError as error:
            html = f'<div class="gcylon-error">{escape(str(error))}</div>'
        below = [
            f"{escape(name)}: {text}" for name in involved(planned) if (text := staged_html(tables.get(name, ()), name))
        ]
        lines = [escape(self._what_would_change(planned, tables, config, plan)), *below]
        set_html(self.plan, html + "".join(f'<div class="gcylon-changes">{line}</div>' for line in lines if line))

    def _what_would_change(
        self, planned: Planned, tables: Mapping[str, Infos], config: GcylonConfig, plan: Plan | None
    ) -> str:
        """Found anew only where something is other than before: it takes some dozens of plans."""
        those = {name: tables[name] for name in involved(planned) if name in tables}
        key = (planned, config, repr(those))
        if self._changes[0] != key:
            self._changes = (key, _changes(planned, those, config, plan))
        return self._changes[1]

    def refresh(self) -> None:
        """Take up tables that came and went, and what is in use by now."""
        tables, before = self._source.tables(), (self.table.value, self.other.value, self.keys.value)
        _offer(self.table, list(tables), last=True)
        _offer(self.other, [name for name in tables if name != self.table.value], last=False)
        columns = [str(column) for column in tables[self.table.value][0]["columns"]] if self.table.value else []
        if list(self.keys.options) != columns:
            self.keys.options = columns
        if columns and any(str(key) not in columns for key in read_keys(self.keys.value, columns) or ("",)):
            self.keys.value = columns[0]
        if (self.table.value, self.other.value, self.keys.value) != before:
            self._choose_other()
        # What is in use changes with every operation, and the plan with it.
        self._worker.request("replan", self.show, every_s=_REPLAN_EVERY_S)

    def close(self) -> None:
        """End what runs for it; the widgets are closed with what they stand in."""
        self.compare_box.close()


def _named(name: str, *controls: Any) -> Any:
    """Controls behind their name, which stay beside it where the row breaks."""
    return w.HBox([w.HTML(name), *controls], layout={"align_items": "center", "flex": "0 0 auto"})


def involved(planned: Planned) -> tuple[str, ...]:
    """Return the names of the tables that an operation takes."""
    return tuple(dict.fromkeys([planned.table, *[planned.other] * (planned.verb in WITH_OTHER)]))


def _changes(planned: Planned, tables: Mapping[str, Infos], config: GcylonConfig, plan: Plan | None) -> str:
    infos, roomy = tables[planned.table], without_ceilings(tables)
    nbytes = sum(int(info["nbytes"]) + int(info["used_bytes"]) for part in tables.values() for info in part)
    try:
        plan_at = lambda other: planned._plan(roomy, other)  # noqa: E731
        found = turns(plan_at, config, nbytes)
        now = limit_now(config, infos)
        less = non_monotonic_range(plan_at, config, found, now) if plan else None
        more = better_below(plan_at, config, now)
        texts = [limits_text(found, config, infos, plan.strategy if plan else "", less, more)]
    except GcylonError:
        texts = []
    on_cpu = not infos[0].get("pinned_tier", False)
    texts.append(switches_text(lambda other: planned._plan(tables, other), config, plan, on_cpu=on_cpu))
    return " ".join(text for text in texts if text)


def _offer(dropdown: Any, names: list[str], *, last: bool) -> None:
    """Offer names; what was chosen stays chosen as long as it is there."""
    if names == list(dropdown.options):
        return
    chosen = dropdown.value
    dropdown.options = names
    dropdown.value = chosen if chosen in names else (names[-1 if last else 0] if names else None)
