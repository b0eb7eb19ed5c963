"""The package as a whole: what it exports, what importing it loads, how it is laid out."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

import gcylon_lab as gl

PACKAGE = Path(gl.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
_HEAVY = ("mpi4py", "cudf", "rmm", "cupy", "pandas", "pyarrow")
_NOTEBOOK_SIDE = (
    "gcylon_lab.cluster.client.cluster",
    "gcylon_lab.cluster.handles.handle",
    "gcylon_lab.ui.magics.lab",
    "gcylon_lab.ui.dashboard",
    "gcylon_lab.ui.live.cluster_source",
    "gcylon_lab.cli.main",
)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(path: Path, names: set[str]) -> Iterator[str]:
    """What a file imports, at its top, in functions, and for annotations alone; where it is a module of these names,
    that, and not the package that it is in."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path.parent)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                yield full if (full := f"{home}.{alias.name}") in names else home


def loaded_by(*modules: str) -> set[str]:
    code = f"import json, sys\nfor name in {modules!r}: __import__(name)\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    return {name.split(".")[0] for name in json.loads(done.stdout)}


def test_every_export_is_there_and_documented():
    for name in gl.__all__:
        value = getattr(gl, name)
        assert name == "__version__" or value.__doc__, name
    assert set(gl.__all__) <= set(dir(gl))


def test_the_exports_for_type_checkers_are_the_lazy_ones():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        (f".{node.module}", a.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for a in node.names
    }
    assert typed == {(home, name) for home, names in gl._HOMES.items() for name in names}
    assert set(gl._HOME_OF) | set(gl._MODULES) | {"__version__"} == set(gl.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        gl.nonsense  # noqa: B018


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_by("gcylon_lab") & {*_HEAVY, "numpy", "ipyparallel", "plotly"}


def test_the_notebook_side_loads_no_mpi_and_no_gpu_library():
    loaded = loaded_by(*_NOTEBOOK_SIDE)
    assert not loaded & {"mpi4py", "cudf", "rmm", "cupy"}
    assert "plotly" in loaded and "nbformat" not in loaded, "it takes two seconds, which nobody needs"


def test_measuring_loads_only_numpy():
    assert not loaded_by("gcylon_lab.bench.benchmark") & {*_HEAVY, "ipyparallel", "plotly"}


def test_the_command_line_starts_light():
    assert not loaded_by("gcylon_lab.cli.main", "gcylon_lab.bench.commands") & {*_HEAVY, "ipyparallel", "plotly"}


def test_a_file_is_one_thing_and_named_for_it():
    assert not [path for path in MODULES if len(path.read_text().splitlines()) > 700]
    assert not [path for path in MODULES if path.stem in {"utils", "helpers", "common", "misc"}]
    assert not [path for path in MODULES if not ast.get_docstring(tree_of(path))], "these do not say what they are for"


# Names that stood for what the field has a word for; `gcylon_lab/ARCHITECTURE.md` has the words.
_FORMER_WORDS = re.compile(
    r"foresee|foresight|GivingWay|giving_way|gave_way|survivors|lookout|Lookout|Stranded|Vigil|Keeper|LocalWork|KeptSink"
    r"|PlacedSink|StagedSink|WrittenSink|PassJoin|plan_meeting|VoteKind|Outgoing|Arrivals|LowerTiers|LowerFile|PinnedAhead"
    r"|limit_that_does|spoken_name|Neighbourhood|Thinner|under_way\b|\bvotes? of\b"
)


def test_one_word_for_each_thing():
    assert not [(path, words) for path in MODULES if (words := _FORMER_WORDS.findall(path.read_text()))]


def _replaced_errors(function):
    tries = [node for node in ast.walk(function) if isinstance(node, ast.Try)]
    handlers = [one for node in tries if "yield" in "".join(map(ast.unparse, node.body)) for one in node.handlers]
    return [node.lineno for one in handlers for node in ast.walk(one) if isinstance(node, ast.Raise) and node.exc]


def test_no_generator_replaces_an_error():
    """From Python 3.12 on the error that it caught would hold itself, and tables with it; see `errors.raised_as`."""
    for path in MODULES:
        for function in ast.walk(tree_of(path)):
            if isinstance(function, ast.FunctionDef) and "contextmanager" in map(ast.unparse, function.decorator_list):
                assert not _replaced_errors(function), f"{path}: {function.name}"


def test_a_folder_is_taken_in_at_a_glance():
    sizes = Counter(path.parent for path in MODULES)
    assert not {folder: size for folder, size in sizes.items() if size > 16}


def test_public_functions_and_classes_are_documented():
    for path in MODULES:
        found = [node for node in tree_of(path).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        public = [node for node in found if not node.name.startswith("_")]
        assert not [node.name for node in public if not ast.get_docstring(node)], path


@pytest.mark.parametrize("kind", [gl.Cluster, gl.DistTable, gl.Table, gl.Dashboard])
def test_public_methods_are_documented(kind):
    members = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    assert not [name for name, value in members.items() if not getattr(value, "__doc__", None)]


@pytest.mark.parametrize(
    "function",
    [
        getattr(gl.Table, verb)
        for verb in ("shuffle", "allgather", "gather", "broadcast", "repartition", "to_pandas", "head", "write_ipc")
    ]
    + [gl.read_parquet, gl.read_csv, gl.read_json, gl.read_ipc, gl.from_local, gl.from_pandas],
    ids=lambda function: function.__name__,
)
def test_collectives_say_that_they_are(function):
    assert function.__doc__.startswith("Collective: all ranks call it. ")


def test_no_process_imports_from_the_folder_in_which_it_starts():
    """Others may have put a package there: Python is started with ``-P``."""
    assert not [path for path in MODULES if re.search(r'sys\.executable, "-[cm]"', path.read_text())]


def test_no_circle_of_imports():
    names = {name_of(path) for path in MODULES}
    graph = {name_of(path): names & set(imported_by(path, names)) - {name_of(path)} for path in MODULES}
    TopologicalSorter(graph).prepare()  # its error names a circle


def test_layers():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
