"""The files of a SQLite database are removed or replaced under a running service, or their disk fails or is full. No
delivery is accepted into a file that is no longer there, or can't be written to."""

import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from hookmill.domain.errors import DatabaseUnreachable, Invalid
from hookmill.domain.permission import Role
from hookmill.management import WebhookWithSecret
from hookmill.store.database import Database, sqlite_url
from tests.faults.audit import audit, is_intact
from tests.faults.senders import Event, LoadGenerator, delivery_request, exchange
from tests.faults.small_disk import become_read_only, ext4_disk, free_inodes, repair, use_up_inodes
from tests.support.service import Service, create_webhook, operator, serving
from tests.support.stores import migrated_sqlite_file
from tests.support.waiting import until

RECOVERY_SECONDS_MAX = 15.0


@dataclass(frozen=True, slots=True)
class Replacement:
    """What is done to the files in the data directory, or to its disk, and how the database of the 202s is put back
    afterwards."""

    happen: Callable[[Path], None]
    undo: Callable[[Path], None]
    recovers: bool = False
    """Whether the running service accepts deliveries after `undo`; otherwise the next start does."""
    has_own_disk: bool = False
    """Whether the data directory is in a file system of its own."""
    readiness: int | None = 503
    """The status of `/readyz`; None if it depends on the system."""
    log: str = "while it was in use"
    log_after_recovery: str = "accepts transactions again"


def nothing(_data: Path):
    pass


def remove(*suffixes: str) -> Callable[[Path], None]:
    def happen(data: Path):
        for suffix in suffixes:
            (data / f"hookmill.db{suffix}").unlink()

    return happen


def replace_by_a_copy(data: Path):
    (data / "copy.db").rename(data / "hookmill.db")


def move_away(data: Path):
    (data / "hookmill.db").rename(data / "away.db")


def move_back(data: Path):
    (data / "away.db").rename(data / "hookmill.db")


def restore_the_link(data: Path):
    """Put the file with the 202s back. What was in its WAL must be in it."""
    (data / "link.db").rename(data / "hookmill.db")
    for suffix in ("-wal", "-shm"):
        (data / f"hookmill.db{suffix}").unlink(missing_ok=True)


def exchange_directories(data: Path):
    data.rename(data.with_name("away"))
    data.mkdir(mode=0o700)
    shutil.copyfile(migrated_sqlite_file(), data / "hookmill.db")


def exchange_back(data: Path):
    data.rename(data.with_name("other"))
    data.with_name("away").rename(data)


REPLACEMENTS = {
    "removed": Replacement(remove(""), restore_the_link),
    "all files removed": Replacement(remove("", "-wal", "-shm"), restore_the_link),
    "replaced by a copy": Replacement(replace_by_a_copy, restore_the_link),
    "moved away": Replacement(move_away, move_back, recovers=True),
    "directory exchanged": Replacement(exchange_directories, exchange_back, recovers=True),
    "WAL removed": Replacement(remove("-wal"), nothing),
    "index of the WAL removed": Replacement(remove("-shm"), nothing),
    "WAL and its index removed": Replacement(remove("-wal", "-shm"), nothing),
    "disk read-only": Replacement(
        lambda data: become_read_only(data.parent),
        lambda data: repair(data.parent),
        has_own_disk=True,
        # Since Linux 6.15, statvfs does not show this state, so that only failing writes are noticed.
        readiness=None,
        log='"where": "admission"',
    ),
    "no inodes": Replacement(
        lambda data: use_up_inodes(data.parent),
        lambda data: free_inodes(data.parent),
        recovers=True,
        has_own_disk=True,
        # The dashboard stays reachable.
        readiness=200,
        log="free inodes, fewer than",
        log_after_recovery="deliveries are accepted again",
    ),
}


@pytest.mark.parametrize(
    ("name", "performs_runs"),
    [
        *((name, False) for name in REPLACEMENTS),
        *(pytest.param(name, True, marks=pytest.mark.proof) for name in REPLACEMENTS),
    ],
)
def test_no_delivery_is_accepted_into_replaced_files(name, performs_runs, tmp_path):
    replacement = REPLACEMENTS[name]
    data = tmp_path / "disk" / "data" if replacement.has_own_disk else tmp_path / "data"
    with ExitStack() as resources:
        if replacement.has_own_disk:
            resources.enter_context(ext4_disk(data.parent, megabytes=256, inodes=4_096))
        log = tmp_path / "service.log"
        data.mkdir(mode=0o700)
        # The log must be written although its directory is away, or can't be written to.
        (data / "service.log").symlink_to(log)
        service = resources.enter_context(serving(data, performs_runs=performs_runs, deliveries_per_minute=100_000))
        webhook = webhook_of(service)
        with closing(sqlite3.connect(data / "hookmill.db")) as source, closing(sqlite3.connect(data / "copy.db")) as to:
            source.backup(to)
        os.link(data / "hookmill.db", data / "link.db")

        def new_event(_, number):
            return Event(webhook, b'{"number": %d}' % number)

        with LoadGenerator([service.port], new_event, random.Random(1), per_second=100, senders=8) as load:
            until(lambda: load.accepted > 20, "deliveries are accepted")
            replacement.happen(data)
            # The free inodes are counted once a second.
            until(lambda: name != "no inodes" or status_of_a_delivery(service, webhook) == 503, "deliveries get a 503")
            statuses = [status_of_a_delivery(service, webhook) for _ in range(20)]
            readiness = service.request("GET", "/readyz").status
            until(lambda: replacement.log in log.read_text(), log.read_text)
            if replacement.recovers:
                replacement.undo(data)
                accepted = load.accepted
                until(lambda: load.accepted > accepted + 5, "deliveries are accepted", seconds=RECOVERY_SECONDS_MAX)
                until(lambda: service.request("GET", "/readyz").status == 200, "the service is ready")
                until(lambda: replacement.log_after_recovery in log.read_text(), "the log says so")
                load.drain(40)
            else:
                load.stop()
        assert service.stop() == 0
        copy_is_intact = name != "replaced by a copy" or is_intact(data / "hookmill.db")
        if not replacement.recovers:
            replacement.undo(data)
        service.start()
        require_recovery(service, webhook)
        service.stop()
        accepted_events = [event for event in load.events if event.delivery_ids]
        result = audit(sqlite_url(data / "hookmill.db"), accepted_events)
        database_is_intact = is_intact(data / "hookmill.db")

    assert statuses == [503] * 20
    assert replacement.readiness in (None, readiness)
    assert load.unexpected_answers == []
    assert (result.lost, result.accepted_twice) == (0, 0)
    assert database_is_intact
    assert copy_is_intact


@pytest.mark.parametrize("performs_runs", [False, pytest.param(True, marks=pytest.mark.proof)])
def test_no_delivery_is_accepted_after_older_content_was_copied_into_the_database(performs_runs, tmp_path):
    data = tmp_path / "data"
    with serving(data, performs_runs=performs_runs, deliveries_per_minute=100_000) as service:
        webhook = webhook_of(service)
        assert status_of_a_delivery(service, webhook) == 202
        service.stop()
        shutil.copyfile(data / "hookmill.db", data / "backup.db")
        service.start()
        assert status_of_a_delivery(service, webhook) == 202
        # A stop moves the transactions from the WAL into the file.
        service.stop()
        service.start()

        def new_event(_, number):
            return Event(webhook, b'{"number": %d}' % number)

        with LoadGenerator([service.port], new_event, random.Random(1), per_second=100, senders=8) as load:
            until(lambda: load.accepted > 20, "deliveries are accepted")
            # This writes into the file that is open.
            shutil.copyfile(data / "backup.db", data / "hookmill.db")
            accepted_before = load.accepted
            statuses = [status_of_a_delivery(service, webhook) for _ in range(20)]
            readiness = service.request("GET", "/readyz").status
            until(lambda: "overwritten while it was in use" in service.log(), "the log says so")
            load.stop()
        assert service.stop() == 0
        # So a restart refuses to start.
        is_set_aside = not (data / "hookmill.db").exists() and (data / "hookmill.db.overwritten").exists()
        shutil.copyfile(data / "backup.db", data / "hookmill.db")
        service.start()
        require_recovery(service, webhook)
        service.stop()

    assert statuses == [503] * 20
    assert readiness == 503
    assert is_set_aside
    # Each sender may have got an answer that was sent before.
    assert load.accepted - accepted_before <= 8
    assert is_intact(data / "hookmill.db")


def test_change_of_a_webhook_is_refused_while_the_database_is_replaced(tmp_path):
    data = tmp_path / "data"
    with serving(data, performs_runs=False) as service:
        with service.management() as management:
            key = management.keys.create(
                management.access.operator_of_team(), "a manager", Role.MANAGER, factory="default"
            ).token.reveal()

        def create(name):
            return service.request(
                "POST",
                "/api/v1/factories/default/webhooks",
                headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
                body=b'{"name": "%b"}' % name.encode(),
            ).status

        before = create("before")
        move_away(data)
        while_away = create("meanwhile")
        with pytest.raises(Invalid, match="There is no Hookmill data"), service.management():
            pass
        move_back(data)
        until(lambda: create("after") in (201, 409), "webhooks can be created")
        with service.management() as management:
            names = {webhook.name for webhook in management.webhooks.all(operator(management))}

    assert (before, while_away) == (201, 503)
    assert names == {"first", "before", "after"}


def test_killed_service_does_not_use_the_wal_of_a_replaced_database(tmp_path):
    data = tmp_path / "data"
    with serving(data, performs_runs=False) as service:
        webhook = webhook_of(service)
        assert status_of_a_delivery(service, webhook) == 202
        service.kill()
        shutil.copyfile(migrated_sqlite_file(), data / "backup.db")
        (data / "backup.db").rename(data / "hookmill.db")
        with pytest.raises(AssertionError, match="belongs to the replaced file"):
            service.start()
        with pytest.raises(DatabaseUnreachable, match="belongs to the replaced file"), service.management():
            pass

    assert is_intact(data / "hookmill.db")


def test_command_does_not_open_a_database_whose_wal_was_removed(tmp_path):
    data = tmp_path / "data"
    with serving(data, performs_runs=False) as service:
        webhook = webhook_of(service)
        assert status_of_a_delivery(service, webhook) == 202
        remove("-wal")(data)
        with pytest.raises(DatabaseUnreachable, match=r"-wal or .* Restart the service"), service.management():
            pass
        service.stop()
        service.start()
        with service.management() as management:
            log = management.log.newest(operator(management), webhook=webhook.webhook.uid)

    assert len(log) == 1


def test_second_service_is_refused_although_the_lock_files_are_removed(tmp_path):
    data = tmp_path / "data"
    with serving(data, performs_runs=False) as service:
        webhook = webhook_of(service)
        for lock_file in (*data.glob("*.lock"), data / "hookmill.db.writer"):
            lock_file.unlink()
        second = Service(data)
        with pytest.raises(AssertionError, match="Another `hookmill serve` uses the data directory"):
            second.start()
        assert status_of_a_delivery(service, webhook) == 202


def test_only_a_migration_creates_a_database(tmp_path):
    path = tmp_path / "hookmill.db"
    with (
        Database(sqlite_url(path)) as database,
        pytest.raises(DatabaseUnreachable, match="is missing"),
        database.write(),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def webhook_of(service: Service) -> WebhookWithSecret:
    with service.management() as management:
        return create_webhook(management, "source")


def status_of_a_delivery(service: Service, webhook: WebhookWithSecret) -> int:
    body = b"[%d, %d]" % (threading.get_ident(), random.getrandbits(60))
    answer = exchange(service.port, delivery_request(webhook, body))
    assert answer is not None
    return answer.status


def require_recovery(service: Service, webhook: WebhookWithSecret):
    until(
        lambda: status_of_a_delivery(service, webhook) == 202,
        lambda: f"a delivery is accepted:\n{service.log()}",
        seconds=RECOVERY_SECONDS_MAX,
    )
