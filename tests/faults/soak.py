"""Inject faults in a row and check after each that the next operation works.

    python tests/faults/soak.py --ranks 3 --faults 300

Ranks raise before, in and after the rounds of a shuffle, on one rank or on all;
are interrupted, all or one, busy or idle; run past a deadline; fail in a cell.
Where there are GPUs the ranks work on them (GCYLON_ENGINE=cpu or gpu says
otherwise, GCYLON_TRANSPORT chooses how rows travel).
Ends with an error if a rank stays stuck, if an error does not name its rank, or
if an operation after a fault gives wrong rows.
"""

from __future__ import annotations

import argparse
import collections
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import gcylon_lab as gl
from gcylon_lab.errors import CommError, DeadlineExceeded, GcylonError, RankError

PATHS = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
ROWS_A_RANK = 10_000
PROMISED_S = 5.0
STUCK_S = 20.0


# --- what runs on the ranks ---


def arm(rank: int, method: str, nth: int, sleep_s: float, after: bool = False) -> None:
    """Let a rank's backend or transport fail, or dawdle, the nth time that it is asked for something.

    With ``after`` it does what it was asked for, and then fails: its messages are on their way.
    """
    context = gl.current()
    if context.rank != rank:
        return
    workspace = context.workspace
    broken_one = workspace.transport if method in ("exchange", "finish") else workspace.backend
    original = getattr(broken_one, method)
    calls = [0]

    def broken(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] != nth:
            return original(*args, **kwargs)
        if sleep_s:
            time.sleep(sleep_s)
            return original(*args, **kwargs)
        if after:
            original(*args, **kwargs)
        raise OSError(f"soak: {method} call {nth}")

    setattr(broken_one, method, broken)
    if method == "exchange" and hasattr(broken_one, "writing"):  # rows that kernels write are not exchanged
        writing = broken_one.writing

        def broken_writing() -> Any:
            calls[0] += 1
            if calls[0] == nth:
                raise OSError(f"soak: {method} call {nth}")
            return writing()

        broken_one.writing = broken_writing


def disarm() -> tuple[int, int]:
    """Take the faults away; returns the bytes that this rank's budget has in use, and those allocated on its GPU."""
    context = gl.current()
    for method in ("partition", "partition_ids", "exchange", "finish", "writing"):
        vars(context.workspace.backend).pop(method, None)
        vars(context.workspace.transport).pop(method, None)
    gc.collect()
    assert not getattr(context.transport, "_kept", ()), "device memory is still exposed"
    # A GPU's budget learns with each operation what is allocated without a claim; here it is to know now.
    context.spill.poll()
    context.budget.start_window()
    device = context.equipment.device
    return int(context.budget.used_bytes), 0 if device is None else int(device.used_bytes)


def raise_around(table: Any, rank: int, place: str) -> int:
    """Shuffle twice; one rank raises before, between or after."""
    mine = gl.current().rank == rank
    if mine and place == "before":
        raise ValueError("soak: before")
    first = table.shuffle("k", strategy="chunked")
    if mine and place == "between":
        raise ValueError("soak: between")
    second = first.shuffle("v")
    if mine and place == "after":
        raise ValueError("soak: after")
    return int(second.num_rows)


def dawdle(table: Any, rank: int, seconds: float) -> int:
    """Shuffle, one rank late."""
    if gl.current().rank == rank:
        time.sleep(seconds)
    return int(table.shuffle("k").num_rows)


# --- the faults ---


class Soak:
    """One cluster, its table, and what was counted."""

    def __init__(self, ranks: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.lab = gl.Cluster(ranks, name="soak", progress=False, env={"PYTHONPATH": PATHS})
        print(f"{self.lab.ranks[0].engines}; rows travel by {self.lab.ranks[0].route}", flush=True)
        self.lab.config = self.lab.config.with_values(chunk_size_bytes=32_768, min_chunk_rows=64)
        rows = ROWS_A_RANK * ranks
        frame = pd.DataFrame({"k": range(rows), "v": [i % 97 for i in range(rows)]})
        frame["s"] = [f"row {i}" for i in range(rows)]
        self.table = self.lab.from_pandas(frame)
        self.held = self.lab.run(disarm)
        self.total = sum(range(rows))
        self.counts: collections.Counter[str] = collections.Counter()
        self.slowest: dict[str, float] = {}
        self.next_s: list[float] = []
        self.late = 0

    def run(self, faults: int) -> None:
        """Inject so many faults, each followed by an operation that must be right."""
        kinds: list[Callable[[], None]] = [
            self.raise_around, self.raise_in_a_round, self.raise_in_an_exchange, self.interrupt, self.interrupt_one,
            self.interrupt_idle, self.miss_a_deadline, self.fail_in_a_cell, self.bad_argument,
        ]  # fmt: skip
        for number in range(faults):
            kind = self.random.choice(kinds)
            start = time.monotonic()
            kind()
            took = time.monotonic() - start
            self.counts[kind.__name__] += 1
            self.slowest[kind.__name__] = max(took, self.slowest.get(kind.__name__, 0.0))
            self.check(f"fault {number}, {kind.__name__}")
            if (number + 1) % 25 == 0:
                print(f"{number + 1} faults, no hang; slowest next operation {max(self.next_s):.2f} s", flush=True)

    def check(self, what: str) -> None:
        """The next operations work, and nothing is left reserved."""
        start = time.monotonic()
        used = self.lab.run(disarm, timeout_s=20)
        shuffled = self.table.shuffle("k", timeout_s=20)
        self.next_s.append(time.monotonic() - start)
        rows = sum(int(part["k"].sum()) for part in shuffled.local())
        assert rows == self.total, f"after {what}: wrong rows"
        shuffled.release()
        left = self.lab.run(disarm)
        assert left == self.held, f"after {what}: {used}, then {left} bytes in use, not {self.held}"

    def raise_around(self) -> None:
        """A rank raises before, between or after operations."""
        place, rank = self.random.choice(["before", "between", "after"]), self.rank()
        self.expect(RankError, lambda: self.lab.run(raise_around, self.table, rank, place), rank, "soak: " + place)

    def raise_in_a_round(self) -> None:
        """A rank's backend raises somewhere in the rounds."""
        rank, nth = self.rank(), self.random.randint(1, 6)
        self.lab.run(arm, rank, self.random.choice(["partition", "partition_ids"]), nth, 0.0)
        strategy = self.random.choice(["direct", "chunked", "staged"])
        self.expect(
            GcylonError, lambda: self.table.shuffle("k", strategy=strategy), rank, "soak", may_pass=strategy == "direct"
        )

    def raise_in_an_exchange(self) -> None:
        """A rank fails while messages are on their way, its own and the others'."""
        rank, nth = self.rank(), self.random.randint(1, 3)
        # Not right after an agreement: the others are on their way into the exchange, and only a deadline frees them.
        method, after = self.random.choice([("exchange", True), ("exchange", False), ("finish", False)])
        self.lab.run(arm, rank, method, nth, 0.0, after)
        strategy = self.random.choice(["chunked", "staged"])
        # Rows that are written take fewer rounds, and fewer of them are waited for.
        may_pass = nth > 1 and "peer" in str(self.lab.ranks[0].route)
        self.expect(GcylonError, lambda: self.table.shuffle("k", strategy=strategy), rank, "soak", may_pass=may_pass)

    def interrupt(self) -> None:
        """All ranks are interrupted at some time of an operation."""
        timer = threading.Timer(self.random.uniform(0, 0.3), self.lab.interrupt)
        timer.start()
        self.expect(CommError, lambda: self.lab.run(dawdle, self.table, self.rank(), 0.2), may_pass=True)
        timer.join()
        # It may have come after the operation: then it was meant for the next one, which is not sent.
        self.expect(CommError, lambda: self.lab.run(dawdle, self.table, 0, 0.0), may_pass=True)

    def interrupt_one(self) -> None:
        """One rank gets a SIGINT from outside, which the notebook knows nothing of."""
        pid = self.lab.ranks[self.rank()].pid
        timer = threading.Timer(self.random.uniform(0, 0.3), os.kill, (pid, signal.SIGINT))
        timer.start()
        self.expect(CommError, lambda: self.lab.run(dawdle, self.table, self.rank(), 0.2), may_pass=True)
        timer.join()
        # It may have come after the operation: then the next one finds the ranks revoked, once.
        self.expect(CommError, lambda: self.lab.run(dawdle, self.table, 0, 0.0), may_pass=True)

    def interrupt_idle(self) -> None:
        """Idle ranks are interrupted, in a loop of requests: the next one is not sent."""
        self.lab.interrupt()
        self.expect(CommError, lambda: self.lab.run(dawdle, self.table, 0, 0.0), may_pass=True)

    def miss_a_deadline(self) -> None:
        """A rank is slower than the operation's deadline."""
        rank = self.rank()
        self.lab.run(arm, rank, "partition_ids", 1, 0.6)
        self.expect(DeadlineExceeded, lambda: self.table.shuffle("k", timeout_s=0.2))

    def fail_in_a_cell(self) -> None:
        """A cell ends in an error on one rank, the others are in a collective."""
        rank = self.rank()
        code = f"import gcylon_lab as gl\nif gl.current().rank == {rank}: raise KeyError('soak')\nsoaked.shuffle('k')"
        self.table.bind("soaked")
        try:
            self.lab.view.execute(code, silent=False)
        except Exception as error:
            assert "soak" in str(error), error
        else:
            raise AssertionError("a cell with an error passed")
        self.lab.view.execute("del soaked", silent=False)

    def bad_argument(self) -> None:
        """A key that is no column."""
        self.expect(GcylonError, lambda: self.table.shuffle("nothing"), message="nothing")

    def expect(
        self,
        kind: type[Exception],
        action: Callable[[], object],
        rank: int | None = None,
        message: str = "",
        *,
        may_pass: bool = False,
    ) -> None:
        """Run what must fail in time, with an error of a class that names the rank."""
        start = time.monotonic()
        try:
            action()
        except kind as error:
            assert rank is None or error.rank == rank, f"blames rank {error.rank}, not {rank}: {error}"
            assert message in str(error), error
        else:
            assert may_pass, f"no {kind.__name__}"
        took = time.monotonic() - start
        assert took < STUCK_S, f"{took:.1f} s until the error"
        self.late += took > PROMISED_S

    def rank(self) -> int:
        return self.random.randrange(self.lab.n)


def main() -> None:
    """Read the arguments, soak, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"{options.faults} faults on {options.ranks} ranks, seed {options.seed}", flush=True)
    soak = Soak(options.ranks, options.seed)
    start = time.monotonic()
    try:
        soak.run(options.faults)
    except BaseException:
        print("\n".join(soak.lab._session.launcher.output().splitlines()[-60:]))
        raise
    finally:
        soak.lab.close()
    print(f"{options.faults} faults in {time.monotonic() - start:.0f} s, no hang, every next operation right")
    for name, count in sorted(soak.counts.items()):
        print(f"  {name:18} {count:4}   slowest {soak.slowest[name]:.2f} s")
    print(f"  errors that came later than after {PROMISED_S:g} s: {soak.late} (a busy machine is slow)")
    ordered = sorted(soak.next_s)
    print(f"  next operation: median {ordered[len(ordered) // 2]:.3f} s, slowest {ordered[-1]:.2f} s")


if __name__ == "__main__":
    # Functions are sent by the name of their module, so it must be one that the engines can import.
    sys.path.insert(0, str(Path(__file__).parent))
    import soak as this

    this.main()
