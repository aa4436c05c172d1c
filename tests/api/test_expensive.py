"""Expensive operations: a few at a time, one for each API key, and in threads of their own."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from hookmill.domain.permission import Role
from hookmill.web.api import application, middleware, operations
from hookmill.web.api.openapi import openapi_document
from tests.api.client import Api
from tests.support.service import Answer

BACKTESTS = "/factories/default/backtests"
EXPLANATION = "/factories/default/deliveries/{delivery}/explanation"
SECONDS = 20
DOCS = Path(__file__).parents[2] / "docs" / "api.md"


class BlockedBacktests:
    """An API whose backtests wait until `release` is set."""

    def __init__(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = api
        self.release = threading.Event()
        self._started = threading.Semaphore(0)
        self._threads = ThreadPoolExecutor(4)
        backtest = api.management.filters.backtest

        def backtest_after_release(*args, **kwargs):
            self._started.release()
            assert self.release.wait(SECONDS)
            return backtest(*args, **kwargs)

        monkeypatch.setattr(api.management.filters, "backtest", backtest_after_release)

    def begin(self, key: str) -> Future[Answer]:
        """Begin a backtest. When this returns, the backtest is waiting."""
        answer = self._threads.submit(self.api.post, BACKTESTS, {}, key=key)
        assert self._started.acquire(timeout=SECONDS)
        return answer

    def close(self) -> None:
        self.release.set()
        self._threads.shutdown()


@pytest.fixture
def blocked_backtests(api, monkeypatch):
    blocked = BlockedBacktests(api, monkeypatch)
    yield blocked
    blocked.close()


def test_key_has_one_expensive_operation_at_a_time(blocked_backtests, stocked):
    path = EXPLANATION.format(**stocked.path_parameters)
    first = blocked_backtests.begin(blocked_backtests.api.viewer)

    meanwhile = blocked_backtests.api.get(path, key=blocked_backtests.api.viewer)
    blocked_backtests.release.set()

    assert meanwhile.problem == (429, "too_many_requests")
    assert meanwhile.headers["retry-after"] == "1"
    assert first.result(SECONDS).status == 200
    assert blocked_backtests.api.get(path, key=blocked_backtests.api.viewer).status == 200


def test_third_concurrent_expensive_operation_is_answered_429(blocked_backtests):
    both = [
        blocked_backtests.begin(blocked_backtests.api.viewer),
        blocked_backtests.begin(blocked_backtests.api.manager),
    ]

    third = blocked_backtests.api.post(BACKTESTS, {}, key=blocked_backtests.api.key("a third", Role.VIEWER, "default"))
    blocked_backtests.release.set()

    assert (third.status, third.headers["retry-after"]) == (429, "1")
    assert [each.result(SECONDS).status for each in both] == [200, 200]


def test_other_operations_do_not_wait_for_expensive_ones(blocked_backtests, monkeypatch):
    monkeypatch.setattr(middleware, "THREADS", 1)
    both = [
        blocked_backtests.begin(blocked_backtests.api.viewer),
        blocked_backtests.begin(blocked_backtests.api.manager),
    ]

    meanwhile = blocked_backtests.api.get("/factories/default/webhooks", key=blocked_backtests.api.viewer)
    are_done = [each.done() for each in both]

    assert meanwhile.status == 200
    assert are_done == [False, False]


def test_failed_expensive_operation_frees_its_slot(api):
    answers = [api.post(BACKTESTS, {"webhook_ids": ["wh_nobodys"]}) for _ in range(3)]

    assert [answer.status for answer in answers] == [404, 404, 404]


def test_operations_on_filters_and_on_many_resources_are_expensive():
    assert {(each.method, each.path.rpartition("/")[2]) for each in operations(application()) if each.is_expensive} == {
        ("GET", "automations"),
        ("GET", "definitions"),
        ("POST", "plan"),
        ("POST", "apply"),
        ("GET", "explanation"),
        ("POST", "replay"),
        ("POST", "filter-tests"),
        ("POST", "backtests"),
        ("POST", "cancel"),
        ("POST", "test"),
    }


IN_DOCS = {
    "backtest_filter": "Backtests",
    "test_filter": "filter tests",
    "explain_delivery": "explanations",
    "replay_delivery": "replays",
    "list_automations": "the list of automations",
    "cancel_runs": "`…/runs/cancel`",
    "export_definitions": "`…/definitions`",
    "plan_definitions": "`…/definitions`",
    "apply_definitions": "`…/definitions`",
    "test_alarm_destination": "tests of [alarm destinations]",
    "test_installation_alarm_destination": "tests of [alarm destinations]",
}
"""How docs/api.md names each expensive operation."""


def test_docs_name_the_expensive_operations():
    document = openapi_document(application())
    described = [operation for methods in document["paths"].values() for operation in methods.values()]
    sentence = DOCS.read_text().partition(" are *expensive operations*")[0].rpartition("\n- ")[2]

    assert {operation["operationId"] for operation in described if operation["x-costly"]} == IN_DOCS.keys()
    assert all(name in " ".join(sentence.split()) for name in IN_DOCS.values())
