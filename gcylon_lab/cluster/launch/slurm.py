"""A Slurm job whose hosts a cluster's ranks run on: submitted and waited for, or the one that this process runs in."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ArgumentError, ClusterError, ClusterStartError
from ...units import format_seconds
from .hosts import Host
from .lease import write_private

JOB_FILE = "job.json"

_COMMAND_S = 30.0
_ENDS_S = 5.0  # so long a job that was cancelled may be completing
_POLL_S = 0.5
_MOST_POLL_S = 5.0
_WAITS, _RUNS, _ENDING = ("PENDING", "CONFIGURING", "SUSPENDED"), "RUNNING", "COMPLETING"
# The ranks are steps of it, which mpiexec starts; it only holds the hosts for them.
_SCRIPT = "#!/bin/sh\nexec sleep 2147483647\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a job is to have. ``nodes`` of 0 stands for the whole allocation that this process runs in."""

    nodes: int = 0
    tasks_per_node: int = 1
    gpus_per_task: int = 0
    time: str = ""
    partition: str = ""
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("nodes", "tasks_per_node", "gpus_per_task"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < (name == "tasks_per_node"):
                raise ArgumentError(f"Expected a number for {name}, got {value!r}.", advice=f"Give {name}=1, say.")

    def arguments(self) -> list[str]:
        """For sbatch."""
        words = [f"--nodes={self.nodes}", f"--ntasks-per-node={self.tasks_per_node}"]
        # Not by task: the one part of Open MPI on each host would get those of one alone.
        words += [f"--gpus-per-node={self.gpus_per_task * self.tasks_per_node}"] * bool(self.gpus_per_task)
        words += [f"--time={self.time}"] * bool(self.time) + [f"--partition={self.partition}"] * bool(self.partition)
        return [*words, *self.options]


class Job:
    """A job, as far as a cluster needs it.

    Parameters
    ----------
    asked : Asked
    id : str, optional
        Of one that was submitted before.
    """

    def __init__(self, asked: Asked, id: str = "") -> None:
        self.asked = asked
        self.id = id
        self.own = bool(id) or not _is_inside(asked)

    def expected(self) -> tuple[Host, ...]:
        """The hosts that it will have, by any name, and their ranks."""
        if not self.own:
            return _own_hosts(self.asked)
        return tuple(Host(f"node{number}", self.asked.tasks_per_node) for number in range(self.asked.nodes))

    def allocate(self, home: Path, name: str, say: Callable[[str], None]) -> tuple[Host, ...]:
        """Get hosts: those of the job that this process runs in, or of a new one, once that runs.

        Parameters
        ----------
        home : Path
            The cluster's folder, where the job's number is kept for who ends it when nobody else can.
        name : str
            The cluster's.
        say : callable
            Told what the job waits for, a few times a second or less.

        Raises
        ------
        ClusterStartError
            If it cannot be submitted, or ends before it runs, with what Slurm says.
        """
        if not self.own:
            return _own_hosts(self.asked)
        said = _slurm(["sbatch", "--parsable", "--no-requeue", "--output=/dev/null", f"--job-name=gcylon-{name}",
                       *self.asked.arguments()], _SCRIPT)  # fmt: skip
        self.id = said.partition(";")[0].strip()
        write_private(home / JOB_FILE, {"id": self.id})
        began = time.monotonic()
        while True:
            state, reason, nodes = self._look()
            if state == _RUNS:
                names = _slurm(["scontrol", "show", "hostnames", nodes]).split()
                return tuple(Host(host, self.asked.tasks_per_node) for host in names)
            if state not in _WAITS:
                raise ClusterStartError(
                    f"Slurm job {self.id} ended before it ran: {_in_words(state, reason)}.",
                    advice=f"See `scontrol show job {self.id}`.",
                )
            waited_s = time.monotonic() - began
            say(f"Slurm job {self.id} waits in the queue ({reason}), {format_seconds(waited_s)}")
            time.sleep(min(_POLL_S + waited_s / 20, _MOST_POLL_S))

    def why_over(self) -> str:
        """Why it is over, as "Slurm job 12 was cancelled"; "" while it runs."""
        state, reason, _ = self._look()
        deadline = time.monotonic() + _ENDS_S
        while state == _ENDING and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            state, reason, _ = self._look()
        return "" if state == _RUNS else f"Slurm job {self.id or self._number()} {_in_words(state, reason)}"

    def cancel(self) -> None:
        """End it, if it was submitted here. Idempotent."""
        if self.own:
            cancel(self.id)

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """The command that runs another on a host, beside the ranks there."""
        step = ["--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "--mem=0", "--mpi=none", "--quiet"]
        return ["srun", f"--jobid={self._number()}", *step, *command]

    def variables(self, hosts: Sequence[Host]) -> dict[str, str]:
        """What tells mpiexec that it is to start its part on each host as a step of this job."""
        names = ",".join(host.name for host in hosts)
        tasks = ",".join(str(host.slots) for host in hosts)
        variables = {"SLURM_NNODES": str(len(hosts)), "SLURM_TASKS_PER_NODE": tasks, "PRTE_MCA_plm": "slurm"}
        variables |= dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOBID"), self._number())
        return variables | dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), names)

    def _number(self) -> str:
        return self.id or os.environ.get("SLURM_JOB_ID", "")

    def _look(self) -> tuple[str, str, str]:
        """State, reason and nodes."""
        try:
            said = _slurm(["squeue", "--noheader", f"--jobs={self._number()}", "--states=all", "--format=%T|%r|%N"])
        except ClusterStartError as error:
            if "Invalid job id" in str(error):  # Slurm forgets those that have ended, after some minutes
                return "UNKNOWN", "", ""
            raise
        state, reason, nodes = (said.strip().splitlines() or ["UNKNOWN||"])[0].split("|")
        return state, reason, nodes


def found_job(state: dict[str, Any] | None) -> Job | None:
    """The job of a cluster that runs, of what `Launcher.state` says of it."""
    if state is None:
        return None
    asked = Asked(**state["asked"] | {"options": tuple(state["asked"]["options"])})
    return Job(asked, state["id"])


def cancel(number: str) -> None:
    """Cancel a job; nothing where there is none, it is over, or Slurm does not answer."""
    if number:
        with suppress(ClusterStartError):
            _slurm(["scancel", "--quiet", number])


def job_of(home: Path) -> str:
    """The number of the job that a cluster has submitted; "" where it has not."""
    try:
        return str(json.loads((home / JOB_FILE).read_text())["id"])
    except (OSError, ValueError, KeyError):
        return ""


def _is_inside(asked: Asked) -> bool:
    """Whether this process runs in an allocation, which it is to use."""
    inside = "SLURM_JOB_ID" in os.environ and "SLURM_JOB_NODELIST" in os.environ
    if not inside and not asked.nodes:
        raise ArgumentError(
            "This process runs in no Slurm job, and nodes= is not given.",
            advice="Give nodes=2, say, and tasks_per_node=: then a job is submitted.",
        )
    return inside


def _own_hosts(asked: Asked) -> tuple[Host, ...]:
    names = _slurm(["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]).split()
    slots = [
        int(tasks)
        for tasks, _, times in re.findall(r"(\d+)(\(x(\d+)\))?", os.environ.get("SLURM_TASKS_PER_NODE", ""))
        for _ in range(int(times or 1))
    ]
    hosts = tuple(Host(name, tasks) for name, tasks in zip(names, slots, strict=False))
    if not asked.nodes:
        return hosts
    if asked.nodes > len(hosts) or any(host.slots < asked.tasks_per_node for host in hosts[: asked.nodes]):
        has = ", ".join(map(str, hosts))
        raise ClusterError(
            f"This process runs in Slurm job {os.environ['SLURM_JOB_ID']}, which has {has}: less than nodes="
            f"{asked.nodes} with tasks_per_node={asked.tasks_per_node}.",
            advice="Ask for less; or delete SLURM_JOB_ID from os.environ, so that another job is submitted.",
        )
    return tuple(Host(host.name, asked.tasks_per_node) for host in hosts[: asked.nodes])


def _in_words(state: str, reason: str) -> str:
    words = {
        "CANCELLED": "was cancelled", "COMPLETED": "has ended", "FAILED": "has failed", "UNKNOWN": "is over",
        "TIMEOUT": "has reached its time limit", "NODE_FAIL": "has lost a node", "PREEMPTED": "was preempted",
        "OUT_OF_MEMORY": "ran out of memory",
    }  # fmt: skip
    said = words.get(state, f"is {state}")
    return said if reason in ("", "None") else f"{said} ({reason})"


def _slurm(command: Sequence[str], text: str = "") -> str:
    if shutil.which(command[0]) is None:
        raise ClusterStartError(
            f"Slurm's {command[0]} is not on the PATH.",
            advice="Start on a login node of a Slurm cluster; over ssh, gl.Cluster(hosts=[...]) does without Slurm.",
        )
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_COMMAND_S, cwd="/")
    except subprocess.TimeoutExpired:
        raise ClusterStartError(f"Slurm did not answer {command[0]} within {_COMMAND_S:g} s.") from None
    if done.returncode:
        raise ClusterStartError(f"Slurm refused: {done.stderr.strip()}", advice=f"The command was: {' '.join(command)}")
    return done.stdout
