"""A real notebook kernel: ``%%px``, interrupts, progress, and a kernel restart in the middle."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from test_lifecycle import alive, home_of

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

START = """
import time
import pandas as pd
import gcylon_lab as gl
lab = gl.Cluster(2, name="kernel", grace_s=20)
lab.from_pandas(pd.DataFrame({"k": range(100)})).bind("kept")
print("ranks:", [record.pid for record in lab.ranks])
"""
STUCK = "import numpy, time; gl.current().rank and time.sleep(60); gl.current().transport.agree(numpy.zeros(1, int))"


class Notebook:
    """Runs cells in a kernel of its own."""

    def __init__(self) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel(cwd=os.getcwd(), env=os.environ | {"PYTHONPATH": os.getcwd()})
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(60)

    def run(
        self, code: str, *, interrupt_after_s: float | None = None, interrupt_at: str = "", timeout_s: float = 100
    ) -> dict[str, Any]:
        """Run a cell, perhaps interrupt it; returns its reply, and under "text" all that it showed."""
        ident = self.client.execute(code)
        if interrupt_after_s is not None:
            time.sleep(interrupt_after_s)
            self.manager.interrupt_kernel()
        shown: list[str] = []
        while True:
            message = self.client.get_iopub_msg(timeout=timeout_s)
            if message["parent_header"].get("msg_id") != ident:
                continue
            content = message["content"]
            if content.get("execution_state") == "idle":
                break
            shown.append(str(content.get("text") or content.get("data") or content.get("traceback") or ""))
            if interrupt_at and interrupt_at in shown[-1]:
                interrupt_at = ""
                self.manager.interrupt_kernel()
        while (reply := self.client.get_shell_msg(timeout=timeout_s))["parent_header"].get("msg_id") != ident:
            pass
        return reply["content"] | {"text": "".join(shown)}  # one print may come as several messages


@pytest.fixture
def notebook(runtime_dir: str) -> Iterator[Notebook]:
    notebook = Notebook()
    yield notebook
    notebook.client.stop_channels()
    notebook.manager.shutdown_kernel(now=True)


def test_a_notebook(notebook: Notebook, runtime_dir: str, left_alone: list[Path]) -> None:
    started = notebook.run(START)
    assert started["status"] == "ok", started["text"]
    pids = [int(pid) for pid in re.findall(r"\d+", started["text"].rpartition("ranks:")[2])]

    # A cell that fails on one rank frees the other, and is told once.
    failed = notebook.run("%%px\nif gl.current().rank == 1: 1 / 0\nkept.shuffle('k')")
    assert failed["status"] == "error"
    assert failed["text"].count("ZeroDivisionError") >= 1
    assert "left with Revoked" in failed["text"]
    assert "nobody would have joined" not in failed["text"], "the other was freed only for waiting in vain"
    assert notebook.run("%px rows = kept.shuffle('k').num_rows")["status"] == "ok"
    assert "100" in notebook.run("print(sum(lab.view['rows']))")["text"]

    # Interrupting the kernel frees the ranks, in a handle's call and in a cell; what takes long says how far it is.
    start = time.monotonic()
    cut = notebook.run("lab.run(time.sleep, 60)", interrupt_at="run: ")
    assert cut["ename"] == "KeyboardInterrupt"
    assert re.match(r"Interrupted: run stopped after \d+\.\d s; what it had done by then stays\.$", cut["evalue"])
    assert "recover" not in cut["text"] and "File" not in cut["text"] and cut["text"].count(cut["evalue"]) >= 2
    assert time.monotonic() - start < 30
    start = time.monotonic()
    cell = notebook.run(f"%px {STUCK}", interrupt_after_s=1.5)
    assert cell["status"] == "error", "a notebook that is run as a whole would go on"
    assert re.match(r"Interrupted: the cell stopped after \d+\.\d s; what it had done by then stays\.$", cell["evalue"])
    assert "100" in notebook.run("print(lab.table('kept').shuffle('k').num_rows)")["text"]
    assert time.monotonic() - start < 30

    # The kernel is restarted; the engines are not.
    notebook.client.stop_channels()
    notebook.manager.restart_kernel(now=False)
    notebook.client = notebook.manager.client()
    notebook.client.start_channels()
    notebook.client.wait_for_ready(60)
    back = notebook.run("import gcylon_lab as gl; lab = gl.Cluster.attach('kernel'); print(lab.table('kept').num_rows)")
    assert back["status"] == "ok", back["text"]
    assert "100" in back["text"]
    assert "100" in notebook.run("%px rows = kept.num_rows\nprint(sum(lab.view['rows']))")["text"]
    assert alive(pids) == pids

    # Without a kernel they end.
    left_alone.append(home_of(runtime_dir, "kernel"))
    notebook.manager.shutdown_kernel(now=False)
    assert alive(pids) == pids


TICKS = """
import asyncio, time
ticks = 0
async def tick():
    global ticks
    while True:
        await asyncio.sleep(0.02)
        ticks += 1
ticker = asyncio.ensure_future(tick())
await lab.run_async(time.sleep, 2.8)
ticker.cancel()
print("ticks:", ticks)
"""


def test_magics_and_awaits(notebook: Notebook) -> None:
    started = notebook.run("%load_ext gcylon_lab\n%lab up 2 gpu_memory_limit=64MiB")
    assert started["status"] == "ok" and "<b>Cluster default</b>" in started["text"], started["text"]
    notebook.run("import pandas as pd\nt = lab.from_pandas(pd.DataFrame({'k': range(1000)})).bind('t')")
    assert "gcylon-plan" in notebook.run("%lab_plan t.shuffle('k', strategy='staged')")["text"]
    profiled = notebook.run("%%lab_profile\n%%px\nu = t.shuffle('k', strategy='staged')\nu.num_rows")
    assert profiled["status"] == "ok", profiled["text"]
    assert "gcylon-numbers" in profiled["text"] and "1 operation took" in profiled["text"]
    await_in_it = notebook.run("%%lab_profile\nawait t.shuffle_async('k')")
    assert "cannot hold an await" in await_in_it["text"]

    notebook.run("%autopx")
    notebook.run("rows = t.num_rows")
    assert "%lab belongs to the notebook" in notebook.run("%lab status")["text"]
    notebook.run("%autopx")
    assert "[500, 500]" in notebook.run("print(lab.view['rows'])")["text"]

    # While a cell awaits the ranks the kernel's loop goes on; interrupting it frees them.
    awaited = notebook.run(TICKS)
    assert int(awaited["text"].rpartition("ticks: ")[2].split()[0]) >= 25, awaited["text"]
    assert re.search("run: [12]", awaited["text"]), "no progress in the cell that awaits"
    assert "run done in" in awaited["text"]
    start = time.monotonic()
    assert notebook.run("await lab.run_async(time.sleep, 60)", interrupt_after_s=1.5)["status"] == "error"
    assert "1000" in notebook.run("print(t.shuffle('k').num_rows)")["text"]
    assert time.monotonic() - start < 30
    assert "Closed lab" in notebook.run("%lab down")["text"]
