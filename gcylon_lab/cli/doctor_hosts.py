"""``gcylon-lab doctor --hosts``: whether ranks can run on other hosts, and what differs there."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..cluster.launch.far_host import versions
from ..cluster.launch.hosts import FarHosts, python_path, read_hosts
from ..errors import GcylonError
from .doctor import FAIL, IN_MEMORY, OK, WARN, Finding

_FIREWALL = (
    "Ranks, mpiexec and the controller listen at ports that the system chooses: let these hosts reach all of them."
)


def examine_hosts(text: str) -> list[Finding]:
    """Look at hosts, given as "node1,node2" or as a file of them; nothing is changed there."""
    return list(_examine(text))


def _examine(text: str) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory(prefix="gcylon-doctor-") as home:
        try:
            hosts = read_hosts(text if Path(text).is_file() else [word for word in text.split(",") if word])
            far = FarHosts(hosts, Path(home), 0.0, python_path(os.environ.get("PYTHONPATH", "")))
            failed = far.connect()
        except GcylonError as error:
            yield Finding("hosts", FAIL, error.message, error.advice)
            return
        try:
            for host in hosts:
                if host.name in failed:
                    how = "It is reached by ssh without a password, and has this Python under the same path."
                    yield Finding(host.name, FAIL, f"cannot be reached: {failed[host.name]}", how)
                elif host.name not in far.introductions():
                    yield Finding(host.name, OK, "is this host")
                else:
                    yield from _host(far, host.name)
            yield from _reaching(far)
        finally:
            far.close()


def _host(far: FarHosts, name: str) -> Iterator[Finding]:
    said = far.ask(name, "examine")
    if "error" in said:
        yield Finding(name, FAIL, said["error"])
        return
    mine, its = versions(), said["versions"]
    differ = [
        f"{package} {its.get(package)} (here {mine[package]})" for package in mine if its.get(package) != mine[package]
    ]
    if differ:
        yield Finding(name, FAIL, f"has {', '.join(differ)}", "Install the same versions on all hosts.")
    else:
        hostname = far.introductions()[name]["hostname"]
        yield Finding(name, OK, f"is reached, calls itself {hostname}, and has the same versions as this host")
    folder, kind = said["staging"]
    if kind in IN_MEMORY:
        note = (
            "This folder is itself memory: staging there saves none. Set spill_dir to a folder on a disk of every host."
        )
        yield Finding(name, WARN, f"disk tier in {folder} ({kind})", note)


def _reaching(far: FarHosts) -> Iterator[Finding]:
    """Whether each reaches this host and all others, by TCP."""
    names = list(far.introductions())
    if not names:
        return
    with socket.create_server((far.address(), 0)) as port:
        places = {"this host": port.getsockname()[:2]}
        for name, introduction in far.introductions().items():
            places[name] = introduction["here"], far.ask(name, "listen").get("port", 0)
        wrong = []
        for name in names:
            for other, (host, number) in places.items():
                if name != other and (error := far.ask(name, "reach", {"host": host, "port": number}).get("error")):
                    wrong.append(f"{name} cannot reach {other} at {host}: {error}")
    if wrong:
        yield Finding("network", FAIL, "; ".join(wrong), _FIREWALL)
        return
    network = far.network() or "networks that Open MPI chooses"
    value = f"all reach each other and this host ({far.address()}), in {network}"
    yield Finding("network", OK, value)
