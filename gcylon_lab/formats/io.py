"""Reading files and writing them: what ranks share out among themselves, and each one's chunks."""

from __future__ import annotations

from ..backends.arrow.tables import from_arrow, to_arrow
from .filesystems import Storage
from .ipc_reader import IpcPlan, plan_ipc, read_ipc_chunks
from .ipc_writer import ipc_format
from .parquet.plans import ParquetPlan, plan_parquet
from .parquet.reader import read_parquet_chunks
from .parquet.writer import parquet_format
from .part_files import PartFiles
from .row_writers import Format
from .text.csv_reader import CsvPlan, plan_csv, read_csv_chunks
from .text.csv_writer import csv_format
from .text.json_reader import JsonPlan, plan_json, read_json_chunks
from .text.json_writer import json_format

__all__ = [
    "CsvPlan", "Format", "IpcPlan", "JsonPlan", "ParquetPlan", "PartFiles", "Storage", "csv_format", "from_arrow",
    "ipc_format", "json_format", "parquet_format", "plan_csv", "plan_ipc", "plan_json", "plan_parquet",
    "read_csv_chunks", "read_ipc_chunks", "read_json_chunks", "read_parquet_chunks", "to_arrow",
]  # fmt: skip
