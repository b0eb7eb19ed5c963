"""The cluster's strip and its buttons: who the ranks are, how they are, and what frees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets as w

from ...cluster.channel.interrupts import stopped
from ..figures.panels.memory import near_budget
from ..figures.series import readable
from ..figures.view import Snapshot, make_view
from ..live.live_widget import LiveWidget, set_html
from ..live.source import Source
from ..live.worker import Worker
from .status_bar import RankState, chips_html, headline_html, latest_progress, limit_of, rank_states

CONFIRM_S = 5.0
_TOLD_S = 10.0

_NOTHING_RUNS = "Nothing runs now, so a click does nothing."
_INTERRUPT = "Ends {what} with an error on all ranks, wherever they are. Its inputs and all tables stay."
_REVOKE = (
    "Frees ranks that wait for others, with an error: {what} ends where it next meets the others. Work that a rank "
    "does by itself goes on until then, unlike with interrupt. All tables stay."
)
_NO_REVOKE = "This MPI library has no revoke: interrupt, or restart."
_RESTART = (
    "All ranks start anew: what runs ends, and every table on them is lost; the settings stay. A second click does it."
)


class ClusterBox:
    """Headline, a chip for each rank, the buttons interrupt and restart, and revoke under more.

    Parameters
    ----------
    source : Source
        The cluster.
    hands : Worker
        Does what the buttons ask for.
    on_restarted : callable
        Called once the ranks have started anew.
    """

    def __init__(self, source: Source, hands: Worker, on_restarted: Callable[[], None]) -> None:
        self._source, self._hands, self._on_restarted = source, hands, on_restarted
        self._armed = 0.0
        self.restarting = False
        self._told: tuple[str, float, float] | None = None  # what was asked for, when, and when all were free
        self._running = ""
        self._began: tuple[str, str, float] = ("", "", 0.0)  # what runs, its verb, and since when
        self._ended_as = ""
        self._route = _route(source)
        self.headline, self.chips, self.said = w.HTML(), w.HTML(), w.HTML()
        self._make_buttons()
        self.buttons = w.HBox([self.interrupt, self.restart, self.more, self.revoke])
        self.buttons.add_class("gcylon-buttons")
        top = w.HBox([self.headline, self.buttons])
        top.add_class("gcylon-top")
        self.box = w.VBox([top, self.chips, self.said], layout=w.Layout(width="100%"))

    def _make_buttons(self) -> None:
        layout = {"width": "104px"}
        self.interrupt = w.Button(description="interrupt", icon="pause", layout=layout, tooltip=_NOTHING_RUNS)
        self.revoke = w.Button(description="revoke", icon="chain-broken", layout=layout, tooltip=_NOTHING_RUNS)
        self.restart = w.Button(description="restart", icon="refresh", layout={"width": "118px"}, tooltip=_RESTART)
        self.more = w.ToggleButton(
            description="more", layout={"width": "64px"}, tooltip="What is rarely needed: revoke, which frees ranks"
        )
        self.more.observe(self._show_more, "value")
        self._show_more(None)
        self.interrupt.on_click(lambda _: self._hands.request("interrupt", self._interrupt))
        self.revoke.on_click(lambda _: self._hands.request("revoke", self._revoke))
        self.restart.on_click(self._restart_clicked)

    def _show_more(self, _change: Any) -> None:
        self.revoke.layout.display = "" if self.more.value else "none"

    # --- what is shown ---

    def show(
        self,
        snapshots: Sequence[Snapshot],
        status: Mapping[str, Any],
        near: Sequence[tuple[int, float]] = (),
        *,
        age_s: float = 0.0,
    ) -> None:
        """Bring it up to date.

        Parameters
        ----------
        snapshots : sequence of dict
            The latest of each rank.
        status : mapping
            The latest that `Source.status` gave; may be empty.
        near : sequence of (rank, share)
            Those near their budget, from `memory_panel.near_budget`.
        age_s : float
            How old the snapshots are.
        """
        told = status.get("ranks", ())
        ranks = self._source.ranks
        states = rank_states(ranks, snapshots, status.get("dead", ()), told, age_s)
        limit = limit_of(ranks, self._source.config)
        set_html(self.headline, headline_html(states, snapshots, status, near, self._route, limit))
        set_html(self.chips, chips_html(states))
        self._running = _what_runs(states, snapshots)
        if self._running != self._began[0]:
            running = latest_progress(snapshots, states)
            verb = str(running["verb"]) if running else "call"
            self._began = (self._running, verb, time.monotonic() - age_s)
        self._show_tips(status)
        if not (self._armed or self.restarting):
            set_html(self.said, self._said(states))

    def _show_tips(self, status: Mapping[str, Any]) -> None:
        what = self._running
        interrupt = _INTERRUPT.format(what=what) if what else _NOTHING_RUNS
        revoke = _REVOKE.format(what=what) if what else _NOTHING_RUNS
        can = bool(status.get("revocable", True))
        for button, tip in ((self.interrupt, interrupt), (self.revoke, revoke if can else _NO_REVOKE)):
            if button.tooltip != tip:
                button.tooltip = tip
        if self.revoke.disabled == can:
            self.revoke.disabled = not can

    def _said(self, states: Sequence[RankState]) -> str:
        """What came of the last click, for a while."""
        if self._told is None:
            return ""
        what, asked, free = self._told
        now = time.monotonic()
        at_work = [s.rank for s in states if s.kind in ("working", "waiting", "stuck")]
        if not free and not at_work:
            free = now
            self._told = (what, asked, free)
        if free:
            text = self._ended_as or f"{what}: no rank is at work any more."
            self._told = None if now - free > _TOLD_S else self._told
        else:
            ranks = ", ".join(map(str, at_work[:6])) + ("…" if len(at_work) > 6 else "")
            text = f"{what}, {now - asked:.0f} s ago; still at work: rank{'s' * (len(at_work) > 1)} {ranks}."
            text += " If that stays so: restart." if now - asked > _TOLD_S else ""
        return f'<div class="gcylon-said gcylon-note">{escape(text)}</div>'

    # --- the buttons; short, the work is done on the worker ---

    def _restart_clicked(self, _button: Any) -> None:
        if time.monotonic() - self._armed > CONFIRM_S:
            self._armed = time.monotonic()
            self.restart.description, self.restart.button_style = "lose tables?", "danger"
            self._hands.request("ask", self._ask)
            self._hands.request("disarm", self._disarm, delay_s=CONFIRM_S)
            return
        self._armed = 0.0
        self.restart.disabled = True
        self._hands.request("restart", self._restart)

    def _ask(self) -> None:
        if self._armed:
            text = escape(_loss(self._source, self._running))
            self.said.value = f'<div class="gcylon-said gcylon-asks">{text} Click again within {CONFIRM_S:g} s.</div>'

    def _interrupt(self) -> None:
        what, verb, began = self._began
        self._source.interrupt()
        now = time.monotonic()
        self._ended_as = stopped(verb, now - began) if what else ""
        self._told = ("interrupted", now, 0.0)

    def _revoke(self) -> None:
        self._source.revoke()
        self._ended_as = ""
        self._told = ("revoked", time.monotonic(), 0.0)

    def _disarm(self) -> None:
        self._armed = 0.0
        self.restart.description, self.restart.button_style, self.restart.disabled = "restart", "", False
        self.said.value = ""

    def _restart(self) -> None:
        self.restart.description, self.restarting = "restarting …", True
        self.said.value = '<div class="gcylon-said gcylon-note">The ranks start anew; that takes some seconds.</div>'
        try:
            self._source.restart()
            self._told, self._route = None, _route(self._source)
            self._on_restarted()
        finally:
            self.restarting = False
            self._disarm()


def _route(source: Source) -> str:
    routes = dict.fromkeys(str(rank.get("route", "")) for rank in source.ranks)
    return "; ".join(filter(None, routes))


def _what_runs(states: Sequence[RankState], snapshots: Sequence[Snapshot]) -> str:
    running = latest_progress(snapshots, states)
    if running:
        return f"#{int(running['number'])} {running['verb']}"
    busy = [state.text for state in states if state.kind in ("working", "waiting", "stuck")]
    return f"what the ranks do ({busy[0]})" if busy else ""


def _loss(source: Source, running: str) -> str:
    """What a restart takes with it."""
    tables = source.tables()
    nbytes = sum(int(info["nbytes"]) for infos in tables.values() for info in infos)
    names = ", ".join(list(tables)[:6]) + (", …" if len(tables) > 6 else "")
    lost = f"Lost: {names} ({readable(nbytes)}), and all that %px made." if tables else "Lost: all that %px made."
    lost += " The settings stay."
    ends = f" and {running} ends" if running else ""
    return f"A restart ends all {len(source.ranks)} processes{ends}. {lost}"


_WINDOW_S = 2.0


class ClusterCard(LiveWidget):
    """Who the ranks of a cluster are and how each is, live, with buttons that free them.

    A rank that waits turns amber after 2 s and says for whom; one that waits in vain, or does not answer, is stuck;
    a dead one is named with its exit. It is on top of the dashboard, and stands alone.

    Parameters
    ----------
    lab : Cluster

    Examples
    --------
    >>> gl.ClusterCard(lab)                                          # doctest: +SKIP
    """

    def __init__(self, lab: Any = None) -> None:
        super().__init__(lab)
        self.cluster = ClusterBox(self._source, self._hands, self._forget)
        self._compose(self.cluster.box)

    def _forget(self) -> None:
        self._snapshots, self._status = [], {}
        self.errors.value = ""
        self._ask_for_drawing()

    def _may_look(self) -> bool:
        return not self.cluster.restarting

    def _draw(self) -> None:
        near = near_budget(make_view(self._snapshots, window_s=_WINDOW_S))
        self.cluster.show(self._snapshots, self._status, near, age_s=self._age_s)
        self._ask_for_status()
