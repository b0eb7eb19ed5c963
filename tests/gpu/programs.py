"""Programs that tests run on GPU ranks: how they are started, and how they tell what was wrong."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gcylon_lab.cluster.launch.mpiexec import find_mpiexec
from gcylon_lab.runtime.context import current

HERE = Path(__file__).parent


def right_on_gpus(program: str, ranks: int, route: str) -> None:
    """Run a program of this folder on some ranks, and see that it took GPUs and found nothing wrong."""
    mpi = find_mpiexec()
    command = [mpi.path, *mpi.arguments, "-n", str(ranks), sys.executable, str(HERE / program)]
    path = os.pathsep.join([str(HERE.parents[1]), str(HERE.parent / "ops"), str(HERE.parent)])
    environment = os.environ | mpi.environment | {"GCYLON_TRANSPORT": route, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]  # mpiexec may add lines of its own
    assert lines, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(lines[-1])
    assert found["kind"] == "gpu", found["reason"]
    assert found["wrong"] == [], "\n".join(found["wrong"])


def share(value: Any) -> list[Any]:
    """Collective: all ranks call it. Every rank's value."""
    return [pickle.loads(text) for text in current().transport.share(pickle.dumps(value))]


def failures(checks: Iterable[tuple[str, Callable[[], None]]], where: str = "") -> list[str]:
    """Collective: all ranks call it. What was wrong on any rank with checks, by their names."""
    wrong: list[str] = []
    for what, check in checks:
        text = ""
        try:
            check()
        except Exception as error:
            trace = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} [{trace.filename.split('/')[-1]}:{trace.lineno}]"[:600]
            if "Revoked" in text:
                raise
        wrong += [f"{what}{where}: rank {rank}: {told}" for rank, told in enumerate(share(text)) if told]
    return wrong


def tell(wrong: list[str], most: int = 60) -> None:
    """Print, on rank 0, what was wrong, as the tests read it."""
    context = current()
    if context.rank == 0:
        equipment = context.equipment
        found = {"kind": equipment.kind, "reason": equipment.reason, "route": equipment.route, "wrong": wrong[:most]}
        print(json.dumps(found | {"count": len(wrong)}))
