"""The files of a run, read on another host than the one that performs it, and on that host."""

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
from hookmill.runs.perform import Performer
from hookmill.runs.runner import NextInstruction
from hookmill.runs.runners import PackageRunner
from hookmill.runs.runners.guard import OUTPUT_FILE as OUTPUT_FILE_OF_GUARD
from hookmill.settings import Settings
from hookmill.store.keys.sealing import MasterKey
from hookmill.store.runs.executors import ExecutorId
from hookmill.store.runs.files import FilesInDatabase, RunFileStorage
from tests.runs.backlog import Backlog, Worker
from tests.runs.samples import a_run
from tests.runs.test_perform import US, Acting, ignore, take, take_back
from tests.runs.worker import microseconds
from tests.support.waiting import until

THEM = ExecutorId("them")
S3: dict[str, Any] = {"s3_bucket": "files", "s3_access_key_id": "id", "s3_secret_access_key": "secret"}
PREPARED = ["envelope.json", "envelope.txt", "event-payload.json", "prompt.md"]


class Host:
    """Another process on some host: it reads the backlog's store, and the packages in one data directory."""

    def __init__(
        self,
        backlog: Backlog,
        data: Path,
        *,
        has_storage: bool = True,
        storage: RunFileStorage = FilesInDatabase(),  # noqa: B008
    ) -> None:
        config = InstallationConfig(
            public_url="https://hooks.test",
            webhooks_per_factory=20,
            runner_names=("command",),
            default_runner="command",
        )
        self._backlog = backlog
        management = Management(
            backlog.database,
            MasterKey(b"k" * 32),
            config,
            microseconds,
            packages=PackagesOnHost(data / "runs"),
            run_file_storage=storage if has_storage else None,
        )
        self._files = management.run_files
        self._may = management.access.operator("fac_one")

    def listed(self, key: RunKey) -> RunFiles:
        return self._files.files_of(self._may, self._backlog.run(key))

    def files(self, key: RunKey) -> dict[str, tuple[int, str | None]]:
        """The sizes by name, and the only host that has the file, if it is not this one."""
        listed = self.listed(key)
        assert not listed.has_more
        return {file.name: (file.size, file.only_on_host) for file in listed.files}

    def content(self, key: RunKey, name: str) -> bytes:
        return b"".join(self._files.read(self._may, self._backlog.run(key), name))

    def output(self, key: RunKey, bytes_max: int = OUTPUT_END_BYTES) -> RunOutput | None:
        return self._files.output_of(self._may, self._backlog.run(key), bytes_max)

    def printed(self, key: RunKey) -> bytes:
        output = self.output(key)
        return output.content if output is not None else b""


def performer(
    backlog: Backlog, runner: Acting, failures: list[Any], settings: RunFileSettings | None = None
) -> Performer:
    packages = backlog.data / "runs"

    def report(where: str, error: BaseException) -> None:
        failures.append((where, error))

    return Performer(
        database=backlog.database,
        executor=US,
        packages=packages,
        runners={"package": PackageRunner(), "command": runner},
        clock=microseconds,
        abandon_runs=threading.Event(),
        report_failure=report,
        attempts_max=3,
        health=HostHealth(packages, report_failure=report, report_recovery=ignore),
        forget_in_engine=lambda key: None,
        file_writer=RunFileWriter(
            backlog.database,
            settings or RunFileSettings(),
            executor=US,
            host="our-host",
            packages=packages,
            should_stop=lambda: False,
            report_failure=report,
        ),
    )


def claimed(backlog: Backlog, **policy: Any) -> RunKey:
    key = backlog.queue(backlog.automation(runner="command", policy=RunPolicy(**policy)), payload=b'{"a": 1}')
    take(backlog)
    return key


def perform(backlog: Backlog, key: RunKey, runner: Acting, **limits: int) -> None:
    failures: list[Any] = []
    settings = RunFileSettings(limits=RunFileLimits(**limits))
    performer(backlog, runner, failures, settings).perform(key, backlog.run(key).attempt)
    assert failures == []


def writing(contents: Mapping[str, bytes], state: RunState = RunState.SUCCEEDED) -> Acting:
    """A runner that writes these files."""

    def act(package: Package, _: NextInstruction) -> Ended:
        for name, content in contents.items():
            (package.directory / name).write_bytes(content)
        return Ended(state=state, output_tail="the tail")

    return Acting(act)


SCRIPT = r"""
echo hello
echo more >> prompt.md
rm envelope.txt
mkdir deeper && echo x > deeper/file
ln -s ../../master.key link
mkfifo pipe
printf '<script>' > 'a "report".html'
touch "$(printf 'no text \377')" empty
"""


def test_another_host_has_the_files_that_a_command_left(backlog, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "master.key").write_text("out of reach")
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
    for name in ("envelope.txt", "link", "pipe", "deeper", "deeper/file", "../master.key", "..", "nothing", "\ud83d"):
        with pytest.raises(NotFound):
            other_host.content(key, name)
    output = worker_host.output(key)
    assert output is not None
    assert output.content == b"hello\n"
    assert other_host.output(key) == replace(output, is_on_this_host=False)


def test_the_files_of_the_package_runner_are_derived(backlog, tmp_path):
    key = backlog.queue(backlog.automation(), payload=b"[1]")
    with Worker(backlog, run_files=RunFileSettings()):
        backlog.wait_for_end(key)
    with backlog.database.write() as tx:
        tx.run("UPDATE webhooks SET name = 'Renamed'")
    other_host = Host(backlog, tmp_path / "other")

    assert list(other_host.files(key)) == PREPARED
    for name in PREPARED:
        assert other_host.content(key, name) == (backlog.data / "runs" / run_id(key) / name).read_bytes(), name
    assert other_host.printed(key).startswith(b"The package is ready to be picked up in ")
    assert stored_rows(backlog) == []


def test_the_output_is_on_other_hosts_while_the_command_runs(backlog, tmp_path):
    go_on = tmp_path / "go-on"
    script = f"""
        echo one; until test -e {go_on}-1; do sleep 0.05; done
        head -c 30000 /dev/zero | tr '\\0' x; echo two; until test -e {go_on}-2; do sleep 0.05; done
        echo three
    """
    key = backlog.queue(backlog.automation(runner="command"))
    other_host = Host(backlog, tmp_path / "other")
    with Worker(backlog, command=["sh", "-c", script], run_files=RunFileSettings()):
        until(lambda: other_host.printed(key) == b"one\n", "the first line is on the other host")
        assert other_host.files(key)["output.log"] == (4, None)
        assert sorted(other_host.files(key)) == sorted([*PREPARED, "output.log"])
        (tmp_path / "go-on-1").touch()
        until(lambda: other_host.printed(key).endswith(b"xtwo\n"), "the second line is on the other host")
        cut = other_host.output(key)
        assert cut is not None
        assert (len(cut.content), cut.size, cut.is_cut) == (OUTPUT_END_BYTES, 30_008, True)
        assert (cut.complete_on_host, other_host.files(key)["output.log"]) == (
            socket.gethostname(),
            (30_008, socket.gethostname()),
        )
        (tmp_path / "go-on-2").touch()
        backlog.wait_for_end(key)

    ended = other_host.output(key)
    assert ended is not None
    assert (ended.content[-10:], ended.is_cut, ended.complete_on_host) == (b"two\nthree\n", True, None)
    assert other_host.content(key, OUTPUT_FILE) == b"one\n" + b"x" * 30_000 + b"two\nthree\n"


def test_what_exceeds_a_limit_stays_on_the_workers_host(backlog, tmp_path):
    key = claimed(backlog)
    other_host = Host(backlog, tmp_path / "other")

    contents = {name: b"x" * size for name, size in zip("abcdef", (60, 101, 50, 20, 0, 0), strict=True)}

    runner = writing({**contents, OUTPUT_FILE: b"x" * 20_000})
    perform(backlog, key, runner, file_bytes_max=100, run_bytes_max=100, files_max=3)

    files = other_host.files(key)
    # a and d fit into 100 bytes, and e is the third file.
    assert {name: host for name, (_, host) in files.items() if name not in PREPARED} == {
        "a": None, "b": "our-host", "c": "our-host", "d": None, "e": None, "f": "our-host", "output.log": "our-host"
    }  # fmt: skip
    assert files["b"] == (101, "our-host")
    for name in ("b", "output.log"):
        with pytest.raises(NotFound, match="only on the host our-host"):
            other_host.content(key, name)
    output = other_host.output(key)
    assert output is not None
    assert (len(output.content), output.size) == (OUTPUT_END_BYTES, 20_000)


def test_large_files_are_stored_in_further_transactions(on_sqlite, tmp_path, monkeypatch):
    monkeypatch.setattr(file_writer, "FIRST_TRANSACTION_BYTES", 10)
    key = claimed(on_sqlite)
    contents = {"a": b"a" * 8, "b": b"b" * 900, "c": b"c" * 800, "d": b"dd", OUTPUT_FILE: b"x" * 700}

    perform(on_sqlite, key, writing(contents))

    other_host = Host(on_sqlite, tmp_path / "other")
    for name, content in contents.items():
        assert other_host.content(key, name) == content


def test_more_files_than_a_listing_has(on_sqlite, tmp_path):
    key = claimed(on_sqlite)
    contents = {f"file{number}": b"" for number in range(1_100)}
    perform(on_sqlite, key, writing({**contents, OUTPUT_FILE: b"printed"}))
    host = Host(on_sqlite, tmp_path / "other")

    listed = host.listed(key)

    assert listed.has_more
    assert 990 < len(listed.files) <= 1_010
    assert set(PREPARED) < {file.name for file in listed.files}
    assert host.printed(key) == b"printed"


def test_a_frozen_worker_replaces_nothing_of_the_next_attempt(backlog, tmp_path, monkeypatch):
    monkeypatch.setattr(file_writer, "LIVE_STORES_PER_SECOND", 1_000_000)
    key = claimed(backlog)
    other_host = Host(backlog, tmp_path / "other")

    def act(package: Package, next_instruction: NextInstruction) -> Ended:
        (package.directory / OUTPUT_FILE).write_bytes(b"of the first attempt")
        next_instruction()
        assert other_host.printed(key) == b"of the first attempt"
        take_back(backlog, key)
        take(backlog, THEM)
        assert (other_host.printed(key), OUTPUT_FILE in other_host.files(key)) == (b"", False)
        store(backlog, key, THEM, b"of the second attempt, which is longer")
        (package.directory / OUTPUT_FILE).write_bytes(b"of the first attempt, and it is the longest of all")
        (package.directory / "late").write_bytes(b"late")
        # A live store in spite of the instruction, as of a worker that was frozen in between.
        assert writer is not None
        writer.live_output(package.run).store_if_grown()
        return Ended(state=RunState.SUCCEEDED)

    failures: list[Any] = []
    performing = performer(backlog, Acting(act), failures)
    writer = performing.file_writer
    assert writer is not None
    performing.perform(key, 1)

    assert failures == []
    assert other_host.printed(key) == b"of the second attempt, which is longer"
    assert "late" not in other_host.files(key)
    # The first attempt's package is on our host, and is not shown either.
    our_host = Host(backlog, backlog.data)
    assert our_host.files(key) == other_host.files(key)
    with pytest.raises(NotFound):
        our_host.content(key, "late")


def store(backlog: Backlog, key: RunKey, executor: ExecutorId, output: bytes) -> None:
    packages = backlog.data.parent / "their packages"
    run = backlog.run(key)
    (packages / run_id(key)).mkdir(parents=True)
    (packages / run_id(key) / OUTPUT_FILE).write_bytes(output)
    writer = RunFileWriter(
        backlog.database,
        RunFileSettings(),
        executor=executor,
        host="their-host",
        packages=packages,
        should_stop=lambda: False,
        report_failure=lambda where, error: pytest.fail(f"{where}: {error}"),
    )
    writer.live_output(run).store_if_grown()


def test_files_of_a_failed_attempt_are_shown_until_the_next_one_begins(backlog, tmp_path):
    key = claimed(backlog, retry=Retry(attempts=3, backoff_seconds=1))
    other_host = Host(backlog, tmp_path / "other")

    perform(backlog, key, writing({"first": b"1", OUTPUT_FILE: b"one"}, RunState.FAILED))
    assert (backlog.run(key).state, other_host.content(key, "first")) == (RunState.QUEUED, b"1")
    with backlog.database.write() as tx:
        tx.run("UPDATE runs SET hold = NULL, due_at = NULL")
    take(backlog)
    assert sorted(other_host.files(key)) == PREPARED
    perform(backlog, key, writing({"second": b"2"}))

    assert sorted(other_host.files(key)) == sorted([*PREPARED, "second"])
    assert b'"attempt": 2' in other_host.content(key, "envelope.json")
    assert other_host.printed(key) == b"the tail"
    assert {bytes(row["name"]) for row in stored_rows(backlog)} == {b"second"}


def test_a_fault_while_files_are_stored_fails_no_run(on_sqlite, tmp_path):
    key = claimed(on_sqlite)
    with on_sqlite.database.write() as tx:
        tx.run("DROP TABLE run_files")
    failures: list[Any] = []

    def act(package: Package, next_instruction: NextInstruction) -> Ended:
        (package.directory / OUTPUT_FILE).write_bytes(b"printed")
        next_instruction()
        return Ended(state=RunState.SUCCEEDED)

    performer(on_sqlite, Acting(act), failures).perform(key, 1)

    assert on_sqlite.run(key).state is RunState.SUCCEEDED
    ((where, error),) = failures
    assert (where, "no such table" in str(error)) == ("runs", True)


class Broken(FilesInDatabase):
    """A storage with a fault of its own."""

    def store_output(self, *_: Any, **__: Any) -> bool:
        raise ZeroDivisionError

    def replace(self, *_: Any, **__: Any) -> bool:
        raise ZeroDivisionError


def test_a_broken_storage_fails_no_run_and_is_reported_rarely(on_sqlite, tmp_path, monkeypatch):
    monkeypatch.setattr(file_writer, "LIVE_STORES_PER_SECOND", 1_000_000)
    key = claimed(on_sqlite)
    failures: list[Any] = []

    def act(package: Package, next_instruction: NextInstruction) -> Ended:
        for number in range(1, 4):
            (package.directory / OUTPUT_FILE).write_bytes(b"x" * number)
            next_instruction()
        return Ended(state=RunState.SUCCEEDED)

    performer(on_sqlite, Acting(act), failures, RunFileSettings(storage=Broken())).perform(key, 1)

    assert on_sqlite.run(key).state is RunState.SUCCEEDED
    assert [type(error) for _, error in failures] == [ZeroDivisionError] * 2


def test_output_is_stored_only_when_it_has_grown_and_not_at_every_look(on_sqlite, monkeypatch):
    monkeypatch.setattr(file_writer, "LIVE_SECONDS", 3_600.0)
    key = claimed(on_sqlite)
    stored: list[bytes] = []

    def act(package: Package, next_instruction: NextInstruction) -> Ended:
        for content in (b"", b"one", b"one", b"one, two"):
            (package.directory / OUTPUT_FILE).write_bytes(content)
            next_instruction()
            stored.append(b"".join(bytes(row["content"]) for row in stored_rows(on_sqlite)))
        return Ended(state=RunState.SUCCEEDED)

    perform(on_sqlite, key, Acting(act))

    assert stored == [b"", b"one", b"one", b"one"]
    (row,) = stored_rows(on_sqlite)
    assert bytes(row["content"]) == b"one, two"


def test_all_runs_of_a_worker_share_a_rate_limit(on_sqlite, monkeypatch):
    monkeypatch.setattr(file_writer, "LIVE_STORES_PER_SECOND", 1 / 3_600)
    keys = [claimed(on_sqlite), claimed(on_sqlite)]
    performing = performer(on_sqlite, writing({}), [])
    writer = performing.file_writer
    assert writer is not None

    for key in keys:
        directory = on_sqlite.data / "runs" / run_id(key)
        directory.mkdir(parents=True)
        (directory / OUTPUT_FILE).write_bytes(b"printed")
        writer.live_output(on_sqlite.run(key)).store_if_grown()

    assert len(stored_rows(on_sqlite)) == 1


def test_without_storage_only_the_workers_host_has_the_files(on_sqlite, tmp_path):
    key = on_sqlite.queue(on_sqlite.automation(runner="command"))
    with Worker(on_sqlite, command=["sh", "-c", "echo hello"]):
        on_sqlite.wait_for_end(key)

    other_host = Host(on_sqlite, tmp_path / "other", has_storage=False)

    assert stored_rows(on_sqlite) == []
    assert on_sqlite.column(key, "package_webhook_name") is None
    assert other_host.files(key) == {}
    assert other_host.printed(key) == b"hello\n"
    with pytest.raises(NotFound):
        other_host.content(key, "prompt.md")
    assert Host(on_sqlite, on_sqlite.data, has_storage=False).content(key, OUTPUT_FILE) == b"hello\n"


def test_a_run_that_has_not_begun_has_no_files(backlog, tmp_path):
    key = backlog.queue(backlog.automation())
    other_host = Host(backlog, tmp_path / "other")

    assert (other_host.files(key), other_host.output(key)) == ({}, None)
    with pytest.raises(NotFound):
        other_host.content(key, "prompt.md")


def stored_rows(backlog: Backlog) -> list[Any]:
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
def test_files_are_stored_with_postgresql_unless_a_setting_says_otherwise(url, run_files, are_stored):
    assert Settings(database_url=url, run_files=run_files, **S3).stores_run_files is are_stored


def test_the_guard_writes_the_output_where_readers_look_for_it():
    # The guard imports only the standard library.
    assert OUTPUT_FILE_OF_GUARD == OUTPUT_FILE


def test_a_package_with_a_broken_envelope_counts_as_the_latest(tmp_path):
    run = a_run(attempt=2)
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
