"""How far an operation is: words, a bar by round, and a clear end."""

from __future__ import annotations

import io
from typing import Any

import pytest

from gcylon_lab.cluster.channel import progress
from gcylon_lab.cluster.channel.progress import ProgressLine, Waiting, Where, describe, ending
from gcylon_lab.errors import ColumnMissing, Revoked


def state(rank: int, done: int, **more: Any) -> dict[str, Any]:
    where = {"verb": "shuffle", "number": 7, "round": done, "rounds": 8, "phase": "exchange", "since_ns": 0}
    sizes = {"sent_bytes": 3 * 2**20, "spent_s": 4.0}
    return {
        "rank": rank,
        "running": "shuffle",
        "operation": 7,
        "requests": 1,
        "revoked": False,
        "progress": where | sizes | more,
    }


def test_the_rank_that_is_least_far_is_shown_with_bytes_and_time_left() -> None:
    where = describe([state(0, 4), state(1, 2, phase="waiting")], 4.2)
    assert where.text == "shuffle round 2/8, 6 MiB sent, rank 1: waiting, 4.20 s, about 10 s left"
    assert where.share == 0.25 and str(where).startswith("█████" + "░" * 15 + " shuffle")
    assert "width:25%" in where._repr_html_()


@pytest.mark.parametrize("more", [{"round": 0}, {"round": 8}, {"rounds": 0, "round": 0}, {"spent_s": 0.0}])
def test_no_time_is_said_to_be_left_where_it_is_not_known(more: dict[str, Any]) -> None:
    assert "left" not in describe([state(0, 4, **more)], 4.2).text


def test_without_rounds_there_is_no_bar() -> None:
    idle = {"rank": 0, "running": "run", "operation": 0, "requests": 1, "revoked": False, "progress": None}
    where = describe([idle], 1.5)
    assert (str(where), where.share) == ("run: 1.50 s", None)
    assert not describe([idle | {"running": ""}], 1.5)
    assert "<b>" not in Where("<b>")._repr_html_()


def test_the_end_says_how_it_ended() -> None:
    last = describe([state(0, 4)], 4.2)
    assert str(ending(last, 5.0, None)) == "shuffle done in 5 s"
    failed = str(ending(last, 5.0, ColumnMissing("x")))
    assert "left" not in failed
    assert failed.startswith("shuffle failed after 5 s; it was at: shuffle round 4/8")
    for error in (KeyboardInterrupt(), Revoked("x")):
        assert str(ending(last, 5.0, error)) == "Interrupted: shuffle stopped after 5.0 s; tables are unchanged."
    told = KeyboardInterrupt("Interrupted: groupby stopped after 4.6 s; tables are unchanged.")
    assert str(ending(last, 5.0, told)) == str(told)


class Terminal(io.StringIO):
    """Takes what is written to a terminal."""

    def isatty(self) -> bool:
        return True


def in_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """To be called in the test itself: between fixtures and tests pytest puts its own stderr back."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    return terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("error, end", [(None, "done in 2 s"), (KeyboardInterrupt(), "stopped after 2.0 s")])
def test_a_terminal_shows_a_line_after_a_second_and_ends_it(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], error: BaseException | None, end: str
) -> None:
    terminal = in_terminal(monkeypatch)
    waiting = Waiting(lambda: [state(0, 4), None], show=True)
    waiting.begin()
    for seconds in (0.6, 0.9):
        clock[0] = 100 + seconds
        waiting.tick(seconds)
    assert terminal.getvalue() == ""
    clock[0] = 101.2
    waiting.tick(1.2)
    assert terminal.getvalue().startswith("\r\x1b[K██") and "round 4/8" in terminal.getvalue()
    clock[0] = 102.0
    waiting.done(error)
    assert "\r\x1b[K" in terminal.getvalue() and f"shuffle {end}" in terminal.getvalue()
    assert terminal.getvalue() and terminal.getvalue().endswith("\n")
    waiting.done()
    assert terminal.getvalue().count("\n") == 1, "it ends once"


def test_what_is_over_soon_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_terminal(monkeypatch)
    waiting = Waiting(lambda: pytest.fail("ranks were asked"), show=True)
    waiting.begin()
    waiting.tick(0.2)
    waiting.done()
    line = ProgressLine()
    line.end()
    assert terminal.getvalue() == ""


def test_a_thread_without_a_cell_shows_nothing_but_knows(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    terminal = in_terminal(monkeypatch)
    waiting = Waiting(lambda: [state(0, 4)], show=True)
    waiting.hide_here()
    waiting.begin()
    clock[0] = 103.0
    waiting.tick(3.0)
    assert waiting.where.share == 0.5 and terminal.getvalue() == ""
    waiting.done()
    assert not waiting.where
