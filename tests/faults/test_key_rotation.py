"""The master key is replaced under load, and killed at every step: no delivery is refused for it, and no secret is
lost."""

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
from tests.faults.rotator import rotate_when_told
from tests.faults.senders import Line, request
from tests.support.loaded import Command, Forked
from tests.support.service import Service, operator, serving
from tests.support.waiting import until
from tests.support.world import World

STEPS_MAX = 60
"""More steps than a rotation of a few rows has."""
FILLING = 200
"""Secrets that nobody uses, so that a rotation takes as long as a rotation does."""
TAKEN_BETWEEN = 200
"""Deliveries before, between and after the rotations."""
SIGNING_SECRET = "what github was given"


def troubles(services: Sequence[Service]) -> list[str]:
    """What the services' logs tell of faults. A sweep that a busy database kept waiting is made again, and no fault."""
    lines = [line for service in services for line in service.log().splitlines()]
    return [line for line in lines if '"failed"' in line and '"retention"' not in line]


def delivery(made: WebhookWithSecret, body: bytes) -> bytes:
    """A request that proves itself as its webhook asks."""
    if made.webhook.auth_mode is not AuthMode.SIGNATURE:
        return request(made, body)
    signature = hmac.digest(SIGNING_SECRET.encode(), body, "sha256").hex()
    return request(made, body, headers={"X-Hub-Signature-256": f"sha256={signature}"})


def one_of_each(management: Management, may: MayManage, name: str) -> list[WebhookWithSecret]:
    create = management.webhooks.create
    return [
        create(may, f"{name}-token"),
        create(may, f"{name}-url", auth_mode=AuthMode.URL_TOKEN),
        create(may, f"{name}-signed", auth_mode=AuthMode.SIGNATURE, signature_scheme="github", secret=SIGNING_SECRET),
    ]


@dataclass(slots=True)
class Senders:
    """They post to every webhook there is, at every process, until they are told to leave."""

    ports: Sequence[int]
    webhooks: list[WebhookWithSecret]
    answers: Counter[str] = field(default_factory=Counter)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _leaving: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._send, args=(port,)) for port in self.ports for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._leaving.set()
            for thread in threads:
                thread.join()

    def take(self, more: int) -> None:
        """Until so many more deliveries were taken."""
        before = self.answers["202"]
        until(lambda: self.answers["202"] >= before + more, f"{more} more deliveries were taken")

    def _send(self, port: int) -> None:
        number = 0
        with Line(port) as line:
            while not self._leaving.is_set():
                # The newest ones first: those have never been read by any process.
                for made in [*self.webhooks[-3:], *self.webhooks[:3]]:
                    number += 1
                    body = b'{"port": %d, "thread": %d, "number": %d}' % (port, threading.get_ident(), number)
                    answer = line.ask(delivery(made, body))
                    told = "none" if answer is None else f"{answer.status} {made.webhook.name}"
                    with self._guard:
                        self.answers[told if told[:3] != "202" else "202"] += 1
                    # The others need the processor too.
                    self._leaving.wait(0.002)


def add_filling(service: Service) -> None:
    store = app.open_store(service.read_settings())
    try:
        with store.database.write() as tx:
            [team] = tx.all("SELECT id FROM teams")
            secrets.add_secret(tx, "sec_filling", team["id"], "FILLING", 0)  # type: ignore[arg-type]
            for number in range(FILLING):
                secrets.add_version(tx, "sec_filling", SecretValue(f"value {number}"), store.master_keys, 0)  # type: ignore[arg-type]
    finally:
        store.close()


def rotate_by_command(service: Service) -> None:
    output = service.data_dir.with_name("rotated")
    done = Command(["keys", "rotate", "--yes"], service.environment(), service.data_dir, output)
    assert done.wait(60) == 0, output.read_text()


def rotate_in_this_process(service: Service) -> None:
    with service.management() as management:
        rotate(service.read_settings(), management)


def rotate(settings: Settings, management: Management) -> RotationResult:
    with open_database(settings.store_url()) as database:
        return app.keys.rotate(
            settings, database, management, confirm_new_key=lambda: None, report_progress=lambda _rows, _total: None
        )


def started(running: ExitStack, data_dir: Path, url: str | None, *, services: int) -> list[Service]:
    """On PostgreSQL several may share a data directory, and with it the key file."""
    return [
        running.enter_context(
            serving(
                data_dir,
                database_url=url,
                deliveries_per_minute=100_000,
                webhooks_per_factory=1_000,
                performs_runs=False,
            )
        )
        for _ in range(services)
    ]


@pytest.mark.parametrize("on", ["sqlite", "postgres"])
def test_a_rotation_under_load_costs_no_delivery(on: str, tmp_path: Path, request: pytest.FixtureRequest):
    url = request.getfixturevalue("postgres_url") if on == "postgres" else None
    data_dir = tmp_path / "data"
    with ExitStack() as running:
        services = started(running, data_dir, url, services=2 if url else 1)
        with services[0].management() as management:
            may = operator(management)
            senders = Senders([service.port for service in services], one_of_each(management, may, "first"))
            add_filling(services[0])
            [first_key] = KeyFile(data_dir / "master.key").read()
            with senders.at_work():
                for rotate_somehow in (rotate_by_command, rotate_in_this_process):
                    senders.take(TAKEN_BETWEEN)
                    rotating = threading.Thread(target=rotate_somehow, args=(services[0],))
                    rotating.start()
                    while rotating.is_alive():
                        senders.webhooks.extend(one_of_each(management, may, f"made-{len(senders.webhooks)}"))
                        rotating.join(0.1)
                senders.take(TAKEN_BETWEEN)
        for service in services:
            service.stop()

        [new_key] = KeyFile(data_dir / "master.key").read()
        assert new_key != first_key
        with open_database(services[0].read_settings().store_url()) as database, database.read() as tx:
            assert list(rotation.row_counts_by_key(tx)) == [new_key.id]
        assert list(senders.answers) == ["202"], senders.answers
        assert troubles(services) == []
        written = [key for file in data_dir.glob("master.key*") for key in file.read_text().split()]
        assert len(written) == 3
        assert [key for key in written if key in services[0].log()] == []
        # Every secret is read now by a process that has the new key alone.
        services[0].start()
        with Line(services[0].port) as line:
            answers = [line.ask(delivery(made, b'{"after": %d}' % at)) for at, made in enumerate(senders.webhooks)]
        assert Counter(answer.status for answer in answers if answer) == {202: len(senders.webhooks)}
    print(f"{on}: {senders.answers['202']} deliveries, {len(senders.webhooks)} webhooks")


@dataclass(slots=True)
class InterruptedRotation:
    """Something to rotate the key of, and a command that dies on the way."""

    settings: Settings
    rotator: "Connection[int, str]"
    values: dict[str, str] = field(default_factory=dict)

    def rotate_until(self, step: int) -> str:
        """The step that it died at, or `done`."""
        self.rotator.send(step)
        return self.rotator.recv()

    @contextmanager
    def process(self) -> Iterator[tuple[app.Store, Management]]:
        """One that starts now."""
        store = app.open_store(self.settings)
        try:
            yield store, app.build_management(self.settings, store)
        finally:
            store.close()

    def revealed(self, management: Management) -> dict[str, str]:
        may = operator(management)
        return {name: management.webhooks.secret_for_sending(may, name).reveal() for name in self.values}


@pytest.fixture
def interrupted_rotation(store_url: str, tmp_path: Path) -> Iterator[InterruptedRotation]:
    settings = Settings(data_dir=tmp_path / "data", database_url=store_url)  # type: ignore[arg-type]
    store = app.open_store(settings, create=True)
    management = app.build_management(settings, store)
    management.factories.set_up()
    values = {f"source-{n}": management.webhooks.create(operator(management), f"source-{n}").reveal() for n in range(3)}
    store.close()
    environment = {"HOOKMILL_DATA_DIR": str(settings.data_dir), "HOOKMILL_DATABASE_URL": store_url}
    ours, theirs = multiprocessing.Pipe()
    rotator = Forked(rotate_when_told, (theirs,), os.environ | environment, tmp_path, tmp_path / "output")
    theirs.close()
    with ours:
        yield InterruptedRotation(settings, ours, values)
    assert rotator.wait(60) == 0, (tmp_path / "output").read_text()


def test_a_rotation_killed_at_any_step_is_finished_by_the_next(interrupted_rotation: InterruptedRotation):
    died_at: list[str] = []
    for step in range(1, STEPS_MAX):
        name = interrupted_rotation.rotate_until(step)
        if name == "done":
            break
        died_at.append(name)

        where = f"after step {step}, {name}"
        with interrupted_rotation.process() as (_, management):
            assert interrupted_rotation.revealed(management) == interrupted_rotation.values, where
            rotate(interrupted_rotation.settings, management)
        [key] = KeyFile(interrupted_rotation.settings.data_dir / "master.key").read()
        with interrupted_rotation.process() as (store, management):
            assert interrupted_rotation.revealed(management) == interrupted_rotation.values, where
            with store.database.read() as tx:
                assert rotation.row_counts_by_key(tx) == {key.id: len(interrupted_rotation.values)}, where
        left = {path.name for path in interrupted_rotation.settings.data_dir.glob("master.key*")}
        assert left == {"master.key", "master.key.lock", "master.key.retired"}
    print(died_at)

    # The new key enters the file; the database begins, seals two pages of rows, and ends; the old key leaves the file.
    in_file, in_database = ["sync", "rename", "sync"], ["BEGIN", "COMMIT", "after COMMIT"]
    assert died_at == [*in_file, *in_database * 4, *in_file * 2]


# Ciphertexts that were moved


def swap(world: World, one: WebhookWithSecret, other: WebhookWithSecret) -> None:
    with world.database.write() as tx:
        versions = {
            each.webhook.uid: tx.one(
                """
                SELECT v.id, v.sealed
                FROM secret_versions v JOIN webhooks w ON w.secret_version_id = v.id
                WHERE w.uid = :uid
                """,
                uid=each.webhook.uid,
            )
            for each in (one, other)
        }
        first, second = versions.values()
        assert first is not None
        assert second is not None
        for to, sealed in ((first["id"], second["sealed"]), (second["id"], first["sealed"])):
            tx.run("UPDATE secret_versions SET sealed = :sealed WHERE id = :id", sealed=bytes(sealed), id=to)


def test_swapped_ciphertexts_close_their_webhooks_and_no_other(world: World):
    mine, theirs, bystander = (world.webhook(name) for name in ("mine", "theirs", "bystander"))
    swap(world, mine, theirs)

    fresh = world.beside()

    for made in (mine, theirs):
        for token in (mine.reveal(), theirs.reveal()):
            answer = fresh.post(made, token=token)
            assert answer.status == 503
            assert answer.headers["retry-after"]
    assert fresh.post(bystander).status == 202
    assert world.log(mine) == world.log(theirs) == []
    told = {why for where, why in fresh.failures if where == "snapshot"}
    assert len(told) == 2
    assert all("altered, or moved from another row" in why for why in told)
    assert not any(secret in why for why in told for secret in (mine.reveal(), theirs.reveal()))


def test_a_webhook_whose_secret_was_damaged_is_open_again_with_a_new_one(world: World):
    mine, theirs = world.webhook("mine"), world.webhook("theirs")
    swap(world, mine, theirs)
    fresh = world.beside()
    assert fresh.post(mine).status == 503

    rotated = world.management.webhooks.rotate(world.may, "mine")

    assert fresh.post(rotated).status == 202


# Keys that are settings


def test_processes_restarted_one_by_one_with_a_new_key_all_accept(store_url: str):
    old, new = MasterKey(b"o" * 32), MasterKey(b"n" * 32)
    with open_database(store_url) as database, database.write() as tx:
        binding.bind_master_key(tx, old)
    not_yet, both = World(store_url, key=KeyRing([old])), World(store_url, key=KeyRing([new, old]))
    for world, name in ((not_yet, "not yet"), (both, "both")):
        made = world.webhook(name)
        assert [there.post(made).status for there in (not_yet, both)] == [202, 202]
    for world in (not_yet, both):
        world.close()
