"""Operations on alarm destinations: who may do what, the limits, the audit log, and tests of a destination."""

import json
import threading
from typing import Any

import pytest

from hookmill.domain.alarm_destination import DESTINATIONS_MAX, DestinationKind, WebhookTarget
from hookmill.domain.errors import Conflict, DiskFull, Forbidden, Invalid, LimitReached, NotFound
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management import Management
from hookmill.store import alarm_destinations
from tests.notices.receivers import http_receiver
from tests.notices.test_outgoing import outgoing
from tests.store.managed_store import ManagedStore
from tests.support.waiting import until
from tests.support.world import world_for_test

URL = "https://hooks.example.com/secret-path"


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def sending_world(sqlite_store, receiver):
    """A world that can send to the receiver."""
    receiver.requests.clear()
    yield from world_for_test(sqlite_store, allows_private_addresses=True, send_alarm=outgoing().send)


@pytest.fixture
def create(world):
    """Creates a destination of the factory `default`, or of `may`."""

    def create(may: MayManage | MayAdminister | None = None, **choices: Any) -> Any:
        choices.setdefault("kind", DestinationKind.WEBHOOK)
        if "to" not in choices:
            choices.setdefault("url", URL)
        return world.management.alarm_destinations.create(may or world.may, **choices)

    return create


def audited(management: Management, admin: MayAdminister) -> list[tuple[str, str, Any]]:
    """The action, the subject's name and the details of each line about destinations, oldest first."""
    entries = management.audit.of_team(admin, before=None, limit=1_000)
    return [
        (entry.action, entry.subject_name, dict(entry.details))
        for entry in reversed(entries)
        if entry.subject_kind == "alarm_destination"
    ]


def test_destination_is_created_listed_and_deleted(world, admin, create):
    created = create(alarm_kinds=["runs_waiting", "webhook_quiet"])
    destinations = world.management.alarm_destinations
    world.clock.advance(seconds=1)
    email = create(kind=DestinationKind.EMAIL, to="ops@example.com")

    assert destinations.all(world.may) == [created.destination, email.destination]
    assert destinations.all(admin) == []
    assert created.signing_secret.reveal().startswith("whsec_")
    assert email.signing_secret is None
    with world.database.read() as tx:
        target = alarm_destinations.target(tx, created.destination.id, world.key)
    assert isinstance(target, WebhookTarget)
    assert (target.url.reveal(), target.signing_secret) == (URL, created.signing_secret)
    destinations.delete(world.may, created.destination.id)
    assert destinations.all(world.may) == [email.destination]
    shown = "https://hooks.example.com/…"
    kinds = ["webhook_quiet", "runs_waiting"]
    assert audited(world.management, admin) == [
        (
            "alarm_destination.create",
            shown,
            {"kind": "webhook", "alarm_kinds": kinds, "includes_factories": False},
        ),
        (
            "alarm_destination.create",
            "ops@example.com",
            {"kind": "email", "alarm_kinds": [], "includes_factories": False},
        ),
        ("alarm_destination.delete", shown, {}),
    ]


def test_destinations_of_the_installation_and_of_factories_are_separate(world, admin, create):
    other = world.operator_of_new_factory("other")
    ids = [create(may, includes_factories=may is admin).destination.id for may in (world.may, other, admin)]
    destinations = world.management.alarm_destinations

    permissions: list[MayManage | MayAdminister] = [world.may, other, admin]
    for own_id, may in zip(ids, permissions, strict=True):
        assert [each.id for each in destinations.all(may)] == [own_id]
        for foreign_id in set(ids) - {own_id}:
            for operation in (destinations.get, destinations.delete, destinations.test):
                with pytest.raises(NotFound, match="There is no alarm destination"):
                    operation(may, foreign_id)


def test_manager_who_is_no_admin_is_refused(world, manager, create):
    destination = create().destination.id
    destinations = world.management.alarm_destinations

    for operation in (
        lambda: destinations.all(manager),
        lambda: destinations.get(manager, destination),
        lambda: create(manager),
        lambda: destinations.delete(manager, destination),
        lambda: destinations.test(manager, destination),
    ):
        with pytest.raises(Forbidden, match="requires the role admin"):
            operation()
    assert len(destinations.all(world.may)) == 1


@pytest.mark.parametrize(
    ("choices", "problem"),
    [
        ({"kind": DestinationKind.EMAIL}, "An e-mail destination needs an address, and no URL"),
        ({"kind": DestinationKind.EMAIL, "to": "ops@example.com", "url": URL}, "needs an address, and no URL"),
        ({"kind": DestinationKind.EMAIL, "to": "ops"}, "is not an e-mail address"),
        ({"kind": DestinationKind.SLACK, "to": "ops@example.com"}, "A slack destination needs a URL"),
        ({"kind": DestinationKind.WEBHOOK, "to": "o@example.com", "url": URL}, "needs a URL, and no e-mail address"),
        ({"url": "http://hooks.example.com/secret-path"}, "must begin with https://"),
        ({"url": "https://127.0.0.1/secret-path"}, "127.0.0.1 is not a public address"),
        ({"url": "https://[::ffff:10.0.0.1]/secret-path"}, "is not a public address"),
        ({"alarm_kinds": ["nothing"]}, "There is no alarm kind 'nothing'"),
        ({"includes_factories": True}, "Only a destination of the installation can include factories"),
    ],
)
def test_unusable_destination_is_refused(world, create, choices, problem):
    with pytest.raises(Invalid, match=problem) as refusal:
        create(**choices)

    assert "secret" not in str(refusal.value)
    assert world.management.alarm_destinations.all(world.may) == []


def test_limits_of_destinations_and_of_the_disk(world, admin, create):
    for _ in range(DESTINATIONS_MAX):
        create()
    with pytest.raises(
        LimitReached, match=f"The factory has {DESTINATIONS_MAX} alarm destinations, which is the limit"
    ):
        create()
    create(admin)
    world.has_room = False
    with pytest.raises(DiskFull, match="almost full"):
        create(admin)


def test_kind_that_a_destination_would_never_get_is_refused(world, admin, create):
    with pytest.raises(Invalid, match=r"disk_low is about the installation, and this destination is for a factory\."):
        create(alarm_kinds=["runs_failing", "disk_low"])
    with pytest.raises(Invalid, match=r"runs_failing is about factories, .* Include factories, or omit it\."):
        create(admin, alarm_kinds=["disk_low", "runs_failing"])

    create(admin, alarm_kinds=["disk_low", "runs_failing"], includes_factories=True)
    assert world.management.alarm_destinations.all(world.may) == []


def test_email_without_a_mail_server_is_refused(store_url):
    with ManagedStore(store_url) as store, pytest.raises(Conflict, match="Set smtp_host and smtp_sender"):
        store.management.alarm_destinations.create(store.may, DestinationKind.EMAIL, to="ops@example.com")


def test_test_is_sent_once_and_audited_and_has_a_result(sending_world, receiver):
    destinations = sending_world.management.alarm_destinations
    admin = sending_world.management.access.operator_of_team()

    def result_of(path: str):
        created = destinations.create(
            sending_world.may, DestinationKind.WEBHOOK, url=receiver.url(path), alarm_kinds=["runs_failing"]
        )
        return destinations.test(sending_world.may, created.destination.id).problem

    assert result_of("/ok") is None
    assert result_of("/status/404") == f"http://127.0.0.1:{receiver.port} answered with the status 404."

    first, _second = receiver.requests
    assert json.loads(first.body)["type"] == "alarm.test"
    assert (json.loads(first.body)["data"]["kind"], json.loads(first.body)["data"]["factory"]) == (None, "default")
    actions = [action for action, *_ in audited(sending_world.management, admin)]
    assert actions == ["alarm_destination.create", "alarm_destination.test"] * 2


def test_others_can_write_while_a_test_waits_for_its_answer(sending_world, receiver):
    destinations = sending_world.management.alarm_destinations
    created = destinations.create(sending_world.may, DestinationKind.SLACK, url=receiver.url("/held"))
    thread = threading.Thread(target=destinations.test, args=(sending_world.may, created.destination.id))
    thread.start()
    until(lambda: bool(receiver.requests))

    sending_world.webhook("created meanwhile")

    assert thread.is_alive()
    receiver.release.set()
    thread.join()


def test_process_without_a_sender_says_so(world, create):
    destination = create().destination

    assert world.management.alarm_destinations.test(world.may, destination.id).problem is not None
