"""The outbox of alarms: at least once, in order, with limits, and with the same id in each attempt."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from hookmill.domain.alarm import AlarmEvent, AlarmKind, AlarmNotice
from hookmill.domain.alarm_destination import DestinationKind
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.store import alarm_destinations, notices
from hookmill.store.notices import ClaimedMessage
from tests.domain.test_alarm_message import NOTICE as SAMPLE
from tests.store.managed_store import ManagedStore
from tests.support.waiting import until

NOTICE = replace(SAMPLE, factory="default")
SECOND_US = 1_000_000


class Outbox:
    """A store with one destination of the factory `default`, and the steps of a sender."""

    def __init__(self, store: ManagedStore):
        self.store = store
        self.team: MayAdminister = store.management.access.operator_of_team()
        self.destination = self.add()

    def add(self, may: MayManage | MayAdminister | None = None, **choices: Any) -> str:
        """Create a destination, and return its id."""
        created = self.store.management.alarm_destinations.create(
            may or self.store.may, DestinationKind.SLACK, url="https://hooks.example.com/secret", **choices
        )
        return created.destination.id

    def enqueue(self, notice: AlarmNotice = NOTICE, **changes: Any) -> int:
        with self.store.database.write() as tx:
            return notices.enqueue(tx, replace(notice, at=self.store.clock.now, **changes))

    def claim(self) -> ClaimedMessage | None:
        with self.store.database.read() as tx:
            is_due = notices.may_have_due(tx, self.store.clock.now)
        with self.store.database.write() as tx:
            claimed = notices.claim(tx, self.store.clock.now)
        assert is_due or claimed is None, "a message that can be claimed is due"
        return claimed

    def claim_one(self) -> ClaimedMessage:
        claimed = self.claim()
        assert claimed is not None
        return claimed

    def finish(self, claimed: ClaimedMessage, problem: str | None = None) -> bool:
        with self.store.database.write() as tx:
            return notices.finish(tx, claimed, self.store.clock.now, problem)

    def send_all(self) -> list[tuple[str, int]]:
        """Send what is due. Returns the summary of each message, and how many further notices it stands for."""
        sent = []
        while (claimed := self.claim()) is not None:
            sent.append((claimed.message.notice.summary, claimed.message.more))
            self.finish(claimed)
        return sent

    def states(self) -> list[str]:
        with self.store.database.read() as tx:
            return [row["state"] for row in tx.all("SELECT state FROM alarm_notices ORDER BY id")]


@pytest.fixture
def outbox(store):
    return Outbox(store)


def test_notice_reaches_every_destination_that_wants_it(outbox):
    outbox.store.management.factories.create(outbox.team, "other")
    outbox.add(outbox.store.management.access.operator("other"))
    outbox.add(alarm_kinds=["runs_waiting"])
    quiet = outbox.add(alarm_kinds=["webhook_quiet", "runs_waiting"])
    of_installation = outbox.add(outbox.team)
    with_factories = outbox.add(outbox.team, includes_factories=True)

    def receivers(**changes):
        count = outbox.enqueue(**changes)
        claimed = [outbox.claim_one() for _ in range(count)]
        assert outbox.claim() is None
        for each in claimed:
            outbox.finish(each)
        return {each.destination_id for each in claimed}

    assert receivers() == {outbox.destination, quiet, with_factories}
    assert receivers(kind=AlarmKind.RUNS_FAILING) == {outbox.destination, with_factories}
    assert receivers(factory=None, kind=AlarmKind.CLOCK_WRONG) == {of_installation, with_factories}
    assert receivers(factory="unknown") == set()


def test_notice_is_enqueued_only_with_the_callers_transaction(outbox):
    with pytest.raises(ZeroDivisionError), outbox.store.database.write() as tx:
        notices.enqueue(tx, NOTICE)
        raise ZeroDivisionError

    assert outbox.claim() is None


def test_claimed_message_has_the_whole_notice_and_only_one_claim(outbox):
    outbox.enqueue()

    claimed = outbox.claim_one()

    assert claimed.message.notice == replace(NOTICE, at=outbox.store.clock.now)
    assert claimed.message.id.startswith("ntc_")
    assert (claimed.attempt, claimed.shown_target) == (1, "https://hooks.example.com/…")
    assert outbox.claim() is None
    assert outbox.finish(claimed)
    assert outbox.claim() is None
    assert outbox.states() == ["sent"]


def test_message_of_a_process_that_died_is_sent_again_with_the_same_id(outbox):
    outbox.enqueue()
    first = outbox.claim_one()
    outbox.store.clock.advance(seconds=notices.CLAIM_US / SECOND_US - 1)
    assert outbox.claim() is None
    outbox.store.clock.advance(seconds=1)

    second = outbox.claim_one()

    assert (second.message, second.attempt) == (first.message, 2)
    # The first process was only slow. Its result comes too late.
    assert not outbox.finish(first, "late")
    assert outbox.finish(second)
    assert outbox.states() == ["sent"]


def test_message_is_not_claimed_again_by_an_earlier_clock(outbox):
    outbox.enqueue()
    outbox.claim_one()

    outbox.store.clock.advance(seconds=-1)

    assert outbox.claim() is None


def test_failed_message_is_retried_with_growing_pauses_and_then_given_up(outbox):
    outbox.enqueue()
    ids, pauses, last_at = set(), [], outbox.store.clock.now
    while (claimed := outbox.claim()) is not None:
        pauses.append((outbox.store.clock.now - last_at) // SECOND_US)
        last_at = outbox.store.clock.now
        ids.add(claimed.message.id)
        outbox.finish(claimed, f"attempt {claimed.attempt}")
        while outbox.states() == ["waiting"] and outbox.store.clock.now < last_at + notices.RETRY_US_MAX:
            with outbox.store.database.read() as tx:
                if notices.may_have_due(tx, outbox.store.clock.now):
                    break
            outbox.store.clock.advance(seconds=30)

    assert pauses == [0, 30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600]
    assert len(ids) == 1
    assert outbox.states() == ["failed"]
    [destination] = outbox.store.management.alarm_destinations.all(outbox.store.may)
    assert (destination.waiting, destination.failed, destination.last_problem) == (0, 1, "attempt 10")


def test_message_whose_process_dies_each_time_is_given_up(outbox):
    outbox.enqueue()
    for _ in range(notices.ATTEMPTS_MAX):
        outbox.claim_one()
        outbox.store.clock.advance(seconds=notices.CLAIM_US / SECOND_US)

    assert outbox.claim() is None
    assert outbox.states() == ["failed"]


def test_messages_to_one_destination_are_sent_in_order(outbox):
    outbox.enqueue(summary="raised")
    outbox.store.clock.advance(seconds=1)
    outbox.enqueue(summary="resolved", event=AlarmEvent.RESOLVED)
    raised = outbox.claim_one()
    assert outbox.claim() is None
    outbox.finish(raised, "down")
    assert outbox.claim() is None
    outbox.store.clock.advance(seconds=30)

    assert [summary for summary, _ in outbox.send_all()] == ["raised", "resolved"]


def test_order_is_kept_if_the_clock_is_set_back(outbox):
    for number in range(4):
        outbox.enqueue(summary=f"notice {number}")
        outbox.store.clock.advance(days=-1)
    outbox.store.clock.advance(days=4)

    assert [summary for summary, _ in outbox.send_all()] == [f"notice {number}" for number in range(4)]


def test_destination_that_is_down_does_not_delay_others(outbox):
    other = outbox.add()
    outbox.enqueue()
    claims = {claimed.destination_id: claimed for claimed in (outbox.claim_one(), outbox.claim_one())}
    outbox.finish(claims[outbox.destination], "down")
    outbox.finish(claims[other])
    outbox.store.clock.advance(seconds=1)
    outbox.enqueue(summary="second")

    assert outbox.claim_one().destination_id == other


def test_many_notices_become_one_message_for_all_that_remain(outbox):
    for number in range(18):
        outbox.enqueue(summary=f"notice {number}")
        outbox.store.clock.advance(seconds=0.1)

    sent = outbox.send_all()

    assert sent == [*((f"notice {number}", 0) for number in range(5)), ("notice 5", 12)]
    outbox.enqueue(summary="later")
    assert outbox.send_all() == []
    outbox.store.clock.advance(seconds=60)
    assert outbox.send_all() == [("later", 0)]


def test_after_a_message_was_given_up_the_backlog_becomes_one_message(outbox):
    outbox.enqueue(summary="first")
    for _ in range(notices.ATTEMPTS_MAX):
        outbox.finish(outbox.claim_one(), "down")
        outbox.store.clock.advance(seconds=notices.RETRY_US_MAX / SECOND_US)
    for number in range(3):
        outbox.enqueue(summary=f"notice {number}")

    assert outbox.send_all() == [("notice 0", 2)]
    outbox.enqueue(summary="works again")
    assert outbox.send_all() == [("works again", 0)]


def test_full_queue_counts_further_notices_without_new_rows(outbox):
    for number in range(notices.WAITING_MAX + 7):
        outbox.enqueue(summary=f"notice {number}")
        outbox.store.clock.advance(seconds=0.001)

    assert len(outbox.states()) == notices.WAITING_MAX
    total = sum(1 + more for _, more in outbox.send_all())
    assert total == notices.WAITING_MAX + 7


def test_message_that_was_attempted_keeps_its_content(outbox):
    outbox.enqueue(summary="attempted")
    first = outbox.claim_one()
    outbox.finish(first, "down")
    for _ in range(notices.WAITING_MAX + 7):
        outbox.enqueue()
    outbox.store.clock.advance(seconds=30)

    assert outbox.claim_one().message == first.message


def test_clock_that_was_ahead_delays_no_message(outbox):
    outbox.store.clock.advance(days=3_650)
    outbox.enqueue()
    outbox.finish(outbox.claim_one(), "down")
    outbox.store.clock.advance(days=-3_650)

    assert outbox.claim_one().attempt == 2


def test_deleted_destination_gets_no_message_and_leaves_none(outbox):
    outbox.enqueue()
    claimed = outbox.claim_one()
    outbox.store.management.alarm_destinations.delete(outbox.store.may, outbox.destination)

    assert not outbox.finish(claimed)
    assert outbox.store.rows("alarm_notices") == []
    with outbox.store.database.read() as tx:
        assert alarm_destinations.target(tx, outbox.destination, outbox.store.key) is None


def waits_for_a_lock(store: ManagedStore) -> bool:
    with store.database.read() as tx:
        return (
            tx.one(
                "SELECT 1 AS one FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            is not None
        )


def test_destination_can_be_deleted_while_a_notice_for_it_is_added(store_on_postgres):
    outbox = Outbox(store_on_postgres)
    deletion = threading.Thread(
        target=store_on_postgres.management.alarm_destinations.delete, args=(store_on_postgres.may, outbox.destination)
    )
    with store_on_postgres.database.write() as tx:
        assert notices.enqueue(tx, replace(NOTICE, at=store_on_postgres.clock.now)) == 1
        deletion.start()
        until(lambda: waits_for_a_lock(store_on_postgres))
    deletion.join()

    assert store_on_postgres.rows("alarm_destinations") == []
    assert store_on_postgres.rows("alarm_notices") == []


def test_discarded_messages_are_not_sent_and_later_ones_arrive_one_by_one(outbox):
    outbox.enqueue(summary="before")
    outbox.claim_one()
    outbox.enqueue(summary="before, too")

    with outbox.store.database.write() as tx:
        assert notices.discard_waiting(tx, outbox.store.clock.now) == 2
    outbox.enqueue(summary="first")
    outbox.enqueue(summary="second")

    assert outbox.send_all() == [("first", 0), ("second", 0)]
    assert outbox.states() == ["failed", "failed", "sent", "sent"]


def test_retention_removes_old_messages_that_have_ended(outbox):
    outbox.enqueue()
    outbox.finish(outbox.claim_one())
    outbox.enqueue()
    for state, kept_us in (("sent", notices.SENT_KEPT_US), ("failed", notices.FAILED_KEPT_US)):
        with outbox.store.database.write() as tx:
            tx.run("UPDATE alarm_notices SET state = :state WHERE state NOT IN ('waiting', :state)", state=state)
            notices.forget_old(tx, outbox.store.clock.now + kept_us)
        assert outbox.states() == [state, "waiting"]
    with outbox.store.database.write() as tx:
        notices.forget_old(tx, outbox.store.clock.now + notices.FAILED_KEPT_US + 1)

    assert outbox.states() == ["waiting"]


def test_url_is_sealed_in_the_database(outbox):
    [row] = outbox.store.rows("alarm_destinations")

    assert b"secret" not in bytes(row["sealed"])
    assert "secret" not in str({name: value for name, value in row.items() if name != "sealed"})
