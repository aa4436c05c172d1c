"""The files of a run: read on the worker's host and on other hosts, within limits, and after further attempts."""

import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.errors import NotFound
from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.run import Ended, RunState
from hookmill.domain.run_files import OUTPUT_END_BYTES, OUTPUT_FILE, RunFileLimits, RunFiles, RunOutput
from hookmill.domain.run_policy import Retry, RunPolicy
from hookmill.management import InstallationConfig, Management
from hookmill.runs import file_writer
from hookmill.runs.file_writer import RunFileSettings, RunFileWriter
from hookmill.runs.health import HostHealth
from hookmill.runs.package import Package, PackagesOnHost
from hookmill.runs.perform import Performer, RunSettings
from hookmill.runs.runner import NextInstruction
from hookmill.runs.runners import PackageRunner
from hookmill.runs.runners.guard import OUTPUT_FILE as OUTPUT_FILE_OF_GUARD
from hookmill.settings import Settings
from hookmill.store.keys.sealing import KeyRing, MasterKey
from hookmill.store.runs.executors import ExecutorId
from hookmill.store.runs.files import ClaimedAttempt, RunFileStorage
from tests.runs.backlog import Backlog, Worker
from tests.runs.samples import sample_run
from tests.runs.test_perform import OTHER_EXECUTOR, OUR_EXECUTOR, FunctionRunner, claim, ignore, requeue
from tests.runs.worker import microseconds
from tests.support.counts import ON_POSTGRES_IN_PROOF
from tests.support.waiting import until

S3_SETTINGS: dict[str, Any] = {"s3_bucket": "files", "s3_access_key_id": "id", "s3_secret_access_key": "secret"}
PACKAGE_FILES = ["prompt.md", "envelope.json", "event-payload.json", "envelope.txt"]


class Host:
    """A host that reads run files from the backlog's store and from the packages in its data directory."""

    def __init__(
        self,
        backlog: Backlog,
        data: Path,
        *,
        has_storage: bool = True,
        storage: RunFileStorage = RunFileStorage(),  # noqa: B008
    ):
        config = InstallationConfig(
            public_url="https://hooks.test",
            webhooks_per_factory=20,
            runner_names=("command",),
            default_runner="command",
        )
        self._backlog = backlog
        management = Management(
            backlog.database,
            KeyRing([MasterKey(b"k" * 32)]),
            config,
            microseconds,
            packages=PackagesOnHost(data / "runs"),
            run_file_storage=storage if has_storage else None,
        )
        self._files = management.run_files
        self._may = management.access.operator("fac_one")

    def listing(self, key: RunKey) -> RunFiles:
        return self._files.files_of(self._may, self._backlog.run(key))

    def files(self, key: RunKey) -> dict[str, tuple[int, str | None]]:
        """The size of each file by its name, and the only host that has the file, if it is another one."""
        listing = self.listing(key)
        assert not listing.has_more
        return {file.name: (file.size, file.only_on_host) for file in listing.files}

    def content(self, key: RunKey, name: str) -> bytes:
        return b"".join(self._files.read(self._may, self._backlog.run(key), name))

    def output(self, key: RunKey, bytes_max: int = OUTPUT_END_BYTES) -> RunOutput | None:
        return self._files.output_of(self._may, self._backlog.run(key), bytes_max)

    def output_bytes(self, key: RunKey) -> bytes:
        output = self.output(key)
        return output.content if output is not None else b""


def new_performer(
    backlog: Backlog, runner: FunctionRunner, failures: list[Any], settings: RunFileSettings | None = None
) -> Performer:
    packages = backlog.data / "runs"

    def report(component: str, error: BaseException):
        failures.append((component, error))

    return Performer(
        database=backlog.database,
        executor=OUR_EXECUTOR,
        settings=RunSettings(data=backlog.data, runners={"package": PackageRunner(), "command": runner}),
        clock=microseconds,
        abandon_runs=threading.Event(),
        report_failure=report,
        health=HostHealth(packages, report_failure=report, report_recovery=ignore),
        file_writer=RunFileWriter(
            backlog.database,
            settings or RunFileSettings(),
            executor=OUR_EXECUTOR,
            host="our-host",
            packages=packages,
            should_stop=lambda: False,
            report_failure=report,
        ),
    )


def claimed_run(backlog: Backlog, **policy: Any) -> RunKey:
    key = backlog.queue(backlog.automation(runner="command", policy=RunPolicy(**policy)), payload=b'{"a": 1}')
    claim(backlog)
    return key


def perform(backlog: Backlog, key: RunKey, runner: FunctionRunner, **limits: int):
    failures: list[Any] = []
    settings = RunFileSettings(limits=RunFileLimits(**limits))
    new_performer(backlog, runner, failures, settings).perform(key, backlog.run(key).attempt)
    assert failures == []


def writing_runner(contents: Mapping[str, bytes], state: RunState = RunState.SUCCEEDED) -> FunctionRunner:
    """A runner that writes these files to the package."""

    def act(package: Package, _: NextInstruction) -> Ended:
        for name, content in contents.items():
            (package.directory / name).write_bytes(content)
        return Ended(state=state, output_tail="tail")

    return FunctionRunner(act)


SCRIPT = r"""
echo hello
echo more >> prompt.md
rm envelope.txt
mkdir dir && echo x > dir/file
ln -s ../../master.key link
mkfifo pipe
printf '<script>' > 'a "report".html'
touch "$(printf 'no text \377')" empty
"""


@ON_POSTGRES_IN_PROOF
def test_files_of_a_command_are_readable_on_another_host(backlog, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "master.key").write_text("secret")
    key = backlog.queue(backlog.automation(runner="command"), payload=b' {"a": [1]}')
    with Worker(backlog, command=["sh", "-c", SCRIPT], run_files=RunFileSettings()):
        backlog.wait_for_end(key)
    with backlog.database.write() as tx:
        tx.run("UPDATE webhooks SET name = 'Renamed'")
    worker_host, other_host = Host(backlog, tmp_path / "data"), Host(backlog, tmp_path / "other")

    files = other_host.files(key)

    assert files == worker_host.files(key)
    assert sorted(files) == [
        'a "report".html', "empty", "envelope.json", "event-payload.json", "no text \udcff", "output.log", "prompt.md"
    ]  # fmt: skip
    package = tmp_path / "data" / "runs" / run_id(key)
    assert b'"name": "Deploys"' in other_host.content(key, "envelope.json")
    for name in files:
        assert other_host.content(key, name) == (package / name).read_bytes(), name
    for name in ("envelope.txt", "link", "pipe", "dir", "dir/file", "../master.key", "..", "missing", "\ud83d"):
        with pytest.raises(NotFound):
            other_host.content(key, name)
    output = worker_host.output(key)
    assert output is not None
    assert output.content == b"hello\n"
    assert other_host.output(key) == replace(output, is_on_this_host=False)


def test_files_of_the_package_runner_are_derived_and_not_stored(backlog, tmp_path):
    key = backlog.queue(backlog.automation(), payload=b"[1]")
    with Worker(backlog, run_files=RunFileSettings()):
        backlog.wait_for_end(key)
    with backlog.database.write() as tx:
        tx.run("UPDATE webhooks SET name = 'Renamed'")
    other_host = Host(backlog, tmp_path / "other")

    assert list(other_host.files(key)) == PACKAGE_FILES
    for name in PACKAGE_FILES:
        assert other_host.content(key, name) == (backlog.data / "runs" / run_id(key) / name).read_bytes(), name
    assert other_host.output_bytes(key).startswith(b"Nothing was executed, because this runner only writes files. ")
    assert file_rows(backlog) == []


@ON_POSTGRES_IN_PROOF
def test_output_is_readable_on_another_host_while_the_command_runs(backlog, tmp_path):
    continue_file = tmp_path / "continue"
    script = f"""
        echo one; until test -e {continue_file}-1; do sleep 0.05; done
        head -c 30000 /dev/zero | tr '\\0' x; echo two; until test -e {continue_file}-2; do sleep 0.05; done
        echo three
    """
    key = backlog.queue(backlog.automation(runner="command"))
    other_host = Host(backlog, tmp_path / "other")
    with Worker(backlog, command=["sh", "-c", script], run_files=RunFileSettings()):
        until(lambda: other_host.output_bytes(key) == b"one\n", "the first line is on the other host")
        assert other_host.files(key)["output.log"] == (4, None)
        assert sorted(other_host.files(key)) == sorted([*PACKAGE_FILES, "output.log"])
        (tmp_path / "continue-1").touch()
        until(lambda: other_host.output_bytes(key).endswith(b"xtwo\n"), "the second line is on the other host")
        live_output = other_host.output(key)
        assert live_output is not None
        assert (len(live_output.content), live_output.size, live_output.is_cut) == (OUTPUT_END_BYTES, 30_008, True)
        assert (live_output.complete_on_host, other_host.files(key)["output.log"]) == (
            socket.gethostname(),
            (30_008, socket.gethostname()),
        )
        (tmp_path / "continue-2").touch()
        backlog.wait_for_end(key)

    final_output = other_host.output(key)
    assert final_output is not None
    assert final_output.content[-10:] == b"two\nthree\n"
    assert (final_output.is_cut, final_output.complete_on_host) == (True, None)
    assert other_host.content(key, OUTPUT_FILE) == b"one\n" + b"x" * 30_000 + b"two\nthree\n"


def test_files_beyond_a_limit_stay_on_the_workers_host(backlog, tmp_path):
    key = claimed_run(backlog)
    other_host = Host(backlog, tmp_path / "other")
    contents = {name: b"x" * size for name, size in zip("abcdef", (60, 101, 50, 20, 0, 0), strict=True)}
    runner = writing_runner({**contents, OUTPUT_FILE: b"x" * 20_000})

    perform(backlog, key, runner, file_bytes_max=100, run_bytes_max=100, files_max=3)

    files = other_host.files(key)
    # Only a and d fit into the 100 bytes of the run. With e, the number of files is at its limit.
    assert {name: host for name, (_, host) in files.items() if name not in PACKAGE_FILES} == {
        "a": None, "b": "our-host", "c": "our-host", "d": None, "e": None, "f": "our-host", "output.log": "our-host"
    }  # fmt: skip
    assert files["b"] == (101, "our-host")
    for name in ("b", "output.log"):
        with pytest.raises(NotFound, match="only on the host our-host"):
            other_host.content(key, name)
    output = other_host.output(key)
    assert output is not None
    assert (len(output.content), output.size) == (OUTPUT_END_BYTES, 20_000)


def test_large_files_are_stored_in_further_transactions(sqlite_backlog, tmp_path, monkeypatch):
    monkeypatch.setattr(file_writer, "FIRST_TRANSACTION_BYTES", 10)
    key = claimed_run(sqlite_backlog)
    contents = {"a": b"a" * 8, "b": b"b" * 900, "c": b"c" * 800, "d": b"dd", OUTPUT_FILE: b"x" * 700}

    perform(sqlite_backlog, key, writing_runner(contents))

    other_host = Host(sqlite_backlog, tmp_path / "other")
    for name, content in contents.items():
        assert other_host.content(key, name) == content


def test_listing_of_many_files_is_cut(sqlite_backlog, tmp_path):
    key = claimed_run(sqlite_backlog)
    contents = {f"file{number}": b"" for number in range(1_100)}
    perform(sqlite_backlog, key, writing_runner({**contents, OUTPUT_FILE: b"output"}))
    host = Host(sqlite_backlog, tmp_path / "other")

    listing = host.listing(key)

    assert listing.has_more
    assert 990 < len(listing.files) <= 1_010
    assert [file.name for file in listing.files[:3]] == PACKAGE_FILES[:3]
    assert set(PACKAGE_FILES) < {file.name for file in listing.files}
    assert host.output_bytes(key) == b"output"


def test_frozen_worker_replaces_no_file_of_the_next_attempt(backlog, tmp_path, monkeypatch):
    monkeypatch.setattr(file_writer, "LIVE_STORES_PER_SECOND", 1_000_000)
    key = claimed_run(backlog)
    other_host = Host(backlog, tmp_path / "other")

    def act(package, next_instruction):
        (package.directory / OUTPUT_FILE).write_bytes(b"of the first attempt")
        next_instruction()
        assert other_host.output_bytes(key) == b"of the first attempt"
        requeue(backlog, key)
        claim(backlog, OTHER_EXECUTOR)
        assert (other_host.output_bytes(key), OUTPUT_FILE in other_host.files(key)) == (b"", False)
        store_output(backlog, key, OTHER_EXECUTOR, b"of the second attempt, which is longer")
        (package.directory / OUTPUT_FILE).write_bytes(b"of the first attempt, and it is the longest of all")
        (package.directory / "late").write_bytes(b"late")
        # A worker that is frozen after it read its instruction also stores output late.
        assert writer is not None
        writer.live_output(package.run).store_if_grown()
        return Ended(state=RunState.SUCCEEDED)

    failures: list[Any] = []
    performer = new_performer(backlog, FunctionRunner(act), failures)
    writer = performer.file_writer
    assert writer is not None
    performer.perform(key, 1)

    assert failures == []
    assert other_host.output_bytes(key) == b"of the second attempt, which is longer"
    assert "late" not in other_host.files(key)
    # The package of the first attempt is on our host, and its files are not shown there, either.
    our_host = Host(backlog, backlog.data)
    assert our_host.files(key) == other_host.files(key)
    with pytest.raises(NotFound):
        our_host.content(key, "late")


def store_output(backlog: Backlog, key: RunKey, executor: ExecutorId, output: bytes):
    packages = backlog.data.parent / "packages-of-other-host"
    run = backlog.run(key)
    (packages / run_id(key)).mkdir(parents=True)
    (packages / run_id(key) / OUTPUT_FILE).write_bytes(output)
    writer = RunFileWriter(
        backlog.database,
        RunFileSettings(),
        executor=executor,
        host="other-host",
        packages=packages,
        should_stop=lambda: False,
        report_failure=lambda component, error: pytest.fail(f"{component}: {error}"),
    )
    writer.live_output(run).store_if_grown()


def test_files_of_a_failed_attempt_are_shown_until_the_next_one_begins(backlog, tmp_path):
    key = claimed_run(backlog, retry=Retry(attempts=3, backoff_seconds=1))
    other_host = Host(backlog, tmp_path / "other")

    perform(backlog, key, writing_runner({"first": b"1", OUTPUT_FILE: b"one"}, RunState.FAILED))
    assert (backlog.run(key).state, other_host.content(key, "first")) == (RunState.QUEUED, b"1")
    with backlog.database.write() as tx:
        tx.run("UPDATE runs SET hold = NULL, due_at = NULL")
    claim(backlog)
    assert list(other_host.files(key)) == PACKAGE_FILES
    perform(backlog, key, writing_runner({"second": b"2"}))

    assert sorted(other_host.files(key)) == sorted([*PACKAGE_FILES, "second"])
    assert b'"attempt": 2' in other_host.content(key, "envelope.json")
    assert other_host.output_bytes(key) == b"tail"
    assert {bytes(row["name"]) for row in file_rows(backlog)} == {b"second"}


def test_files_that_are_stored_again_replace_a_cut_list(sqlite_backlog, tmp_path):
    key = claimed_run(sqlite_backlog)
    attempt = ClaimedAttempt(run=key, attempt=1, executor=OUR_EXECUTOR, host="our-host")
    other_host = Host(sqlite_backlog, tmp_path / "other")
    storage = RunFileStorage()

    has_more = []
    for is_cut in (True, False):
        with sqlite_backlog.database.write() as tx:
            assert storage.replace(tx, attempt, [], has_more=is_cut)
        has_more.append(other_host.listing(key).has_more)

    assert has_more == [True, False]


def test_requeued_run_shows_nothing_of_an_earlier_attempt(sqlite_backlog, tmp_path):
    key = claimed_run(sqlite_backlog, retry=Retry(attempts=3, backoff_seconds=1))
    other_host = Host(sqlite_backlog, tmp_path / "other")
    contents = {f"file{number}": b"" for number in range(1_100)}
    perform(sqlite_backlog, key, writing_runner(contents, RunState.FAILED))
    assert other_host.listing(key).has_more
    with sqlite_backlog.database.write() as tx:
        tx.run("UPDATE runs SET hold = NULL, due_at = NULL")
        tx.run("UPDATE webhooks SET name = 'Renamed'")
    claim(sqlite_backlog)

    requeue(sqlite_backlog, key)

    assert (sqlite_backlog.run(key).state, sqlite_backlog.run(key).attempt) == (RunState.QUEUED, 2)
    assert list(other_host.files(key)) == PACKAGE_FILES
    assert b'"name": "Renamed"' in other_host.content(key, "envelope.json")


def test_run_succeeds_although_its_files_cannot_be_stored(sqlite_backlog, tmp_path):
    key = claimed_run(sqlite_backlog)
    with sqlite_backlog.database.write() as tx:
        tx.run("DROP TABLE run_files")
    failures: list[Any] = []

    def act(package, next_instruction):
        (package.directory / OUTPUT_FILE).write_bytes(b"output")
        next_instruction()
        return Ended(state=RunState.SUCCEEDED)

    new_performer(sqlite_backlog, FunctionRunner(act), failures).perform(key, 1)

    assert sqlite_backlog.run(key).state is RunState.SUCCEEDED
    ((component, error),) = failures
    assert (component, "no such table" in str(error)) == ("runs", True)


class FaultyStorage(RunFileStorage):
    """A storage whose writes raise an exception."""

    def store_output(self, *_: Any, **__: Any) -> bool:
        raise ZeroDivisionError

    def replace(self, *_: Any, **__: Any) -> bool:
        raise ZeroDivisionError


def test_storage_with_a_fault_fails_no_run_and_is_reported_rarely(sqlite_backlog, tmp_path, monkeypatch):
    monkeypatch.setattr(file_writer, "LIVE_STORES_PER_SECOND", 1_000_000)
    key = claimed_run(sqlite_backlog)
    failures: list[Any] = []

    def act(package, next_instruction):
        for number in range(1, 4):
            (package.directory / OUTPUT_FILE).write_bytes(b"x" * number)
            next_instruction()
        return Ended(state=RunState.SUCCEEDED)

    settings = RunFileSettings(storage=FaultyStorage())
    new_performer(sqlite_backlog, FunctionRunner(act), failures, settings).perform(key, 1)

    assert sqlite_backlog.run(key).state is RunState.SUCCEEDED
    assert [type(error) for _, error in failures] == [ZeroDivisionError] * 2


def test_live_output_is_stored_only_if_grown_and_not_at_every_poll(sqlite_backlog, monkeypatch):
    monkeypatch.setattr(file_writer, "LIVE_SECONDS", 3_600.0)
    key = claimed_run(sqlite_backlog)
    stored_outputs: list[bytes] = []

    def act(package, next_instruction):
        for content in (b"", b"one", b"one", b"one, two"):
            (package.directory / OUTPUT_FILE).write_bytes(content)
            next_instruction()
            stored_outputs.append(b"".join(bytes(row["content"]) for row in file_rows(sqlite_backlog)))
        return Ended(state=RunState.SUCCEEDED)

    perform(sqlite_backlog, key, FunctionRunner(act))

    assert stored_outputs == [b"", b"one", b"one", b"one"]
    (row,) = file_rows(sqlite_backlog)
    assert bytes(row["content"]) == b"one, two"


def test_all_runs_of_a_worker_share_the_rate_limit_of_live_output(sqlite_backlog, monkeypatch):
    monkeypatch.setattr(file_writer, "LIVE_STORES_PER_SECOND", 1 / 3_600)
    keys = [claimed_run(sqlite_backlog), claimed_run(sqlite_backlog)]
    performer = new_performer(sqlite_backlog, writing_runner({}), [])
    writer = performer.file_writer
    assert writer is not None

    for key in keys:
        directory = sqlite_backlog.data / "runs" / run_id(key)
        directory.mkdir(parents=True)
        (directory / OUTPUT_FILE).write_bytes(b"output")
        writer.live_output(sqlite_backlog.run(key)).store_if_grown()

    assert len(file_rows(sqlite_backlog)) == 1


def test_without_storage_only_the_workers_host_has_the_files(sqlite_backlog, tmp_path):
    key = sqlite_backlog.queue(sqlite_backlog.automation(runner="command"))
    with Worker(sqlite_backlog, command=["sh", "-c", "echo hello"]):
        sqlite_backlog.wait_for_end(key)

    other_host = Host(sqlite_backlog, tmp_path / "other", has_storage=False)

    assert file_rows(sqlite_backlog) == []
    assert sqlite_backlog.column(key, "package_webhook_name") is None
    assert other_host.files(key) == {}
    assert other_host.output_bytes(key) == b"hello\n"
    with pytest.raises(NotFound):
        other_host.content(key, "prompt.md")
    assert Host(sqlite_backlog, sqlite_backlog.data, has_storage=False).content(key, OUTPUT_FILE) == b"hello\n"


def test_queued_run_has_no_files(backlog, tmp_path):
    key = backlog.queue(backlog.automation())
    other_host = Host(backlog, tmp_path / "other")

    assert (other_host.files(key), other_host.output(key)) == ({}, None)
    with pytest.raises(NotFound):
        other_host.content(key, "prompt.md")


def file_rows(backlog: Backlog) -> list[Any]:
    with backlog.database.read() as tx:
        return list(tx.all("SELECT name, attempt, content FROM run_files ORDER BY name"))


@pytest.mark.parametrize(
    ("url", "run_files", "are_stored"),
    [
        (None, None, False),
        ("sqlite:////tmp/x.db", None, False),
        ("postgresql://u@h/d", None, True),
        ("postgresql://u@h/d", "local", False),
        (None, "database", True),
        (None, "s3", True),
    ],
)
def test_run_files_are_stored_by_default_only_with_postgresql(url, run_files, are_stored):
    assert Settings(database_url=url, run_files=run_files, **S3_SETTINGS).stores_run_files is are_stored


def test_guard_and_readers_use_the_same_output_file():
    # The guard imports only the standard library.
    assert OUTPUT_FILE_OF_GUARD == OUTPUT_FILE


def test_package_with_an_invalid_envelope_counts_as_the_latest(tmp_path):
    run = sample_run(attempt=2)
    directory = tmp_path / run_id(run.id)
    directory.mkdir()
    for envelope in (b"", b"[", b"{}", b"[1]", b'{"run": 3}', b'{"run": {"attempt": "x"}}', b"[" * 60_000):
        (directory / "envelope.json").write_bytes(envelope)
        assert PackagesOnHost(tmp_path).has_package(run)
    (directory / "envelope.json").write_bytes(b'{"run": {"attempt": 1}}')
    assert not PackagesOnHost(tmp_path).has_package(run)
    directory.rename(tmp_path / "moved")
    directory.symlink_to(tmp_path / "moved")
    assert not PackagesOnHost(tmp_path).has_package(replace(run, attempt=1))
