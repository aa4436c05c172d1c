"""A running service, scraped by a real Prometheus, and its traces, received by a collector; on both databases."""

import json
import re
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from typing import Any

import pytest

from hookmill.build import build_id
from hookmill.domain.run import RunState
from hookmill.management import WebhookWithSecret
from tests.faults.parts import Part, kill_part
from tests.monitoring.test_files import dashboard_queries, page_queries, rule_queries
from tests.support.automations import automation_created
from tests.support.collector import Collector, ReceivedSpan, collecting
from tests.support.counts import only_in_proof
from tests.support.link import Link
from tests.support.ports import free_port
from tests.support.postgres import Postgres
from tests.support.prometheus import Prometheus, scraping
from tests.support.service import Service, operator, serving
from tests.support.triggers import received
from tests.support.waiting import until as until_at_once

METRICS_TOKEN = "token-of-prometheus-6b1f0c"
COLLECTOR_TOKEN = "token-of-collector-93ad5e"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SENDERS_SPAN = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SENDERS_SPAN}-01"
COMMAND = (
    "import json, os, sys;"
    "sys.stdout.write(os.environ.get('TRACEPARENT', 'none'));"
    "sys.exit(json.load(open(os.environ['HOOKMILL_PAYLOAD_FILE'])).get('exit', 0))"
)
# Most conditions need a query of Prometheus.
until = partial(until_at_once, pause_seconds=0.25)
CONFIGURATION = """
scrape_configs:
  - job_name: hookmill
    scrape_interval: 1s
    authorization:
      credentials: {token}
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""


@dataclass(frozen=True, slots=True)
class Monitored:
    """A service with one webhook, whose deliveries start a run each."""

    service: Service
    database: str
    prometheus: Prometheus
    collector: Collector
    link: Link | None
    """The service's way to PostgreSQL; None with SQLite."""
    webhook: WebhookWithSecret

    def scrape(self, authorization: str | None = f"Bearer {METRICS_TOKEN}", path: str = "/metrics") -> tuple[int, str]:
        port = int(self.service.settings["METRICS_PORT"])
        with closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
            connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def total(self, series: str) -> float:
        """The sum of the series in Prometheus; 0 if there is none yet."""
        return self.prometheus.value(f"sum({series})") or 0.0

    def wait_for(self, series: str, value: float):
        until(lambda: self.total(series) == value, lambda: f"{series} is {value}; it is {self.total(series)}")

    def deliver(self, number: str, *, more: Mapping[str, str] | None = None, **body: Any) -> str:
        """Send an accepted delivery. Returns its id."""
        headers = {"X-Service-Delivery-Id": number, **(more or {})}
        answer = self.service.post(self.webhook, json.dumps({"number": number, **body}).encode(), headers=headers)
        assert answer.status == 202
        return answer.delivery_id

    def spans_of(self, trace_id: str, *names: str) -> list[ReceivedSpan]:
        """The spans of the trace, once the collector has all of these names."""

        def complete() -> list[ReceivedSpan] | None:
            spans = [span for span in list(self.collector.spans) if span.trace_id == trace_id]
            return spans if sorted(names) == sorted(span.name for span in spans) else None

        return until(complete, lambda: f"the trace has {names}; there are {self.collector.spans}")


@pytest.fixture(scope="module", params=["sqlite", only_in_proof("postgres")])
def monitored(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    port = free_port()
    choices: dict[str, Any] = {
        "metrics_port": port,
        "metrics_token": METRICS_TOKEN,
        "otlp_headers": f"authorization=Bearer%20{COLLECTOR_TOKEN}",
        "otlp_sample_ratio": 1,
        "runners": json.dumps({"agent": {"argv": [sys.executable, "-I", "-S", "-c", COMMAND]}}),
    }
    link = None
    with ExitStack() as stack:
        if request.param == "postgres":
            server: Postgres = request.getfixturevalue("postgres_server")
            url = server.create_database()
            stack.callback(server.drop_database, url)
            link = stack.enter_context(Link(url))
            choices |= {"processes": 2, "database_url": link.url}
        collector = stack.enter_context(collecting())
        service = stack.enter_context(serving(directory / "data", otlp_endpoint=collector.url, **choices))
        with service.management() as management:
            may = operator(management)
            webhook = management.webhooks.create(may, {"name": "source"})
            automation_created(
                management,
                may,
                "triage",
                prompt="Look.",
                runner="agent",
                triggers=[received(webhook.webhook.uid)],
            )
        configuration = CONFIGURATION.format(token=METRICS_TOKEN, port=port)
        prometheus = stack.enter_context(scraping(directory / "prometheus", configuration))
        yield Monitored(service, request.param, prometheus, collector, link, webhook)


def test_prometheus_counts_each_outcome(monitored):
    service, webhook = monitored.service, monitored.webhook
    path = f"/webhooks/w/{webhook.webhook.uid}"
    before = {outcome: monitored.total(f'hookmill_deliveries_total{{outcome="{outcome}"}}') for outcome in OUTCOMES}

    for number in ("1", "2", "2", "3"):
        monitored.deliver(f"outcome-{number}")
    assert service.post(webhook, token="wrong").status == 401
    assert service.post(webhook, b"{").status == 400
    assert service.request("POST", "/webhooks/w/wh_unknown", body=b"{}").status == 404
    assert service.request("GET", path).status == 405

    for outcome, expected in OUTCOMES.items():
        monitored.wait_for(f'hookmill_deliveries_total{{outcome="{outcome}"}}', before[outcome] + expected)


OUTCOMES = {
    "accepted": 3,
    "duplicate": 1,
    "rejected_auth": 1,
    "rejected_invalid_json": 1,
    "not_found": 1,
    "method_not_allowed": 1,
}


def test_prometheus_has_latencies_and_commits(monitored):
    monitored.deliver("latency-1")

    until(lambda: monitored.total("hookmill_delivery_seconds_count") >= 1, "the delivery is counted")
    until(lambda: monitored.total("hookmill_commit_deliveries_sum") >= 1, "its commit is counted")
    # Prometheus has no value while the latest scrape failed, for example by taking longer than a second.
    until(lambda: monitored.total("hookmill_delivery_seconds_sum") > 0, "the latency is scraped")
    until(lambda: 0 < monitored.total("hookmill_commit_seconds_sum") < 60, "the time of commits is scraped")
    until(
        lambda: (
            {series["process"].partition("-")[0] for series, _ in monitored.prometheus.query(CPU)}
            == {"supervisor", "ingress", "writer", "worker"}
        ),
        "every kind of process is scraped",
    )
    ingress = 'count(hookmill_process_cpu_seconds_total{process=~"ingress-.*"})'
    count = 1 if monitored.database == "sqlite" else 2
    until(lambda: monitored.prometheus.query(ingress) == [({}, count)], "every ingress process is scraped")


CPU = "hookmill_process_cpu_seconds_total > 0"


def test_metrics_name_no_object_and_no_secret(monitored):
    monitored.deliver("secret-1", text="a-text-of-the-sender")

    _, text = monitored.scrape()

    webhook = monitored.webhook.webhook
    for word in (webhook.uid, webhook.name, monitored.webhook.reveal(), METRICS_TOKEN, COLLECTOR_TOKEN, "triage"):
        assert word not in text
    assert "a-text-of-the-sender" not in text
    assert text.count("\n") < 2_000


def test_prometheus_accepts_every_query_of_the_files(monitored):
    if monitored.database == "sqlite":
        for query in [*rule_queries().values(), *dashboard_queries(), *page_queries()]:
            monitored.prometheus.query(query)
    # After a scrape that failed, the alert of a target that is down has a result until the next scrape.
    until(
        lambda: not any(fires(monitored, query) for query in rule_queries().values()),
        lambda: f"no alert fires: {[alert for alert, query in rule_queries().items() if fires(monitored, query)]}",
    )


def fires(monitored: Monitored, query: str) -> bool:
    """Whether the query of an alert has a result now. The tests cause failures, so those alerts may fire.

    On a busy machine, deliveries may also be slow.
    """
    expected = (
        "rejected_auth",
        'result="failed"',
        "hookmill_faults_total",
        "host_fault",
        "hookmill_delivery_seconds_bucket",
    )
    return not any(word in query for word in expected) and bool(monitored.prometheus.query(query))


# Traces


def test_trace_leads_from_the_request_to_the_end_of_the_run(monitored):
    delivery_id = monitored.deliver("trace-1", exit=3)

    trace_id = delivery_id.removeprefix("dlv_")
    delivery, commit, run, attempt = in_order(
        monitored.spans_of(trace_id, "delivery", "commit", "run", "attempt"), "delivery", "commit", "run", "attempt"
    )
    assert delivery.parent_span_id == ""
    assert [each.parent_span_id for each in (commit, run)] == [delivery.span_id] * 2
    assert attempt.parent_span_id == run.span_id
    assert delivery.started_at <= commit.started_at <= commit.ended_at <= delivery.ended_at
    assert run.started_at <= attempt.started_at <= attempt.ended_at <= run.ended_at
    assert [each.service for each in (delivery, run)] == ["hookmill-ingress", "hookmill-worker"]
    assert delivery.attributes == {
        "hookmill.outcome": "accepted",
        "hookmill.webhook_uid": monitored.webhook.webhook.uid,
        "hookmill.delivery_id": delivery_id,
        "hookmill.body_bytes": len(b'{"number": "trace-1", "exit": 3}'),
    }
    assert (attempt.attributes["hookmill.result"], attempt.attributes["hookmill.exit_status"]) == ("failed", 3)
    assert run.attributes["hookmill.state"] == "failed"
    assert [each.is_failed for each in (delivery, commit, run, attempt)] == [False, False, True, True]


def test_trace_of_an_authenticated_sender_is_continued_in_the_command(monitored):
    delivery_id = monitored.deliver("trace-2", more={"traceparent": TRACEPARENT, "tracestate": "vendor=x"})

    delivery, run, attempt = in_order(
        monitored.spans_of(TRACE, "delivery", "commit", "run", "attempt"), "delivery", "run", "attempt"
    )
    assert delivery.parent_span_id == SENDERS_SPAN
    assert delivery.attributes["hookmill.delivery_id"] == delivery_id
    assert run.parent_span_id == delivery.span_id
    with monitored.service.management() as management:
        may = operator(management)
        row = management.log.get(may, delivery_id)
        [recorded] = management.runs.of_delivery(may, delivery_id)
    assert row.traceparent == TRACEPARENT
    assert recorded.output_tail == f"00-{TRACE}-{attempt.span_id}-01"
    envelope = monitored.service.data_dir / "runs" / f"run_{recorded.id.hex()}" / "envelope.json"
    assert TRACE not in envelope.read_text()


def test_trace_of_an_unauthenticated_client_is_not_continued(monitored):
    forged = "6" * 32
    headers = {"traceparent": f"00-{forged}-{SENDERS_SPAN}-01"}
    assert monitored.service.post(monitored.webhook, token="wrong", headers=headers).status == 401
    last = monitored.deliver("trace-5").removeprefix("dlv_")

    monitored.spans_of(last, "delivery", "commit", "run", "attempt")
    assert [span for span in monitored.collector.spans if span.trace_id == forged] == []
    outcomes = [span.attributes.get("hookmill.outcome") for span in monitored.collector.spans]
    assert "rejected_auth" in outcomes


def test_collector_gets_its_headers_and_no_secret(monitored):
    monitored.deliver("trace-7", text="another-text-of-the-sender")
    until(lambda: monitored.collector.raw, "spans arrive")

    received = b"".join(monitored.collector.raw)

    assert {headers["authorization"] for headers in monitored.collector.headers} == {f"Bearer {COLLECTOR_TOKEN}"}
    for word in (monitored.webhook.reveal(), METRICS_TOKEN, COLLECTOR_TOKEN, "text-of-the-sender", "/webhooks/w"):
        assert word.encode() not in received


def in_order(spans: list[ReceivedSpan], *names: str) -> list[ReceivedSpan]:
    return [next(span for span in spans if span.name == name) for name in names]


# Faults


def test_lost_collector_costs_deliveries_and_runs_nothing(monitored):
    collector, service = monitored.collector, monitored.service
    sent = 'hookmill_spans_total{result="sent"}'
    collector.status = 400
    log_bytes = len(service.log())

    delivery_id = monitored.deliver("collector-1")
    until(lambda: state_of_run(service, delivery_id) is RunState.SUCCEEDED, "the run succeeds")
    until(lambda: monitored.total('hookmill_spans_total{result="failed"}') >= 4, "the lost spans are counted")
    collector.status = 200
    before = monitored.total(sent)
    monitored.deliver("collector-2")
    until(lambda: monitored.total(sent) >= before + 4, "spans are sent again")

    def events():
        lines = [json.loads(line) for line in service.log()[log_bytes:].splitlines() if '"traces"' in line]
        return {line["event"] for line in lines}

    # The spans are counted before the recovery is logged.
    until(lambda: events() == {"failed", "recovered"}, "the failure and the recovery are logged")
    assert COLLECTOR_TOKEN not in service.log()
    assert collector.url not in service.log()


def state_of_run(service: Service, delivery_id: str) -> RunState:
    with service.management() as management:
        [run] = management.runs.of_delivery(operator(management), delivery_id)
    return run.state


def test_build_is_that_at_the_start_although_the_worker_is_replaced(tmp_path, monkeypatch):
    package, port = tmp_path / "package", free_port()
    package.mkdir()
    (package / "code.py").write_text("old")
    # The service computes its build from the files of this directory.
    (tmp_path / "sitecustomize.py").write_text(
        f"import hookmill.build; hookmill.build.__file__ = {str(package / 'build.py')!r}"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serving(tmp_path / "data", performs_runs="false", metrics_port=port) as service:
        before = until(lambda: build_at(port), "the metrics are served")
        (package / "code.py").write_text("new")
        kill_part(service, Part.WORKER)
        # The killed worker no longer answers.
        after = until(lambda: build_at(port), "another worker serves the metrics")

    assert before == after != build_id()


def build_at(port: int) -> str | None:
    build = re.search(r'hookmill_build_info\{.*build="([0-9a-f]{12})"', scraped(port) or "")
    return build[1] if build is not None else None


def scraped(port: int) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return None
