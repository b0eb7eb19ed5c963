"""Messages of ranks: what may be posted, what is kept, what is dropped."""

from __future__ import annotations

import doctest
import math
import threading
from typing import Any

import numpy as np
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError
from gcylon_lab.runtime import context as contexts
from gcylon_lab.runtime.posts import CAPACITY, MOST_BYTES, Message, Messages, PostRing, read_messages


def posted(ring: PostRing, topic: str | None = None) -> Messages:
    return read_messages([ring.as_dict(topic)])


def test_values_come_back_as_they_were_when_they_were_posted() -> None:
    ring, value = PostRing(3), {"loss": [0.5, None], "ok": True, "name": "é"}
    ring.post("a", value)
    ring.post("b", float("nan"))
    value["loss"] = []
    (first,), (second,) = posted(ring, "a"), posted(ring, "b")
    assert first.value == {"loss": [0.5, None], "ok": True, "name": "é"} and (first.topic, first.rank) == ("a", 3)
    assert math.isnan(second.value) and len(posted(ring)) == 2 and len(posted(ring, "none")) == 0
    assert posted(ring).to_frame()["topic"].tolist() == ["a", "b"]


def test_the_ring_is_bounded_and_counts_what_it_drops() -> None:
    ring = PostRing(0, capacity=10)
    threads = [threading.Thread(target=lambda: [ring.post("x", n) for n in range(250)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = posted(ring)
    assert len(messages) == 10 and messages.dropped == {0: 990}
    assert "(rank 0 has dropped 990 older messages)" in repr(messages)
    assert "990 older messages" in messages._repr_html_()
    assert posted(PostRing(1)).dropped == {1: 0} and repr(posted(PostRing(1))) == "no messages"


@pytest.mark.parametrize(
    ("topic", "value", "said"),
    [
        ("x", np.zeros(2), "got ndarray: .* Convert it, for example with float"),
        ("x", {"a": {1, 2}}, "got dict: .*set"),
        ("x", "y" * MOST_BYTES, "at most 8 KiB are kept. Post a summary"),
        ("", 1, "topic='' is invalid. Expected text of 1 to 100"),
        ("t" * 101, 1, "is invalid. Expected text"),
        (3, 1, "topic=3 is invalid"),
    ],
)
def test_what_cannot_be_posted_is_refused(topic: Any, value: Any, said: str) -> None:
    ring = PostRing(0)
    with pytest.raises(ArgumentError, match=said):
        ring.post(topic, value)
    assert len(posted(ring)) == 0


def test_a_value_that_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ArgumentError, match="Expected JSON values"):
        PostRing(0).post("x", circle)


def test_messages_are_shown_escaped_in_the_order_of_time_the_last_ones() -> None:
    shown = Messages([Message("<b>", n, 0, float(-n)) for n in range(30)], {0: 0}, silent=[1])
    assert [one.value for one in shown[:2]] == [29, 28] and shown[-1].value == 0
    html = shown._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;" in html and html.count("<tr>") == 20
    assert "rank 1 did not answer" in html and "(the last 20 of 30)" in repr(shown)


def posts_on_a_rank() -> list[int]:
    context = gl.current()
    for n in range(CAPACITY + 5):
        context.post("step", [context.rank, n])
    assert context.messages().dropped == {context.rank: 5}
    return context.messages("step")[-1].value


def test_under_mpiexec_and_on_threads_each_rank_keeps_its_own() -> None:
    for world in (World("single", 1), World("threads", 2)):
        assert world.run(posts_on_a_rank) == [[rank, CAPACITY + 4] for rank in range(world.size)]


def test_the_example_runs() -> None:
    finder = doctest.DocTestFinder(recurse=False)
    (found,) = finder.find(contexts.Context.post, "post", globs={})
    assert doctest.DocTestRunner().run(found).failed == 0
    gl.current().close()
