"""Files by URL: what is read and written there is what local files would be."""

from __future__ import annotations

import contextlib
import http.server
import importlib.util
import io
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from reading import read_all

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, GcylonError, ReadError, WriteError
from gcylon_lab.formats.filesystems import Storage, fixed_part, is_url, plain_path
from gcylon_lab.formats.io import (
    plan_csv,
    plan_json,
    plan_parquet,
    read_csv_chunks,
    read_json_chunks,
    read_parquet_chunks,
)
from gcylon_lab.formats.read_plans import expand_paths
from gcylon_lab.runtime.context import run_threads

fsspec = pytest.importorskip("fsspec")
FRAME = pd.DataFrame({"a": range(2000), "s": [f"text {i}" for i in range(2000)]})


@pytest.fixture
def memory() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    yield files
    for name in ("/t", "/u"):
        with contextlib.suppress(FileNotFoundError):
            files.rm(name, recursive=True)


def test_paths_and_urls() -> None:
    assert plain_path("file:///a/b") == "/a/b" and plain_path("s3://b/c/") == "s3://b/c"
    assert is_url("s3://b") and is_url("simplecache::http://x") and not is_url("a:b") and not is_url("c/d://e")
    assert fixed_part("a/b*/c") == "a" and fixed_part("memory://x/k=*/y") == "memory://x"
    assert "secret" not in repr(Storage({"key": "secret"}))


def test_names_folders_and_patterns(memory: Any) -> None:
    for name in ("b.csv", "a.csv", "_SUCCESS", ".a.csv.crc", "sub/c.csv", "_log/d.csv", "note.md"):
        memory.pipe(f"/t/{name}", b"a\n1\n")

    def found(paths: Any) -> list[str]:
        return expand_paths(paths, (".csv",))

    assert found("memory://t") == ["memory://t/a.csv", "memory://t/b.csv", "memory://t/sub/c.csv"]
    assert found("memory://t/*.csv") == ["memory://t/a.csv", "memory://t/b.csv"]
    assert found(["memory://t/b.csv", "memory://t/s*"]) == ["memory://t/b.csv", "memory://t/sub/c.csv"]
    with pytest.raises(ReadError, match="no file matches memory://t/"):
        found("memory://t/*.none")


@pytest.mark.parametrize("size", [1, 3])
def test_tables_go_there_and_back(memory: Any, size: int) -> None:
    def there() -> list[tuple[pd.DataFrame, int]]:
        table = gl.from_pandas(FRAME)
        seen = []
        for kind in ("parquet", "csv", "json", "ipc"):
            write, read = getattr(table, f"write_{kind}"), getattr(gl, f"read_{kind}")
            files = write(f"memory://t/{kind}")
            write(f"memory://t/{kind}/", overwrite=True, storage_options={"skip_instance_cache": True})
            seen.append((read(f"memory://t/{kind}", filters=gl.col("a") > 99).to_pandas(), len(files)))
        with pytest.raises(WriteError, match="already holds"):
            table.write_csv("memory://t/csv")
        return seen

    for frame, files in run_threads(size, there)[0]:
        pd.testing.assert_frame_equal(frame, FRAME.iloc[100:].reset_index(drop=True))
        assert files == 1
    assert len(memory.find("/t")) == 4 * size


def test_compressed_files_and_lines_of_errors(memory: Any, tmp_path: Path) -> None:
    text = "a,b\n" + "1,2\n" * 3000 + "3,x\n"
    with fsspec.open("memory://t/x.csv.gz", "wt", compression="gzip") as file:
        file.write(text)
    (tmp_path / "x.csv").write_text(text)
    for path in ("memory://t/x.csv.gz", str(tmp_path / "x.csv")):
        with pytest.raises(ReadError, match=rf"{re.escape(path)} cannot be read at line 3002: .*'x'") as caught:
            read_all(plan_csv(path, 2, dtype={"b": "int64"}), read_csv_chunks, max_bytes=20_000)
        assert caught.value.numbers["line"] == 3002
    memory.pipe("/t/x.jsonl", b'{"a": 1}\n\n' * 3000 + b'{"a": \n')
    with pytest.raises(ReadError, match="cannot be read at line 6001"):
        read_all(plan_json("memory://t/x.jsonl", 3), read_json_chunks, max_bytes=20_000)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nonsense://x/a.csv", "Protocol not known: nonsense"), ("memory://t/none.csv", "there is no file memory://t/none"),
        ("s3://bucket/a.csv", "s3fs|credentials|cannot be"),
    ],
)  # fmt: skip
def test_what_cannot_be_reached_is_named(path: str, words: str) -> None:
    if path.startswith("s3") and importlib.util.find_spec("s3fs"):
        pytest.skip("s3fs is there")
    with pytest.raises(GcylonError, match=words):
        plan_csv(path, 1)


def test_without_fsspec_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ArgumentError, match=r"fsspec.*not installed.*gcylon-lab\[remote\]"):
        plan_csv("memory://t/a.csv", 1)


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Gives parts of files, as servers of data do."""

    ranges = True

    def log_message(self, *_: Any) -> None:
        pass

    def send_head(self) -> Any:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not (wanted and self.ranges):
            return super().send_head()
        data = Path(self.translate_path(self.path)).read_bytes()
        part = data[int(wanted[1]) : int(wanted[2]) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {wanted[1]}-{int(wanted[1]) + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        return io.BytesIO(part)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    pytest.importorskip("aiohttp")

    class Here(Ranges):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, directory=str(tmp_path), **more)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Here) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}", Here
        running.shutdown()
        thread.join()


def test_files_over_http(server: Any, tmp_path: Path) -> None:
    url, kind = server
    FRAME.to_csv(tmp_path / "x.csv", index=False)
    FRAME.to_parquet(tmp_path / "x.parquet", row_group_size=300)
    pd.testing.assert_frame_equal(read_all(plan_csv(f"{url}/x.csv", 3), read_csv_chunks), FRAME)
    pd.testing.assert_frame_equal(read_all(plan_parquet(f"{url}/*.parquet", 3), read_parquet_chunks), FRAME)
    with pytest.raises(ReadError, match="there is no file"):
        plan_csv(f"{url}/none.csv", 1)
    kind.ranges = False
    with pytest.raises(ReadError, match="no parts of a file.*simplecache::"):
        read_all(plan_csv(f"{url}/x.csv", 3), read_csv_chunks, max_bytes=4000)
    got = read_all(plan_csv(f"simplecache::{url}/x.csv", 3), read_csv_chunks)
    pd.testing.assert_frame_equal(got, FRAME)
