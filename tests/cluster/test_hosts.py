"""Ranks on two hosts: started over ssh, at work, killed, cut off, started again, and nothing left."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import zmq
from hosts import HERE, NAMES, Hosts, why_not
from notebook import Apart, Notebook

import gcylon_lab as gl
from gcylon_lab.cluster.launch.far_host import FarHost, versions
from gcylon_lab.cluster.launch.hosts import LOST_S, Host, check_slots, read_hosts
from gcylon_lab.cluster.processes import is_running, wait_until
from gcylon_lab.errors import ArgumentError, ClusterDegraded, ClusterStartError, GcylonError, RankLost
from gcylon_lab.runtime.registry import clusters

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

LONG = pytest.mark.usefixtures("all_hosts")
WITHIN_S = 10.0  # a rank or a host that is lost is told


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    try:
        both = Hosts(tmp_path_factory.mktemp("hosts"))
    except BlockingIOError:
        pytest.skip("another run of the tests has the two hosts of this machine")
    yield both
    both.down()


@pytest.fixture(scope="module")
def notebooks(hosts: Hosts, runtime_dir: str) -> Iterator[Callable[[], Notebook]]:
    """Makes kernels of notebooks, on a host of their own as far as processes are concerned."""
    apart = Apart()
    environment = {"PRTE_MCA_plm_ssh_agent": str(hosts.ssh), "JUPYTER_RUNTIME_DIR": runtime_dir}

    def make(*, bare: bool = False) -> Notebook:
        login = {name: os.environ[name] for name in ("HOME", "PATH", "USER") if name in os.environ} | environment
        emptied = ["env", "-i", "-C", "/", *(f"{name}={value}" for name, value in login.items())]
        return Notebook(environment, [*apart.enter, *(emptied if bare else [])])

    yield make
    apart.end()


@pytest.fixture(scope="module")
def notebook(notebooks: Callable[[], Notebook]) -> Iterator[Notebook]:
    with notebooks() as process:
        process(start)
        yield process
        process(close)


def left(hosts: Hosts) -> str:
    """What a cluster has left on the hosts: processes, files, and ports that are listened at."""
    look = "ps ax -o args | grep '[g]cylon_lab[.]\\|[p]rted'; ls /dev/shm; ls /tmp | grep -v pytest; "
    look += "ss -Htl | grep -v :2222"
    return "".join(hosts.run(name, look) for name in NAMES).strip()


def lose_after(notebook: Notebook, hurt: Callable[[], object], what: str = "sleep") -> tuple[str, str]:
    """Hurt something while the ranks are at work; what is said within 10 s, and to who asks later."""
    at: list[float] = []

    def strike() -> None:
        hurt()
        at.append(time.time())

    notebook(make_rows)
    striking = threading.Timer(1.0, strike)
    striking.start()
    try:
        told_at, first, later = notebook(lose, what)
    finally:
        striking.join()
    print(f"told after {told_at - at[0]:.1f} s: {first}")
    assert told_at - at[0] < WITHIN_S
    return first, later


# --- at work ---


@pytest.mark.parametrize("strategy", ["direct", "chunked", "staged"])
def test_verbs_give_the_same_rows_as_on_one_host(notebook: Notebook, strategy: str) -> None:
    notebook(verbs, strategy)


def test_px_and_the_cards_name_the_hosts(notebook: Notebook) -> None:
    by_host = [name for name in NAMES for _ in range(2)]
    assert notebook(ranks_by_host) == notebook(px) == by_host
    snapshots, card, memory = notebook(seen)
    assert snapshots == memory == by_host
    assert "4 ranks on 2 hosts" in card and all(f">{name}<" in card for name in NAMES)
    assert "messages go over TCP, encrypted because ranks are on other hosts" in card
    assert "rows travel by MPI, by shared memory inside hosts and TCP between them" in card


def test_an_error_of_a_far_rank_names_it(notebook: Notebook) -> None:
    assert notebook(fails_on, 3) == "[rank 3] ValueError: no"


def test_the_controller_listens_where_the_hosts_reach_it_and_nowhere_else(notebook: Notebook) -> None:
    assert notebook(listens) == [HERE]


def test_rows_go_by_a_port_of_their_own_whose_key_must_be_known(notebook: Notebook) -> None:
    assert notebook(stranger_at_rows) == (HERE, False, True)


def test_keys_are_in_no_command_and_in_files_of_this_user_alone(notebook: Notebook, hosts: Hosts) -> None:
    keys = notebook(read_keys)
    for name in NAMES:
        assert hosts.run(name, "stat -c %a /dev/shm/gcylon_lab-*/connection.json /dev/shm/gcylon_lab-*") == "600\n700\n"
        variables = "cat $(pgrep prted | sed 's,.*,/proc/&/environ,')"
        told = hosts.run(name, f"cat /proc/*/cmdline | tr '\\0' ' '; {variables}")
        assert "engine_process" in told and "prted" in told
        assert not [key for key in keys if key in told]
    assert not [key for key in keys if key in " ".join(notebook(own_processes))]


# --- life and death ---


def test_a_far_rank_that_is_killed_is_named_with_its_host_and_how_it_ended(notebook: Notebook, hosts: Hosts) -> None:
    pid = notebook(pid_of, 3)
    first, later = lose_after(notebook, lambda: hosts.run(NAMES[1], f"kill -9 {pid}"))
    assert f"The process of rank 3 (host gnode2, pid {pid}) is gone: signal Killed." in first
    assert f"rank 3 (host gnode2, pid {pid}) is gone" in later and "restart()" in later
    assert notebook(restart) == ["gnode1", "gnode1", "gnode2", "gnode2"]


@LONG
@pytest.mark.parametrize("what", ["sleep", "shuffle", "sort"])
def test_a_host_that_is_cut_off_is_told_and_what_is_left_goes_on(notebook: Notebook, hosts: Hosts, what: str) -> None:
    try:
        first, later = lose_after(notebook, lambda: hosts.cut(NAMES[1]), what)
        assert "Ranks 2-3 (host gnode2) are lost with their host: it has not answered for" in first
        assert "gnode2" in later and "restart()" in later
        if what == "sleep":
            refused = notebook(refused_restart)
            assert "1 cannot be reached: gnode2:" in refused and "restart(n=2) works" in refused
            assert notebook(restart, 2) == ["gnode1", "gnode1"]
    finally:
        hosts.mend(NAMES[1])
    assert notebook(restart, 4) == ["gnode1", "gnode1", "gnode2", "gnode2"]
    assert hosts.run(NAMES[1], "pgrep -c prted") == "1\n"  # none is left of the ranks before


@LONG
def test_a_new_kernel_takes_over_ranks_on_other_hosts(notebooks: Callable[[], Notebook]) -> None:
    with notebooks() as first:
        first(start, 30, "taken_over")
        pids = first(bind_rows, "taken_over")
        first.kill()
    with notebooks() as second:
        assert second(attach, "taken_over") == pids
        second(close, "taken_over")


@LONG
def test_another_login_shell_takes_over(notebooks: Callable[..., Notebook]) -> None:
    """With nothing of the environment in which the cluster was started."""
    with notebooks() as first:
        first(start, 30, "of_a_shell")
        pids = first(bind_rows, "of_a_shell")
        first.kill()
    with notebooks(bare=True) as second:
        assert second(attach, "of_a_shell") == pids
        assert second(restart_there, "of_a_shell") == 4
        second(close, "of_a_shell")


@LONG
def test_nothing_outlives_its_lease(notebook: Notebook, notebooks: Callable[[], Notebook], hosts: Hosts) -> None:
    notebook(close)
    assert left(hosts) == "" and notebook(own_processes) == []
    with notebooks() as first:
        first(start, 2, "abandoned")
        assert left(hosts).count("engine_process") == 8  # a nanny has the command of its engine
        first.kill()
    assert wait_until(lambda: not left(hosts) and not notebook(own_processes), 30, 1.0), left(hosts)


def test_a_host_waits_for_a_notebook_that_says_nothing_longer_than_for_one_that_is_gone() -> None:
    far, now = FarHost(), time.monotonic()
    far._heard_at = now - 299
    assert not far._is_over()
    far._heard_at = now - 301
    assert far._is_over()
    gone = FarHost()
    gone._grace_s, gone._connected, gone._heard_at = 20, False, now - 19
    assert not gone._is_over()
    gone._heard_at = now - 21
    assert gone._is_over()


# --- beside one host, and beside MPI alone ---


@LONG
def test_two_hosts_start_and_answer_about_as_soon_as_one(notebook: Notebook) -> None:
    notebook(close)
    starts, requests, verbs = notebook(beside_one_host, ["gnode1:1", "gnode2:1"])
    print(f"on one host and on two: starts {starts} s; requests {requests} ms; verbs {verbs} ms")
    assert starts[1] - starts[0] < 3.0
    assert min(two - one for one, two in requests) < 2.0  # a machine that has much else to do may miss it twice


@LONG
def test_rows_cross_a_network_nearly_as_fast_as_by_mpi_alone(notebook: Notebook, hosts: Hosts) -> None:
    """On a network slower than memory: on one as fast, hashing rows on two cores takes longer than moving them."""
    notebook(close)
    notebook(start)
    notebook(beside_alltoallv, 1_000_000)
    hosts.limit("1gbit")
    try:
        for _ in range(3):  # a machine that has much else to do may miss it once
            whole, bare, nbytes = notebook(beside_alltoallv, 1_000_000)
            print(f"shuffle {whole:.3f} s, alltoallv of its {nbytes / 1e6:.0f} MB {bare:.3f} s")
            if bare / whole > 0.8:
                break
    finally:
        hosts.limit("")
    assert bare / whole > 0.8
    notebook(close)


# --- asked for wrongly ---


@LONG
def test_this_host_can_be_among_them(notebook: Notebook, notebooks: Callable[[], Notebook]) -> None:
    notebook(close)
    with notebooks() as process:
        process(start, 20, "here_too", ["localhost:1", "gnode2:1"])
        assert process(ranks_by_host, "here_too") == [socket.gethostname(), "gnode2"]
        process(verbs, "auto", "here_too")
        process(close, "here_too")
        assert process(own_processes) == []


def test_a_host_that_cannot_be_reached_is_named(notebook: Notebook) -> None:
    before = notebook(own_processes)
    said = notebook(refused_start, ["gnode1:1", "gnode3:1"])
    assert "Of the hosts, 1 cannot be reached: gnode3:" in said and "gnode3 hostname` in a terminal" in said
    assert sorted(notebook(own_processes)) == sorted(before)


def test_hosts_are_read_from_lists_and_files(tmp_path: Path) -> None:
    both = (Host("node1", 2), Host("node2", 1))
    assert read_hosts(["node1:2", "node2"]) == both
    file = tmp_path / "hosts.txt"
    file.write_text("# mine\nnode1 slots=2  # of two\n\nnode2\n")
    assert read_hosts(file) == read_hosts(str(file)) == both
    for wrong, said in {
        ("-oProxyCommand=x:1",): "is invalid as a host", ("a:0",): "is invalid as a host", (): "names no host",
        ("a:1", "a:2"): "names a twice",
    }.items():  # fmt: skip
        with pytest.raises(ArgumentError, match=said):
            read_hosts(wrong)
    with pytest.raises(ArgumentError, match=r"n=4 is more than the 3 ranks that the hosts take \(node1:2, node2:1\)"):
        check_slots(4, both)
    with pytest.raises(ArgumentError, match="security='signed' is for one host"):
        gl.Cluster(hosts=["node1:2"], security="signed")


# --- examined ---


@LONG
def test_the_doctor_examines_hosts(notebook: Notebook, hosts: Hosts) -> None:
    found = notebook(examine, "gnode1,gnode2,localhost")
    same = "is reached, calls itself {}, and has the same versions as this host"
    assert found["gnode1"] == ["ok", same.format("gnode1")] and found["localhost"] == ["ok", "is this host"]
    assert found["network"] == ["ok", f"all reach each other and this host ({HERE}), in 10.77.7.0/24"]
    hosts.run("gnode1", "ip route add blackhole 10.77.7.2")
    try:
        status, said = notebook(examine, "gnode1,gnode2")["network"]
    finally:
        hosts.run("gnode1", "ip route del blackhole 10.77.7.2")
    assert status == "fail" and "gnode1 cannot reach gnode2 at 10.77.7.2:" in said and "gnode2 cannot" in said


@LONG
def test_the_doctor_tells_versions_that_differ_and_staging_in_memory(notebook: Notebook) -> None:
    found = notebook(examine, "gnode1,gnode3", "numpy")
    assert (
        found["gnode1"][0] == "fail"
        and found["gnode1"][1].startswith("has numpy ")
        and "(here 0)" in found["gnode1"][1]
    )
    assert found["gnode3"][0] == "fail" and found["gnode3"][1].startswith("cannot be reached: ssh: ")


# --- in the notebook ---


def examine(hosts: str, package: str = "") -> dict[str, list[str]]:
    """What the doctor first says of each, where this host has version 0 of a package."""
    from gcylon_lab.cli import doctor_hosts

    mine = versions() | ({package: "0"} if package else {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor_hosts, "versions", lambda: mine)
        findings = doctor_hosts.examine_hosts(hosts)
    if package:  # /tmp of these hosts is in memory
        assert any(finding.status == "warn" and "disk tier in /tmp (tmpfs)" in finding.value for finding in findings)
    return {finding.topic: [finding.status, finding.value] for finding in reversed(findings)}


def lab(name: str = "over_hosts") -> gl.Cluster:
    return clusters[name]


def start(grace_s: float = 20, name: str = "over_hosts", hosts: Sequence[str] = ("gnode1:2", "gnode2:2")) -> None:
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    gl.Cluster(hosts=list(hosts), name=name, grace_s=grace_s, progress=False, env=env)


def beside_one_host(hosts: Sequence[str]) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """Seconds of starts on this host and on others, in turn; after each start milliseconds of requests, and of verbs.

    Of starts the medians; of the others the lower quartiles, as other programs of the machine make single ones longer.
    """
    starts: list[list[float]] = [[], []]
    requests: list[list[float]] = []
    verbs: list[list[float]] = []
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(3):
        labs = []
        for place, where in enumerate(({"n": 2}, {"hosts": list(hosts)})):
            began = time.perf_counter()
            labs.append(gl.Cluster(**where, name=f"beside_{place}", progress=False, env=env))  # type: ignore[arg-type]
            starts[place].append(time.perf_counter() - began)
        tables = [one.from_pandas(frame(4)) for one in labs]
        asked = [partial(one.run, int) for one in labs]
        done = [lambda table=table: table.repartition().release() for table in tables]
        for times, calls in ((requests, asked), (verbs, done)):
            took = np.zeros((40, 2))
            for turn, place in product(range(40), (0, 1)):
                place = (place + turn) % 2
                time.sleep(0.02)  # what the one before has left to do would be counted here
                began = time.perf_counter()
                calls[place]()
                took[turn, place] = 1e3 * (time.perf_counter() - began)
            times.append(np.quantile(took, 0.25, axis=0).round(1).tolist())
        for one in labs:
            one.close()
    return [float(np.median(each)) for each in starts], requests, verbs


def beside_alltoallv(rows: int) -> tuple[float, float, int]:
    """Median seconds of a shuffle, and of MPI's own exchange of the same bytes, in turn; and these bytes."""
    lab().run(make_part, rows)
    whole, bare, nbytes = [], [], 0
    for _ in range(10):
        whole.append(max(lab().run(time_shuffle)))
        alone = lab().run(time_alltoallv)
        bare.append(max(seconds for seconds, _ in alone))
        nbytes = sum(sent for _, sent in alone)
    # The first ones make connections.
    return float(np.median(whole[1:])), float(np.median(bare[1:])), nbytes


def close(name: str = "over_hosts") -> None:
    if name in clusters:
        lab(name).close()


def refused_start(hosts: Sequence[str]) -> str:
    with pytest.raises(ClusterStartError) as raised:
        start(20, "refused", hosts)
    return str(raised.value)


def bind_rows(name: str) -> list[int]:
    lab(name).from_pandas(frame(100)).bind("kept")
    return [record.pid for record in lab(name).ranks]


def attach(name: str) -> list[int]:
    gl.Cluster.attach(name)
    assert lab(name).table("kept").to_pandas(limit=None).equals(frame(100))
    time.sleep(LOST_S + 2)  # the hosts hear this process now
    assert lab(name).run(abs, -1) == [1] * 4
    return [record.pid for record in lab(name).ranks]


def restart_there(name: str) -> int:
    lab(name).restart()
    return len(lab(name).run(os.getpid))


def ranks_by_host(name: str = "over_hosts") -> list[str]:
    return [record.host for record in lab(name).ranks]


def frame(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    values = {"k": rng.integers(0, 500, rows), "v": rng.random(rows)}
    return pd.DataFrame(values | {"s": [f"row {i}" for i in range(rows)]})


def verbs(strategy: str, name: str = "over_hosts") -> None:
    rows = frame(20_000)
    table = lab(name).from_pandas(rows)
    assert table.to_pandas(limit=None).equals(rows)
    back = table.shuffle("k", strategy=strategy).to_pandas(limit=None)
    by = ["k", "s"]
    assert back.sort_values(by, ignore_index=True).equals(rows.sort_values(by, ignore_index=True))
    in_order = table.sort_values("v", strategy=strategy).to_pandas(limit=None)
    assert in_order.equals(rows.sort_values("v", ignore_index=True))
    other = lab(name).from_pandas(pd.DataFrame({"k": np.arange(500), "w": np.arange(500) * 2}))
    joined = table.join(other, on="k", strategy=strategy).to_pandas(limit=None)
    assert len(joined) == len(rows) and (joined["w"] == 2 * joined["k"]).all()
    sums = table.groupby("k").agg({"v": "sum"}, strategy=strategy).to_pandas(limit=None)
    assert np.allclose(sums.sort_values("k").iloc[:, 1], rows.groupby("k")["v"].sum())


def px() -> list[Any]:
    from IPython import get_ipython

    shell = get_ipython()
    assert shell.run_cell("%px import socket; said = socket.gethostname()").success
    return lab().view["said"]


def seen() -> tuple[Any, ...]:
    snapshots = lab().snapshots()
    return [snapshot["host"] for snapshot in snapshots], lab()._repr_html_(), sorted(lab().memory_info()["host"])


def fails_on(rank: int) -> str:
    def fail(who: int) -> None:
        if gl.current().rank == who:
            raise ValueError("no")

    try:
        lab().run(fail, rank)
    except GcylonError as error:
        return str(error)
    return ""


def make_rows() -> None:
    lab().from_pandas(frame(200_000)).bind("rows")


def lose(what: str) -> tuple[float, str, str]:
    """Let the ranks work until one is lost: when that was told, and what was said then and later."""
    table = lab().table("rows")
    low = gl.GcylonConfig(chunk_size_bytes=1 << 20)
    work = {
        "sleep": lambda: lab().run(time.sleep, 60),
        "shuffle": lambda: table.shuffle("k").release(),
        "sort": lambda: table.sort_values("v", strategy="staged", config=low).release(),
    }[what]
    try:
        while True:
            work()
    except (RankLost, ClusterDegraded) as error:
        at, first = time.time(), str(error)
    with pytest.raises(ClusterDegraded) as raised:
        lab().run(os.getpid)
    return at, first, str(raised.value)


def pid_of(rank: int) -> int:
    return lab().ranks[rank].pid


def restart(n: int | None = None) -> list[str]:
    lab().restart(n)
    verbs("auto")
    return ranks_by_host()


def refused_restart() -> str:
    with pytest.raises(ClusterStartError) as raised:
        lab().restart()
    return str(raised.value)


def own_processes() -> list[str]:
    """What runs here of a cluster."""
    others = [process for process in psutil.process_iter() if process.pid != os.getpid() and is_running(process)]
    return [text for process in others if "gcylon_lab" in (text := " ".join(process.cmdline()))]


def listens() -> list[str]:
    controllers = [process for process in psutil.process_iter() if "controller" in " ".join(process.cmdline())]
    listening = [c for process in controllers for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return sorted({c.laddr.ip for c in listening})


def read_keys() -> list[str]:
    home = lab()._session.launcher.home
    told = json.loads(next(home.glob("security/ipcontroller-*-client.json")).read_text())
    keys = [value for name, value in told.items() if "key" in name and value]
    assert len(keys) > 1
    return keys


def stranger_at_rows() -> tuple[str, bool, bool]:
    """Where rows are sent, and whether that hears one who does not know the key, and one who does."""
    heard = []
    with lab()._session.row_end() as end:
        right = zmq.curve_keypair()[0], end.address.key
        for key in right:
            with zmq.Context.instance().socket(zmq.DEALER) as caller:
                caller.linger, caller.identity = 0, b"0"
                caller.curve_publickey, caller.curve_secretkey = zmq.curve_keypair()
                caller.curve_serverkey = key
                caller.connect(end.address.name)
                caller.send(b"hello")
                heard.append(bool(list(end.came(1.0))))
        with zmq.Context.instance().socket(zmq.DEALER) as caller:
            caller.linger = 0
            caller.connect(end.address.name)
            caller.send(b"hello")
            assert not list(end.came(1.0))
    return end.address.name.split(":")[1].strip("/"), *heard


# --- on the ranks ---


def make_part(rows: int) -> None:
    rng = np.random.default_rng(gl.current().rank)
    columns = {"k": rng.integers(0, 1 << 40, rows), "a": rng.random(rows), "b": rng.random(rows), "c": rng.random(rows)}
    gl.current().part = gl.from_local(pd.DataFrame(columns))  # type: ignore[attr-defined]


def time_shuffle() -> float:
    """Seconds it took."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    began = time.perf_counter()
    gl.current().part.shuffle("k").release()  # type: ignore[attr-defined]
    return time.perf_counter() - began


def time_alltoallv() -> tuple[float, int]:
    """Move as many bytes to each rank as the latest shuffle did."""
    from mpi4py import MPI

    comm, record = MPI.COMM_WORLD, gl.current().recorder.operations[-1]
    sent = np.asarray(record.sent_to, dtype=np.int64)
    came = np.empty_like(sent)
    comm.Alltoall(sent, came)
    source, target = np.ones(int(sent.sum()), np.uint8), np.ones(int(came.sum()), np.uint8)
    places = [np.concatenate(([0], np.cumsum(each)[:-1])) for each in (sent, came)]
    comm.Barrier()
    began = time.perf_counter()
    comm.Alltoallv([source, sent, places[0], MPI.BYTE], [target, came, places[1], MPI.BYTE])
    return time.perf_counter() - began, int(sent.sum())
