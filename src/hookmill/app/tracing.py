"""Builds the exporter of traces if the settings name a collector."""

from typing import TYPE_CHECKING

from hookmill.app import log
from hookmill.metrics import Metrics
from hookmill.settings import Settings

if TYPE_CHECKING:
    from hookmill.app.otlp import TraceExporter


def build_trace_exporter(settings: Settings, service: str, metrics: Metrics) -> "TraceExporter | None":
    """The exporter of this process, which the caller starts and closes; None without the setting `otlp_endpoint`.

    `service` is the name of this kind of process in traces.
    """
    if settings.otlp_endpoint is None:
        return None
    # Imported here, because it takes time and memory, and OpenTelemetry is optional.
    from hookmill.app.otlp import TraceExporter, parse_headers

    headers = settings.otlp_headers
    return TraceExporter(
        settings.otlp_endpoint,
        parse_headers(headers.get_secret_value()) if headers is not None else {},
        sample_ratio=settings.otlp_sample_ratio,
        service=service,
        metrics=metrics,
        report_failure=log.failure,
        report_recovery=log.recovery,
    )
