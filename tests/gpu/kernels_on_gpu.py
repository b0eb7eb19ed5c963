"""A program that runs on GPU ranks: kernels of one's own answer as on CPU ranks, and a stream keeps its order."""

from __future__ import annotations

import pandas as pd
from exchanges import make_frame
from kernels import KERNELS, assert_answers, expected, within
from programs import failures, tell

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.runtime.context import current

SOME = {"net": ("x", "n"), "within": ("k", "n"), "branched": ("g", "k"), "looped": ("n", "b")}


def rows(table: gl.Table) -> pd.DataFrame:
    return to_frame(current().workspace.backend.to_host(table._whole()))


def answers(layout: str, name: str) -> None:
    context = current()
    frame = make_frame(layout, context.rank, context.size)[["g", "k", "x", "b", "n"]]
    table = gl.from_local(frame)
    made = table.assign(y=KERNELS[name](*SOME[name]))
    assert_answers(rows(made)["y"], expected(name, *(frame[column] for column in SOME[name])))
    assert made.num_rows == 0 or "on the GPU, as this is a GPU engine: compiled by numba-cuda" in made.explain()
    holds = [one is True for one in expected("within", frame["k"], frame["n"])]
    assert rows(table.filter(within("k", "n")))["g"].tolist() == frame["g"][holds].tolist()
    mapped = table.map_parts(lambda one: one[["g"]].assign(z=KERNELS["net"](one["x"], 0.5)))
    assert_answers(rows(mapped)["z"], (frame["x"] * 0.5).tolist())


def streams() -> None:
    import cupy

    context = current()
    values = cupy.zeros(1 << 22)
    for turn in range(20):
        values += 1  # on the engine's stream
        with context.stream("mine") as stream:
            begun = stream.event()
            values *= 2
            values -= turn
        values += turn  # again on the engine's
    stream.synchronize()
    wanted = 0.0
    for _ in range(20):
        wanted = (wanted + 1) * 2
    assert float(values.min()) == float(values.max()) == wanted
    assert begun.done and stream.seconds > 0 and 0 <= (stream.hidden or 0) <= 1
    assert [event for event in context.recorder.events() if event.name == "mine"]


if __name__ == "__main__":
    gl.initialize(sample_hz=0)
    checks = [
        (f"{name}, {layout}", lambda name=name, layout=layout: answers(layout, name))
        for name in KERNELS
        for layout in ("even", "one rank empty")
    ]
    tell(failures([*checks, ("streams", streams)]))
