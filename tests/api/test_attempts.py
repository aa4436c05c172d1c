"""Agent platforms report about attempts over HTTP, with the token of one attempt."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pytest

from hookmill.domain.ids import FactoryId, RunKey, run_id
from hookmill.domain.run import Ended, RunState
from hookmill.store.runs import attempts, claims, platform_attempts
from hookmill.store.runs.executors import ExecutorId
from tests.api.client import Api, StockedFactory, api_for_test
from tests.support.service import Answer

TOKEN = "hat_" + "t" * 43
WORKER = ExecutorId("worker")
DONE = {"state": "succeeded", "result": "Two bugs.", "cost_usd": 0.25, "input_tokens": 10, "output_tokens": 5}


@dataclass
class Attempt:
    """The first attempt at a run, which a platform performs."""

    api: Api
    run: RunKey

    def report(self, body: Any = DONE, *, token: str = TOKEN, attempt: str = "") -> Answer:
        path = f"/attempts/{attempt or f'{run_id(self.run)}-1'}/report"
        return self.api.post(path, body, key=token)

    def end(self) -> None:
        with self.api.world.database.write() as tx:
            report = platform_attempts.accepted_report(tx, self.run)
            result = report.ended if report is not None else Ended(state=RunState.FAILED)
            assert attempts.finish(tx, self.run, result, executor=WORKER, attempt=1, now=self.api.world.clock())


def begun_attempt(api: Api) -> Attempt:
    stock = StockedFactory(api, api.world.may)
    run = RunKey(bytes.fromhex(stock.run.removeprefix("run_")))
    with api.world.database.write() as tx:
        claims.claim(tx, executor=WORKER, at_most=1, after=FactoryId(""), now=api.world.clock())
        platform_attempts.begin(tx, run, 1, sha256(TOKEN.encode()).digest(), now=1)
    return Attempt(api, run)


@pytest.fixture
def attempt(api):
    return begun_attempt(api)


@pytest.fixture
def limited_attempt(sqlite_store):
    """An attempt at an API that allows three failed authentications in a minute."""
    for api in api_for_test(sqlite_store, failures_per_minute=3):
        yield begun_attempt(api)


def test_report_is_stored_with_the_run(attempt):
    assert attempt.report().status == 204
    # Networks repeat requests.
    assert attempt.report().status == 204
    attempt.end()

    run = attempt.api.get(f"/factories/default/runs/{run_id(attempt.run)}").json
    assert (run["state"], run["reason"]) == ("succeeded", None)
    assert run["agent_report"] == {
        "result": "Two bugs.",
        "result_is_cut": False,
        "cost_usd": 0.25,
        "input_tokens": 10,
        "output_tokens": 5,
    }


def test_second_report_with_another_content_is_refused(attempt):
    attempt.report()

    answer = attempt.report({"state": "failed", "reason": "canary"})

    assert answer.problem == (409, "conflict")
    assert answer.json["detail"].endswith("already has another report. The first one counts.")


def test_report_about_an_attempt_that_has_ended_is_refused(attempt):
    attempt.end()

    answer = attempt.report()

    assert answer.status == 409
    assert answer.json["detail"].endswith("The report has no effect. Stop the work on this attempt.")


@pytest.mark.parametrize("token", ["", "hat_other", TOKEN[:-1], TOKEN + "t", "an API key"])
def test_only_the_token_of_the_attempt_authenticates(attempt, token):
    answer = attempt.report(token=token if token != "an API key" else attempt.api.admin)

    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_unknown_attempts_are_answered_like_wrong_tokens(attempt):
    bodies = {
        attempt.report(attempt=each, token=token).body
        for each, token in (
            (f"{run_id(attempt.run)}-1", "hat_other"),
            (f"{run_id(attempt.run)}-2", TOKEN),
            (f"run_{'0' * 32}-1", TOKEN),
            ("nothing", TOKEN),
        )
    }

    assert len(bodies) == 1


def test_token_of_an_attempt_is_no_api_key(attempt):
    assert attempt.api.get("/me", key=TOKEN).status == 401


def test_failed_authentications_are_limited_and_valid_ones_are_not(limited_attempt):
    statuses = [limited_attempt.report(token="hat_other").status for _ in range(4)]

    assert statuses == [401, 401, 401, 429]
    assert limited_attempt.report().status == 204


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/state"),
        ({"state": "running"}, "/state"),
        ({**DONE, "cost_usd": -1}, "/cost_usd"),
        ({**DONE, "input_tokens": 1.5}, "/input_tokens"),
        ({**DONE, "unknown": 1}, "/unknown"),
    ],
)
def test_unusable_report_is_refused_with_its_place(attempt, body, pointer):
    answer = attempt.report(body)

    assert answer.status == 422
    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]


def test_report_has_a_size_limit(attempt):
    assert attempt.report({"state": "succeeded", "result": "x" * 70_000}).status == 413
