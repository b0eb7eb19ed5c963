"""Starts and stops the controller and the engines, by ipyparallel's own means."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import ipyparallel
import psutil
from IPython.core.profiledir import ProfileDir
from traitlets.config import Config

from ...config import GcylonConfig
from ...errors import ClusterStartError, warn
from ...memory.budget import KEEPING_FREED
from ...units import format_seconds
from ..control import ask_nanny
from ..processes import (
    HOME_VARIABLE,
    end,
    engines_of,
    is_running,
    is_stopped,
    kill,
    nannies_of,
    of_home,
    wait_until,
)
from ..rank_info import RankRecord
from ..stop_detector import StopDetector
from . import guard, mpiexec, runtime_dirs
from .controller import ADDRESS_VARIABLE, GRACE_VARIABLE
from .hosts import FarHosts, Host, check_slots, python_path, unreachable
from .lease import LEASE_FILE, Lease, this_system
from .mpiexec import OPENMPI, MpiExec, exit_of_rank, without_chatter
from .ports import PortGuard
from .security import Security, other_people
from .slurm import Job

Say = Callable[[str], None]  # told what is waited for

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())
_MISSED_BEATS = 300  # a minute: a busy machine is slow
_CONTROLLER_ARGUMENTS = [
    "--nodb",
    "--IPController.broadcast_scheduler_depth=0",
    "--IPController.use_threads=True",
    # An engine counts from its second heartbeat on: with ipyparallel's three seconds a start takes five longer.
    "--HeartMonitor.period=200",
    f"--HeartMonitor.max_heartmonitor_misses={_MISSED_BEATS}",
]
_POLL_S = 0.03
_LOOK_S = 5.0
_ITSELF_S = 1.5  # so long mpiexec takes, at most, to see that all ranks have ended
_ASKED_S = 1.5
_NOTICED_S = 2.0
_LEFT_EVERY_S = 0.1
_DIGESTS = 4096
_TAIL_LINES = 40


class Launcher:
    """The processes of one cluster, in a folder of their own.

    Parameters
    ----------
    n : int
        Engines, one MPI rank each.
    mpi : MpiExec
    name : str
        The cluster's name, for `attach`.
    grace_s : float
        How long engines outlive their owner.
    start_timeout_s : float
    environment : dict
        For the engines, beside this process's own.
    config : GcylonConfig
        What the ranks start with.
    security : Security
    hosts : sequence of Host
        Where the ranks are; without any, on this host.
    job : Job, optional
        Of Slurm, whose hosts they are on.
    home : Path, optional
        An existing cluster's folder.
    """

    def __init__(
        self,
        n: int,
        mpi: MpiExec,
        *,
        name: str,
        grace_s: float,
        start_timeout_s: float,
        environment: dict[str, str],
        config: GcylonConfig,
        security: Security,
        hosts: Sequence[Host] = (),
        job: Job | None = None,
        home: Path | None = None,
    ) -> None:
        self.n = n
        self.mpi = mpi
        self.grace_s = grace_s
        self.start_timeout_s = start_timeout_s
        self.environment = environment
        self.config = config
        self.security = security
        self.hosts = self._reached = tuple(hosts)
        self._last_output = ""
        self._nannies: list[psutil.Process] = []  # of engines that were ended
        self._guard: subprocess.Popen[bytes] | None = None
        self._ports: PortGuard | None = None
        if home is None:
            runtime_dirs.sweep()
            self.home = runtime_dirs.new_home(f"{name}-{secrets.token_hex(4)}")
            self._processes = self._new_processes()
        else:
            self.home = home
            self._processes = self._found_processes()
        self.job = job
        self.far = self._far_hosts() if hosts else None
        self.lease = Lease(self.home / LEASE_FILE)

    def start(self, say: Say) -> Any:
        """Start controller and engines; return the connected ipyparallel client.

        Parameters
        ----------
        say : callable
            Told what is waited for.

        Raises
        ------
        ClusterStartError
            If a process ends or the time is over, with the launcher's output.
        """
        try:
            say(f"{self._starts}: the controller")
            self._forget_controller()
            runtime_dirs.renew_shared_memory(self.home)  # before the guard's command line tells its name
            runtime_dirs.renew_sockets(self.home)
            self._start_guard()
            if self.far is not None:
                address = {ADDRESS_VARIABLE: self.far.address()}
                self._processes.config.LocalControllerLauncher.environment = self._variables() | address
            self._processes.start_controller_sync()
            self._start_engines()
            client = self.connect()
        except Exception as error:
            raise self._start_error(f"The cluster did not start: {error}.{self._last_of_controller()}") from error
        self._wait_for_engines(client, say)
        self._end_nannies()
        return client

    def allocate(self, say: Say) -> None:
        """Where ranks run in a job of Slurm, see to it that there is one, waiting for it as long as that takes.

        Parameters
        ----------
        say : callable
            Told what it waits for.

        Raises
        ------
        ClusterStartError
            If there is none, with what Slurm says.
        """
        if self.job is None or (self.far is not None and not self.job.why_over()):
            return
        if self.far is not None:
            self.far.leave()
        runtime_dirs.renew_shared_memory(self.home)
        self._start_guard()  # it cancels the job where nobody else can
        self.hosts = self.job.allocate(self.home, self.home.name.rpartition("-")[0], say)
        self.far = self._far_hosts()

    def _far_hosts(self) -> FarHosts:
        job, path = self.job, self._python_path()
        if job is None:
            return FarHosts(self.hosts, self.home, self.grace_s, path)
        return FarHosts(self.hosts, self.home, self.grace_s, path, job.command, job.why_over, job.id if job.own else "")

    def reach_hosts(self, n: int | None = None) -> None:
        """Connect to the other hosts on which `n` ranks are to be, by default as many as before.

        Raises
        ------
        ClusterStartError
            If some cannot be reached, and there are not as many ranks without them.
        """
        n = self.n if n is None else n
        if self.far is None:
            return
        failed = self.far.connect()
        self._reached = tuple(host for host in self.hosts if host.name not in failed)
        slots = sum(host.slots for host in self._reached)
        if slots < n:
            if not failed:
                check_slots(n, self.hosts)
            call = f"gl.Cluster({slots}, hosts=...)" if self._processes.controller is None else f"restart(n={slots})"
            raise unreachable(failed, f" Without them {call} works." if slots else "")

    def take_hosts(self) -> None:
        """Become the one that the other hosts listen to."""
        if self.far is not None:
            failed = self.far.connect()
            self.far.take()
            self.far.lost |= failed

    def connect(self) -> Any:
        """Return a client of the running controller."""
        client = self._connect()
        # Against messages that are played back. Live ranks send dozens a second; the default, 65,536, fills 9 MB.
        client.session.digest_history_size = _DIGESTS
        # ipyparallel's has none, and fails over the message that it wants to tell of.
        client.log = _log
        return client

    def _connect(self) -> Any:
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                return self._processes.connect_client_sync(timeout=max(min(_LOOK_S, left), 0.1))
            except TimeoutError:
                # One that has ended, for want of a port say, never answers.
                if not self.has_controller():
                    raise RuntimeError("the controller ended") from None
                if left < _LOOK_S:
                    raise

    def _last_of_controller(self) -> str:
        """What a controller that has ended wrote, as a part of an error."""
        controller = self._processes.controller
        if controller is None or self.has_controller():
            return ""
        return "\n--- the controller's output ---\n" + _tail(str(controller.get_output() or ""))

    def start_engines(self, client: Any, say: Say) -> None:
        """Start new engines once `stop_engines` has ended the old ones; `say` is told what is waited for.

        Raises
        ------
        ClusterStartError
            As `start`.
        """
        runtime_dirs.renew_shared_memory(self.home)
        self._start_engines()
        self._wait_for_engines(client, say)
        self._end_nannies()

    def stop_engines(self, client: Any | None) -> None:
        """End all engines. Their state is given up, so nothing waits for a stuck or a stopped one."""
        self._nannies = nannies_of(str(self.home))
        if client is not None and client.ids:
            with contextlib.suppress(Exception):
                client.send_signal("SIGKILL", block=False)  # to those on other hosts, as far as the controller runs
        kill(engines_of(str(self.home)))
        if self.far is not None:
            self.far.kill()
        # mpiexec ends when all engines have, and takes away what MPI made for them.
        for process in self._alive("engine_set"):
            end(process, by_itself_s=_ITSELF_S, asked_s=_ASKED_S)
        self._last_output = self.output()
        self._processes.stop_engines_sync()

    def _end_nannies(self) -> None:
        """End those of earlier engines that are stopped or stuck: the others had the time of a start to end."""
        kill(filter(is_running, self._nannies))

    def forgets_engines(self, client: Any) -> bool:
        """Whether the controller works, and has noticed that all engines are gone; waits a moment for that."""
        return wait_until(lambda: not client.ids or not self.has_working_controller(), _NOTICED_S) and not client.ids

    def stop(self, client: Any | None) -> None:
        """End everything, and remove the folder. Idempotent."""
        with contextlib.suppress(OSError):
            self.lease.claim(closed=True)
        steps: list[Callable[[], None]] = [
            partial(self.stop_engines, client),
            self._stop_controller,
            self._close_hosts,
            self._kill_the_rest,
        ]
        for stop in steps:
            with contextlib.suppress(Exception):
                stop()
        runtime_dirs.remove(self.home)

    @property
    def address(self) -> str:
        """At which ranks on other hosts reach this one; "" where there are none."""
        return "" if self.far is None else self.far.address()

    def watch_hosts(self, on_lost: Callable[[str], None]) -> None:
        """Call back with the name of each other host that is lost from now on, and of those that are already."""
        if self.far is not None:
            self.far.on_lost = on_lost
            for hostname in list(self.far.lost):
                on_lost(hostname)

    def why_lost(self, hostname: str) -> str:
        """Why a host is lost; "" where it is not."""
        return "" if self.far is None else self.far.lost.get(hostname, "")

    def leave_hosts(self) -> None:
        """Leave what is on other hosts to the grace time."""
        if self.far is not None:
            self.far.leave()

    def _close_hosts(self) -> None:
        if self.far is not None:
            self.far.close()
        if self.job is not None:
            self.job.cancel()

    def _stop_controller(self) -> None:
        for process in self._alive("controller"):
            end(process, by_itself_s=0.0, asked_s=_ASKED_S)
        self._processes.stop_controller_sync()

    def _kill_the_rest(self) -> None:
        """What is left of it on this host: nannies and the like, which end by themselves where nothing stops them."""
        home = str(self.home)
        if not wait_until(lambda: not of_home(home), _ITSELF_S, _LEFT_EVERY_S):
            kill(of_home(home))
        if self._ports is not None:
            self._ports.close()
        guard.stop(self.home)
        if self._guard is not None:
            self._guard.wait(_ASKED_S)

    def _alive(self, part: str) -> list[psutil.Process]:
        """The process of a part of ipyparallel's, as long as it runs; asked before each request."""
        launched = getattr(self._processes, part)
        try:
            found = [psutil.Process(launched.pid)] if launched is not None else []
            return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]
        except psutil.Error:
            return []

    def output(self) -> str:
        """What the engines' launcher wrote."""
        engines = self._processes.engine_set
        if engines is None:
            return self._last_output
        try:
            return Path(engines.output_file).read_text(errors="replace")
        except OSError:
            # ipyparallel takes the file away when it sees the process end, and keeps what was in it.
            return str(engines.get_output()) or self._last_output

    def exit_of(self, rank: int) -> str:
        """How a rank's process ended, as far as the launcher says; "" where it does not."""
        return exit_of_rank(self.output(), rank)

    def state(self) -> dict[str, Any]:
        """What another process needs to make this launcher again; plain values."""
        return {
            "n": self.n,
            "mpi": asdict(self.mpi),
            "grace_s": self.grace_s,
            "start_timeout_s": self.start_timeout_s,
            "environment": self.environment,
            "config": self.config.as_dict(),
            "security": asdict(self.security),
            "hosts": [asdict(host) for host in self.hosts],
            "job": None if self.job is None else {"asked": asdict(self.job.asked), "id": self.job.id},
            "system": this_system(),
            "controller_pid": self._processes.controller.pid,
        }

    def stop_detector(self, client: Any, ranks: Sequence[RankRecord]) -> StopDetector:
        """What looks whether processes of this cluster are stopped."""
        controller = self._processes.controller
        pid = None if controller is None else controller.pid
        return StopDetector(ranks, pid, str(self.home), partial(ask_nanny, client))

    def is_running(self) -> bool:
        """Whether the engines' launcher is still there."""
        return bool(self._alive("engine_set"))

    def has_controller(self) -> bool:
        """Whether the controller is still there; it may be stopped."""
        return bool(self._alive("controller"))

    def has_working_controller(self) -> bool:
        """Whether the controller is there, and not stopped."""
        return any(not is_stopped(process) for process in self._alive("controller"))

    def _start_engines(self) -> None:
        if self.far is not None:
            self._prepare_hosts(self.far, self._reached)
        elif sys.platform == "linux" and self.mpi.flavour == OPENMPI:
            self._ports = PortGuard(runtime_dirs.announcements(self.home), reports=self.mpi.revocable)
        self._processes.start_engines_sync(self.n)
        if self._ports is not None:
            self._ports.watch(self._processes.engine_set.pid)

    def _prepare_hosts(self, far: FarHosts, used: Sequence[Host]) -> None:
        far.start(self._engine_connection(), used)
        names = set(self._variables()) | set(self.environment) | {name for name in os.environ if "GCYLON_" in name}
        arguments, variables = mpiexec.over_hosts(self.mpi, used, far.network(), sorted(names))
        # mpiexec may send its variables on, as it does through srun: ranks read the keys from files.
        self._processes.send_engines_connection_env = False
        engines = self._processes.config.MPIEngineSetLauncher
        engines.mpi_args = [*self.mpi.arguments, *arguments]
        variables |= {"PRTE_MCA_plm": "ssh"} if self.job is None else self.job.variables(used)
        engines.environment = self._engine_environment() | variables

    def _engine_connection(self) -> dict[str, Any]:
        """What the controller tells engines by a file, keys included."""
        deadline = time.monotonic() + self.start_timeout_s
        while self.has_controller() and time.monotonic() < deadline:
            for file in self.home.glob("security/ipcontroller-*-engine.json"):
                with contextlib.suppress(ValueError):  # it is being written
                    connection: dict[str, Any] = json.loads(file.read_text())
                    return connection
            time.sleep(_POLL_S)
        raise RuntimeError("the controller did not say where it listens")

    def _engine_environment(self) -> dict[str, str]:
        on_this_host = mpiexec.on_this_host(self.mpi, runtime_dirs.shared_memory(self.home))
        keeping = {name: value for name, value in KEEPING_FREED.items() if name not in os.environ}
        return self.mpi.environment | keeping | on_this_host | self.environment | self._variables()

    @property
    def _starts(self) -> str:
        return f"Starting {self.n} rank{'s' * (self.n != 1)}"

    def _wait_for_engines(self, client: Any, say: Say) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while (there := len(client.ids)) < self.n:
            say(f"{self._starts}: {there} of {self.n} connected")
            if not self.is_running():
                raise self._start_error("The engines' launcher ended before all engines had started.")
            if time.monotonic() > deadline:
                raise self._start_error(
                    f"{len(client.ids)} of {self.n} engines were there after {format_seconds(self.start_timeout_s)}."
                )
            time.sleep(_POLL_S)
        if self._ports is not None and not self._ports.close() and (others := other_people()):
            warn(
                f"mpiexec does what it is told by whoever connects to it, and others may use this host ({others}); "
                "here this process may not close its ports. `gcylon-lab doctor` and SECURITY.md say more."
            )

    def _forget_controller(self) -> None:
        """Clear away what is left of one that died: its files would be taken for those of the next one."""
        if self._processes.controller is not None:
            for process in self._alive("controller"):
                kill([process])  # it is stopped, or does not know that its engines are gone
                wait_until(lambda process=process: not is_running(process), _ASKED_S)  # type: ignore[misc]
            self._processes.stop_controller_sync()
        for file in self.home.glob("security/ipcontroller-*.json"):
            file.unlink()

    def _start_guard(self) -> None:
        if not guard.is_there(self.home):
            self._guard = guard.start(self.home, self.grace_s)

    def _start_error(self, message: str) -> ClusterStartError:
        tail = _tail(without_chatter(self.output()))
        text = f"\n--- the launcher's output ---\n{tail}\n---" if tail else " The launcher wrote nothing."
        advice = f"The command was: {' '.join(self._command())}"
        return ClusterStartError(message + text, advice=advice, output=tail)

    def _command(self) -> list[str]:
        engines = self._processes.engine_set
        return [] if engines is None else [word for word in engines.args if not word.startswith("--IPEngine.init")]

    def _new_processes(self) -> Any:
        ProfileDir.create_profile_dir(str(self.home))  # type: ignore[no-untyped-call]
        processes = ipyparallel.Cluster(
            engines="mpi", n=self.n, config=self._config(), profile_dir=str(self.home), **_QUIET
        )
        return self._prepared(processes)

    def _found_processes(self) -> Any:
        file = next(self.home.glob("security/cluster-*.json"))
        return self._prepared(ipyparallel.Cluster.from_file(str(file), config=self._config(), **_QUIET))

    def _prepared(self, processes: Any) -> Any:
        # The controller's file says when it is there; ipyparallel's own pause of a second is not needed.
        processes.delay = 0.0
        # A busy machine is slow: an engine that has not shown its heartbeat in time would be forgotten in silence.
        patience = f"--IPController.registration_timeout={int(self.start_timeout_s)}"
        # The controller makes the keys, and tells them by its files alone.
        encrypted = f"--IPController.enable_curve={self.security.encrypted}"
        processes.controller_args = [*_CONTROLLER_ARGUMENTS, patience, encrypted]
        return processes

    def _config(self) -> Config:
        config = Config()
        config.LocalControllerLauncher.controller_cmd = [
            sys.executable,
            "-P",
            "-m",
            "gcylon_lab.cluster.launch.controller",
        ]
        config.LocalControllerLauncher.environment = self._variables()
        engines = config.MPIEngineSetLauncher
        engines.engine_cmd = [sys.executable, "-P", "-m", "gcylon_lab.cluster.launch.engine_process"]
        engines.mpi_cmd = [self.mpi.path]
        reports = ["--report-uri", str(runtime_dirs.announcements(self.home))] if self.mpi.revocable else []
        engines.mpi_args = [*self.mpi.arguments, *reports]
        engines.environment = self._engine_environment()
        engines.engine_args = [
            f"--IPEngine.timeout={self.start_timeout_s}",  # as above; ipyparallel's own limit is five seconds
            # An engine ends with its owner alone; and to count the controller's beats it would open a port.
            "--IPEngine.max_heartbeat_misses=0",
            f"--IPEngine.init_mpi={_init(self.home, self.grace_s, self.config)}",
        ]
        return config

    def _variables(self) -> dict[str, str]:
        return {HOME_VARIABLE: str(self.home), GRACE_VARIABLE: repr(self.grace_s), "PYTHONPATH": self._python_path()}

    def _python_path(self) -> str:
        return python_path(self.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", "")))


_QUIET = {"load_profile": False, "shutdown_atexit": False, "log_level": logging.CRITICAL}


def _init(home: Path, grace_s: float, config: GcylonConfig) -> str:
    """What ipyparallel runs on each rank, in the namespace of ``%px``, before the engine says that it is there."""
    start = f"engine.start({str(home)!r}, {grace_s!r}, {config.as_dict()!r})"
    return f"import gcylon_lab as gl; from gcylon_lab.cluster.engine import engine; {start}; del engine"


def _tail(output: str) -> str:
    return "\n".join(output.splitlines()[-_TAIL_LINES:])
