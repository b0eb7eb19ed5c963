#!/usr/bin/env bash
# Some tests with the lowest version of each dependency that pyproject.toml allows (part of .ci/run):
# bash tests/lower_bounds.sh [TEST ...]
# In an environment of its own, before that of .venv, which has all else: what these need, and what runs tests.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
.venv/bin/python -m venv --without-pip "$folder"
.venv/bin/python - > "$folder/lowest.txt" <<'PY'
import re, tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
for line in [*project["dependencies"], *project["optional-dependencies"]["remote"]]:
    name, low = re.match(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", line).groups()
    print(f"{name}=={low}")
PY
cat "$folder/lowest.txt"
.venv/bin/pip --python "$folder/bin/python" install -q --no-compile --no-deps -r "$folder/lowest.txt"
.venv/bin/python - "$folder"/lib/python*/site-packages <<'PY'
import os, pathlib, sys, sysconfig

beyond = f"{os.getcwd()}\nimport site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
pathlib.Path(sys.argv[1], "beyond.pth").write_text(beyond)
PY
if (($# == 0)); then
  set -- tests/tables/test_arrow_dtypes.py tests/widgets/test_figures.py::test_a_panel_stands_alone tests/cluster/test_handles.py
fi
"$folder/bin/python" -m pytest -n 0 -q -p no:cacheprovider "$@"
