"""Costly operations: few at a time and one for each key, on threads that nobody else needs."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from hookmill.domain.permission import Role
from hookmill.web.api import application, middleware, operations
from tests.api.client import Api, Stocked
from tests.support.service import Answer

BACKTESTS = "/factories/default/backtests"
EXPLANATION = "/factories/default/deliveries/{delivery}/explanation"
SECONDS = 20


class BlockedBacktests:
    """An API whose backtests are under way until they are let go."""

    def __init__(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = api
        self.let_go = threading.Event()
        self._began = threading.Semaphore(0)
        self._asking = ThreadPoolExecutor(4)
        backtest = api.management.filters.backtest

        def waiting(*given, **named):
            self._began.release()
            assert self.let_go.wait(SECONDS)
            return backtest(*given, **named)

        monkeypatch.setattr(api.management.filters, "backtest", waiting)

    def begin(self, key: str) -> Future[Answer]:
        """A backtest that is under way when this returns."""
        asked = self._asking.submit(self.api.post, BACKTESTS, {}, key=key)
        assert self._began.acquire(timeout=SECONDS)
        return asked


@pytest.fixture
def blocked_backtests(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockedBacktests]:
    made = BlockedBacktests(api, monkeypatch)
    yield made
    made.let_go.set()
    made._asking.shutdown()


def test_a_key_has_one_costly_operation_at_a_time(blocked_backtests: BlockedBacktests, stocked: Stocked):
    path = EXPLANATION.format(**stocked.places)
    first = blocked_backtests.begin(blocked_backtests.api.viewer)

    meanwhile = blocked_backtests.api.get(path, key=blocked_backtests.api.viewer)
    blocked_backtests.let_go.set()

    assert (meanwhile.status, meanwhile.json["code"]) == (429, "too_many_requests")
    assert meanwhile.headers["retry-after"] == "1"
    assert first.result(SECONDS).status == 200
    assert blocked_backtests.api.get(path, key=blocked_backtests.api.viewer).status == 200


def test_two_keys_ask_at_the_same_time_and_a_third_is_answered_429(blocked_backtests: BlockedBacktests):
    both = [
        blocked_backtests.begin(blocked_backtests.api.viewer),
        blocked_backtests.begin(blocked_backtests.api.manager),
    ]

    third = blocked_backtests.api.post(BACKTESTS, {}, key=blocked_backtests.api.key("a third", Role.VIEWER, "default"))
    blocked_backtests.let_go.set()

    assert (third.status, third.headers["retry-after"]) == (429, "1")
    assert [each.result(SECONDS).status for each in both] == [200, 200]


def test_what_is_not_costly_needs_no_thread_of_what_is(
    blocked_backtests: BlockedBacktests, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(middleware, "THREADS", 1)
    both = [
        blocked_backtests.begin(blocked_backtests.api.viewer),
        blocked_backtests.begin(blocked_backtests.api.manager),
    ]

    meanwhile = blocked_backtests.api.get("/factories/default/webhooks", key=blocked_backtests.api.viewer)
    still_under_way = [each.done() for each in both]

    assert meanwhile.status == 200
    assert still_under_way == [False, False]


def test_a_costly_operation_that_fails_leaves_its_place(api: Api):
    answers = [api.post(BACKTESTS, {"webhook_ids": ["wh_nobodys"]}) for _ in range(3)]

    assert [answer.status for answer in answers] == [404, 404, 404]


def test_what_evaluates_filters_or_reads_or_cancels_many_is_expensive():
    assert {(each.method, each.path.rpartition("/")[2]) for each in operations(application()) if each.is_expensive} == {
        ("GET", "automations"),
        ("GET", "explanation"),
        ("POST", "replay"),
        ("POST", "filter-tests"),
        ("POST", "backtests"),
        ("POST", "cancel"),
    }
