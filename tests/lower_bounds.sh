#!/usr/bin/env bash
# Some tests with the lowest version of each dependency that pyproject.toml allows, in an environment of its own (part of
# .ci/run): bash tests/lower_bounds.sh [TEST ...]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/python" - > "$folder/lowest.txt" <<'PY'
import re, tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
for line in [*project["dependencies"], *project["optional-dependencies"]["remote"]]:
    name, low = re.match(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", line).groups()
    print(f"{name}=={low}")
PY
cat "$folder/lowest.txt"
"$folder/bin/python" -m pip install -q --no-compile -c "$folder/lowest.txt" -e '.[remote]' \
  hypothesis pytest pytest-rerunfailures pytest-timeout pytest-xdist
if (($# == 0)); then
  set -- tests/tables/test_arrow_dtypes.py tests/widgets/test_figures.py::test_a_panel_stands_alone tests/cluster/test_handles.py
fi
"$folder/bin/python" -m pytest -n 0 -q -p no:cacheprovider "$@"
