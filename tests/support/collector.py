"""A collector for tests: receives OTLP over HTTP, and decodes it with the published protobuf messages."""

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.waiting import until


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as received. Ids are hexadecimal digits, and times are nanoseconds since 1970."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    started_at: int
    ended_at: int
    attributes: Mapping[str, str | int]
    is_failed: bool


@dataclass(slots=True)
class Collector:
    port: int = 0
    status: int = 200
    """The status of the responses. Spans of a request with another status than 200 are not kept."""
    is_stuck: bool = False
    """Whether requests get no response, until the collector stops."""
    spans: list[ReceivedSpan] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request, with names in lower case."""
    raw: list[bytes] = field(default_factory=list)
    """The decompressed bodies of the requests."""
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, *names: str) -> list[ReceivedSpan]:
        """All spans, once there is at least one with each of these names for each time that it is named."""

        def complete() -> list[ReceivedSpan] | None:
            spans = list(self.spans)
            received = [span.name for span in spans]
            return spans if all(received.count(name) >= names.count(name) for name in names) else None

        return until(complete, lambda: f"spans {names} arrive; there are {[span.name for span in self.spans]}")


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Channel(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            collector.raw.append(body)
            if collector.is_stuck:
                collector.stopping.wait()
            status = collector.status if self.path == "/v1/traces" else 404
            if status == 200:
                collector.spans += list(spans_of(body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Channel) as server:
        server.daemon_threads = True
        collector.port = server.server_port
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield collector
        finally:
            collector.stopping.set()
            server.shutdown()
            serving.join()


def spans_of(body: bytes) -> Iterator[ReceivedSpan]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    service=str(service),
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_span_id=span.parent_span_id.hex(),
                    started_at=span.start_time_unix_nano,
                    ended_at=span.end_time_unix_nano,
                    attributes=_values(span.attributes),
                    is_failed=span.status.code == span.status.STATUS_CODE_ERROR,
                )


def _values(attributes: Any) -> dict[str, str | int]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
