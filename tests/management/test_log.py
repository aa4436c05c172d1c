"""The delivery log: filters, explanations, backtests of filters, and replays."""

import hashlib
import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.ids import DeliveryKey, delivery_id, run_id
from hookmill.domain.run import RunState
from hookmill.maintenance import run_retention
from hookmill.management import WebhookWithSecret, draft_filter, log
from tests.support.waiting import until
from tests.support.world import Answer, World

OPENED = {"action": ["opened"]}


def test_known_deliveries_are_found_by_their_ids(world, monkeypatch):
    monkeypatch.setattr(log, "KEYS_PER_QUERY", 2)
    source = world.webhook()
    sent = [world.post(source, b"{}").delivery_id for _ in range(5)]
    unknown = [delivery_id(DeliveryKey(b"\x01" * 16)), "dlv_1"]

    known = world.management.log.known(world.may, [*unknown, *sent])
    elsewhere = world.management.log.known(world.operator_of_new_factory(), sent)

    originals = [known[each].duplicate_of for each in sent]
    assert set(known) == set(sent)
    assert originals == [None, *[known[sent[0]].key] * 4]
    assert elsewhere == {}


def test_delivery_is_found_by_the_sha256_of_its_body(world):
    source = world.webhook()
    answer = world.post(source, b'{"n": 1}')
    world.post(source, b'{"n": 2}')

    rows = world.management.log.newest(world.may, identity=hashlib.sha256(b'{"n": 1}').hexdigest())

    assert [delivery_id(row.key) for row in rows] == [answer.delivery_id]


def test_delivery_lists_more_than_fifty_runs(world):
    source = world.webhook("source")
    world.automation("all", source)
    answer = world.post(source)
    for _ in range(51):
        world.management.log.replay(world.may, answer.delivery_id)

    runs = world.management.runs.of_delivery(world.may, answer.delivery_id)

    assert sorted(run.replay_number for run in runs) == list(range(52))


def test_explanation_contains_every_automation_with_its_reason(world):
    source = world.webhook("source")
    other = world.webhook("other")
    world.automation("enabled", source, payload=OPENED)
    world.automation("filtered out", source, payload={"action": ["closed"]})
    world.automation("of another webhook", other)
    world.automation("disabled", source, enabled=False)
    answer = world.post(source, b'{"action": "opened"}')

    explanations = {
        explanation.automation.name: explanation
        for explanation in world.management.filters.explain(world.may, answer.delivery_id)
    }

    assert {name: explanation.would_trigger for name, explanation in explanations.items()} == {
        "enabled": True,
        "filtered out": False,
        "of another webhook": False,
        "disabled": False,
    }
    assert len(explanations["enabled"].runs) == 1
    [trigger] = explanations["filtered out"].trigger_tests
    assert (trigger.webhook_check, trigger.payload_check) == (True, False)
    assert trigger.explanation is not None
    assert trigger.explanation.conditions[0].actual == '"opened"'
    assert explanations["of another webhook"].trigger_tests[0].webhook_check is False


def test_backtest_separates_matching_deliveries_from_others(world):
    source = world.webhook("source")
    other = world.webhook("other")
    opened = world.post(source, b'{"action": "opened", "n": 1}').delivery_id
    closed = world.post(source, b'{"action": "closed", "n": 2}').delivery_id
    world.post(other, b'{"action": "opened", "n": 3}')
    world.post(source, b"not JSON")

    tested = world.management.filters.backtest(world.may, draft_filter(OPENED), webhooks=["source"])

    assert [delivery_id(row.key) for row in tested.matching] == [opened]
    assert [delivery_id(row.key) for row in tested.others] == [closed]


def test_backtest_evaluates_the_requested_number_of_deliveries(world):
    source = world.webhook("source")
    for number in range(5):
        world.post(source, b'{"n": %d}' % number)
        world.clock.advance(seconds=1)

    tested = world.management.filters.backtest(world.may, draft_filter({"n": [0, 3, 4]}), last=3)

    assert (len(tested.matching), len(tested.others)) == (2, 1)


def test_replay_starts_new_runs_and_does_not_change_the_log(world):
    source = world.webhook("source")
    world.automation("one", source)
    world.automation("two", source, payload=OPENED)
    world.automation("three", source, payload={"action": ["closed"]})
    answer = world.post(source, b'{"action": "opened"}')
    before = world.log(source)

    started = world.management.log.replay(world.may, answer.delivery_id)

    assert {run.automation_name for run in started} == {"one", "two"}
    assert {(run.state, run.replay_number) for run in started} == {(RunState.QUEUED, 1)}
    assert len(world.management.runs.of_delivery(world.may, answer.delivery_id)) == 4
    assert world.log(source) == before


def test_replay_is_refused_if_the_delivery_triggers_no_automation(world):
    source = world.webhook("source")
    world.automation("filtered out", source, payload={"action": ["closed"]})
    world.automation("disabled", source, enabled=False)
    answer = world.post(source, b'{"action": "opened"}')
    replay = world.management.log.replay

    with pytest.raises(Conflict, match="triggers no enabled automation"):
        replay(world.may, answer.delivery_id)
    with pytest.raises(Conflict, match="does not trigger"):
        replay(world.may, answer.delivery_id, "filtered out")
    with pytest.raises(Conflict, match="disabled"):
        replay(world.may, answer.delivery_id, "disabled")
    assert world.runs(source) == []


def test_replay_of_a_duplicate_is_refused(world):
    source = world.webhook("source")
    world.automation("one", source)
    world.post(source)
    duplicate = world.post(source).delivery_id

    with pytest.raises(NotFound, match="only Accepted deliveries have a stored payload"):
        world.management.log.replay(world.may, duplicate)


def post_deliveries(world: World, source: WebhookWithSecret, count: int) -> list[Answer]:
    """Send `count` deliveries, a second apart."""
    answers = []
    for number in range(count):
        answers.append(world.post(source, b"%d" % number))
        world.clock.advance(seconds=1)
    return answers


def test_replayed_delivery_and_its_payload_survive_retention(world):
    source = world.webhook("source")
    world.automation("one", source)
    answers = post_deliveries(world, source, 55)
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
    world.clock.advance(days=8)

    [replayed] = world.management.log.replay(world.may, answers[0].delivery_id)
    run_retention(world.database, Path("missing"), world.clock())

    logged_ids = {delivery_id(row.key) for row in world.log(source)}
    assert answers[0].delivery_id in logged_ids
    assert answers[1].delivery_id not in logged_ids
    assert world.management.runs.get(world.may, run_id(replayed.id)).state is RunState.QUEUED
    assert world.management.log.payload(world.may, answers[0].delivery_id) == b"0"


def test_replays_during_retention_are_complete_or_refused(world):
    source = world.webhook("source")
    world.automation("one", source)
    answers = post_deliveries(world, source, 58)
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
    world.clock.advance(days=8)

    def replay(delivery: str):
        try:
            [run] = world.management.log.replay(world.may, delivery)
        except NotFound:
            return None
        return run.id

    with ThreadPoolExecutor(9) as threads:
        retention = threads.submit(run_retention, world.database, Path("missing"), world.clock())
        runs = list(threads.map(replay, [answer.delivery_id for answer in answers[:8]]))
        retention.result()

    for answer, run in zip(answers[:8], runs, strict=True):
        if run is not None:
            assert world.management.runs.get(world.may, run_id(run)).replay_number == 1
            assert world.management.log.payload(world.may, answer.delivery_id)


def test_delivery_is_read_with_its_payload_or_not_at_all_during_retention(world, monkeypatch):
    monkeypatch.setattr("hookmill.maintenance.ROWS_PER_STEP", 2)
    webhook = world.webhook("source")
    deliveries = [answer.delivery_id for answer in post_deliveries(world, webhook, 110)]
    world.clock.advance(days=8)
    outcomes: Counter[str] = Counter()
    is_over = threading.Event()

    def read(delivery: str) -> None:
        try:
            assert delivery_id(world.management.log.get(world.may, delivery).key) == delivery
            assert world.management.log.payload(world.may, delivery) == b"%d" % deliveries.index(delivery)
            outcomes["complete"] += 1
        except NotFound:
            outcomes["removed"] += 1
        page = world.log(webhook)
        assert [delivery_id(row.key) for row in page] == deliveries[-len(page) :][::-1], (
            "only the oldest rows are removed"
        )

    def read_repeatedly() -> None:
        for delivery in itertools.cycle(deliveries):
            if is_over.is_set():
                return
            read(delivery)

    def wait_for_read(_locked_seconds: float) -> bool:
        """Let the reader read a delivery between two steps of retention."""
        before = outcomes.total()
        until(lambda: outcomes.total() > before or reading.done(), "a delivery was read")
        return False

    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read_repeatedly)
        try:
            wait_for_read(0)
            removed = run_retention(world.database, Path("missing"), world.clock(), pause=wait_for_read)
        finally:
            is_over.set()
        reading.result()

    assert removed == len(deliveries) - 50
    assert outcomes["complete"] > 0
    assert [delivery_id(row.key) for row in world.log(webhook)] == deliveries[-50:][::-1]
