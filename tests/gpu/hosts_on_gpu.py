"""A program for one GPU or more: ranks that are told to be on two hosts, each pair of them by its own way.

    python tests/gpu/hosts_on_gpu.py            # about a minute

It starts four ranks, two of each host, and then one of each. NCCL is told the same, so that it goes over sockets from
one host to the other. Each world compares verbs with pandas by each way that there is, says how much went which way,
revokes in the middle, recovers, and times a shuffle. Prints lines of JSON, the last of them what was wrong.
"""

from __future__ import annotations

import gc
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

NAMES = ("host-a", "host-b")
ROWS_TIMED = int(os.environ.get("GCYLON_BENCH_ROWS", "6000000"))
ENVIRONMENT = {
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_DEBUG": "INFO",
    "NCCL_CUMEM_ENABLE": "0",
    "GCYLON_GPU_MEMORY_LIMIT": "6GiB", "GCYLON_HOST_MEMORY_LIMIT": "3GiB", "GCYLON_PINNED_AHEAD": "64MiB",
    "GCYLON_ENGINE": "gpu",
}  # fmt: skip
PEER_NCCL = "peer puts inside hosts and NCCL between them"
PEER_HOST = "peer puts inside hosts and host memory between them"
DTYPES_OF = ("k", "f", "position", "small", "yes", "when")


def host_of(rank: int, size: int) -> str:
    return NAMES[rank * len(NAMES) // size]


class Counted:
    """Bytes that each of the two has moved of device memory, and whether a pair of ranks went the wrong way."""

    def __init__(self, transport: Any, hosts: list[str]) -> None:
        self.sent = {"near": 0, "far": 0}
        self.wrong: list[str] = []
        for place, mover in (("near", transport.base), ("far", transport.base.base)):
            self._count(place, mover, transport.rank, hosts)

    def _count(self, place: str, mover: Any, rank: int, hosts: list[str]) -> None:
        original = mover.exchange

        def exchange(window: Any, sends: Any, receives: Any) -> None:
            for one in (*sends, *receives):
                if (hosts[one.rank] == hosts[rank]) is not (place == "near"):
                    self.wrong.append(f"rank {rank} and rank {one.rank} by the {place} one")
            self.sent[place] += sum(send.view.nbytes for send in sends)
            original(window, sends, receives)

        mover.exchange = exchange


def share(value: Any) -> list[Any]:
    from programs import share as share_by

    return share_by(value)


def verbs(context: Any) -> list[str]:
    """Verbs by each strategy beside pandas; what was wrong."""
    import exchanges_on_gpu as program

    import gcylon_lab as gl

    wrong: list[str] = []
    for shape in ("plain", "full", "one empty"):
        frame = program.frame_of(context.rank, 0 if shape == "one empty" and context.rank == 0 else 20_000)
        if shape == "plain":
            frame = frame[list(DTYPES_OF)]
        frames, table = share(frame), gl.from_local(frame)
        table.shuffle(table.columns).release()  # labels stay on the device, hashed
        context.budget.start_window()
        before = context.budget.used_bytes
        for verb in ("shuffle", "allgather", "gather", "repartition"):
            for strategy in program.STRATEGIES:
                context.workspace.config = gl.GcylonConfig(chunk_size_bytes=128 * 1024)
                text = ""
                try:
                    text = program.check(verb, strategy, table, frames, share)
                except Exception as error:
                    text = f"{type(error).__name__}: {error}"[:300]
                    if "Revoked" in text:
                        raise
                wrong += [f"{verb} {strategy} {shape}: rank {n}: {told}" for n, told in enumerate(share(text)) if told]
        context.workspace.config = gl.GcylonConfig()
        context.budget.start_window()
        left = context.budget.used_bytes - before
        wrong += [f"{shape}: {n} bytes are left on rank {r}" for r, n in enumerate(share(left)) if n > 0]
        table.release()
    return wrong


def sorts_and_joins(context: Any) -> list[str]:
    import numpy as np
    import pandas as pd

    import gcylon_lab as gl
    from gcylon_lab.backends.arrow.interop import to_frame

    def whole(table: Any) -> Any:
        mine = to_frame(context.workspace.backend.to_host(table._whole()))
        return pd.concat(share(mine), ignore_index=True)

    random = np.random.default_rng(context.rank)
    frame = pd.DataFrame({"k": random.integers(0, 3000, 30_000), "v": random.random(30_000)})
    rows, table = pd.concat(share(frame), ignore_index=True), gl.from_local(frame)
    wrong = []
    in_order = whole(table.sort_values("v"))
    if not np.array_equal(in_order["v"], np.sort(rows["v"])):
        wrong.append("sort_values: other rows")
    sums = whole(table.groupby("k").agg({"v": "sum"})).sort_values("k")
    if not np.allclose(sums.iloc[:, 1], rows.groupby("k")["v"].sum()):
        wrong.append("groupby: other sums")
    other = pd.DataFrame({"k": np.arange(context.rank, 3000, context.size)})
    other["w"] = 2 * other["k"]
    for strategy in ("direct", "staged"):
        joined = table.join(gl.from_local(other), on="k", strategy=strategy)
        found, said = whole(joined), joined.explain()
        if len(found) != len(rows) or not (found["w"] == 2 * found["k"]).all():
            wrong.append(f"join {strategy}: other rows")
        if "inside hosts" in context.transport.name and "inside hosts" not in said and "broadcast" not in said:
            wrong.append(f"join {strategy}: explained as {said!r}")
    return wrong


def revoked(context: Any) -> list[str]:
    """Rank 1 stays away from an exchange that the others are in, revokes it, and all recover."""
    import cupy

    from gcylon_lab.comm.transport import Receive, Send
    from gcylon_lab.errors import Revoked

    transport, ranks, seen = context.transport, range(context.size), ""
    made = [cupy.full(2_000_000, context.rank, dtype=cupy.uint8) for _ in ranks]
    room = [cupy.zeros(2_000_000, dtype=cupy.uint8) for _ in ranks]
    import numpy as np

    transport.agree(np.zeros(1, np.int64))
    began = time.monotonic()
    if context.rank == 1:
        time.sleep(0.5)
        threading.Thread(target=transport.revoke).start()
    try:
        if context.rank != 1:
            transport.exchange(None, [Send(r, made[r]) for r in ranks], [Receive(r, room[r]) for r in ranks])
        transport.finish(np.zeros(1, np.int64))
        seen = "nothing was raised"
    except Revoked:
        pass
    took = time.monotonic() - began
    context.recover()
    after = transport.agree(np.array([context.rank], dtype=np.int64))[:, 0].tolist()
    if took > 5:
        seen = f"left only after {took:.1f} s"
    if after != list(ranks):
        seen = f"after recovery {after}"
    kept = len(getattr(transport, "_kept", ()))
    return [
        f"revoke: rank {r}: {text}" for r, text in enumerate(share(seen or (f"{kept} kept" if kept else ""))) if text
    ]


def timed(context: Any, hosts: list[str]) -> dict[str, Any]:
    """Seconds of a shuffle, the best of three, and what it said of itself."""
    import numpy as np
    import pandas as pd

    import gcylon_lab as gl

    position = np.arange(ROWS_TIMED) + ROWS_TIMED * context.rank
    table = gl.from_local(
        pd.DataFrame({"k": position * 7919 % 100_003, "a": position / 8, "b": position / 4, "c": -position / 2})
    )
    times, said = [], ""
    for _ in range(4):
        context.transport.agree(np.zeros(1, np.int64))
        began = time.perf_counter()
        made = table.shuffle("k")
        times.append(max(share(time.perf_counter() - began)))
        said = made.explain().splitlines()[0]
        total = sum(share(int(made.num_rows)))
        made.release()
        assert total == ROWS_TIMED * context.size, total
    nbytes = table.nbytes
    table.release()
    between = sum(host != hosts[context.rank] for host in hosts) / len(hosts)
    return {
        "shuffle_s": round(min(times[1:]), 4),
        "MB_a_rank": nbytes // 10**6,
        "GB_s_a_rank": round(nbytes / min(times[1:]) / 1e9, 2),
        "GB_s_between_hosts_a_rank": round(between * nbytes / min(times[1:]) / 1e9, 2),
        "explained": said,
    }


def on_rank(folder: str) -> None:
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{what}"]) for what in ("RANK", "SIZE"))
    mine = host_of(rank, size)
    socket.gethostname = lambda: mine  # type: ignore[assignment]
    os.environ |= {"NCCL_HOSTID": mine, "NCCL_DEBUG_FILE": f"{folder}/nccl.{rank}.%p"}
    import gcylon_lab as gl
    from gcylon_lab.memory.nvml import visible_gpus

    hosts = [host_of(r, size) for r in range(size)]
    own_gpus = len(visible_gpus()) >= size // 2  # of the ranks of a host
    by_pair = (PEER_NCCL if own_gpus else PEER_HOST) if size > 2 else "NCCL"
    wanted = {"auto": by_pair, "peer+host": PEER_HOST if size > 2 else "host memory", "host": "host memory"}
    if own_gpus:
        wanted |= {"peer+nccl": PEER_NCCL if size > 2 else "NCCL", "nccl": "NCCL"}
    every: list[str] = []
    for route, name in wanted.items():
        os.environ["GCYLON_TRANSPORT"] = route
        began, wrong, counted, figures = time.perf_counter(), [], None, {}
        try:
            context = gl.initialize(sample_hz=0)
        except gl.errors.GcylonError as error:
            every.append(f"{size} ranks, {route}: does not start: {error}")
            if rank == 0:
                print(json.dumps({"ranks": size, "asked": route, "error": str(error)}), flush=True)
            continue
        started = time.perf_counter() - began
        said, transport = context.equipment.route, context.transport
        if not said.startswith(f"{name}, because "):
            wrong.append(f"takes {said!r}, not {name!r}")
        if "inside hosts" in transport.name:
            counted = Counted(transport, hosts)
        if route in ("auto", "peer+host"):
            wrong += verbs(context)
            wrong += sorts_and_joins(context)
            wrong += revoked(context)
            wrong += sorts_and_joins(context)
        figures = timed(context, hosts)
        if counted is not None:
            wrong += [text for told in share(counted.wrong[:3]) for text in told]
            near, far = (sum(share(counted.sent[place])) for place in ("near", "far"))
            figures |= {"near_MB": near // 10**6, "far_MB": far // 10**6}
            if not near or not far:
                wrong.append(f"near {near} and far {far} bytes")
            if "inside hosts" not in figures["explained"]:
                wrong.append(f"explained as {figures['explained']!r}")
        every += [f"{size} ranks, {route}: {text}" for text in wrong]
        if rank == 0:
            line = {"ranks": size, "asked": route, "route": said, "start_s": round(started, 1), **figures}
            line |= {"took_s": round(time.perf_counter() - began, 1), "wrong": wrong[:8]}
            print(json.dumps(line), flush=True)
        gc.collect()
        context.close()
    if rank == 0:
        print("WRONG " + json.dumps(every), flush=True)


def main() -> None:
    from gcylon_lab.cluster.launch.mpiexec import find_mpiexec

    here, mpi, wrong = Path(__file__).resolve(), find_mpiexec(), []
    path = os.pathsep.join([str(here.parents[2]), str(here.parent), str(here.parents[1]), str(here.parents[1] / "ops")])
    for size in (4, 2):
        with tempfile.TemporaryDirectory() as folder:
            command = [mpi.path, *mpi.arguments, "-n", str(size), sys.executable, str(here), folder]
            environment = os.environ | mpi.environment | ENVIRONMENT | {"PYTHONPATH": path}
            environment.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
            try:
                done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
                out, err = done.stdout, done.stderr
            except subprocess.TimeoutExpired as late:
                out, err = (
                    text.decode() if isinstance(text, bytes) else text or "" for text in (late.stdout, late.stderr)
                )
                wrong.append(f"{size} ranks did not end in 200 s")
            told = [line for line in out.splitlines() if line.startswith("{")]
            ends = [json.loads(line.removeprefix("WRONG ")) for line in out.splitlines() if line.startswith("WRONG ")]
            print("\n".join(told), flush=True)
            wrong += ends[0] if ends else [f"{size} ranks ended early: {out[-1500:]} {err[-3000:]}"]
            logs = "".join(file.read_text(errors="replace") for file in Path(folder).iterdir())
            ways = {way: len(re.findall(f"via {way}", logs)) for way in ("NET/Socket", "P2P", "SHM", "NET/IB")}
            print(json.dumps({"ranks": size, "NCCL's connections": ways}), flush=True)
            if not ends:
                print(logs[-1500:], flush=True)
    print(json.dumps({"wrong": wrong}), flush=True)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    on_rank(sys.argv[1]) if len(sys.argv) > 1 else main()
