"""Sends spans to a collector with OTLP over HTTP, the protocol of OpenTelemetry.

The collector may be slow, down or absent: spans wait in a bounded queue, and a thread sends them. If the queue is full,
new spans are dropped and counted. Only this module uses OpenTelemetry.
"""

import gzip
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final
from urllib.parse import unquote

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from hookmill import __version__
from hookmill.app import now_us
from hookmill.app.tls import collector_context
from hookmill.domain.alarm_destination import parsed_url
from hookmill.domain.errors import DestinationUnavailable, HookmillError, Invalid, ReportFailure
from hookmill.domain.secret import SecretValue
from hookmill.domain.trace import SAMPLED, AttributeValue, Span, Tracing
from hookmill.metrics import SPANS, Metrics
from hookmill.outbound import http
from hookmill.outbound.answer_text import quoted_answer
from hookmill.outbound.connection import MessageDeadline

WAITING_MAX: Final = 8_192
"""How many spans may wait to be sent."""
BATCH_SPANS: Final = 512
"""How many spans a request has at most."""
SEND_SECONDS: Final = 1.0
"""The longest time that a span waits for others in the same request."""
TIMEOUT_SECONDS: Final = 5.0
"""The time limit of a request, with all its retries."""
RETRY_AFTER_SECONDS: Final = (0.1, 1.0, 2.0)
"""The pauses before a request is sent again."""
TRANSIENT_STATUSES: Final = frozenset((429, 502, 503, 504))
"""The statuses with which the protocol asks for a retry."""
COMPRESSION_LEVEL: Final = 1
"""The fastest one. Spans are so similar that the slowest one makes them only 4 % smaller, in three times the time."""
CLOSE_SECONDS: Final = 2.0
"""How long a stopping process waits for its last spans to be sent."""
TRACES_PATH: Final = "/v1/traces"


class CollectorUnavailable(HookmillError):
    """The collector did not accept spans."""


class TraceExporter:
    """Sends spans in a thread, from `start` until `close`."""

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        *,
        sample_ratio: float,
        service: str,
        metrics: Metrics,
        report_failure: ReportFailure,
        report_recovery: Callable[[str, str], None],
    ) -> None:
        """`endpoint` is the base URL of the collector. `service` is the name of this kind of process in traces.
        `sample_ratio` is like that of `Tracing`.

        `report_failure` is called once when the collector stops accepting spans, and `report_recovery` when it accepts
        them again.
        """
        self._url = SecretValue(endpoint.removesuffix(TRACES_PATH) + TRACES_PATH)
        self._headers = {
            **headers,
            "content-type": "application/x-protobuf",
            "content-encoding": "gzip",
        }
        self._secrets = [word for value in headers.values() for word in value.split()]
        self._tls = cache(collector_context)
        self.tracing = Tracing(record=self._record, clock=now_us, sample_ratio=sample_ratio)
        """The interface with which the other parts of the service record spans."""
        self._resource = _resource(service)
        self._sent = metrics.number(SPANS, "sent")
        self._failed = metrics.number(SPANS, "failed")
        self._dropped = metrics.number(SPANS, "dropped")
        self._report_failure = report_failure
        self._report_recovery = report_recovery
        self._is_failing = False
        self._waiting: deque[Span] = deque()
        self._wakeup = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        """Start to send spans. Call it after the last fork of this process."""
        self._thread.start()

    def _record(self, span: Span) -> None:
        """Any thread may call this."""
        if len(self._waiting) >= WAITING_MAX:
            self._dropped.add()
            return
        self._waiting.append(span)
        if len(self._waiting) >= BATCH_SPANS:
            self._wakeup.set()

    def close(self) -> None:
        """Try to send the spans that wait, for at most `CLOSE_SECONDS`."""
        self._closing.set()
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            self._wakeup.wait(SEND_SECONDS)
            self._wakeup.clear()
            while self._waiting:
                self._send([self._waiting.popleft() for _ in range(min(BATCH_SPANS, len(self._waiting)))])
            if self._closing.is_set():
                return

    def _send(self, spans: Sequence[Span]) -> None:
        try:
            problem = self._post(gzip.compress(encode(self._resource, spans), COMPRESSION_LEVEL))
        except Exception as error:
            # A fault of a library must not end the thread.
            problem = f"A fault of the type {type(error).__name__}."
        (self._failed if problem else self._sent).add(len(spans))
        if self._is_failing and not problem:
            self._report_recovery("traces", "The collector accepts spans again.")
        elif problem and not self._is_failing:
            self._report_failure(
                "traces",
                CollectorUnavailable(
                    f"The collector did not accept spans, so they are lost. {problem} Check otlp_endpoint and "
                    "otlp_headers, and whether the collector runs. Deliveries and runs are not affected."
                ),
            )
        self._is_failing = bool(problem)

    def _post(self, body: bytes) -> str:
        """Send the request, again after a transient failure. Returns why the collector has not accepted it, or ""."""
        deadline = MessageDeadline(TIMEOUT_SECONDS)
        problem = ""
        for pause_seconds in (*RETRY_AFTER_SECONDS, None):
            try:
                response = http.request("POST", parsed_url(self._url), body, self._headers, deadline, tls=self._tls)
            except (DestinationUnavailable, Invalid) as error:
                problem = str(error)
            else:
                if 200 <= response.status < 300:
                    return ""
                words = quoted_answer(response.body, self._secrets)
                problem = f"It answered with the status {response.status}{f': {words}' if words else ''}."
                if response.status not in TRANSIENT_STATUSES:
                    return problem
            if pause_seconds is None or pause_seconds >= deadline.remaining or self._closing.wait(pause_seconds):
                break
        return problem


def encode(resource: Resource, spans: Sequence[Span]) -> bytes:
    """The body of a request with these spans.

    The messages of the protocol are built directly: with the spans of OpenTelemetry's SDK, this took twelve times as
    much processor time.
    """
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add(resource=resource)
    of_scope = of_resource.scope_spans.add(scope=InstrumentationScope(name="hookmill", version=__version__))
    for span in spans:
        encoded = of_scope.spans.add(
            trace_id=span.trace.trace_id,
            span_id=span.span_id,
            parent_span_id=span.parent_span_id,
            flags=SAMPLED,
            name=span.name,
            kind=_SERVER if span.is_request else _INTERNAL,
            start_time_unix_nano=span.started_at * 1000,
            end_time_unix_nano=span.ended_at * 1000,
        )
        for name, value in span.attributes.items():
            _set_value(encoded.attributes.add(key=name).value, value)
        if span.is_failed:
            encoded.status.code = _FAILED
    return request.SerializeToString()


_SERVER: Final = trace_pb2.Span.SPAN_KIND_SERVER
_INTERNAL: Final = trace_pb2.Span.SPAN_KIND_INTERNAL
_FAILED: Final = trace_pb2.Status.STATUS_CODE_ERROR


def _resource(service: str) -> Resource:
    resource = Resource()
    attributes = {"service.name": service, "service.version": __version__, "host.name": socket.gethostname()}
    for name, value in attributes.items():
        _set_value(resource.attributes.add(key=name).value, value)
    return resource


def _set_value(field: AnyValue, value: AttributeValue) -> None:
    if isinstance(value, int):
        field.int_value = value
    else:
        field.string_value = value


def parse_headers(text: str) -> dict[str, str]:
    """The headers in the setting `otlp_headers`: names and percent-encoded values, such as `a=b,c=d%20e`."""
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
