"""Reading files and writing them: what ranks share out among themselves, and each one's chunks."""

from __future__ import annotations

from .arrow_tables import from_arrow, to_arrow
from .csv_files import CsvPlan, plan_csv, read_csv_chunks
from .filesystems import Storage
from .ipc_files import IpcPlan, plan_ipc, read_ipc_chunks
from .json_files import JsonPlan, plan_json, read_json_chunks
from .parquet_files import read_parquet_chunks
from .parquet_plans import ParquetPlan, plan_parquet
from .parquet_writing import prepare_folder, remove_leftovers, write_parquet

__all__ = [
    "CsvPlan", "IpcPlan", "JsonPlan", "ParquetPlan", "from_arrow", "plan_csv", "plan_json", "plan_parquet", "prepare_folder",
    "read_csv_chunks", "read_json_chunks", "read_parquet_chunks", "remove_leftovers", "to_arrow", "write_parquet",
]  # fmt: skip
