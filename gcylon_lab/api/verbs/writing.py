"""Verbs that write files: write_parquet, write_csv, write_json, write_ipc."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...backends.protocol.scalars import check_choice
from ...config import GcylonConfig
from ...engine.exec.invocation import Request, RunOptions, check_labels
from ...formats import io
from ...formats.filesystems import plain_path
from ...formats.reader_options import check_delimiter, column_list, storage_of
from ...operators.io.write import write_files
from .base import Verbs


class WritingVerbs(Verbs):
    """write_parquet, write_csv, write_json, write_ipc."""

    def write_parquet(
        self,
        path: str,
        *,
        partition_on: str | Sequence[str] = (),
        compression: str = "snappy",
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        config: GcylonConfig | None = None,
    ) -> list[str]:
        """Collective: all ranks call it. Write parquet files into a folder, one a rank.

        Parameters
        ----------
        path : str
            The folder, or the URL of one; made where it is missing.
        partition_on : str or sequence of str, optional
            Columns that stand in the names of folders, ``key=value``, and not in the files: one file a rank for each
            of their values. Read again, they are the last columns, and rows are in the order of the folders.
        compression : str, default "snappy"
            snappy, zstd, gzip, brotli, lz4 or none.
        overwrite : bool, default False
            Replace a table of the same format that was written there. Otherwise that is an error, on all ranks.
            Files that are not parts of a table are never replaced.
        storage_options : mapping, optional
            For the filesystem of a URL, as fsspec takes them.
        config : GcylonConfig, optional
            The same on all ranks; rank 0's live one by default.

        Returns
        -------
        list of str
            This rank's files: ``part-00000.parquet`` of rank 0, and so on.

        Raises
        ------
        WriteError
            On all ranks, if something stands there already, or one could not write. Nothing that stood there has
            changed then: files get their names once all ranks have written theirs.
        UnsupportedDtype
            If the format cannot hold a column.
        """
        check_choice("compression", compression, ("snappy", "zstd", "gzip", "brotli", "lz4", "none"))
        keys = column_list("partition_on", partition_on) or []
        form = io.parquet_format(compression=compression, partition_on=keys)
        options = {"partition_on": keys, "compression": compression}
        return self._write("write_parquet", path, form, options, overwrite, storage_options, config)

    def write_csv(
        self,
        path: str,
        *,
        delimiter: str = ",",
        header: bool = True,
        compression: str | None = None,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        config: GcylonConfig | None = None,
    ) -> list[str]:
        """Collective: all ranks call it. Write csv files into a folder, one a rank.

        Parameters
        ----------
        path : str
            The folder, or the URL of one; made where it is missing.
        delimiter : str, default ","
        header : bool, default True
            Whether the first line of each file names the columns.
        compression : str, optional
            gzip, bz2, zstd, lz4 or brotli; the files' names say so.
        overwrite, storage_options, config
            As for `write_parquet`.

        Returns
        -------
        list of str
            This rank's file: ``part-00000.csv`` of rank 0, and so on.

        Raises
        ------
        WriteError, UnsupportedDtype
            As for `write_parquet`; bytes, lists, structs and maps are refused.

        Notes
        -----
        Text has no dtypes: read again, ints are 64 bits wide, times are text unless ``parse_dates`` names them (those
        with a zone are then in UTC), timedeltas are counts of their unit, decimals are floats, categories are text,
        and text such as ``""``, ``NA`` or ``null`` is missing.

        Text is written as it is, as pandas writes it. Spreadsheets take text that begins with ``=``, ``+``, ``-`` or
        ``@``, or with a tab before one of them, for a formula and may run it: where such a program opens what others
        have typed, put an apostrophe before it first, as in ``gl.lit("'") + gl.col("x")``.
        """
        form = io.csv_format(delimiter=check_delimiter(delimiter), header=header, compression=compression)
        options = {"delimiter": delimiter, "header": header, "compression": compression}
        return self._write("write_csv", path, form, options, overwrite, storage_options, config)

    def write_json(
        self,
        path: str,
        *,
        compression: str | None = None,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        config: GcylonConfig | None = None,
    ) -> list[str]:
        """Collective: all ranks call it. Write files of one JSON object a line into a folder, one a rank.

        Parameters
        ----------
        path : str
            The folder, or the URL of one; made where it is missing.
        compression : str, optional
            As for `write_csv`.
        overwrite, storage_options, config
            As for `write_parquet`.

        Returns
        -------
        list of str
            This rank's file: ``part-00000.jsonl`` of rank 0, and so on.

        Raises
        ------
        WriteError, UnsupportedDtype
            As for `write_parquet`; infinities and bytes are refused.

        Notes
        -----
        Read again, ints are 64 bits wide, times are text unless ``parse_dates`` names them, timedeltas are counts of
        their unit, decimals and categories are text. A table without rows loses its columns.
        """
        form = io.json_format(compression=compression)
        return self._write("write_json", path, form, {"compression": compression}, overwrite, storage_options, config)

    def write_ipc(
        self,
        path: str,
        *,
        stream: bool = False,
        compression: str | None = None,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        config: GcylonConfig | None = None,
    ) -> list[str]:
        """Collective: all ranks call it. Write Arrow IPC files (Feather) into a folder, one a rank.

        Parameters
        ----------
        path : str
            The folder, or the URL of one; made where it is missing.
        stream : bool, default False
            Write the stream format instead, which is read from its beginning only.
        compression : str, optional
            lz4 or zstd.
        overwrite, storage_options, config
            As for `write_parquet`.

        Returns
        -------
        list of str
            This rank's file: ``part-00000.arrow`` of rank 0, ``.arrows`` where it is a stream, and so on.

        Raises
        ------
        WriteError, UnsupportedDtype
            As for `write_parquet`.
        """
        check_choice("compression", compression, (None, "lz4", "zstd"))
        form = io.ipc_format(stream=stream, compression=compression)
        options = {"stream": stream, "compression": compression}
        return self._write("write_ipc", path, form, options, overwrite, storage_options, config)

    def _write(
        self,
        verb: str,
        path: str,
        form: io.Format,
        options: Mapping[str, Any],
        overwrite: bool,
        storage_options: Mapping[str, Any] | None,
        config: GcylonConfig | None,
    ) -> list[str]:
        storage = storage_of(path, storage_options)
        part, folder = self._live(), plain_path(path).rstrip("/") or "/"
        said = {"path": str(path), **options, "overwrite": overwrite}
        if storage.options:
            said["storage_options"] = sorted(storage.options)

        def check() -> None:
            check_labels(options.get("partition_on", ()), part.schema.names)

        request = Request(verb, said, part, RunOptions(config=config), check)
        return write_files(self._workspace, request, folder, form, storage, overwrite=overwrite)
