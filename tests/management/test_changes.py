"""How a change is made: whole or not at all, by one at a time, and not where files own the thing."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill.domain.errors import Conflict, Invalid, LimitReached, NotFound
from hookmill.domain.permission import Channel, MayAdminister, Role
from hookmill.domain.webhook import AuthMode
from hookmill.management import UNSET, IdempotencyKeyReused
from tests.support.world import World


def test_what_is_done_together_is_kept_whole(world: World):
    with world.management.one_transaction(world.may):
        world.webhook("one")
        world.webhook("two")
        seen_inside = [webhook.name for webhook in world.management.webhooks.all(world.may)]

    assert seen_inside == ["one", "two"]
    assert [webhook.name for webhook in world.management.webhooks.all(world.may)] == ["one", "two"]


def test_what_is_done_together_is_undone_whole(world: World):
    with pytest.raises(Conflict), world.management.one_transaction(world.may):
        world.webhook("one")
        world.webhook("one")

    assert world.management.webhooks.all(world.may) == []
    assert world.management.audit.of_factory(world.may) == []


def test_others_see_nothing_of_it_before_it_is_done(world: World):
    seen = []

    def look() -> None:
        seen.append(len(world.management.webhooks.all(world.may)))

    with world.management.one_transaction(world.may):
        world.webhook("one")
        looking = threading.Thread(target=look)
        looking.start()
        looking.join(10)

    assert seen == [0]


def test_several_fields_change_at_once_or_not_at_all(world: World):
    world.webhook("taken")
    world.webhook("source")
    change = world.management.webhooks.change

    with pytest.raises(Conflict):
        change(world.may, "source", enabled=False, delivery_id_header="X-Event-Id", name="taken")
    unchanged = world.management.webhooks.get(world.may, "source")
    changed = change(world.may, "source", enabled=False, delivery_id_header="X-Event-Id", name="origin")

    assert (unchanged.state, unchanged.delivery_id_header) == ("enabled", None)
    assert (changed.state, changed.delivery_id_header, changed.name) == ("disabled", "X-Event-Id", "origin")
    assert change(world.may, "origin", delivery_id_header=None).delivery_id_header is None
    assert change(world.may, "origin", delivery_id_header=UNSET).name == "origin"


def test_a_new_delivery_id_header_holds_at_once_in_another_process(world: World):
    made = world.webhook("source")
    other = world.beside()
    other.post(made, b"0")

    world.management.webhooks.change(world.may, "source", delivery_id_header="X-Event-Id")

    assert other.post(made, b"1", headers={"X-Event-Id": "one"}).status == 202
    world.clock.advance(seconds=1)
    other.post(made, b"2", headers={"X-Event-Id": "one"})
    assert world.labels(made)[0] == "Duplicate"


def test_forty_creates_at_once_make_twenty(world: World):
    def create(number: int) -> bool:
        try:
            world.webhook(f"webhook {number}")
        except LimitReached:
            return False
        return True

    with ThreadPoolExecutor(40) as people:
        made = list(people.map(create, range(40)))

    assert made.count(True) == 20
    assert len(world.management.webhooks.all(world.may)) == 20


def test_a_factory_that_files_define_changes_through_them_alone(world: World):
    made = world.webhook("source")
    world.automation("triage", made)
    by_files = world.management.access.operator("default", channel=Channel.FILES)
    world.management.factories.define_by_files(by_files)
    manage = world.management

    for attempt in (
        lambda: world.webhook("another"),
        lambda: manage.webhooks.rename(world.may, "source", "origin"),
        lambda: manage.webhooks.delete(world.may, "source"),
        lambda: manage.webhooks.change(world.may, "source", delivery_id_header="X-Event-Id"),
        lambda: world.automation("another", made),
        lambda: manage.automations.change(world.may, "triage", prompt="Look twice."),
        lambda: manage.automations.delete(world.may, "triage"),
    ):
        with pytest.raises(Conflict, match="defined by files"):
            attempt()

    assert manage.webhooks.set_enabled(world.may, "source", False).state == "disabled"
    assert manage.webhooks.set_enabled(world.may, "source", True).state == "enabled"
    assert manage.webhooks.rotate(world.may, "source").secret is not None
    manage.secrets.replace(world.may, made.webhook.secret_name)
    assert manage.webhooks.sync(world.may, "source").secret_is_current
    assert manage.automations.set_enabled(world.may, "triage", False).enabled is False
    assert manage.webhooks.rename(by_files, "source", "origin").name == "origin"


def test_files_name_a_team_secret_that_is_there(world: World):
    by_files = world.management.access.operator("default", channel=Channel.FILES)

    with pytest.raises(NotFound, match="No team secret is named 'MISSING'"):
        world.management.webhooks.create(by_files, "source", secret_name="MISSING")


def test_a_webhook_is_redefined_in_place(world: World):
    made = world.webhook("source")
    world.post(made)
    world.management.secrets.create(world.may, "TOKEN", "fits-a-path-0123456789")
    other = world.beside()
    other.post(made, b"1")

    webhook = world.management.webhooks.redefine(
        world.may,
        "source",
        auth_mode=AuthMode.URL_TOKEN,
        signature_scheme=None,
        signature_options=None,
        answers_handshakes=False,
        secret_name="TOKEN",
        delivery_id_header="X-Event-Id",
        event_header="X-Event-Type",
    )

    assert (webhook.uid, webhook.auth_mode, webhook.secret_name) == (made.webhook.uid, AuthMode.URL_TOKEN, "TOKEN")
    assert other.post(made, b"2").status == 401
    path = f"/webhooks/w/{webhook.uid}/fits-a-path-0123456789"
    assert other.request("POST", path, body=b"3").status == 202
    assert len(world.log(made)) == 4


def test_a_repeated_request_finds_the_first_answer(world: World):
    with world.management.one_transaction(world.may):
        assert world.management.idempotency.stored_response(world.may, "key", b"d" * 32) is None
        world.management.idempotency.store(world.may, "key", b"d" * 32, b'{"secret": "once"}')

    with world.management.one_transaction(world.may):
        assert world.management.idempotency.stored_response(world.may, "key", b"d" * 32) == b'{"secret": "once"}'
        with pytest.raises(IdempotencyKeyReused):
            world.management.idempotency.stored_response(world.may, "key", b"e" * 32)
    world.clock.advance(days=1)
    with world.management.one_transaction(world.may):
        assert world.management.idempotency.stored_response(world.may, "key", b"d" * 32) is None


def test_an_answer_that_is_kept_is_sealed(world: World):
    with world.management.one_transaction(world.may):
        world.management.idempotency.store(world.may, "key", b"d" * 32, b'{"secret": "once"}')

    with world.database.read() as tx:
        [row] = tx.all("SELECT * FROM idempotency_keys")

    assert b"once" not in bytes(row["sealed"])


def test_a_change_that_changes_nothing_is_no_version(world: World):
    made = world.webhook("source")
    before = world.automation("triage", made, payload={"action": ["opened"]})

    same = world.management.automations.change(
        world.may, "triage", prompt=before.prompt, triggers=[trigger.as_json() for trigger in before.triggers]
    )

    assert same.version == before.version == 1


def test_an_automation_of_another_factory_leaves_a_webhook_as_it_is(world: World):
    made = world.webhook("source")
    elsewhere = world.elsewhere()
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [made.webhook.uid]}}

    world.management.automations.create(elsewhere, "theirs", prompt="Look.", triggers=[trigger])

    assert world.management.webhooks.get(world.may, "source").revision == made.webhook.revision


@pytest.mark.parametrize("uid", ["wh_", "wh_\ud800", "wh_a\x00b", "wh_" + "a" * 65, "source"])
def test_what_is_no_uid_is_refused(world: World, uid: str):
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [uid]}}

    with pytest.raises(Invalid, match="not a webhook uid"):
        world.management.automations.create(world.may, "triage", prompt="Look.", triggers=[trigger])


def test_no_description_of_a_new_webhook_shows_its_token(world: World):
    made = world.webhook("source", auth_mode=AuthMode.URL_TOKEN)

    assert made.reveal() not in repr(made)


def test_the_last_admin_stays(world: World, admin: MayAdminister):
    members = world.management.members
    ada = members.add(admin, "Ada@Example.com ", "Ada", is_admin=True)

    with pytest.raises(Conflict, match="only admin"):
        members.set_admin(admin, ada.id, False)
    with pytest.raises(Conflict, match="only admin"):
        members.remove(admin, "ada@example.com")
    grace = members.add(admin, "grace@example.com", "Grace", is_admin=True)
    members.remove(admin, ada.id)

    assert [member.id for member in members.all(admin)] == [grace.id]


def test_a_member_holds_one_role_in_a_factory(world: World, admin: MayAdminister):
    members = world.management.members
    ada = members.add(admin, "ada@example.com", "Ada")
    with pytest.raises(Conflict):
        members.add(admin, "ADA@example.com", "Another Ada")

    members.set_role(admin, ada.id, "default", Role.VIEWER)
    promoted = members.set_role(admin, ada.id, "default", Role.MANAGER)
    dismissed = members.set_role(admin, ada.id, "default", None)

    assert promoted.roles == {"default": Role.MANAGER}
    assert dismissed.roles == {}
