"""When a page first showed what was taken, and whose page it is."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading

import pytest

from gcylon_lab.bench.dashboard import page
from gcylon_lab.bench.dashboard.display_latency import first_seen, run
from gcylon_lab.errors import ArgumentError, GcylonError


def test_the_first_drawing_with_most_of_it_counts() -> None:
    draws = [[9.0, 0.1], [10.2, 0.1], [10.5, 0.2], [11.0, 4.1], [12.0, 4.2]]
    assert first_seen(10.0, draws) == 1.0


def test_what_was_drawn_before_does_not_count() -> None:
    # The one before, which is given back only then.
    assert first_seen(10.0, [[9.0, 4.0], [9.9, 0.0], [10.3, 4.0]]) == pytest.approx(0.3)


@pytest.mark.parametrize("draws", [[], [[10.5, 1.0]], [[9.0, 1.0], [10.5, 1.1]], [[9.5, 4.0], [10.5, 0.0]]])
def test_what_never_showed_is_an_error(draws: list[list[float]]) -> None:
    with pytest.raises(GcylonError, match=f"Of {len(draws)} drawings none"):
        first_seen(10.0, draws)


def test_no_repetition_tells_nothing() -> None:
    with pytest.raises(ArgumentError, match="repeats is 0"):
        run(0)


def test_who_took_the_port_first_is_not_believed(tmp_path):
    """A server of somebody else answers in the place of ours, which then ends: nobody is sent to it with the token."""
    (tmp_path / "jupyter.log").write_text("the port is in use")
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        ours = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
        with pytest.raises(GcylonError, match="does not answer"):
            page._wait(f"http://127.0.0.1:{other.server_port}/", ours, tmp_path)
        other.shutdown()
        thread.join()
