"""A start with lost data or invalid settings is refused. A first start that was killed can be repeated."""

import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from unittest.mock import patch
from urllib.parse import urlsplit

import psycopg
import pytest
from pydantic import SecretStr

from hookmill import app
from hookmill.domain.errors import Invalid
from hookmill.domain.external_identity import GroupRole
from hookmill.domain.permission import Role
from hookmill.runs.package import allow_traversal
from hookmill.settings import Settings, load_settings, read_settings
from hookmill.store import postgres_engine
from tests.faults.parts import wait_until_announced
from tests.support.automations import automation_created
from tests.support.counts import only_in_proof
from tests.support.loaded import Command, Forked
from tests.support.ports import free_port
from tests.support.service import Service, create_webhook, operator, serving
from tests.support.triggers import received
from tests.support.waiting import LONG_SECONDS, until

KEY = "A" * 43 + "="


@pytest.fixture
def data_dir_without_database(log, data_dir):
    """The data directory of an installation that lost its database. It has the master key."""
    for path in data_dir.glob("hookmill.db*"):
        path.unlink()
    return data_dir


def output_of_refused_start(command: str, output_path: Path, *, sitecustomize: str = "") -> str:
    """The output of a command that must end by itself with exit code 1. The process runs `sitecustomize` first."""
    environment = dict(os.environ)
    if sitecustomize:
        (output_path.parent / "sitecustomize.py").write_text(sitecustomize)
        environment["PYTHONPATH"] = str(output_path.parent)
    if command == "serve":
        environment["HOOKMILL_PORT"] = str(free_port())
    process = Command([command], environment, output_path.parent, output_path)
    try:
        exit_code = process.wait(LONG_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    output = output_path.read_text()
    assert exit_code == 1, output
    assert "Traceback" not in output
    return output


# A database of another version


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_every_command_refuses_a_database_of_an_older_schema(log, data_dir, hookmill, use_database, request, database):
    """The data directory was in use, and the tables have other names."""
    statements = ("ALTER TABLE metadata RENAME TO facts", "UPDATE alembic_version SET version_num = '0036'")
    commands = ["serve", "migrate", "webhook list", "backup copy", "verify"]
    if database == "postgres":
        url = request.getfixturevalue("postgres_url")
        use_database(url)
        commands.append("worker")
        hookmill("migrate")
        with psycopg.connect(url) as session:
            for statement in statements:
                session.execute(statement.encode())
    else:
        with closing(sqlite3.connect(data_dir / "hookmill.db")) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    for command in commands:
        error = hookmill(*command.split(), exit_code=1).err

        assert "The database has schema 0036, which this version of Hookmill does not know" in error, command
        assert "Use the version that has written it, or start this one with an empty database" in error, command
    assert "the database has schema 0036" in hookmill("doctor", exit_code=1).out


# A data directory that lost its database


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_lost_database_is_not_replaced_by_an_empty_one(data_dir_without_database, command):
    error = output_of_refused_start(command, data_dir_without_database.parent / "output")

    assert f"{data_dir_without_database / 'hookmill.db'} is missing" in error
    assert "Restore hookmill.db from a backup" in error
    assert "move these away: master.key" in error
    assert [path.name for path in data_dir_without_database.iterdir()] == ["master.key"]


@pytest.mark.parametrize(
    "remaining_file", [Path("serve.lock"), Path("hookmill.db-wal"), Path("runs", "run_1")], ids=str
)
def test_lost_database_is_detected_by_each_remaining_file(
    data_dir_without_database, hookmill, monkeypatch, remaining_file
):
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", KEY)
    (data_dir_without_database / remaining_file).parent.mkdir(exist_ok=True)
    (data_dir_without_database / remaining_file).write_bytes(b"something")

    result = hookmill("migrate", exit_code=1)

    assert f"move these away: {remaining_file.parts[0]}. " in result.err
    assert not (data_dir_without_database / "hookmill.db").exists()


def test_first_start_on_a_new_volume_for_runs_is_allowed(tmp_path, hookmill, monkeypatch):
    data = tmp_path / "new"
    (data / "runs" / "lost+found").mkdir(parents=True)
    monkeypatch.setenv("HOOKMILL_DATA_DIR", str(data))

    hookmill("migrate")

    assert (data / "hookmill.db").exists()


@pytest.mark.parametrize("content", ["nothing", "no tables"])
def test_emptied_database_is_refused_like_a_lost_one(data_dir_without_database, hookmill, content):
    path = data_dir_without_database / "hookmill.db"
    path.touch()
    if content == "no tables":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    before = path.read_bytes()

    result = hookmill("migrate", exit_code=1)

    assert f"{path} is empty" in result.err
    assert path.read_bytes() == before


def test_start_with_a_restored_database_is_allowed(log, data_dir, hookmill):
    shutil.copy(data_dir / "hookmill.db", data_dir.parent / "backup")
    (data_dir / "hookmill.db").unlink()
    hookmill("migrate", exit_code=1)

    shutil.copy(data_dir.parent / "backup", data_dir / "hookmill.db")

    assert hookmill("migrate", "--json").json == {"changed": False}


def test_new_installation_is_created_once_the_named_files_are_gone(data_dir_without_database, hookmill):
    (data_dir_without_database / "master.key").rename(data_dir_without_database.parent / "master.key")

    assert hookmill("migrate", "--json").json == {"changed": True}


def test_new_installation_accepts_a_master_key_chosen_by_its_operator(data_dir, hookmill, monkeypatch):
    data_dir.mkdir()
    (data_dir / "master.key").write_text(f"{KEY}\n")

    result = hookmill("migrate", exit_code=1)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", KEY)
    app.open_store(read_settings(), create=True).close()
    monkeypatch.delenv("HOOKMILL_MASTER_KEY")

    assert "set HOOKMILL_MASTER_KEY" in result.err
    # From now on, the key file suffices.
    app.open_store(read_settings()).close()


def test_wrong_empty_postgresql_database_is_refused(data_dir_without_database, postgres_url, monkeypatch):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)

    error = output_of_refused_start("serve", data_dir_without_database.parent / "output")

    assert "Check that HOOKMILL_DATABASE_URL names the right database" in error
    assert "it contains master.key." in error
    assert postgres_url not in error


def test_second_host_on_postgresql_starts_with_the_copied_key(
    data_dir_without_database, hookmill, postgres_url, monkeypatch
):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    first_host = read_settings().model_copy(update={"data_dir": data_dir_without_database.parent / "first"})
    app.open_store(first_host, create=True).close()
    shutil.copy(first_host.data_dir / "master.key", data_dir_without_database / "master.key")

    app.open_store(read_settings(), create=True).close()


# Limits and permissions of the operating system, and settings


def test_start_with_too_few_open_files_is_refused(data_dir):
    few_open_files = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))"

    error = output_of_refused_start("serve", data_dir.parent / "output", sitecustomize=few_open_files)

    assert error.startswith("The service may open only 100 files and needs 256")
    assert "`ulimit -n 4096`" in error
    assert "LimitNOFILE=4096" in error
    assert not data_dir.exists()


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_runner_user_that_cannot_reach_the_packages_is_refused(
    data_dir, use_database, postgres_url, monkeypatch, command
):
    use_database(postgres_url)
    monkeypatch.setenv("HOOKMILL_RUNNERS", '{"agent": {"argv": ["true"], "user": "nobody"}}')
    data_dir.parent.chmod(0o700)

    error = output_of_refused_start(command, data_dir.parent / "output")

    if os.geteuid() == 0:
        assert error.startswith(f"The runner 'agent': The runner's user 'nobody' can't reach {data_dir}/runs.")
        assert "run chmod o+x on them" in error
    else:
        assert error.startswith("The runner 'agent': Commands can run as 'nobody' only if the service runs as root")


def test_allow_traversal_opens_directories_and_closes_the_services_files(tmp_path):
    packages = tmp_path / "data" / "runs"
    packages.mkdir(parents=True)
    (tmp_path / "data").chmod(0o777)
    for path in ("data/hookmill.db", "data/hookmill.db-wal", "data/master.key", "outside", "data/notes"):
        (tmp_path / path).write_text("")
        (tmp_path / path).chmod(0o644)
    (tmp_path / "data" / "worker.lock").symlink_to(tmp_path / "outside")

    allow_traversal(packages)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (packages.parent, *packages.parent.iterdir())}
    assert modes == {
        "data": 0o755, "runs": 0o711, "hookmill.db": 0o600, "hookmill.db-wal": 0o600, "master.key": 0o600,
        "worker.lock": 0o644, "notes": 0o644,
    }  # fmt: skip


def test_refused_start_changes_no_mode_in_the_data_directory(data_dir, use_database, monkeypatch):
    monkeypatch.setenv("HOOKMILL_RUNNERS", json.dumps({"agent": {"argv": ["true"], "user": "nobody"}}))
    data_dir.mkdir(mode=0o755)
    (data_dir / "hookmill.db").write_text("a file of another program")
    (data_dir / "hookmill.db").chmod(0o644)

    output_of_refused_start("serve", data_dir.parent / "output")

    assert stat.S_IMODE((data_dir / "hookmill.db").stat().st_mode) == 0o644
    assert [path.name for path in data_dir.iterdir()] == ["hookmill.db"]


@pytest.mark.parametrize("data_dir", ["/", "."])
def test_data_directory_that_the_service_would_share_is_refused(monkeypatch, data_dir):
    monkeypatch.setenv("HOOKMILL_DATA_DIR", data_dir)

    with pytest.raises(Invalid, match="HOOKMILL_DATA_DIR: must name a directory that only the service uses"):
        read_settings()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("HOST", "localhost", "HOOKMILL_HOST: must be an IP address, such as 127.0.0.1"),
        ("PORT", "0", "HOOKMILL_PORT: "),
        ("DATABASE_URL", "sqlite:///:memory:", "HOOKMILL_DATABASE_URL: must name a file"),
        ("DATABASE_URL", "sqlite:///", "HOOKMILL_DATABASE_URL: must name a file"),
        ("DATABASE_URL", "sqlite:////x.db?mode=memory", "HOOKMILL_DATABASE_URL: must have no parameters"),
        ("DATA_DIR", "data-\udcff", "HOOKMILL_DATA_DIR: not valid UTF-8"),
        ("RUNNERS", '{"a": ', "HOOKMILL_RUNNERS: not valid JSON: Expecting value"),
        ("RUNNERS", '{"a": {"argv": ["x\\u0000y"]}}', "HOOKMILL_RUNNERS: a.argv.0: must not contain a NUL character"),
        (
            "RUNNERS",
            '{"a": {"argv": "agent --flag"}}',
            'HOOKMILL_RUNNERS: a.argv: must be a list, such as ["one", "two"]',
        ),
        ("RUNNERS", '{"a": {"kind": "robot"}}', "HOOKMILL_RUNNERS: a: kind must be one of: agent, command"),
        ("RUNNERS", '{"a": {"kind": ["command"]}}', "HOOKMILL_RUNNERS: a: kind must be one of: agent, command"),
        (
            "RUNNERS",
            '{"a": {"kind": "package", "argv": ["x"]}}',
            "HOOKMILL_RUNNERS: unknown key 'argv' in the table runners.a; known keys: kind, retry",
        ),
        (
            "RUNNERS",
            '{"a": {"argv": ["x"], "log_level": "debug"}}',
            "HOOKMILL_RUNNERS: unknown key 'log_level' in the table runners.a; as a setting, it belongs into "
            "HOOKMILL_LOG_LEVEL",
        ),
        ("RUNNERS", '{"a": {"kind": "command"}}', "HOOKMILL_RUNNERS: a.argv: Field required"),
        ("RUNNERS", '{"a": {"argv": ["x"], "environment": {"A": "\\u0000"}}}', "must not contain a NUL character"),
        (
            "RUNNERS",
            '{"a": {"argv": ["x"], "environment": {"A=B": ""}}}',
            "variable names that are not empty and do not contain =",
        ),
        ("RUNNERS", '{"a": {"argv": ["./agent.sh"]}}', "HOOKMILL_RUNNERS: a.argv: must not be a relative path"),
        (
            "RUNNERS",
            '{"a": {"kind": "agent", "agent": "claude", "program": "bin/claude"}}',
            "HOOKMILL_RUNNERS: a.program: must not be a relative path",
        ),
        ("RUNNERS", '{"a": {"argv": ["x"], "user": "a\\u0000"}}', "a.user: must not contain a NUL character"),
        (
            "RUNNERS",
            '{"a": {"kind": "http", "url": "https://a..test", "secret_from": "X"}}',
            "HOOKMILL_RUNNERS: a.url: must be an https URL",
        ),
        (
            "DESTINATIONS",
            '{"a": {"kind": "webhook", "url": "https://a.test:99999", "secret_from": "X"}}',
            "HOOKMILL_DESTINATIONS: a.url: must be an https URL",
        ),
        ("BASE_URL", "https://hooks.test:99999", "HOOKMILL_BASE_URL: must be an http or https URL"),
        ("BASE_URL", "https://example.com/hooks/", "HOOKMILL_BASE_URL: must have no path"),
        ("BASE_URL", "https://ada:canary@hooks.test", "HOOKMILL_BASE_URL: must be an http or https URL"),
        ("OTLP_ENDPOINT", "https://otlp.test:x", "HOOKMILL_OTLP_ENDPOINT: must be a URL"),
        ("OTLP_HEADERS", "authorization=a%0Ab", "HOOKMILL_OTLP_HEADERS: must be names and percent-encoded values"),
        ("S3_BUCKET", "a b", "HOOKMILL_S3_BUCKET: "),
        ("S3_ENDPOINT_URL", "https://s3.test:0", "HOOKMILL_S3_ENDPOINT_URL: must be an https URL"),
        ("OIDC_ISSUER", f"https://{'a' * 64}.test", "HOOKMILL_OIDC_ISSUER: must be an https URL"),
        ("SMTP_HOST", "mail..test", "HOOKMILL_SMTP_HOST: must be a host name"),
        ("RUN_FILES", "s3", "HOOKMILL_RUN_FILES: s3 needs a bucket; set s3_bucket"),
        ("S3_BUCKET", "files", "s3_secret_access_key: set it, because s3_bucket is set"),
        ("S3_ENDPOINT_URL", "https://key:canary@s3.test", "HOOKMILL_S3_ENDPOINT_URL: must be an https URL without"),
        ("S3_PREFIX", "a/../b", "HOOKMILL_S3_PREFIX: must have only letters"),
        ("METRICS_PORT", "8420", "HOOKMILL_METRICS_PORT: must differ from port"),
        ("METRICS_HOST", "localhost", "HOOKMILL_METRICS_HOST: must be an IP address"),
        ("METRICS_TOKEN", "too-short", "HOOKMILL_METRICS_TOKEN: must have at least 16 characters"),
        ("OTLP_ENDPOINT", "http://user:canary@otlp.test", "HOOKMILL_OTLP_ENDPOINT: must be a URL without a password"),
        ("OTLP_HEADERS", "authorization: Bearer x", "HOOKMILL_OTLP_HEADERS: must be names and percent-encoded values"),
        ("OTLP_SAMPLE_RATIO", "1.1", "HOOKMILL_OTLP_SAMPLE_RATIO: "),
        ("OIDC_ISSUER", "http://id.test", "HOOKMILL_OIDC_ISSUER: must be an https URL without a password"),
        ("OIDC_ISSUER", "https://ada:canary@id.test", "HOOKMILL_OIDC_ISSUER: must be an https URL without a password"),
        ("OIDC_ISSUER", "https://id.test", "oidc_client_id: set it, because oidc_issuer is set"),
        ("OIDC_ISSUER", "https://id.test", "followed by /sign-in/oidc/callback"),
        ("OIDC_SCOPES", "email", "HOOKMILL_OIDC_SCOPES: must contain openid"),
        ("OIDC_ROLES", "developers", "HOOKMILL_OIDC_ROLES: not valid JSON"),
        ("OIDC_ROLES", '{"developers": "admin@default"}', "'admin@default' is not viewer@FACTORY or manager@FACTORY"),
        ("OIDC_ROLES", '{"developers": "viewer"}', "'viewer' is not viewer@FACTORY or manager@FACTORY"),
        ("OIDC_ROLES", '{"developers": 5}', "must be a role and a factory, such as manager@default"),
        ("OIDC_ADMIN_GROUPS", '["a", ', "HOOKMILL_OIDC_ADMIN_GROUPS: not valid JSON"),
        ("PASSWORD_SIGN_IN", "false", "HOOKMILL_PASSWORD_SIGN_IN: nobody could sign in; set oidc_issuer"),
    ],
)
def test_invalid_setting_is_refused(monkeypatch, name, value, problem):
    monkeypatch.setenv(f"HOOKMILL_{name}", value)

    with pytest.raises(Invalid, match=re.escape(problem)):
        read_settings()


def test_empty_variable_is_the_same_as_none(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    default = read_settings()

    for name in Settings.model_fields:
        for value in ("", "\r\n"):
            monkeypatch.setenv(f"HOOKMILL_{name.upper()}", value)

            assert (name, read_settings()) == (name, default)
        monkeypatch.delenv(f"HOOKMILL_{name.upper()}")


def test_white_space_and_byte_order_marks_around_values_are_removed(monkeypatch, tmp_path):
    path = tmp_path / "hookmill.toml"
    path.write_text('\ufeffhost = "127.0.0.9"\n', encoding="utf-8")
    monkeypatch.setenv("HOOKMILL_CONFIG", f"{path}\n")
    for variable, value in {
        "BASE_URL": " https://hooks.test/\r\n",
        "SMTP_HOST": "mail.test\n",
        "SMTP_SENDER": "a@mail.test\n",
        "SMTP_USER": "\ufeffada\n",
        "SMTP_PASSWORD": " secret \n",
        "METRICS_TOKEN": "0123456789abcdef\n",
        "PORT": " 9000\n",
        "PROCESSES": "",
    }.items():
        monkeypatch.setenv(f"HOOKMILL_{variable}", value)

    settings = read_settings()

    assert (settings.host, settings.port, settings.base_url) == ("127.0.0.9", 9000, "https://hooks.test")
    assert (settings.smtp_host, settings.smtp_sender, settings.smtp_user) == ("mail.test", "a@mail.test", "ada")
    assert settings.smtp_password is not None
    assert settings.smtp_password.get_secret_value() == " secret "
    assert settings.metrics_token is not None
    assert settings.metrics_token.get_secret_value() == "0123456789abcdef"


def test_variables_that_kubernetes_sets_for_services_are_ignored(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for variable, value in {
        "HOOKMILL_SERVICE_HOST": "10.0.0.1",
        "HOOKMILL_SERVICE_PORT": "8420",
        "HOOKMILL_SERVICE_PORT_HTTP": "8420",
        "HOOKMILL_PORT": "tcp://10.0.0.1:8420",
        "HOOKMILL_PORT_8420_TCP": "tcp://10.0.0.1:8420",
        "HOOKMILL_PORT_8420_TCP_PROTO": "tcp",
        "HOOKMILL_PORT_8420_TCP_PORT": "8420",
        "HOOKMILL_PORT_8420_TCP_ADDR": "10.0.0.1",
        # Of a Service hookmill-metrics.
        "HOOKMILL_METRICS_SERVICE_HOST": "10.0.0.2",
        "HOOKMILL_METRICS_PORT": "tcp://[fd00::2]:9464",
        "HOOKMILL_METRICS_PORT_9464_TCP_ADDR": "fd00::2",
    }.items():
        monkeypatch.setenv(variable, value)

    settings = read_settings()

    assert (settings.port, settings.metrics_port) == (8420, None)


SETTINGS_WITH_TYPOS: Final = """
bse_url = "http://localhost"
[runners.reviewer]
kind = "agent"
agent = "claude"
key_form = "REVIEW_KEY"
bubblewrap = { network_alow = ["api.example.com:443"] }
retry = { attempts = 2, backof_seconds = 5 }
[runners.argv]
argv = ["true"]
zzz = "canary"
[repositories.shop]
url = "https://git.example.com/shop.git"
secret_form = "TOKEN"
[destinations.chat]
kind = "slak"
[destinations.gitea]
kind = "gitea"
url = "https://git.example.com/api/v1"
secret_frm = "TOKEN"
repositories = ["acme/shop"]
"""


def test_contradictory_settings_are_on_separate_lines_with_their_source(tmp_path, monkeypatch):
    file = tmp_path / "own.toml"
    file.write_text('default_runner = "agnet"\nprocesses = 2\n')
    monkeypatch.setenv("HOOKMILL_CONFIG", str(file))
    monkeypatch.setenv("HOOKMILL_PROCESSES", "3")

    assert load_settings().problems == (
        "HOOKMILL_PROCESSES: more than one needs PostgreSQL; set database_url",
        f"{file}: default_runner: no runner is named 'agnet'; choose one of: package",
    )


def test_text_in_place_of_a_number_is_not_shown(tmp_path, monkeypatch):
    file = tmp_path / "own.toml"
    file.write_text('port = "canary"\n')
    monkeypatch.setenv("HOOKMILL_CONFIG", str(file))

    assert load_settings().problems == (f"{file}: port: must be a whole number",)


def test_setting_below_a_table_is_named_as_one(tmp_path, monkeypatch):
    file = tmp_path / "own.toml"
    file.write_text('[runners.agent]\nargv = ["true"]\nlog_level = "debug"\n')
    monkeypatch.setenv("HOOKMILL_CONFIG", str(file))

    assert load_settings().problems == (
        f"{file}: unknown key 'log_level' in the table runners.agent; as a setting, it belongs above the first table",
    )


def test_settings_that_an_unreadable_file_may_have_are_not_missed(tmp_path, monkeypatch):
    file = tmp_path / "own.toml"
    file.write_text("smtp_user = \n")
    monkeypatch.setenv("HOOKMILL_CONFIG", str(file))
    monkeypatch.setenv("HOOKMILL_SMTP_PASSWORD", "canary")
    monkeypatch.setenv("HOOKMILL_PORT", "0")

    not_toml, port = load_settings().problems

    assert not_toml.startswith(f"{file}: not valid TOML: ")
    assert port.startswith("HOOKMILL_PORT: ")


def test_misspelled_keys_of_the_file_are_named_with_their_table(tmp_path, monkeypatch):
    file = tmp_path / "own.toml"
    file.write_text(SETTINGS_WITH_TYPOS)
    monkeypatch.setenv("HOOKMILL_CONFIG", str(file))

    *found, known_keys = sorted(load_settings().problems, key=lambda problem: "known keys" in problem)

    assert [problem.removeprefix(f"{file}: ") for problem in found] == [
        "unknown setting 'bse_url'; did you mean base_url?",
        "runners.reviewer.retry: Unknown field 'backof_seconds'. Did you mean backoff_seconds?",
        "unknown key 'network_alow' in the table runners.reviewer.bubblewrap; did you mean network_allow?",
        "unknown key 'key_form' in the table runners.reviewer; did you mean key_from?",
        "unknown key 'secret_form' in the table repositories.shop; did you mean secret_from?",
        "destinations.chat: kind must be one of: github, gitea, slack, webhook",
        "unknown key 'secret_frm' in the table destinations.gitea; did you mean secret_from?",
    ]
    assert known_keys.startswith(f"{file}: unknown key 'zzz' in the table runners.argv; known keys: argv, bubblewrap, ")
    assert "canary" not in known_keys


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_metrics_that_other_hosts_can_read_need_a_token(monkeypatch, host):
    monkeypatch.setenv("HOOKMILL_METRICS_PORT", "9420")
    monkeypatch.setenv("HOOKMILL_METRICS_HOST", host)

    with pytest.raises(Invalid, match="metrics_token: set it, because metrics_host is not a loopback address"):
        read_settings()
    monkeypatch.setenv("HOOKMILL_METRICS_TOKEN", "canary-4711-4711")
    settings = read_settings()

    assert settings.metrics_host == host
    assert "canary" not in repr(settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1"])
def test_metrics_on_a_loopback_address_need_no_token(monkeypatch, host):
    monkeypatch.setenv("HOOKMILL_METRICS_PORT", "9420")
    monkeypatch.setenv("HOOKMILL_METRICS_HOST", host)

    assert read_settings().metrics_token is None


@pytest.mark.parametrize(
    ("name", "value", "module", "problem"),
    [
        ("OTLP_ENDPOINT", "http://otlp.test", "opentelemetry", "install hookmill with the extra otel: hookmill[otel]"),
        ("OIDC_ISSUER", "https://id.test", "joserfc", "install hookmill with the extra oidc: hookmill[oidc]"),
        ("S3_BUCKET", "files", "obstore", "install hookmill with the extra s3: hookmill[s3]"),
    ],
)
def test_setting_that_needs_an_extra_says_so(monkeypatch, name, value, module, problem):
    def find_no(requested: str) -> object:
        if requested.partition(".")[0] == module:
            raise ModuleNotFoundError(requested)
        return find_spec(requested)

    monkeypatch.setattr("hookmill.settings.find_spec", find_no)
    monkeypatch.setenv(f"HOOKMILL_{name}", value)

    with pytest.raises(Invalid, match=re.escape(problem)):
        read_settings()


def test_object_store_without_tls_requires_a_setting(monkeypatch):
    values = {
        "BUCKET": "files",
        "ACCESS_KEY_ID": "id",
        "SECRET_ACCESS_KEY": "canary",
        "ENDPOINT_URL": "http://s3.test/",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"HOOKMILL_S3_{name}", value)

    with pytest.raises(
        Invalid, match="HOOKMILL_S3_ENDPOINT_URL: must begin with https://, unless s3_allow_http is true"
    ):
        read_settings()
    monkeypatch.setenv("HOOKMILL_S3_ALLOW_HTTP", "true")
    settings = read_settings()

    assert settings.s3_endpoint_url == "http://s3.test"
    assert "canary" not in repr(settings)


def test_groups_and_roles_are_read_from_file_and_environment(monkeypatch, tmp_path):
    path = tmp_path / "hookmill.toml"
    path.write_text(
        """
        base_url = "https://hooks.test"
        oidc_issuer = "https://id.test/"
        oidc_client_id = "hookmill"
        oidc_allowed_groups = ["staff, all", "ops"]
        [oidc_roles]
        developers = "manager@default"
        support = ["viewer@default", "viewer@payments"]
        """
    )
    monkeypatch.setenv("HOOKMILL_CONFIG", str(path))
    monkeypatch.setenv("HOOKMILL_OIDC_CLIENT_SECRET", "canary")
    monkeypatch.setenv("HOOKMILL_OIDC_ADMIN_GROUPS", "admins, CN=root")
    from_commas = read_settings()
    monkeypatch.setenv("HOOKMILL_OIDC_ADMIN_GROUPS", '["CN=root,DC=test"]')
    monkeypatch.setenv("HOOKMILL_OIDC_ROLES", '{"a": "viewer@b", "support": "manager@b"}')
    from_json = read_settings()

    assert from_commas.oidc_issuer == "https://id.test/"
    assert from_commas.oidc_redirect_uri == "https://hooks.test/sign-in/oidc/callback"
    assert from_commas.oidc_allowed_groups == ("staff, all", "ops")
    assert from_commas.oidc_admin_groups == ("admins", "CN=root")
    assert from_commas.oidc_roles == {
        "developers": (GroupRole(Role.MANAGER, "default"),),
        "support": (GroupRole(Role.VIEWER, "default"), GroupRole(Role.VIEWER, "payments")),
    }
    assert from_json.oidc_admin_groups == ("CN=root,DC=test",)
    assert from_json.oidc_roles == {
        "developers": (GroupRole(Role.MANAGER, "default"),),
        "support": (GroupRole(Role.MANAGER, "b"),),
        "a": (GroupRole(Role.VIEWER, "b"),),
    }
    assert "canary" not in repr(from_json)


@pytest.mark.parametrize(("content", "reason"), [(None, "can't be read"), ("no PEM", "has no certificate in PEM")])
@pytest.mark.parametrize(
    "name", ["ALARM_CA_FILE", "OIDC_CA_FILE", "RESULTS_CA_FILE", "S3_CA_FILE", "OTEL_EXPORTER_OTLP_CERTIFICATE"]
)
def test_start_refuses_a_file_without_usable_certificates(tmp_path, monkeypatch, hookmill, name, content, reason):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("HOOKMILL_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(name if name.startswith("OTEL") else f"HOOKMILL_{name}", str(path))

    result = hookmill("serve", exit_code=1)

    assert re.search(f"The file of {name}, {re.escape(str(path))}, {reason}", result.err, re.IGNORECASE)


@pytest.mark.parametrize("is_link", [True, False])
def test_unreadable_settings_file_is_refused_instead_of_ignored(tmp_path, monkeypatch, is_link):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hookmill.toml"
    path.symlink_to(tmp_path / "nowhere") if is_link else path.mkdir()

    with pytest.raises(Invalid, match=r"hookmill.toml: (there is no file|can't be read: Is a directory)"):
        read_settings()


def test_files_that_a_service_creates_are_accessible_to_the_owner_only(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import os; os.umask(0)")
    service = Service(tmp_path / "data")
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    with patch.dict(os.environ, {"PYTHONPATH": str(tmp_path)}):
        service.start()
    try:
        wait_until_announced(service)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in service.data_dir.iterdir()}
    finally:
        service.kill()

    assert {"serve.lock", "worker.lock", "hookmill.db.writer", "master.key"} <= set(modes)
    # The test creates the first two. SQLite gives the others the mode of the database.
    excluded = {"service.log", "hookmill.db", "hookmill.db-wal", "hookmill.db-shm"}
    assert {mode for name, mode in modes.items() if name not in excluded} <= {0o600, 0o700}


@pytest.mark.parametrize(("mode", "warning_count"), [(0o755, 1), (0o750, 0)])
def test_world_readable_data_directory_causes_one_warning(tmp_path, mode, warning_count):
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(mode)

    with serving(tmp_path / "data", performs_runs=False) as service:
        lines = [json.loads(line) for line in service.log().splitlines() if '"level": "warning"' in line]

    assert len(lines) == warning_count
    for line in lines:
        assert line["where"] == "data directory"
        assert line["why"].startswith(f"every user of this host can open {tmp_path / 'data'} (mode 755)")


def test_backup_and_service_work_in_a_directory_with_unusual_characters(monkeypatch, hookmill, tmp_path):
    top = tmp_path / "top"
    data_dir = top / "feature%2Fx ?#:&='\"ü"
    data_dir.mkdir(parents=True)
    monkeypatch.setenv("HOOKMILL_DATA_DIR", str(data_dir))
    with serving(data_dir) as service:
        with service.management() as management:
            webhook = create_webhook(management, "push")
            trigger = received(webhook.webhook.uid)
            automation_created(management, operator(management), "all", triggers=[trigger])
        service.post(webhook)
        until(lambda: list(data_dir.glob("runs/run_*/event-payload.json")), service.log)
        hookmill("backup", str(tmp_path / "saved"))
        hookmill("verify")
        service.stop()
    copy = top / "restored%2F"
    copy.mkdir()
    shutil.copy(data_dir / "master.key", copy)
    monkeypatch.setenv("HOOKMILL_DATA_DIR", str(copy))
    hookmill("restore", str(tmp_path / "saved"))
    listed = hookmill("webhook", "list")

    assert b"push" in listed.out_bytes
    assert sorted(path.name for path in top.iterdir()) == [data_dir.name, copy.name]
    assert (data_dir / "hookmill.db.writer").exists()


def test_proxy_that_cannot_be_used_is_named_at_the_start(tmp_path):
    with (
        patch.dict(os.environ, {"ALL_PROXY": "socks5://user:canary@127.0.0.1:1080"}),
        serving(tmp_path / "data", performs_runs=False) as service,
    ):
        [line] = [json.loads(line) for line in service.log().splitlines() if '"where": "proxies"' in line]

    assert line["why"].startswith("ALL_PROXY names a proxy of the kind socks5 that can't be used.")
    assert "canary" not in str(line)


def test_start_logs_what_its_runs_would_lack(tmp_path):
    runners = {"missing": {"argv": ["/nowhere/agent"]}, "usable": {"argv": [sys.executable]}}
    repositories = {"shop": {"url": "https://127.0.0.1/shop.git", "secret_from": "SHOP_TOKEN"}}
    destinations = {"team": {"kind": "webhook", "url": "https://127.0.0.1/", "secret_from": "TEAM_SECRET"}}

    with patch.dict(os.environ, {"PATH": "/nowhere", "TEAM_SECRET": "whsec_!"}):
        service = Service(
            tmp_path / "data",
            settings={
                "RUNNERS": json.dumps(runners),
                "REPOSITORIES": json.dumps(repositories),
                "DESTINATIONS": json.dumps(destinations),
            },
        )
        service.start()
    try:
        until(lambda: "Its program" in service.log(), "the log names the runner")
        lines = [json.loads(line) for line in service.log().splitlines() if '"event": "check this"' in line]
    finally:
        service.kill()

    found = [(line["where"], line["why"]) for line in lines if "no sandbox" not in line["why"]]
    assert found == [
        ("repositories", "The program git is not installed on this host, or not in PATH. Install the package git."),
        (
            "repository shop",
            "The variable SHOP_TOKEN, which must contain the password of the repository 'shop', is not set. Set it for "
            "every process that performs runs, or correct the repository's secret_from.",
        ),
        (
            "destination team",
            "The variable TEAM_SECRET has no usable secret: it must be whsec_ and at least 24 bytes in base64. Correct "
            "it for every worker. Its results can't be delivered.",
        ),
        (
            "runner missing",
            "Its program /nowhere/agent does not exist. Install it, or correct the runner's argv.",
        ),
    ]


# PostgreSQL databases, servers and roles that can't be used


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
@pytest.mark.parametrize("command", ["migrate", "webhook list", "worker"])
def test_database_that_is_not_utf8_is_refused(
    data_dir, hookmill, create_encoded_database, use_database, command, encoding
):
    use_database(create_encoded_database(encoding))

    result = hookmill(*command.split(), exit_code=1)

    assert f"is {encoding}, and Hookmill needs UTF8. Create another database with CREATE DATABASE" in result.err
    assert result.err.count("\n") == 1


@pytest.fixture
def use_database(monkeypatch):
    """Sets the PostgreSQL database that the commands use."""

    def use(url: str) -> None:
        monkeypatch.setenv("HOOKMILL_DATABASE_URL", url)
        monkeypatch.setenv("HOOKMILL_MASTER_KEY", KEY)

    return use


@pytest.fixture
def create_encoded_database(postgres_server):
    """Creates a database with this encoding. Returns its URL."""
    urls = []

    def create(encoding: str):
        name = f"hookmill_test_{encoding.lower()}_{os.getpid()}"
        with psycopg.connect(postgres_server.admin_url, autocommit=True) as connection:
            connection.execute(
                f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode()
            )
        urls.append(postgres_server.url(name))
        return urls[-1]

    yield create
    for url in urls:
        postgres_server.drop_database(url)


def test_old_postgresql_server_is_refused(data_dir, hookmill, use_database, postgres_url, monkeypatch):
    use_database(postgres_url)
    monkeypatch.setattr(postgres_engine, "OLDEST_VERSION", 99)

    result = hookmill("migrate", exit_code=1)

    assert result.err.endswith(
        "Hookmill needs 99 or newer. Upgrade the server, or set HOOKMILL_DATABASE_URL to another one.\n"
    )


@pytest.fixture
def unprivileged_role_url(postgres_server, postgres_url):
    """The URL of the database `postgres_url` for a role that has no privilege except CONNECT."""
    role = f"hookmill_test_weak_{os.getpid()}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'canary'".encode())
        _, _, server = urlsplit(postgres_url).netloc.rpartition("@")
        yield urlsplit(postgres_url)._replace(netloc=f"{role}:canary@{server}").geturl()
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_printed_grant_gives_the_missing_privilege(
    data_dir, hookmill, use_database, unprivileged_role_url, postgres_url
):
    use_database(unprivileged_role_url)

    result = hookmill("migrate", exit_code=1)
    statement = result.err.splitlines()[1]
    with psycopg.connect(postgres_url, autocommit=True) as superuser:
        superuser.execute(statement.encode())

    assert "may not create tables in database" in result.err
    assert "canary" not in result.err
    assert hookmill("migrate", "--json").json == {"changed": True}


def test_command_without_privileges_on_the_tables_is_refused(
    data_dir, hookmill, use_database, unprivileged_role_url, postgres_url
):
    use_database(postgres_url)
    hookmill("migrate")
    use_database(unprivileged_role_url)

    result = hookmill("webhook", "list", exit_code=1)

    assert "permission denied for table " in result.err
    assert "Grant it to the role in HOOKMILL_DATABASE_URL" in result.err
    assert "canary" not in result.err


@pytest.mark.parametrize(
    ("change_url", "problem"),
    [
        (lambda url: url.replace(":canary@", ":another-canary@"), "password authentication failed for user"),
        (lambda url: f"{url}_missing", "does not exist"),
        (lambda url: f"{url}?canary=1", "invalid connection option"),
        (lambda url: url.replace(":canary@", ":canary@canary@"), "can't be read. Use postgresql://USER:PASSWORD@"),
        (lambda url: re.sub(r":\d+/", ":port/", url), "can't be read. Use postgresql://USER:PASSWORD@"),
    ],
    ids=["wrong password", "no such database", "no such option", "an @ in the password", "no port"],
)
def test_refused_connection_is_reported_without_the_password(
    data_dir, hookmill, use_database, unprivileged_role_url, change_url, problem
):
    use_database(change_url(unprivileged_role_url))

    result = hookmill("migrate", exit_code=1)

    assert problem in result.err.splitlines()[0]
    assert "canary@" not in result.err


def test_role_without_the_privilege_to_connect_is_refused(
    data_dir, hookmill, use_database, unprivileged_role_url, postgres_url
):
    with psycopg.connect(postgres_url, autocommit=True) as superuser:
        name = superuser.info.dbname
        superuser.execute(f"REVOKE CONNECT ON DATABASE {name} FROM PUBLIC".encode())
    use_database(unprivileged_role_url)

    result = hookmill("migrate", exit_code=1)

    assert f'permission denied for database "{name}"' in result.err.splitlines()[0]
    assert "canary" not in result.err


# Locks of the database


def test_open_store_prevents_other_processes_from_removing_the_wal(data_dir):
    path = data_dir / "hookmill.db"
    app.open_store(settings_with(data_dir, None), create=True).close()
    with closing(app.open_store(settings_with(data_dir, None))):
        script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('CREATE TABLE other (x)'); c.close()"
        subprocess.run([sys.executable, "-I", "-c", script, path], check=True, timeout=LONG_SECONDS)

        # The last process that closes the database removes the WAL. This process still has it open.
        assert path.with_name("hookmill.db-wal").exists()


# A first start that was killed


@pytest.mark.parametrize("kind", ["sqlite", only_in_proof("postgres")])
def test_killed_first_start_is_completed_by_the_next_start(tmp_path, kind, request):
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    data_dir = tmp_path / "data"
    settings = settings_with(data_dir, url)
    killed_starts = 0
    # Each start continues from the files of all previous ones, and is killed one step later.
    while kill_first_start(data_dir, url, at_step=killed_starts + 1, output=tmp_path / "output"):
        killed_starts += 1

    app.open_store(settings, create=True).close()

    print(f"{killed_starts} starts were killed")
    assert killed_starts > 3
    assert (data_dir / "master.key").stat().st_mode & 0o777 == 0o600


def settings_with(data_dir: Path, url: str | None) -> Settings:
    return Settings(data_dir=data_dir, database_url=SecretStr(url) if url is not None else None)


def kill_first_start(data_dir: Path, url: str | None, *, at_step: int, output: Path) -> bool:
    """Start, and let the process kill itself at this step. Returns False if the start finished before."""
    start = Forked(_start_and_kill_itself, (data_dir, url, at_step), os.environ, data_dir.parent, output)
    exit_code = start.wait(LONG_SECONDS)
    assert exit_code in (0, -signal.SIGKILL), output.read_text()
    return exit_code != 0


def _start_and_kill_itself(data_dir: Path, url: str | None, at_step: int) -> None:
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    steps = itertools.count(1)
    changing_events = {"open", "os.mkdir", "os.link", "os.remove", "os.rename", "os.chmod", "sqlite3.connect"}

    def end_step() -> None:
        if next(steps) == at_step:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(name: str, arguments: tuple[object, ...]) -> None:
        if name in changing_events and str(data_dir) in str(arguments[0]):
            end_step()

    sys.addaudithook(audit)
    event.listen(Engine, "commit", lambda _: end_step())
    app.open_store(settings_with(data_dir, url), create=True).close()
