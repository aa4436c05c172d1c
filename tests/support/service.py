"""Starts the service as users do: `hookmill serve` in a process of its own, with a real store and real sockets."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hookmill import app
from hookmill.domain.permission import MayManage
from hookmill.management import Management, WebhookWithSecret
from hookmill.settings import Settings
from tests.support.loaded import Command
from tests.support.ports import free_port, is_free
from tests.support.stores import migrated_sqlite_file
from tests.support.waiting import LONG_SECONDS, until


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the service. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cookies: tuple[str, ...] = ()
    """All `Set-Cookie` headers of the response: `headers` has only the last one."""

    @property
    def delivery_id(self) -> str:
        return str(self.json["delivery_id"])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> tuple[int, Any]:
        """The status and the code of an answer that reports an error."""
        return self.status, self.json["code"]


@dataclass(slots=True)
class Service:
    """One `hookmill serve`, which `start` starts. Several may share a PostgreSQL database."""

    data_dir: Path
    database_url: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings, by their names in the environment without the prefix, such as `DELIVERIES_PER_MINUTE`."""
    port: int = 0
    """0: `start` chooses a free one."""
    process: Command | None = None

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOOKMILL_")}
        own = {
            "HOOKMILL_DATA_DIR": str(self.data_dir),
            "HOOKMILL_PORT": str(self.port),
            "HOOKMILL_FREE_SPACE_MIN_MB": "1",
            **({"HOOKMILL_DATABASE_URL": self.database_url} if self.database_url else {}),
            **{f"HOOKMILL_{name}": value for name, value in self.settings.items()},
        }
        return inherited | own

    def start(self) -> "Service":
        """Start the service, and wait until it is ready. Fails with the service's log if it ends or takes too long."""
        self.port = self.port or free_port()
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.database_url is None and not (self.data_dir / "hookmill.db").exists():
            # A first start would create the same schema, in a third of a second. Other tests verify that.
            shutil.copyfile(migrated_sqlite_file(), self.data_dir / "hookmill.db")
            (self.data_dir / "hookmill.db").chmod(0o600)
        self.process = Command(["serve"], self.environment(), self.data_dir, self.log_path)
        deadline = time.monotonic() + LONG_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the service ended with {self.process.returncode}:\n{self.log()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.request("GET", "/readyz").status == 200:
                    return self
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"the service was not ready within {LONG_SECONDS} s:\n{self.log()}")

    def kill(self):
        """Kill all processes of the service with SIGKILL, and wait until none of them listens at the port."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LONG_SECONDS)
        until(lambda: is_free(self.port), f"port {self.port} is free")

    def stop(self) -> int:
        """Send SIGTERM, as an operator would, and wait for the end. Returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(LONG_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    @property
    def log_path(self) -> Path:
        return self.data_dir / "service.log"

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """Send one request, on a connection of its own, and return the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            response = connection.getresponse()
            response_headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response_headers, response.read())
        finally:
            connection.close()

    def post(
        self,
        webhook: WebhookWithSecret,
        body: bytes = b"{}",
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a delivery to the webhook, with the webhook's secret, or with `token` instead."""
        secret = token if token is not None else webhook.reveal()
        path = f"/webhooks/w/{webhook.webhook.uid}"
        if webhook.webhook.auth_mode == "url_token":
            return self.request("POST", f"{path}/{secret}", headers=headers, body=body)
        credentials = {"Authorization": f"Bearer {secret}"}
        return self.request("POST", path, headers=credentials | dict(headers or {}), body=body)

    @contextlib.contextmanager
    def management(self) -> Iterator[Management]:
        """The management operations in this process, while the service runs, as the command line uses them."""
        settings = self.read_settings()
        store = app.open_store(settings)
        try:
            yield app.build_management(settings, store)
        finally:
            store.close()

    def read_settings(self) -> Settings:
        values: dict[str, Any] = {
            "data_dir": self.data_dir,
            "port": self.port,
            "free_space_min_mb": 1,
            "database_url": self.database_url,
            **{name.lower(): value for name, value in self.settings.items()},
        }
        for name in ("runners", "repositories", "destinations", "oidc_roles"):
            if name in values:
                values[name] = json.loads(values[name])
        return Settings(**values)


@contextlib.contextmanager
def serving(data_dir: Path, *, database_url: str | None = None, port: int = 0, **settings: object) -> Iterator[Service]:
    """Start a service, and kill it when the block ends. `settings` are by name, such as `deliveries_per_minute=5`."""
    service = Service(
        data_dir,
        database_url=database_url,
        port=port,
        settings={name.upper(): str(value) for name, value in settings.items()},
    )
    service.start()
    try:
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.kill()


def operator(management: Management) -> MayManage:
    """Permission for all operations in the factory that a first start creates."""
    return management.access.operator("default")


def create_webhook(management: Management, name: str, **fields: Any) -> WebhookWithSecret:
    """Create a webhook in the factory that a first start creates."""
    return management.webhooks.create(operator(management), {"name": name, **fields})
