"""A real Slurm over the two hosts of `hosts`, with this host as the login node."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import hosts
from hosts import HERE, NAMES, Hosts, address_of

# A namespace has a /sys of its own, without control groups, and slurmd wants some.
_SLURMD = """
umount /sys/fs/cgroup 2>/dev/null; mount -t tmpfs tmpfs /sys/fs/cgroup
for c in cpu cpuacct memory freezer devices cpuset; do
  mkdir -p /sys/fs/cgroup/$c; mount -t cgroup -o $c cgroup /sys/fs/cgroup/$c 2>/dev/null
done
exec /usr/sbin/slurmd -N {name} -f {conf} </dev/null >/dev/null 2>&1
"""
_CONF = """
ClusterName=two
SlurmctldHost={login}({here})
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd.%n.log
MpiDefault=none
KillWait=2
{nodes}
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why there can be no Slurm here; "" where there can."""
    if reason := hosts.why_not():
        return reason
    lacks = [name for name in ("slurmctld", "slurmd", "sbatch", "srun", "munged") if _which(name) is None]
    return f"{', '.join(lacks)} missing: apt-get install slurm-wlm munge" if lacks else ""


class Slurm:
    """From when it is made until `down`.

    Parameters
    ----------
    both : Hosts
    """

    def __init__(self, both: Hosts) -> None:
        self.folder = Path("/run/gcylon-slurm")  # as both hosts see it
        self.down()
        for name in ("", "state", *(f"spool.{name}" for name in NAMES)):
            (self.folder / name).mkdir(parents=True)
        self.conf = self.folder / "slurm.conf"
        nodes = (f"NodeName={name} NodeAddr={address_of(name)} CPUs=2 State=UNKNOWN" for name in NAMES)
        self.conf.write_text(
            _CONF.format(login=socket.gethostname(), here=HERE, folder=self.folder, nodes="\n".join(nodes))
        )
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n")
        os.environ["SLURM_CONF"] = str(self.conf)
        _start_munge()
        self._controller = subprocess.Popen([str(_which("slurmctld")), "-D", "-f", str(self.conf)],
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        for name in NAMES:
            both.run(name, _SLURMD.format(name=name, conf=self.conf))
        deadline = time.monotonic() + 60
        while self.ask("sinfo", "-h", "-o", "%T %D") != "idle 2\n":
            assert time.monotonic() < deadline, self.ask("sinfo")
            time.sleep(0.2)

    def ask(self, *command: str) -> str:
        """What a command of Slurm writes."""
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout

    def down(self) -> None:
        """End it; what runs on the hosts ends with them."""
        if hasattr(self, "_controller"):
            self._controller.kill()
            self._controller.wait()
            os.environ.pop("SLURM_CONF", None)
        shutil.rmtree(self.folder, ignore_errors=True)


def _start_munge() -> None:
    if subprocess.run(["pgrep", "-x", "munged"], stdout=subprocess.DEVNULL).returncode == 0:
        return
    for folder in ("/run/munge", "/var/log/munge", "/var/lib/munge", "/etc/munge"):
        os.makedirs(folder, mode=0o755, exist_ok=True)
        shutil.chown(folder, "munge", "munge")
    key = Path("/etc/munge/munge.key")
    if not key.exists():
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        shutil.chown(key, "munge", "munge")
    subprocess.run(["runuser", "-u", "munge", "--", str(_which("munged"))], check=True)


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
