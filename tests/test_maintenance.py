"""Background maintenance: passes of retention, packages of pruned runs, and the check for free disk space."""

import os
import pwd
import shutil
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hookmill import maintenance
from hookmill.domain.ids import run_id, run_key
from hookmill.maintenance import DiskGuard, Maintenance, PackageBound, advance_retention_time, run_retention
from hookmill.management import WebhookWithSecret
from hookmill.metrics import RETENTION_PASS, RETENTION_ROWS, Metrics
from hookmill.runs.package import directory_of
from hookmill.runs.workspaces.checkouts import Checkouts
from hookmill.sandbox.reserve import HostReserve
from hookmill.store import metadata, timeouts
from hookmill.store.database import open_database, sqlite_url
from hookmill.store.runs import removal
from tests.support.automations import automation_created
from tests.support.loaded import Forked
from tests.support.stores import migrated_sqlite_file
from tests.support.triggers import cron_fired
from tests.support.waiting import LONG_SECONDS, until
from tests.support.world import World

SCHEDULE = cron_fired("nightly", "@daily")


def test_pass_prunes_every_webhook_and_returns_the_number_of_rows(world, tmp_path):
    one, other = world.webhook("one"), world.webhook("other")
    for webhook in (one, other):
        post_deliveries(world, webhook, 60)
    world.clock.advance(days=8)

    assert run_retention(world.database, tmp_path, world.clock()) == 20
    assert (len(world.log(one)), len(world.log(other))) == (50, 50)
    assert run_retention(world.database, tmp_path, world.clock()) == 0


def test_log_of_a_deleted_webhook_is_removed_after_seven_days(world, tmp_path):
    webhook, other = world.webhook(), world.webhook("other")
    world.automation("reader", webhook)
    post_deliveries(world, webhook, 3)
    world.post(webhook, token="wrong")
    post_deliveries(world, other, 3)
    unfinished = world.runs(webhook)[0]
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'failed', finished_at = 1 WHERE id <> :id", id=unfinished.id)
    world.clock.advance(days=30)
    world.management.webhooks.delete(world.may, "source")
    world.clock.advance(days=6)
    assert run_retention(world.database, tmp_path, world.clock()) == 0
    world.clock.advance(days=2)

    assert run_retention(world.database, tmp_path, world.clock()) == 3

    # The payload of the unfinished run stays until it ends, and the other webhook's newest fifty stay for good.
    assert [run.id for run in world.runs(webhook)] == [unfinished.id]
    assert (row_count(world, "deliveries"), row_count(world, "payloads"), row_count(world, "runs")) == (4, 4, 1)
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'failed', finished_at = 1")
    assert run_retention(world.database, tmp_path, world.clock()) == 1
    assert (row_count(world, "deliveries"), row_count(world, "payloads"), row_count(world, "runs")) == (3, 3, 0)


def test_runs_of_a_deleted_automation_are_removed_after_seven_days(world, tmp_path):
    webhook = world.webhook()
    deleted, kept = world.automation("deleted", webhook), world.automation("kept", webhook)
    post_deliveries(world, webhook, 2)
    for automation in (deleted, kept):
        world.management.automations.start_run(world.may, automation.id, b"[1]")
    packages = [directory_of(tmp_path, run.id) for run in world.management.runs.newest(world.may, limit=10)]
    for package in packages:
        package.mkdir()
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'failed', finished_at = 1")
        tx.run("INSERT INTO run_outputs (run_id, name, content, is_cut) SELECT id, 'summary.md', 'x', FALSE FROM runs")
    world.clock.advance(days=30)
    world.management.automations.delete(world.may, "deleted")
    world.clock.advance(days=6)
    run_retention(world.database, tmp_path, world.clock())
    assert (row_count(world, "runs"), row_count(world, "automation_versions")) == (6, 2)
    world.clock.advance(days=2)

    run_retention(world.database, tmp_path, world.clock())

    # The payloads belong to the deliveries, and to the run that was started by hand.
    assert (row_count(world, "runs"), row_count(world, "run_outputs"), row_count(world, "payloads")) == (3, 3, 3)
    assert {run.automation_name for run in world.management.runs.newest(world.may, limit=10)} == {"kept"}
    assert (row_count(world, "automations"), row_count(world, "automation_versions")) == (1, 1)
    assert sum(package.exists() for package in packages) == 3


def test_unfinished_run_keeps_its_deleted_automation(world, tmp_path):
    webhook = world.webhook()
    deleted = world.automation("deleted", webhook)
    run = world.management.automations.start_run(world.may, deleted.id, b"[1]")
    world.management.automations.delete(world.may, "deleted")
    world.clock.advance(days=8)

    run_retention(world.database, tmp_path, world.clock())

    assert [kept.prompt for kept in world.management.runs.newest(world.may, limit=10)] == [run.prompt]
    assert row_count(world, "payloads") == 1


def test_pass_removes_old_identities_and_dropped_attempts(world, tmp_path):
    webhook = world.webhook()
    maintenance.keep_segments(world.database, world.clock())
    world.post(webhook, headers={"X-Service-Delivery-Id": "event-1"})
    world.management.webhooks.set_enabled(world.may, "source", False)
    world.post(webhook)
    assert world.dropped_attempts(webhook) == {"not_found": 1}
    world.clock.advance(days=1)
    maintenance.keep_segments(world.database, world.clock())
    world.clock.advance(days=31)

    run_retention(world.database, tmp_path, world.clock())

    assert (row_count(world, "identities"), row_count(world, "dropped_attempts")) == (0, 0)


def test_pass_works_in_small_steps_with_pauses_between_them(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 10)
    webhook = world.webhook()
    post_deliveries(world, webhook, 85)
    world.clock.advance(days=8)
    counts = []

    def pause(_locked_seconds: float) -> bool:
        counts.append(len(world.log(webhook)))
        return False

    run_retention(world.database, tmp_path, world.clock(), pause=pause)

    assert counts[:4] == [75, 65, 55, 50]


def test_time_that_waits_for_the_write_lock_lengthens_no_pause(tmp_path, monkeypatch):
    monkeypatch.setattr(timeouts, "BUSY_SECONDS", 50)
    shutil.copyfile(migrated_sqlite_file(), tmp_path / "hookmill.db")
    url = sqlite_url(tmp_path / "hookmill.db")
    steps: list[tuple[float, float]] = []

    def pause(locked_seconds: float) -> bool:
        steps.append((locked_seconds, time.monotonic()))
        return False

    with open_database(url) as database, open_database(url) as other, ThreadPoolExecutor(1) as threads:
        with other.write():
            running = threads.submit(run_retention, database, tmp_path, int(time.time() * 1e6), pause=pause)
            time.sleep(0.2)
            released_at = time.monotonic()
        running.result()

    assert steps
    assert sum(locked for locked, _ in steps) <= steps[-1][1] - released_at


def test_deliveries_are_accepted_between_two_steps(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 10)
    webhook, busy = world.webhook(), world.webhook("busy")
    post_deliveries(world, webhook, 85)
    world.clock.advance(days=8)
    statuses: list[int] = []

    def pause(_locked_seconds: float) -> bool:
        statuses.append(world.post(busy, b"%d" % len(statuses)).status)
        return False

    run_retention(world.database, tmp_path, world.clock(), pause=pause)

    assert set(statuses) == {202}


def test_stopped_pass_ends_and_the_next_one_continues(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 10)
    webhook = world.webhook()
    post_deliveries(world, webhook, 85)
    world.clock.advance(days=8)

    passes = [
        run_retention(world.database, tmp_path, world.clock(), pause=lambda _locked_seconds: True) for _ in range(4)
    ]

    assert passes == [10, 10, 10, 5]


def test_pass_is_bounded_and_the_next_one_continues(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 10)
    monkeypatch.setattr(maintenance, "STEPS_PER_PASS", 2)
    webhook = world.webhook()
    post_deliveries(world, webhook, 85)
    world.clock.advance(days=8)

    assert [run_retention(world.database, tmp_path, world.clock()) for _ in range(3)] == [20, 15, 0]


def test_pass_that_left_rows_is_followed_by_another(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "FIRST_PASS_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 10)
    monkeypatch.setattr(maintenance, "STEPS_PER_PASS", 2)
    webhook = world.webhook()
    post_deliveries(world, webhook, 130)
    world.clock.advance(days=8)
    with world.database.write() as tx:
        metadata.set_retention_clock(tx, world.clock())
    running = Maintenance(world.database, tmp_path, world.clock)

    try:
        until(lambda: len(world.log(webhook)) == 50)
    finally:
        running.close()


def test_long_log_does_not_delay_the_removal_of_old_identities(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 1)
    monkeypatch.setattr(maintenance, "STEPS_PER_PASS", 2)
    maintenance.keep_segments(world.database, world.clock())
    post_deliveries(world, world.webhook(), 60)
    world.clock.advance(days=1)
    maintenance.keep_segments(world.database, world.clock())
    world.clock.advance(days=31)

    assert run_retention(world.database, tmp_path, world.clock()) == 2
    assert row_count(world, "identity_segments") == 1


def test_webhooks_without_old_rows_use_no_steps_of_a_pass(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "STEPS_PER_PASS", 3)
    for number in range(5):
        world.post(world.webhook(f"quiet {number}"))
    post_deliveries(world, world.webhook("busy"), 60)
    world.clock.advance(days=8)

    assert run_retention(world.database, tmp_path, world.clock()) == 10


def test_only_one_process_prunes_at_a_time_and_every_host_removes_its_own_packages(postgres_store, tmp_path):
    world = World(postgres_store)
    try:
        package = tmp_path / "run_01a1fd956cd87af0bc1d26ba1931dc98"
        package.mkdir()
        webhook = world.webhook()
        post_deliveries(world, webhook, 60)
        world.clock.advance(days=8)
        with world.another_process().database.write() as tx:
            tx.run("SELECT pg_advisory_xact_lock(:lock)", lock=0x73776570)

            assert run_retention(world.database, tmp_path, world.clock()) == 0

        assert not package.exists()
        assert run_retention(world.database, tmp_path, world.clock()) == 10
    finally:
        world.close()


def test_package_is_removed_after_the_row_of_its_run(world, tmp_path):
    webhook = world.webhook()
    world.automation("triage", webhook)
    old_packages = packages_of_new_runs(world, webhook, tmp_path, 60)
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
    world.clock.advance(days=8)
    new_packages = packages_of_new_runs(world, webhook, tmp_path, 3)

    run_retention(world.database, tmp_path, world.clock())

    assert len([package for package in old_packages if package.exists()]) == 47
    assert all(package.exists() for package in new_packages)


def test_directories_that_are_no_packages_are_not_removed(world, tmp_path):
    others = [tmp_path / name for name in ("notes", ".run_" + "0" * 32, "run_1", "run_" + "0" * 33, "run_" + "G" * 32)]
    for other in others:
        other.mkdir()
    orphan = tmp_path / ("run_" + "0" * 32)
    orphan.mkdir()
    (orphan / "event-payload.json").write_text("{}")

    run_retention(world.database, tmp_path, world.clock())

    assert [other.exists() for other in others] == [True] * len(others)
    assert not orphan.exists()


TWO_HOURS_AGO = time.time() - 7_200


def draft_of(world: World, packages: Path, *, state: str, modified_at: float = TWO_HOURS_AGO) -> Path:
    """The draft of a package, as a worker leaves it that is killed while it writes the package."""
    webhook = world.webhook(f"of a {state} run")
    world.automation(f"for a {state} run", webhook)
    world.post(webhook)
    [run] = world.runs(webhook)
    with world.database.write() as tx:
        tx.run(
            "UPDATE runs SET state = :state, finished_at = CASE WHEN :state = 'failed' THEN 1 END,"
            " executor = CASE WHEN :state = 'running' THEN 'x' END, claimed_at = 1 WHERE id = :id",
            id=run.id,
            state=state,
        )
    draft = packages / f".{run_id(run.id)}"
    draft.mkdir()
    (draft / "event-payload.json").write_text("{}")
    os.utime(draft, (modified_at, modified_at))
    return draft


def test_abandoned_drafts_and_probes_are_removed(world, tmp_path):
    orphan = tmp_path / (".run_" + "0" * 32)
    probe = tmp_path / ".probe-abc"
    for directory in (orphan, probe):
        directory.mkdir()
        os.utime(directory, (TWO_HOURS_AGO, TWO_HOURS_AGO))
    draft = draft_of(world, tmp_path, state="failed")

    run_retention(world.database, tmp_path, world.clock())

    assert [path.exists() for path in (orphan, probe, draft)] == [False] * 3


def test_drafts_and_probes_that_may_be_in_use_are_not_removed(world, tmp_path):
    new_draft = draft_of(world, tmp_path, state="failed", modified_at=time.time() - 60)
    probe = tmp_path / ".probe-abc"
    probe.mkdir()
    # The next attempt removes these drafts itself. It may do so at any time.
    queued, running = (draft_of(world, tmp_path, state=state) for state in ("queued", "running"))

    run_retention(world.database, tmp_path, world.clock())

    assert [path.exists() for path in (new_draft, probe, queued, running)] == [True] * 4


def test_symbolic_link_in_place_of_a_package_is_not_followed(world, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    outside.chmod(0o500)
    packages = tmp_path / "runs"
    packages.mkdir()
    link = packages / ("run_" + "0" * 32)
    link.symlink_to(outside)

    run_retention(world.database, packages, world.clock())

    assert not link.is_symlink()
    assert (outside / "file").read_text() == "x"
    assert outside.stat().st_mode & 0o777 == 0o500


def run_maintenance_without_permission(database: str, packages: str) -> None:
    """Run maintenance as an account that can't remove packages, with a clock that jumps ahead."""
    if os.geteuid() == 0:
        os.setuid(pwd.getpwnam("nobody").pw_uid)
    maintenance.FIRST_PASS_SECONDS = maintenance.RETENTION_SECONDS = 0.01  # type: ignore[misc]
    Path(packages).chmod(0o500)
    clock_reads: list[int] = []

    def now() -> int:
        clock_reads.append(len(clock_reads) + 40 * 24 * 3_600_000_000)
        return clock_reads[-1]

    with open_database(database) as store:
        advance_retention_time(store, 0, 0)
        running = Maintenance(
            store,
            Path(packages),
            now,
            report_failure=lambda component, error: print(component, error, flush=True),
        )
        until(lambda: len(clock_reads) > 20)
        running.close()
    Path(packages).chmod(0o700)


def test_each_lasting_problem_is_reported_once():
    top = Path(tempfile.mkdtemp())
    packages = top / "runs"
    try:
        shutil.copyfile(migrated_sqlite_file(), top / "hookmill.db")
        for number in range(3):
            (packages / f"run_{number:032x}").mkdir(parents=True)
        if os.geteuid() == 0:
            for path in (top, *top.rglob("*")):
                shutil.chown(path, "nobody")
        process = Forked(
            run_maintenance_without_permission,
            (sqlite_url(top / "hookmill.db"), str(packages)),
            os.environ,
            top,
            top / "out",
        )

        assert process.wait(LONG_SECONDS) == 0, (top / "out").read_text()
        packages_line, clock_line = sorted((top / "out").read_text().splitlines())
    finally:
        shutil.rmtree(top)

    assert clock_line.startswith("retention The clock is more than a day ahead")
    assert packages_line.startswith("retention Retention could not remove packages of pruned runs: ")
    assert f"{packages}/run_{0:032x}: Permission denied, and 2 more." in packages_line


def test_old_unfinished_run_keeps_its_delivery_and_payload(world, tmp_path):
    webhook = world.webhook()
    world.automation("triage", webhook)
    answer = world.post(webhook, b"[1]")
    world.management.automations.delete(world.may, "triage")
    world.clock.advance(seconds=60)
    post_deliveries(world, webhook, 60)
    world.clock.advance(days=300)

    run_retention(world.database, tmp_path, world.clock())

    [run] = world.runs(webhook)
    assert f"dlv_{run.delivery_key.hex()}" == answer.delivery_id
    assert world.management.log.payload(world.may, answer.delivery_id) == b"[1]"


def test_runs_without_a_delivery_are_pruned_with_their_rows_and_files(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 3)
    automations = [
        automation_created(world.management, world.may, name, triggers=[SCHEDULE]) for name in ("often", "seldom")
    ]
    often, seldom = [], []
    for _ in range(60):
        often.append(world.management.automations.start_run(world.may, automations[0].id, b"[1]"))
        world.clock.advance(seconds=0.001)
    for _ in range(3):
        seldom.append(world.management.automations.start_run(world.may, automations[1].id))
    packages = [directory_of(tmp_path, run.id) for run in (*often, *seldom)]
    for package in packages:
        package.mkdir()
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'failed', finished_at = 1 WHERE id <> :id", id=often[4].id)
        tx.run("INSERT INTO failed_attempts (run_id, attempt, started_at, finished_at) SELECT id, 1, 1, 1 FROM runs")
        tx.run("INSERT INTO run_outputs (run_id, name, content, is_cut) SELECT id, 'summary.md', 'x', FALSE FROM runs")
        tx.run("INSERT INTO attempt_reports (run_id, attempt, is_result_cut) SELECT id, 1, FALSE FROM runs")
        tx.run(
            "INSERT INTO run_files (run_id, name, attempt, size, host) SELECT id, :name, 1, 1, 'host' FROM runs",
            name=b"output.log",
        )

    run_retention(world.database, tmp_path, world.clock())
    assert row_count(world, "runs") == 63
    world.clock.advance(days=8)
    run_retention(world.database, tmp_path, world.clock())

    # The newest fifty runs of each automation are kept, and the unfinished run.
    assert [package.exists() for package in packages] == [number == 4 or number >= 10 for number in range(63)]
    assert (row_count(world, "runs"), row_count(world, "failed_attempts"), row_count(world, "payloads")) == (54, 54, 51)
    assert (row_count(world, "attempt_reports"), row_count(world, "run_outputs")) == (54, 54)
    assert (row_count(world, "run_files"), row_count(world, "removed_runs")) == (54, 0)


def test_files_of_pruned_runs_are_removed_in_bounded_steps(world, tmp_path, monkeypatch):
    monkeypatch.setattr(removal, "BYTES_PER_STEP", 1_000)
    webhook = world.webhook()
    world.automation("reader", webhook)
    post_deliveries(world, webhook, 53)
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

    def pause(_locked_seconds: float) -> bool:
        counts.append(row_count(world, "run_files"))
        return False

    run_retention(world.database, tmp_path, world.clock(), pause=pause)

    # Three deliveries are pruned, each with a run and two files. The files of a run have more than 1,000 bytes.
    assert sorted(set(counts), reverse=True) == [106, 104, 102, 100]
    with world.database.read() as tx:
        assert tx.all("SELECT run_id FROM run_files WHERE run_id NOT IN (SELECT id FROM runs)") == []
    assert (row_count(world, "runs"), row_count(world, "removed_runs")) == (50, 0)


def test_maintenance_prunes_repeatedly(world, tmp_path, monkeypatch):
    # The clock jumps by days. Without this factor, the retention clock would follow by only an hour in each pass.
    monkeypatch.setattr(maintenance, "CATCH_UP_FACTOR", 1_000_000_000)
    monkeypatch.setattr(maintenance, "FIRST_PASS_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "RETENTION_SECONDS", 0.01)
    webhook = world.webhook()
    metrics = Metrics()
    running = Maintenance(world.database, tmp_path, world.clock, metrics=metrics)
    try:
        for _ in range(2):
            post_deliveries(world, webhook, 60)
            world.clock.advance(days=8)
            until(lambda: len(world.log(webhook)) == 50)
        until(lambda: metrics.number(RETENTION_PASS).value == world.clock() / 1_000_000, "a pass is complete")
    finally:
        running.close()

    # The first time, 10 of 60 rows are removed; the second time, 60 of 110.
    assert metrics.number(RETENTION_ROWS).value == 70
    assert "maintenance" not in {thread.name for thread in threading.enumerate()}


def test_failed_pass_is_reported_and_followed_by_others(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "FIRST_PASS_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "RETENTION_SECONDS", 0.01)
    webhook = world.webhook()
    post_deliveries(world, webhook, 60)
    world.clock.advance(days=8)
    make_deletions_fail(world)
    failures: list[str] = []
    running = Maintenance(
        world.database, tmp_path, world.clock, report_failure=lambda component, _: failures.append(component)
    )
    try:
        until(lambda: len(failures) >= 2)
        with world.database.write() as tx:
            tx.run("DROP TRIGGER refusing" + ("" if tx.on_sqlite else " ON deliveries"))
        until(lambda: len(world.log(webhook)) == 50)
    finally:
        running.close()

    assert set(failures) == {"retention"}


def test_clock_that_is_wrong_for_an_hour_removes_nothing(world, tmp_path):
    webhook = world.webhook()
    hour = 3_600_000_000
    advance_retention_time(world.database, world.clock(), 0)
    world.post(webhook, headers={"X-Service-Delivery-Id": "event-1"})
    correct_time = world.clock()

    retention_times = [
        advance_retention_time(world.database, correct_time + 40 * 24 * hour, hour // 6) for _ in range(6)
    ]
    run_retention(world.database, tmp_path, retention_times[-1])

    assert retention_times == [correct_time + passes * 5 * hour for passes in range(1, 7)]
    assert row_count(world, "identities") == 1
    assert advance_retention_time(world.database, correct_time, hour // 6) == correct_time
    assert advance_retention_time(world.database, correct_time + hour // 6, hour // 6) == correct_time + hour // 6


def test_busy_maintenance_stops_promptly(world, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "FIRST_PASS_SECONDS", 0.0)
    monkeypatch.setattr(maintenance, "ROWS_PER_STEP", 1)
    webhook = world.webhook()
    post_deliveries(world, webhook, 240)
    world.clock.advance(days=8)
    running = Maintenance(world.database, tmp_path, world.clock)
    until(lambda: len(world.log(webhook)) < 240)

    running.close()

    assert "maintenance" not in {thread.name for thread in threading.enumerate()}
    assert len(world.log(webhook)) > 50


def test_disk_guard_fails_if_the_directory_is_missing(tmp_path):
    assert not DiskGuard(tmp_path / "missing", 0)()


def test_disk_guard_reports_a_full_disk_once_and_its_end(tmp_path, monkeypatch):
    disk = list(os.statvfs(tmp_path))
    disk[1:5] = [2**20, 10_000, 2_000, 2_000]
    disk[5:8] = [10**6, 10**6, 10**6]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(disk))
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    lines = []
    guard = DiskGuard(
        tmp_path,
        1_000 * 2**20,
        report_failure=lambda where, error: lines.append((where, str(error))),
        report_recovery=lambda where, what: lines.append((where, what)),
    )

    for free_mb, free_inodes in [(2_000, 10**6), (900, 10**6), (800, 10**6), (2_000, 10**6), (2_000, 10)]:
        disk[3] = disk[4] = free_mb
        disk[6] = disk[7] = free_inodes
        now += 2.0
        guard()

    assert lines == [
        (
            "disk",
            f"Deliveries get a 503. The disk of {tmp_path} has 900 MB free, less than free_space_min_mb (1,000 MB). "
            "Free disk space, move data_dir to a larger disk, or lower free_space_min_mb.",
        ),
        ("disk", f"{tmp_path} has enough free space: deliveries are accepted again."),
        (
            "disk",
            f"Deliveries get a 503. The disk of {tmp_path} has 10 free inodes, fewer than 1,000. Remove files from "
            "this disk, or move data_dir to another one.",
        ),
    ]


@pytest.mark.parametrize(("files", "free", "has_room"), [(60, 30, False), (10**6, 10**5, True), (0, 0, True)])
def test_disk_guard_requires_free_inodes_if_the_disk_counts_them(tmp_path, monkeypatch, files, free, has_room):
    disk = list(os.statvfs(tmp_path))
    disk[5:8] = [files, free, free]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(disk))

    assert DiskGuard(tmp_path, 0)() is has_room


def test_disk_guard_refuses_a_disk_that_is_mounted_read_only(tmp_path, monkeypatch):
    disk = list(os.statvfs(tmp_path))
    disk[8] |= os.ST_RDONLY
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(disk))
    reasons: list[str] = []

    guard = DiskGuard(tmp_path, 0, report_failure=lambda _, error: reasons.append(str(error)))

    assert not guard()
    assert reasons == [
        f"Deliveries get a 503. The disk of {tmp_path} is mounted read-only. Check it for errors, and remount it "
        "read-write."
    ]


def test_free_disk_space_is_read_at_most_once_a_second(tmp_path, monkeypatch):
    directory = tmp_path / "data"
    directory.mkdir()
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    guard = DiskGuard(directory, 1)
    first = guard()
    directory.rmdir()

    now += 0.9
    within_a_second = guard()
    now += 0.2
    after_a_second = guard()
    directory.mkdir()
    now += 1.1

    assert (first, within_a_second, after_a_second, guard()) == (True, True, False, True)


def test_disk_guard_counts_only_space_for_unprivileged_processes(tmp_path):
    usable = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize

    assert DiskGuard(tmp_path, usable // 2)()
    assert not DiskGuard(tmp_path, usable * 2)()


def post_deliveries(world: World, webhook: WebhookWithSecret, count: int) -> None:
    """Post so many deliveries, which are all accepted, at intervals of 1.1 s."""
    for number in range(count):
        assert world.post(webhook, b"[%d, %d]" % (world.clock.now, number)).status == 202
        world.clock.advance(seconds=1.1)


def packages_of_new_runs(world: World, webhook: WebhookWithSecret, packages: Path, count: int) -> list[Path]:
    """Post deliveries, and create the packages of the runs that they start."""
    before = {run.id for run in world.runs(webhook)}
    post_deliveries(world, webhook, count)
    directories = [packages / run_id(run.id) for run in world.runs(webhook) if run.id not in before]
    for directory in directories:
        directory.mkdir()
        (directory / "event-payload.json").write_text("{}")
    return directories


def make_deletions_fail(world: World) -> None:
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


def row_count(world: World, table: str) -> int:
    with world.database.read() as tx:
        return len(tx.all(f"SELECT * FROM {table}"))


MIB = 1_048_576


@pytest.fixture
def packages(world, tmp_path):
    """The directory of the packages of four runs, of 4 MiB each. The third run has not ended.

    It has a disk of its own, on which nothing else writes, if one can be mounted.
    """
    directory = tmp_path / "runs"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "hookmill-test", str(directory)]
    is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    webhook = world.webhook()
    world.automation("runs", webhook)
    for number in range(4):
        world.post(webhook, b"%d" % number)
    runs = sorted(world.runs(webhook), key=lambda run: run.id)
    with world.database.write() as tx:
        tx.run("UPDATE automation_versions SET runner = 'command'")
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1 WHERE id != :id", id=runs[2].id)
    for run in runs:
        package = directory_of(directory, run.id)
        package.mkdir()
        (package / "output").write_bytes(os.urandom(4 * MIB))
    yield directory
    if is_mounted:
        until(lambda: not subprocess.run(["umount", str(directory)]).returncode, "the disk is unmounted")


def remaining(packages: Path, names: list[str]) -> list[int]:
    return [number for number, name in enumerate(names) if (packages / name).exists()]


@pytest.mark.parametrize(
    ("bytes_max", "numbers"),
    [(17 * MIB, [0, 1, 2, 3]), (13 * MIB, [1, 2, 3]), (9 * MIB, [2, 3]), (1 * MIB, [2])],
)
def test_oldest_packages_of_ended_runs_are_removed_above_their_bound(world, packages, bytes_max, numbers):
    names = sorted(path.name for path in packages.iterdir())
    bound = PackageBound(world.database, packages, HostReserve(packages, 0), bytes_max)

    text = bound.remove_excess()

    assert remaining(packages, names) == numbers
    assert (text is None) == (len(numbers) == 4)
    assert bound.remove_excess() is None


def test_oldest_packages_are_removed_before_the_disk_reaches_the_reserve(world, packages):
    names = sorted(path.name for path in packages.iterdir())
    free = shutil.disk_usage(packages).free
    reserve = min(512 * MIB, shutil.disk_usage(packages).total // 10)
    # The packages have 12 MiB that could be removed. With them, the disk would be as full as it may be.
    full = HostReserve(packages, free - 2 * reserve + 6 * MIB)
    roomy, filled_by_others = HostReserve(packages, 0), HostReserve(packages, free)

    for unhelpful in (roomy, filled_by_others):
        assert PackageBound(world.database, packages, unhelpful, None).remove_excess() is None
    assert remaining(packages, names) == [0, 1, 2, 3]
    text = PackageBound(world.database, packages, full, None).remove_excess()

    assert (text or "").startswith("Removed packages of ended runs (3), oldest first, because ")
    assert remaining(packages, names) == [2]


def test_mirrors_are_removed_before_packages_if_the_disk_is_almost_full(world, packages):
    names = sorted(path.name for path in packages.iterdir())
    free, total = shutil.disk_usage(packages).free, shutil.disk_usage(packages).total
    mirror = packages.parent / "repositories" / "app-1.git"
    mirror.mkdir(parents=True)
    filler = packages / "filler"
    filler.write_bytes(os.urandom(4 * MIB))
    reserve = HostReserve(packages, free - 2 * min(512 * MIB, total // 10) - 2 * MIB)
    checkouts = Checkouts(packages.parent)
    # Git ends now, and runs go on.
    assert (reserve.room_for_workspace().bytes < 0, reserve.disk_shortage()) == (True, None)

    def remove_mirrors(has_enough):
        checkouts.remove_least_used_mirrors(has_enough)
        # The mirror is not on this small disk.
        filler.unlink()

    assert PackageBound(world.database, packages, reserve, None, remove_mirrors).remove_excess() is None

    assert (mirror.exists(), remaining(packages, names)) == (False, [0, 1, 2, 3])


def test_packages_that_others_still_need_are_kept(world, packages):
    names = sorted(path.name for path in packages.iterdir())
    bound = PackageBound(world.database, packages, HostReserve(packages, 0), 1)
    with world.database.write() as tx:
        tx.run("UPDATE automation_versions SET runner = 'package'")
    bound.remove_excess()
    assert remaining(packages, names) == [0, 1, 2, 3]
    with world.database.write() as tx:
        tx.run("UPDATE automation_versions SET runner = 'command'")
        tx.run(
            "INSERT INTO run_files (run_id, name, attempt, size, host, object_key, is_upload_pending) "
            "VALUES (:run, :name, 1, 1, 'here', 'key', TRUE)",
            run=run_key(names[1]),
            name=b"output",
        )

    bound.remove_excess()

    assert remaining(packages, names) == [1, 2]
