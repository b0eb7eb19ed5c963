"""Send signals and interrupts at random times, and check after each that all is well again.

    python tests/faults/signals.py --ranks 2 --events 300 --seed 1

A process of its own owns the cluster, as a notebook's kernel does. Ranks, controller, mpiexec and that process are
stopped, let go on, terminated and killed, and the person interrupts, before or while one of several requests runs.
Then: an error in time that names the rank, or a right answer; the next operation is right, after a restart where one
is needed; and nothing is left: no process, no shared memory, no folder, no table.

Every event that went wrong is printed with what was wrong; the end counts them. Times are those of the wall: on a busy
machine give --patience, by which all of them are multiplied.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gcylon_lab.cluster.launch.runtime_dirs import shared_memory

ERROR_S = 5.0  # promised: so soon after the signal an error is there
RESTART_S = 10.0
NEXT_S = 5.0
HANG_S = 60.0
GRACE_S = 2.0
GONE_S = 15.0  # after the owner's death: the grace time, and what the controller leaves to the engines
ROWS = 200_000
HOME_VARIABLE = "GCYLON_LAB_HOME"

# --- the process that owns the cluster ---


class Owner:
    """Does what it reads, a line of JSON each, and writes what came of it."""

    def __init__(self, ranks: int, name: str) -> None:
        import pandas as pd

        import gcylon_lab as gl

        self.is_busy = False
        signal.signal(signal.SIGINT, self.on_interrupt)
        self.lab = gl.Cluster(ranks, name=name, grace_s=GRACE_S, progress=False)
        self.frame = pd.DataFrame({"k": range(ROWS), "v": [i % 97 for i in range(ROWS)]})
        self.table = self.lab.from_pandas(self.frame)

    def serve(self) -> None:
        """Until nothing more is asked."""
        os.write(1, (json.dumps(self.about()) + "\n").encode())
        for line in sys.stdin:
            asked = json.loads(line)
            start = time.monotonic()
            try:
                self.is_busy = True
                said = getattr(self, asked.pop("do"))(**asked)
                self.is_busy = False
            except BaseException as error:
                self.is_busy = False
                files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
                inside = any(name.endswith(("cluster/session.py", "cluster/views.py")) for name in files)
                said = {"error": type(error).__name__, "text": str(error), "inside": inside}
                said["rank"] = getattr(error, "rank", None)
            os.write(1, (json.dumps(said | {"took_s": time.monotonic() - start}) + "\n").encode())

    def on_interrupt(self, *unused: Any) -> None:
        """As in a notebook's kernel: between cells it does nothing."""
        if self.is_busy:
            raise KeyboardInterrupt

    def about(self) -> dict[str, Any]:
        """Who is there."""
        launcher = self.lab._session.launcher
        processes = launcher._processes
        return {
            "ranks": [record.pid for record in self.lab.ranks],
            "controller": processes.controller.pid,
            "mpiexec": processes.engine_set.pid,
            "home": str(launcher.home),
            "used": self.used(),
        }

    def used(self) -> list[int]:
        """Bytes of each rank's budget that are in use."""
        return [int(memory["used_bytes"]) for memory in self.lab._session.memory]

    def request(self, kind: str, interrupt_after_s: float | None) -> dict[str, Any]:
        """Run what may be hit by a signal; perhaps interrupt it from a thread, as a button does."""
        timer = None
        if interrupt_after_s is not None:
            timer = threading.Timer(interrupt_after_s, self.lab.interrupt)
            timer.start()
        try:
            right = self.requests()[kind]()
        finally:
            if timer is not None:
                timer.join()
        return {"right": bool(right)}

    def requests(self) -> dict[str, Callable[[], bool]]:
        """Each says whether the answer is right."""
        return {
            "shuffles": lambda: all(self.table.shuffle("k").num_rows == ROWS for _ in range(8)),
            "sort": lambda: self.table.sort_values("v").num_rows == ROWS,
            "group": lambda: self.table.groupby("v").agg({"k": "sum"}).num_rows == 97,
            "send": lambda: self.lab.from_pandas(self.frame).num_rows == ROWS,
            "fetch": lambda: len(self.table.to_pandas(limit=None)) == ROWS,
            "run": lambda: self.lab.run(time.sleep, 0.5) == [None] * self.lab.n,
            "cell": lambda: bool(self.lab.view.execute("import time; time.sleep(0.5)", silent=False, block=True)),
            "memory": lambda: len(self.lab.memory()) == self.lab.n,
            "async": lambda: self.table.shuffle_async("k").result().num_rows == ROWS,
        }

    def check(self) -> dict[str, Any]:
        """The next operation, and what is on the ranks beside the one table."""
        shuffled = self.table.shuffle("k")
        total = sum(int(part["k"].sum()) for part in shuffled.local())
        shuffled.release()
        ids = sorted(set(self.lab.memory()["id"]))
        self.lab.run(_collect)
        return {"right": total == ROWS * (ROWS - 1) // 2, "tables": ids, "own": self.table._name, "used": self.used()}

    def restart(self) -> dict[str, Any]:
        """As a person does; the table is made anew."""
        self.lab.restart()
        took = time.monotonic()
        self.table = self.lab.from_pandas(self.frame)
        return self.about() | {"table_s": time.monotonic() - took}

    def close(self) -> dict[str, Any]:
        """The end."""
        self.lab.close()
        return {}


def _collect() -> None:
    import gc

    gc.collect()


# --- what hurts it ---


@dataclass
class Event:
    """Something that happens, at a time counted from when a request is sent; negative is before."""

    target: str  # "rank 1", "controller", "mpiexec", "owner", "person", "button"
    signal: str  # "STOP", "TERM", "KILL", "INT", or "STOP, CONT"
    request: str
    at_s: float
    again_s: float = 0.0  # until CONT

    def describe(self) -> str:
        back = f", CONT after {self.again_s:.1f} s" if self.again_s else ""
        return f"{self.signal.partition(',')[0]} of {self.target} at {self.at_s:+.2f} s of {self.request}{back}"


@dataclass
class Found:
    """What was counted."""

    events: int = 0
    wrong: collections.Counter[str] = field(default_factory=collections.Counter)
    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    events_wrong: int = 0


class Hang(Exception):
    """No answer came."""


class Soak:
    """One owner at a time, and the events that it meets."""

    def __init__(self, ranks: int, seed: int, patience: float) -> None:
        self.n, self.random, self.patience = ranks, random.Random(seed), patience
        self.name = f"signals_{os.getpid()}"
        self.found = Found()
        self.complaints: list[str] = []
        self.start()

    # --- the owner, from outside ---

    def start(self) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--own", self.name, "--ranks", str(self.n)]
        self.owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.rest = b""
        began = time.monotonic()
        self.meet(self.answer(120 * self.patience))
        self.start_s = time.monotonic() - began
        self.found.slowest["a start"] = max(self.start_s, self.found.slowest.get("a start", 0.0))
        self.processes = len(of_home(self.home))

    def meet(self, about: dict[str, Any]) -> None:
        """There are new engines."""
        if "ranks" not in about:
            raise Hang(f"no start: {about}")
        self.about, self.home = about, about["home"]
        self.used = about["used"]
        self.made = made_by_mpi(self.home)

    def ask(self, what: str, **more: Any) -> None:
        assert self.owner.stdin is not None
        try:
            self.owner.stdin.write((json.dumps({"do": what, **more}) + "\n").encode())
            self.owner.stdin.flush()
        except BrokenPipeError:
            pass  # it is dead, as `answer` will find

    def answer(self, seconds: float) -> dict[str, Any]:
        assert self.owner.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.owner.stdout], [], [], left)[0]:
                raise Hang(f"no answer within {seconds:.0f} s")
            got = os.read(self.owner.stdout.fileno(), 1 << 16)
            if not got:
                raise EOFError("the owner is gone")
            self.rest += got
        line, _, self.rest = self.rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    # --- events ---

    def draw(self) -> Event:
        pick = self.random.choice
        target = pick([*(f"rank {r}" for r in range(self.n)), "controller", "mpiexec", "owner", "person", "button"])
        number = "INT" if target in ("person", "button") else pick(["STOP", "STOP, CONT", "TERM", "KILL"])
        if target.startswith("rank") and self.random.random() < 0.2:
            number = "INT"
        request = pick(["shuffles", "sort", "group", "send", "fetch", "run", "cell", "memory", "async", "restart"])
        if request == "restart" and target not in ("person", "owner"):
            request = "shuffles"
        if target == "owner" and number == "STOP":
            number = "STOP, CONT"
        again_s = self.random.choice([0.3, 1.0, 6.0]) if "CONT" in number else 0.0
        at_s = self.random.choice([-0.3, 0.0]) if self.random.random() < 0.3 else self.random.uniform(0.0, 0.4)
        if target in ("person", "button"):
            at_s = max(at_s, 0.0)
        return Event(target, number, request, at_s, again_s)

    def run(self, events: int) -> None:
        for number in range(events):
            event = self.draw()
            self.complaints = []
            start = time.monotonic()
            try:
                self.meet_with(event)
            except (Hang, EOFError) as error:
                self.complain("hang", str(error))
                self.replace()
            self.found.events += 1
            self.found.kinds[f"{event.signal} of {event.target.partition(' ')[0]}"] += 1
            self.found.events_wrong += bool(self.complaints)
            took = time.monotonic() - start
            for complaint in self.complaints:
                print(
                    f"{number}: {event.describe()} ({took:.0f} s, load {os.getloadavg()[0]:.0f}): {complaint}",
                    flush=True,
                )
            if (number + 1) % 10 == 0:
                print(f"{number + 1} events, {self.found.events_wrong} with something wrong", flush=True)

    def complain(self, kind: str, text: str) -> None:
        self.found.wrong[kind] += 1
        self.complaints.append(f"{kind}: {text}")

    def timed(self, kind: str, took_s: float, most_s: float, about: str = "") -> None:
        self.found.slowest[kind] = max(took_s, self.found.slowest.get(kind, 0.0))
        if took_s > most_s * self.patience:
            self.complain("late", f"{kind} took {took_s:.1f} s {about}")

    def pid_of(self, target: str) -> int:
        if target == "owner" or target == "person":
            return self.owner.pid
        return int(self.about["ranks"][int(target[5:])] if target.startswith("rank") else self.about[target])

    def meet_with(self, event: Event) -> None:
        """Let an event happen, and see what comes of it."""
        sent_at = 0.0

        def send(name: str) -> None:
            os.kill(self.pid_of(event.target), getattr(signal, f"SIG{name}"))

        first = event.signal.partition(",")[0]
        if event.at_s < 0:
            sent_at = time.monotonic()
            send(first)
            time.sleep(-event.at_s)
        more = {"kind": event.request, "interrupt_after_s": event.at_s if event.target == "button" else None}
        asked_at = time.monotonic()
        self.ask("restart") if event.request == "restart" else self.ask("request", **more)
        if event.at_s >= 0:
            time.sleep(event.at_s)
            sent_at = time.monotonic()
            if event.target != "button":
                send(first)
        back = threading.Timer(event.again_s, lambda: gone_is_fine(lambda: send("CONT"))) if event.again_s else None
        if back is not None:
            back.start()
        try:
            if event.target == "owner" and first in ("TERM", "KILL"):
                self.after_the_owner()
                return
            answer = self.answer(HANG_S * self.patience)
            answered_at = time.monotonic()
        finally:
            if back is not None:
                back.join()
        self.judge(event, answer, answered_at - max(sent_at, asked_at))
        self.go_on(event, answer)

    def judge(self, event: Event, answer: dict[str, Any], after_s: float) -> None:
        """Whether the answer to the request that was hit is a right one."""
        if event.request == "restart":
            if "error" not in answer:
                self.meet(answer)
                return
            self.timed("the error", after_s, ERROR_S, "of a restart")
            if answer["error"] != "KeyboardInterrupt":
                self.complain("wrong error", f"restart: {answer['error']}: {answer['text'][:200]}")
            return
        if "error" not in answer:
            if not answer.get("right"):
                self.complain("wrong answer", str(answer))
            return
        away_s = event.again_s if event.target == "owner" else 0.0
        self.timed("the error", after_s - away_s, ERROR_S, f"({answer['error']}: {answer['text'][:160]})")
        text = f"{answer['error']}: {answer['text']}"
        if event.target.startswith("rank"):
            rank = int(event.target[5:])
            if answer["rank"] != rank and f"rank {rank} " not in text.lower():
                self.complain("wrong rank", f"blames {answer['rank']}: {text[:200]}")
        elif event.target == "person" and answer["error"] != "KeyboardInterrupt":
            self.complain("wrong error", text[:200])
        elif event.target == "button" and answer["error"] not in ("Revoked", "KeyboardInterrupt", "FoldedError"):
            self.complain("wrong error", text[:200])
        if event.target in ("person", "button") and "Interrupted" not in text and answer["inside"]:
            self.complain("wrong words", text[:200])
        if event.target == "owner":
            self.complain("wrong error", text[:200])

    def go_on(self, event: Event, answer: dict[str, Any]) -> None:
        """The next operation, after a restart where something is gone or stopped; then nothing is left."""
        gone = event.target in ("controller", "mpiexec") or event.target.startswith("rank")
        cut = event.request == "restart" and "error" in answer
        if cut or (gone and event.signal in ("STOP", "TERM", "KILL")):
            self.restart()
        if not self.check(may_restart="CONT" in event.signal, event=event):
            self.restart()
            self.check()
        self.look_for_leftovers()

    def restart(self) -> None:
        made = self.made
        self.ask("restart")
        answer = self.answer(HANG_S * self.patience)
        if "error" in answer:
            raise Hang(f"restart: {answer['error']}: {answer['text'][:300]}")
        # Where other programs take the CPUs, a start is slow, and a restart has one in it.
        self.timed("restart", answer["took_s"] - answer["table_s"], max(RESTART_S, 1.2 * self.start_s / self.patience))
        self.meet(answer)
        left = [path for path in made if os.path.exists(path) and path not in self.made]
        if left:
            self.complain("left", f"by MPI, after a restart: {left}")

    def check(self, *, may_restart: bool = False, event: Event | None = None) -> bool:
        """Whether the next operation is right; where a stopped process came back too late, a restart may be needed."""
        self.ask("check")
        answer = self.answer(HANG_S * self.patience)
        if "error" in answer and event is not None and event.target == "button" and "between two" in answer["text"]:
            self.ask("check")  # the click came after the request; the next one is not sent
            answer = self.answer(HANG_S * self.patience)
        if "error" in answer and event is not None and event.signal == "INT" and answer["error"] == "KeyboardInterrupt":
            self.ask("check")  # it came after the request
            answer = self.answer(HANG_S * self.patience)
        if "error" in answer:
            self.timed("the error of the next operation", answer["took_s"], ERROR_S, answer["text"][:100])
            if not (may_restart and answer["error"] in ("ClusterDegraded", "RankStopped")):
                self.complain("next operation", f"{answer['error']}: {answer['text'][:300]}")
            return False
        self.timed("next operation", answer["took_s"], NEXT_S)
        if not answer["right"]:
            self.complain("wrong answer", f"of the next operation: {answer}")
        if answer["tables"] != [answer["own"]]:
            self.complain("left", f"tables {answer['tables']} beside {answer['own']}")
        elif max(answer["used"]) > max(self.used) * 1.5:
            self.complain("left", f"{answer['used']} bytes in use, not {self.used}")
        return True

    def look_for_leftovers(self) -> None:
        if not until(lambda: len(of_home(self.home)) <= self.processes, 5 * self.patience):
            self.complain("left", f"processes: {len(of_home(self.home))}, not {self.processes}: {names(self.home)}")

    def after_the_owner(self) -> None:
        """Its cluster ends after the grace time, with all that it made."""
        self.owner.wait(HANG_S * self.patience)
        start = time.monotonic()
        if not until(lambda: not of_home(self.home) and not os.path.exists(self.home), 4 * GONE_S * self.patience):
            self.complain("left", f"after the owner: {names(self.home)}, its folder {os.path.exists(self.home)}")
        self.timed("the end after the owner's", time.monotonic() - start, GONE_S)
        if left := [path for path in self.made if os.path.exists(path)]:
            self.complain("left", f"by MPI, after the owner: {left}")
        self.clear_away()
        self.start()

    def replace(self) -> None:
        """Another owner in the place of one that does not answer."""
        self.clear_away()
        self.start()

    def clear_away(self) -> None:
        for process in of_home(self.home):
            gone_is_fine(process.kill)
        gone_is_fine(self.owner.kill)
        self.owner.wait()

    def close(self) -> None:
        """End it, and look once more."""
        self.complaints = []
        self.ask("close")
        try:
            self.answer(HANG_S * self.patience)
            if not until(lambda: not of_home(self.home) and not os.path.exists(self.home), 10 * self.patience):
                self.complain("left", f"after close(): {names(self.home)}, its folder {os.path.exists(self.home)}")
            if left := [path for path in self.made if os.path.exists(path)]:
                self.complain("left", f"by MPI, after close(): {left}")
        except (Hang, EOFError) as error:
            self.complain("hang", f"close(): {error}")
        self.clear_away()
        for complaint in self.complaints:
            print(f"at the end: {complaint}", flush=True)


def of_home(home: str) -> list[psutil.Process]:
    """Every process of a cluster."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get(HOME_VARIABLE) == home or home in process.cmdline()
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def names(home: str) -> list[str]:
    """What they are, for people."""
    said = []
    for process in of_home(home):
        try:
            said.append(f"{process.pid} {process.status()} {' '.join(process.cmdline())[:60]}")
        except psutil.Error:
            continue
    return said


def made_by_mpi(home: str) -> list[str]:
    """Shared memory and temporary files of a cluster."""
    return sorted(str(path) for path in shared_memory(Path(home)).glob("*"))


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for it, at most so long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def gone_is_fine(action: Callable[[], object]) -> None:
    """What is done to a process that may be gone."""
    try:
        action()
    except (ProcessLookupError, psutil.Error):
        pass


def main() -> None:
    """Read the arguments, soak, and report; the exit status is 1 where something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies all times")
    parser.add_argument("--own", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.own:
        Owner(options.ranks, options.own).serve()
        return
    print(f"{options.events} events on {options.ranks} ranks, seed {options.seed}", flush=True)
    start = time.monotonic()
    soak = Soak(options.ranks, options.seed, options.patience)
    try:
        soak.run(options.events)
    finally:
        soak.close()
    found = soak.found
    print(f"{found.events} events in {time.monotonic() - start:.0f} s, {found.events_wrong} with something wrong")
    for kind, count in sorted(found.kinds.items()):
        print(f"  {kind:24} {count:4}")
    for kind, count in sorted(found.wrong.items()):
        print(f"  wrong: {kind:17} {count:4}")
    for kind, seconds in sorted(found.slowest.items()):
        print(f"  slowest: {kind:32} {seconds:.2f} s")
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    if "--own" in sys.argv:
        # Functions are sent by the name of their module, so it must be one that the engines can import.
        sys.path.insert(0, str(Path(__file__).parent))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        import signals as this

        this.main()
    else:
        main()
