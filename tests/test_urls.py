"""What lets others in, and values of conditions, do not stand in what is shown, kept or sent."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.cluster.handles.display_name import provenance_of
from gcylon_lab.cluster.handles.html_repr import table_card
from gcylon_lab.cluster.messages import Request
from gcylon_lab.errors import ArgumentError, GcylonError, ReadError, to_message
from gcylon_lab.profiling.report import format_summary
from gcylon_lab.profiling.trace import chrome_trace
from gcylon_lab.runtime.context import current, run_threads
from gcylon_lab.ui.report import report_html
from gcylon_lab.urls import without_secrets

SECRET = "s3cr3t"


@pytest.mark.parametrize(("text", "shown"), [
    (f"s3://key:{SECRET}/{SECRET}@bucket/x.parquet", "s3://...@bucket/x.parquet"),
    (f"https://{SECRET}@host:80/a/b.csv?sig={SECRET}&t=2, and", "https://...@host:80/a/b.csv?..., and"),
    (f"['https://h/a?x={SECRET}', 'memory://a/b']", "['https://h/a?...', 'memory://a/b']"),
    (f"(https://h/a#{SECRET})", "(https://h/a#...)"),
    (f"https://me:p@{SECRET}/@h/a, b", "https://...@h/a, b"),
    (f"HTTPS://me@mail.org:{SECRET}@h/a;Token={SECRET};b", "HTTPS://...@h/a;..."),
    (f"https://h/a?SIG={SECRET}&Sv=1#{SECRET}; https://h/b;", "https://h/a?...; https://h/b;"),
    ("no /a/b?c; what@is ://", "no /a/b?c; what@is ://"),
    ("https://h/a, s3://b/k=*/y.", "https://h/a, s3://b/k=*/y."),
])  # fmt: skip
def test_only_what_lets_others_in_is_left_out(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_errors_show_none_on_any_way() -> None:
    url = f"https://me:{SECRET}@h/a.csv?sig={SECRET}"
    error = ReadError(f"{url} cannot be read", advice=f"Is {url} right?", path=url)
    again = pickle.loads(pickle.dumps(error))
    for one in (error, again):
        assert "https://...@h/a.csv?..." in str(one)
        assert SECRET not in str(one) + repr(one) + json.dumps(to_message(one))


def test_records_traces_and_names_show_none() -> None:
    url = f"memory://{SECRET}@nowhere/a.csv?sig={SECRET}"

    def read() -> str:
        with pytest.raises(GcylonError) as told:
            gl.read_csv(url)
        taken = current().snapshot()
        assert taken["operations"][-1]["verb"] == "read_csv" and "?..." in taken["operations"][-1]["arguments"]
        return str(told.value) + json.dumps([taken, chrome_trace([taken])])

    for said in run_threads(2, read):
        assert SECRET not in said
    assert provenance_of(Request("read_csv", "", "t1", (url,), {})).describe({}) == "read_csv of a.csv?..."


def test_values_of_conditions_are_recorded_only_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = str(tmp_path / "t.parquet")
    pd.DataFrame({"name": ["a", SECRET], "x": [1, 2]}).to_parquet(parquet)
    (tmp_path / "t.csv").write_text("x\n1\n" * 1 + f"{SECRET}\n")
    name, x = gl.col("name"), gl.col("x")

    def work() -> tuple[str, str]:
        table = gl.read_parquet(parquet, filters=[("name", "in", [SECRET, "b"])])
        table.filter((name == SECRET) & ~name.isin([SECRET]) & name.str.contains(SECRET, case=False))
        table.filter(name.between("a", SECRET) | (name.str.replace(SECRET, "") != "") | (x.astype("int32") > 7))
        table.assign(other=gl.lit(SECRET), more=name.where(x > 0, SECRET)).fillna({"name": SECRET})
        table.select("name").isin([SECRET])
        with pytest.raises(ArgumentError) as told:  # to the caller all is said
            table.filter(x < SECRET)
        assert SECRET in str(told.value)
        with pytest.raises(GcylonError):
            gl.read_csv(str(tmp_path / "t.csv"), dtype={"x": "int64"})
        taken = current().snapshot()
        card = table_card("t1", [table.info()], "t", "t")
        return json.dumps([taken, chrome_trace([taken])]) + format_summary([taken]) + report_html([taken]), card

    for written, shown in run_threads(2, work):
        assert SECRET not in written and SECRET not in shown
        assert "(col('x').astype('int32') > " in written and "t.csv" in written
    monkeypatch.setenv("GCYLON_RECORD_LITERALS", "1")
    assert all(SECRET in written for written, _ in run_threads(2, work))
