"""What other clients call otherwise: errors that name what a cluster has instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...api.verbs.pandas_hints import no_attribute

_HERE = {
    "DataFrame": "from_pandas(frame)",
    "apply": "run(function, table)",
    "compute": "the verbs of a table: they run at once",
    "dashboard": "gl.Dashboard(lab)",
    "dashboard_link": "gl.Dashboard(lab)",
    "from_dict": "from_columns({'x': array})",
    "from_polars": "from_arrow(frame)",
    "gather": "t.to_pandas(limit)",
    "map": "run(function, table)",
    "names": "memory(), which lists tables by name",
    "report": "gl.html_report(path, lab)",
    "read_excel": "from_pandas(pd.read_excel(...))",
    "read_feather": "read_ipc(paths)",
    "read_sql": "from_pandas(pd.read_sql(...))",
    "read_table": "read_csv(paths)",
    "scale": "restart() for new engines, or gl.Cluster(n) for another number of them",
    "shutdown": "close()",
    "size": "n",
    "sql": "t.query(text), or DuckDB, which takes t.to_arrow(limit)",
    "stop": "close()",
    "submit": "run(function, table)",
    "tables": "memory(), which lists tables by name, and table(name) for one of them",
}


class NamesInstead:
    """A name that a cluster has not is an error that says what it has."""

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name, _HERE)
