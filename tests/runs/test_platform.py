"""Runs that an agent platform performs: what it is sent, what it reports, and what ends its work."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pytest
from pydantic import ValidationError

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.errors import Invalid, StoreUnavailable
from hookmill.domain.ids import RunKey, run_id, run_key
from hookmill.domain.payload import Parsed, parse
from hookmill.domain.platform_report import PlatformReport, platform_report
from hookmill.domain.run import Run, RunState
from hookmill.domain.run_options import RunField, RunOptions
from hookmill.domain.run_policy import Retry, RunPolicy
from hookmill.runs.runners import HttpSettings, RunnerContext, http_request
from hookmill.runs.runners import http as http_runner
from hookmill.store.runs import attempts, platform_attempts, reading
from hookmill.store.runs.platform_attempts import Reception
from tests.outbound.forward_proxy import forward_proxy
from tests.runs.backlog import Backlog, Worker
from tests.runs.test_perform import OUR_EXECUTOR, claim, new_performer
from tests.support.agent_platform import SECRET, agent_platform
from tests.support.counts import ON_POSTGRES_IN_PROOF
from tests.support.ports import free_port
from tests.support.waiting import until

DONE = platform_report(succeeded=True, result="Two bugs.", cost_usd=0.25, input_tokens=10, output_tokens=5)


@pytest.fixture
def platform(monkeypatch):
    monkeypatch.setenv("PLATFORM_SECRET", SECRET)
    monkeypatch.setattr(http_runner, "INSTRUCTION_SECONDS", 0.05)
    with agent_platform() as platform:
        yield platform


def settings(url: str, **changes: Any) -> HttpSettings:
    return HttpSettings(**{"url": url, "allow_http": True, "secret_from": "PLATFORM_SECRET", **changes})


class Performance:
    """An attempt at a run, which a thread performs."""

    def __init__(self, backlog: Backlog, url: str, key: RunKey | None = None, **changes: Any):
        self.backlog = backlog
        self.key = key or backlog.queue(
            backlog.automation(runner="http", policy=RunPolicy(retry=changes.pop("retry", None))), payload=b'{"a":  1}'
        )
        claim(backlog)
        runner = settings(url, **changes).create_runner(
            RunnerContext(database=backlog.database, public_url="https://hooks.test")
        )
        self.failures: list[Any] = []
        performer = new_performer(backlog, self.failures, http=runner)
        self._threads = ThreadPoolExecutor(1)
        self._result = self._threads.submit(performer.perform, self.key, backlog.run(self.key).attempt)

    def end(self) -> Run:
        """Wait for the end of the attempt. Returns the run."""
        self._result.result(60)
        self._threads.shutdown()
        return self.backlog.run(self.key)


def report(backlog: Backlog, message: dict[str, Any], content: PlatformReport = DONE, token: str = "") -> Reception:
    """Report about the attempt to which the message belongs."""
    data = message["data"]
    digest = sha256((token or data["report"]["token"]).encode()).digest()
    with backlog.database.write() as tx:
        return platform_attempts.receive(tx, run_key(data["run_id"]), data["attempt"], digest, content)


def agent_reports(backlog: Backlog, key: RunKey) -> dict[int, AgentReport]:
    with backlog.database.read() as tx:
        return reading.attempt_reports(tx, key)


def test_platform_gets_the_run_and_its_report_ends_it(backlog, platform):
    performance = Performance(backlog, platform.url)
    message = platform.wait_for(1)

    assert report(backlog, message) is Reception.ACCEPTED
    run = performance.end()

    assert (run.state, run.reason, run.exit_status) == (RunState.SUCCEEDED, None, None)
    assert agent_reports(backlog, run.id) == {
        1: AgentReport(result="Two bugs.", cost_microusd=250_000, input_tokens=10, output_tokens=5)
    }
    data = message["data"]
    assert (message["type"], message["id"]) == ("run.started", f"{run_id(run.id)}-1-start")
    assert (data["run_id"], data["attempt"], data["time_limit_seconds"]) == (run_id(run.id), 1, 3600)
    assert data["automation"] == {"id": run.automation_id, "name": "Answer", "version": 1}
    assert data["prompt"].startswith("Do it.\n\n<platform-envelope>")
    assert data["envelope"]["run"] == {"id": run_id(run.id), "attempt": 1}
    assert base64.b64decode(data["payload_base64"]) == b'{"a":  1}'
    assert data["report"]["url"] == f"https://hooks.test/api/v1/attempts/{run_id(run.id)}-1/report"
    assert platform.paths == ["/runs?token=canary"]
    assert len(platform.messages) == 1


def test_platform_gets_numbers_of_the_payload_without_rounding(sqlite_backlog, platform):
    numbers = {"large": "1E+400", "exact": "0.12345678901234567890123", "whole": "1" + "0" * 30}
    fields: dict[str, RunField | str] = {name: RunField(pointer=f"/{name}") for name in numbers}
    automation = sqlite_backlog.automation(runner="http", options=RunOptions(fields=fields))
    payload = "{" + ", ".join(f'"{name}": {number}' for name, number in numbers.items()) + "}"
    performance = Performance(sqlite_backlog, platform.url, sqlite_backlog.queue(automation, payload=payload.encode()))

    report(sqlite_backlog, platform.wait_for(1))

    parsed = parse(platform.bodies[0])
    assert isinstance(parsed, Parsed)
    received = parsed.value["data"]["envelope"]["fields"]
    assert {name: str(received[name]["value"]) for name in numbers} == numbers
    assert performance.end().state is RunState.SUCCEEDED


def test_run_is_sent_through_the_proxy(sqlite_backlog, platform, monkeypatch):
    with forward_proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        performance = Performance(sqlite_backlog, platform.url)
        report(sqlite_backlog, platform.wait_for(1))
        run = performance.end()

    assert run.state is RunState.SUCCEEDED
    assert proxy.requests == [f"POST {platform.url} HTTP/1.1"]


def test_reported_failure_is_retried_by_the_rule_of_the_run(sqlite_backlog, platform):
    performance = Performance(sqlite_backlog, platform.url, retry=Retry(attempts=2, backoff_seconds=9))
    message = platform.wait_for(1)

    report(sqlite_backlog, message, platform_report(succeeded=False, reason="No model\x1b.", cost_usd=1))
    run = performance.end()

    assert (run.state, run.failures) == (RunState.QUEUED, 1)
    assert run.reason == "Attempt 1 of 2 failed. The platform reported a failure: No model\ufffd."
    assert agent_reports(sqlite_backlog, run.id) == {1: AgentReport(cost_microusd=1_000_000)}
    # The attempt has ended, although the run has not.
    assert report(sqlite_backlog, message) is Reception.OUTDATED


@pytest.mark.parametrize(
    ("status", "headers", "text", "problem"),
    [
        (500, {}, "No capacity\x1b", ' answered 500, instead of 202: "No capacity\\u001b".'),
        (400, {}, "{token} is bad", " answered 400, instead of 202: its text contains a part of the credential and "),
        (200, {}, "", " answered 200, instead of 202."),
        (
            307,
            {"Location": "/elsewhere"},
            "",
            " answered 307, which is a redirect and is not followed, instead of 202.",
        ),
    ],
)
def test_platform_that_does_not_accept_a_run_fails_it(sqlite_backlog, platform, status, headers, text, problem):
    platform.status, platform.headers, platform.text = status, headers, text
    performance = Performance(sqlite_backlog, platform.url)
    message = platform.wait_for(1)

    run = performance.end()

    assert run.state is RunState.FAILED
    assert (run.reason or "").startswith(f"http://127.0.0.1:{platform.port}{problem}")
    assert len(platform.messages) == 1
    assert report(sqlite_backlog, message) is Reception.OUTDATED


def test_unreachable_platform_fails_the_run_without_showing_the_url(sqlite_backlog, monkeypatch):
    monkeypatch.setenv("PLATFORM_SECRET", SECRET)
    port = free_port()

    run = Performance(sqlite_backlog, f"http://127.0.0.1:{port}/runs?token=canary").end()

    reason = f"Could not connect to http://127.0.0.1:{port}: Connection refused."
    assert (run.state, run.reason) == (RunState.FAILED, reason)


def test_platform_that_does_not_answer_fails_the_run(sqlite_backlog, platform, monkeypatch):
    monkeypatch.setattr(http_request, "REQUEST_SECONDS", 0.3)
    platform.answers.clear()

    run = Performance(sqlite_backlog, platform.url).end()

    reason = f"http://127.0.0.1:{platform.port} did not answer within 0.3 seconds."
    assert (run.state, run.reason) == (RunState.FAILED, reason)


@pytest.mark.parametrize(
    ("secret", "problem"),
    [("", "is empty. "), ("canary secret", "has no usable secret. "), ("whpk_canary", "has no usable secret. ")],
)
def test_run_fails_if_there_is_no_usable_secret(sqlite_backlog, platform, monkeypatch, secret, problem):
    monkeypatch.setenv("PLATFORM_SECRET", secret)

    run = Performance(sqlite_backlog, platform.url).end()

    assert run.state is RunState.FAILED
    assert (run.reason or "").startswith(f"The variable PLATFORM_SECRET {problem}")
    assert "canary" not in (run.reason or "")
    assert platform.messages == []


def test_time_limit_ends_the_attempt_and_its_token(backlog, platform):
    performance = Performance(backlog, platform.url, time_limit_seconds=1)
    message = platform.wait_for(1)

    run = performance.end()

    assert (run.state, run.reason) == (RunState.FAILED, "The platform did not report within the time limit of 1 s.")
    stop_message = platform.wait_for(2)
    assert (stop_message["type"], stop_message["data"]) == (
        "run.cancelled",
        {"run_id": run_id(run.id), "attempt": 1, "reason": "time_limit"},
    )
    assert report(backlog, message) is Reception.OUTDATED


@pytest.mark.parametrize("has_answered", [True, False])
def test_cancellation_is_told_to_the_platform(sqlite_backlog, platform, has_answered):
    if not has_answered:
        platform.answers.clear()
    performance = Performance(sqlite_backlog, platform.url)
    message = platform.wait_for(1)

    sqlite_backlog.request_cancel(performance.key)
    stop_message = platform.wait_for(2)
    platform.answers.set()
    run = performance.end()

    assert (run.state, run.reason) == (RunState.CANCELLED, "It was cancelled while it ran.")
    assert stop_message["data"]["reason"] == "cancelled"
    assert report(sqlite_backlog, message) is Reception.OUTDATED


def test_report_that_was_accepted_before_the_cancellation_decides(sqlite_backlog, platform):
    platform.answers.clear()
    performance = Performance(sqlite_backlog, platform.url)
    message = platform.wait_for(1)
    with sqlite_backlog.database.write() as tx:
        digest = sha256(message["data"]["report"]["token"].encode()).digest()
        platform_attempts.receive(tx, performance.key, 1, digest, DONE)
        tx.run("UPDATE runs SET cancel_requested_at = 1")

    run = performance.end()

    assert run.state is RunState.SUCCEEDED
    assert len(platform.messages) == 1


def test_report_that_arrives_while_the_end_cannot_be_stored_decides(sqlite_backlog, platform, monkeypatch):
    close = platform_attempts.close
    has_failed, is_available = threading.Event(), threading.Event()

    def close_if_available(*arguments):
        if is_available.is_set():
            return close(*arguments)
        has_failed.set()
        raise StoreUnavailable("unavailable")

    monkeypatch.setattr(platform_attempts, "close", close_if_available)
    platform.status = 500
    performance = Performance(sqlite_backlog, platform.url)
    message = platform.wait_for(1)

    assert has_failed.wait(30)
    assert report(sqlite_backlog, message) is Reception.ACCEPTED
    is_available.set()

    assert performance.end().state is RunState.SUCCEEDED


def test_only_the_token_of_the_attempt_is_accepted_and_the_first_report_counts(backlog, platform):
    performance = Performance(backlog, platform.url, time_limit_seconds=3600)
    message = platform.wait_for(1)
    other = platform_report(succeeded=False)

    assert report(backlog, message, token="hat_other") is Reception.OUTDATED
    with backlog.database.write() as tx:
        # The runner must not end the attempt before all reports of this test have arrived.
        digest = sha256(message["data"]["report"]["token"].encode()).digest()
        receptions = [
            platform_attempts.receive(tx, performance.key, 1, digest, content) for content in (DONE, DONE, other)
        ]

    assert receptions == [Reception.ACCEPTED, Reception.ACCEPTED, Reception.CONTRADICTED]
    assert performance.end().state is RunState.SUCCEEDED


@ON_POSTGRES_IN_PROOF
def test_attempt_after_a_killed_worker_makes_the_first_one_outdated(backlog, platform):
    key = backlog.queue(backlog.automation(runner="http"))
    with Worker(backlog, platform_url=platform.url) as worker:
        first = platform.wait_for(1)
        worker.kill()

    with Worker(backlog, platform_url=platform.url):
        stop_message, second = platform.wait_for(2), platform.wait_for(3)
        late = report(backlog, first)
        accepted = report(backlog, second)
        (run,) = backlog.wait_for_end(key)

    assert [(each["type"], each["data"]["attempt"]) for each in (first, stop_message, second)] == [
        ("run.started", 1),
        ("run.cancelled", 1),
        ("run.started", 2),
    ]
    assert stop_message["data"]["reason"] == "outdated"
    assert (late, accepted) == (Reception.OUTDATED, Reception.ACCEPTED)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)


def test_report_that_arrived_while_no_worker_was_alive_ends_the_run(sqlite_backlog, platform):
    key = sqlite_backlog.queue(sqlite_backlog.automation(runner="http"))
    with Worker(sqlite_backlog, platform_url=platform.url) as worker:
        message = platform.wait_for(1)
        worker.kill()

    assert report(sqlite_backlog, message) is Reception.ACCEPTED
    with Worker(sqlite_backlog, platform_url=platform.url):
        (run,) = sqlite_backlog.wait_for_end(key)

    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)
    assert len(platform.messages) == 1


def test_report_waits_for_a_concurrent_end_of_its_attempt(postgres_backlog):
    """PostgreSQL: a report that waits for the row of the run must not be accepted after a failure was recorded."""
    backlog = postgres_backlog
    key = backlog.queue(backlog.automation(runner="http"))
    claim(backlog)
    digest = sha256(b"token").digest()
    with backlog.database.write() as tx:
        platform_attempts.begin(tx, key, 1, digest, now=1)
    receptions: list[Reception] = []

    def receive():
        with backlog.database.write() as tx:
            receptions.append(platform_attempts.receive(tx, key, 1, digest, DONE))

    thread = threading.Thread(target=receive)
    with backlog.database.write() as tx:
        failed = platform_report(succeeded=False).ended
        assert attempts.retry(tx, backlog.run(key), failed, executor=OUR_EXECUTOR, now=2, due_at=3, rule_attempts=2)
        thread.start()
        until(lambda: waiting_transactions(backlog) == 1, "the report waits for the row")
    thread.join(30)

    assert receptions == [Reception.OUTDATED]


def waiting_transactions(backlog: Backlog) -> int:
    with backlog.database.read() as tx:
        (row,) = tx.all(
            "SELECT COUNT(*) AS count FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    return int(row["count"])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"url": "http://127.0.0.1/", "allow_http": False}, "must begin with https://, unless allow_http is true"),
        ({"url": "ftp://example.com"}, "must be an https URL"),
        ({"url": "https://user:canary@example.com/"}, "must be an https URL without a password"),
        ({"url": "https:///runs"}, "must be an https URL"),
        ({"url": "https://example.com/a b"}, "must be an https URL"),
        ({"url": "https://example.com:99999/"}, "must be an https URL"),
        ({"secret_from": "HOOKMILL_MASTER_KEY"}, "must not begin with HOOKMILL_"),
    ],
)
def test_unusable_settings_of_a_platform_are_refused(changes, problem):
    with pytest.raises(ValidationError, match=problem):
        settings(**{"url": "https://example.com/runs", **changes})


def test_settings_of_a_platform_are_shown_without_their_secrets(tmp_path, monkeypatch):
    shown = settings("https://agents.example.com:8443/runs/canary?token=canary", time_limit_seconds=60)
    monkeypatch.setenv("PLATFORM_SECRET", SECRET)

    assert shown.examine(tmp_path) == "sends runs to https://agents.example.com:8443, for at most 60 s"
    assert shown.summary() == (
        "sends runs to https://agents.example.com:8443, signed with the secret in PLATFORM_SECRET, at most 60 s"
    )
    monkeypatch.delenv("PLATFORM_SECRET")
    with pytest.raises(Invalid, match="The variable PLATFORM_SECRET is not set"):
        shown.examine(tmp_path)


def test_message_has_no_payload_if_the_run_has_none(sqlite_backlog, platform):
    automation = sqlite_backlog.automation(runner="http")
    key = sqlite_backlog.queue(automation)
    with sqlite_backlog.database.write() as tx:
        tx.run(
            "UPDATE runs SET webhook_no = 0, delivery_id = id, schedule = 'nightly', schedule_timezone = 'UTC', "
            "scheduled_at = 0"
        )
    performance = Performance(sqlite_backlog, platform.url, key)

    message = platform.wait_for(1)
    report(sqlite_backlog, message)

    assert message["data"]["payload_base64"] is None
    assert performance.end().state is RunState.SUCCEEDED
