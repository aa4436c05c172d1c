"""Starts the service under measurement with thousands of webhooks, on SQLite or PostgreSQL.

The load generator (`load`) and the yardstick (`noop`) don't import Hookmill: they know only HTTP and a port.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from pydantic import SecretStr

from bench.load import LoadFailed, Target
from bench.machine import free_port
from bench.process import REPOSITORY, Served, ServerFailed, serving_process
from hookmill import app
from hookmill.domain.automation import Automation, DeliveryFilter, WebhookTrigger
from hookmill.domain.factory import Factory
from hookmill.domain.ids import (
    RANDOM_BYTES,
    AutomationId,
    FactoryId,
    SecretId,
    WebhookUid,
    delivery_id,
    random_id,
)
from hookmill.domain.secret import SecretValue, generate_value
from hookmill.domain.spec import read
from hookmill.domain.webhook import WebhookSpec, WebhookState
from hookmill.settings import Settings
from hookmill.store import automations, factories, secrets
from hookmill.store import webhooks as webhooks_
from hookmill.store.database import Transaction
from hookmill.store.keys.sealing import KeyRing
from tests.support.postgres import PostgresServer

DELIVERIES_PER_WEBHOOK = 50
"""Below the rate limit of 60 per minute."""
RUN_STARTS = 100
"""How many runs are measured from the 202 to their start."""
WEBHOOKS_PER_FACTORY = 20
READY_SECONDS = 30.0
CREATION_SECONDS = 600.0
"""The time for 100,000 webhooks on a busy machine."""
PACKAGE, COMMAND = "package", "command"
"""The runner that starts no command, and one that starts `date`."""
SETTLING_SECONDS = 3.0
"""The time between the first answer of `/readyz` and the measurement."""

SERVER_SETTINGS: Mapping[str, Any] = {
    "interface": "asgi",
    "workers": 1,
    "loop": "uvloop",
    "http": "1",
    "runtime_mode": "st",
    "websockets": False,
    "backlog": 2048,
    "backpressure": 10_000,
    "log_access": False,
    "log_level": "warning",
    "http1_settings": {"header_read_timeout": 10_000, "max_buffer_size": 32_768},
}
"""The settings of the HTTP server, Granian, in the service. The yardstick is served with the same."""


class Storage(Enum):
    SQLITE = "SQLite"
    POSTGRESQL = "PostgreSQL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A data directory or database with webhooks, whose service is not running. See `Service`."""

    webhooks: Sequence[Target]
    settings: Settings
    environment: Mapping[str, str]
    checkout: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The running service, and its webhooks as targets: the path and the credential of each. All are enabled.

    One automation selects each webhook. Its payload filter matches only `"kind": "matching"`.
    """

    served: Served
    webhooks: Sequence[Target]
    installation: Installation | None = None
    """None for the yardstick."""

    @property
    def settings(self) -> Settings:
        assert self.installation is not None
        return self.installation.settings


@contextmanager
def serving(
    storage: Storage,
    *,
    webhooks: int,
    fill: Callable[[app.Store], None] | None = None,
    environment: Mapping[str, str] | None = None,
    checkout: Path = REPOSITORY,
    runner: str = PACKAGE,
) -> Iterator[Service]:
    """`hookmill serve` in a fresh data directory or a fresh PostgreSQL database, until the block ends.

    Before it starts, the webhooks (20 in a factory, mode `token`) and one automation per factory are created in bulk,
    and `fill` may add deliveries to the log. At the end, the directory or the database is removed. `environment` has
    further variables of the service. `checkout` is the code that serves: a clone of the repository after `make setup`.
    Raises `ServerFailed`.
    """
    with installed(
        storage, webhooks=webhooks, environment=environment, checkout=checkout, runner=runner
    ) as installation:
        if fill is not None:
            store = app.open_store(installation.settings)
            fill(store)
            store.close()
        with started(installation) as service:
            yield service


@contextmanager
def installed(
    storage: Storage,
    *,
    webhooks: int,
    environment: Mapping[str, str] | None = None,
    checkout: Path = REPOSITORY,
    runner: str = PACKAGE,
) -> Iterator[Installation]:
    """A fresh data directory or PostgreSQL database with webhooks, until the block ends."""
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hookmill-bench-")))
        port = free_port()
        url = None
        if storage is Storage.POSTGRESQL:
            url = stack.enter_context(PostgresServer.start()).create_database()
        settings = Settings(data_dir=data_dir, port=port, database_url=SecretStr(url) if url else None)
        # Commits before this parameter know only the runner `package`.
        runners = [] if runner == PACKAGE else [runner]
        targets = _create_with(checkout, str(data_dir), url, webhooks, *runners)
        variables = {
            "HOOKMILL_DATA_DIR": str(data_dir),
            "HOOKMILL_PORT": str(port),
            **({"HOOKMILL_DATABASE_URL": url} if url else {}),
            "HOOKMILL_RUNNERS": json.dumps({COMMAND: {"argv": ["date", "+%s%N"]}}),
            **(environment or {}),
        }
        yield Installation(webhooks=targets, settings=settings, environment=variables, checkout=checkout)


@contextmanager
def started(installation: Installation, *arguments: str) -> Iterator[Service]:
    """`hookmill serve` with these arguments, until the block ends."""
    command = [python_of(installation.checkout), "-m", "hookmill", "serve", *arguments]
    port = installation.settings.port
    with serving_process(command, port=port, environment=installation.environment, cwd=installation.checkout) as served:
        _wait_until_ready(port)
        yield Service(served=served, webhooks=installation.webhooks, installation=installation)


def python_of(checkout: Path) -> str:
    return str(checkout / ".venv" / "bin" / "python")


_CREATE_IN_CHECKOUT = """
import json, sys
from pathlib import Path
from pydantic import SecretStr
from bench import service
from hookmill.settings import Settings
data_dir, url, *arguments = json.load(sys.stdin)
settings = Settings(data_dir=Path(data_dir), database_url=SecretStr(url) if url else None)
print(json.dumps([[target.path, dict(target.headers)] for target in service._create(settings, *arguments)]))
"""


def _create_with(checkout: Path, *arguments: str | int | None) -> list[Target]:
    """Create the webhooks with the code of a checkout, whose schema may be older."""
    created = subprocess.run(
        [python_of(checkout), "-c", _CREATE_IN_CHECKOUT],
        cwd=checkout,
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        timeout=CREATION_SECONDS,
        check=True,
    )
    return [Target(path=path, headers=headers) for path, headers in json.loads(created.stdout)]


def _create(settings: Settings, count: int, runner: str = PACKAGE) -> list[Target]:
    """Write the webhooks directly to the store. With management operations, thousands of them would take minutes."""
    store = app.open_store(settings, create=True)
    try:
        team, _ = app.build_management(settings, store).factories.set_up()
        targets: list[Target] = []
        with store.database.write() as tx:
            for number in range(math.ceil(count / WEBHOOKS_PER_FACTORY)):
                factory = Factory(FactoryId(f"fac_{number}"), team.team_id, f"factory {number}")
                factories.add_factory(tx, factory, app.now_us())
                created = [
                    _add_webhook(tx, factory, store.master_keys)
                    for _ in range(min(WEBHOOKS_PER_FACTORY, count - len(targets)))
                ]
                automations.add(tx, _automation(factory, [uid for uid, _ in created], runner))
                targets += [
                    Target(
                        path=f"/webhooks/w/{uid}",
                        headers={"Authorization": f"Bearer {secret.reveal()}", "Content-Type": "application/json"},
                    )
                    for uid, secret in created
                ]
        return targets
    finally:
        store.close()


def _add_webhook(tx: Transaction, factory: Factory, key: KeyRing) -> tuple[WebhookUid, SecretValue]:
    uid = WebhookUid(random_id("wh", os.urandom(RANDOM_BYTES)))
    value = generate_value(os.urandom(32))
    secret = SecretId(f"sec_{uid}")
    secrets.add_secret(tx, secret, factory.team_id, f"SECRET_{uid}", app.now_us(), factory=factory.id)
    webhooks_.add(
        tx,
        uid,
        WebhookSpec(name=uid),
        factory=factory.id,
        state=WebhookState.ENABLED,
        secret_id=secret,
        secret_version_id=secrets.add_version(tx, secret, value, key, app.now_us()),
        now=app.now_us(),
    )
    return uid, value


def _automation(factory: Factory, uids: Sequence[WebhookUid], runner: str) -> Automation:
    return Automation(
        id=AutomationId(f"aut_{factory.id}"),
        factory_id=factory.id,
        name="bench",
        enabled=True,
        version=1,
        prompt="Look at the delivery.",
        runner=runner,
        triggers=(
            WebhookTrigger(
                event="received",
                filter=read(DeliveryFilter, {"webhook_ids": list(uids), "payload": {"kind": ["matching"]}}),
            ),
        ),
        created_at=app.now_us(),
        updated_at=app.now_us(),
    )


def _wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                break
        except OSError:
            time.sleep(0.05)
    else:
        raise ServerFailed(f"/readyz did not answer 200 within {READY_SECONDS:.0f} s.")
    # The worker and the snapshot may be ready later than the ingress.
    time.sleep(SETTLING_SECONDS)


def seconds_to_run_start(service: Service, *, deliveries: int) -> Sequence[float]:
    """Send matching deliveries one by one. Returns the seconds from the 202 of each to the start of its run.

    A run of a command starts with the command's first instruction. Before that, its row says that it runs.
    """
    accepted_at: dict[str, float] = {}
    connection = HTTPConnection("127.0.0.1", service.served.port, timeout=10)
    for number in range(deliveries):
        target = service.webhooks[number % len(service.webhooks)]
        body = json.dumps({"kind": "matching", "number": number})
        connection.request("POST", target.path, body=body, headers=dict(target.headers))
        response = connection.getresponse()
        answer = response.read()
        if response.status != HTTPStatus.ACCEPTED:
            raise LoadFailed(f"A delivery was answered {response.status}.")
        accepted_at[json.loads(answer)["delivery_id"]] = time.time()
        # With random pauses, the deliveries don't coincide with polls at fixed intervals.
        time.sleep(random.uniform(0.02, 0.08))
    connection.close()
    started_at = _run_starts(service.settings, set(accepted_at))
    return [started_at[delivery] - at for delivery, at in accepted_at.items()]


def _run_starts(settings: Settings, deliveries: Set[str]) -> dict[str, float]:
    """Wait until the runs of these deliveries have started. Returns the time of each start."""
    store = app.open_store(settings)
    try:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            with store.database.read() as tx:
                rows = tx.all("SELECT delivery_id, started_at, output_tail FROM runs WHERE finished_at IS NOT NULL")
            started = {
                delivery_id(bytes(row["delivery_id"])): int(row["output_tail"]) / 1e9
                if row["output_tail"]
                else row["started_at"] / 1e6
                for row in rows
            }
            if deliveries <= started.keys():
                return started
            time.sleep(0.1)
        raise LoadFailed(f"Not all of {len(deliveries)} runs ended within {READY_SECONDS:.0f} s.")
    finally:
        store.close()
