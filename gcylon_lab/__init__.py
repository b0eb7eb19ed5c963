"""gcylon_lab: distributed tables in JupyterLab, inside a memory budget that is enforced and shown.

Use it as ``import gcylon_lab as gl``. In a notebook `Cluster` starts the engines
and gives handles; under ``%px`` or ``mpiexec`` the readers give this rank's
part of a `Table`.

Nothing heavy is imported here: each name is looked up when it is first used, so
a notebook loads neither mpi4py nor a GPU library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

_HOMES = {
    ".bench.benchmark": ("Benchmark",),
    ".cluster.client.cluster": ("Cluster",),
    ".cluster.handles.handle": ("DistTable",),
    ".config": ("GcylonConfig",),
    ".runtime.context": ("current", "initialize", "run_threads"),
    ".api.frames.functions": ("crosstab", "cut", "merge", "merge_asof"),
    ".api.interchange.appender": ("Appender", "empty"),
    ".api.interchange.sources": ("from_arrow", "from_columns"),
    ".runtime.device_status": ("device_status",),
    ".runtime.user_budget": ("budget",),
    ".api.readers": ("from_local", "from_pandas", "read_csv", "read_ipc", "read_json", "read_parquet"),
    ".api.table": ("Table",),
    ".api.estimate": ("estimate",),
    ".backends.protocol.expressions": ("col", "lit", "when"),
    ".backends.kernels.kernel": ("kernel",),
    ".api.verbs.sets": ("concat",),
    ".profiling": ("add_category", "mark", "span"),
    ".ui": ("ClusterCard", "Dashboard", "Panel", "Tuner", "app", "compare", "html_report"),
    ".errors": ("GcylonError",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_INSTEAD = {  # of functions of pandas and polars
    "DataFrame": "lab.from_pandas(frame)",
    "Series": "lab.from_pandas(frame)",
    "from_dict": "lab.from_columns({'x': [1, 2]})",
    "date_range": "pd.date_range(...), and lab.from_pandas(frame)",
    "element": "gl.col('x')",
    "get_dummies": "t.assign(a=(t.x == 'a').astype('int64')) for each value",
    "isna": "t.x.isna()",
    "isnull": "t.x.isna()",
    "len": "t.groupby('k').size(), or len(t)",
    "melt": "t.melt(id_vars, value_vars)",
    "notna": "t.x.notna()",
    "pivot_table": "t.pivot_table(values, index, columns)",
    "read_excel": "lab.from_pandas(pd.read_excel(path))",
    "read_feather": "lab.read_ipc(paths)",
    "read_pickle": "lab.from_pandas(pd.read_pickle(path))",
    "read_sql": "lab.from_pandas(pd.read_sql(query, connection))",
    "read_table": "lab.read_csv(paths, sep='\\t')",
    "scan_csv": "lab.read_csv(paths)",
    "scan_ndjson": "lab.read_json(paths)",
    "scan_parquet": "lab.read_parquet(paths)",
    "sql": "t.query(text), or DuckDB, which takes t.to_arrow(limit)",
    "to_timedelta": "t.x.astype('timedelta64[us]')",
    "unique": "t.x.unique()",
    **{name: f"t.x.{name}(), or t.groupby('k').agg(y=('x', '{name}'))" for name in ("sum", "mean", "min", "max")},
    "qcut": "gl.cut(t.x, list(t.x.quantile([0, 0.5, 1])), include_lowest=True)",
    "to_datetime": "t.x.astype('datetime64[us]'), or parse_dates= of read_csv",
    "to_numeric": "t.x.astype('float64')",
}
_MODULES = ("config", "errors", "units", "profiling")

if TYPE_CHECKING:
    from . import config, errors, profiling, units
    from .api.estimate import estimate
    from .api.frames.functions import crosstab, cut, merge, merge_asof
    from .api.interchange.appender import Appender, empty
    from .api.interchange.sources import from_arrow, from_columns
    from .api.readers import from_local, from_pandas, read_csv, read_ipc, read_json, read_parquet
    from .api.table import Table
    from .api.verbs.sets import concat
    from .backends.kernels.kernel import kernel
    from .backends.protocol.expressions import col, lit, when
    from .bench.benchmark import Benchmark
    from .cluster.client.cluster import Cluster
    from .cluster.handles.handle import DistTable
    from .config import GcylonConfig
    from .errors import GcylonError
    from .profiling import add_category, mark, span
    from .runtime.context import current, initialize, run_threads
    from .runtime.device_status import device_status
    from .runtime.user_budget import budget
    from .ui import ClusterCard, Dashboard, Panel, Tuner, app, compare, html_report

__all__ = [
    "Appender",
    "Benchmark",
    "Cluster",
    "ClusterCard",
    "Dashboard",
    "DistTable",
    "GcylonConfig",
    "GcylonError",
    "Panel",
    "Table",
    "Tuner",
    "__version__",
    "add_category",
    "app",
    "budget",
    "col",
    "compare",
    "concat",
    "config",
    "crosstab",
    "current",
    "cut",
    "empty",
    "device_status",
    "errors",
    "from_arrow",
    "from_columns",
    "estimate",
    "from_local",
    "from_pandas",
    "html_report",
    "initialize",
    "kernel",
    "lit",
    "mark",
    "merge",
    "merge_asof",
    "profiling",
    "read_csv",
    "read_ipc",
    "read_json",
    "read_parquet",
    "run_threads",
    "span",
    "units",
    "when",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _HOME_OF:
        from .config import nearest

        meant = "" if name.startswith("_") else nearest(name, __all__)
        instead = f": use {_INSTEAD[name]}" if name in _INSTEAD else f": did you mean {meant!r}?" if meant else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{instead}")
    value = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Give a shell the magics ``%lab``, ``%lab_plan`` and ``%%lab_profile``; what ``%load_ext gcylon_lab`` calls."""
    import_module(".ui.magics", __name__).load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away again; clusters go on."""
    import_module(".ui.magics", __name__).unload(shell)
