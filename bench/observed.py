"""Serves with metrics and traces, which are read and collected as in production."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from urllib.request import urlopen

from bench import noop, service
from bench.load import LoadFailed
from bench.machine import free_port
from bench.service import Service, Storage

SCRAPE_SECONDS = 5.0
_SPANS = re.compile(r'^hookmill_spans_total\{[^}]*result="(\w+)"[^}]*\} (\S+)$', re.MULTILINE)


class Observed(Enum):
    """What is observed of the service."""

    METRICS = "metrics"
    DEFAULT_TRACES = "metrics and traces of the default ratio"
    ALL_TRACES = "metrics and all traces"


@contextmanager
def serving(storage: Storage, choice: Observed, *, webhooks: int) -> Iterator[Service]:
    """Like `service.serving`, with metrics, and traces if chosen. The no-op application collects the traces.

    Raises `LoadFailed` if the metrics could not be scraped, or if the collector got no spans.
    """
    metrics_port = free_port()
    environment = {"HOOKMILL_METRICS_PORT": str(metrics_port)}
    is_over = threading.Event()
    scrapes: list[str] = []

    def scrape() -> None:
        while not is_over.wait(SCRAPE_SECONDS):
            with urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=SCRAPE_SECONDS) as response:
                scrapes.append(response.read().decode())

    with noop.serving(service.SERVER_SETTINGS) as collector:
        if choice is not Observed.METRICS:
            environment["HOOKMILL_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.port}"
        if choice is Observed.ALL_TRACES:
            environment["HOOKMILL_OTLP_SAMPLE_RATIO"] = "1"
        with service.serving(storage, webhooks=webhooks, environment=environment) as running:
            scraper = threading.Thread(target=scrape)
            scraper.start()
            try:
                yield running
            finally:
                # The last scrape is after the load.
                is_over.wait(2 * SCRAPE_SECONDS)
                is_over.set()
                scraper.join()
    results = {result for result, number in _SPANS.findall(scrapes[-1] if scrapes else "") if float(number)}
    if not scrapes or "failed" in results or ("sent" in results) is (choice is Observed.METRICS):
        raise LoadFailed(f"The service was not observed: {len(scrapes)} scrapes, spans {sorted(results)}.")
