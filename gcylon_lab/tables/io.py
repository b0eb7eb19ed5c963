"""Reading files and writing them: what ranks share out among themselves, and each one's chunks."""

from __future__ import annotations

from .arrow_tables import from_arrow, to_arrow
from .csv_files import CsvPlan, plan_csv, read_csv_chunks
from .csv_writing import csv_format
from .filesystems import Storage
from .ipc_files import IpcPlan, plan_ipc, read_ipc_chunks
from .ipc_writing import ipc_format
from .json_files import JsonPlan, plan_json, read_json_chunks
from .json_writing import json_format
from .parquet_files import read_parquet_chunks
from .parquet_plans import ParquetPlan, plan_parquet
from .parquet_writing import parquet_format
from .part_files import PartFiles
from .row_writers import Format

__all__ = [
    "CsvPlan", "Format", "IpcPlan", "JsonPlan", "ParquetPlan", "PartFiles", "Storage", "csv_format", "from_arrow",
    "ipc_format", "json_format", "parquet_format", "plan_csv", "plan_ipc", "plan_json", "plan_parquet",
    "read_csv_chunks", "read_ipc_chunks", "read_json_chunks", "read_parquet_chunks", "to_arrow",
]  # fmt: skip
