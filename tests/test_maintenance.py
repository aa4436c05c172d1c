"""Background maintenance: passes of retention, the files of pruned runs, and the check for free disk space."""

import os
import pwd
import shutil
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from hookmill import maintenance
from hookmill.domain.errors import NotFound
from hookmill.domain.ids import run_id
from hookmill.maintenance import DiskGuard, Maintenance, advance_retention_time, run_retention
from hookmill.management import WebhookWithSecret
from hookmill.runs.package import directory_of
from hookmill.store import metadata
from hookmill.store.database import open_database, sqlite_url
from hookmill.store.runs import removal
from tests.support.loaded import Forked
from tests.support.stores import migrated_sqlite_file
from tests.support.waiting import LONG_SECONDS, until
from tests.support.world import World

SCHEDULE = {"provider": "schedule", "event": "cron_fired", "schedule": {"name": "nightly", "cron": "@daily"}}


def test_a_pass_prunes_every_webhook_and_returns_the_number_of_rows(world, tmp_path):
    one, other = world.webhook("one"), world.webhook("other")
    for made in (one, other):
        filled(world, made, 60)
    world.clock.advance(days=8)

    assert run_retention(world.database, tmp_path, world.clock()) == 20
    assert (len(world.log(one)), len(world.log(other))) == (50, 50)
    assert run_retention(world.database, tmp_path, world.clock()) == 0


def test_a_deleted_webhooks_log_is_pruned_too(world, tmp_path):
    made = world.webhook()
    filled(world, made, 60)
    world.management.webhooks.delete(world.may, "source")
    world.clock.advance(days=8)

    assert run_retention(world.database, tmp_path, world.clock()) == 10


def test_a_pass_forgets_old_identities_and_old_counters(world, tmp_path):
    made = world.webhook()
    maintenance.keep_segments(world.database, world.clock())
    world.post(made, headers={"X-Service-Delivery-Id": "event-1"})
    world.management.webhooks.set_enabled(world.may, "source", False)
    world.post(made)
    assert world.dropped_attempts(made) == {"not_found": 1}
    world.clock.advance(days=1)
    maintenance.keep_segments(world.database, world.clock())
    world.clock.advance(days=31)

    run_retention(world.database, tmp_path, world.clock())

    assert (rows(world, "identities"), rows(world, "dropped_attempts")) == (0, 0)


def test_a_pass_works_in_small_steps_and_rests_between_them(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 10)
    made = world.webhook()
    filled(world, made, 85)
    world.clock.advance(days=8)
    left = []

    def rest() -> bool:
        left.append(len(world.log(made)))
        return False

    run_retention(world.database, tmp_path, world.clock(), pause=rest)

    assert left[:4] == [75, 65, 55, 50]


def test_deliveries_come_in_between_two_steps(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 10)
    made, busy = world.webhook(), world.webhook("busy")
    filled(world, made, 85)
    world.clock.advance(days=8)
    answers: list[int] = []

    def rest() -> bool:
        answers.append(world.post(busy, b"%d" % len(answers)).status)
        return False

    run_retention(world.database, tmp_path, world.clock(), pause=rest)

    assert set(answers) == {202}


def test_a_stopped_pass_ends_and_the_next_one_continues(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 10)
    made = world.webhook()
    filled(world, made, 85)
    world.clock.advance(days=8)

    passes = [run_retention(world.database, tmp_path, world.clock(), pause=lambda: True) for _ in range(4)]

    assert passes == [10, 10, 10, 5]


def test_a_pass_has_a_bound_and_the_next_goes_on(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 10)
    monkeypatch.setattr(maintenance, "STEPS_PER_PASS", 2)
    made = world.webhook()
    filled(world, made, 85)
    world.clock.advance(days=8)

    assert [run_retention(world.database, tmp_path, world.clock()) for _ in range(3)] == [20, 15, 0]


def test_a_pass_that_left_rows_is_followed_by_another(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "FIRST_PASS_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 10)
    monkeypatch.setattr(maintenance, "STEPS_PER_PASS", 2)
    made = world.webhook()
    filled(world, made, 130)
    world.clock.advance(days=8)
    with world.database.write() as tx:
        metadata.set_retention_clock(tx, world.clock())
    running = Maintenance(world.database, tmp_path, world.clock)

    try:
        until(lambda: len(world.log(made)) == 50)
    finally:
        running.close()


def test_a_log_that_needs_all_steps_does_not_keep_old_identities(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 1)
    monkeypatch.setattr(maintenance, "STEPS_PER_PASS", 2)
    maintenance.keep_segments(world.database, world.clock())
    filled(world, world.webhook(), 60)
    world.clock.advance(days=1)
    maintenance.keep_segments(world.database, world.clock())
    world.clock.advance(days=31)

    assert run_retention(world.database, tmp_path, world.clock()) == 2
    assert rows(world, "identity_segments") == 1


def test_webhooks_with_nothing_to_remove_do_not_use_up_a_pass(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "STEPS_PER_PASS", 3)
    for no in range(5):
        world.post(world.webhook(f"quiet {no}"))
    filled(world, world.webhook("busy"), 60)
    world.clock.advance(days=8)

    assert run_retention(world.database, tmp_path, world.clock()) == 10


def test_one_process_sweeps_at_a_time(postgres_store, tmp_path):
    world = World(postgres_store)
    try:
        made = world.webhook()
        filled(world, made, 60)
        world.clock.advance(days=8)
        with world.beside().database.write() as tx:
            tx.run("SELECT pg_advisory_xact_lock(:lock)", lock=0x73776570)

            assert run_retention(world.database, tmp_path, world.clock()) == 0

        assert run_retention(world.database, tmp_path, world.clock()) == 10
    finally:
        world.close()


def test_every_host_removes_its_own_packages(postgres_store, tmp_path):
    world = World(postgres_store)
    try:
        left = tmp_path / "run_01a1fd956cd87af0bc1d26ba1931dc98"
        left.mkdir()
        filled(world, world.webhook(), 60)
        world.clock.advance(days=8)
        with world.beside().database.write() as tx:
            tx.run("SELECT pg_advisory_xact_lock(:lock)", lock=0x73776570)

            run_retention(world.database, tmp_path, world.clock())

        assert not left.exists()
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

    run_retention(world.database, tmp_path, world.clock())

    assert len([package for package in old if package.exists()]) == 47
    assert all(package.exists() for package in young)


def test_what_is_no_runs_package_is_left_alone(world, tmp_path):
    others = [tmp_path / name for name in ("notes", ".run_" + "0" * 32, "run_1", "run_" + "0" * 33, "run_" + "G" * 32)]
    for other in others:
        other.mkdir()
    orphan = tmp_path / ("run_" + "0" * 32)
    orphan.mkdir()
    (orphan / "event-payload.json").write_text("{}")

    run_retention(world.database, tmp_path, world.clock())

    assert [other.exists() for other in others] == [True] * len(others)
    assert not orphan.exists()


HOURS_AGO = time.time() - 7_200


def draft_of(world: World, packages: Path, *, state: str, age: float = HOURS_AGO) -> Path:
    """What a worker that was killed while it wrote a package left of it."""
    made = world.webhook(f"of a {state} run")
    world.automation(f"for a {state} run", made)
    world.post(made)
    [run] = world.runs(made)
    with world.database.write() as tx:
        tx.run(
            "UPDATE runs SET state = :state, finished_at = CASE WHEN :state = 'failed' THEN 1 END WHERE id = :id",
            id=run.id,
            state=state,
        )
    draft = packages / f".{run_id(run.id)}"
    draft.mkdir()
    (draft / "event-payload.json").write_text("{}")
    os.utime(draft, (age, age))
    return draft


def test_drafts_and_test_writes_that_nobody_works_on_are_removed(world, tmp_path):
    orphan = tmp_path / (".run_" + "0" * 32)
    probe = tmp_path / ".probe-abc"
    for directory in (orphan, probe):
        directory.mkdir()
        os.utime(directory, (HOURS_AGO, HOURS_AGO))
    finished = draft_of(world, tmp_path, state="failed")

    run_retention(world.database, tmp_path, world.clock())

    assert [place.exists() for place in (orphan, probe, finished)] == [False] * 3


def test_drafts_and_test_writes_that_somebody_may_work_on_are_left(world, tmp_path):
    young = draft_of(world, tmp_path, state="failed", age=time.time() - 60)
    probe = tmp_path / ".probe-abc"
    probe.mkdir()
    # The next attempt removes these itself, and may be about to.
    queued, running = (draft_of(world, tmp_path, state=state) for state in ("queued", "running"))

    run_retention(world.database, tmp_path, world.clock())

    assert [place.exists() for place in (young, probe, queued, running)] == [True] * 4


def test_a_link_in_the_place_of_a_package_is_removed_and_not_followed(world, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    outside.chmod(0o500)
    packages = tmp_path / "runs"
    packages.mkdir()
    link = packages / ("run_" + "0" * 32)
    link.symlink_to(outside)

    run_retention(world.database, packages, world.clock())

    assert not link.is_symlink()
    assert (outside / "precious").read_text() == "x"
    assert outside.stat().st_mode & 0o777 == 0o500


def sweep_what_stays(database: str, packages: str) -> None:
    """As an account that may not remove anything from the packages' directory, by a clock that jumps ahead."""
    if os.geteuid() == 0:
        os.setuid(pwd.getpwnam("nobody").pw_uid)
    maintenance.FIRST_PASS_SECONDS = maintenance.RETENTION_SECONDS = 0.01  # type: ignore[misc]
    Path(packages).chmod(0o500)
    passes = count()
    with open_database(database) as store:
        advance_retention_time(store, 0, 0)
        running = Maintenance(
            store,
            Path(packages),
            lambda: next(passes) + 40 * 24 * 3_600_000_000,
            report_failure=lambda component, error: print(component, error, flush=True),
        )
        until(lambda: next(passes) > 20)
        running.close()
    Path(packages).chmod(0o700)


def test_problems_that_stay_are_each_reported_once():
    top = Path(tempfile.mkdtemp())
    packages = top / "runs"
    try:
        shutil.copyfile(migrated_sqlite_file(), top / "hookmill.db")
        for number in range(3):
            (packages / f"run_{number:032x}").mkdir(parents=True)
        if os.geteuid() == 0:
            for place in (top, *top.rglob("*")):
                shutil.chown(place, "nobody")
        process = Forked(
            sweep_what_stays, (sqlite_url(top / "hookmill.db"), str(packages)), os.environ, top, top / "out"
        )

        assert process.wait(LONG_SECONDS) == 0, (top / "out").read_text()
        line, ahead = sorted((top / "out").read_text().splitlines())
    finally:
        shutil.rmtree(top)

    assert ahead.startswith("retention The clock is more than a day ahead")
    assert line.startswith("retention Retention could not remove packages of pruned runs: ")
    assert f"{packages}/run_{0:032x}: Permission denied, and 2 more." in line


def test_no_packages_yet_is_nothing_to_do(world, tmp_path):
    assert run_retention(world.database, tmp_path / "nowhere", world.clock()) == 0


def test_an_unfinished_run_keeps_all_that_it_needs_however_old_it_is(world, tmp_path):
    made = world.webhook()
    world.automation("triage", made)
    answer = world.post(made, b"[1]")
    world.management.automations.delete(world.may, "triage")
    world.clock.advance(seconds=60)
    filled(world, made, 60)
    world.clock.advance(days=300)

    run_retention(world.database, tmp_path, world.clock())

    [run] = world.runs(made)
    assert f"dlv_{run.delivery_key.hex()}" == answer.delivery_id
    assert world.management.log.payload(world.may, answer.delivery_id) == b"[1]"


def test_runs_without_a_delivery_are_pruned_with_all_that_they_have(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 3)
    automations = [
        world.management.automations.create(world.may, name, prompt="Look.", triggers=[SCHEDULE])
        for name in ("often", "seldom")
    ]
    often, seldom = [], []
    for _ in range(60):
        often.append(world.management.automations.start_run(world.may, automations[0].id, b"[1]"))
        world.clock.advance(seconds=0.001)
    for _ in range(3):
        seldom.append(world.management.automations.start_run(world.may, automations[1].id))
    packages = [directory_of(tmp_path, run) for run in (*often, *seldom)]
    for package in packages:
        package.mkdir()
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'failed', finished_at = 1 WHERE id <> :id", id=often[4].id)
        tx.run("INSERT INTO failed_attempts (run_id, attempt, started_at, finished_at) SELECT id, 1, 1, 1 FROM runs")
        tx.run(
            "INSERT INTO run_files (run_id, name, attempt, size, host) SELECT id, :name, 1, 1, 'host' FROM runs",
            name=b"output.log",
        )
    world.management.automations.delete(world.may, "often")

    run_retention(world.database, tmp_path, world.clock())
    assert rows(world, "runs") == 63
    world.clock.advance(days=8)
    run_retention(world.database, tmp_path, world.clock())

    # The newest fifty of each automation, and the unfinished run.
    assert [package.exists() for package in packages] == [number == 4 or number >= 10 for number in range(63)]
    assert (rows(world, "runs"), rows(world, "failed_attempts"), rows(world, "payloads")) == (54, 54, 51)
    assert (rows(world, "run_files"), rows(world, "removed_runs")) == (54, 0)


def test_files_go_with_their_run_in_bounded_steps(world, tmp_path, monkeypatch):
    monkeypatch.setattr(removal, "BYTES_PER_STEP", 1_000)
    made = world.webhook()
    world.automation("reader", made)
    filled(world, made, 53)
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
        for row in tx.all("SELECT id FROM runs"):
            for name in (b"a", b"b"):
                tx.run(
                    "INSERT INTO run_files (run_id, name, attempt, size, host, content)"
                    " VALUES (:run, :name, 1, 600, 'host', :content)",
                    run=row["id"],
                    name=name,
                    content=b"x" * 600,
                )
    world.clock.advance(days=8)
    counts = []

    def rest() -> bool:
        counts.append(rows(world, "run_files"))
        return False

    run_retention(world.database, tmp_path, world.clock(), pause=rest)

    # Three deliveries are pruned, each with a run and two files. Two files have more than 1,000 bytes.
    assert sorted(set(counts), reverse=True) == [106, 104, 102, 100]
    with world.database.read() as tx:
        assert tx.all("SELECT run_id FROM run_files WHERE run_id NOT IN (SELECT id FROM runs)") == []
    assert (rows(world, "runs"), rows(world, "removed_runs")) == (50, 0)


def test_maintenance_sweeps_repeatedly(world, tmp_path, monkeypatch):
    # The clock jumps by days, and retention would follow it by an hour in each pass.
    monkeypatch.setattr(maintenance, "CATCH_UP_FACTOR", 1_000_000_000)
    monkeypatch.setattr(maintenance, "FIRST_PASS_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "RETENTION_SECONDS", 0.01)
    made = world.webhook()
    running = Maintenance(world.database, tmp_path, world.clock)
    try:
        for _ in range(2):
            filled(world, made, 60)
            world.clock.advance(days=8)
            until(lambda: len(world.log(made)) == 50)
    finally:
        running.close()

    assert "maintenance" not in {thread.name for thread in threading.enumerate()}


def test_a_pass_that_fails_is_logged_and_followed_by_others(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "FIRST_PASS_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "RETENTION_SECONDS", 0.01)
    made = world.webhook()
    filled(world, made, 60)
    world.clock.advance(days=8)
    refuse_to_delete(world)
    failures: list[str] = []
    running = Maintenance(
        world.database, tmp_path, world.clock, report_failure=lambda component, _: failures.append(component)
    )
    try:
        until(lambda: len(failures) >= 2)
        with world.database.write() as tx:
            tx.run("DROP TRIGGER refusing" + ("" if tx.on_sqlite else " ON deliveries"))
        until(lambda: len(world.log(made)) == 50)
    finally:
        running.close()

    assert set(failures) == {"retention"}


def test_a_clock_that_is_wrong_for_an_hour_removes_nothing(world, tmp_path):
    made = world.webhook()
    hour = 3_600_000_000
    advance_retention_time(world.database, world.clock(), 0)
    world.post(made, headers={"X-Service-Delivery-Id": "event-1"})
    right = world.clock()

    wrong = [advance_retention_time(world.database, right + 40 * 24 * hour, hour // 6) for _ in range(6)]
    run_retention(world.database, tmp_path, wrong[-1])

    assert wrong == [right + passes * 5 * hour for passes in range(1, 7)]
    assert rows(world, "identities") == 1
    assert advance_retention_time(world.database, right, hour // 6) == right
    assert advance_retention_time(world.database, right + hour // 6, hour // 6) == right + hour // 6


def test_a_clock_that_is_far_ahead_is_logged_once(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "FIRST_PASS_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "RETENTION_SECONDS", 0.01)
    failures: list[tuple[str, BaseException]] = []
    passes = count(1)
    begun: list[int] = []

    def now() -> int:
        begun.append(next(passes))
        return int(world.clock()) + (40 * 24 * 3_600_000_000 if begun[-1] > 1 else 0)

    running = Maintenance(world.database, tmp_path, now, report_failure=lambda *failure: failures.append(failure))
    until(lambda: len(begun) > 4)
    running.close()

    ((component, error),) = failures
    assert component == "retention"
    assert "The clock is more than a day ahead" in str(error)


def test_busy_maintenance_stops_promptly(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "FIRST_PASS_SECONDS", 0.0)
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 1)
    made = world.webhook()
    filled(world, made, 240)
    world.clock.advance(days=8)
    running = Maintenance(world.database, tmp_path, world.clock)
    until(lambda: len(world.log(made)) < 240)

    running.close()

    assert "maintenance" not in {thread.name for thread in threading.enumerate()}
    assert len(world.log(made)) > 50


def test_a_disk_with_room_lets_deliveries_in(tmp_path):
    assert DiskGuard(tmp_path, 1)()


def test_a_disk_below_the_watermark_does_not(tmp_path):
    assert not DiskGuard(tmp_path, shutil.disk_usage(tmp_path).total)()


def test_a_disk_that_is_not_there_does_not(tmp_path):
    assert not DiskGuard(tmp_path / "nowhere", 0)()


@pytest.mark.parametrize(("files", "free", "has_room"), [(60, 30, False), (10**6, 10**5, True), (0, 0, True)])
def test_a_disk_needs_free_inodes_too_where_it_counts_them(tmp_path, monkeypatch, files, free, has_room):
    disk = list(os.statvfs(tmp_path))
    disk[5:8] = [files, free, free]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(disk))

    assert DiskGuard(tmp_path, 0)() is has_room


def test_free_disk_space_is_read_at_most_once_a_second(tmp_path, monkeypatch):
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
    run_retention(world.database, tmp_path, world.clock())

    with pytest.raises(NotFound, match="or retention has pruned it"):
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
