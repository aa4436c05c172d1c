"""The master key is rotated under load, and the rotation is killed at each step: every delivery is accepted, and every
secret stays readable."""

import hmac
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from hookmill import app
from hookmill.domain.permission import MayManage
from hookmill.domain.secret import SecretValue
from hookmill.domain.webhook import AuthMode
from hookmill.management import Management, WebhookWithSecret
from hookmill.settings import Settings
from hookmill.store import secrets
from hookmill.store.database import open_database
from hookmill.store.keys import binding, rotation
from hookmill.store.keys.key_file import KeyFile
from hookmill.store.keys.rotation import RotationResult
from hookmill.store.keys.sealing import KeyRing, MasterKey
from tests.faults.rotator import serve_rotations
from tests.faults.senders import PersistentConnection, delivery_request
from tests.support.counts import ON_POSTGRES_IN_PROOF, only_in_proof
from tests.support.loaded import Command, Forked
from tests.support.service import Service, create_webhook, operator, serving
from tests.support.waiting import until
from tests.support.world import World

ALTERED = "altered, or moved from another row"
STEPS_MAX = 60
"""More steps than a rotation of a few rows has."""
UNUSED_SECRETS = 200
"""They make the rotation last longer."""
DELIVERIES_MIN = 200
"""Deliveries before, between and after the rotations."""
SIGNING_SECRET = "a secret shared with github"


def failure_lines(services: Sequence[Service]) -> list[str]:
    """The lines of the services' logs about failures. A retention pass that failed because the database was busy is
    retried, and is ignored."""
    lines = [line for service in services for line in service.log().splitlines()]
    return [line for line in lines if '"failed"' in line and '"retention"' not in line]


def authenticated_request(webhook: WebhookWithSecret, body: bytes) -> bytes:
    """A delivery request with the credential that the webhook's `auth_mode` requires."""
    if webhook.webhook.auth_mode is not AuthMode.SIGNATURE:
        return delivery_request(webhook, body)
    signature = hmac.digest(SIGNING_SECRET.encode(), body, "sha256").hex()
    return delivery_request(webhook, body, headers={"X-Hub-Signature-256": f"sha256={signature}"})


def webhook_of_each_mode(management: Management, may: MayManage, name: str) -> list[WebhookWithSecret]:
    create = management.webhooks.create
    return [
        create(may, {"name": f"{name}-token"}),
        create(may, {"name": f"{name}-url", "auth_mode": "url_token"}),
        create(
            may,
            {"name": f"{name}-signed", "auth_mode": "signature", "signature_scheme": "github"},
            secret=SIGNING_SECRET,
        ),
    ]


@dataclass(slots=True)
class Senders:
    """Senders that deliver to every webhook, at every port."""

    ports: Sequence[int]
    webhooks: list[WebhookWithSecret]
    answers: Counter[str] = field(default_factory=Counter)
    """`202`; of other answers, the status and the webhook's name; `none` if no answer came."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._send, args=(port,)) for port in self.ports for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_stopping.set()
            for thread in threads:
                thread.join()

    def wait_for_deliveries(self, count: int):
        """Wait until this many further deliveries were accepted."""
        before = self.answers["202"]
        until(lambda: self.answers["202"] >= before + count, f"{count} more deliveries were accepted")

    def _send(self, port: int):
        number = 0
        with PersistentConnection(port) as connection:
            while not self._is_stopping.is_set():
                # No process has read the secrets of the newest webhooks yet.
                for webhook in [*self.webhooks[-3:], *self.webhooks[:3]]:
                    number += 1
                    body = b'{"port": %d, "thread": %d, "number": %d}' % (port, threading.get_ident(), number)
                    answer = connection.exchange(authenticated_request(webhook, body))
                    result = "none" if answer is None else f"{answer.status} {webhook.webhook.name}"
                    with self._lock:
                        self.answers[result if result[:3] != "202" else "202"] += 1
                    # The service and the rotation need the processors, too.
                    self._is_stopping.wait(0.002)


def add_unused_secrets(service: Service):
    store = app.open_store(service.read_settings())
    try:
        with store.database.write() as tx:
            [factory] = tx.all("SELECT id, team_id FROM factories")
            secrets.add_secret(tx, "sec_unused", factory["team_id"], "UNUSED", 0, factory=factory["id"])  # type: ignore[arg-type]
            for number in range(UNUSED_SECRETS):
                secrets.add_version(tx, "sec_unused", SecretValue(f"value {number}"), store.master_keys, 0)  # type: ignore[arg-type]
    finally:
        store.close()


def rotate_by_command(service: Service):
    output = service.data_dir.with_name("output")
    command = Command(["keys", "rotate", "--yes"], service.environment(), service.data_dir, output)
    assert command.wait(60) == 0, output.read_text()


def rotate_in_this_process(service: Service):
    with service.management() as management:
        rotate(service.read_settings(), management)


def rotate(settings: Settings, management: Management) -> RotationResult:
    with open_database(settings.store_url()) as database:
        return app.keys.rotate(
            settings, database, management, confirm_new_key=lambda: None, report_progress=lambda _rows, _total: None
        )


def start_services(stack: ExitStack, data_dir: Path, url: str | None, *, count: int) -> list[Service]:
    """Start services that share a data directory, and with it the key file. SQLite allows only one."""
    return [
        stack.enter_context(
            serving(
                data_dir,
                database_url=url,
                deliveries_per_minute=100_000,
                webhooks_per_factory=1_000,
                performs_runs=False,
            )
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", [only_in_proof("sqlite"), "postgres"])
def test_key_rotation_under_load_refuses_no_delivery(kind, tmp_path, request):
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    data_dir = tmp_path / "data"
    with ExitStack() as stack:
        services = start_services(stack, data_dir, url, count=2 if url else 1)
        with services[0].management() as management:
            may = operator(management)
            senders = Senders([service.port for service in services], webhook_of_each_mode(management, may, "first"))
            add_unused_secrets(services[0])
            [first_key] = KeyFile(data_dir / "master.key").read()
            with senders.running():
                for rotate_key in (rotate_by_command, rotate_in_this_process):
                    senders.wait_for_deliveries(DELIVERIES_MIN)
                    rotation_thread = threading.Thread(target=rotate_key, args=(services[0],))
                    rotation_thread.start()
                    while rotation_thread.is_alive():
                        senders.webhooks.extend(webhook_of_each_mode(management, may, f"new-{len(senders.webhooks)}"))
                        rotation_thread.join(0.1)
                senders.wait_for_deliveries(DELIVERIES_MIN)
        for service in services:
            service.stop()

        [new_key] = KeyFile(data_dir / "master.key").read()
        assert new_key != first_key
        with open_database(services[0].read_settings().store_url()) as database, database.read() as tx:
            assert list(rotation.row_counts_by_key(tx)) == [new_key.id]
        assert list(senders.answers) == ["202"], senders.answers
        assert failure_lines(services) == []
        all_keys = [key for file in data_dir.glob("master.key*") for key in file.read_text().split()]
        assert len(all_keys) == 3
        assert [key for key in all_keys if key in services[0].log()] == []
        # This process has only the new key, and reads every secret.
        services[0].start()
        with PersistentConnection(services[0].port) as connection:
            answers = [
                connection.exchange(authenticated_request(webhook, b'{"after": %d}' % number))
                for number, webhook in enumerate(senders.webhooks)
            ]
        assert Counter(answer.status for answer in answers if answer) == {202: len(senders.webhooks)}
    print(f"{kind}: {senders.answers['202']} deliveries, {len(senders.webhooks)} webhooks")


@dataclass(slots=True)
class InterruptedRotation:
    """An installation whose rotations are killed at a chosen step."""

    settings: Settings
    rotator: "Connection[int, str]"
    """The pipe to `serve_rotations`."""
    values: dict[str, str] = field(default_factory=dict)
    """The secrets of the webhooks, by the webhook's name."""

    def rotate_until(self, step: int) -> str:
        """Start a rotation that is killed at the step. Returns the name of the step, or `done` if there is none."""
        self.rotator.send(step)
        return self.rotator.recv()

    @contextmanager
    def open_store(self) -> Iterator[tuple[app.Store, Management]]:
        """Open the store as a process does that starts now."""
        store = app.open_store(self.settings)
        try:
            yield store, app.build_management(self.settings, store)
        finally:
            store.close()

    def revealed(self, management: Management) -> dict[str, str]:
        may = operator(management)
        return {name: management.webhooks.secret_for_sending(may, name).reveal() for name in self.values}


@pytest.fixture
def interrupted_rotation(store_url, tmp_path):
    settings = Settings(data_dir=tmp_path / "data", database_url=store_url)
    store = app.open_store(settings, create=True)
    management = app.build_management(settings, store)
    management.factories.set_up()
    values = {f"source-{n}": create_webhook(management, f"source-{n}").reveal() for n in range(3)}
    store.close()
    environment = {"HOOKMILL_DATA_DIR": str(settings.data_dir), "HOOKMILL_DATABASE_URL": store_url}
    pipe, rotators_end = multiprocessing.Pipe()
    rotator = Forked(serve_rotations, (rotators_end,), os.environ | environment, tmp_path, tmp_path / "output")
    rotators_end.close()
    with pipe:
        yield InterruptedRotation(settings, pipe, values)
    assert rotator.wait(60) == 0, (tmp_path / "output").read_text()


@ON_POSTGRES_IN_PROOF
def test_next_rotation_completes_one_that_was_killed_at_any_step(interrupted_rotation):
    settings, values = interrupted_rotation.settings, interrupted_rotation.values
    fatal_steps: list[str] = []
    for number in range(1, STEPS_MAX):
        step = interrupted_rotation.rotate_until(number)
        if step == "done":
            break
        fatal_steps.append(step)

        where = f"after step {number}, {step}"
        with interrupted_rotation.open_store() as (_, management):
            assert interrupted_rotation.revealed(management) == values, where
            rotate(settings, management)
        [key] = KeyFile(settings.data_dir / "master.key").read()
        with interrupted_rotation.open_store() as (store, management):
            assert interrupted_rotation.revealed(management) == values, where
            with store.database.read() as tx:
                assert rotation.row_counts_by_key(tx) == {key.id: len(values)}, where
        key_files = {path.name for path in settings.data_dir.glob("master.key*")}
        assert key_files == {"master.key", "master.key.lock", "master.key.retired"}
    print(fatal_steps)

    # The rotation adds the new key to the file. In the database it begins, seals two pages of rows, and ends. Then it
    # removes the old key from the file.
    in_file, in_database = ["sync", "rename", "sync"], ["BEGIN", "COMMIT", "after COMMIT"]
    assert fatal_steps == [*in_file, *in_database * 4, *in_file * 2]


# Ciphertexts in the wrong row


def swap_ciphertexts(world: World, one: WebhookWithSecret, other: WebhookWithSecret):
    with world.database.write() as tx:
        versions = [
            tx.one(
                """
                SELECT v.id, v.sealed
                FROM secret_versions v JOIN webhooks w ON w.secret_version_id = v.id
                WHERE w.uid = :uid
                """,
                uid=each.webhook.uid,
            )
            for each in (one, other)
        ]
        first, second = versions
        assert first is not None
        assert second is not None
        for version, sealed in ((first["id"], second["sealed"]), (second["id"], first["sealed"])):
            tx.run("UPDATE secret_versions SET sealed = :sealed WHERE id = :id", sealed=bytes(sealed), id=version)
    # This world's own process may read the ciphertexts again at any time.
    world.possible_failure = ALTERED


def test_only_webhooks_with_swapped_ciphertexts_become_unavailable(world):
    one, other, unchanged = (world.webhook(name) for name in ("one", "other", "unchanged"))
    swap_ciphertexts(world, one, other)

    new_process = world.another_process()

    for webhook in (one, other):
        for token in (one.reveal(), other.reveal()):
            answer = new_process.post(webhook, token=token)
            assert answer.status == 503
            assert answer.headers["retry-after"]
    assert new_process.post(unchanged).status == 202
    assert world.log(one) == world.log(other) == []
    reasons = {reason for part, reason in new_process.failures if part == "snapshot"}
    assert len(reasons) == 2
    assert all(ALTERED in reason for reason in reasons)
    assert not any(secret in reason for reason in reasons for secret in (one.reveal(), other.reveal()))


def test_rotation_repairs_a_webhook_with_a_damaged_secret(world):
    one, other = world.webhook("one"), world.webhook("other")
    swap_ciphertexts(world, one, other)
    new_process = world.another_process()
    assert new_process.post(one).status == 503

    rotated = world.management.webhooks.rotate(world.may, "one")

    assert new_process.post(rotated).status == 202


# Master keys in settings


def test_rolling_restart_with_a_new_master_key_refuses_no_delivery(store_url):
    old, new = MasterKey(b"o" * 32), MasterKey(b"n" * 32)
    with open_database(store_url) as database, database.write() as tx:
        binding.bind_master_key(tx, KeyRing([old]))
    not_restarted, restarted = World(store_url, key=KeyRing([old])), World(store_url, key=KeyRing([new, old]))
    for world, name in ((not_restarted, "by the old process"), (restarted, "by the new process")):
        webhook = world.webhook(name)
        assert [each.post(webhook).status for each in (not_restarted, restarted)] == [202, 202]
    for world in (not_restarted, restarted):
        world.close()
