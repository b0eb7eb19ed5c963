"""What another user of this host can reach of a cluster: nothing that is said, and nothing that is done."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ports import free_port
from test_lifecycle import wait_until

import gcylon_lab as gl
from gcylon_lab.bench.harness.worker_processes import mpi_contender
from gcylon_lab.cli import doctor
from gcylon_lab.cluster.launch import runtime_dirs, security
from gcylon_lab.cluster.launch.lease import this_system
from gcylon_lab.cluster.launch.ports import PortGuard, can_guard_ports
from gcylon_lab.cluster.launch.security import check_name, choose_security, other_people
from gcylon_lab.cluster.processes import of_home
from gcylon_lab.errors import ArgumentError, ClusterError

# Another user: connects to each of a cluster's sockets.
STRANGER = """
import json, os, socket, sys

paths = json.loads(sys.stdin.readline())
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
print("ready", flush=True)
sys.stdin.read()
refused = []
for path in paths:
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(path)
        except PermissionError:
            refused.append(path)
print(json.dumps({"refused": refused}), flush=True)
"""

# Calls the ports of an mpiexec from before they are there: as a tool of this user, which it believes, or an mpiexec.
CALLER = """
import json, os, socket, struct, sys, threading, time

calls, user = json.loads(sys.stdin.readline()), os.getuid()
if user == 0:
    os.setgid(54321)
    os.setuid(54321)
who = struct.pack("=II", user, user)
words = b"native\\0" + struct.pack("!I", 8) + who + b"\\3" + struct.pack("!II", user, user)
words += b"5.0.11\\0v41\\0\\1hash\\0"
told, heard, connected = threading.Event(), [], []
says = {
    "tool": struct.pack("=iIII", -1, 0, len(words), 0) + words,
    "mpiexec": (b"x".ljust(260, b"\\0") * 2 + bytes(12) + b"\\2").ljust(568, b"\\0"),
}

def call(what, host, port):
    while not told.wait(0.002):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as caller:
            caller.settimeout(0.2)
            try:
                caller.connect((host, port))
                connected.append(what)
                caller.sendall(says[what])
                heard.append(caller.recv(600).decode("latin1"))
            except OSError:
                pass

threads = [threading.Thread(target=call, args=one, daemon=True) for one in calls]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.read()
told.set()
for thread in threads:
    thread.join()
print(json.dumps({"heard": [text for text in heard if text], "connected": connected}), flush=True)
"""

MPIEXEC_PORTS = [
    ("tool", "127.0.0.1", "PMIX_MCA_ptl_base_ipv4_port"),
    ("mpiexec", "127.0.0.1", "PRTE_MCA_oob_tcp_static_ipv4_ports"),
    ("mpiexec", "::1", "PRTE_MCA_oob_tcp_static_ipv6_ports"),
]


def known_ports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Let the next mpiexec take ports that are known before."""
    calls = [(what, host, free_port()) for what, host, _ in MPIEXEC_PORTS]
    for (_, _, port), (_, _, name) in zip(calls, MPIEXEC_PORTS, strict=True):
        monkeypatch.setenv(name, str(port))
    return calls


@contextlib.contextmanager
def stranger(places: list[Any], code: str) -> Iterator[dict[str, Any]]:
    """Inside, another user is at work; afterwards, what they say."""
    pipe = subprocess.PIPE
    result: dict[str, Any] = {}
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(places) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        yield result
        process.stdin.close()
        result |= json.loads(process.stdout.readline())


def listening(processes: list[psutil.Process]) -> dict[psutil.Process, set[tuple[str, int]]]:
    found = {}
    for process in processes:
        ports = (one.laddr for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN)
        found[process] = {(address.ip, address.port) for address in ports}
    return found


@pytest.mark.mpi
@pytest.mark.timeout(300)
def test_a_stranger_neither_hears_nor_disturbs_a_cluster(
    runtime_dir: str, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A package planted in the folder in which it starts runs in no process; a module of one's own is found there.
    (tmp_path / "gcylon_lab").mkdir()
    (tmp_path / "gcylon_lab/__init__.py").write_text(f"open({str(tmp_path / 'planted')!r}, 'a').write('ran')")
    (tmp_path / "of_ones_own.py").write_text("answer = 42")
    monkeypatch.chdir(tmp_path)
    guarded = can_guard_ports()
    calls = known_ports(monkeypatch) if guarded else []
    with stranger(calls, CALLER) as called:
        lab = gl.Cluster(2, name="encrypted", progress=False, security="encrypted")
    assert not called["heard"]
    assert not guarded or "tool" in called["connected"]
    for _, _, name in MPIEXEC_PORTS:
        monkeypatch.delenv(name, raising=False)
    with lab:
        lab.view.execute("import of_ones_own; assert of_ones_own.answer == 42", block=True)
        assert not (tmp_path / "planted").exists()
        launcher = lab._session.launcher
        home = launcher.home
        ours = of_home(str(home))
        mpiexec = psutil.Process(launcher._processes.engine_set.pid)
        places = listening(ours)

        # None of it listens on a port, but mpiexec, to which nobody can connect.
        assert not any(ports for process, ports in places.items() if process != mpiexec)
        if guarded:
            for ip, port in places[mpiexec]:
                with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as caller:
                    caller.settimeout(0.3)
                    with pytest.raises(TimeoutError):
                        caller.connect(("::1" if ":" in ip else "127.0.0.1", port))

        # Nobody else opens a socket: not that of a controller, which keeps whatever comes of a message, nor a rank's.
        sockets = [str(path) for path in runtime_dirs.sockets(home).iterdir()]
        assert runtime_dirs.sockets(home).stat().st_mode & 0o777 == 0o700
        assert len(sockets) >= 17 and sum("nanny" in path for path in sockets) == 2
        if os.geteuid() == 0:
            with stranger(sockets, STRANGER) as result:
                pass
            assert result["refused"] == sockets

        # No key stands where others can read it.
        files = list(home.glob("security/ipcontroller-*.json"))
        keys = {json.loads(file.read_text())["curve_serverkey"] for file in files}
        assert len(files) == 2 and len(keys) == 1 and len(keys.pop()) == 40
        assert all(file.stat().st_mode & 0o077 == 0 for file in files)
        said = "\n".join(" ".join(process.cmdline()) for process in ours)
        for name in ("curve_serverkey", "key"):
            assert not any(json.loads(file.read_text())[name] in said for file in files)
        lab.view.execute("import os; told = 'IPP_CONNECTION_INFO' in os.environ", block=True)
        assert lab.view["told"] == [False, False]
        assert "can open, encrypted because security=&#x27;encrypted&#x27;" in lab._repr_html_()

        lab.view.execute("kept = 5", block=True)
        pids = [rank.pid for rank in lab.ranks]
        lab.detach()
        with gl.Cluster.attach("encrypted", progress=False) as again:
            assert [rank.pid for rank in again.ranks] == pids and again.view["kept"] == [5, 5]
            again._session.launcher._processes.controller.signal(9)
            assert wait_until(lambda: not again._session.launcher.has_controller(), 10)
            again.restart()
            cell = again.view.execute("print('again')")
            cell.get(30)
            assert cell.stdout == ["again\n"] * 2
            assert "signing is disabled" not in caplog.text
            assert again.run(os.getpid) == [rank.pid for rank in again.ranks]
            assert not Path(sockets[0]).parent.exists() and again._session.launcher.home == home
            made = runtime_dirs.sockets(home)
            assert made.stat().st_mode & 0o777 == 0o700
            file = next(again._session.launcher.home.glob("security/*-client.json"))
            assert json.loads(file.read_text())["curve_serverkey"], "the new controller encrypts too"
    assert not made.exists() and not home.exists()


RANK_OF_A_BENCH = """
from gcylon_lab.bench.harness.worker_processes import serve
from mpi4py import MPI

world = MPI.COMM_WORLD
world.sendrecv(bytes(1000), dest=world.size - 1 - world.rank)
serve(lambda: {"met": world.allreduce(1)}, world.rank)
"""


@pytest.mark.mpi
@pytest.mark.parametrize("what", ["doctor", "bench"])
def test_a_stranger_is_not_heard_by_ranks_that_are_no_clusters(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor and the benches start an mpiexec, too: it does what it is told by whoever it hears."""
    (tmp_path / "rank_of_a_bench.py").write_text(RANK_OF_A_BENCH)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    guarded = can_guard_ports()
    calls = known_ports(monkeypatch) if guarded else []
    with stranger(calls, CALLER) as called:
        if what == "doctor":
            assert [finding.status for finding in doctor._mpi()] == [doctor.OK] * 2
        else:
            with mpi_contender("met", "rank_of_a_bench", 2) as contender:
                assert contender.step() == [{"met": 2}] * 2
                launcher = psutil.Process(contender._process.pid)
                assert not any(listening(launcher.children()).values())
    assert not called["heard"]
    assert not guarded or "tool" in called["connected"]


@pytest.mark.mpi
def test_sockets_have_short_names_however_long_that_of_the_temporary_folder_is(
    runtime_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 20)))
    os.mkdir(tempfile.tempdir)
    with gl.Cluster(1, name="n" * 64, progress=False) as lab:
        assert lab.run(os.getpid) == [rank.pid for rank in lab.ranks]
        assert runtime_dirs.sockets(lab._session.launcher.home).parent == Path("/tmp")


def accounts(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, int, str], owners: tuple[int, ...] = ()) -> None:
    import pwd

    monkeypatch.delenv("GCYLON_SECURITY", raising=False)
    listed = [SimpleNamespace(pw_name=name, pw_uid=uid, pw_shell=shell) for name, uid, shell in entries]
    monkeypatch.setattr(pwd, "getpwall", lambda: listed)
    running = [SimpleNamespace(info={"uids": SimpleNamespace(real=uid)}) for uid in owners]
    monkeypatch.setattr(security.psutil, "process_iter", lambda _: running)


def test_a_guard_of_a_start_that_has_failed_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    guard = PortGuard(tmp_path / "pipe", reports=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        guard.watch(process.pid)
        (tmp_path / "pipe").unlink()
        process.kill()
    assert not guard.close() and not guard.is_alive() and not raised


def test_who_else_may_use_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    system = [("root", 0, "/bin/bash"), ("daemon", 1, "/bin/sh"), ("nobody", 65534, "/bin/sh")]
    me, off = ("me", os.getuid(), "/bin/bash"), ("off", 2001, "/usr/sbin/nologin")
    other = max(os.getuid(), 1999) + 1
    accounts(monkeypatch, *system, me, off, owners=(0, 33, os.getuid()))
    assert other_people() == ""
    accounts(monkeypatch, *system, me, ("alice", other, "/bin/bash"))
    assert other_people() == "account alice"
    accounts(monkeypatch, me, owners=(other,))
    assert other_people() == f"processes of user {other}"


def test_messages_are_encrypted_where_somebody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GCYLON_SECURITY", raising=False)
    assert choose_security().describe() == "messages go over Unix sockets that no other user can open"
    assert not choose_security().encrypted and not choose_security("signed").encrypted
    monkeypatch.setenv("GCYLON_SECURITY", "signed")
    assert choose_security().describe().endswith("can open, signed because GCYLON_SECURITY=signed")
    assert choose_security("encrypted").encrypted
    monkeypatch.setenv("GCYLON_SECURITY", "encrypted")
    assert choose_security().encrypted
    monkeypatch.setenv("GCYLON_SECURITY", "curve")
    with pytest.raises(ArgumentError, match="GCYLON_SECURITY=curve is invalid"):
        choose_security()
    with pytest.raises(ArgumentError, match="Expected 'auto', 'encrypted' or 'signed'"):
        gl.Cluster(1, security="none")


def test_a_name_is_that_of_a_variable() -> None:
    assert check_name("größe_2") == "größe_2"
    for name in ("../planted", "a-b", "", "2nd", "a" * 65, "a b", 7):
        for take in (check_name, lambda name: gl.Cluster(1, name=name), gl.Cluster.attach):
            with pytest.raises(ArgumentError, match="cannot be a cluster's name"):
                take(name)  # type: ignore[operator]
    with pytest.raises(ArgumentError, match="Take for example 'a_b'"):
        check_name("a-b")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty runtime folder, on a host with other users."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr(runtime_dirs, "other_people", lambda: "account alice")
    return tmp_path / "runtime"


def planted(home: Path, name: str) -> Path:
    """A cluster as another user would make one up: its controller is this process."""
    home.mkdir(parents=True, mode=0o700)
    state = {"name": name, "started": 1.0, "controller_pid": os.getpid(), "prelude": "raise SystemExit"}
    (home / runtime_dirs.STATE_FILE).write_text(json.dumps(state))
    return home


def test_what_others_can_change_is_not_believed(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_dirs, "_controller_runs", lambda state: True)
    root = runtime / "gcylon_lab"
    home = planted(root / "stolen-1", "stolen")
    root.chmod(0o700)
    assert runtime_dirs.find_running("stolen")[0] == home
    for folder, mode in [(home, 0o770), (home, 0o702), (root, 0o770), (root, 0o703), (runtime, 0o777)]:
        before = folder.stat().st_mode & 0o7777
        folder.chmod(mode)
        with pytest.raises(ClusterError, match=rf"{folder} belongs to user {os.getuid()} and has mode {mode:04o}"):
            gl.Cluster.attach("stolen")
        folder.chmod(before)
    with monkeypatch.context() as patch:
        patch.setattr(runtime_dirs.os, "geteuid", lambda: os.getuid() + 1)
        for act in (lambda: gl.Cluster.attach("stolen"), lambda: runtime_dirs.new_home("new"), runtime_dirs.sweep):
            with pytest.raises(ClusterError, match="JUPYTER_RUNTIME_DIR"):
                act()
    elsewhere = planted(tmp_path / "elsewhere", "linked")
    (root / "linked-1").symlink_to(elsewhere)
    with pytest.raises(ClusterError, match="is a symbolic link"):
        gl.Cluster.attach("linked")
    root.rename(tmp_path / "moved")
    root.symlink_to(tmp_path / "moved")
    for act in (lambda: gl.Cluster.attach("stolen"), lambda: runtime_dirs.new_home("new"), runtime_dirs.sweep):
        with pytest.raises(ClusterError, match="is a symbolic link"):
            act()
    root.unlink()
    # Who owns a folder above can put another into its place, and who owns a link can lead it elsewhere.
    (tmp_path / "moved").rename(root)
    if os.geteuid() == 0:
        for mode in (0o755, 0o1777):
            os.chown(tmp_path, 54321, -1)
            tmp_path.chmod(mode)
            with pytest.raises(ClusterError, match=rf"{tmp_path} belongs to user 54321"):
                gl.Cluster.attach("stolen")
        os.chown(tmp_path, 0, -1)
        tmp_path.chmod(0o700)
        link = tmp_path / "link"
        link.symlink_to(runtime)
        os.chown(link, 54321, -1, follow_symlinks=False)
        with monkeypatch.context() as patch:
            patch.setenv("JUPYTER_RUNTIME_DIR", str(link))
            with pytest.raises(ClusterError, match="is a symbolic link of user 54321"):
                gl.Cluster.attach("stolen")
    root.rename(tmp_path / "moved")
    # What another user could put there leads nowhere where there is none.
    (tmp_path / "moved").rename(root)
    runtime.chmod(0o777)
    monkeypatch.setattr(runtime_dirs, "other_people", lambda: "")
    assert runtime_dirs.find_running("stolen")[0] == home


def test_jupyters_own_folder_is_this_users_alone_where_a_cluster_is_before_jupyter(runtime: Path) -> None:
    """A server keeps a page with its token there, which every user could read."""
    before = os.umask(0o022)
    try:
        home = runtime_dirs.new_home("new")
    finally:
        os.umask(before)
    assert [folder.stat().st_mode & 0o777 for folder in (runtime, home.parent, home)] == [0o700] * 3


def abandoned(label: str) -> Path:
    home = runtime_dirs.new_home(label)
    (home / "lease.json").write_text(json.dumps({"host": this_system(), "pid": os.getpid(), "started": 0.1}))
    runtime_dirs.renew_shared_memory(home).joinpath("sm_segment").touch()
    runtime_dirs.renew_sockets(home)
    runtime_dirs.sockets(home).joinpath("controller:1").touch()
    return home


def test_a_name_in_shared_memory_that_another_user_has_taken_is_told(runtime: Path, tmp_path: Path) -> None:
    home = runtime_dirs.new_home("new")
    folder = runtime_dirs.renew_shared_memory(home)
    (folder / "session/rank").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path)
    assert runtime_dirs.renew_shared_memory(home) == folder and not list(folder.iterdir()) and tmp_path.is_dir()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(ClusterError, match=rf"{folder} is there already, of user {os.getuid()}"):
        runtime_dirs.renew_shared_memory(home)
    folder.unlink()


def test_two_starts_sweep_at_once(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process removes a folder at the worst moment: after it was listed, or after it was looked at."""
    made = [abandoned(f"gone-{i}") for i in range(4)]
    sockets = [runtime_dirs.sockets(home) for home in made]
    new = runtime_dirs.new_home("new")
    judge = runtime_dirs._is_abandoned

    def slowly(home: Path) -> bool:
        if home == made[0]:
            runtime_dirs.remove(home)
        verdict = judge(home)
        if home == made[1]:
            runtime_dirs.remove(home)
        return verdict

    monkeypatch.setattr(runtime_dirs, "_is_abandoned", slowly)
    runtime_dirs.sweep()
    assert list(runtime_dirs.root().iterdir()) == [new]
    assert not [home for home in made if runtime_dirs.shared_memory(home).exists()]
    assert not [folder for folder in sockets if folder.exists()]
    (runtime_dirs.root() / ".swept-1").mkdir()  # of a process that was killed meanwhile
    runtime_dirs.sweep()
    assert list(runtime_dirs.root().iterdir()) == [new]


APART = """
import os, sys, time
from pathlib import Path
from gcylon_lab.cluster.launch import runtime_dirs
from gcylon_lab.cluster.launch.lease import LEASE_FILE, Lease, this_system
home = runtime_dirs.new_home("apart-1")
Lease(home / LEASE_FILE).claim()
state = {"name": "apart", "started": 1.0, "controller_pid": os.getpid(), "system": this_system(), "grace_s": 10}
runtime_dirs.write_state(home, state)
print(home, flush=True)
sys.stdin.read()
"""


def test_a_cluster_of_another_container_is_left_alone(runtime: Path) -> None:
    """Its processes have numbers of their own, and it is taken for dead only where nobody was heard for a day."""
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this system allows no namespace of processes")
    pipe = subprocess.PIPE
    with subprocess.Popen([*unshare, sys.executable, "-c", APART], stdin=pipe, stdout=pipe, text=True) as owner:
        assert owner.stdout is not None
        home = Path(owner.stdout.readline().strip())
        for heard_s, left in ((80_000, True), (87_000, False)):
            at = time.time() - heard_s
            os.utime(home / "lease.json", (at, at))
            with pytest.raises(ClusterError, match="was started in another container" if left else "is no running"):
                gl.Cluster.attach("apart")
            runtime_dirs.sweep()
            assert home.exists() == left
