"""Serves with metrics and traces: they are read and collected as in production, by one more process.

`python -m bench.observed COLLECTOR_PORT METRICS_PORT` is this process: it accepts all traces, and scrapes the metrics.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

from bench import service
from bench.load import LoadFailed
from bench.machine import free_port
from bench.process import serving_process
from bench.service import Service, Storage

SCRAPE_SECONDS = 5.0
REQUEST_SECONDS = 10.0
PUBLISHED_AFTER_SECONDS = 5.0
"""Each process publishes its metrics every 2 seconds, and a span waits up to a second."""
_SPANS = re.compile(r'^hookmill_spans_total\{[^}]*result="(\w+)"[^}]*\} (\S+)$', re.MULTILINE)


@dataclass(slots=True)
class Observations:
    """What the process has done so far."""

    scrapes: int = 0
    requests_with_spans: int = 0


class Observed(Enum):
    """What is observed of the service."""

    METRICS = "metrics"
    DEFAULT_TRACES = "metrics and traces of the default ratio"
    ALL_TRACES = "metrics and all traces"


@contextmanager
def serving(storage: Storage, choice: Observed, *, webhooks: int, shares_sent: list[float]) -> Iterator[Service]:
    """Like `service.serving`, with metrics, and traces if chosen. At its end, the share of the spans that were sent is
    appended to `shares_sent`: the others were dropped, because too many waited.

    Raises `LoadFailed` if the metrics were not scraped, or if the collector got no spans.
    """
    collector_port, metrics_port = free_port(), free_port()
    environment = {"HOOKMILL_METRICS_PORT": str(metrics_port)}
    if choice is not Observed.METRICS:
        environment["HOOKMILL_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector_port}"
    if choice is Observed.ALL_TRACES:
        environment["HOOKMILL_OTLP_SAMPLE_RATIO"] = "1"
    command = [sys.executable, "-m", "bench.observed", str(collector_port), str(metrics_port)]
    with (
        serving_process(command, port=collector_port),
        service.serving(storage, webhooks=webhooks, environment=environment) as running,
    ):
        yield running
        time.sleep(PUBLISHED_AFTER_SECONDS)
        spans = spans_by_result(_get(f"http://127.0.0.1:{metrics_port}/metrics"))
        observations = Observations(**json.loads(_get(f"http://127.0.0.1:{collector_port}/")))
        is_traced = choice is not Observed.METRICS
        if not observations.scrapes or (is_traced and not (observations.requests_with_spans and spans.get("sent"))):
            raise LoadFailed(f"The service was not observed: {observations}, spans {dict(spans)}.")
        if spans.get("failed"):
            raise LoadFailed(f"The collector did not accept {spans['failed']:,.0f} spans.")
        if is_traced:
            shares_sent.append(spans["sent"] / sum(spans.values()))


def spans_by_result(metrics: str) -> Mapping[str, float]:
    """The numbers of spans of all processes, by `result`, from the text of the metrics."""
    spans: dict[str, float] = {}
    for result, number in _SPANS.findall(metrics):
        spans[result] = spans.get(result, 0.0) + float(number)
    return spans


def _get(url: str) -> str:
    with urlopen(url, timeout=REQUEST_SECONDS) as response:
        return str(response.read().decode())


def observe(collector_port: int, metrics_port: int) -> None:
    """Accept all traces on one port, and scrape the metrics on the other one, until a signal ends the process."""
    observations = Observations()
    threading.Thread(target=_scrape, args=(metrics_port, observations), daemon=True).start()

    class Connection(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            observations.requests_with_spans += 1
            self._answer(b"")

        def do_GET(self) -> None:
            self._answer(json.dumps(asdict(observations)).encode())

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", collector_port), Connection).serve_forever()


def _scrape(port: int, observations: Observations) -> None:
    while True:
        try:
            _get(f"http://127.0.0.1:{port}/metrics")
            observations.scrapes += 1
        except OSError:
            # The service starts after this process, and stops before it.
            pass
        time.sleep(SCRAPE_SECONDS)


if __name__ == "__main__":
    observe(int(sys.argv[1]), int(sys.argv[2]))
