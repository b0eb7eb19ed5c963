"""What ranks recorded, for OpenTelemetry and Prometheus: no arguments, no texts of errors, no values."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...errors import ArgumentError, ClusterError, GcylonError
from ...profiling import PHASES
from ...profiling.snapshot import RankSnapshot
from ...urls import without_secrets

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Tracer

    from .feed import Feed

log = logging.getLogger(__name__)

_TIMEOUT_S = 3.0
_REASON = re.compile(r"(?:\[Errno -?\d+\]|reason:) ([\w ]+)")
_SERVICE = "gcylon_lab"
_COUNTS = (
    "rounds", "rows_in", "rows_out", "bytes_in", "bytes_out", "sent_bytes", "received_bytes", "staged_bytes",
    "unstaged_bytes", "budget_bytes", "predicted_peak_bytes", "measured_peak_bytes",
)  # fmt: skip
_TIERS = {"device": "used_bytes", "pinned": "pinned_bytes", "disk": "disk_bytes"}


class _Delivery:
    """Whether what is sent is received: told once where it is not, and not at each try as OpenTelemetry does.

    Parameters
    ----------
    endpoint : str
        What a person may see of it.
    every_s : float
        Seconds between two tries.
    """

    def __init__(self, endpoint: str, every_s: float) -> None:
        self._endpoint, self._every_s = endpoint, every_s
        self._here = threading.local()
        self._exporters: list[Any] = []
        self._loggers: list[logging.Logger] = []
        self._missed = False

    def exporter(self, kind: type[Any], **how: Any) -> Any:
        """Make an exporter of a class of OpenTelemetry's that tells here how it goes."""
        delivery = self

        class Watched(kind):  # type: ignore[misc]
            def export(self, *args: Any, **kwargs: Any) -> Any:
                said: list[Any] = []
                delivery._here.said = said
                try:
                    result = super().export(*args, **kwargs)
                finally:
                    delivery._here.said = None
                delivery._note(result.name == "SUCCESS", said)
                return result

        self._exporters.append(Watched(**how))
        self._loggers.append(logging.getLogger(kind.__module__))
        self._loggers[-1].addFilter(self._is_of_others)
        return self._exporters[-1]

    def _is_of_others(self, record: logging.LogRecord) -> bool:
        said = getattr(self._here, "said", None)
        if said is not None:
            said.append(record.getMessage())
        return said is None

    def _note(self, received: bool, said: Sequence[str]) -> None:
        if not received and not self._missed:
            why = next((found[1] for text in said if (found := _REASON.search(text))), said[0][:200] if said else "")
            log.warning(
                "What the ranks record is not received at %s%s. It is tried again every %g s, and what was sent "
                "until then is lost. This is said once.",
                self._endpoint, f" ({why})" if why else "", self._every_s,
            )  # fmt: skip
        self._missed = not received
        self.try_again(received)

    def try_again(self, again: bool) -> None:
        """Whether what is not received is tried again soon, which is waited for, or only at the next time."""
        for exporter in self._exporters:
            # What ends OpenTelemetry's wait between two tries; without it, it takes its time-out.
            event = getattr(getattr(exporter, "_client", None), "_shutdown_event", None)
            if event is not None:
                (event.clear if again else event.set)()

    def close(self) -> None:
        """Let OpenTelemetry's own messages pass."""
        for logger in self._loggers:
            logger.removeFilter(self._is_of_others)


class MetricsExport:
    """Sends what ranks record from now on, until it or its cluster is closed. Made by `Cluster.export_metrics`.

    Parameters
    ----------
    name : str
        The cluster's.
    feed : Feed
    generation : callable
        How often the ranks were started: their operations are numbered anew then.
    endpoint, prometheus, prometheus_host, every_s
        As of `Cluster.export_metrics`.
    """

    def __init__(
        self,
        name: str,
        feed: Feed,
        generation: Callable[[], int],
        *,
        endpoint: str | None,
        prometheus: int | None,
        prometheus_host: str,
        every_s: float,
    ) -> None:
        _check(endpoint, prometheus, every_s)
        self._name, self._feed, self._generation, self._endpoint = name, feed, generation, endpoint
        self._token = secrets.token_hex(8)  # so that two exports make no trace of the same number
        self._lock = threading.Lock()
        self._seen: set[tuple[Any, ...]] = set()
        self._epoch: tuple[int, int] = (-1, 0)
        self._latest: Sequence[RankSnapshot] = ()
        self._tracers: dict[tuple[int, int], tuple[Tracer, Any]] = {}
        self._throughput: dict[tuple[int, str], float] = {}
        self._server: Any = None
        self._delivery: _Delivery | None = None
        self.url = ""
        try:
            self._open(prometheus, prometheus_host, every_s)
        except ImportError as error:
            advice = "pip install 'gcylon-lab[otel]'"
            raise GcylonError(f"export_metrics needs OpenTelemetry's SDK: {error}.", advice=advice) from error
        self._seen = {self._key(s, row) for s in feed.snapshots() for row in s["operations"] if row["end_ns"]}
        self._unsubscribe = feed.subscribe(self._record)

    def _open(self, prometheus: int | None, host: str, every_s: float) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from prometheus_client import CollectorRegistry, start_http_server

        readers: list[MetricReader] = []
        if prometheus is not None:
            registry = CollectorRegistry()
            readers.append(PrometheusMetricReader(registry=registry))
            try:
                self._server, _ = start_http_server(prometheus, host, registry)
            except OSError as error:
                raise ClusterError(
                    f"The page cannot be served at {host}:{prometheus}: {error.strerror}.",
                    advice="Give another port, or prometheus=0 for a free one.",
                ) from error
            shown = f"[{host}]" if ":" in host else host
            self.url = f"http://{shown}:{self._server.server_port}/metrics"
        self._processor: Any = None
        if self._endpoint is not None:
            base = self._endpoint.rstrip("/")
            self._delivery = delivery = _Delivery(without_secrets(self._endpoint), every_s)
            exporter = delivery.exporter(OTLPMetricExporter, endpoint=f"{base}/v1/metrics", timeout=_TIMEOUT_S)
            readers.append(PeriodicExportingMetricReader(exporter, export_interval_millis=1000 * every_s))
            spans = delivery.exporter(OTLPSpanExporter, endpoint=f"{base}/v1/traces", timeout=_TIMEOUT_S)
            self._processor = BatchSpanProcessor(spans, schedule_delay_millis=1000 * every_s)
        resource = Resource.create({"service.name": _SERVICE, "service.instance.id": self._name})
        self._meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        meter = self._meters.get_meter(_SERVICE)
        self._duration = meter.create_histogram("gcylon.operation.duration", "s", "Time of an operation on a rank")
        self._count = meter.create_counter("gcylon.operations", "{operation}", "Operations that ended on a rank")
        self._bytes = meter.create_counter("gcylon.operation.input", "By", "Bytes that operations took in on a rank")
        meter.create_observable_gauge(
            "gcylon.operation.throughput", [self._throughputs], "By/s",
            "Bytes that the latest operation of a verb took in on a rank, over its time",
        )  # fmt: skip
        meter.create_observable_gauge("gcylon.memory.used", [self._used], "By", "Memory of a rank's tables by tier")
        meter.create_observable_gauge("gcylon.memory.limit", [self._limits], "By", "The budget of a rank")

    # --- what is told ---

    def _record(self, snapshots: Sequence[RankSnapshot]) -> None:
        with self._lock:
            self._latest = snapshots
            generation, now = self._generation(), time.time_ns()
            # Answers take a moment on their way: the least difference is the truest.
            offset = min(now - snapshot["now_ns"] for snapshot in snapshots)
            if self._epoch[0] == generation:
                offset = min(offset, self._epoch[1])
            self._epoch = generation, offset
            ended = [(s, row) for s in snapshots for row in s["operations"] if row["end_ns"]]
            for snapshot, row in ended:
                if self._key(snapshot, row) not in self._seen:
                    self._tell(snapshot, row, offset)
            self._seen = {self._key(snapshot, row) for snapshot, row in ended}

    def _key(self, snapshot: RankSnapshot, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return snapshot["rank"], snapshot["pid"], row["number"], row["verb"]

    def _tell(self, snapshot: RankSnapshot, row: Mapping[str, Any], offset: int) -> None:
        rank, seconds = snapshot["rank"], (row["end_ns"] - row["start_ns"]) / 1e9
        labels = {"rank": rank, "verb": row["verb"], "outcome": _outcome(row)}
        self._duration.record(seconds, labels)
        self._count.add(1, labels)
        self._bytes.add(row["bytes_in"], {"rank": rank, "verb": row["verb"]})
        if seconds > 0 and not row["error"]:
            self._throughput[rank, row["verb"]] = row["bytes_in"] / seconds
        if self._processor is not None:
            self._trace(snapshot, row, offset)

    def _trace(self, snapshot: RankSnapshot, row: Mapping[str, Any], offset: int) -> None:
        from opentelemetry import trace

        tracer, ids = self._tracer(snapshot)
        rank = snapshot["rank"]
        whole = f"{self._token}/{self._epoch[0]}/{row['number']}/{row['verb']}"
        ids.trace, ids.span = _id(whole, 16), _id(f"{whole}/{rank}", 8)
        parent = None
        if rank:  # one trace an operation: rank 0's span, and the others' under it
            first = trace.SpanContext(
                ids.trace, _id(f"{whole}/0", 8), is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
            )
            parent = trace.set_span_in_context(trace.NonRecordingSpan(first))
        attributes: dict[str, Any] = {f"gcylon.{name}": row[name] for name in ("number", "strategy", *_COUNTS)}
        attributes |= {f"gcylon.phase.{name}_s": row["phases"][name] / 1e9 for name in PHASES if name in row["phases"]}
        span = tracer.start_span(row["verb"], parent, attributes=attributes, start_time=row["start_ns"] + offset)
        if row["error"]:
            span.set_attribute("error.type", _outcome(row))
            span.set_status(trace.StatusCode.ERROR)
        span.end(row["end_ns"] + offset)

    def _tracer(self, snapshot: RankSnapshot) -> tuple[Tracer, Any]:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        class Ids(RandomIdGenerator):  # type: ignore[misc]
            trace = span = 0

            def generate_trace_id(self) -> int:
                return self.trace

            def generate_span_id(self) -> int:
                return self.span

        rank, pid = snapshot["rank"], snapshot["pid"]
        if (rank, pid) not in self._tracers:
            about = {
                "service.name": _SERVICE, "service.instance.id": f"{self._name}/{rank}", "host.name": snapshot["host"],
                "process.pid": pid, "gcylon.cluster": self._name, "gcylon.rank": rank,
            }  # fmt: skip
            provider = TracerProvider(resource=Resource.create(about), id_generator=Ids(), shutdown_on_exit=False)
            provider.add_span_processor(self._processor)
            self._tracers[rank, pid] = provider.get_tracer(_SERVICE), provider.id_generator
        return self._tracers[rank, pid]

    def _throughputs(self, _: Any) -> Iterator[Any]:
        from opentelemetry.metrics import Observation

        for (rank, verb), rate in list(self._throughput.items()):
            yield Observation(rate, {"rank": rank, "verb": verb})

    def _used(self, _: Any) -> Iterator[Any]:
        from opentelemetry.metrics import Observation

        for snapshot in self._latest:
            samples = snapshot["samples"]
            for tier, column in _TIERS.items() if samples["t_ns"] else ():
                yield Observation(samples[column][-1], {"rank": snapshot["rank"], "tier": tier})

    def _limits(self, _: Any) -> Iterator[Any]:
        from opentelemetry.metrics import Observation

        for snapshot in self._latest:
            if snapshot["limit_bytes"]:
                yield Observation(snapshot["limit_bytes"], {"rank": snapshot["rank"]})

    # --- its end ---

    def flush(self) -> None:
        """Fetch what the ranks have recorded by now, and send it."""
        self._record(self._feed.snapshots())
        if self._processor is not None:
            self._processor.force_flush(int(1000 * _TIMEOUT_S))
            self._meters.force_flush(1000 * _TIMEOUT_S)

    def close(self) -> None:
        """Send the rest, and stop. Idempotent."""
        unsubscribe, self._unsubscribe = self._unsubscribe, _nothing
        if unsubscribe is _nothing:
            return
        unsubscribe()
        try:
            self._record(self._feed.snapshots())
        finally:
            if self._delivery is not None:
                self._delivery.try_again(False)
            if self._processor is not None:
                self._processor.shutdown()
            self._meters.shutdown(1000 * _TIMEOUT_S)
            if self._delivery is not None:
                self._delivery.close()
            if self._server is not None:
                self._server.shutdown()
                self._server.server_close()

    def __repr__(self) -> str:
        to = [without_secrets(self._endpoint)] if self._endpoint else []
        state = ", closed" if self._unsubscribe is _nothing else ""
        return f"<MetricsExport of {self._name!r} to {' and '.join([*to, *([self.url] if self.url else [])])}{state}>"


def _nothing() -> None:
    """Stands for a subscription that has ended."""


def _check(endpoint: str | None, prometheus: int | None, every_s: float) -> None:
    if endpoint is None and prometheus is None:
        raise ArgumentError(
            "Expected an endpoint or a port for prometheus, got neither.",
            advice='Give for example "http://localhost:4318", or prometheus=9464.',
        )
    if endpoint is not None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ArgumentError(
                f"endpoint={without_secrets(endpoint)!r} is invalid. Expected the URL of an OTLP/HTTP receiver.",
                advice='Give for example "http://localhost:4318": /v1/traces and /v1/metrics are added.',
            )
    if prometheus is not None and not 0 <= prometheus < 65536:
        raise ArgumentError(f"prometheus={prometheus} is out of range [0, 65536).")
    if not every_s > 0:
        raise ArgumentError(f"every_s={every_s} is out of range (0, inf).")


def _outcome(row: Mapping[str, Any]) -> str:
    """The class of an operation's error, "ok" without one: what it says may hold values."""
    found = re.match(r"\w+", row["error"])
    return found[0] if found else "ok"


def _id(text: str, size: int) -> int:
    """A number of so many bytes that is the same for the same text, and not 0."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest()) or 1
