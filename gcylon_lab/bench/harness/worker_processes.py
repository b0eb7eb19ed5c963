"""Contenders of a bench: process sets that stay alive and run one step when told.

So that all contenders can take turns in one run, each process waits on a
socket (asleep in the kernel, not spinning in MPI) until its turn comes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ...cluster.launch.guarded_ranks import GuardedRanks
from ...cluster.launch.mpiexec import find_mpiexec, without_chatter
from ...errors import ClusterError

ADDRESS = "GCYLON_BENCH_ADDRESS"  # a Unix socket, in a folder that no other user can enter
Answer = dict[str, Any]


def serve(step: Callable[..., Answer], rank: int = 0) -> None:
    """Run ``step(**order)`` for every order from the bench, until it hangs up.

    Parameters
    ----------
    step : callable
        Takes the order's fields by keyword and returns plain JSON values.
    rank : int
        This process's number among the contender's.
    """
    with socket.socket(socket.AF_UNIX) as link, link.makefile("rw") as stream:
        link.connect(os.environ[ADDRESS])
        _send(stream, {"rank": rank})
        for line in stream:
            _send(stream, step(**json.loads(line)))


def _send(stream: Any, message: Answer) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


class Contender(AbstractContextManager["Contender"]):
    """One process set of a bench.

    Parameters
    ----------
    name : str
        For messages.
    command : sequence of str
        Starts all its processes; each calls `serve`.
    seats : int
        How many processes will call in.
    environment : mapping, optional
        Variables on top of this process's.
    guarded : GuardedRanks, optional
        Where an mpiexec starts the processes, whose command it has made.
    start_s, step_s : float
        How long to wait for all seats, and for one step.

    Raises
    ------
    ClusterError
        If a process does not come up, ends early or does not answer in time; with its output.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        seats: int,
        *,
        environment: Mapping[str, str] = {},
        guarded: GuardedRanks | None = None,
        start_s: float = 60.0,
        step_s: float = 300.0,
    ) -> None:
        self.name = name
        self.step_s = step_s
        self._streams: list[Any] = []
        self._output = tempfile.TemporaryFile("w+")
        self._guarded = guarded
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            address = os.path.join(folder, "bench")
            server.bind(address)
            server.listen()
            env = os.environ | environment | (guarded.environment if guarded else {}) | {ADDRESS: address}
            self._process = subprocess.Popen(
                list(command), env=env, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT
            )
            try:
                if guarded:
                    guarded.watch(self._process.pid)
                self._streams = self._seat(server, seats, time.monotonic() + start_s)
            except BaseException:
                self._process.terminate()  # it would not notice that nobody waits any more
                self.close()
                raise
        if guarded:
            guarded.close()

    def _seat(self, server: socket.socket, seats: int, until: float) -> list[Any]:
        taken: dict[int, Any] = {}
        server.settimeout(0.2)
        while len(taken) < seats:
            if time.monotonic() > until:
                self._process.terminate()
            if self._process.poll() is not None or time.monotonic() > until:
                raise self._failure(f"only {len(taken)} of {seats} processes of the contender {self.name!r} came up")
            try:
                link, _ = server.accept()
            except TimeoutError:
                continue
            link.settimeout(self.step_s)
            stream = link.makefile("rw")
            link.close()
            taken[int(json.loads(stream.readline())["rank"])] = stream
        return [taken[rank] for rank in sorted(taken)]

    def step(self, **order: Any) -> list[Answer]:
        """Have every process run one step, and return their answers by rank."""
        try:
            for stream in self._streams:
                _send(stream, order)
            lines = [stream.readline() for stream in self._streams]
        except OSError as error:
            raise self._failure(f"the contender {self.name!r} gave no answer ({error})") from error
        if not all(lines):
            raise self._failure(f"a process of the contender {self.name!r} ended")
        return [json.loads(line) for line in lines]

    def _failure(self, what: str) -> ClusterError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)  # a process that ended has closed its link before it printed its traceback
        self._output.seek(0)
        tail = without_chatter(self._output.read())[-4000:].strip()
        return ClusterError(f"In the bench {what}.", advice=f"It printed:\n{tail}" if tail else "It printed nothing.")

    def close(self) -> None:
        """Hang up, and end what is still running after ten seconds."""
        for stream in self._streams:
            stream.close()
        self._streams = []
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait(10)
        self._output.close()
        if self._guarded:
            self._guarded.__exit__()

    def __exit__(self, *_: object) -> None:
        self.close()


def mpi_contender(name: str, module: str, ranks: int, *arguments: str, step_s: float = 300.0) -> Contender:
    """Start ``python -m module`` on a number of ranks, as the cluster starts its engines.

    Parameters
    ----------
    name : str
        For messages.
    module : str
        Must call `serve` on every rank.
    ranks : int
    *arguments : str
        After the module's name.
    step_s : float
        How long to wait for one step.

    Raises
    ------
    ClusterStartError
        If there is no usable mpiexec.
    ClusterError
        If the ranks do not come up.
    """
    guarded = GuardedRanks(find_mpiexec())
    command = guarded.command(ranks, [sys.executable, "-P", "-m", module, *arguments])
    return Contender(name, command, ranks, guarded=guarded, step_s=step_s)
