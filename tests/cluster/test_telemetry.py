"""What ranks recorded, as OpenTelemetry's own messages, and on a page that Prometheus itself scrapes."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pytest
from ports import free_port

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, ClusterError, ColumnMissing

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is in the test extra")
pytest.importorskip("opentelemetry.exporter.prometheus", reason="it is in the test extra")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from opentelemetry.proto.trace.v1.trace_pb2 import Status  # noqa: E402

pytestmark = pytest.mark.mpi


class Receiver:
    """An OTLP/HTTP receiver made of the protocol's own messages."""

    def __init__(self) -> None:
        self.traces: list[Any] = []
        self.metrics: list[Any] = []
        kinds = {
            "/v1/traces": (ExportTraceServiceRequest, self.traces),
            "/v1/metrics": (ExportMetricsServiceRequest, self.metrics),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                kind, kept = kinds[self.path]
                kept.append(kind.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def spans(self) -> list[tuple[dict[str, Any], Any]]:
        """Resources as dicts, each with one of its spans."""
        resources = [resource for request in self.traces for resource in request.resource_spans]
        return [
            (plain(one.resource.attributes), span)
            for one in resources
            for scope in one.scope_spans
            for span in scope.spans
        ]

    def points(self, name: str) -> list[Any]:
        """The points of a metric in the latest message that has it."""
        found = [
            metric
            for request in self.metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return list(getattr(found[-1], found[-1].WhichOneof("data")).data_points)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def plain(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


def test_operations_are_traces_of_ranks_and_figures(lab: gl.Cluster, receiver: Receiver) -> None:
    before = lab.from_pandas(pd.DataFrame({"k": range(100), "secret": "hunter2"}))
    before.shuffle("k").release()
    export, began = lab.export_metrics(receiver.url, every_s=60), time.time_ns()
    before.shuffle("secret").release()
    assert len(before.filter(gl.col("secret") == "hunter2")) == 100
    with pytest.raises(ColumnMissing):
        before.shuffle("hunter2")
    export.flush()
    spans = receiver.spans()
    shuffles = [(resource, span) for resource, span in spans if span.name == "shuffle"]
    assert [span.name for _, span in spans if span.name not in ("shuffle", "filter")] == []
    assert sorted(resource["gcylon.rank"] for resource, _ in shuffles) == [0, 0, 1, 1], "none of before"
    for resource, span in spans:
        record = lab.ranks[resource["gcylon.rank"]]
        assert (resource["service.name"], resource["process.pid"]) == ("gcylon_lab", record.pid)
        assert (resource["host.name"], resource["gcylon.cluster"]) == (record.host, lab.name)
        assert began - 10**9 < span.start_time_unix_nano < span.end_time_unix_nano < time.time_ns() + 10**9
    first = min(plain(span.attributes)["gcylon.number"] for _, span in shuffles)
    pair = {r["gcylon.rank"]: s for r, s in shuffles if plain(s.attributes)["gcylon.number"] == first}
    assert pair[0].trace_id == pair[1].trace_id and pair[0].parent_span_id == b""
    assert pair[1].parent_span_id == pair[0].span_id != pair[1].span_id
    assert plain(pair[0].attributes)["gcylon.bytes_in"] > 0 and "gcylon.phase.exchange_s" in plain(pair[0].attributes)
    failed = [span for _, span in shuffles if span.status.code == Status.STATUS_CODE_ERROR]
    assert [plain(span.attributes)["error.type"] for span in failed] == ["ColumnMissing"] * 2
    assert len({span.trace_id for _, span in spans}) == 3
    told = b"".join(message.SerializeToString() for message in (*receiver.traces, *receiver.metrics))
    assert b"hunter2" not in told and b"secret" not in told
    counts = {tuple(sorted(plain(p.attributes).items())): p.as_int for p in receiver.points("gcylon.operations")}
    assert counts[("outcome", "ok"), ("rank", 1), ("verb", "shuffle")] == 1
    assert counts[("outcome", "ColumnMissing"), ("rank", 0), ("verb", "shuffle")] == 1
    durations = receiver.points("gcylon.operation.duration")
    assert sum(point.count for point in durations) == 6 and all(0 < point.sum < 60 for point in durations)
    used = [plain(point.attributes) for point in receiver.points("gcylon.memory.used")]
    tiers = ("device", "pinned", "disk")
    assert {(one["rank"], one["tier"]) for one in used} == {(rank, tier) for rank in range(2) for tier in tiers}
    rates = receiver.points("gcylon.operation.throughput")
    assert {plain(point.attributes)["verb"] for point in rates} == {"shuffle", "filter"}
    assert all(point.as_double > 0 for point in rates)
    export.close()
    sent = len(receiver.traces)
    before.shuffle("k").release()
    lab.snapshots()
    export.close()
    assert len(receiver.traces) == sent and ", closed>" in repr(export)


def wait_for(told: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if found := told():
                return found
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError("it was not told in time")


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def test_prometheus_scrapes_the_page(lab: gl.Cluster, tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus here (Debian's package of that name has it)")
    export = lab.export_metrics(prometheus=0)
    lab.from_pandas(pd.DataFrame({"k": range(100)})).shuffle("k").release()
    export.flush()
    target = export.url.removeprefix("http://").removesuffix("/metrics")
    assert target.startswith("127.0.0.1:") and "gcylon_operations_total{" in read(export.url)
    scrape = {"job_name": "lab", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}))  # JSON is YAML
    port = free_port()
    command = [
        program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:

        def asked(query: str) -> list[dict[str, Any]]:
            answer = json.loads(read(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}"))
            return list(answer["data"]["result"])

        found = wait_for(lambda: asked('gcylon_operations_total{verb="shuffle"}'))
        assert {one["metric"]["rank"]: one["value"][1] for one in found} == {"0": "1", "1": "1"}
        assert {one["metric"]["tier"] for one in asked("gcylon_memory_used_bytes")} == {"device", "pinned", "disk"}
        (median,) = asked("histogram_quantile(0.5, sum by (le) (gcylon_operation_duration_seconds_bucket))")
        assert float(median["value"][1]) > 0
        assert [one["value"][1] for one in asked("up")] == ["1"]
    finally:
        running.terminate()
        running.wait(20)
        export.close()
    with pytest.raises(OSError):
        read(export.url)


def test_it_ends_with_its_cluster_also_where_nobody_receives(
    runtime_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    with gl.Cluster(1, name="told", progress=False) as lab:
        other = lab.export_metrics(f"http://127.0.0.1:{free_port()}", every_s=60)
        lab.from_pandas(pd.DataFrame({"k": range(9)})).shuffle("k").release()
        began = time.monotonic()
        other.close()  # its first message is its last one
        assert time.monotonic() - began < 2
        export = lab.export_metrics(f"http://127.0.0.1:{free_port()}", prometheus=0, every_s=0.2)
        lab.from_pandas(pd.DataFrame({"k": range(9)})).shuffle("k").release()
        export.flush()
        export.flush()
        assert "gcylon_operation_duration_seconds" in read(export.url)
        lab.close()
    said = [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"]
    assert len(said) == 2 and all("is not received at http://127.0.0.1" in text for text in said), said
    with pytest.raises(OSError):
        read(export.url)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("Otel")]


def test_what_cannot_be_exported_to_is_refused(lab: gl.Cluster) -> None:
    with pytest.raises(ArgumentError, match="Expected an endpoint or a port for prometheus, got neither"):
        lab.export_metrics()
    for endpoint in ("localhost:4318", "ftp://x", "http://"):
        with pytest.raises(ArgumentError, match="is invalid. Expected the URL of an OTLP/HTTP receiver"):
            lab.export_metrics(endpoint)
    with pytest.raises(ArgumentError, match=r"prometheus=70000 is out of range \[0, 65536\)"):
        lab.export_metrics(prometheus=70000)
    with pytest.raises(ArgumentError, match="every_s=0 is out of range"):
        lab.export_metrics("http://localhost:4318", every_s=0)
    export = lab.export_metrics(prometheus=0)
    with pytest.raises(ClusterError, match="cannot be served at 127.0.0.1:.*prometheus=0 for a free one"):
        lab.export_metrics(prometheus=int(export.url.split(":")[2].split("/")[0]))
    export.close()
