"""Two hosts on this machine: namespaces with a name, an address, processes, /tmp and /dev/shm each, and an sshd."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("gnode1", "gnode2")
HERE = "10.77.7.254"
_BRIDGE, _SSHD = "gcbr0", "/usr/sbin/sshd"
_LOCK = Path("/run/gcylon-hosts.lock")
_ADDRESSES = {name: f"10.77.7.{number}" for number, name in enumerate(NAMES, 1)}
# Of this host a namespace sees the files that both hosts of a real cluster have alike, and nothing that is in use.
_INIT = """
mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm
hostname "$1"; mkdir -m 755 -p /run/sshd; umask 077; printf '%s' "$2" > /tmp/.keys
[ -e "$3" ] || { mkdir -p "${3%/*}"; install -m 755 /dev/null "$3"; }  # Open MPI wants to see it, and does not need it
exec "$0" -D -p 2222 -o AuthorizedKeysFile=/tmp/.keys -o StrictModes=no -o PermitRootLogin=yes -o UsePAM=no
"""


def why_not() -> str:
    """Why there can be no hosts here; "" where there can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "two hosts on one machine need root"
    lacks = [name for name in ("ip", "tc", "ssh", "ssh-keygen", "unshare", "setpriv") if shutil.which(name) is None]
    lacks += [] if os.path.exists(_SSHD) else ["sshd"]
    if lacks:
        return f"{', '.join(lacks)} missing: apt-get install openssh-server openssh-client iproute2"
    own_tmp = [path for path in (__file__, sys.prefix) if Path(path).resolve().is_relative_to("/tmp")]
    if own_tmp:
        return f"each host has a /tmp of its own, without {own_tmp[0]}: check out elsewhere"
    probe = f"gcp{os.getpid()}"
    if _run("ip", "link", "add", probe, "type", "bridge", check=False):
        return "this system allows no network bridge"
    _run("ip", "link", "del", probe)
    return ""


def address_of(name: str) -> str:
    """That of one of the hosts."""
    return _ADDRESSES[name]


class Hosts:
    """Both hosts, from when it is made until `down`. A machine has them once.

    Parameters
    ----------
    folder : Path
        For the keys; ``ssh`` there reaches them.

    Raises
    ------
    BlockingIOError
        If another run of the tests has them.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = _LOCK.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._end()
        self.ssh = folder / "ssh"
        key = folder / "key"
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        _run("ssh-keygen", "-A")
        lines = [line for name, address in _ADDRESSES.items() for line in (f"Host {name}", f" HostName {address}")]
        lines += ["Host *", " Port 2222", f" IdentityFile {key}", " StrictHostKeyChecking no"]
        lines += [" UserKnownHostsFile /dev/null", " LogLevel ERROR", ""]
        config = folder / "config"
        config.write_text("\n".join(lines))
        self.ssh.write_text(f'#!/bin/sh\nexec ssh -F {config} "$@"\n')
        self.ssh.chmod(0o700)
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "addr", "add", f"{HERE}/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        public = key.with_suffix(".pub").read_text()
        self._inits = [_start(name, public, self.ssh) for name in NAMES]
        for name in NAMES:
            deadline = time.monotonic() + 20
            while self.run(name, "echo there") != "there\n":
                assert time.monotonic() < deadline, f"no sshd on {name}"
                time.sleep(0.05)

    def run(self, name: str, command: str) -> str:
        """What a command writes there."""
        return subprocess.run([self.ssh, name, command], capture_output=True, text=True, timeout=60).stdout

    def limit(self, rate: str) -> None:
        """Let each send no more than that, as "1gbit", and after a pause no more at once than a network card has ready;
        "" takes the limit away."""
        for name in NAMES:
            change = ["add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "192kb", "latency", "20ms"]
            _run("tc", "-n", name, "qdisc", *(change if rate else ["del", "dev", "eth0", "root"]))

    def cut(self, name: str) -> None:
        """Take the network away from one."""
        _run("ip", "-n", name, "link", "set", "eth0", "down")

    def mend(self, name: str) -> None:
        """Give it back."""
        _run("ip", "-n", name, "link", "set", "eth0", "up")

    def down(self) -> None:
        """End both, with all that runs there, and remove them."""
        self._end()
        self._lock.close()

    def _end(self) -> None:
        """End what is there, also what a run before has left."""
        for init in getattr(self, "_inits", []):
            init.kill()
            init.wait()
        for name in NAMES:
            _run("ip", "netns", "del", name, check=False)
            _run("ip", "link", "del", f"gc-{name}", check=False)
        _run("ip", "link", "del", _BRIDGE, check=False)


def _start(name: str, public_key: str, ssh: Path) -> subprocess.Popen[bytes]:
    _run("ip", "netns", "add", name)
    _run("ip", "link", "add", f"gc-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
    _run("ip", "link", "set", f"gc-{name}", "master", _BRIDGE, "up")
    _run("ip", "-n", name, "addr", "add", f"{_ADDRESSES[name]}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _run("ip", "-n", name, "link", "set", device, "up")
    # Also where the tests are killed.
    inside = ["unshare", "--uts", "--pid", "--mount", "--fork", "--kill-child", "bash", "-c", _INIT]
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", name, *inside, _SSHD, name, public_key, str(ssh)]
    )


def _run(*command: str, check: bool = True) -> int:
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.returncode
