"""Which mpiexec is used, and what its output says about a rank that ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gcylon_lab.cluster.launch.mpiexec import (
    exit_of_rank,
    find_mpiexec,
    on_this_host,
    without_chatter,
)
from gcylon_lab.errors import ClusterStartError

# Written by Open MPI 5.0.11 when rank 1 was killed and rank 2 called _exit(3).
OPENMPI_OUTPUT = """\
[vm:08253] [prterun-vm-8253@0,0] odls:launch spawning child [prterun-vm-8253@1,2]
[vm:08253] [prterun-vm-8253@0,0] odls:wait_local_proc child process [prterun-vm-8253@1,2] pid 8259 terminated
[vm:08253] [prterun-vm-8253@0,0] odls:waitpid_fired child [prterun-vm-8253@1,2] exit code 3
[vm:08253] [prterun-vm-8253@0,0] odls:waitpid_fired child process [prterun-vm-8253@1,2] terminated with non-zero status
[vm:08253] [prterun-vm-8253@0,0] odls:wait_local_proc child process [prterun-vm-8253@1,1] pid 8258 terminated
[vm:08253] [prterun-vm-8253@0,0] odls:waitpid_fired child process [prterun-vm-8253@1,1] terminated with signal Killed
"""


def fake_mpiexec(folder: Path, text: str) -> str:
    path = folder / "mpiexec"
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return str(path)


def test_exits_are_read_from_the_launcher() -> None:
    assert exit_of_rank(OPENMPI_OUTPUT, 1) == "signal Killed"
    assert exit_of_rank(OPENMPI_OUTPUT, 2) == "exit code 3"
    assert exit_of_rank(OPENMPI_OUTPUT, 0) == ""


def test_the_launchers_chatter_is_not_for_people() -> None:
    assert without_chatter(OPENMPI_OUTPUT + "a real message") == "a real message"


def test_the_one_beside_the_interpreter_is_found() -> None:
    found = find_mpiexec()
    assert (
        Path(found.path).parent == Path(sys.executable).parent or not Path(sys.executable).with_name("mpiexec").exists()
    )
    assert found.flavour in ("openmpi", "mpich")


def test_open_mpi_5_gets_ulfm_and_4_does_not(tmp_path: Path) -> None:
    five = find_mpiexec(fake_mpiexec(tmp_path, "mpiexec (Open MPI) 5.0.11"))
    assert five.revocable
    assert five.arguments[:2] == ("--with-ft", "ulfm")
    (tmp_path / "old").mkdir()
    four = find_mpiexec(fake_mpiexec(tmp_path / "old", "mpirun (Open MPI) 4.1.4"))
    assert not four.revocable
    assert four.arguments == ("--oversubscribe",)


def test_a_transport_that_sleeps_is_left_out_unless_a_person_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMPI_MCA_btl", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def chosen(folder: str) -> str | None:
        (tmp_path / folder / "bin").mkdir(parents=True)
        return find_mpiexec(fake_mpiexec(tmp_path / folder / "bin", "mpiexec (Open MPI) 5.0.11")).environment.get(
            "OMPI_MCA_btl"
        )

    (tmp_path / "said/etc").mkdir(parents=True)
    (tmp_path / "said/etc/openmpi-mca-params.conf").write_text("# btl = tcp\nbtl_tcp_links = 2\n")
    assert chosen("said") == "^ofi"
    (tmp_path / "told/etc").mkdir(parents=True)
    (tmp_path / "told/etc/openmpi-mca-params.conf").write_text("# mine\n btl = self,sm\n")
    assert chosen("told") is None
    monkeypatch.setenv("OMPI_MCA_btl", "self,tcp")
    assert chosen("set") is None


def test_ranks_of_one_host_share_memory_alone_unless_a_person_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMPI_MCA_btl", "PRTE_MCA_prte_tmpdir_base"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    versions = {"5.0.11": "self,sm", "4.1.4": "self,vader"}
    for version, transports in versions.items():
        (tmp_path / version).mkdir()
        mpi = find_mpiexec(fake_mpiexec(tmp_path / version, f"mpiexec (Open MPI) {version}"))
        variables = on_this_host(mpi, tmp_path)
        assert variables.pop("OMPI_MCA_btl") == transports
        assert set(variables.values()) == {str(tmp_path)} and len(variables) == 2
    monkeypatch.setenv("OMPI_MCA_btl", "self,tcp")
    monkeypatch.setenv("PRTE_MCA_prte_tmpdir_base", "/mine")
    (tmp_path / "told").mkdir()
    told = find_mpiexec(fake_mpiexec(tmp_path / "told", "mpiexec (Open MPI) 5.0.11"))
    assert set(on_this_host(told, tmp_path)) == {"OMPI_MCA_btl_sm_backing_directory"}
    (tmp_path / "other").mkdir()
    assert on_this_host(find_mpiexec(fake_mpiexec(tmp_path / "other", "HYDRA MPICH Version: 5.0.2")), tmp_path) == {}


def test_mpich_is_known(tmp_path: Path) -> None:
    found = find_mpiexec(fake_mpiexec(tmp_path, "HYDRA build details: Version: 5.0.2"))
    assert (found.flavour, found.version, found.revocable) == ("mpich", "5.0.2", False)


def test_one_that_cannot_be_used_is_an_error_that_says_what_was_looked_at(tmp_path: Path) -> None:
    with pytest.raises(ClusterStartError, match="of no known MPI"):
        find_mpiexec(fake_mpiexec(tmp_path, "hello"))
    with pytest.raises(ClusterStartError, match="missing"):
        find_mpiexec(str(tmp_path / "missing"))
