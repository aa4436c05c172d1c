"""Due schedules start runs: each scheduled time at most one, even after downtime or a change of the clock."""

import os
import re
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from hookmill.domain.automation import Automation
from hookmill.domain.ids import RunKey, time_ordered_key
from hookmill.domain.moment import iso, parse_iso
from hookmill.domain.run import BySchedule, Hold, Run, RunState
from hookmill.store import automations, firing, schedules
from hookmill.store.database import Transaction, open_database
from hookmill.store.runs import adding, pages, reading, retention
from tests.store.managed_store import ManagedStore
from tests.store.query_plans import query_plans
from tests.support.automations import automation_changed, automation_created
from tests.support.stores import longer_timeouts

MINUTE = 60_000_000
FINISHED_RUNS = 1_000
"""With so many runs, an index scan is cheaper than a scan of the table."""
NOW = parse_iso("2026-11-23T10:00:30Z")


@pytest.fixture(autouse=True)
def clock_at_ten(store):
    store.clock.now = NOW


def trigger(cron: str = "0 * * * *", **fields: str) -> dict[str, Any]:
    return {"provider": "schedule", "event": "cron_fired", "schedule": {"name": "s", "cron": cron, **fields}}


def automation(store: ManagedStore, *triggers: dict[str, Any], name: str = "report", **fields: Any) -> Automation:
    return automation_created(store.management, store.may, name, triggers=list(triggers or [trigger()]), **fields)


def fire(store: ManagedStore, *, at: str | None = None) -> int:
    """Fire the due schedules, at this time or at the present one. Returns how many were due."""
    if at is not None:
        store.clock.now = parse_iso(at)
    with store.database.write() as tx:
        return fire_in(tx, store.clock.now)


def fire_in(tx: Transaction, now: int) -> int:
    return firing.fire_due(tx, now, lambda: RunKey(time_ordered_key(now, os.urandom(8))))


def fired_times(store: ManagedStore) -> list[str]:
    """The scheduled times of all runs, to the minute, oldest first."""
    return [iso(start.scheduled_at)[:16] for start in schedule_starts(store)]


def schedule_starts(store: ManagedStore) -> list[BySchedule]:
    """Which schedule and time started each run, oldest first."""
    return [run.started_by for run in all_runs(store) if isinstance(run.started_by, BySchedule)]


def all_runs(store: ManagedStore) -> Sequence[Run]:
    return store.management.runs.oldest(store.may)


def next_at(store: ManagedStore) -> str | None:
    """The next time of the only schedule of the automation `report`, to the minute."""
    report = store.management.automations.get(store.may, "report")
    [time] = store.management.automations.next_times_of(store.may, report).values()
    return iso(time)[:16] if time is not None else None


def due_at(store: ManagedStore) -> int | None:
    with store.database.read() as tx:
        return schedules.next_due_at(tx, store.clock.now)


# Firing


def test_each_scheduled_time_starts_one_run(store):
    report = automation(store, trigger(timezone="Europe/Berlin"))

    assert next_at(store) == "2026-11-23T11:00"
    assert due_at(store) == parse_iso("2026-11-23T11:00Z")
    assert fire(store, at="2026-11-23T10:59:59Z") == 0
    assert fire(store, at="2026-11-23T11:00:00Z") == 1
    assert fire(store, at="2026-11-23T11:00:00Z") == 0
    assert fire(store, at="2026-11-23T12:00:01Z") == 1

    assert fired_times(store) == ["2026-11-23T11:00", "2026-11-23T12:00"]
    assert next_at(store) == "2026-11-23T13:00"
    run = all_runs(store)[0]
    assert run.started_by == BySchedule(
        name="s", scheduled_at=parse_iso("2026-11-23T11:00:00Z"), timezone="Europe/Berlin"
    )
    assert (run.automation_id, run.factory_id) == (report.id, store.factory.id)
    assert (run.delivery_key, run.webhook_uid, run.webhook_name, run.event) == (None, None, None, None)
    assert store.count("payloads") == 0


def test_scheduled_runs_have_the_policy_of_their_automation(store):
    automation(
        store,
        policy={"concurrency": {"key": ["/pull_request"], "when_busy": "skip"}, "priority": "low"},
        name="limited",
    )
    automation(store, policy={"priority": "high"}, name="first")

    fire(store, at="2026-11-23T11:00:00Z")

    by_name = {run.automation_name: run for run in all_runs(store)}
    assert (by_name["limited"].hold, by_name["first"].hold) == (Hold.NEW, None)
    assert {row["priority"] for row in store.rows("runs")} == {0, 2}


def test_schedules_of_one_automation_fire_independently(store):
    automation(store, trigger(name="a"), trigger("30 * * * *", name="b"), trigger("0 */2 * * *", name="c"))

    fire(store, at="2026-11-23T12:00:00Z")

    assert sorted((start.name, iso(start.scheduled_at)[11:16]) for start in schedule_starts(store)) == [
        ("a", "12:00"),
        ("b", "11:30"),
        ("c", "12:00"),
    ]


def test_intervals_do_not_drift(store):
    automation(store, trigger("@every 1h"))

    for at in ("11:00:45", "12:00:31", "13:05:00", "14:00:30"):
        fire(store, at=f"2026-11-23T{at}Z")

    assert [iso(start.scheduled_at)[11:19] for start in schedule_starts(store)] == [
        "11:00:30",
        "12:00:30",
        "13:00:30",
        "14:00:30",
    ]


def test_due_schedules_beyond_the_limit_fire_in_the_next_pass(store, monkeypatch):
    for number in range(5):
        automation(store, name=f"report {number}")
    monkeypatch.setattr(firing, "SCHEDULES_MAX", 3)

    assert [fire(store, at="2026-11-23T11:00:00Z"), fire(store), fire(store)] == [3, 2, 0]
    assert len(all_runs(store)) == 5


# Missed times


@pytest.mark.parametrize(
    ("catch_up", "at", "expected"),
    [
        ("once", "2026-11-23T11:01:00Z", ["2026-11-23T11:00"]),
        ("none", "2026-11-23T11:01:00Z", ["2026-11-23T11:00"]),
        ("once", "2026-11-23T11:01:01Z", ["2026-11-23T11:00"]),
        ("none", "2026-11-23T11:01:01Z", []),
        ("once", "2026-11-26T10:30:00Z", ["2026-11-26T10:00"]),
        ("none", "2026-11-26T10:30:00Z", []),
        # The newest of the missed times is not late.
        ("none", "2026-11-26T10:00:30Z", ["2026-11-26T10:00"]),
        ("once", "2027-11-26T10:00:30Z", ["2027-11-26T10:00"]),
    ],
)
def test_missed_times_start_at_most_one_run(store, catch_up, at, expected):
    automation(store, trigger(catch_up=catch_up))

    fire(store, at=at)
    fire(store)

    assert fired_times(store) == expected
    upcoming = next_at(store)
    assert upcoming is not None
    assert parse_iso(f"{upcoming}:00Z") > parse_iso(at)
    store.clock.now = parse_iso(f"{upcoming}:00Z")
    fire(store)
    assert fired_times(store) == [*expected, upcoming]


# The clock


def test_no_time_fires_twice_after_the_clock_was_set_back(store):
    automation(store, trigger("*/10 * * * *"))
    fire(store, at="2026-11-23T10:30:00Z")

    for at in ("09:31:00", "10:20:00", "10:30:00", "10:39:59"):
        assert fire(store, at=f"2026-11-23T{at}Z") == 0
    fire(store, at="2026-11-23T10:40:00Z")

    assert fired_times(store) == ["2026-11-23T10:30", "2026-11-23T10:40"]


def test_schedule_continues_after_the_clock_was_years_ahead(store):
    automation(store, trigger("0 3 * * *"))
    fire(store, at="2030-01-01T04:00:00Z")
    assert next_at(store) == "2030-01-02T03:00"

    store.clock.now = NOW
    # Due immediately, because the stored times must be corrected.
    assert due_at(store) == NOW
    fire(store)

    assert fired_times(store) == ["2030-01-01T03:00"]
    assert next_at(store) == "2026-11-24T03:00"
    assert due_at(store) == parse_iso("2026-11-24T03:00Z")
    fire(store, at="2026-11-24T03:00:00Z")
    assert fired_times(store) == ["2026-11-24T03:00", "2030-01-01T03:00"]


def test_schedule_stored_while_the_clock_was_ahead_continues(store):
    store.clock.now = parse_iso("2030-01-01T00:00:00Z")
    automation(store, trigger("0 3 * * *"))

    fire(store, at="2026-11-23T10:00:00Z")

    assert next_at(store) == "2026-11-24T03:00"


# Changes of the automation


def test_disabled_automation_does_not_fire_and_catches_up_nothing(store):
    automation(store)
    store.management.automations.set_enabled(store.may, "report", False)

    assert (next_at(store), due_at(store)) == (None, None)
    assert fire(store, at="2026-11-23T12:00:00Z") == 0
    store.clock.now = parse_iso("2026-11-23T12:30:00Z")
    store.management.automations.set_enabled(store.may, "report", True)
    fire(store)

    assert (fired_times(store), next_at(store)) == ([], "2026-11-23T13:00")


def test_paused_automation_does_not_fire(store):
    report = automation(store, policy={"pause_after_failures": 1})
    with store.database.write() as tx:
        automations.pause(tx, report, "Its last run failed.", store.clock.now)

    assert (next_at(store), due_at(store)) == (None, None)
    assert fire(store, at="2026-11-23T12:00:00Z") == 0


def test_due_schedule_does_not_fire_if_its_automation_was_disabled(store):
    automation(store)
    store.clock.now = parse_iso("2026-11-23T11:00:00Z")
    automation_changed(store.management, store.may, "report", prompt="New.", enabled=False)

    assert fire(store) == 0


def test_enabling_after_the_clock_was_set_back_repeats_no_time(store):
    automation(store)
    fire(store, at="2026-11-23T11:00:00Z")
    store.clock.now = parse_iso("2026-11-23T10:30:00Z")
    store.management.automations.set_enabled(store.may, "report", False)
    store.management.automations.set_enabled(store.may, "report", True)

    assert next_at(store) == "2026-11-23T12:00"


def test_deleted_automation_has_no_schedules(store):
    automation(store)
    store.management.automations.delete(store.may, "report")

    assert store.count("schedules") == 0
    assert fire(store, at="2026-11-23T12:00:00Z") == 0


def test_changed_schedule_restarts_while_unchanged_ones_continue(store):
    automation(store, trigger("@every 1h", name="unchanged"), trigger("@every 1h", name="changed"))
    store.clock.now = parse_iso("2026-11-23T10:30:00Z")
    automation_changed(
        store.management,
        store.may,
        "report",
        triggers=[
            trigger("@every 1h", name="unchanged", catch_up="none"),
            trigger("@every 2h", name="changed"),
            trigger("@every 1d", name="new"),
        ],
    )

    assert {row["name"]: iso(row["next_at"])[:19] for row in store.rows("schedules")} == {
        "unchanged": "2026-11-23T11:00:30",
        "changed": "2026-11-23T12:30:00",
        "new": "2026-11-24T10:30:00",
    }
    assert {row["name"]: row["catch_up"] for row in store.rows("schedules")}["unchanged"] == "none"


def test_removed_schedule_does_not_fire(store):
    automation(store, trigger(), trigger("30 * * * *", name="half"))
    automation_changed(store.management, store.may, "report", triggers=[trigger("30 * * * *", name="half")])

    fire(store, at="2026-11-23T11:00:00Z")

    assert [start.name for start in schedule_starts(store)] == ["half"]


# Schedules that can't be read


def test_unreadable_schedule_does_not_stop_others(store):
    automation(store, name="new")
    automation(store, name="other")
    with store.database.write() as tx:
        # It is due before the other one, so workers read it first.
        tx.run("UPDATE schedules SET cron = '@sunrise', next_at = :due_at WHERE automation_id = "
               "(SELECT id FROM automations WHERE name = 'new')", due_at=parse_iso("2026-11-23T10:59:00Z"))  # fmt: skip

    fire(store, at="2026-11-23T11:00:00Z")

    assert [run.automation_name for run in all_runs(store)] == ["other"]
    # Workers read it again in 30 s. Until then, it is not due.
    with store.database.read() as tx:
        stored = tx.one("SELECT next_at FROM schedules WHERE cron = '@sunrise'")
    assert stored["next_at"] == parse_iso("2026-11-23T11:00:30Z")
    assert fire(store) == 0


# Several workers


@longer_timeouts()
def test_each_time_fires_once_with_several_workers(store):
    for number in range(8):
        automation(store, trigger("* * * * *"), name=f"report {number}")
    minutes = [parse_iso("2026-11-23T10:01:00Z") + number * MINUTE for number in range(12)]
    ready = threading.Barrier(4)
    failures: list[BaseException] = []

    def work():
        try:
            with open_database(store.url) as database:
                for now in minutes:
                    ready.wait()
                    for _ in range(3):
                        with database.write() as tx:
                            fire_in(tx, now)
        except BaseException as error:
            failures.append(error)
            ready.abort()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert failures == []
    automations_and_times = [(run.automation_name, run.schedule) for run in all_runs(store)]
    assert len(automations_and_times) == len(set(automations_and_times)) == 8 * len(minutes)


@pytest.mark.parametrize("change", [{"prompt": "New."}, {"triggers": [trigger(catch_up="none")]}], ids=str)
def test_change_while_a_schedule_fires_does_not_repeat_the_time(store, change):
    automation(store)
    store.clock.now = parse_iso("2026-11-23T11:00:00Z")
    change_thread = threading.Thread(
        target=lambda: automation_changed(store.management, store.may, "report", **change), daemon=True
    )

    with store.database.write() as tx:
        assert fire_in(tx, store.clock.now) == 1
        change_thread.start()
        # Let the change get as far as possible before the run is committed.
        change_thread.join(0.5)
    change_thread.join()
    fire(store)

    assert (fired_times(store), next_at(store)) == (["2026-11-23T11:00"], "2026-11-23T12:00")
    assert store.management.automations.get(store.may, "report").version == 2


def test_time_fires_again_if_its_transaction_was_rolled_back(store):
    automation(store)
    now = parse_iso("2026-11-23T11:00:00Z")

    with pytest.raises(ZeroDivisionError), store.database.write() as tx:
        assert fire_in(tx, now) == 1
        raise ZeroDivisionError
    fire(store, at="2026-11-23T11:00:20Z")

    assert fired_times(store) == ["2026-11-23T11:00"]


# Pages and counts


def test_pages_have_no_runs_of_another_factory(store):
    other = store.management.factories.create(store.management.access.operator_of_team(), "other")
    automation(store)
    fire(store, at="2026-11-23T11:00:00Z")

    with store.database.read() as tx:
        assert pages.page_of_runs(tx, factory=other.id) == []
        assert reading.oldest_runs(tx, factory=other.id) == []
        assert len(pages.page_of_runs(tx, factory=store.factory.id)) == 1


@pytest.mark.parametrize("state", [None, RunState.SUCCEEDED, RunState.FAILED])
def test_pages_of_runs_without_a_delivery_are_index_scans(store, state):
    report = automation(store)
    with store.database.write() as tx:
        for _ in range(FINISHED_RUNS):
            store.clock.advance(seconds=0.001)
            add_run(tx, report, store.clock.now)
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
    if not store.database.on_sqlite:
        with store.database.write() as tx:
            tx.run("ANALYZE runs")

    def read_runs(tx):
        for automation_id in (None, report.id):
            pages.page_of_runs(tx, factory=store.factory.id, automation=automation_id, state=state)
        reading.newest_by_automation(tx, store.factory.id)
        retention.automations_to_prune(tx, store.clock.now)
        retention.prune(tx, report.id, store.clock.now, 10)

    executed = query_plans(store.database, read_runs)

    scans = [
        line for plan in executed for line in plan.splitlines() if re.search(r"\b(SCAN|Seq Scan) .*\bruns\b", line)
    ]
    # Each page of runs is one statement. The other three calls execute four.
    assert len(executed) == 6
    assert scans == []
    index = "ix_runs_without_delivery" + ("_not_succeeded" if state is RunState.FAILED else "")
    assert re.search(rf"\b{index}\b", executed[0])


def add_run(tx: Transaction, automation: Automation, now: int):
    started_by = BySchedule(name="s", scheduled_at=now, timezone="UTC")
    adding.add(tx, RunKey(time_ordered_key(now, os.urandom(8))), automation=automation, started_by=started_by, now=now)
