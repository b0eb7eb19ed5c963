"""A program for a world of its own: one rank is killed in the middle of a shuffle; the others write what they saw."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import GcylonError
from gcylon_lab.runtime.context import initialize

KILLED = 1


class Killed:
    """A backend that ends its process at the second chunk."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._left = 2

    def __getattr__(self, name: str) -> Any:
        if name == "partition":
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self._inner, name)


def errors_of(call: Any) -> dict[str, Any]:
    started = time.monotonic()
    try:
        call()
    except GcylonError as error:
        seen = {"kind": type(error).__name__, "text": str(error), "numbers": error.numbers}
        return seen | {"waited_s": time.monotonic() - started}
    return {"kind": None}


def main(folder: Path) -> None:
    context = initialize(GcylonConfig(chunk_size_bytes=4096), sample_hz=0)
    rows = np.arange(20_000)
    table = gl.from_local(pd.DataFrame({"k": rows % 97, "v": rows + context.rank}))
    before = context.budget.used_bytes
    if context.rank == KILLED:
        context.workspace.backend = Killed(context.workspace.backend)  # type: ignore[assignment]
    seen = {"shuffle": errors_of(lambda: table.shuffle("k"))}
    seen["left"] = {"bytes": context.budget.used_bytes - before}
    seen["again"] = errors_of(lambda: table.allgather())
    seen["recover"] = errors_of(context.recover)
    (folder / str(context.rank)).write_text(json.dumps(seen))
    context.close()
    # A rank that ends is lost to those that still look: nobody leaves before all have written.
    until = time.monotonic() + 20
    while len(list(folder.iterdir())) < context.size - 1 and time.monotonic() < until:
        time.sleep(0.01)
    os._exit(0)  # MPI's own end would wait for the lost rank


if __name__ == "__main__":
    main(Path(sys.argv[1]))
