"""The tuner: widgets that change the config of the next operation, and show its plan at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager
from html import escape
from typing import Any

import ipywidgets as w

from ..config import GcylonConfig
from ..errors import GcylonError
from ..ops.costs import VERBS
from ..ops.foresight import foresee
from ..ops.plan import STRATEGIES
from ..units import parse_bytes
from .limits import AUTO, format_size, limit_options
from .plan_text import plan_html
from .source import Source
from .worker import Worker

PRESETS: dict[str, Callable[[], GcylonConfig]] = {"default": GcylonConfig.default, "low memory": GcylonConfig.low_memory}
_KEPT = ("spill_dir", "host_memory_limit")
_APPLY_AFTER_S = 0.25
_NARROW = w.Layout(width="254px", margin="1px 0")
_LABEL = {"description_width": "92px"}


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
        self._ceiling = ceiling_bytes
        self._make_widgets(on_cpu)
        self._fill(self._config)
        self._observe()
        self.refresh()

    @property
    def config(self) -> GcylonConfig:
        """The config that the widgets show; the last one in range."""
        return self._config

    def _make_widgets(self, on_cpu: bool) -> None:
        def widget(kind: Any, label: str, tip: str, **more: Any) -> Any:
            return kind(description=label, tooltip=tip, layout=_NARROW, style=_LABEL, **more)

        self.preset = widget(w.Dropdown, "preset", "Sets all of the below", options=["custom", *PRESETS])
        self.limit = widget(
            w.SelectionSlider, "", "gpu_memory_limit: of each rank; auto takes the fraction below", options=[(AUTO, 0)]
        )
        self.fraction = widget(
            w.FloatSlider, "", "gpu_memory_fraction: of what was free at start; used when the limit is auto",
            min=0.05, max=1.0, step=0.05, readout_format=".2f",
        )  # fmt: skip
        self.chunk = widget(
            w.Combobox, "chunk size", "chunk_size_bytes: auto, or a size such as 4 MiB", ensure_option=False,
            options=[AUTO, "256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB"], continuous_update=False,
        )  # fmt: skip
        self.rows = widget(
            w.IntText, "min rows", "min_chunk_rows: a chunk is not made smaller, if the budget allows",
            continuous_update=False,
        )  # fmt: skip
        self.staging = self._checkbox("staging allowed", "allow_cpu_staging: chunks may leave the device tier")
        self.disk = self._checkbox("spill to disk", "allow_disk_spill: chunks may be staged to disk")
        tip = "use_pinned_memory: page-locked staging buffers" + (" (does nothing on CPU engines)" if on_cpu else "")
        self.pinned = self._checkbox("pinned buffers" + (" (GPU only)" if on_cpu else ""), tip)
        self.pinned.disabled = on_cpu
        half = w.Layout(width="124px")
        self.reset = w.Button(description="reset", tooltip="Back to the settings at the opening", layout=half)
        self.code_button = w.ToggleButton(description="as code", tooltip="The line that sets these", layout=half)
        self.code, self.message = w.HTML(), w.HTML(layout=w.Layout(min_height="38px"))
        self.verb = w.Dropdown(options=VERBS, layout=w.Layout(width="130px"))
        self.table = w.Dropdown(options=[], layout=w.Layout(width="170px"))
        self.strategy = w.Dropdown(options=STRATEGIES, layout=w.Layout(width="110px"))
        self.plan = w.HTML(layout=w.Layout(margin="0"))
        self.box = w.VBox(
            [
                w.HTML('<span class="gcylon-heading">Settings of the next operation</span>'), self.preset,
                w.HTML("memory limit of each rank"), self.limit,
                w.HTML("if auto, the fraction of free memory"), self.fraction, self.chunk, self.rows, self.staging, self.disk, self.pinned,
                w.HBox([self.reset, self.code_button]), self.code, self.message,
            ],
            layout=w.Layout(width="266px", flex="0 0 auto"),
        )  # fmt: skip
        self.plan_box = w.VBox(
            [
                w.HBox([
                    w.HTML('<span class="gcylon-heading">Plan</span>'), self.verb, w.HTML("of table"), self.table,
                    w.HTML("strategy"), self.strategy,
                ], layout=w.Layout(align_items="center")),
                self.plan,
            ]
        )  # fmt: skip

    def _checkbox(self, label: str, tip: str) -> Any:
        return w.Checkbox(description=label, tooltip=tip, indent=False, layout=w.Layout(width="254px", margin="0 0 0 8px"))

    def _settings(self) -> tuple[Any, ...]:
        return self.limit, self.fraction, self.chunk, self.rows, self.staging, self.disk, self.pinned

    def _observe(self) -> None:
        for setting in self._settings():
            setting.observe(self._changed, "value")
        for choice in (self.verb, self.table, self.strategy):
            choice.observe(self._choice_changed, "value")
        self.preset.observe(self._preset_chosen, "value")
        self.code_button.observe(self._show_code, "value")
        self.reset.on_click(self._reset_clicked)

    # Callbacks come on the kernel's comm threads and only read widgets and hand work on.

    def _changed(self, _change: Any) -> None:
        with self._lock:
            if self._filling:
                return
            try:
                self._take(self._read())
            except (GcylonError, ValueError) as error:
                self._say(str(error), bad=True)

    def _choice_changed(self, _change: Any) -> None:
        self._worker.request("plan", self.show_plan)

    def _preset_chosen(self, change: Any) -> None:
        with self._lock:
            if not self._filling and change["new"] in PRESETS:
                kept = {name: getattr(self._config, name) for name in _KEPT}
                self._take(PRESETS[change["new"]]().with_values(**kept))

    def _reset_clicked(self, _button: Any) -> None:
        with self._lock:
            self._take(self._opened_with)

    def _show_code(self, _change: Any) -> None:
        text = f"lab.config = {self._config.as_code()}"
        self.code.value = f'<pre class="gcylon-code">{escape(text)}</pre>' if self.code_button.value else ""

    def _read(self) -> GcylonConfig:
        chunk = self.chunk.value.strip().lower()
        return self._config.with_values(
            gpu_memory_limit=self.limit.value,
            gpu_memory_fraction=round(self.fraction.value, 4),
            chunk_size_bytes=0 if chunk in ("", AUTO) else parse_bytes(chunk),
            min_chunk_rows=self.rows.value,
            allow_cpu_staging=self.staging.value,
            allow_disk_spill=self.disk.value,
            use_pinned_memory=self.pinned.value,
        )

    def _take(self, config: GcylonConfig) -> None:
        self._config = config
        self._fill(config)
        self._say("")
        self._worker.request("plan", self.show_plan)
        self._worker.request("apply", self._apply, delay_s=_APPLY_AFTER_S)

    @contextmanager
    def _quietly(self) -> Any:
        with self._lock:
            before, self._filling = self._filling, True
            try:
                yield
            finally:
                self._filling = before

    def _fill(self, config: GcylonConfig) -> None:
        with self._quietly():
            options = limit_options(self._ceiling, config.gpu_memory_limit)
            if list(self.limit.options) != options:
                self.limit.options = options
            self.limit.value = config.gpu_memory_limit
            self.fraction.value = config.gpu_memory_fraction
            self.fraction.disabled = config.gpu_memory_limit != 0
            self.chunk.value = format_size(config.chunk_size_bytes)
            self.rows.value = config.min_chunk_rows
            self.staging.value = config.allow_cpu_staging
            self.disk.value = config.allow_disk_spill
            self.disk.disabled = not config.allow_cpu_staging
            self.pinned.value = config.use_pinned_memory
            kept = {name: getattr(config, name) for name in _KEPT}
            matching = [name for name, make in PRESETS.items() if make().with_values(**kept) == config]
            self.preset.value = matching[0] if matching else "custom"
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
        if not self.table.value:
            self.plan.value = (
                '<div class="gcylon-note">The plan of an operation on a table stands here, before it runs. '
                'Load one: <code>t = lab.read_parquet("...")</code></div>'
            )
            return
        try:
            infos = self._source.tables()[self.table.value]
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
            self.show_plan()
        elif not self.plan.value:
            self.show_plan()

    _seen: GcylonConfig | None = None

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
