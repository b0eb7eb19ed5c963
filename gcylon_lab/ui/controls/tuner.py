"""The tuner: widgets that change the config of the next operation, and show its plan at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import ipywidgets as w

from ...config import GcylonConfig
from ...errors import GcylonError
from ..figures.view import Snapshot
from ..live.live_widget import LiveWidget
from ..live.source import Source
from ..live.worker import Worker
from .planner import Planner
from .settings import PRESETS, SettingsForm, preset

_APPLY_AFTER_S = 0.25


class TunerBox:
    """Config widgets and the plan of the chosen verb, as they stand in the dashboard and in `Tuner`.

    A change is planned at once, without asking a rank, and applied to the
    cluster a moment later; what is running keeps its own settings. A value out
    of range is said below the widgets and changes nothing.

    Parameters
    ----------
    source : Source
        The cluster.
    worker : Worker
        Does the planning and applying.
    snapshots : callable, optional
        Gives the ranks' latest snapshots.
    """

    def __init__(
        self, source: Source, worker: Worker, snapshots: Callable[[], Sequence[Snapshot]] = lambda: ()
    ) -> None:
        self._source, self._worker = source, worker
        self._lock = threading.RLock()
        self._filling = False
        self._opened_with = source.config
        self._config = source.config
        self._seen = source.config
        on_cpu = all(str(rank.get("device", "cpu")).startswith("cpu") for rank in source.ranks)
        self.form = SettingsForm(ceiling_bytes=self._ceiling(), on_cpu=on_cpu)
        self.planner = Planner(source, worker, lambda: self._config, snapshots)
        self._make_widgets()
        self._fill(self._config)
        self._observe()

    @property
    def config(self) -> GcylonConfig:
        """The config that the widgets show; the last one in range."""
        return self._config

    def _ceiling(self) -> int:
        return min((int(rank.get("ceiling_bytes") or 0) for rank in self._source.ranks), default=0)

    def _make_widgets(self) -> None:
        self.reset = w.Button(
            description="reset", tooltip="Back to the settings at the opening",
            layout={"width": "124px", "margin": "2px 0 2px 8px"},
        )  # fmt: skip
        self.message = w.HTML(layout={"min_height": "38px"})
        heading = w.HTML('<span class="gcylon-heading">Settings of the next operation</span>')
        *fields, more, rare = self.form.widgets
        buttons = w.HBox([more, self.reset])
        self.box = w.VBox(
            [heading, *fields, buttons, rare, self.message], layout={"width": "274px", "flex": "0 0 auto"}
        )
        self.plan_box = self.planner.box

    def _observe(self) -> None:
        for setting in self.form.values:
            setting.observe(self._changed, "value")
        self.form.preset.observe(self._preset_chosen, "value")
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

    def _preset_chosen(self, change: Any) -> None:
        with self._lock:
            if not self._filling and change["new"] in PRESETS:
                self._take(preset(change["new"], self._config))

    def _reset_clicked(self, _button: Any) -> None:
        with self._lock:
            self._take(self._opened_with)

    def _take(self, config: GcylonConfig) -> None:
        self._config = config
        self._fill(config)
        self._say("")
        self.planner.request()
        self._worker.request("apply", self._apply, delay_s=_APPLY_AFTER_S, kept=True)

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
            self.planner.show_code()

    def _say(self, text: str, *, bad: bool = False) -> None:
        kind = "gcylon-error" if bad else "gcylon-note"
        self.message.value = f'<div class="{kind}" style="width:254px">{escape(text)}</div>' if text else ""

    # What follows runs on the worker.

    def _apply(self) -> None:
        config = self._config
        try:
            self._source.config = config
        except GcylonError as error:
            self._say(f"Not applied. {error}", bad=True)
            return
        if config is not self._config:
            return
        if config.spill_dir and not os.path.isdir(config.spill_dir):
            self._say(f"Set, but there is no folder {config.spill_dir} here: make it, or staging will fail.", bad=True)
        else:
            self._say("Set. The next operation will use it; what runs keeps its own.")

    def refresh(self) -> None:
        """Take up what changed outside: config, budget, tables. Sends nothing where nothing changed."""
        config, ceiling = self._source.config, self._ceiling()
        with self._lock:
            if self.form.reach(ceiling):
                self._fill(self._config)
            if config != self._config and not self._worker.waits("apply") and config != self._seen:
                self._config = config
                self._fill(config)
            self._seen = config
        self.planner.refresh()

    def close(self) -> None:
        """End what runs for it; the widgets are closed with what they stand in."""
        self.planner.close()


class Tuner(LiveWidget):
    """The settings of a cluster's next operation as widgets, and the plan of an operation that is chosen there.

    A change is planned at once, without asking a rank, and holds from the next
    operation on. It is a part of the dashboard, and stands alone.

    Parameters
    ----------
    lab : Cluster

    Examples
    --------
    >>> gl.Tuner(lab)                                                # doctest: +SKIP
    """

    def __init__(self, lab: Any = None) -> None:
        super().__init__(lab)
        self.tuner = TunerBox(self._source, self._worker, lambda: self._snapshots)
        plan = w.VBox([self.tuner.plan_box], layout=w.Layout(flex="1 1 auto", min_width="0"))
        self._compose(w.HBox([self.tuner.box, plan], layout=w.Layout(width="100%")))

    @property
    def config(self) -> GcylonConfig:
        """The config that the widgets show."""
        return self.tuner.config

    def _draw(self) -> None:
        self.tuner.refresh()

    def _free(self) -> None:
        self.tuner.close()
