"""Files around the package: Binder, CI, and what an install brings."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gcylon_lab

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_binder_starts_what_it_is_given_with_more_ranks_than_cores_allowed():
    command = [ROOT / "binder" / "start", "printenv", "PRTE_MCA_rmaps_default_mapping_policy"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ":oversubscribe\n"


@pytest.mark.parametrize("name", ["binder/start", "binder/postBuild", ".ci/run", "tests/lower_bounds.sh"])
def test_scripts_can_be_run_and_are_bash(name):
    assert os.access(ROOT / name, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / name], check=True)


def test_binder_has_a_python_that_fits():
    text = (ROOT / "binder" / "environment.yml").read_text()
    minor = int(re.search(r"python=3\.(\d+)", text)[1])
    low, high = (int(number) for number in re.findall(r"3\.(\d+)", PROJECT["requires-python"]))
    assert low <= minor < high


def test_the_version_is_said_once_over():
    assert PROJECT["version"] == gcylon_lab.__version__
    assert f"## {gcylon_lab.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_only_what_is_agreed_stands_at_the_top():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no git checkout")
    top = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        "pyproject.toml", "gcylon_lab", "notebooks", "tests", "binder", "README.md", "LICENSE", "CHANGELOG.md",
        "SECURITY.md", "CONTRIBUTING.md",
    }  # fmt: skip


def test_every_import_of_the_package_is_a_dependency():
    """What is imported is installed by `pip install .` or by an extra, or stands with Python."""
    names = {re.split(r"[ <>=\[;!~]", line)[0] for line in PROJECT["dependencies"]}
    for extra in PROJECT["optional-dependencies"].values():
        names |= {re.split(r"[ <>=\[;!~]", line)[0] for line in extra}
    known = {"ipython": "IPython", "nvidia-ml-py": "pynvml", "opentelemetry-sdk": "opentelemetry"}
    for cuda in ("12", "13"):
        known |= {f"cudf-cu{cuda}": "cudf", f"rmm-cu{cuda}": "rmm", f"cupy-cuda{cuda}x": "cupy"}
    allowed = {known.get(name, name.replace("-", "_")) for name in names} | {"gcylon_lab", "distributed"}
    # These come with ipyparallel and ipykernel, whose parts they are.
    # This comes with cudf; the others are a peer of a bench, used where they are there.
    allowed |= {"pylibcudf", "rapidsmpf", "cudf_polars", "polars", "ucxx", "cudf_streaming"}
    allowed |= {"IPython", "traitlets", "zmq", "tornado", "jupyter_client", "jupyter_core", "comm", "packaging"}
    found = {name for path in (ROOT / "gcylon_lab").rglob("*.py") for name in _imported(path)}
    assert found - allowed - set(sys.stdlib_module_names) == set()


def test_gpu_extras_differ_in_their_cuda_alone_and_keep_pandas_where_cudf_has_it():
    extras = PROJECT["optional-dependencies"]
    assert [line.replace("cu13", "cu12").replace("cuda13x", "cuda12x") for line in extras["gpu"]] == extras["gpu-cu12"]
    assert "pandas>=3,<3.1" in extras["gpu"]


def _imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    whole = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.split(".")[0] for name in plain | whole}


def test_the_application_says_that_it_has_no_login():
    cells = json.loads((ROOT / "notebooks/dashboard.ipynb").read_text())["cells"]
    said = "".join(cells[0]["source"])
    assert "Voila asks nobody to log in" in said and "`--token`" in said


def test_no_regular_expression_repeats_a_group_possessively():
    """Before Python 3.11.5 such a group matches too little: every parquet footer was damaged there."""
    files = Path(gcylon_lab.__file__).parent.rglob("*.py")
    found = [path.name for path in files if re.search(r"\)[*+?]\+[^ ]*\"", path.read_text().replace('"(...)*+"', ""))]
    assert found == []
