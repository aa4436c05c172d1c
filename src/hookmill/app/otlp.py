"""Sends spans to a collector with OTLP over HTTP, the protocol of OpenTelemetry.

The collector may be slow, down or absent: spans wait in a bounded queue, and a thread sends them. If the queue is full,
new spans are dropped and counted. Only this module uses OpenTelemetry.
"""

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from hookmill import __version__
from hookmill.app import now_us
from hookmill.domain.errors import HookmillError, ReportFailure
from hookmill.domain.trace import Span, Tracing
from hookmill.metrics import SPANS, Metrics

WAITING_MAX: Final = 8_192
"""How many spans may wait to be sent."""
BATCH_SPANS: Final = 512
"""How many spans a request has at most."""
SEND_SECONDS: Final = 1.0
"""The longest time that a span waits for others in the same request."""
TIMEOUT_SECONDS: Final = 5.0
"""The time limit of a request, with all its retries."""
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
        # Without a handler, the library would print lines that are not in the service's log format.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        logging.getLogger("opentelemetry").propagate = False
        self._exporter: SpanExporter = OTLPSpanExporter(
            endpoint=endpoint.removesuffix(TRACES_PATH) + TRACES_PATH,
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            compression=Compression.Gzip,
        )
        self.tracing = Tracing(record=self._record, clock=now_us, sample_ratio=sample_ratio)
        """What the other parts of the service need to record spans."""
        self._converter = _SpanConverter(service)
        self._sent = metrics.number(SPANS, "sent")
        self._failed = metrics.number(SPANS, "failed")
        self._dropped = metrics.number(SPANS, "dropped")
        self._report_failure = report_failure
        self._report_recovery = report_recovery
        self._is_failing = False
        self._waiting: deque[Span] = deque()
        self._wakeup = threading.Event()
        self._is_closing = False
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
        self._is_closing = True
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        self._exporter.shutdown()

    def _run(self) -> None:
        while True:
            self._wakeup.wait(SEND_SECONDS)
            self._wakeup.clear()
            while self._waiting:
                self._send([self._waiting.popleft() for _ in range(min(BATCH_SPANS, len(self._waiting)))])
            if self._is_closing:
                return

    def _send(self, spans: Sequence[Span]) -> None:
        is_sent = False
        # A fault of the library must not end the thread.
        with suppress(Exception):
            is_sent = self._exporter.export(self._converter.convert(spans)) is SpanExportResult.SUCCESS
        (self._sent if is_sent else self._failed).add(len(spans))
        if is_sent and self._is_failing:
            self._report_recovery("traces", "The collector accepts spans again.")
        elif not is_sent and not self._is_failing:
            # The library's text may contain the URL.
            self._report_failure(
                "traces",
                CollectorUnavailable(
                    "The collector did not accept spans, so they are lost. Check otlp_endpoint and otlp_headers, and "
                    "whether the collector runs. Deliveries and runs are not affected."
                ),
            )
        self._is_failing = not is_sent


class _SpanConverter:
    """Converts spans to those of OpenTelemetry. Only one thread may use it."""

    def __init__(self, service: str) -> None:
        self._ids = _DerivedIds()
        self._collected = _CollectedSpans()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource(
                {"service.name": service, "service.version": __version__, "host.name": socket.gethostname()}
            ),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._collected)
        self._tracer = provider.get_tracer("hookmill", __version__)

    def convert(self, spans: Sequence[Span]) -> Sequence[ReadableSpan]:
        for span in spans:
            self._convert(span)
        return self._collected.take()

    def _convert(self, span: Span) -> None:
        self._ids.trace_id = int.from_bytes(span.trace.trace_id, "big")
        self._ids.span_id = int.from_bytes(span.span_id, "big")
        context = None
        if span.parent_span_id is not None:
            parent = SpanContext(
                self._ids.trace_id,
                int.from_bytes(span.parent_span_id, "big"),
                is_remote=True,
                trace_flags=TraceFlags(TraceFlags.SAMPLED),
            )
            context = set_span_in_context(NonRecordingSpan(parent))
        converted = self._tracer.start_span(
            span.name,
            context,
            kind=SpanKind.SERVER if span.is_request else SpanKind.INTERNAL,
            attributes=span.attributes,
            start_time=span.started_at * 1000,
        )
        if span.is_failed:
            converted.set_status(Status(StatusCode.ERROR))
        converted.end(span.ended_at * 1000)


class _DerivedIds(IdGenerator):
    """Gives the next span the ids that were set before."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _CollectedSpans(SpanProcessor):
    """Collects ended spans."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def take(self) -> Sequence[ReadableSpan]:
        spans, self._spans = self._spans, []
        return spans


def parse_headers(text: str) -> dict[str, str]:
    """The headers in the setting `otlp_headers`: names and percent-encoded values, such as `a=b,c=d%20e`."""
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
