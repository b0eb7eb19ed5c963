"""What GPU engines refuse: one table, which errors take their text from and the documentation shows whole."""

from __future__ import annotations

import pickle
from pathlib import Path

import pandas as pd
import pytest

import gcylon_lab
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.refusals import (
    DIFFERENCES,
    GPU_REFUSALS,
    as_text,
    is_refused_on_gpus,
    refused_argument,
    refused_column,
)
from gcylon_lab.cli.main import main
from gcylon_lab.errors import ArgumentError, UnsupportedDtype


@pytest.mark.parametrize("one", GPU_REFUSALS, ids=lambda one: one.name)
def test_errors_take_their_text_from_the_table(one: object) -> None:
    column = PandasBackend().from_frame(pd.DataFrame({"c": pd.Categorical(["a"])})).schema["c"]
    for error in (refused_column(one.name, column, "list"), refused_argument(one.name, "this")):
        assert isinstance(error, (UnsupportedDtype, ArgumentError))
        assert f"refused on GPU engines: {one.why}" in str(error) and str(error).endswith(one.instead)
        assert is_refused_on_gpus(error) and is_refused_on_gpus(pickle.loads(pickle.dumps(error)))
    assert not is_refused_on_gpus(UnsupportedDtype("there is no mean of it"))


def test_the_whole_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--engines"]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() == as_text()
    assert all(one.why in printed and one.instead in printed for one in GPU_REFUSALS)
    assert all(what in printed for what, _, _ in DIFFERENCES)


def test_no_other_error_speaks_of_gpu_engines() -> None:
    """What GPU engines refuse stands in the table, so that none is forgotten in the documentation."""
    folder = Path(gcylon_lab.__file__).parent
    files = [path for part in ("backends", "engine", "operators", "api") for path in (folder / part).rglob("*.py")]
    said = [path.name for path in files if "use CPU engines" in path.read_text()]
    assert said == ["refusals.py"]
