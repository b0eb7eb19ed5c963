"""What tables are called: by the notebook's variables, else by how they were made; no rank is asked for it."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

import gcylon_lab as gl
from gcylon_lab.cluster.handles.display_name import made_at, provenance_of
from gcylon_lab.cluster.messages import Request, TableRef
from gcylon_lab.errors import HandleReleased

JOIN = Request("join", "#3", "#9", (TableRef("#5"),), {"on": "k"})


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (JOIN, "join of orders and #5"),
        (Request("concat", "#3", "#9", ([TableRef("#5"), TableRef("#6")],)), "concat of orders, #5 and #6"),
        (Request("join", "#3", "#9", (), {"right": TableRef("#3")}), "join of orders"),
        (Request("group_agg", "#7", "#9", (["k"],)), "groupby of #7"),
        (Request("read_csv", "", "#9", ("/data/a.csv", None)), "read_csv of a.csv"),
        (Request("read_parquet", "", "#9", (["s3://b/line/", "x"], ["k"])), "read_parquet of line and 1 more"),
        (Request("from_local", "", "#9"), "from_pandas"),
        (Request("adopt", "", "#9", ("u",)), "u of %px"),
    ],
)
def test_how_a_table_was_made_stands_in_words(request_: Request, said: str) -> None:
    assert provenance_of(request_).describe({"#3": "orders"}) == said


def test_ids_stand_in_the_order_of_making() -> None:
    assert sorted(["#10", "", "#2, #30", "#9"], key=made_at) == ["#2, #30", "#9", "#10", ""]


@pytest.fixture
def shell(lab: gl.Cluster) -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance(colors="nocolor")
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.mpi
def test_tables_are_called_by_the_variables_that_refer_to_them(
    shell: InteractiveShell, lab: gl.Cluster, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, items = lab.from_pandas(frame), lab.from_pandas(frame.head(9)).bind("things")
    shell.user_ns |= {"orders": orders, "_hidden": items}
    joined = orders.join(items, on="k")
    memory = lab.memory().set_index("id")
    called = {table._name: table for table in (orders, items, joined)}
    assert list(memory.loc[list(called), "rank"]) == [0, 1] * 3
    assert list(memory.loc[list(called), "table"].iloc[::2]) == [
        "orders", "from_pandas, things of %px", f"join of orders and {items._name}",
    ]  # fmt: skip
    shell.user_ns |= {"found": joined, "also": joined}
    with monkeypatch.context() as patch:
        patch.setattr(lab._session, "call", lambda *args, **kwargs: pytest.fail("a rank was asked"))
        card = joined._repr_html_()
        assert f"<b>found, also</b> · DistTable {joined._name} ·" in card
        assert repr(orders).startswith(f"<DistTable orders ({orders._name}): 1,000 rows")
        assert f"<b>from_pandas</b> · DistTable {items._name}" in items._repr_html_()
    assert joined.shuffle_async("k").result().num_rows == joined.num_rows
    orders.release()
    with pytest.raises(HandleReleased, match=r"The table orders \(#\d+\) is gone"):
        orders.head()
    lab.view.execute("del things")
