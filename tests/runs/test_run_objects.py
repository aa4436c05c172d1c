"""Files of runs in a real object store: uploads, outages, reading on other hosts, and removal with their runs."""

import http.client
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
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
from hookmill.store.runs.files import RunFileStorage
from tests.runs.backlog import Backlog
from tests.runs.test_health import exhausted_file_descriptors
from tests.runs.test_perform import claim, requeue
from tests.runs.test_run_files import PACKAGE_FILES, Host, claimed_run, file_rows, new_performer, writing_runner
from tests.runs.worker import microseconds
from tests.support.automations import automation_created
from tests.support.counts import ON_POSTGRES_IN_PROOF
from tests.support.object_store import serving_objects
from tests.support.service import serving
from tests.support.triggers import received
from tests.support.waiting import until


@pytest.fixture(scope="module")
def running_server(tmp_path_factory):
    with serving_objects(tmp_path_factory.mktemp("objects")) as server:
        yield server


@pytest.fixture
def server(running_server):
    """The module's object store. Its objects are deleted after each test."""
    yield running_server
    for key in running_server.object_keys():
        (running_server.bucket / key).unlink()


class Hosts:
    """The host that performs and uploads runs, and another host. Both use the object store."""

    def __init__(self, backlog: Backlog, tmp_path: Path, store: ObjectStore, **limits: int):
        self.backlog = backlog
        storage = RunFileStorage(objects=store, is_uploading=True)
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
            report_failure=lambda _component, error: self.failures.append(error),
            report_recovery=lambda _component, message: self.recoveries.append(message),
        )
        backlog.webhook()
        self.other_host = Host(backlog, tmp_path / "other", storage=storage)

    def perform(self, key: RunKey, contents: dict[str, bytes]):
        failures: list[Any] = []
        performer = new_performer(self.backlog, writing_runner(contents), failures, self.settings)
        performer.perform(key, self.backlog.run(key).attempt)
        assert failures == []
        assert self.backlog.run(key).state is RunState.SUCCEEDED

    def only_hosts(self, key: RunKey) -> dict[str, str | None]:
        """For each file by its name: the only host that has it, or None if every host can read it."""
        return {name: host for name, (_, host) in self.other_host.files(key).items() if name not in PACKAGE_FILES}


CONTENTS = {
    OUTPUT_FILE: b"x" * 20_000 + b"the end\n",
    "a b\udcff/%2e?".replace("/", ":"): os.urandom(3_000_000),
    "empty": b"",
    "small": b"small",
    "large": b"y" * 4_000_001,
}


def test_files_are_uploaded_after_the_run_and_read_on_another_host(backlog, tmp_path, server):
    hosts = Hosts(backlog, tmp_path, server.client(), file_bytes_max=4_000_000)
    key = claimed_run(backlog)
    hosts.perform(key, CONTENTS)
    hosts_before_upload = {name: None if name == "empty" else "our-host" for name in CONTENTS}
    assert hosts.only_hosts(key) == hosts_before_upload
    assert server.object_keys() == []
    with backlog.database.read() as tx:
        first_file = files.files_to_upload(tx, "our-host", None, 1)[0]

    assert hosts.uploads.run_pass()
    # Another worker on this host may upload the same file.
    hosts.uploads.upload(first_file)
    assert hosts.uploads.run_pass()

    assert hosts.only_hosts(key) == dict.fromkeys(CONTENTS) | {"large": "our-host"}
    for name, content in CONTENTS.items():
        if name != "large":
            assert hosts.other_host.content(key, name) == content
    with pytest.raises(NotFound, match="only on the host our-host"):
        hosts.other_host.content(key, "large")
    # The database contains only the end of the output, which the dashboard shows.
    assert sum(len(row["content"] or b"") for row in file_rows(backlog)) == OUTPUT_END_BYTES
    output = hosts.other_host.output(key)
    assert output is not None
    assert (output.content[-9:], len(output.content)) == (b"xthe end\n", OUTPUT_END_BYTES)
    full_output = hosts.other_host.output(key, 1_000_000)
    assert full_output is not None
    assert full_output.content == CONTENTS[OUTPUT_FILE]
    assert (full_output.is_cut, full_output.complete_on_host) == (False, None)
    assert len(server.object_keys()) == 3
    assert all(object_key.split("/")[0::2][:2] == ["runs", run_id(key)] for object_key in server.object_keys())
    assert all(object_key.split("/")[3] == "1" for object_key in server.object_keys())
    # Each installation has its own directory in the bucket and prefix.
    with backlog.database.read() as tx:
        assert server.object_keys()[0].startswith(f"{files.directory_of_objects(tx, server.client())}/")


@pytest.mark.timeout(300)
def test_files_are_uploaded_later_if_the_object_store_is_down(sqlite_backlog, tmp_path, server, monkeypatch):
    monkeypatch.setattr(uploads, "RETRY_SECONDS_MIN", 0.1)
    monkeypatch.setattr(uploads, "RETRY_SECONDS_MAX", 0.1)
    hosts = Hosts(sqlite_backlog, tmp_path, server.client())
    first, second = claimed_run(sqlite_backlog), claimed_run(sqlite_backlog)
    hosts.perform(first, CONTENTS)
    assert hosts.uploads.run_pass()
    # Only here: on a busy machine, the object store itself may take longer to answer.
    with server.frozen(), monkeypatch.context() as deadlines:
        deadlines.setattr(objects, "ANSWER_SECONDS", 1.0)
        began_at = time.monotonic()
        with pytest.raises(ObjectStoreUnavailable, match="did not answer in time"):
            hosts.other_host.content(first, "small")
        assert time.monotonic() - began_at < 10
    server.stop()
    hosts.uploads.start()
    try:
        hosts.perform(second, CONTENTS)
        hosts.uploads.wake()
        until(lambda: hosts.failures, "the outage is reported")
        assert set(hosts.only_hosts(second).values()) == {None, "our-host"}
        assert hosts.other_host.output_bytes(second).endswith(b"the end\n")
        with pytest.raises(ObjectStoreUnavailable, match="can't be reached"):
            hosts.other_host.content(first, "small")
        with pytest.raises(NotFound, match="only on the host our-host"):
            hosts.other_host.content(second, "small")

        server.start()

        # An upload that the object store does not answer is repeated after 70 s, on a busy machine more than once.
        until(
            lambda: hosts.recoveries,
            lambda: f"the files are uploaded. Failures: {hosts.failures}. Object store: {server.log()[-2_000:]}",
            seconds=240,
        )
    finally:
        hosts.uploads.close(5)
    assert hosts.other_host.content(second, "small") == b"small"
    assert len(hosts.failures) == 1


def test_recovery_is_reported_if_the_pass_of_a_failure_uploads_all_files(sqlite_backlog, tmp_path, server, monkeypatch):
    """A pass that begins in the middle tries the files after that twice."""
    hosts = Hosts(sqlite_backlog, tmp_path, server.client())
    hosts.perform(claimed_run(sqlite_backlog), CONTENTS)
    server.stop()
    assert not hosts.uploads.run_pass()
    server.start()
    put, attempts = ObjectStore.put, count()

    def put_after_a_failure(store, key, content):
        if next(attempts) == 0:
            raise ObjectStoreUnavailable("It is still starting.")
        put(store, key, content)

    monkeypatch.setattr(ObjectStore, "put", put_after_a_failure)
    hosts.uploads.run_pass()
    hosts.uploads.run_pass()

    assert (len(hosts.failures), len(hosts.recoveries)) == (1, 1)


def test_lack_of_file_descriptors_gives_up_no_upload_and_no_file(sqlite_backlog, tmp_path, server):
    hosts = Hosts(sqlite_backlog, tmp_path, server.client())
    key = claimed_run(sqlite_backlog)
    hosts.perform(key, CONTENTS)
    failures: list[Any] = []
    performer = new_performer(sqlite_backlog, writing_runner({}), failures, hosts.settings)
    assert performer.file_writer is not None
    stored = file_rows(sqlite_backlog)

    # The directory can be opened, but no file in it.
    with exhausted_file_descriptors(left=1):
        assert not hosts.uploads.run_pass()
    with exhausted_file_descriptors():
        performer.file_writer.store_files(sqlite_backlog.run(key), b"{}", lambda: None)
    assert [type(error) for error in (*hosts.failures, *(error for _, error in failures))] == [OSError, OSError]
    assert file_rows(sqlite_backlog) == stored

    assert hosts.uploads.run_pass()
    assert hosts.only_hosts(key) == dict.fromkeys(CONTENTS)


def test_panic_of_the_library_does_not_end_the_uploads(sqlite_backlog, tmp_path, server):
    # With this port, the library panics.
    hosts = Hosts(sqlite_backlog, tmp_path, server.client(endpoint_url="https://127.0.0.1:99999"))
    hosts.perform(claimed_run(sqlite_backlog), CONTENTS)

    assert not hosts.uploads.run_pass()

    [failure] = hosts.failures
    assert isinstance(failure, ObjectStoreUnavailable)


def test_wrong_credentials_are_reported_without_secrets(sqlite_backlog, tmp_path, server):
    wrong_client = server.client(secret_access_key="wrong-secret-of-the-key")
    hosts = Hosts(sqlite_backlog, tmp_path, wrong_client)
    key = claimed_run(sqlite_backlog)
    hosts.perform(key, CONTENTS)

    assert not hosts.uploads.run_pass()
    assert not hosts.uploads.run_pass()

    (failure,) = hosts.failures
    words = "The request signature we calculated does not match the signature you provided."
    assert f'answered 403 SignatureDoesNotMatch: "{words}' in str(failure)
    assert "(upload, bucket files-of-runs)" in str(failure)
    assert "s3_secret_access_key" in str(failure)
    visible_text = f"{failure}{failure.__cause__}{wrong_client.__dict__}"
    assert failure.__suppress_context__
    assert "wrong-secret" not in visible_text
    assert server.config.access_key_id not in visible_text
    assert hosts.only_hosts(key)["small"] == "our-host"
    repaired_hosts = Hosts(sqlite_backlog, tmp_path, server.client())
    assert repaired_hosts.uploads.run_pass()
    assert repaired_hosts.other_host.content(key, "small") == b"small"
    with pytest.raises(ObjectStoreUnavailable, match="answered 403"):
        hosts.other_host.content(key, "small")
    with pytest.raises(ObjectStoreUnavailable, match="NoSuchBucket"):
        server.client(bucket="no-such-bucket").read("key")
    with pytest.raises(ObjectStoreUnavailable, match=r"Check s3_endpoint_url and s3_ca_file\."):
        server.client(certificate_authority=b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----").read("key")
    with pytest.raises(ObjectStoreUnavailable, match="can't be reached"):
        server.client(certificate_authority=None).put("key", b"")


class HookedStore(ObjectStore):
    """A store that calls `before_put` before each upload. A worker that is frozen there continues afterwards."""

    before_put: Callable[[bytes], None] = staticmethod(lambda _: None)

    def put(self, key: str, content: bytes):
        self.before_put(content)
        super().put(key, content)


def store_without_upload(backlog, hosts: Hosts, key) -> files.FileToUpload:
    """Store a file of the first attempt, whose worker dies before the upload and before it records the end."""
    run = backlog.run(key)
    package = write_package(backlog.data / "runs", run, b'{"a": 1}')
    (package.directory / "result").write_bytes(b"first")
    writer = new_performer(backlog, writing_runner({}), [], hosts.settings).file_writer
    assert writer is not None
    writer.store_files(run, b'{"a": 1}', lambda: pytest.fail("the database must not fail"))
    with backlog.database.read() as tx:
        (late_file,) = files.files_to_upload(tx, "our-host", None, 9)
    return late_file


def test_upload_frozen_during_the_next_attempt_replaces_no_file(backlog, tmp_path, server):
    hosts = Hosts(backlog, tmp_path, HookedStore(server.config))
    key = claimed_run(backlog)
    late_file = store_without_upload(backlog, hosts, key)

    def begin_second_attempt(_):
        HookedStore.before_put = staticmethod(lambda _: None)
        requeue(backlog, key)
        claim(backlog)
        hosts.perform(key, {"result": b"second"})
        assert hosts.uploads.run_pass()
        assert hosts.other_host.content(key, "result") == b"second"

    HookedStore.before_put = staticmethod(begin_second_attempt)
    try:
        hosts.uploads.upload(late_file)
    finally:
        HookedStore.before_put = staticmethod(lambda _: None)

    assert hosts.other_host.content(key, "result") == b"second"
    assert [key.split("/")[3] for key in server.object_keys()] == ["1", "2"]
    assert hosts.uploads.run_pass()
    assert [key.split("/")[3] for key in server.object_keys()] == ["2"]
    # An upload that begins late changes nothing, either: the package is that of the second attempt.
    hosts.uploads.upload(late_file)
    assert hosts.uploads.run_pass()
    assert hosts.other_host.content(key, "result") == b"second"
    assert len(server.object_keys()) == 1


def test_late_upload_does_not_block_the_files_of_the_next_attempt(backlog, tmp_path, server):
    hosts = Hosts(backlog, tmp_path, HookedStore(server.config))
    key = claimed_run(backlog)
    late_file = store_without_upload(backlog, hosts, key)

    def claim_second_attempt(_):
        requeue(backlog, key)
        claim(backlog)

    HookedStore.before_put = staticmethod(claim_second_attempt)
    try:
        # Records the object for removal, because the attempt is over. The row still has the key of the object.
        hosts.uploads.upload(late_file)
    finally:
        HookedStore.before_put = staticmethod(lambda _: None)
    hosts.perform(key, {"result": b"second"})

    assert hosts.uploads.run_pass()
    assert hosts.other_host.content(key, "result") == b"second"
    assert [key.split("/")[3] for key in server.object_keys()] == ["2"]


def test_rejected_upload_does_not_delay_uploads_of_other_files(sqlite_backlog, tmp_path, server, monkeypatch):
    monkeypatch.setattr(uploads, "FAILURES_PER_PASS_MAX", 1)
    hosts = Hosts(sqlite_backlog, tmp_path, HookedStore(server.config))
    key = claimed_run(sqlite_backlog)
    hosts.perform(key, {"a": b"refused", "b": b"refused", "c": b"accepted"})

    def refuse(content):
        if content == b"refused":
            raise ObjectStoreUnavailable("refused")

    monkeypatch.setattr(HookedStore, "before_put", staticmethod(refuse))
    assert [hosts.uploads.run_pass() for _ in range(3)] == [False, False, False]
    assert hosts.only_hosts(key) == {"a": "our-host", "b": "our-host", "c": None}
    monkeypatch.setattr(HookedStore, "before_put", staticmethod(lambda _: None))
    assert hosts.uploads.run_pass()

    assert hosts.only_hosts(key) == dict.fromkeys("abc")
    assert (len(hosts.failures), len(hosts.recoveries)) == (1, 1)


@ON_POSTGRES_IN_PROOF
def test_objects_of_a_removed_run_are_deleted_after_an_outage(backlog, tmp_path, server):
    hosts = Hosts(backlog, tmp_path, server.client())
    removed_key, remaining_key = claimed_run(backlog), claimed_run(backlog)
    for key in (removed_key, remaining_key):
        hosts.perform(key, CONTENTS)
    assert hosts.uploads.run_pass()
    assert len(server.object_keys()) == 8
    with backlog.database.write() as tx:
        removal.remove_runs_and_payloads(tx, [backlog.column(removed_key, "delivery_id")])
        while removal.remove_files(tx, 2):
            pass
    server.stop()
    assert not hosts.uploads.run_pass()
    server.start()

    assert hosts.uploads.run_pass()

    assert len(server.object_keys()) == 4
    assert hosts.other_host.content(remaining_key, "small") == b"small"
    with backlog.database.read() as tx:
        assert files.objects_to_remove(tx, 9) == []


def test_sweep_deletes_old_objects_without_a_row(sqlite_backlog, tmp_path, server, monkeypatch):
    for module in (objects, uploads):
        monkeypatch.setattr(module, "OBJECTS_PER_PAGE", 2)
    hosts = Hosts(sqlite_backlog, tmp_path, server.client())
    key, removed_key = claimed_run(sqlite_backlog), RunKey(b"\1" * 16)
    hosts.perform(key, CONTENTS)
    assert hosts.uploads.run_pass()
    with sqlite_backlog.database.read() as tx:
        directory = files.directory_of_objects(tx, server.client())
    orphans = [f"{directory}/{run_id(each)}/1/{number}" for each in (removed_key, key) for number in range(2)]
    foreign = [
        "runs/another-installation/run/1/0",
        f"{directory}/notes/of/people",
        f"{directory}-2/{run_id(removed_key)}/1/0",
    ]
    new_orphan = f"{directory}/{run_id(removed_key)}/1/new"
    with_row = server.object_keys()
    for object_key in (*orphans, *foreign, new_orphan):
        server.client().put(object_key, b"content")
    two_days_ago = time.time() - 2 * 86_400
    for object_key in server.object_keys():
        if object_key != new_orphan:
            os.utime(server.bucket / object_key, (two_days_ago, two_days_ago))
    # The server caches the times of files that it has written.
    server.stop()
    server.start()

    page_count, after = 1, hosts.uploads.sweep_page(None)
    while after is not None:
        page_count, after = page_count + 1, hosts.uploads.sweep_page(after)

    assert server.object_keys() == sorted([*with_row, *foreign, new_orphan])
    assert page_count >= 5
    assert hosts.other_host.content(key, "small") == b"small"


def test_bucket_can_be_part_of_the_host_name(tmp_path):
    with serving_objects(tmp_path, has_path_style=False) as server:
        server.client().put("runs/key", b"content")

        assert list(server.client().read("runs/key") or ()) == [b"content"]
        assert server.object_keys() == ["runs/key"]


@contextmanager
def without_directory(directory: Path) -> Iterator[None]:
    """Rename the directory for the duration of the block."""
    moved = directory.rename(directory.with_name("moved"))
    yield
    moved.rename(directory)


def is_uploaded(database: Database) -> bool:
    with database.read() as tx:
        row = tx.one("SELECT is_upload_pending FROM run_files WHERE name = :name", name=b"result")
    return row is not None and not row["is_upload_pending"]


def test_restarted_service_uploads_files_and_streams_them_to_viewers(tmp_path, server):
    runners = '{"command": {"argv": ["sh", "-c", "head -c 20000000 /dev/zero > result"]}}'
    settings = {**server.settings(), "runners": runners, "default_runner": "command"}
    with serving(tmp_path / "data", **settings) as service, service.management() as management:
        may = management.access.operator("default")
        webhook = management.webhooks.create(may, {"name": "builds"})
        trigger = received(webhook.webhook.uid)
        automation_created(management, may, "builder", prompt="Build.", triggers=[trigger])
        server.stop()
        service.post(webhook)
        until(lambda: [run.state for run in management.runs.newest(may)] == [RunState.SUCCEEDED], "the run has ended")
        service.kill()
        server.start()
        service.start()
        with open_database(service.read_settings().store_url()) as database:
            until(lambda: is_uploaded(database), "the result is uploaded")
        (run,) = management.runs.newest(may)
        team = management.access.operator_of_team()
        token = management.keys.create(team, "reader", Role.VIEWER, factory="default").token.reveal()
        credentials = {"Authorization": f"Bearer {token}"}
        path = f"/api/v1/factories/default/runs/{run_id(run.id)}/files/result"
        with without_directory(tmp_path / "data" / "runs"):
            answer = service.request("GET", path, headers=credentials)
            assert (answer.status, answer.body) == (200, bytes(20_000_000))
            assert service.request("GET", path).status == 401
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
            connection.request("GET", path, headers=credentials)
            response = connection.getresponse()
            assert len(response.read(100_000)) == 100_000
            server.stop()
            with pytest.raises((http.client.IncompleteRead, OSError)):
                response.read()
            connection.close()
            answer = service.request("GET", path, headers=credentials)
            assert answer.problem == (503, "unavailable")
            server.start()
        assert server.config.secret_access_key not in service.log()
        assert server.config.access_key_id not in service.log()
        assert service.stop() == 0
