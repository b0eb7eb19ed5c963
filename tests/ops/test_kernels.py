"""Kernels of one's own: the answers of pandas and plain Python, with numba and without, and the cache on disk."""

from __future__ import annotations

import doctest
import json
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import kernels
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import KERNELS, NUMBA, WAYS, assert_answers, expected, way
from relations import FEW
from worlds import World

import gcylon_lab as gl
from gcylon_lab.backends.kernels import cache, compiled, source
from gcylon_lab.cli.main import main
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, RanksDisagree
from gcylon_lab.runtime.context import Context

WORLDS = [World("single", 1), *FEW[:1], World("threads", 3), *FEW[1:]]
needs_numba = pytest.mark.skipif(not NUMBA, reason="numba is not installed")


# ---- the answers

_WHOLE = st.one_of(st.integers(-9, 9), st.integers(-(10**9), 10**9))
_FLOATS = st.one_of(st.sampled_from([0.0, -0.0, math.nan, math.inf, 3.0, 0.1]), st.floats(-1e6, 1e6))
VALUES = {
    "bool": st.booleans(), "int8": st.integers(-128, 127), "int64": _WHOLE, "uint32": st.integers(0, 2**32 - 1),
    "float32": st.floats(width=32, min_value=-100, max_value=100), "float64": _FLOATS, "Int32": st.integers(-99, 99),
    "Float64": st.floats(-9, 9), "boolean": st.booleans(), "int64[pyarrow]": _WHOLE, "double[pyarrow]": _FLOATS,
    "bool[pyarrow]": st.booleans(), "datetime64[ms]": st.integers(0, 10**12), "timedelta64[ns]": _WHOLE,
    "datetime64[us, Europe/Berlin]": st.integers(0, 10**12), "timestamp[ms][pyarrow]": st.integers(0, 10**12),
}  # fmt: skip
NEVER_MISSING = ("bool", "int8", "int64", "uint32", "float32", "float64")
NAT = np.iinfo(np.int64).min
# Numba compiles each pair anew, which takes most of a second: with it these pairs, without it any.
PAIRS = [("float64", "Int32"), ("int64[pyarrow]", "boolean")]

ANY_PAIR = st.tuples(st.sampled_from(sorted(VALUES)), st.sampled_from(sorted(VALUES)))
ANY_KERNEL = st.sampled_from(sorted(KERNELS))


@st.composite
def columns(draw: Any, pairs: st.SearchStrategy[tuple[str, str]]) -> list[pd.Series]:
    dtypes, rows = draw(pairs), draw(st.integers(0, 12))
    made = []
    for dtype in dtypes:
        value = VALUES[dtype] if dtype in NEVER_MISSING else st.one_of(st.none(), VALUES[dtype])
        made.append(column(dtype, draw(st.lists(value, min_size=rows, max_size=rows))))
    return made


def column(dtype: str, values: list[Any]) -> pd.Series:
    if dtype.startswith(("datetime", "timedelta")):
        unit = dtype.partition("[")[2][:2]
        counts = np.array([NAT if value is None else value for value in values], dtype="int64")
        made = pd.Series(counts.view(f"{'m' if dtype[0] == 't' else 'M'}8[{unit}]"))
        return made.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin") if "Berlin" in dtype else made
    if dtype.endswith("[pyarrow]"):
        types = {"int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_(), "timestamp[ms]": pa.timestamp("ms")}
        return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values, types[dtype.removesuffix("[pyarrow]")])))
    return pd.Series(values, dtype=dtype)


def check_answers(some: list[pd.Series], name: str, *, numba: bool) -> None:
    kernel = KERNELS[name]
    with way(numba):
        made = kernel(*some)
        assert made.dtype == kernel(*(one.iloc[:0] for one in some)).dtype, "the same where a rank has no rows"
    assert_answers(made, expected(name, *some))


@settings(max_examples=200)
@given(
    columns(st.tuples(st.sampled_from(sorted(VALUES)), st.sampled_from(sorted(VALUES)))),
    st.sampled_from(sorted(KERNELS)),
)
def test_without_a_compiler_it_answers_as_python_does_for_each_row(some: list[pd.Series], name: str) -> None:
    check_answers(some, name, numba=False)


@needs_numba
@settings(max_examples=100)
@given(columns(st.sampled_from(PAIRS)), ANY_KERNEL)
def test_compiled_it_answers_alike_and_has_the_dtype_that_it_has_without(some: list[pd.Series], name: str) -> None:
    check_answers(some, name, numba=True)
    with way(False):
        uncompiled = KERNELS[name](*some)
    assert uncompiled.dtype == KERNELS[name](*some).dtype


def test_numbers_alone_give_a_number() -> None:
    assert (kernels.net(2, 0.5), kernels.branched(3, 3), kernels.looped(True, 1)) == (1.0, -1.0, 4)
    assert gl.kernel("where(isnan(a), -1, max(a, 2, abs(b)))")(math.nan, -3) == -1
    assert gl.kernel("a & b | (a ^ b)")(True, False) is True
    assert gl.kernel("sqrt(a) if a >= 0 and not b else floor(-0.5)")(4, False) == 2.0


def test_blocks_meet_at_their_ends() -> None:
    rows = 40_000
    some = [pd.Series(np.arange(rows) % 7), pd.Series(pd.array(np.arange(rows) % 5, dtype="Int64"))]
    some[1][::3] = pd.NA
    for name in ("branched", "looped"):
        check_answers(some, name, numba=False)


# ---- on ranks


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_in_assign_filter_and_map_parts_on_every_world(world: World) -> None:
    numba = NUMBA and world.size != 3  # without it on one
    if world.kind == "mpi":
        results = world.run(kernels.in_way, numba, "one rank empty")
    else:
        with way(numba):
            results = world.run(kernels.on_a_rank, "one rank empty")
    check_on_ranks(results, numba=numba)


def test_many_chunks_stay_in_a_small_budget() -> None:
    tight = GcylonConfig(gpu_memory_limit="700 KiB", chunk_size_bytes=4096, min_chunk_rows=1)
    with way(False):
        results = World("threads", 2).run(kernels.on_a_rank, "even", tight, 3000, config=tight)
    check_on_ranks(results, numba=False)


def check_on_ranks(results: list[dict[str, Any]], *, numba: bool) -> None:
    for seen in results:
        frame, made = seen["input"], seen["frame"]
        assert made.dtypes.astype(str).to_dict() == results[0]["frame"].dtypes.astype(str).to_dict()
        assert_answers(made["net"], expected("net", frame["x"], frame["n"]))
        assert_answers(made["yes"], expected("within", frame["k"] - 40, frame["k"]))
        assert_answers(made["far"], expected("branched", frame["d"], frame["g"] * 10**9))
        assert_answers(made["loop"], expected("looped", frame["n"], pd.Series([2] * len(frame), dtype="int64")))
        assert made["small"].dtype == np.float32 and (made["small"] == frame["k"] / 2).all()
        assert made["later"].dtype == "timedelta64[s]"
        assert (made["later"].astype("int64") == frame["d"].astype("int64") + 1).all()
        holds = [one is True for one in expected("within", frame["k"], frame["n"])]
        assert seen["chosen"]["g"].tolist() == frame["g"][holds].tolist()
        pd.testing.assert_series_equal(seen["mapped"]["z"], frame["x"] * 0.5, check_names=False)
        assert ("looped", "kernel") in seen["spans"] or not len(frame)
        assert "kernel('not (… < a and b <= a) or a // … == min(a, b)')" in seen["phases"] or not len(frame)
        assert "looped(col('n'), …)" in seen["arguments"] and "kernels=[" in seen["arguments"]
        assert all(0 < peak <= limit or not len(frame) for peak, limit in seen["peaks"]), seen["peaks"]
        assert seen["left"][0] <= 0
        lines = [line for line in seen["explained"].splitlines() if "kernel looped: " in line]
        if not len(frame):
            assert lines == ["  kernel looped: not called: this rank has no rows"]
        elif worlds.ENGINE == "gpu":  # which always compile
            assert "on the GPU, as this is a GPU engine: compiled by numba-cuda" in lines[0]
        elif numba:
            assert "on the CPU, as this is a CPU engine: compiled by numba" in lines[0]
        else:
            assert "by Python row by row, of which numpy has no form, as numba is not installed (pip" in lines[0]


@pytest.mark.parametrize("name", ["net", "looped"])
def test_what_it_takes_in_memory_is_what_is_reserved(name: str) -> None:
    rows = 100_000
    frame = pd.DataFrame({"a": np.arange(rows), "b": pd.array(np.arange(rows), dtype="Int64")})
    frame.loc[::3, "b"] = pd.NA
    with gl.initialize(engine="cpu", sample_hz=0) as context, way(False):
        backend, data, made = context.workspace.backend, gl.from_local(frame)._whole(), [("y", KERNELS[name]("a", "b"))]
        backend.evaluate(backend.slice(data, 0, 10), made)
        tracemalloc.start()
        try:
            backend.evaluate(data, made)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert 8 * rows < peak <= rows * backend.evaluating_row_bytes(data.schema, [made[0][1]])


def test_ranks_whose_kernels_differ_are_told() -> None:
    with pytest.raises(RanksDisagree):
        World("threads", 2).run(kernels.another_source_on_rank_1)


@pytest.mark.cpu_alone("GPU ranks always compile, and a compiler finds one dtype for all answers")
def test_an_answer_that_the_dtype_cannot_hold_is_an_error_on_all_ranks() -> None:
    with way(False):
        outcomes = World("threads", 2).outcomes(kernels.answers_that_were_not_expected)
    for outcome in outcomes:
        assert isinstance(outcome.error, ArgumentError) and "gl.kernel(dtype='float64')" in str(outcome.error)


@pytest.mark.parametrize("numba", WAYS)
def test_math_does_not_raise_where_numpy_does_not(numba: bool) -> None:
    with way(numba):
        assert str(World("single", 1).run(kernels.row_by_row_math)[0]) == "[1.4142135623730951, nan, nan]"


# ---- what it may be


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "a.b", "a[0]", "(lambda: 1)()", "open(a)", "a if b", "'text' + a", "1 + 2",
        "", "[a for a in b]", "np.sqrt(a)", "sqrt(a, b)", "where(a, b)", "a := 3", "a + 1j", "~a", "a @ b", "_a",
        "f'{a}'", "+".join(["a"] * 3000), "(" * 300 + "a" + ")" * 300, "sqrt(x=a)", "a and sqrt", "*a",
    ],
)  # fmt: skip
def test_a_text_may_have_little_and_is_never_evaluated(text: str) -> None:
    with pytest.raises(ArgumentError, match="cannot be a kernel"):
        gl.kernel(text)


def test_functions_that_cannot_travel_are_refused() -> None:
    somewhere, scale = object(), 2.5

    def uses_more(a: float) -> float:
        return a + somewhere  # type: ignore[operator, no-any-return]

    def unknown(a):
        return a + nowhere  # noqa: F821

    def starred(*a):
        return a

    def with_default(a, b=1):
        return a + b

    def yields(a):
        yield a

    @gl.kernel
    def fine(a: float) -> float:
        """Has annotations, a docstring, and a number of its surroundings."""
        return np.exp(a) * scale

    for function, said in [
        (uses_more, "'somewhere', which is a object"), (unknown, "'nowhere', which is not known"), (starred, r"\*a"),
        (with_default, "b=1"), (yields, "yield a"), (lambda a: a, "A lambda"), (3, "A int"),
        (fine, "is a kernel already"),
    ]:  # fmt: skip
        with pytest.raises(ArgumentError, match=said):
            gl.kernel(function)
    back = pickle.loads(pickle.dumps(fine))
    assert back(0) == fine(0) == scale and "annotations" not in back.source.text
    assert back.identity() == fine.identity() != gl.kernel(dtype="float32")(fine_again).identity()


def fine_again(a):
    return a


def test_columns_of_which_it_knows_no_numbers_are_refused() -> None:
    table = pd.DataFrame({"s": ["a"], "u": np.array([2**63], dtype="uint64"), "c": pd.Categorical(["x"]), "x": [1.0]})
    for name in "suc":
        with pytest.raises(ArgumentError, match=f"its a is a column of {table[name].dtype}|Its a is a column of"):
            gl.kernel("a + 1")(table[name])
    with pytest.raises(ArgumentError, match="Its b is np.timedelta64"):
        gl.kernel("a + b")(table["x"], np.timedelta64(1, "s"))
    with pytest.raises(ArgumentError, match="takes a, b, and was called otherwise"):
        kernels.net("x")
    with pytest.raises(ArgumentError, match="was given"):
        kernels.net("x", None)
    with pytest.raises(ArgumentError, match="cannot be that of a kernel's result"):
        gl.kernel("a", dtype="str")
    with pytest.raises(ArgumentError, match="which is no count of ns"):
        gl.kernel("a / 2", dtype="datetime64[ns]")(table["x"])
    with pytest.raises(ArgumentError, match="gives NoneType, where a kernel gives a number"), way(False):
        gl.kernel(nothing)(table["x"])


def nothing(a):
    for _ in range(2):
        pass


def test_one_that_was_not_called_is_no_expression() -> None:
    with gl.initialize(engine="cpu", sample_hz=0):
        table = gl.from_local(pd.DataFrame({"a": [1], "b": [2]}))
        for call in (lambda: table.filter(kernels.within), lambda: table.assign(y=kernels.net)):
            with pytest.raises(ArgumentError, match=r"was not called. Call it with columns, as in kernel\('a', 'b'\)"):
                call()


def test_a_filter_of_a_reader_may_be_one(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1, 2, 3], "b": [1, 5, 2]}).to_parquet(tmp_path / "x.parquet")
    with gl.initialize(engine="cpu", sample_hz=0), way(False):
        table = gl.read_parquet(tmp_path / "x.parquet", filters=gl.kernel("a >= b")("a", "b") & (gl.col("a") > 1))
        assert table.local()["a"].tolist() == [3]


# ---- the cache on disk

ONCE = (
    "import json, pandas as pd, gcylon_lab as gl\n"
    "k = gl.kernel('a * 7 - b')\n"
    "with gl.initialize(engine='cpu', sample_hz=0):\n"
    "    t = gl.from_local(pd.DataFrame({'a': [1, 2], 'b': [3, 4]})).assign(y=k('a', 'b'))\n"
    "    print(json.dumps([t.local()['y'].tolist(), t.explain()]))\n"
)


def started(folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "GCYLON_KERNEL_CACHE": str(folder),
    }
    return subprocess.Popen([sys.executable, "-c", ONCE], env=environment, stdout=subprocess.PIPE, text=True)


def here(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """Use the same kernel in this process as if it had just started: how it ran."""
    monkeypatch.setenv("GCYLON_KERNEL_CACHE", str(folder))
    monkeypatch.setattr(compiled, "_made", {})
    made = gl.kernel("a * 7 - b")
    assert made(pd.Series([1, 2]), pd.Series([3, 4])).tolist() == [4, 10]
    return made.how()


@needs_numba
def test_compiled_once_for_all_processes_and_never_loaded_where_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kernels"
    two = [started(folder) for _ in range(2)]
    for process in two:
        out, _ = process.communicate(timeout=100)
        assert json.loads(out)[0] == [4, 10] and process.returncode == 0
    assert here(monkeypatch, Path("0")).endswith("and not kept, as GCYLON_KERNEL_CACHE turns it off")
    assert here(monkeypatch, folder).endswith("from the cache on disk")
    (entry,) = [path for path in folder.iterdir() if len(path.name) == 40]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in entry.rglob("*"))
    found = cache.state()
    assert (found.entries, found.hits > 0, found.nbytes > 1000) == (1, True, True)
    assert main(["cache"]) == 0 and f"{folder}: 1 kernel, " in capsys.readouterr().out

    for change in ("flipped", "more", "link", "listing"):
        code = next(entry.rglob("*.nbc"))
        if change == "flipped":
            code.write_bytes(code.read_bytes()[:-1] + b"\0")
        elif change == "more":
            (entry / "__pycache__" / "more.nbi").write_bytes(b"")
        elif change == "link":
            shutil.copy(code, tmp_path / "elsewhere")
            code.unlink()
            code.symlink_to(tmp_path / "elsewhere")
        else:
            (entry / "entry.json").write_text("[")
        assert re.search(r"compiled by numba \S+ in [\d.]+ s$", here(monkeypatch, folder)), change
        assert here(monkeypatch, folder).endswith("from the cache on disk"), f"made anew after: {change}"
        assert not any(path.is_symlink() or path.name == "more.nbi" for path in entry.rglob("*"))
    os.chmod(entry, 0o777)
    assert cache.load(folder, entry.name) is None, "others could have written it"
    os.chmod(folder, 0o777)
    assert "others than user" in here(monkeypatch, folder)
    assert main(["cache", "--clear"]) == 1 and "others than user" in capsys.readouterr().err
    os.chmod(folder, 0o700)
    (folder / "mine.txt").write_text("kept")
    assert main(["cache", "--clear"]) == 0 and "1 removed" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


@needs_numba
def test_the_key_has_all_that_the_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = compiled.numba_or_why()[0]

    def key(text: str = "a * b", arguments: tuple[str, ...] = ("int64", "int64"), scalar: bool = False) -> str:
        return compiled.Job(numba, compiled.HOST, source.of_text(text), arguments, (False, scalar)).key()

    keys = [key(), key("a + b"), key(arguments=("int64", "float64")), key(scalar=True)]
    assert key() == keys[0] and len(set(keys)) == 4
    with monkeypatch.context() as patched:
        patched.setattr(compiled, "__version__", "0.0.0")
        keys.append(key())
    with monkeypatch.context() as patched:
        patched.setattr(compiled.HOST, "versions", lambda numba: ["another processor"])
        keys.append(key())
    assert len(set(keys)) == 6


@needs_numba
def test_a_function_that_numba_does_not_know_runs_without_it() -> None:
    made = gl.kernel(unknown_to_numba)
    assert made(pd.Series([1.5, 2.5])).tolist() == [2.0, 2.0]
    assert "by Python row by row, of which numpy has no form, as numba cannot compile it: " in made.how()


def unknown_to_numba(a):
    return float(f"{a:.0f}")


# ---- streams, and what the docs say


def test_on_cpu_engines_a_stream_does_nothing_and_says_so() -> None:
    with gl.initialize(engine="cpu", sample_hz=0) as context:
        with context.stream("mine") as stream:
            first = stream.event()
        stream.wait(first)
        stream.synchronize()
        assert first.done and stream.event().seconds_since(first) >= 0
        assert stream.stream is None and stream.hidden is None and stream.seconds >= 0
        assert "nothing: this is a CPU engine" in repr(stream)
        assert [event.category for event in context.recorder.events() if event.name == "mine"] == ["user"]


@pytest.mark.parametrize("thing", [gl.kernel, Context.stream])
def test_examples_in_docstrings_are_right(thing: Any) -> None:
    (found,) = doctest.DocTestFinder(recurse=False).find(thing, globs={})
    with gl.initialize(engine="cpu", sample_hz=0):
        assert doctest.DocTestRunner().run(found) == (0, 6)
