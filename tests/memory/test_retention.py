"""What is freed goes back to the system: in a process of its own, as allocators are set for all of one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gcylon_lab.memory.budget import KEEPING_FREED, MemoryBudget, kept_bytes

MIB = 2**20

# Strings of pieces are made, encoded and freed many times, as operations do it.
_GROWTH = """
import sys
import numpy as np, pyarrow as pa, pyarrow.compute as pc
import gcylon_lab as gl
from gcylon_lab.bench.harness.checks import high_water_bytes, reset_high_water

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def work():
    for i in range(20):
        rows = 2 ** (10 + i % 8)
        numbers = np.arange(rows * 8) % (7 + i)
        words = pa.array(numbers[:rows]).cast(pa.string())
        pc.sort_indices(words.dictionary_encode().dictionary)
        np.add.accumulate(numbers)

context = gl.initialize(gl.GcylonConfig(gpu_memory_limit=2**31), engine="cpu", sample_hz=0)
with context.budget.limited(int(sys.argv[1])):
    work()
    reset_high_water()
    before = resident()
    large = [np.ones(2**17 + 64 * i) for i in range(24)]
    strings = [pa.array(np.arange(2**18)).cast(pa.string()) for _ in range(8)]
    held = resident()
    del large, strings
    print(resident() - before, held - before, pa.default_memory_pool().backend_name)
"""

# A table of strings that Arrow's own allocator has made is evicted under a small limit, or freed and trimmed.
_EVICTED = """
import sys
import pandas as pd, pyarrow as pa
import gcylon_lab as gl
from gcylon_lab.memory.budget import release_freed

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

context = gl.initialize(gl.GcylonConfig(gpu_memory_limit=2**31), engine="cpu", sample_hz=0)
table = gl.from_local(pd.DataFrame({"s": pd.Series(["x" * 1000] * 64_000, dtype="str")}))
workspace, part, before = context.workspace, table._live(), resident()
with context.budget.limited(2**23):
    if sys.argv[1] == "evicted":
        part.stage(workspace, part.nbytes, 2**20)
    else:
        table.release()
        release_freed()
    print(before - resident(), pa.default_memory_pool().backend_name)
"""

# Arrays below glibc's threshold, as those of a table of many columns are, with others between them.
_SMALL = """
import sys
import numpy as np
import gcylon_lab as gl
from gcylon_lab.memory.budget import HeapWatch, kept_bytes, release_evicted

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

context = gl.initialize(gl.GcylonConfig(gpu_memory_limit=2**31), engine="cpu", sample_hz=0)
pairs = [(np.ones(2**15), np.ones(2**9)) for _ in range(256)]
between = [pair[1] for pair in pairs]
before = resident()
del pairs
kept = before - resident()
release_evicted(kept_bytes(2**23), 2**23)
little = before - resident()
if sys.argv[1] == "evicted":
    release_evicted(2**26, 2**23)
else:  # a claim of all of it was given back, and the process is as large as before
    watch = HeapWatch()
    watch._before = before - 2**26
    watch.freed = 2**26
    watch.look(0, 2**23)
print(kept, little, before - resident())
"""


# What Arrow's own allocator keeps of freed memory is told to keep none back.
_KEPT = """
import numpy as np, pyarrow as pa
from gcylon_lab.memory.budget import HeapWatch

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

numbers = pa.array(np.arange(2**23))
watch = HeapWatch()
watch.start(0)
made = [numbers.cast(pa.float64()) for _ in range(8)]
held = resident()
del made
kept = resident()
watch.freed = 2**29
watch.look(0, 2**31)
print(held, kept, resident(), pa.default_memory_pool().backend_name)
"""


def test_what_arrow_keeps_goes_back_where_a_process_has_grown_by_a_part_of_its_limit(monkeypatch):
    for name, value in KEEPING_FREED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    done = subprocess.run([sys.executable, "-c", _KEPT], capture_output=True, text=True, check=True)
    held, kept, left, pool = done.stdout.split()
    assert pool == "mimalloc" and int(kept) > int(held) - 64 * MIB and int(left) < int(kept) - 384 * MIB


@pytest.mark.parametrize("how", ["evicted", "freed"])
def test_small_arrays_go_back_where_they_are_much_together(how):
    done = subprocess.run([sys.executable, "-c", _SMALL, how], capture_output=True, text=True, check=True)
    kept, little, trimmed = map(int, done.stdout.split())
    # At times glibc has mapped each of them by itself, and gives all back at once: then nothing is left to be done.
    assert trimmed > 48_000_000 and (max(kept, little) < 2**24 or kept > 48_000_000)


@pytest.mark.parametrize("how", ["evicted", "trimmed"])
def test_memory_of_another_pool_than_the_chosen_one_goes_back(how, monkeypatch):
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    done = subprocess.run([sys.executable, "-c", _EVICTED, how], capture_output=True, text=True, check=True)
    given_back, pool = done.stdout.split()
    assert pool == "system" and int(given_back) > 48_000_000


def _run(limit_bytes, monkeypatch, pool=""):
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", pool)
    done = subprocess.run([sys.executable, "-c", _GROWTH, str(limit_bytes)], capture_output=True, text=True, check=True)
    kept, held, name = done.stdout.split()
    return int(kept), int(held), name


def test_freed_memory_goes_back(monkeypatch):
    runs = [_run(8 * MIB, monkeypatch) for _ in range(3)]  # what else a process does at that moment only adds to it
    assert all(pool == "system" and held > 24 * MIB for _, held, pool in runs)
    # Of 24 MiB or more 0.7 MiB stay, or 5: with the top of the heap what happens to be above it.
    assert min(kept for kept, _, _ in runs) <= 6 * MIB


def test_a_pool_that_the_environment_names_is_used(monkeypatch):
    assert _run(8 * MIB, monkeypatch, "mimalloc")[2] == "mimalloc"


def test_beside_an_ample_limit_arrow_has_its_own_pool(monkeypatch):
    assert _run(2**30, monkeypatch)[2] == _run(2**30, monkeypatch, "mimalloc")[2]


@pytest.mark.parametrize(
    ("limit", "kept"), [(1, MIB), (16 * MIB, MIB), (64 * MIB, 4 * MIB), (512 * MIB, 32 * MIB), (2**40, 32 * MIB)]
)
def test_what_may_be_kept_is_a_small_part_of_the_limit(limit, kept):
    assert kept_bytes(limit) == kept


def test_each_limit_is_told():
    told: list[int] = []
    budget = MemoryBudget(1000, told.append)
    with budget.limited(300), budget.limited(200):
        assert told == [300, 200]
