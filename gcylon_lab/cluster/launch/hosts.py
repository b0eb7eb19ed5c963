"""The other hosts of a cluster, from the notebook's side: which they are, how they are reached, whether they live."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ..._version import __version__
from ...errors import ArgumentError, ClusterStartError, GcylonError

SSH_VARIABLE = "PRTE_MCA_plm_ssh_agent"
"""What Open MPI reads, too: the command that reaches a host."""

LOST_S = 6.0
"""A host that has been silent for so long is lost; it answers every second."""

_BEAT_S = 1.0
_CONNECT_S = 20.0
_ANSWER_S = 10.0
_CLOSE_S = 5.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TAIL = 2000

Command = Callable[[str, Sequence[str]], list[str]]
"""Makes, of a host's name and a command for it, the command that runs that there."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host, and how many ranks it may have."""

    name: str
    slots: int

    def __str__(self) -> str:
        """As mpiexec reads it."""
        return f"{self.name}:{self.slots}"


def read_hosts(hosts: Sequence[str] | str | Path) -> tuple[Host, ...]:
    """Read hosts from a list of "name:ranks", or a file of them, a line each, which may be of mpiexec ("name slots=2").

    Raises
    ------
    ArgumentError
        If one cannot be read, or stands there twice.
    """
    lines: Iterable[str] = hosts  # type: ignore[assignment]
    if isinstance(hosts, (str, Path)):
        try:
            lines = Path(hosts).expanduser().read_text().splitlines()
        except OSError as error:
            raise ArgumentError(
                f"hosts={str(hosts)!r} cannot be read as a file: {error.strerror}.",
                advice='Give a list of hosts, as hosts=["node1:2", "node2:2"], or a file with one a line.',
            ) from None
    found = [_read_host(text) for line in lines if (text := line.partition("#")[0].strip())]
    names = [host.name for host in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not found:
        what = f"names {', '.join(twice)} twice" if twice else "names no host"
        raise ArgumentError(
            f"hosts={hosts!r} {what}.", advice='Give each host once, as in hosts=["node1:2", "node2:2"].'
        )
    return tuple(found)


def _read_host(text: str) -> Host:
    name, _, slots = re.sub(r"\s+slots\s*=\s*", ":", text).partition(":")
    if not _NAME.fullmatch(name) or not (slots or "1").isdecimal() or int(slots or 1) < 1:
        raise ArgumentError(
            f"{text!r} is invalid as a host. Expected a name and its number of ranks, as 'node1:2'.",
            advice="Users, ports and keys of ssh belong into ~/.ssh/config.",
        )
    return Host(name, int(slots or 1))


def check_slots(n: int, hosts: Sequence[Host]) -> None:
    """Raise `ArgumentError` where hosts, if there are any, take fewer ranks."""
    slots = sum(host.slots for host in hosts)
    if hosts and n > slots:
        named = ", ".join(map(str, hosts))
        raise ArgumentError(
            f"n={n} is more than the {slots} rank{'s' * (slots > 1)} that the hosts take ({named}).",
            advice=f"Give n={slots} or less, or more ranks a host, as in hosts=['{hosts[0].name}:{n}'].",
        )


def python_path(given: str) -> str:
    """A PYTHONPATH with which this very package is found, also when it is not installed."""
    paths = [path for path in given.split(os.pathsep) if path]
    here = Path(__file__).resolve().parents[3]
    if here.name not in ("site-packages", "dist-packages"):
        paths.append(str(here))
    return os.pathsep.join(dict.fromkeys(paths))


def by_ssh(name: str, command: Sequence[str]) -> list[str]:
    """The command that runs another on a host, by ssh as Open MPI is told to use it."""
    agent = shlex.split(os.environ.get(SSH_VARIABLE, "ssh"))
    if os.path.basename(agent[0]) == "ssh":
        agent += ["-x", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    return [*agent, name, shlex.join(command)]


def is_this_host(name: str) -> bool:
    """Whether a name is that of the calling process's own host."""
    if name in ("localhost", socket.gethostname(), socket.getfqdn()):
        return True
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(name, None)}
    except OSError:
        return False
    return bool(addresses & {address.address for _, address in _own_addresses()})


class FarHosts:
    """The hosts of a cluster but for the notebook's own, each with a `far_host` process.

    Parameters
    ----------
    hosts : sequence of Host
    home : Path
        The cluster's folder, on the notebook's host.
    grace_s : float
    python_path : str
        Where they find this package.
    command : callable
        How a host is reached.
    explain : callable
        Says why all may be lost, "" where nothing is known.
    job : str
        The job of Slurm that ends with the cluster.

    Attributes
    ----------
    lost : dict
        Why a host is lost, by what it calls itself.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        home: Path,
        grace_s: float,
        python_path: str,
        command: Command = by_ssh,
        explain: Callable[[], str] = lambda: "",
        job: str = "",
    ) -> None:
        self.hosts = tuple(hosts)
        self.lost: dict[str, str] = {}
        self.on_lost: Callable[[str], None] = lambda hostname: None
        self._python_path = python_path
        self._command, self._explain = command, explain
        self._told: dict[str, Any] = {"home": str(home), "grace_s": grace_s, "job": job}
        self._far = [host.name for host in hosts if not is_this_host(host.name)]
        self._lines: dict[str, _Line] = {}
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def connect(self) -> dict[str, str]:
        """Reach all hosts that are not connected; return why some are not, by name."""
        gone = [name for name, line in self._lines.items() if line.why_lost() or line.hostname in self.lost]
        for name in gone:
            line = self._lines.pop(name)
            self.lost.pop(line.hostname, None)
            line.drop()
        missing = [name for name in self._far if name not in self._lines]
        program = [sys.executable, "-P", "-m", "gcylon_lab.cluster.launch.far_host", str(self._told["home"])]
        program = ["env", f"PYTHONPATH={self._python_path}", *program]

        def reach(name: str) -> str:
            line = _Line(name, self._command(name, program))
            why = line.begin()
            if why:
                line.drop()
            else:
                self._lines[name] = line
            return why

        failed = {name: why for name, why in zip(missing, _at_once(reach, missing), strict=True) if why}
        self._check_names()
        if self._thread is None and self._lines:
            self._thread = threading.Thread(target=self._beat, name="gcylon-hosts", daemon=True)
            self._thread.start()
        return failed

    def address(self) -> str:
        """This host's address, as the others see it; of IPv4, which ipyparallel needs."""
        seen = str(next((line.introduction["notebook"] for line in self._lines.values()), ""))
        if seen and ":" not in seen:
            return seen
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent
            probe.connect((next(iter(self._lines), "127.0.0.1"), 9))
            return str(probe.getsockname()[0])

    def network(self) -> str:
        """The network in which all of them are, as "10.0.0.0/24"; "" where that is not known to be one."""
        here = self.address()
        mask = next((own.netmask for _, own in _own_addresses() if own.address == here), None)
        if mask is None or ":" in here:
            return ""
        network = ipaddress.ip_network(f"{here}/{mask}", strict=False)
        others = [line.introduction["here"] for line in self._lines.values()]
        return str(network) if all(other and ipaddress.ip_address(other) in network for other in others) else ""

    def start(self, connection: dict[str, Any], hosts: Sequence[Host]) -> None:
        """Give those hosts what their ranks need.

        Raises
        ------
        ClusterStartError
            If one cannot reach the controller, or make its folder.
        """
        names = [host.name for host in hosts if host.name in self._lines]
        place = connection["interface"].partition("://")[2], connection["registration"]

        def start(name: str) -> str:
            line = self._lines[name]
            error = line.ask("reach", {"host": place[0], "port": place[1]}).get("error")
            if error:
                return (
                    f"Host {name} cannot reach the controller on this host at {place[0]}, port {place[1]}: {error}. A "
                    "firewall may be between them."
                )
            error = line.ask("start", {**self._told, "connection": connection}).get("error")
            return f"Host {name} is not ready for ranks: {error}." if error else ""

        wrong = [text for text in _at_once(start, names) if text]
        if wrong:
            raise ClusterStartError(" ".join(wrong))

    def introductions(self) -> dict[str, dict[str, Any]]:
        """What those that are connected say of themselves, by name."""
        return {name: line.introduction for name, line in self._lines.items()}

    def ask(self, name: str, what: str, told: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask one; the answer has an "error" where it did not do."""
        return self._lines[name].ask(what, told)

    def take(self) -> None:
        """Watch over ranks that run, as the new owner."""
        self._all("take", self._told)

    def kill(self) -> None:
        """End the ranks on all of them."""
        self._all("kill")

    def close(self) -> None:
        """End all there, and leave nothing. Idempotent."""
        self._done.set()
        self._all("close")
        lines = list(self._lines.values())
        self.leave()
        for line in lines:
            line.wait()

    def leave(self) -> None:
        """Leave them to the grace time, or to whoever comes then. Idempotent."""
        self._done.set()
        for line in self._lines.values():
            line.drop()
        self._lines = {}

    def _all(self, what: str, told: dict[str, Any] | None = None) -> None:
        names = [name for name, line in self._lines.items() if line.hostname not in self.lost]
        _at_once(lambda name: self._lines[name].ask(what, told, _CLOSE_S), names)

    def _check_names(self) -> None:
        names = [socket.gethostname()] if len(self._far) < len(self.hosts) else []
        names += [line.hostname for line in self._lines.values()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ClusterStartError(
                f"Two hosts call themselves {twice[0]!r}: ranks could not tell who shares a host with whom.",
                advice="Give each host a name of its own (hostnamectl set-hostname).",
            )
        for name, line in self._lines.items():
            if line.introduction["version"] != __version__:
                raise ClusterStartError(
                    f"Host {name} has gcylon_lab {line.introduction['version']}, this one {__version__}.",
                    advice="Install one version on all hosts.",
                )

    def _beat(self) -> None:
        while not self._done.wait(_BEAT_S):
            for line in list(self._lines.values()):
                if line.hostname not in self.lost:
                    line.beat()
                    if (why := line.why_lost()) and not self._done.is_set():
                        self._lose(line.hostname, why)

    def _lose(self, hostname: str, why: str) -> None:
        with contextlib.suppress(GcylonError):  # Slurm does not say
            why = self._explain() or why
        self.lost[hostname] = why
        # Without this thread no host hears anything, so nothing may end it.
        with contextlib.suppress(Exception):
            self.on_lost(hostname)


class _Line:
    """The connection to the process on one host: a command whose input and output go there."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.introduction: dict[str, Any] = {}
        self._errors = tempfile.TemporaryFile()
        self._unanswered = 0
        self._turn = threading.Lock()
        self._came = threading.Condition()
        self._answers: dict[str, dict[str, Any]] = {}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, start_new_session=True, cwd="/"
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)  # one that is cut off takes no more, some day
        threading.Thread(target=self._read, name="gcylon-host", daemon=True).start()

    @property
    def hostname(self) -> str:
        """What the host calls itself, as the ranks there do."""
        return str(self.introduction.get("hostname", self.name))

    def begin(self) -> str:
        """Wait until the process is there; why it is not, "" where it is."""
        answer = self._await("begin", _CONNECT_S)
        if answer is None:
            said = self._said() or f"no answer in {_CONNECT_S:g} s"
            return said
        self.introduction = answer
        return ""

    def ask(self, what: str, told: dict[str, Any] | None = None, timeout_s: float = _ANSWER_S) -> dict[str, Any]:
        """Ask, and wait for the answer, which has an "error" where it did not do."""
        self._answers.pop(what, None)
        self.send(what, told)
        return self._await(what, timeout_s) or {"error": self.why_lost() or f"no answer in {timeout_s:g} s"}

    def send(self, what: str, told: dict[str, Any] | None = None) -> None:
        """Ask, and do not wait."""
        with self._turn, contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            os.write(self._process.stdin.fileno(), json.dumps({"do": what} | (told or {})).encode() + b"\n")

    def why_lost(self) -> str:
        """Why nobody there can be asked any more; "" where that is not so."""
        if self._process.poll() is not None:
            return f"the connection to it has ended ({self._said() or f'exit code {self._process.returncode}'})"
        # Not by the clock: where this process itself could not go on for a while, none was asked.
        silent_s = self._unanswered * _BEAT_S
        return f"it has not answered for {silent_s:.0f} s" if silent_s > LOST_S else ""

    def beat(self) -> None:
        """Say that the notebook is there, every second."""
        self._unanswered += 1
        self.send("beat")

    def drop(self) -> None:
        """End the connection; what is there goes on for the grace time."""
        with self._turn, contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self._process.poll() is None and (self.why_lost() or not self.introduction):
            self._process.kill()

    def wait(self) -> None:
        """Wait a moment until the connection has ended; then it is cut."""
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError, KeyError):  # what a login shell says
                answer = json.loads(line)
                with self._came:
                    self._answers[answer["did"]] = answer
                    self._unanswered = 0
                    self._came.notify_all()
        self._process.wait()
        with self._came:
            self._came.notify_all()

    def _await(self, what: str, timeout_s: float) -> dict[str, Any] | None:
        with self._came:
            self._came.wait_for(lambda: what in self._answers or self._process.poll() is not None, timeout_s)
            return self._answers.pop(what, None)

    def _said(self) -> str:
        # At an offset of its own: the one of the file is where the command writes.
        return os.pread(self._errors.fileno(), 1 << 20, 0).decode(errors="replace").strip()[-_TAIL:]


def _at_once(function: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
    if not names:
        return []
    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(function, names))


def _own_addresses() -> list[tuple[str, Any]]:
    return [(name, address) for name, addresses in psutil.net_if_addrs().items() for address in addresses]


def unreachable(failed: dict[str, str], advice_on_rest: str) -> GcylonError:
    """The error of hosts that cannot be reached, by name, and what to do without them."""
    text = "; ".join(f"{name}: {why}" for name, why in failed.items())
    advice = f"Try `{' '.join(by_ssh(next(iter(failed)), ['hostname']))}` in a terminal.{advice_on_rest}"
    return ClusterStartError(f"Of the hosts, {len(failed)} cannot be reached: {text}.", advice=advice)
