#!/usr/bin/env bash
# The tests of files, tables and operations with the lowest version of each dependency that pyproject.toml allows, in an
# environment of its own: bash tests/lower_bounds.sh [FOLDER] (some minutes, and not part of the tests).
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-$(mktemp -d)}
python3 -m venv "$folder"
"$folder/bin/python" - > "$folder/lowest.txt" <<'END'
import re, tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
for line in [*project["dependencies"], *project["optional-dependencies"]["remote"]]:
    name, low = re.match(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", line).groups()
    print(f"{name}=={low}")
END
cat "$folder/lowest.txt"
"$folder/bin/python" -m pip install -q -c "$folder/lowest.txt" -e '.[remote]' \
  duckdb hypothesis nvtx pytest pytest-rerunfailures pytest-timeout pytest-xdist
"$folder/bin/python" -m pytest -n 0 -q -p no:cacheprovider \
  tests/tables tests/ops/test_files.py tests/ops/test_rowwise.py tests/ops/test_join_calls.py tests/cluster/test_handles.py
