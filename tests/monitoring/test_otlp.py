"""Sending spans to a collector that is there, slow, or gone."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from hookmill.app import otlp
from hookmill.app.otlp import BATCH_SPANS, TraceExporter, parse_headers
from hookmill.domain.trace import Span, Trace
from hookmill.metrics import SPANS, Metrics
from tests.support.collector import collecting
from tests.support.ports import free_port
from tests.support.waiting import LONG_SECONDS, until

SPAN = Span(
    name="delivery",
    trace=Trace(bytes(15) + b"\1", None, True),
    span_id=bytes(7) + b"\2",
    parent_span_id=None,
    started_at=1_000,
    ended_at=2_000,
)


@pytest.fixture
def collector():
    with collecting() as collector:
        yield collector


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(otlp, "SEND_SECONDS", 0.05)
    monkeypatch.setattr(otlp, "RETRY_AFTER_SECONDS", (0.01,))
    # A request that is answered late on a busy machine must not count as failed.
    monkeypatch.setattr(otlp, "TIMEOUT_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(otlp, "CLOSE_SECONDS", LONG_SECONDS)


class Exporting:
    """A running exporter, with what it has counted and reported."""

    def __init__(self, endpoint: str):
        self.metrics = Metrics()
        self.events: list[str] = []
        self.exporter = TraceExporter(
            endpoint,
            {"x-team": "1"},
            sample_ratio=1.0,
            service="a-service",
            metrics=self.metrics,
            report_failure=lambda component, error: self.events.append("failure"),
            report_recovery=lambda component, what: self.events.append("recovery"),
        )
        self.record = self.exporter.tracing.record

    def counted(self, result: str) -> float:
        return self.metrics.number(SPANS, result).value


@contextmanager
def exporting(endpoint: str) -> Iterator[Exporting]:
    running = Exporting(endpoint)
    running.exporter.start()
    try:
        yield running
    finally:
        running.exporter.close()


def test_spans_that_wait_are_sent_when_the_process_stops(collector):
    with exporting(collector.url) as running:
        running.record(SPAN)
        running.record(replace(SPAN, span_id=bytes(7) + b"\3", parent_span_id=SPAN.span_id, is_failed=True))

    assert [(span.service, span.name, span.is_failed) for span in collector.spans] == [
        ("a-service", "delivery", False),
        ("a-service", "delivery", True),
    ]
    assert [(span.trace_id, span.span_id, span.parent_span_id) for span in collector.spans] == [
        ("0" * 31 + "1", "0" * 15 + "2", ""),
        ("0" * 31 + "1", "0" * 15 + "3", "0" * 15 + "2"),
    ]
    assert (collector.spans[0].started_at, collector.spans[0].ended_at) == (1_000_000, 2_000_000)
    assert running.counted("sent") == 2
    assert collector.headers[0]["x-team"] == "1"


def test_many_spans_are_sent_in_batches(collector):
    with exporting(collector.url) as running:
        for _ in range(2 * BATCH_SPANS + 1):
            running.record(SPAN)
        until(lambda: running.counted("sent") == 2 * BATCH_SPANS + 1, "all are sent")

    assert len(collector.raw) >= 3


@pytest.mark.parametrize("path", ["", "/v1/traces"])
def test_path_of_traces_is_appended_once(collector, path):
    with exporting(collector.url + path) as running:
        running.record(SPAN)

    assert running.counted("sent") == 1


def test_full_queue_drops_spans_and_never_blocks(collector, monkeypatch):
    monkeypatch.setattr(otlp, "WAITING_MAX", 100)
    monkeypatch.setattr(otlp, "BATCH_SPANS", 10)
    collector.is_stuck = True
    with exporting(collector.url) as running:
        running.record(SPAN)
        until(lambda: collector.raw, "a request is stuck")
        began_at = time.monotonic()
        for _ in range(1_000):
            running.record(SPAN)
        seconds = time.monotonic() - began_at
        collector.stopping.set()

    assert running.counted("dropped") >= 900 - 10
    assert seconds < LONG_SECONDS / 10


def test_stopping_process_waits_only_briefly_for_a_stuck_collector(collector, monkeypatch):
    monkeypatch.setattr(otlp, "CLOSE_SECONDS", 0.2)
    collector.is_stuck = True
    with exporting(collector.url) as running:
        running.record(SPAN)
        until(lambda: collector.raw, "a request is stuck")
        began_at = time.monotonic()

    assert time.monotonic() - began_at < LONG_SECONDS / 2


def test_span_is_lost_if_the_collector_is_stuck(collector, monkeypatch):
    monkeypatch.setattr(otlp, "TIMEOUT_SECONDS", 0.2)
    collector.is_stuck = True
    with exporting(collector.url) as running:
        running.record(SPAN)
        until(lambda: running.counted("failed") == 1, "the span is lost", seconds=LONG_SECONDS / 2)


@pytest.mark.parametrize("status", [400, 503])
def test_failure_is_reported_once_until_the_collector_recovers(collector, status):
    collector.status = status
    with exporting(collector.url) as running:
        running.record(SPAN)
        until(lambda: running.counted("failed") == 1, "a span is lost")
        running.record(SPAN)
        until(lambda: running.counted("failed") == 2, "another span is lost")
        collector.status = 200
        running.record(SPAN)
        until(lambda: running.counted("sent") == 1, "the span is sent")

    assert running.events == ["failure", "recovery"]


def test_spans_are_sent_again_after_a_transient_failure(collector, monkeypatch):
    monkeypatch.setattr(otlp, "TIMEOUT_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(otlp, "RETRY_AFTER_SECONDS", (0.01,) * 1_000)
    collector.status = 503
    with exporting(collector.url) as running:
        running.record(SPAN)
        until(lambda: len(collector.raw) >= 2, "the request is repeated")
        collector.status = 200
        until(lambda: running.counted("sent") == 1, "the span is sent")

    assert (running.counted("failed"), len(collector.spans)) == (0, 1)


def test_redirect_of_the_collector_is_not_followed(collector):
    collector.status = 302
    with exporting(collector.url) as running:
        running.record(SPAN)
        until(lambda: running.counted("failed") == 1, "the span is lost")


def test_attributes_keep_their_types(collector):
    with exporting(collector.url) as running:
        running.record(replace(SPAN, attributes={"number": 7, "text": "seven"}))

    assert collector.spans[0].attributes == {"number": 7, "text": "seven"}


def test_collector_that_is_not_there_is_a_failure():
    with exporting(f"http://127.0.0.1:{free_port()}") as running:
        running.record(SPAN)
        until(lambda: running.counted("failed") == 1, "the span is lost")

    assert running.events == ["failure"]


def test_library_prints_nothing(capfd):
    with exporting(f"http://127.0.0.1:{free_port()}") as running:
        running.record(SPAN)
        until(lambda: running.counted("failed") == 1, "the span is lost")

    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("authorization=Bearer%20abc%2C=", {"authorization": "Bearer abc,="}),
        ("A=1,b=2", {"a": "1", "b": "2"}),
        ("a=", {"a": ""}),
    ],
)
def test_headers_are_read_from_the_setting(text, headers):
    assert parse_headers(text) == headers
