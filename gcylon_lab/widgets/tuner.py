"""The tuner: widgets that change the config of the next operation, and show its plan at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import ipywidgets as w

from ..config import GcylonConfig
from ..errors import GcylonError
from ..ops.foresight import foresee
from ..ops.plan import STRATEGIES
from ..ops.shapes import VERBS
from .plan_text import plan_html
from .settings import PRESETS, SettingsForm, preset
from .source import Source
from .worker import Worker

_APPLY_AFTER_S = 0.25
_REPLAN_EVERY_S = 0.5


class Tuner:
    """Config widgets and the plan of the chosen verb.

    A change is planned at once, without asking a rank, and applied to the
    cluster a moment later; what is running keeps its own settings. A value out
    of range is said below the widgets and changes nothing.

    Parameters
    ----------
    source : Source
        The cluster.
    worker : Worker
        Does the planning and applying.
    ceiling_bytes : int, optional
        The largest budget that can be asked for; 0 if it is not known.
    on_cpu : bool, optional
        Whether the ranks have no GPU; pinned memory does nothing then.
    """

    def __init__(self, source: Source, worker: Worker, *, ceiling_bytes: int = 0, on_cpu: bool = True) -> None:
        self._source, self._worker = source, worker
        self._lock = threading.RLock()
        self._filling = False
        self._opened_with = source.config
        self._config = source.config
        self._seen = source.config
        self.form = SettingsForm(ceiling_bytes=ceiling_bytes, on_cpu=on_cpu)
        self._make_widgets()
        self._fill(self._config)
        self._observe()

    @property
    def config(self) -> GcylonConfig:
        """The config that the widgets show; the last one in range."""
        return self._config

    def _make_widgets(self) -> None:
        half = {"width": "124px"}
        self.reset = w.Button(description="reset", tooltip="Back to the settings at the opening", layout=half)
        self.code_button = w.ToggleButton(description="as code", tooltip="The line that sets these", layout=half)
        self.code, self.message = w.HTML(), w.HTML(layout={"min_height": "38px"})
        heading = w.HTML('<span class="gcylon-heading">Settings of the next operation</span>')
        buttons = w.HBox([self.reset, self.code_button])
        self.box = w.VBox(
            [heading, *self.form.widgets, buttons, self.code, self.message],
            layout={"width": "266px", "flex": "0 0 auto"},
        )
        self._make_plan()

    def _make_plan(self) -> None:
        self.verb = w.Dropdown(options=VERBS, layout={"width": "130px"})
        self.table = w.Dropdown(options=[], layout={"width": "170px"})
        self.strategy = w.Dropdown(options=STRATEGIES, layout={"width": "110px"})
        self.plan = w.HTML(layout={"margin": "0"})
        choice = w.HBox(
            [
                w.HTML('<span class="gcylon-heading">Plan</span>'), self.verb, w.HTML("of table"), self.table,
                w.HTML("strategy"), self.strategy,
            ],
            layout={"align_items": "center"},
        )  # fmt: skip
        self.plan_box = w.VBox([choice, self.plan])

    def _observe(self) -> None:
        for setting in self.form.values:
            setting.observe(self._changed, "value")
        for choice in (self.verb, self.table, self.strategy):
            choice.observe(self._choice_changed, "value")
        self.form.preset.observe(self._preset_chosen, "value")
        self.code_button.observe(self._show_code, "value")
        self.reset.on_click(self._reset_clicked)

    # Callbacks come on the kernel's comm threads and only read widgets and hand work on.

    def _changed(self, _change: Any) -> None:
        with self._lock:
            if self._filling:
                return
            try:
                self._take(self.form.read(self._config))
            except (GcylonError, ValueError) as error:
                self._say(str(error), bad=True)

    def _choice_changed(self, _change: Any) -> None:
        self._worker.request("plan", self.show_plan)

    def _preset_chosen(self, change: Any) -> None:
        with self._lock:
            if not self._filling and change["new"] in PRESETS:
                self._take(preset(change["new"], self._config))

    def _reset_clicked(self, _button: Any) -> None:
        with self._lock:
            self._take(self._opened_with)

    def _show_code(self, _change: Any) -> None:
        text = f"lab.config = {self._config.as_code()}".replace("(", "(\n    ").replace(", ", ",\n    ")
        self.code.value = f'<pre class="gcylon-code">{escape(text)}</pre>' if self.code_button.value else ""

    def _take(self, config: GcylonConfig) -> None:
        self._config = config
        self._fill(config)
        self._say("")
        self._worker.request("plan", self.show_plan)
        self._worker.request("apply", self._apply, delay_s=_APPLY_AFTER_S)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        with self._lock:
            before, self._filling = self._filling, True
            try:
                yield
            finally:
                self._filling = before

    def _fill(self, config: GcylonConfig) -> None:
        with self._quietly():
            self.form.show(config)
            self._show_code(None)

    def _say(self, text: str, *, bad: bool = False) -> None:
        kind = "gcylon-error" if bad else "gcylon-note"
        self.message.value = f'<div class="{kind}" style="width:250px">{escape(text)}</div>' if text else ""

    # What follows runs on the worker.

    def _apply(self) -> None:
        config = self._config
        try:
            self._source.config = config
        except GcylonError as error:
            self._say(f"Not applied. {error}", bad=True)
            return
        if config is self._config:
            self._say("Set. The next operation will use it.")

    def show_plan(self) -> None:
        """Plan the chosen verb of the chosen table with the config shown."""
        infos = self._source.tables().get(self.table.value)
        if infos is None:
            self.plan.value = (
                '<div class="gcylon-note">The plan of an operation on a table stands here, before it runs. '
                'Load one: <code>t = lab.read_parquet("...")</code></div>'
            )
            return
        try:
            plan = foresee(self.verb.value, infos, self._config, strategy=self.strategy.value)
            self.plan.value = plan_html(plan.as_dict())
        except GcylonError as error:
            self.plan.value = f'<div class="gcylon-error">{escape(str(error))}</div>'

    def refresh(self) -> None:
        """Take up what changed outside: the cluster's config, its tables. Sends nothing where nothing changed."""
        config = self._source.config
        with self._lock:
            if config != self._config and not self._worker.waits("apply") and config != self._seen:
                self._config = config
                self._fill(config)
            self._seen = config
        names = list(self._source.tables())
        if names != list(self.table.options):
            chosen = self.table.value
            self.table.options = names
            self.table.value = chosen if chosen in names else (names[-1] if names else None)
        # What is in use changes with every operation, and the plan with it.
        self._worker.request("replan", self.show_plan, every_s=_REPLAN_EVERY_S)

    def close(self) -> None:
        """Free the widgets."""
        for box in (self.box, self.plan_box):
            close_tree(box)


def close_tree(widget: Any) -> None:
    """Close a widget and all that stand in it, with their callbacks, layouts and styles."""
    for child in getattr(widget, "children", ()):
        close_tree(child)
    widget.unobserve_all()
    for part in (getattr(widget, "layout", None), getattr(widget, "style", None)):
        if part is not None and hasattr(part, "close"):
            part.close()
    widget.close()
