"""What happens in the background: passes of retention, the files of runs that are gone, and an eye on the free disk."""

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from hookmill import housekeeping
from hookmill.domain.errors import NotFound
from hookmill.domain.ids import run_id
from hookmill.housekeeping import DiskGuard, Housekeeping, sweep
from hookmill.management import WebhookWithSecret
from tests.support.waiting import until
from tests.support.world import World


def test_a_pass_thins_out_every_webhook_and_says_how_many_rows_went(world, tmp_path):
    one, other = world.webhook("one"), world.webhook("other")
    for made in (one, other):
        filled(world, made, 60)
    world.clock.advance(days=8)

    assert sweep(world.database, tmp_path, world.clock()) == 20
    assert (len(world.log(one)), len(world.log(other))) == (50, 50)
    assert sweep(world.database, tmp_path, world.clock()) == 0


def test_a_deleted_webhooks_log_is_thinned_out_too(world, tmp_path):
    made = world.webhook()
    filled(world, made, 60)
    world.management.webhooks.delete(world.may, "source")
    world.clock.advance(days=8)

    assert sweep(world.database, tmp_path, world.clock()) == 10


def test_a_pass_forgets_old_identities_and_old_counters(world, tmp_path):
    made = world.webhook()
    world.post(made, headers={"X-Service-Delivery-Id": "event-1"})
    world.management.webhooks.set_enabled(world.may, "source", False)
    world.post(made)
    assert world.counted(made) == {"not_found": 1}
    world.clock.advance(days=31)

    sweep(world.database, tmp_path, world.clock())

    assert (rows(world, "identities"), rows(world, "refusals")) == (0, 0)


def test_a_pass_works_in_small_steps_and_rests_between_them(world, tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "ROWS_PER_STEP", 10)
    made = world.webhook()
    filled(world, made, 85)
    world.clock.advance(days=8)
    left = []

    def rest() -> bool:
        left.append(len(world.log(made)))
        return False

    sweep(world.database, tmp_path, world.clock(), rest=rest)

    assert left[:4] == [75, 65, 55, 50]


def test_deliveries_come_in_between_two_steps(world, tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "ROWS_PER_STEP", 10)
    made, busy = world.webhook(), world.webhook("busy")
    filled(world, made, 85)
    world.clock.advance(days=8)
    answers: list[int] = []

    def rest() -> bool:
        answers.append(world.post(busy, b"%d" % len(answers)).status)
        return False

    sweep(world.database, tmp_path, world.clock(), rest=rest)

    assert set(answers) == {202}


def test_a_pass_that_is_told_to_stop_stops_and_the_next_goes_on(world, tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "ROWS_PER_STEP", 10)
    made = world.webhook()
    filled(world, made, 85)
    world.clock.advance(days=8)

    passes = [sweep(world.database, tmp_path, world.clock(), rest=lambda: True) for _ in range(4)]

    assert passes == [10, 10, 10, 5]


def test_a_pass_has_a_bound_and_the_next_goes_on(world, tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "ROWS_PER_STEP", 10)
    monkeypatch.setattr(housekeeping, "STEPS_PER_PASS", 2)
    made = world.webhook()
    filled(world, made, 85)
    world.clock.advance(days=8)

    assert [sweep(world.database, tmp_path, world.clock()) for _ in range(3)] == [20, 15, 0]


def test_webhooks_with_nothing_to_remove_do_not_keep_a_pass_from_those_that_have(world, tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "STEPS_PER_PASS", 3)
    for no in range(5):
        world.post(world.webhook(f"quiet {no}"))
    filled(world, world.webhook("busy"), 60)
    world.clock.advance(days=8)

    assert sweep(world.database, tmp_path, world.clock()) == 10


def test_one_process_sweeps_at_a_time(postgres_store, tmp_path):
    world = World(postgres_store)
    try:
        made = world.webhook()
        filled(world, made, 60)
        world.clock.advance(days=8)
        with world.beside().database.write() as tx:
            tx.run("SELECT pg_advisory_xact_lock(:lock)", lock=0x73776570)

            assert sweep(world.database, tmp_path, world.clock()) == 0

        assert sweep(world.database, tmp_path, world.clock()) == 10
    finally:
        world.close()


def test_the_files_of_a_run_go_when_its_row_has_gone(world, tmp_path):
    made = world.webhook()
    world.automation("triage", made)
    old = packages_of_new_runs(world, made, tmp_path, 60)
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
    world.clock.advance(days=8)
    young = packages_of_new_runs(world, made, tmp_path, 3)

    sweep(world.database, tmp_path, world.clock())

    assert len([package for package in old if package.exists()]) == 47
    assert all(package.exists() for package in young)


def test_what_is_no_runs_package_is_left_alone(world, tmp_path):
    others = [tmp_path / name for name in ("notes", ".run_" + "0" * 32, "run_1", "run_" + "0" * 33, "run_" + "G" * 32)]
    for other in others:
        other.mkdir()
    orphan = tmp_path / ("run_" + "0" * 32)
    orphan.mkdir()
    (orphan / "event-payload.json").write_text("{}")

    sweep(world.database, tmp_path, world.clock())

    assert [other.exists() for other in others] == [True] * len(others)
    assert not orphan.exists()


def test_no_packages_yet_is_nothing_to_do(world, tmp_path):
    assert sweep(world.database, tmp_path / "nowhere", world.clock()) == 0


def test_an_unfinished_run_keeps_all_that_it_needs_however_old_it_is(world, tmp_path):
    made = world.webhook()
    world.automation("triage", made)
    answer = world.post(made, b"[1]")
    world.management.automations.delete(world.may, "triage")
    world.clock.advance(seconds=60)
    filled(world, made, 60)
    world.clock.advance(days=300)

    sweep(world.database, tmp_path, world.clock())

    [run] = world.runs(made)
    assert f"dlv_{run.delivery_id.hex()}" == answer.delivery_id
    assert world.management.log.payload(world.may, answer.delivery_id) == b"[1]"


def test_housekeeping_sweeps_by_itself_and_again(world, tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "FIRST_SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(housekeeping, "RETENTION_SECONDS", 0.01)
    made = world.webhook()
    keeping = Housekeeping(world.database, tmp_path, world.clock)
    try:
        for _ in range(2):
            filled(world, made, 60)
            world.clock.advance(days=8)
            until(lambda: len(world.log(made)) == 50)
    finally:
        keeping.close()

    assert "housekeeping" not in {thread.name for thread in threading.enumerate()}


def test_a_pass_that_fails_is_told_of_and_is_not_the_last(world, tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "FIRST_SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(housekeeping, "RETENTION_SECONDS", 0.01)
    made = world.webhook()
    filled(world, made, 60)
    world.clock.advance(days=8)
    refuse_to_delete(world)
    failures: list[str] = []
    keeping = Housekeeping(world.database, tmp_path, world.clock, failed=lambda where, _: failures.append(where))
    try:
        until(lambda: len(failures) >= 2)
        with world.database.write() as tx:
            tx.run("DROP TRIGGER refusing" + ("" if tx.on_sqlite else " ON deliveries"))
        until(lambda: len(world.log(made)) == 50)
    finally:
        keeping.close()

    assert set(failures) == {"retention"}


def test_housekeeping_that_has_much_to_do_stops_when_told(world, tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "FIRST_SWEEP_SECONDS", 0.0)
    monkeypatch.setattr(housekeeping, "ROWS_PER_STEP", 1)
    made = world.webhook()
    filled(world, made, 240)
    world.clock.advance(days=8)
    keeping = Housekeeping(world.database, tmp_path, world.clock)
    until(lambda: len(world.log(made)) < 240)

    keeping.close()

    assert "housekeeping" not in {thread.name for thread in threading.enumerate()}
    assert len(world.log(made)) > 50


def test_a_disk_with_room_lets_deliveries_in(tmp_path):
    assert DiskGuard(tmp_path, 1)()


def test_a_disk_below_the_watermark_does_not(tmp_path):
    assert not DiskGuard(tmp_path, shutil.disk_usage(tmp_path).total)()


def test_a_disk_that_is_not_there_does_not(tmp_path):
    assert not DiskGuard(tmp_path / "nowhere", 0)()


def test_the_disk_is_looked_at_once_a_second_however_often_it_is_asked_for(tmp_path, monkeypatch):
    directory = tmp_path / "data"
    directory.mkdir()
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    guard = DiskGuard(directory, 1)
    before = guard()
    directory.rmdir()

    now += 0.9
    still = guard()
    now += 0.2
    after = guard()
    directory.mkdir()
    now += 1.1

    assert (before, still, after, guard()) == (True, True, False, True)


def test_the_watermark_is_of_what_an_unprivileged_process_may_use(tmp_path):
    usable = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize

    assert DiskGuard(tmp_path, usable // 2)()
    assert not DiskGuard(tmp_path, usable * 2)()


def test_a_row_that_is_gone_is_said_to_be_gone(world, tmp_path):
    made = world.webhook()
    answer = world.post(made, b'"first"')
    world.clock.advance(seconds=60)
    filled(world, made, 60)
    world.clock.advance(days=8)
    sweep(world.database, tmp_path, world.clock())

    with pytest.raises(NotFound, match="or the log no longer keeps it"):
        world.management.log.get(world.may, answer.delivery_id)


def filled(world: World, made: WebhookWithSecret, count: int) -> None:
    """So many rows, a second apart."""
    for no in range(count):
        assert world.post(made, b"[%d, %d]" % (world.clock.now, no)).status == 202
        world.clock.advance(seconds=1.1)


def packages_of_new_runs(world: World, made: WebhookWithSecret, packages: Path, count: int) -> list[Path]:
    before = {run.id for run in world.runs(made)}
    filled(world, made, count)
    directories = [packages / run_id(run.id) for run in world.runs(made) if run.id not in before]
    for directory in directories:
        directory.mkdir()
        (directory / "event-payload.json").write_text("{}")
    return directories


def refuse_to_delete(world: World) -> None:
    with world.database.write() as tx:
        if tx.on_sqlite:
            tx.run("CREATE TRIGGER refusing BEFORE DELETE ON deliveries BEGIN SELECT RAISE(ABORT, 'refused'); END")
        else:
            tx.run(
                """
                CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'refused'; END $$
                """
            )
            tx.run("CREATE TRIGGER refusing BEFORE DELETE ON deliveries FOR EACH ROW EXECUTE FUNCTION refuse()")


def rows(world: World, table: str) -> int:
    with world.database.read() as tx:
        return len(tx.all(f"SELECT * FROM {table}"))
