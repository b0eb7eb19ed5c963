"""One application for notebook and Voila: choose a file, a verb and settings, run, and watch."""

from __future__ import annotations

import keyword
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from threading import Thread
from typing import Any

import ipywidgets as w

from ..api.verbs.arguments import fitted
from ..config import GcylonConfig
from ..errors import ArgumentError, GcylonError
from ..units import format_count, format_seconds
from .controls.comparison import call_of
from .dashboard import Dashboard
from .figures.numbers import html_table
from .live.cluster_source import ClusterSource
from .live.live_widget import close_tree
from .live.page_visibility import PageWatcher
from .live.worker import Worker

READERS = {
    ".parquet": "read_parquet", ".pq": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv", ".json": "read_json",
    ".jsonl": "read_json", ".ndjson": "read_json", ".arrow": "read_ipc", ".feather": "read_ipc",
}  # fmt: skip
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
RESULT = "result"
_SHOWN_ROWS, _LONGEST = 8, 40
_MOST_RANKS = 8
# A page that has not answered for so long is gone; asked each so many seconds.
_PATIENCE_S, _EVERY_S = 30.0, 5.0
_CHOOSE = "choose a file"


@fitted
def app(files: str | Path | Iterable[str | Path], *, ranks: int = 2, config: GcylonConfig | None = None) -> App:
    """Return an application: choose a file, a verb and settings, run it, and see the ranks at work below.

    It starts a cluster of its own when it is told to. Under Voila that ends half a minute after its page is gone.

    Parameters
    ----------
    files : path, or iterable of paths
        Files to choose from (parquet, csv, JSON lines, Arrow). A folder stands for those in it, ``*`` for what it
        matches.
    ranks : int, default 2
        How many are offered at first.
    config : GcylonConfig, optional
        The settings that it starts with.

    Raises
    ------
    ArgumentError
        If there is no file that can be read, or no such number of ranks.

    Examples
    --------
    >>> gl.app("data")                                               # doctest: +SKIP
    """
    return App(files, ranks=ranks, config=config)


class App:
    """The application, see `app`."""

    def __init__(
        self, files: str | Path | Iterable[str | Path], *, ranks: int = 2, config: GcylonConfig | None = None
    ) -> None:
        if not 1 <= ranks <= _MOST_RANKS:
            raise ArgumentError(f"ranks={ranks!r} is out of range [1, {_MOST_RANKS}].")
        self.files = named_files(files)
        self._config = config
        self._runner = Worker(self._failed)
        self._tables: dict[str, Any] = {}
        self._lab: Any = None
        self.dashboard: Dashboard | None = None
        self.page = PageWatcher()
        self._make_widgets(ranks)
        self._root = w.VBox([self.page, self.bar, self.said, self.place], layout=w.Layout(width="100%"))

    def _make_widgets(self, ranks: int) -> None:
        self.ranks = w.Dropdown(
            options=range(1, _MOST_RANKS + 1), value=ranks, layout={"width": "64px"}, tooltip="How many processes"
        )
        self.start = w.Button(description="start", icon="play", button_style="primary", layout={"width": "90px"})
        self.start.tooltip = "Start the processes that hold the tables"
        self.bar = w.HBox([w.HTML("ranks"), self.ranks, self.start])
        self.said, self.place = w.HTML("Nothing runs yet: press start."), w.VBox()
        self.start.on_click(lambda _: self._begin("start", self._start))

    def _fill_rows(self, dashboard: Dashboard) -> None:
        """Put what the application has more than a dashboard into the rows that this has."""
        self.told = w.HTML()
        self.file = w.Dropdown(
            options=[_CHOOSE, *self.files], layout={"width": "150px"}, tooltip="A file to read: it becomes a table"
        )
        self.run = w.Button(
            description="run", icon="play", button_style="primary", layout={"width": "80px"},
            tooltip="Run what is chosen; its result is a table to go on with",
        )  # fmt: skip
        self.end = w.Button(
            description="end", icon="power-off", layout={"width": "80px"}, tooltip="End the processes; all tables go"
        )
        self.file.observe(self._file_chosen, "value")
        self.run.on_click(lambda _: self._begin("run", self._run))
        self.end.on_click(lambda _: self._begin("end", self._end))
        dashboard.tuner.planner.extend(
            w.HTML('<span class="gcylon-heading">File</span>'), self.file, self.run, self.told
        )
        dashboard.cluster.buttons.children = (*dashboard.cluster.buttons.children, self.end)

    @property
    def widget(self) -> Any:
        """The composed widget."""
        return self._root

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = dict(self._root._repr_mimebundle_(**kwargs))
        return bundle | {"text/plain": f"<App of {len(self.files)} files, live while its kernel runs>"}

    def close(self) -> None:
        """End the cluster, take the application off the page, free everything. Idempotent."""
        self._end()
        self._runner.close()
        close_tree(self._root)

    # --- callbacks: short; the work is done on the worker ---

    def _begin(self, key: str, job: Callable[[], None]) -> None:
        self._runner.request(key, partial(self._work, job))

    def _file_chosen(self, change: Any) -> None:
        if change["new"] in self.files:
            self._begin("read", partial(self._read, change["new"]))

    # --- on the worker ---

    def _work(self, job: Callable[[], None]) -> None:
        self._enable(False)
        try:
            job()
        finally:
            self._enable(True)

    def _enable(self, able: bool) -> None:
        controls = [self.start, self.ranks]
        controls += [self.file, self.run, self.end] if self.dashboard is not None else []
        for control in controls:
            control.disabled = not able

    def _failed(self, error: Exception) -> None:
        kind = "" if isinstance(error, GcylonError) else f"{type(error).__name__}: "
        self._say(f'<span class="gcylon-error" style="color:var(--jp-error-color0)">{escape(kind + str(error))}</span>')

    def _say(self, html: str) -> None:
        """Below the row of controls, and before there is one in its place."""
        (self.said if self.dashboard is None else self.told).value = html

    def _start(self) -> None:
        from ..cluster.client.cluster import Cluster

        if self._lab is not None:
            return
        began = time.monotonic()
        self._say(f"Starting {self.ranks.value} processes; that takes some seconds …")
        self._lab = Cluster(self.ranks.value, name=f"app_{id(self):x}", config=self._config, grace_s=5, progress=False)
        dashboard = Dashboard(_TablesOf(self._lab, self._tables))
        self._fill_rows(dashboard)
        self.dashboard = dashboard
        self.place.children = (dashboard.widget,)
        self.bar.layout.display = self.said.layout.display = "none"
        self._say(f"Ready after {format_seconds(time.monotonic() - began)}: choose a file, then what to do with it.")
        if "VOILA_REQUEST_URL" in os.environ:
            Thread(target=self._end_without_page, args=(self._lab,), daemon=True).start()
        if len(self.files) == 1:
            self.file.value = next(iter(self.files))

    def _read(self, name: str) -> None:
        if self.dashboard is None:
            return
        if name not in self._tables:
            path = self.files[name]
            self._say(f"Reading {escape(str(path))} …")
            began = time.monotonic()
            table = getattr(self._lab, READERS[_suffix(path)])(str(path))
            self._tables[name] = table
            took = format_seconds(time.monotonic() - began)
            self._say(f"<b>{escape(name)}</b>: {format_count(len(table))} rows of {escape(path.name)}, read in {took}.")
        planner = self.dashboard.tuner.planner
        planner.refresh()
        planner.table.value = name

    def _run(self) -> None:
        if self.dashboard is None:
            return
        planned = self.dashboard.tuner.planner.planned()
        if planned.table not in self._tables:
            self._say("Choose a file first: it becomes the table to work on.")
            return
        code = planned.code()
        self._say(f"Running <code>{escape(code)}</code> …")
        self._lab.config = self.dashboard.tuner.config
        call = call_of(self.dashboard._source, planned)
        began = time.monotonic()
        result = call(planned.strategy, None)
        took = time.monotonic() - began
        # What a result was made of may be the result before it.
        before = self._tables.pop(RESULT, None)
        if before is not None:
            before.release()
        self._tables[RESULT] = result
        first = result.head(_SHOWN_ROWS)
        cells = [[_short(value) for value in row] for row in first.itertuples(index=False)]
        head = html_table(([str(name) for name in first.columns], cells))
        rows = f"{format_count(len(result))} rows in {format_seconds(took)}"
        self._say(f'<code>{escape(RESULT)} = {escape(code)}</code>: {rows}<div class="gcylon-scroll">{head}</div>')
        self.dashboard.tuner.planner.refresh()

    def _end(self) -> None:
        lab, dashboard = self._lab, self.dashboard
        if lab is None:
            return
        self._lab, self.dashboard = None, None
        self.place.children = ()
        if dashboard is not None:
            dashboard.close()
        self._tables.clear()
        lab.close()
        self.bar.layout.display = self.said.layout.display = ""
        self._say("The processes have ended: start begins anew.")

    def _end_without_page(self, lab: Any) -> None:
        """A page that was closed cannot press end."""
        answered = time.monotonic()
        while self._lab is lab and time.monotonic() - answered < _PATIENCE_S:
            self.page.ask()
            time.sleep(_EVERY_S)
            if self.page.tock == self.page.tick:
                answered = time.monotonic()
        if self._lab is lab:
            self._begin("end", self._end)


class _TablesOf(ClusterSource):
    """A cluster whose tables are the application's, not those that a notebook has names for."""

    def __init__(self, lab: Any, tables: Mapping[str, Any]) -> None:
        super().__init__(lab)
        self._tables = tables

    def handles(self) -> dict[str, Any]:
        """The application's tables."""
        return {name: table for name, table in dict(self._tables).items() if not table.released}


def named_files(files: str | Path | Iterable[str | Path]) -> dict[str, Path]:
    """Return the files that can be read, by names that tables can have.

    Raises
    ------
    ArgumentError
        If there is none.
    """
    asked = [files] if isinstance(files, (str, Path)) else list(files)
    found = [path for one in asked for path in _expand(Path(one).expanduser()) if _suffix(path) in READERS]
    if not found:
        endings = ", ".join(READERS)
        raise ArgumentError(
            f"There is no file to choose from in {', '.join(map(str, asked)) or 'an empty list'}.",
            advice=f"Expected files that end with one of {endings}, a folder of such, or a pattern.",
        )
    named: dict[str, Path] = {}
    for path in dict.fromkeys(found):
        base = re.sub(r"\W+", "_", path.name.partition(".")[0]).strip("_") or "table"
        base = f"t_{base}" if base[0].isdigit() or keyword.iskeyword(base) or base == RESULT else base
        name, count = base, 2
        while name in named:
            name, count = f"{base}_{count}", count + 1
        named[name] = path
    return named


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _expand(path: Path) -> list[Path]:
    if path.is_dir() and not any(path.glob("*=*")):
        return sorted(inside for inside in path.iterdir() if inside.is_file() and inside.name[0] not in "._")
    if any(sign in path.name for sign in "*?["):
        return sorted(path.parent.glob(path.name))
    return [path] if path.exists() else []


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSED]
    return suffixes[-1] if suffixes else ".parquet" if path.is_dir() else ""
