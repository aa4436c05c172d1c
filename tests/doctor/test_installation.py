"""`hookmill doctor` finds what is wrong with an installation, changes nothing, and ends in time."""

import json
import os
import re
import shutil
import socket
import sqlite3
import ssl
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hookmill.app import now_us
from hookmill.app.doctor import CHECKS, examine
from hookmill.app.doctor.alarms import check_alarm_destinations
from hookmill.app.doctor.base_url import check_base_url
from hookmill.app.doctor.check import Check, findings_of
from hookmill.app.doctor.database import check_connections, check_database, clock_finding
from hookmill.app.doctor.destinations import check_destinations
from hookmill.app.doctor.directory import check_space, file_system_of
from hookmill.app.doctor.exchange import Connection, NoResponse, Origin, tls_context
from hookmill.app.doctor.repositories import check_repositories
from hookmill.app.doctor.runs import check_workers
from hookmill.build import build_id
from hookmill.domain.alarm_destination import DestinationKind
from hookmill.domain.errors import Invalid
from hookmill.domain.finding import Examination, Finding, Status, ok
from hookmill.runs.workspaces.repository import RepositorySettings
from hookmill.settings import LoadedSettings, Settings, load_settings
from hookmill.store.database import open_database
from hookmill.store.runs import executors
from hookmill.store.runs.executors import ExecutorId
from tests.faults.small_disk import SmallDisk
from tests.notices.receivers import closed_port, http_receiver, mail_server
from tests.results.github import CLIENT_ID, TOKEN, app_private_key, github_server, pem
from tests.support.automations import automation_created
from tests.support.certificates import certificates_in
from tests.support.git_server import SourceRepository, serve_over_http
from tests.support.loaded import Command
from tests.support.ports import free_port
from tests.support.service import Service, operator, serving
from tests.support.triggers import received
from tests.support.waiting import LONG_SECONDS, until

TOTAL_MEMORY_MB = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2
HARMLESS = {"port", "workers", "file system", "disk sync", "open files"}
"""Checks with warnings that depend on the machine, or on a service that does not run."""


def examined(settings: Settings, tls: ssl.SSLContext | None = None) -> Examination:
    return examine(LoadedSettings(settings=settings, problems=(), file=None), tls=tls)


def findings(examination: Examination, check: str) -> list[Finding]:
    return [finding for finding in examination.findings if finding.check == check]


def complaints(examination: Examination) -> list[Finding]:
    return [
        finding
        for finding in examination.findings
        if finding.status is Status.PROBLEM or (finding.status is Status.WARNING and finding.check not in HARMLESS)
    ]


@pytest.fixture(scope="module")
def stopped_service(tmp_path_factory):
    """A service that has run and was stopped. Tests copy it."""
    with serving(tmp_path_factory.mktemp("stopped") / "data") as service:
        service.stop()
    return service


@pytest.fixture
def stopped(stopped_service, tmp_path):
    """A service that has run and was stopped."""
    data_dir = tmp_path / "data"
    shutil.copytree(stopped_service.data_dir, data_dir)
    return Service(data_dir, port=stopped_service.port)


def contents(directory: Path) -> dict[str, bytes]:
    # SQLite creates and removes these two while a program reads a database.
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def test_running_service_has_no_problem(tmp_path):
    with serving(tmp_path / "data") as service:
        settings = service.read_settings()
        # The service is ready before its worker is.
        until(lambda: "1 of 1" in next(check_workers(settings)).observation, "the worker is alive")
        examination = examined(settings)

    assert complaints(examination) == []
    assert examination.not_checked == ()
    assert "is ready" in findings(examination, "port")[0].observation
    assert "1 of 1 workers are alive" in findings(examination, "workers")[0].observation


def test_service_on_postgresql_has_no_problem(tmp_path, postgres_store):
    with serving(tmp_path / "data", database_url=postgres_store) as service:
        examination = examined(service.read_settings())

    # The test server does not sync, so that tests are fast.
    assert {finding.check for finding in complaints(examination)} <= {"durability"}
    names = {finding.check for finding in examination.findings}
    assert {"pooler", "privileges", "durability", "connections", "database clock", "master key"} <= names
    assert re.search(r"enough for \d+ hosts? with these settings", findings(examination, "connections")[0].observation)


def test_too_few_connections_for_the_hosts_with_live_workers(tmp_path, postgres_store):
    settings = Service(tmp_path / "data", database_url=postgres_store, port=free_port()).read_settings()
    enough = next(check_connections(settings))
    # No test server allows so many connections.
    with open_database(postgres_store) as database, database.write() as tx:
        for number in range(200):
            executors.heartbeat(tx, ExecutorId(f"host-{number}-1-ab"), now_us())
        executors.heartbeat(tx, ExecutorId("host-0-2-ab"), now_us())

    too_few = next(check_connections(settings))

    assert (enough.status, too_few.status) == (Status.OK, Status.WARNING)
    assert too_few.observation.endswith(" with these settings, and 200 hosts have live workers")


def test_installation_before_its_first_start_is_unchanged(tmp_path):
    examination = examined(Settings(data_dir=tmp_path / "data", port=free_port(), free_space_min_mb=1))

    assert complaints(examination) == []
    assert f"(build {build_id()})" in findings(examination, "version")[0].observation
    assert list(tmp_path.iterdir()) == []


def test_empty_database_on_postgresql_has_no_problem(tmp_path, postgres_url):
    service = Service(tmp_path / "data", database_url=postgres_url, port=free_port())

    examination = examined(service.read_settings())

    assert {finding.check for finding in complaints(examination)} <= {"durability"}
    assert "first start creates the schema" in findings(examination, "schema")[0].observation


def test_inherited_settings_and_idle_limits_of_postgresql_are_shown(tmp_path, postgres_url):
    settings = Service(tmp_path / "data", database_url=postgres_url, port=free_port()).read_settings()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for setting in ("default_transaction_isolation = serializable", "idle_session_timeout = '5min'"):
            connection.execute(f'ALTER DATABASE "{connection.info.dbname}" SET {setting}'.encode())

    shown = [finding for finding in check_database(settings) if "replaces in its sessions" in finding.observation]

    assert [finding.status for finding in shown] == [Status.OK]
    assert shown[0].observation.endswith(
        ": default_transaction_isolation = serializable, idle_session_timeout = 300000 ms"
    )


def test_page_about_doctor_names_every_check():
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()

    assert [check.name for check in CHECKS if f"`{check.name}`" not in page] == []


def test_doctor_changes_no_file(stopped):
    before = contents(stopped.data_dir)

    examination = examined(stopped.read_settings())

    assert complaints(examination) == []
    assert contents(stopped.data_dir) == before


def test_command_prints_advice_and_ends_with_1_for_a_problem(stopped, tmp_path):
    (stopped.data_dir / "hookmill.db").chmod(0o644)
    stopped.settings = {"RUNNERS": '{"agent": {"argv": ["/nowhere/agent"]}}'}
    output = tmp_path / "output"

    command = Command(["doctor"], stopped.environment(), tmp_path, output)

    assert command.wait(LONG_SECONDS) == 1
    text = output.read_text()
    assert "problem  data directory    in " in text
    assert "→ Run chmod 600 on each." in text
    assert "problem  runners           the runner agent: Its program /nowhere/agent does not exist" in text
    assert "Not checked because of the problems above: file system" in text


def test_each_repository_is_asked_and_its_password_is_used(stopped, tmp_path):
    source = SourceRepository.create(tmp_path / "source")
    source.commit()
    password = "a-password-of-a-repository"
    with stopped.management() as management:
        management.secrets.create(operator(management), "GIT_TOKEN", password)
    with serve_over_http(source.directory / ".git", password=password) as server:
        repositories = {
            "app": {"url": server.url, "secret": "GIT_TOKEN"},
            "gone": {"url": str(tmp_path / "gone")},
            "locked": {"url": server.url, "secret": "MISSING"},
        }
        stopped.settings = {"REPOSITORIES": json.dumps(repositories)}
        examination = examined(stopped.read_settings())

    texts = [f"{finding.status}: {finding.observation}" for finding in findings(examination, "repositories")]
    assert texts[0].startswith("ok: the repository app (127.0.0.1:")
    assert texts[1].startswith("problem: the repository gone (a path on this host) does not answer: fatal: ")
    assert texts[2].startswith("problem: the repository locked: The team secret MISSING for the repository 'locked'")
    assert password not in "".join(texts)


def test_repository_with_a_password_in_a_variable_is_asked_before_the_first_start(tmp_path, monkeypatch):
    source = SourceRepository.create(tmp_path / "source")
    source.commit()
    monkeypatch.setenv("GIT_PASSWORD", "a-password-of-a-repository")
    with serve_over_http(source.directory / ".git", password="a-password-of-a-repository") as server:
        repositories = {
            "app": RepositorySettings(url=server.url, secret_from="GIT_PASSWORD"),
            "locked": RepositorySettings(url=server.url, secret="GIT_TOKEN"),
        }
        asked, not_asked = check_repositories(Settings(data_dir=tmp_path / "new", repositories=repositories))

    assert (asked.status, asked.observation[:23]) == (Status.OK, "the repository app (127")
    assert "the team secret GIT_TOKEN, can't be read before the first start" in not_asked.observation


def test_every_problem_of_the_settings_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOKMILL_PORT", "many")
    monkeypatch.setenv("HOOKMILL_PROCESSES", "0")
    monkeypatch.setenv("HOOKMILL_DATABASE_URI", "postgresql://user:private@localhost/x")

    examination = examine(load_settings())

    texts = [finding.observation for finding in findings(examination, "settings")]
    assert all(finding.status is Status.PROBLEM for finding in findings(examination, "settings"))
    assert [name for name in ("PORT", "PROCESSES", "DATABASE_URI") if not any(name in text for text in texts)] == []
    assert "private" not in str(texts)
    assert set(examination.not_checked) == {check.name for check in CHECKS}


def break_key(service: Service):
    (service.data_dir / "master.key").unlink()


def break_schema(service: Service):
    with closing(sqlite3.connect(service.data_dir / "hookmill.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")


def break_file(service: Service):
    (service.data_dir / "hookmill.db").write_bytes(b"no database" * 1_000)


def break_structure(service: Service):
    path = service.data_dir / "hookmill.db"
    content = bytearray(path.read_bytes())
    page = 4_096
    content[10 * page : 40 * page] = b"\xff" * 30 * page
    path.write_bytes(content)


def remove_database(service: Service):
    (service.data_dir / "hookmill.db").unlink()


def expose_files(service: Service):
    (service.data_dir / "master.key").chmod(0o640)


def open_directory(service: Service):
    service.data_dir.chmod(0o755)


def refer_to_missing_runner(service: Service):
    with service.management() as management:
        may = management.access.operator("default")
        webhook = management.webhooks.create(may, {"name": "x"}).webhook
        trigger = received(webhook.uid)
        automation_created(management, may, "triage", triggers=[trigger])
    with closing(sqlite3.connect(service.data_dir / "hookmill.db")) as connection, connection:
        connection.execute("UPDATE automation_versions SET runner = 'gone'")


@pytest.mark.parametrize(
    ("change", "check", "status", "observation"),
    [
        (break_key, "master key", "problem", "master.key"),
        (break_schema, "schema", "problem", "has schema 9999, and this version needs 0001"),
        (break_file, "database", "problem", "is not a SQLite database"),
        (break_structure, "integrity", "problem", "damaged"),
        (remove_database, "database", "problem", "hookmill.db"),
        (expose_files, "data directory", "problem", "other accounts can open master.key (mode 640)"),
        (open_directory, "data directory", "warning", "every account of this host can open"),
        (refer_to_missing_runner, "automations", "problem", "'triage' of factory 'default' (gone)"),
    ],
)
def test_fault_of_an_installation_is_found(stopped, change, check, status, observation):
    change(stopped)

    examination = examined(stopped.read_settings())

    assert any(
        finding.status == status and observation in finding.observation for finding in findings(examination, check)
    ), complaints(examination)
    if change is not break_structure:
        assert {finding.check for finding in complaints(examination)} == {check}


@pytest.mark.parametrize(
    ("settings", "check", "status", "observation"),
    [
        ({"free_space_min_mb": 10**9}, "disk space", "problem", "deliveries get 503"),
        ({"free_space_min_mb": 10**9}, "disk space", "problem", "no run starts until the disk has its reserve"),
        ({"free_memory_min_mb": TOTAL_MEMORY_MB - 1}, "memory", "problem", "no run starts until the host has its"),
        ({"free_memory_min_mb": TOTAL_MEMORY_MB + 1}, "memory", "problem", "and no run would start"),
        ({"host": "ff02::1"}, "port", "problem", "can't listen at ff02::1"),
        ({"base_url": "https://127.0.0.1:1"}, "base_url", "problem", "refused the connection"),
        ({"trusted_proxies": ["0.0.0.0/0"]}, "trusted_proxies", "problem", "contains clients"),
        ({"base_url": "https://127.0.0.1"}, "trusted_proxies", "warning", "leads through a proxy"),
        ({"database_url": "postgresql://127.0.0.1:1/x"}, "database", "problem", "127.0.0.1"),
        ({"runners": {"agent": {"argv": ["sh"], "user": "nobody-here"}}}, "runners", "problem", "nobody-here"),
        (
            {
                "s3_bucket": "b",
                "s3_endpoint": "http://127.0.0.1:1",
                "s3_access_key_id": "a",
                "s3_secret_access_key": "b",
            },
            "object store",
            "problem",
            "",
        ),
    ],
)
def test_unsuitable_setting_is_found(tmp_path, settings, check, status, observation):
    common: dict[str, Any] = {"data_dir": tmp_path / "data", "port": free_port(), "free_space_min_mb": 1}

    examination = examined(Settings(**common | settings))

    assert any(
        finding.status == status and observation in finding.observation for finding in findings(examination, check)
    ), complaints(examination)


def test_disk_on_which_no_workspace_is_made_is_a_warning(tmp_path):
    with SmallDisk(tmp_path) as disk:
        settings = Settings(
            data_dir=disk.directory,
            port=free_port(),
            # A tenth of the disk is the reserve, and Git must leave two.
            free_space_min_mb=54 if disk.is_mounted else 10**9,
            repositories={"app": RepositorySettings(url=str(tmp_path))},
        )
        texts = [finding.observation for finding in check_space(settings)]

    assert ("no workspace is made while less than 66 MiB" in texts[-1]) is disk.is_mounted


def test_other_program_at_the_port_is_a_problem(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=answer)
        thread.start()
        examination = examined(Settings(data_dir=tmp_path / "data", port=port, free_space_min_mb=1))
        thread.join()

    (finding,) = findings(examination, "port")
    assert (finding.status, finding.observation) == (
        Status.PROBLEM,
        f"another program listens at 127.0.0.1 port {port}",
    )


def test_networks_without_trusted_proxies_are_a_warning(stopped):
    with stopped.management() as management:
        management.webhooks.create(
            management.access.operator("default"), {"name": "ci", "allowed_networks": ["192.0.2.7"]}
        )
    settings = stopped.read_settings().model_copy(update={"base_url": "https://127.0.0.1"})

    (finding,) = findings(examined(settings), "allowed networks")

    assert finding.status is Status.WARNING
    assert "'ci' of factory 'default'" in finding.observation
    assert "trusted_proxies" in finding.advice


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (502, "The proxy can't reach a ready Hookmill."),
        (503, "The proxy can't reach a ready Hookmill."),
        (504, "The proxy can't reach a ready Hookmill."),
        (200, "Let the proxy pass /webhooks/w/ to the service unchanged."),
    ],
)
def test_proxy_that_does_not_reach_the_service_is_told_from_one_that_changes_paths(tmp_path, status, advice):
    with http_receiver() as proxy:
        # The receiver chooses its answer by the path, which no valid base_url has.
        base_url = proxy.url(f"/status/{status}")
        settings = Settings(data_dir=tmp_path / "data").model_copy(update={"base_url": base_url})
        complaint = next(check_base_url(settings))

    assert (complaint.status, f"answered {status} to" in complaint.observation) == (Status.PROBLEM, True)
    assert complaint.advice.startswith(advice)


def test_authority_of_base_url_is_trusted_in_addition(tmp_path):
    ca, certificate, key = certificates_in(tmp_path)
    with http_receiver((certificate, key)) as proxy:
        settings = Settings(
            data_dir=tmp_path / "data",
            base_url=f"https://127.0.0.1:{proxy.port}",
            free_space_min_mb=1,
            port=free_port(),
        )
        untrusted, trusted = (findings(examined(settings, tls), "base_url")[0] for tls in (None, tls_context(ca)))

    assert untrusted.status is Status.PROBLEM
    assert "--ca-file" in untrusted.advice
    assert "is valid for 1 days" in trusted.observation


def test_name_that_cannot_be_looked_up_is_reported():
    with pytest.raises(NoResponse, match="has a name that can't be resolved"):
        Connection(Origin(scheme="https", host="hooks..example.com", port=443, path=""))


def test_expired_certificate_of_base_url_is_to_be_renewed(tmp_path):
    ca, certificate, key = certificates_in(tmp_path, days=-1)
    with http_receiver((certificate, key)) as proxy:
        settings = Settings(data_dir=tmp_path / "data", base_url=f"https://127.0.0.1:{proxy.port}")
        complaint = next(check_base_url(settings, tls_context(ca)))

    assert "certificate has expired" in complaint.observation
    assert complaint.advice == "Renew the certificate, and check why it was not renewed automatically."


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
def test_alarm_destinations_are_reached_without_a_message(stopped, tmp_path):
    ca, certificate, key = certificates_in(tmp_path)
    with (
        mail_server((certificate, key), "starttls", "right") as mailbox,
        http_receiver((certificate, key)) as receiver,
        closed_port() as unused,
    ):
        stopped.settings = {
            "ALARM_PRIVATE_ADDRESSES": "true",
            "ALARM_CA_FILE": str(ca),
            "SMTP_HOST": "127.0.0.1",
            "SMTP_PORT": str(mailbox.port),
            "SMTP_SENDER": "hookmill@example.com",
            "SMTP_USER": "hookmill",
            "SMTP_PASSWORD": "right",
        }
        with stopped.management() as management:
            create = management.alarm_destinations.create
            of_factory, of_team = management.access.operator("default"), management.access.operator_of_team()
            create(of_team, DestinationKind.EMAIL, to="ops@example.com")
            create(of_factory, DestinationKind.EMAIL, to="shop@example.com")
            create(of_factory, DestinationKind.SLACK, url=receiver.url("/secret"))
            create(of_factory, DestinationKind.WEBHOOK, url=f"https://127.0.0.1:{unused}/secret")

        reached = list(check_alarm_destinations(stopped.read_settings()))
        stopped.settings = {**stopped.settings, "SMTP_PASSWORD": "wrong"}
        refused = list(check_alarm_destinations(stopped.read_settings()))

    assert [(finding.status, finding.observation) for finding in reached] == [
        (Status.OK, f"the mail server 127.0.0.1:{mailbox.port} can be reached (2 destinations)"),
        (Status.OK, f"https://127.0.0.1:{receiver.port} can be reached (1 destination)"),
        (Status.PROBLEM, f"Could not connect to https://127.0.0.1:{unused}: Connection refused (1 destination)"),
    ]
    assert refused[0].status is Status.PROBLEM
    words = "535 5.7.8 Authentication credentials invalid"
    assert f'refused smtp_user and smtp_password: "{words}" (2 destinations)' in refused[0].observation
    assert "smtp_password" in refused[0].advice
    assert mailbox.envelopes == []
    assert receiver.requests == []


def test_destinations_of_results_are_reached_without_a_message(stopped, tmp_path, monkeypatch):
    ca, certificate, key = certificates_in(tmp_path)
    with github_server() as github, http_receiver((certificate, key)) as receiver, closed_port() as unused:
        monkeypatch.setenv("RIGHT", TOKEN)
        monkeypatch.setenv("WRONG", "token-that-is-revoked")
        monkeypatch.setenv("APP_KEY", pem(app_private_key()))
        monkeypatch.setenv("CHAT", receiver.url("/path-of-the-chat"))
        monkeypatch.setenv("SIGNING", "whsec_" + "ZWVl" * 8)
        at_github = {"kind": "github", "url": github.url, "allow_http": True, "repositories": ["acme/*"]}
        destinations = {
            "a": {**at_github, "secret_from": "RIGHT"},
            "b": {**at_github, "secret_from": "WRONG"},
            "c": {**at_github, "secret_from": "UNSET_VARIABLE"},
            "d": {**at_github, "secret_from": "RIGHT", "url": f"{github.url}/wrong"},
            "e": {"kind": "slack", "secret_from": "CHAT"},
            "f": {"kind": "webhook", "secret_from": "SIGNING", "url": f"https://127.0.0.1:{unused}/path"},
            "g": {"kind": "webhook", "secret_from": "WRONG", "url": receiver.url()},
            "h": {**at_github, "app_id": CLIENT_ID, "app_key_from": "APP_KEY"},
            "i": {**at_github, "app_id": "another", "app_key_from": "APP_KEY"},
            "j": {**at_github, "app_id": CLIENT_ID, "app_key_from": "WRONG"},
        }
        stopped.settings = {"DESTINATIONS": json.dumps(destinations), "RESULTS_CA_FILE": str(ca)}
        found = list(check_destinations(stopped.read_settings()))
        stopped.settings = {**stopped.settings, "PERFORMS_RUNS": "false"}
        without_runs = list(check_destinations(stopped.read_settings()))

    assert without_runs[2].status is Status.WARNING
    assert [f"{finding.status}: {finding.observation}" for finding in found] == [
        "ok: the destination a accepts the token",
        f"problem: the destination b: {github.url} refused the token",
        "problem: the destination c: The variable UNSET_VARIABLE is not set",
        f'problem: the destination d: {github.url} answered with the status 404: "Not Found"',
        "ok: the destination e can be reached",
        f"problem: the destination f: Could not connect to https://127.0.0.1:{unused}: Connection refused",
        "problem: the destination g: The variable WRONG has no usable secret: it must be whsec_ and at least 24 bytes "
        "in base64. Correct it for every worker",
        "ok: the destination h accepts the key of the app, which may write check runs, commit statuses, comments on "
        "issues, comments and reviews on pull requests",
        f"problem: the destination i: {github.url} answered with the status 401: "
        '"A JSON web token could not be decoded". It does not accept the key of the app another',
        "problem: the destination j: The variable WRONG has no usable key. It must be the PEM file of the app's "
        "private key, which GitHub generates, or this file in base64",
    ]
    assert {request[0] for request in github.requests} == {"GET"}
    assert receiver.requests == []


# Checks


def test_check_that_hangs_ends_at_its_deadline():
    ends = threading.Event()

    def hang(_):
        yield ok("the first result")
        ends.wait()

    *results, last = findings_of(Check("slow", hang, seconds=0.1), None)
    ends.set()

    # On a busy machine, the deadline may end before the first result.
    assert [result.observation for result in results] in ([], ["the first result"])
    assert (last.status, last.observation) == (Status.PROBLEM, "the check did not end within 0.1 s")


@pytest.mark.parametrize(
    ("error", "observation"),
    [
        (Invalid("The value is wrong."), "The value is wrong."),
        (PermissionError(13, "Permission denied", "/x"), "Permission denied: /x"),
        (ValueError("private"), "the check itself failed with ValueError"),
    ],
)
def test_error_in_a_check_is_a_problem(error, observation):
    def fail(_):
        raise error
        yield

    (finding,) = findings_of(Check("x", fail), None)

    assert (finding.status, finding.observation) == (Status.PROBLEM, observation)


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:20 / /var\\040data rw - nfs4 server:/x rw
24 22 0:21 / /over rw - xfs /dev/sdb rw
25 22 0:22 / /over rw - overlay overlay rw
unusual
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home", "ext4"),
        ("/var data/hookmill", "nfs4"),
        ("/over/x", "overlay"),
        ("/overlay", "ext4"),
    ],
)
def test_file_system_is_that_of_the_deepest_and_newest_mount(path, kind):
    assert file_system_of(Path(path), MOUNTS) == kind


@pytest.mark.parametrize(
    ("ahead", "uncertainty", "status"),
    [(0.5, 0.0, "ok"), (-1.9, 0.0, "ok"), (-5.0, 0.0, "warning"), (5.0, 4.0, "ok"), (100.0, 1.0, "problem")],
)
def test_difference_of_clocks_excludes_its_uncertainty(ahead, uncertainty, status):
    assert clock_finding("the server", ahead, uncertainty).status == status
