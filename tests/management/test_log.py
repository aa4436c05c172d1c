"""The log as its owner asks it: narrowed down, explained, tested against, and replayed."""

import hashlib
import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hookmill.domain.delivery import Label
from hookmill.domain.errors import Conflict, InvalidFilter, NotFound
from hookmill.domain.ids import delivery_id, run_id
from hookmill.domain.run import RunState
from hookmill.maintenance import run_retention
from hookmill.management import WebhookWithSecret
from tests.support.waiting import until
from tests.support.world import Answer, World

OPENED = {"action": ["opened"]}


def test_the_log_is_narrowed_to_a_time(world: World):
    made = world.webhook()
    for number in range(3):
        world.post(made, b"%d" % number)
        world.clock.advance(seconds=10)
    start = world.clock.now - 30_000_000

    found = world.management.log.newest(world.may, since=start + 10_000_000, until=start + 20_000_000)

    assert [row.received_at for row in found] == [start + 10_000_000]


def test_the_log_is_narrowed_to_an_event(world: World):
    made = world.webhook()
    world.post(made, b"1", headers={"X-Service-Delivery-Id": "event-1"})
    world.clock.advance(seconds=1)
    world.post(made, b"2", headers={"X-Service-Delivery-Id": "event-1"})
    world.post(made, b"3", headers={"X-Service-Delivery-Id": "event-2"})

    found = world.management.log.newest(world.may, identity="event-1")

    assert [row.label for row in found] == [Label.DUPLICATE, Label.ACCEPTED]


def test_a_body_is_found_by_its_sha256(world: World):
    made = world.webhook()
    answer = world.post(made, b'{"n": 1}')
    world.post(made, b'{"n": 2}')

    found = world.management.log.newest(world.may, identity=hashlib.sha256(b'{"n": 1}').hexdigest())

    assert [delivery_id(row.key) for row in found] == [answer.delivery_id]


def test_delivery_lists_more_than_fifty_runs(world: World):
    source = world.webhook("source")
    world.automation("all", source)
    answer = world.post(source)
    for _ in range(51):
        world.management.log.replay(world.may, answer.delivery_id)

    runs = world.management.runs.of_delivery(world.may, answer.delivery_id)

    assert sorted(run.replay_number for run in runs) == list(range(52))


def test_an_explanation_names_every_automation_and_why(world: World):
    made = world.webhook("source")
    other = world.webhook("other")
    world.automation("fires", made, payload=OPENED)
    world.automation("filtered out", made, payload={"action": ["closed"]})
    world.automation("of another", other)
    world.automation("off", made, enabled=False)
    answer = world.post(made, b'{"action": "opened"}')

    verdicts = {each.automation.name: each for each in world.management.filters.explain(world.may, answer.delivery_id)}

    assert {name: each.would_trigger for name, each in verdicts.items()} == {
        "fires": True,
        "filtered out": False,
        "of another": False,
        "off": False,
    }
    assert len(verdicts["fires"].runs) == 1
    [trigger] = verdicts["filtered out"].trigger_tests
    assert (trigger.webhook_check, trigger.payload_check) == (True, False)
    assert trigger.explanation is not None
    assert trigger.explanation.conditions[0].actual == '"opened"'
    assert verdicts["of another"].trigger_tests[0].webhook_check is False


def test_a_backtest_sorts_the_last_deliveries(world: World):
    made = world.webhook("source")
    other = world.webhook("other")
    opened = world.post(made, b'{"action": "opened", "n": 1}').delivery_id
    closed = world.post(made, b'{"action": "closed", "n": 2}').delivery_id
    world.post(other, b'{"action": "opened", "n": 3}')
    world.post(made, b"not JSON")

    tested = world.management.filters.backtest(world.may, payload_filter=OPENED, webhook_ids=["source"])

    assert [delivery_id(row.key) for row in tested.matching] == [opened]
    assert [delivery_id(row.key) for row in tested.others] == [closed]


def test_a_backtest_takes_every_operator(world: World):
    made = world.webhook("source")
    opened = world.post(made, b'{"action": "opened", "n": 1}').delivery_id
    closed = world.post(made, b'{"action": "closed", "n": 2}').delivery_id
    chosen = {"action": {"$prefix": "o"}, "n": {"$not": {"$gt": 1}}}

    tested = world.management.filters.backtest(world.may, payload_filter=chosen)
    test = world.management.filters.test(world.may, closed, payload_filter=chosen)

    assert [delivery_id(row.key) for row in tested.matching] == [opened]
    assert [delivery_id(row.key) for row in tested.others] == [closed]
    assert test.explanation is not None
    assert [(each.operator, each.held) for each in test.explanation.conditions] == [("$prefix", False), ("$not", False)]


def test_a_backtest_evaluates_the_requested_number_of_deliveries(world: World):
    made = world.webhook("source")
    for number in range(5):
        world.post(made, b'{"n": %d}' % number)
        world.clock.advance(seconds=1)

    tested = world.management.filters.backtest(world.may, payload_filter={"n": [0, 3, 4]}, last=3)

    assert (len(tested.matching), len(tested.others)) == (2, 1)


def test_a_backtest_refuses_a_faulty_draft_with_its_places(world: World):
    with pytest.raises(InvalidFilter) as refused:
        world.management.filters.backtest(world.may, payload_filter={"action": {"equals": 1}})

    assert [fault.pointer for fault in refused.value.faults] == ["/action/equals"]


def test_a_replay_starts_new_runs_and_leaves_the_log_as_it_is(world: World):
    made = world.webhook("source")
    world.automation("one", made)
    world.automation("two", made, payload=OPENED)
    world.automation("three", made, payload={"action": ["closed"]})
    answer = world.post(made, b'{"action": "opened"}')
    before = world.log(made)

    started = world.management.log.replay(world.may, answer.delivery_id)

    assert {run.automation_name for run in started} == {"one", "two"}
    assert {(run.state, run.replay_number) for run in started} == {(RunState.QUEUED, 1)}
    assert len(world.management.runs.of_delivery(world.may, answer.delivery_id)) == 4
    assert world.log(made) == before


def test_each_replay_is_a_run_of_its_own(world: World):
    made = world.webhook("source")
    world.automation("one", made)
    answer = world.post(made)

    replays = [world.management.log.replay(world.may, answer.delivery_id)[0] for _ in range(3)]

    assert [run.replay_number for run in replays] == [1, 2, 3]
    assert len({run.id for run in replays}) == 3


def test_a_replay_to_one_automation_uses_it_as_it_is_now(world: World):
    made = world.webhook("source")
    answer = world.post(made, b'{"action": "opened"}')
    world.automation("made later", made, payload=OPENED)

    [run] = world.management.log.replay(world.may, answer.delivery_id, "made later")

    assert (run.automation_name, run.replay_number) == ("made later", 1)


def test_a_replay_starts_nothing_that_the_delivery_does_not_trigger(world: World):
    made = world.webhook("source")
    world.automation("filtered out", made, payload={"action": ["closed"]})
    world.automation("off", made, enabled=False)
    answer = world.post(made, b'{"action": "opened"}')
    replay = world.management.log.replay

    with pytest.raises(Conflict, match="triggers no enabled automation"):
        replay(world.may, answer.delivery_id)
    with pytest.raises(Conflict, match="does not trigger"):
        replay(world.may, answer.delivery_id, "filtered out")
    with pytest.raises(Conflict, match="disabled"):
        replay(world.may, answer.delivery_id, "off")
    assert world.runs(made) == []


def test_only_what_was_accepted_is_replayed(world: World):
    made = world.webhook("source")
    world.automation("one", made)
    world.post(made)
    duplicate = world.post(made).delivery_id

    with pytest.raises(NotFound, match="only Accepted deliveries have a stored payload"):
        world.management.log.replay(world.may, duplicate)


def posted(world: World, made: WebhookWithSecret, count: int) -> list[Answer]:
    """Deliveries, a second apart."""
    answers = []
    for number in range(count):
        answers.append(world.post(made, b"%d" % number))
        world.clock.advance(seconds=1)
    return answers


def test_a_replay_keeps_its_payload_from_retention(world: World):
    made = world.webhook("source")
    world.automation("one", made)
    answers = posted(world, made, 55)
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
    world.clock.advance(days=8)

    [replayed] = world.management.log.replay(world.may, answers[0].delivery_id)
    run_retention(world.database, Path("nowhere"), world.clock())

    kept = {delivery_id(row.key) for row in world.log(made)}
    assert answers[0].delivery_id in kept
    assert answers[1].delivery_id not in kept
    assert world.management.runs.get(world.may, run_id(replayed.id)).state is RunState.QUEUED
    assert world.management.log.payload(world.may, answers[0].delivery_id) == b"0"


def test_replays_that_race_with_retention_are_kept_whole_or_refused(world: World):
    made = world.webhook("source")
    world.automation("one", made)
    answers = posted(world, made, 58)
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
    world.clock.advance(days=8)

    def replay(shown: str) -> bytes | None:
        try:
            [run] = world.management.log.replay(world.may, shown)
        except NotFound:
            return None
        return run.id

    with ThreadPoolExecutor(9) as people:
        sweeping = people.submit(run_retention, world.database, Path("nowhere"), world.clock())
        runs = list(people.map(replay, [answer.delivery_id for answer in answers[:8]]))
        sweeping.result()

    for answer, run in zip(answers, runs, strict=False):
        if run is not None:
            assert world.management.runs.get(world.may, run_id(run)).replay_number == 1
            assert world.management.log.payload(world.may, answer.delivery_id)


def test_readers_see_each_delivery_whole_or_not_at_all_during_retention(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hookmill.maintenance.ROWS_PER_STEP", 2)
    webhook = world.webhook("source")
    deliveries = [answer.delivery_id for answer in posted(world, webhook, 110)]
    world.clock.advance(days=8)
    outcomes: Counter[str] = Counter()
    is_over = threading.Event()

    def read(shown: str) -> None:
        try:
            assert delivery_id(world.management.log.get(world.may, shown).key) == shown
            assert world.management.log.payload(world.may, shown) == b"%d" % deliveries.index(shown)
            outcomes["whole"] += 1
        except NotFound:
            outcomes["gone"] += 1
        page = world.log(webhook)
        assert [delivery_id(row.key) for row in page] == deliveries[-len(page) :][::-1], "only the oldest rows go"

    def read_repeatedly() -> None:
        for shown in itertools.cycle(deliveries):
            if is_over.is_set():
                return
            read(shown)

    def rest() -> bool:
        # Somebody reads between any two steps.
        before = outcomes.total()
        until(lambda: outcomes.total() > before or reading.done(), "somebody reads")
        return False

    with ThreadPoolExecutor(1) as readers:
        reading = readers.submit(read_repeatedly)
        try:
            removed = run_retention(world.database, Path("nowhere"), world.clock(), pause=rest)
        finally:
            is_over.set()
        reading.result()

    assert removed == len(deliveries) - 50
    assert outcomes["whole"] > 0
    assert [delivery_id(row.key) for row in world.log(webhook)] == deliveries[-50:][::-1]
