"""Files of runs in a real object store: uploaded when it works, read on other hosts, and removed with their runs."""

import http.client
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.errors import NotFound, ObjectStoreUnavailable
from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.permission import Role
from hookmill.domain.run import RunState
from hookmill.domain.run_files import OUTPUT_END_BYTES, OUTPUT_FILE, RunFileLimits
from hookmill.runs import uploads
from hookmill.runs.file_writer import RunFileSettings
from hookmill.runs.package import write_package
from hookmill.runs.uploads import Uploads
from hookmill.store import objects
from hookmill.store.database import Database, open_database
from hookmill.store.objects import ObjectStore
from hookmill.store.runs import files, removal
from hookmill.store.runs.files import FilesInDatabase
from tests.runs.backlog import Backlog
from tests.runs.test_perform import take, take_back
from tests.runs.test_run_files import PREPARED, Host, claimed, performer, stored_rows, writing
from tests.runs.worker import microseconds
from tests.support.object_store import ObjectServer, serving_objects
from tests.support.service import serving
from tests.support.waiting import until

DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with serving_objects(tmp_path_factory.mktemp("objects")) as server:
        yield server


@pytest.fixture
def server(running_server: ObjectServer) -> Iterator[ObjectServer]:
    """The module's object store, without objects."""
    yield running_server
    for key in running_server.object_keys():
        (running_server.bucket / key).unlink()


class Hosts:
    """The host that performs runs, and another one. Both have an object store."""

    def __init__(self, backlog: Backlog, tmp_path: Path, store: ObjectStore, **limits: int) -> None:
        self.backlog = backlog
        storage = FilesInDatabase(objects=store, is_uploading=True)
        limits = {"file_bytes_max": 8_000_000, "run_bytes_max": 64_000_000} | limits
        self.settings = RunFileSettings(storage=storage, limits=RunFileLimits(**limits))
        self.failures: list[BaseException] = []
        self.recoveries: list[str] = []
        self.uploads = Uploads(
            backlog.database,
            store,
            host="our-host",
            packages=backlog.data / "runs",
            clock=microseconds,
            report_failure=lambda _where, error: self.failures.append(error),
            report_recovery=lambda _where, what: self.recoveries.append(what),
        )
        backlog.webhook()
        self.other = Host(backlog, tmp_path / "other", storage=storage)

    def perform(self, key: RunKey, contents: dict[str, bytes]) -> None:
        failures: list[Any] = []
        performer(self.backlog, writing(contents), failures, self.settings).perform(key, self.backlog.run(key).attempt)
        assert failures == []
        assert self.backlog.run(key).state is RunState.SUCCEEDED

    def places(self, key: RunKey) -> dict[str, str | None]:
        """The only host that has a file, by the file's name. None: every host has it."""
        return {name: host for name, (_, host) in self.other.files(key).items() if name not in PREPARED}


CONTENTS = {
    OUTPUT_FILE: b"x" * 20_000 + b"the end\n",
    "a b\udcff/%2e?".replace("/", ":"): os.urandom(3_000_000),
    "empty": b"",
    "small": b"small",
    "large": b"y" * 4_000_001,
}


def test_files_are_uploaded_after_the_run_and_read_on_another_host(backlog, tmp_path, server):
    hosts = Hosts(backlog, tmp_path, server.client(), file_bytes_max=4_000_000)
    key = claimed(backlog)
    hosts.perform(key, CONTENTS)
    not_uploaded = {name: None if name == "empty" else "our-host" for name in CONTENTS}
    assert hosts.places(key) == not_uploaded
    assert server.object_keys() == []
    with backlog.database.read() as tx:
        first_file = files.files_to_upload(tx, "our-host", None, 1)[0]

    assert hosts.uploads.run_pass()
    # Another worker on this host may upload a file, too.
    hosts.uploads.upload(first_file)
    assert hosts.uploads.run_pass()

    assert hosts.places(key) == dict.fromkeys(CONTENTS) | {"large": "our-host"}
    for name, content in CONTENTS.items():
        if name != "large":
            assert hosts.other.content(key, name) == content
    with pytest.raises(NotFound, match="only on the host our-host"):
        hosts.other.content(key, "large")
    # The database has only the end of the output, which pages show.
    assert sum(len(row["content"] or b"") for row in stored_rows(backlog)) == OUTPUT_END_BYTES
    output = hosts.other.output(key)
    assert output is not None
    assert (output.content[-9:], len(output.content)) == (b"xthe end\n", OUTPUT_END_BYTES)
    whole = hosts.other.output(key, 1_000_000)
    assert whole is not None
    assert (whole.content, whole.is_cut, whole.complete_on_host) == (CONTENTS[OUTPUT_FILE], False, None)
    assert len(server.object_keys()) == 3
    assert all(object_key.split("/")[0::2][:2] == ["runs", run_id(key)] for object_key in server.object_keys())
    assert all(object_key.split("/")[3] == "1" for object_key in server.object_keys())
    # Another installation in the same bucket and prefix has another directory.
    with backlog.database.read() as tx:
        assert server.object_keys()[0].startswith(f"{files.directory_of_objects(tx, server.client())}/")


def test_while_the_object_store_is_down_runs_go_on_and_files_are_uploaded_later(
    on_sqlite, tmp_path, server, monkeypatch
):
    monkeypatch.setattr(uploads, "RETRY_SECONDS_MIN", 0.1)
    monkeypatch.setattr(uploads, "RETRY_SECONDS_MAX", 0.1)
    monkeypatch.setattr(objects, "ANSWER_SECONDS", 1.0)
    hosts = Hosts(on_sqlite, tmp_path, server.client())
    first, second = claimed(on_sqlite), claimed(on_sqlite)
    hosts.perform(first, CONTENTS)
    assert hosts.uploads.run_pass()
    with server.frozen():
        began_at = time.monotonic()
        with pytest.raises(ObjectStoreUnavailable, match="did not answer in time"):
            hosts.other.content(first, "small")
        assert time.monotonic() - began_at < 10
    server.stop()
    hosts.uploads.start()
    try:
        hosts.perform(second, CONTENTS)
        hosts.uploads.wake()
        until(lambda: hosts.failures, "the outage is reported")
        assert set(hosts.places(second).values()) == {None, "our-host"}
        assert hosts.other.printed(second).endswith(b"the end\n")
        with pytest.raises(ObjectStoreUnavailable, match="can't be reached"):
            hosts.other.content(first, "small")
        with pytest.raises(NotFound, match="only on the host our-host"):
            hosts.other.content(second, "small")

        server.start()

        until(lambda: hosts.recoveries, "the files are uploaded")
    finally:
        hosts.uploads.close(5)
    assert hosts.other.content(second, "small") == b"small"
    assert len(hosts.failures) == 1


def test_wrong_credentials_are_reported_without_secrets(on_sqlite, tmp_path, server):
    wrong = server.client(secret_access_key="wrong-secret-of-the-key")
    hosts = Hosts(on_sqlite, tmp_path, wrong)
    key = claimed(on_sqlite)
    hosts.perform(key, CONTENTS)

    assert not hosts.uploads.run_pass()
    assert not hosts.uploads.run_pass()

    (failure,) = hosts.failures
    assert "answered 403 SignatureDoesNotMatch (upload, bucket files-of-runs)" in str(failure)
    assert "s3_secret_access_key" in str(failure)
    shown = f"{failure}{failure.__cause__}{wrong.__dict__}"
    assert failure.__suppress_context__
    assert "wrong-secret" not in shown
    assert server.config.access_key_id not in shown
    assert hosts.places(key)["small"] == "our-host"
    repaired = Hosts(on_sqlite, tmp_path, server.client())
    assert repaired.uploads.run_pass()
    assert repaired.other.content(key, "small") == b"small"
    with pytest.raises(ObjectStoreUnavailable, match="answered 403"):
        hosts.other.content(key, "small")
    with pytest.raises(ObjectStoreUnavailable, match="NoSuchBucket"):
        server.client(bucket="no-such-bucket").read("key")
    with pytest.raises(ObjectStoreUnavailable, match=r"Check s3_endpoint_url and s3_ca_file\."):
        server.client(certificate_authority=b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----").read("key")
    with pytest.raises(ObjectStoreUnavailable, match="can't be reached"):
        server.client(certificate_authority=None).put("key", b"")


class HookedStore(ObjectStore):
    """A store that calls a function before each upload, as if the worker were frozen there."""

    before_put: Callable[[bytes], None] = staticmethod(lambda _: None)

    def put(self, key: str, content: bytes) -> None:
        self.before_put(content)
        super().put(key, content)


def stored_before_death(backlog, hosts: Hosts, key) -> files.FileToUpload:
    """The first attempt's worker stores its file, and dies before it uploads it and records the end."""
    run = backlog.run(key)
    package = write_package(backlog.data / "runs", run, b'{"a": 1}')
    (package.directory / "result").write_bytes(b"first")
    writer = performer(backlog, writing({}), [], hosts.settings).file_writer
    assert writer is not None
    writer.store_files(run, b'{"a": 1}', lambda: pytest.fail("the database works"))
    with backlog.database.read() as tx:
        (late_file,) = files.files_to_upload(tx, "our-host", None, 9)
    return late_file


def test_an_upload_that_was_frozen_during_the_next_attempt_changes_nothing(backlog, tmp_path, server):
    hosts = Hosts(backlog, tmp_path, HookedStore(server.config))
    key = claimed(backlog)
    late_file = stored_before_death(backlog, hosts, key)

    def begin_second_attempt(_: bytes) -> None:
        HookedStore.before_put = staticmethod(lambda _: None)
        take_back(backlog, key)
        take(backlog)
        hosts.perform(key, {"result": b"second"})
        assert hosts.uploads.run_pass()
        assert hosts.other.content(key, "result") == b"second"

    HookedStore.before_put = staticmethod(begin_second_attempt)
    try:
        hosts.uploads.upload(late_file)
    finally:
        HookedStore.before_put = staticmethod(lambda _: None)

    assert hosts.other.content(key, "result") == b"second"
    assert [key.split("/")[3] for key in server.object_keys()] == ["1", "2"]
    assert hosts.uploads.run_pass()
    assert [key.split("/")[3] for key in server.object_keys()] == ["2"]
    # Nor does an upload that begins late: the package is that of the second attempt.
    hosts.uploads.upload(late_file)
    assert hosts.uploads.run_pass()
    assert hosts.other.content(key, "result") == b"second"
    assert len(server.object_keys()) == 1


def test_late_upload_does_not_keep_the_next_attempts_files_from_being_stored(backlog, tmp_path, server):
    hosts = Hosts(backlog, tmp_path, HookedStore(server.config))
    key = claimed(backlog)
    late_file = stored_before_death(backlog, hosts, key)

    def claim_second_attempt(_: bytes) -> None:
        take_back(backlog, key)
        take(backlog)

    HookedStore.before_put = staticmethod(claim_second_attempt)
    try:
        # Notes the object for removal, because the attempt is over. The row still has its key.
        hosts.uploads.upload(late_file)
    finally:
        HookedStore.before_put = staticmethod(lambda _: None)
    hosts.perform(key, {"result": b"second"})

    assert hosts.uploads.run_pass()
    assert hosts.other.content(key, "result") == b"second"
    assert [key.split("/")[3] for key in server.object_keys()] == ["2"]


def test_files_that_the_object_store_refuses_delay_no_others(on_sqlite, tmp_path, server, monkeypatch):
    monkeypatch.setattr(uploads, "FAILURES_PER_PASS_MAX", 1)
    hosts = Hosts(on_sqlite, tmp_path, HookedStore(server.config))
    key = claimed(on_sqlite)
    hosts.perform(key, {"a": b"refused", "b": b"refused", "c": b"taken"})

    def refuse(content: bytes) -> None:
        if content == b"refused":
            raise ObjectStoreUnavailable("refused")

    monkeypatch.setattr(HookedStore, "before_put", staticmethod(refuse))
    assert [hosts.uploads.run_pass() for _ in range(3)] == [False, False, False]
    assert hosts.places(key) == {"a": "our-host", "b": "our-host", "c": None}
    monkeypatch.setattr(HookedStore, "before_put", staticmethod(lambda _: None))
    assert hosts.uploads.run_pass()

    assert hosts.places(key) == dict.fromkeys("abc")
    assert (len(hosts.failures), len(hosts.recoveries)) == (1, 1)


def test_objects_are_removed_with_their_run_also_after_an_outage(backlog, tmp_path, server):
    hosts = Hosts(backlog, tmp_path, server.client())
    removed, kept = claimed(backlog), claimed(backlog)
    for key in (removed, kept):
        hosts.perform(key, CONTENTS)
    assert hosts.uploads.run_pass()
    assert len(server.object_keys()) == 8
    with backlog.database.write() as tx:
        removal.remove_with_delivery(tx, [backlog.column(removed, "delivery_id")])
        while removal.remove_files(tx, 2):
            pass
    server.stop()
    assert not hosts.uploads.run_pass()
    server.start()

    assert hosts.uploads.run_pass()

    assert len(server.object_keys()) == 4
    assert hosts.other.content(kept, "small") == b"small"
    with backlog.database.read() as tx:
        assert files.objects_to_remove(tx, 9) == []


def test_a_sweep_removes_old_objects_without_a_row(on_sqlite, tmp_path, server, monkeypatch):
    for module in (objects, uploads):
        monkeypatch.setattr(module, "OBJECTS_PER_PAGE", 2)
    hosts = Hosts(on_sqlite, tmp_path, server.client())
    key, gone = claimed(on_sqlite), RunKey(b"\1" * 16)
    hosts.perform(key, CONTENTS)
    assert hosts.uploads.run_pass()
    with on_sqlite.database.read() as tx:
        directory = files.directory_of_objects(tx, server.client())
    orphans = [f"{directory}/{run_id(each)}/1/{number}" for each in (gone, key) for number in range(2)]
    others = ["runs/another-installation/run/1/0", f"{directory}/notes/of/people", f"{directory}-2/{run_id(gone)}/1/0"]
    fresh = f"{directory}/{run_id(gone)}/1/fresh"
    for orphan in (*orphans, *others, fresh):
        server.client().put(orphan, b"orphan")
    rows = [each for each in server.object_keys() if each not in (*orphans, *others, fresh)]
    two_days_ago = time.time() - 2 * 86_400
    for each in server.object_keys():
        if each != fresh:
            os.utime(server.bucket / each, (two_days_ago, two_days_ago))
    # The server remembers the times of files that it has written.
    server.stop()
    server.start()

    page_count, after = 1, hosts.uploads.sweep_page(None)
    while after is not None:
        page_count, after = page_count + 1, hosts.uploads.sweep_page(after)

    assert server.object_keys() == sorted([*rows, *others, fresh])
    assert page_count >= 5
    assert hosts.other.content(key, "small") == b"small"


def test_a_bucket_may_be_in_the_hosts_name(tmp_path):
    with serving_objects(tmp_path, has_path_style=False) as server:
        server.client().put("runs/key", b"content")

        assert list(server.client().read("runs/key") or ()) == [b"content"]
        assert server.object_keys() == ["runs/key"]


@contextmanager
def moved_away(directory: Path) -> Iterator[None]:
    directory.rename(directory.with_name("moved away"))
    yield
    directory.with_name("moved away").rename(directory)


def is_uploaded(database: Database) -> bool:
    with database.read() as tx:
        row = tx.one("SELECT is_upload_pending FROM run_files WHERE name = :name", name=b"result")
    return row is not None and not row["is_upload_pending"]


def test_a_service_that_was_killed_uploads_files_and_streams_them_to_viewers(tmp_path, server):
    command = '{"maker": {"argv": ["sh", "-c", "echo made; head -c 20000000 /dev/zero > result"]}}'
    settings = {**server.settings(), "runners": command, "default_runner": "maker"}
    with serving(tmp_path / "data", **settings) as service, service.management() as management:
        may = management.access.operator("default")
        made = management.webhooks.create(may, "builds")
        trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [made.webhook.uid]}}
        management.automations.create(may, "builder", prompt="Build.", triggers=[trigger])
        server.stop()
        service.post(made)
        until(lambda: [run.state for run in management.runs.newest(may)] == [RunState.SUCCEEDED], "the run has ended")
        service.kill()
        server.start()
        service.start()
        with open_database(service.read_settings().store_url()) as database:
            until(lambda: is_uploaded(database), "the result is uploaded")
        (run,) = management.runs.newest(may)
        team = management.access.operator_of_team()
        token = management.keys.create(team, "reader", Role.VIEWER, factory="default").token.reveal()
        path = f"/api/v1/factories/default/runs/{run_id(run.id)}/files/result"
        with moved_away(tmp_path / "data" / "runs"):
            answer = service.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            assert (answer.status, answer.body) == (200, bytes(20_000_000))
            assert service.request("GET", path).status == 401
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            assert len(response.read(100_000)) == 100_000
            server.stop()
            with pytest.raises((http.client.IncompleteRead, OSError)):
                response.read()
            connection.close()
            answer = service.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            assert (answer.status, answer.json["code"]) == (503, "unavailable")
            server.start()
        assert server.config.secret_access_key not in service.log()
        assert server.config.access_key_id not in service.log()
        assert service.stop() == 0
